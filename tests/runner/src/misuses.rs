// SPDX-License-Identifier: GPL-2.0-only

//! Checks that misuses of the module's safe interfaces do not compile. The misuses are snippets in
//! `tests/misuse`.
//!
//! Each file becomes a module of the kernel module's own crate and is compiled with the flags that
//! Kbuild used. The file holds one misuse under `#[cfg(misuse)]`. A comment such as `//~ E0502`
//! marks the line that the compiler must refuse, and has the code of the error. Compiled without
//! `cfg(misuse)`, the same file is the control. The control must compile, which proves that only
//! the misuse is refused.
//!
//! One compilation takes all controls, another takes all misuses. The compiler continues after an
//! error. If the compiler does not reach a misuse because of another error, that misuse counts as
//! compiled, and its test fails.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

use crate::judge::Part;
use crate::layout::Layout;
use crate::step;

/// Checks every snippet; requires that the module has been built.
pub fn check(layout: &Layout) -> Part {
    step::say("compiling misuses, which must fail");
    let mut part = Part::new("misuses");
    if let Err(error) = judge_all(layout, &mut part) {
        part.take::<()>("compiler", Err(error));
    }
    part
}

fn judge_all(layout: &Layout, part: &mut Part) -> Result<()> {
    let snippets = read_all(&layout.project.join("tests/misuse"))?;
    let compiler = Compiler::of_kbuild(layout)?;
    let compile = |misused| compiler.compile(&snippets, misused);
    let (controls, misuses) = step::both(|| compile(false), || compile(true));
    let (controls, misuses) = (controls?, misuses?);
    for snippet in &snippets {
        part.take(&snippet.name, snippet.judge(&controls, &misuses));
    }
    let stray = |error: &&Diagnostic| snippets.iter().all(|snippet| !snippet.has(error));
    if let Some(error) = controls.iter().chain(&misuses).find(stray) {
        bail!("an error outside the snippets: {}", error.text());
    }
    Ok(())
}

/// One file of `tests/misuse`.
#[derive(Debug, PartialEq, Eq)]
struct Snippet {
    name: String,
    path: PathBuf,
    /// The line that the compiler must refuse.
    line: usize,
    /// The code of the error that the compiler must report at this line, such as `E0502`.
    code: String,
}

/// Reads the snippets in `directory`, sorted by name.
fn read_all(directory: &Path) -> Result<Vec<Snippet>> {
    let mut snippets = Vec::new();
    for path in step::files_of(directory, "rs")? {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        snippets.push(Snippet::read(path, &text)?);
    }
    ensure!(!snippets.is_empty(), "{} is empty", directory.display());
    Ok(snippets)
}

impl Snippet {
    fn read(path: PathBuf, text: &str) -> Result<Self> {
        let shown = path.display();
        let marks: Vec<_> = text
            .lines()
            .zip(1..)
            .filter_map(|(text, line)| Some((line, text.split_once("//~ ")?.1.trim())))
            .collect();
        let [(line, code)] = marks[..] else {
            bail!("{shown}: {} lines are marked, not one", marks.len());
        };
        ensure!(
            text.contains("#[cfg(misuse)]"),
            "{shown}: nothing is under #[cfg(misuse)]"
        );
        let name = path.file_stem().context("a snippet without a name")?;
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            line,
            code: code.to_owned(),
            path,
        })
    }

    /// Returns whether `error` refers to this file.
    fn has(&self, error: &Diagnostic) -> bool {
        error
            .spans
            .iter()
            .any(|span| span.is_primary && self.path == Path::new(&span.file_name))
    }

    /// Checks that the control has no error. The misuse must have the error named in the file, at
    /// the marked line.
    fn judge(&self, controls: &[Diagnostic], misuses: &[Diagnostic]) -> Result<()> {
        if let Some(error) = controls.iter().find(|error| self.has(error)) {
            bail!("the control does not compile: {}", error.text());
        }
        let mut errors = misuses.iter().filter(|error| self.has(error)).peekable();
        ensure!(errors.peek().is_some(), "the misuse compiles");
        for error in errors {
            let code = error.code.as_ref().map_or("", |code| &code.code);
            ensure!(
                code == self.code,
                "{} is expected, not this: {}",
                self.code,
                error.text()
            );
            let here = |span: &Span| {
                self.path == Path::new(&span.file_name)
                    && (span.line_start..=span.line_end).contains(&self.line)
            };
            ensure!(
                error.spans.iter().any(here),
                "line {} is marked, and the error is elsewhere: {}",
                self.line,
                error.text()
            );
        }
        Ok(())
    }
}

/// The relevant part of a diagnostic that rustc prints as JSON.
#[derive(Debug, Deserialize)]
struct Diagnostic {
    message: String,
    code: Option<Code>,
    level: String,
    spans: Vec<Span>,
    rendered: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Code {
    code: String,
}

#[derive(Debug, Deserialize)]
struct Span {
    file_name: String,
    line_start: usize,
    line_end: usize,
    is_primary: bool,
}

impl Diagnostic {
    fn text(&self) -> &str {
        self.rendered.as_deref().unwrap_or(&self.message)
    }
}

/// Parses the errors that rustc printed. rustc's final count of errors has no location and is
/// skipped.
fn errors(printed: &str) -> Result<Vec<Diagnostic>> {
    let mut errors = Vec::new();
    for line in printed.lines() {
        let diagnostic: Diagnostic =
            serde_json::from_str(line).with_context(|| format!("rustc says {line}"))?;
        if diagnostic.level.starts_with("error") && !diagnostic.spans.is_empty() {
            errors.push(diagnostic);
        }
    }
    Ok(errors)
}

/// The rustc command that Kbuild used for the module's crate.
struct Compiler {
    /// The shell command without its last words, which name the products and the source.
    command: String,
    /// The directory of the module's sources, where rustc finds the files of the crate.
    sources: PathBuf,
    /// Kbuild's output directory for the module.
    output: PathBuf,
}

impl Compiler {
    fn of_kbuild(layout: &Layout) -> Result<Self> {
        let output = layout
            .module()
            .parent()
            .context("a module in no directory")?
            .to_owned();
        let path = output.join("enet/.enet.o.cmd");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Self {
            command: flags(&text)
                .with_context(|| format!("{} has no call of rustc", path.display()))?
                .to_owned(),
            sources: layout.project.join("enet"),
            output,
        })
    }

