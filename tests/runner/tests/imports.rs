// SPDX-License-Identifier: GPL-2.0-only

//! Checks the import graph of each crate. The number of files that import each other in a circle is
//! limited, because files in a circle can only be understood together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};

/// The module path of a crate's file; the path of the crate's root is empty.
type Module = Vec<String>;

/// For each crate: the directory, the root file, and the largest number of files that a circle may
/// have; 1 forbids circles.
const CRATES: [(&str, &str, usize); 2] = [("enet", "enet", 1), ("netgauge/src", "lib", 7)];

/// The paths in a file that begin with `crate`, `self` or `super`.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn add_tree(&mut self, tree: &syn::UseTree, mut path: Vec<String>) {
        match tree {
            syn::UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.add_tree(&tree.tree, path);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(tree, path.clone());
                }
            }
            syn::UseTree::Name(tree) => {
                path.push(tree.ident.to_string());
                self.0.push(path);
            }
            syn::UseTree::Rename(tree) => {
                path.push(tree.ident.to_string());
                self.0.push(path);
            }
            syn::UseTree::Glob(_) => self.0.push(path),
        }
    }
}

impl Visit<'_> for Paths {
    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        self.add_tree(&item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let segments = path.segments.iter().map(|part| part.ident.to_string());
        self.0.push(segments.collect());
        visit::visit_path(self, path);
    }

    /// Skips visibilities, because `pub(super)` imports nothing.
    fn visit_visibility(&mut self, _: &syn::Visibility) {}

    /// Skips the modules of tests, because tests may import any file.
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !item.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, item);
        }
    }
}

fn is_test(attribute: &syn::Attribute) -> bool {
    matches!(&attribute.meta, syn::Meta::List(list)
        if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
}

/// Reads the files of a crate into `found`, each with the paths in it.
fn read(directory: &Path, root: &str, module: &Module, found: &mut BTreeMap<Module, Paths>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut module = module.clone();
        if path.is_dir() {
            module.push(name.to_owned());
            read(&path, root, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            if name != "mod" && !(module.is_empty() && name == root) {
                module.push(name.to_owned());
            }
            let text = fs::read_to_string(&path).unwrap();
            let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            let mut paths = Paths::default();
            paths.visit_file(&file);
            found.insert(module, paths);
        }
    }
}

/// Finds the item that `path` names in the file of `module`, and returns the module whose file has
/// this item. Returns `None` if the item is in another crate or in the same file.
fn target(module: &Module, path: &[String], files: &BTreeMap<Module, Paths>) -> Option<Module> {
    let mut absolute = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.clone(),
        _ => return None,
    };
    for part in path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => drop(absolute.pop()),
            _ => absolute.push(part.clone()),
        }
    }
    while !files.contains_key(&absolute) {
        absolute.pop()?;
    }
    (absolute != *module).then_some(absolute)
}

type Graph = BTreeMap<Module, BTreeSet<Module>>;

fn graph(directory: &str, root: &str) -> Graph {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = BTreeMap::new();
    read(&project.join(directory), root, &Vec::new(), &mut files);
    files
        .iter()
        .map(|(module, paths)| {
            let targets = paths
                .0
                .iter()
                .filter_map(|path| target(module, path, &files));
            (module.clone(), targets.collect())
        })
        .collect()
}

/// Returns the files that a file imports directly or indirectly.
fn reached<'a>(graph: &'a Graph, from: &'a Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = graph[from].iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(&graph[module]);
        }
    }
    reached
}

/// Returns the largest circle, with the imports between its files.
fn largest_circle(graph: &Graph) -> Vec<String> {
    let reached: BTreeMap<_, _> = graph
        .keys()
        .map(|from| (from, reached(graph, from)))
        .collect();
    let circle = |from: &Module| -> BTreeSet<&Module> {
        let back = |other: &&&Module| reached[**other].contains(from);
        reached[from].iter().filter(back).copied().collect()
    };
    let largest = graph.keys().map(circle).max_by_key(BTreeSet::len).unwrap();
    let name = |module: &Module| match module.join("/").as_str() {
        "" => "(root)".to_owned(),
        path => path.to_owned(),
    };
    largest
        .iter()
        .map(|from| {
            let within = graph[*from].iter().filter(|to| largest.contains(to));
            format!(
                "{} -> {}",
                name(from),
                within.map(name).collect::<Vec<_>>().join(", ")
            )
        })
        .collect()
}

#[test]
fn no_circle_of_imports_is_larger_than_it_may_be() {
    for (directory, root, most) in CRATES {
        let graph = graph(directory, root);
        assert!(graph.len() > 20, "{directory}: {} files", graph.len());
        let circle = largest_circle(&graph);
        println!(
            "{directory}: {} files, largest circle {}",
            graph.len(),
            circle.len()
        );
        assert!(circle.len() <= most, "{directory}:\n{}", circle.join("\n"));
    }
}

#[test]
fn a_circle_is_found() {
    let module = |name: &str| vec![name.to_owned()];
    let graph = [("a", "b"), ("b", "c"), ("c", "b")]
        .map(|(from, to)| (module(from), BTreeSet::from([module(to)])))
        .into();
    assert_eq!(largest_circle(&graph), ["b -> c", "c -> b"]);
}

#[test]
fn imports_are_found() {
    let text = "use super::{a::Item, b}; fn f() { crate::c::call() } \
        #[cfg(test)] mod tests { use crate::d; }";
    let mut paths = Paths::default();
    paths.visit_file(&syn::parse_file(text).unwrap());
    let own = |path: &&Vec<String>| matches!(path[0].as_str(), "crate" | "super");
    let found: Vec<_> = paths
        .0
        .iter()
        .filter(own)
        .map(|path| path.join("::"))
        .collect();
    assert_eq!(found, ["super::a::Item", "super::b", "crate::c::call"]);
}
