// SPDX-License-Identifier: GPL-2.0-only

//! Tests packaging/ and what the documents tell to type for it.

mod pages;

use pages::{files, read};

/// Returns the documents that tell commands of apt, and the scripts whose messages do.
fn with_commands() -> Vec<String> {
    let mut found = files("docs");
    found.extend(files("mk"));
    found.extend(["README.md", "CONTRIBUTING.md"].map(str::to_owned));
    found.retain(|name| name.ends_with(".md") || name.starts_with("mk/"));
    found
}

/// `apt upgrade` takes packages' names and upgrades all others too.
#[test]
fn no_document_upgrades_the_whole_host() {
    for name in with_commands() {
        let text = read(&name);
        assert!(!text.contains("apt upgrade enet"), "{name}");
        assert!(!text.contains("apt-get upgrade"), "{name}");
    }
    let page = read("docs/operations.md");
    let upgrade = "\napt install --only-upgrade enet-modules-$(uname -r) enet-tools    # 3. ";
    assert!(page.contains(upgrade));
}

/// A stock Debian 13 has no source for trixie-backports: README adds it, the others name README.
#[test]
fn a_suite_is_installed_from_after_its_source_is_added() {
    let readme = read("README.md");
    let (before, _) = readme
        .split_once("apt install -t trixie-backports")
        .unwrap();
    let source =
        "\necho 'deb http://deb.debian.org/debian trixie-backports main' >/etc/apt/sources.list.d/";
    assert!(before.contains(source) && before.contains("\napt update && "));
    for name in with_commands() {
        let text = read(&name);
        let names = text.contains("README.md#install") || text.contains("README.md, Install");
        assert!(
            name == "README.md" || names || !text.contains("-t trixie-backports"),
            "{name} does not say where trixie-backports comes from"
        );
    }
}
