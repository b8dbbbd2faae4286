// SPDX-License-Identifier: GPL-2.0-only

//! Feeds every file of the corpus to its target, without libFuzzer.

use std::fs;
use std::path::Path;

use fuzz_targets::{Target, ALL};

fn replay(name: &str, target: Target) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let directory = directory.join(name);
    let mut files = 0;
    for entry in fs::read_dir(&directory).expect("a corpus") {
        let path = entry.expect("an entry").path();
        let bytes = fs::read(&path).expect("a file");
        // The test harness shows this path only if the target panics.
        println!("{}", path.display());
        target(&bytes);
        files += 1;
    }
    assert!(files > 0, "{} is empty", directory.display());
}

#[test]
fn every_target_holds_for_its_corpus() {
    for (name, target) in ALL {
        replay(name, target);
    }
}

#[test]
fn every_target_has_its_program() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("the programs' manifest");
    let programs = manifest.matches("[[bin]]").count();
    assert_eq!(programs, ALL.len());
    for (name, _) in ALL {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