    /// Compiles the module's crate with all `snippets` in it, and returns the errors.
    fn compile(&self, snippets: &[Snippet], misused: bool) -> Result<Vec<Diagnostic>> {
        let root = self.sources.join("enet.rs");
        let mut root = fs::read_to_string(&root).with_context(|| root.display().to_string())?;
        root += "#[forbid(unsafe_code)]\nmod misuses {\n";
        for snippet in snippets {
            root += &format!("#[path = {:?}]\nmod {};\n", snippet.path, snippet.name);
        }
        root += "}\n";
        // If rustc reads a crate from standard input, it searches the crate's modules from its
        // working directory.
        let (name, option) = match misused {
            true => ("misuses", "--cfg misuse"),
            false => ("controls", ""),
        };
        let metadata = self.output.join(name).with_extension("rmeta");
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "{} {option} -Awarnings --crate-name enet --emit=metadata={} --error-format=json -",
                self.command,
                metadata.display()
            ))
            .current_dir(&self.sources)
            .env("RUSTC_BOOTSTRAP", "1")
            .env(
                "ENET_BINDINGS",
                self.output.join("rust/bindings_generated.rs"),
            )
            .env(
                "ENET_HELPERS",
                self.output.join("rust/bindings_helpers_generated.rs"),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting rustc")?;
        child
            .stdin
            .take()
            .context("rustc without an input")?
            .write_all(root.as_bytes())
            .context("rustc")?;
        let ended = child.wait_with_output().context("rustc")?;
        let printed = String::from_utf8_lossy(&ended.stderr);
        let errors = errors(&printed)?;
        ensure!(
            ended.status.success() == errors.is_empty(),
            "rustc: {}, with {} errors:\n{printed}",
            ended.status,
            errors.len()
        );
        Ok(errors)
    }
}

/// Returns the rustc command that Kbuild saved, without its products and its source.
fn flags(saved: &str) -> Option<&str> {
    let call = saved
        .lines()
        .find_map(|line| line.strip_prefix("savedcmd_enet/enet.o := "))?;
    Some(call.split_once(" --out-dir ")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "fn f(queue: &mut Queue) {\n    #[cfg(misuse)]\n    queue.purge(); //~ E0502\n}\n";

    fn snippet() -> Snippet {
        Snippet::read("/tests/misuse/purge.rs".into(), TEXT).unwrap()
    }

    fn error(code: &str, file: &str, line: usize) -> Diagnostic {
        let printed = format!(
            r#"{{"message":"no","code":{{"code":"{code}"}},"level":"error","rendered":null,
            "spans":[{{"file_name":"{file}","line_start":{line},"line_end":{line},"is_primary":true}}]}}"#
        );
        errors(&printed.replace('\n', "")).unwrap().pop().unwrap()
    }

    fn verdict(controls: &[Diagnostic], misuses: &[Diagnostic]) -> String {
        match snippet().judge(controls, misuses) {
            Ok(()) => "good".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_snippet_names_its_line_and_its_error() {
        let read = snippet();
        assert_eq!((&*read.name, read.line, &*read.code), ("purge", 3, "E0502"));
        let refused = |text: &str| Snippet::read("x.rs".into(), text).is_err();
        assert!(refused(&TEXT.replace("//~ E0502", "")));
        assert!(refused(&TEXT.repeat(2)));
        assert!(refused(&TEXT.replace("#[cfg(misuse)]", "")));
    }

    #[test]
    fn the_expected_error_at_the_marked_line_passes() {
        let misuses = [error("E0502", "/tests/misuse/purge.rs", 3)];
        assert_eq!(verdict(&[], &misuses), "good");
    }

    #[test]
    fn a_misuse_that_compiles_fails() {
        let other = [error("E0502", "/tests/misuse/other.rs", 3)];
        assert_eq!(verdict(&[], &[]), "the misuse compiles");
        assert_eq!(verdict(&[], &other), "the misuse compiles");
    }

    #[test]
    fn another_error_fails() {
        let other = || error("E0425", "/tests/misuse/purge.rs", 3);
        let right = || error("E0502", "/tests/misuse/purge.rs", 3);
        assert!(verdict(&[], &[other()]).contains("expected"));
        assert!(verdict(&[], &[right(), other()]).contains("expected"));
        let elsewhere = error("E0502", "/tests/misuse/purge.rs", 1);
        assert!(verdict(&[], &[right(), elsewhere]).contains("elsewhere"));
    }

    #[test]
    fn a_control_that_does_not_compile_fails() {
        let errors = || [error("E0502", "/tests/misuse/purge.rs", 3)];
        assert!(verdict(&errors(), &errors()).contains("control"));
    }

    #[test]
    fn rustc_is_called_as_kbuild_called_it() {
        let saved = "savedcmd_enet/enet.o := RUST_MODFILE=./enet rustc -Cpanic=abort --out-dir enet/ --emit=obj=x y.rs\n";
        assert_eq!(
            flags(saved),
            Some("RUST_MODFILE=./enet rustc -Cpanic=abort")
        );
        assert_eq!(flags("source_enet/enet.o := y.rs\n"), None);
    }
}
