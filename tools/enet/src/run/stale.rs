// SPDX-License-Identifier: MIT OR Apache-2.0

//! Removes the rules and pins of control groups that no longer exist. The kernel tells neither the
//! module nor the BPF file system when a group ends.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{rules, Group, PINS, PIN_PREFIX};
use crate::proc_file;

/// Removes the rules and the pins of groups that exist no longer. Returns the numbers of these
/// groups.
///
/// # Errors
/// If this process does not see all control groups, or this user may not remove rules and pins.
pub fn forget() -> Result<Vec<u64>> {
    let pins = pins()?;
    let of_pins = pins.iter().map(|(group, _)| *group);
    let named: HashSet<u64> = rules::groups()?.into_iter().chain(of_pins).collect();
    if named.is_empty() {
        return Ok(Vec::new());
    }
    // Groups are listed after rules and pins. Otherwise a group that was created in between, with
    // rules or a pin, would count as gone.
    let living = numbers(&Group::root()?)?;
    let mut gone: Vec<u64> = named.difference(&living).copied().collect();
    gone.sort_unstable();
    // If the module is not loaded, there are no rules to remove.
    if proc_file::module_is_loaded() {
        gone.iter().try_for_each(|group| rules::forget(*group))?;
    }
    for (_, path) in pins.iter().filter(|(group, _)| gone.contains(group)) {
        fs::remove_file(path).with_context(|| path.display().to_string())?;
    }
    Ok(gone)
}

/// Returns the pins of `enet map`, each with the number of its group.
fn pins() -> Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(PINS) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context(PINS),
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths
        .filter_map(|path| Some((group_of_pin(&path)?, path)))
        .collect())
}

fn group_of_pin(path: &Path) -> Option<u64> {
    path.file_name()?
        .to_str()?
        .strip_prefix(PIN_PREFIX)?
        .parse()
        .ok()
}

/// Returns the numbers of the groups in the directory `root` and below, which are the inode numbers
/// of their directories.
fn numbers(root: &Path) -> Result<HashSet<u64>> {
    let mut found = HashSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        match number_and_below(&directory) {
            Ok((number, below)) => {
                found.insert(number);
                open.extend(below);
            }
            // A group may end at any time, but the root does not.
            Err(error) if has_ended(&error) && directory != root => {}
            // Any other error may hide a living group, whose rules must stay.
            Err(error) => return Err(error).with_context(|| directory.display().to_string()),
        }
    }
    Ok(found)
}

/// Returns the number of the group in `directory`, and the directories of the groups in it.
fn number_and_below(directory: &Path) -> io::Result<(u64, Vec<PathBuf>)> {
    let number = fs::metadata(directory)?.ino();
    let mut below = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            below.push(entry.path());
        }
    }
    Ok((number, below))
}

/// Returns whether an error means that the group ended while its directory was read.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_names_its_group() {
        let group = |name: &str| group_of_pin(&Path::new(PINS).join(name));
        assert_eq!(group("enet_978"), Some(978));
        for name in ["enet_", "enet_x", "978", "other_978"] {
            assert_eq!(group(name), None, "{name}");
        }
    }

    #[test]
    fn each_directory_has_a_number() {
        let found = numbers(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))).unwrap();
        let of = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            fs::metadata(path).unwrap().ino()
        };
        assert!(found.contains(&of("src")) && found.contains(&of("src/run")));
        assert!(!found.contains(&of("src/cli.rs")) && !found.contains(&of("")));
        assert!(numbers(Path::new("/nowhere")).is_err());
    }
}
