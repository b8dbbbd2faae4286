// SPDX-License-Identifier: GPL-2.0-only

//! Tests `packaging/`, and the commands for installing and upgrading that the documents show.

mod pages;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use pages::{files, read, root};
use tempfile::TempDir;

/// Returns the documents and the scripts that may show commands of apt to the reader.
fn with_commands() -> Vec<String> {
    let mut found = files("docs");
    found.extend(files("mk"));
    found.extend(["README.md", "CONTRIBUTING.md"].map(str::to_owned));
    found.retain(|name| name.ends_with(".md") || name.starts_with("mk/"));
    found
}

/// Even if it is given the names of packages, `apt upgrade` upgrades all other packages, too.
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

/// A stock Debian 13 does not have trixie-backports among its sources. README shows how to add this
/// source, and the other documents refer to README.
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

/// Runs `packaging/enet-policy` with a file of rules. Returns what it writes to the policy, and
/// whether it succeeds.
fn loaded(rules: &str) -> (String, bool) {
    let directory = TempDir::new().unwrap();
    let place = directory.path();
    fs::write(place.join("rules"), rules).unwrap();
    let script = "mkfifo policy && exec 3<>policy && \"$0\" rules policy; good=$?
        echo end >policy; sed '/^end$/Q' <&3; exit $good";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(fs::canonicalize(root().join("packaging/enet-policy")).unwrap())
        .current_dir(place)
        .output()
        .unwrap();
    let written = String::from_utf8(output.stdout).unwrap();
    (written, output.status.success())
}

#[test]
fn rules_replace_those_of_the_namespace_and_deny_first() {
    let rules = "# ours\nallow 10.0.0.0/24 0-65535\n\ndeny 10.0.0.9/32 80-90\nallow fd00::/64 1-2";
    let wanted =
        "flush 0\ndeny 10.0.0.9/32 80-90 0\nallow 10.0.0.0/24 0-65535 0\nallow fd00::/64 1-2 0\n";
    assert_eq!(loaded(rules), (wanted.to_owned(), true));
}

/// If a misspelt line were skipped, ESP would carry connections that this line should deny.
#[test]
fn a_line_that_is_no_rule_leaves_all_to_tcp() {
    let (written, is_good) = loaded("deny 10.0.0.9/32 80-90 7\nallow 10.0.0.0/24 0-65535\n");
    assert!(!is_good);
    let wanted =
        "flush 0\nallow 10.0.0.0/24 0-65535 0\ndeny 0.0.0.0/0 0-65535 0\ndeny ::/0 0-65535 0\n";
    assert_eq!(written, wanted);
}

/// A git repository that contains `mk/version` and one commit.
struct Repository(TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Self(TempDir::new().unwrap());
        let place = repository.0.path();
        for directory in ["mk", "packaging/debian"] {
            fs::create_dir_all(place.join(directory)).unwrap();
        }
        for file in ["mk/version", "mk/lib.sh"] {
            fs::copy(root().join(file), place.join(file)).unwrap();
        }
        let next = "enet (1.2.0) unstable; urgency=medium\n";
        fs::write(place.join("packaging/debian/changelog"), next).unwrap();
        repository.git("init -q");
        repository.commit();
        repository
    }

    fn git(&self, words: &str) {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=test", "-c", "user.email=test@example.org"]);
        let git = git.args(words.split(' ')).current_dir(self.0.path());
        assert!(git.status().unwrap().success(), "{words}");
    }

    fn commit(&self) {
        self.git("add -A");
        self.git("commit -q --allow-empty -m test");
    }

    /// Returns the version without the commit's hash.
    fn version(&self) -> String {
        let output = Command::new(self.0.path().join("mk/version")).output();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        let said = said.trim();
        let is_release = !said.contains("git");
        let counted = if is_release {
            Some(said)
        } else {
            said.rsplit_once('.').map(|(counted, _)| counted)
        };
        counted.unwrap().to_owned()
    }
}

/// To apt, versions of commits before the release of 1.2.0 are older than 1.2.0, and versions of
/// later commits are newer.
#[test]
fn versions_grow_from_commit_to_release_to_commit() {
    let repository = Repository::new();
    repository.git("tag v1.1.0");
    assert_eq!(repository.version(), "1.2.0~git1");
    repository.commit();
    assert_eq!(repository.version(), "1.2.0~git2");
    repository.git("tag v1.2.0");
    assert_eq!(repository.version(), "1.2.0");
    repository.commit();
    assert_eq!(repository.version(), "1.2.0+git3");
    fs::write(repository.0.path().join("version"), "1.2.0~git2.abc\n").unwrap();
    assert_eq!(repository.version(), "1.2.0~git2");
    fs::remove_file(repository.0.path().join("version")).unwrap();
    fs::remove_dir_all(repository.0.path().join(".git")).unwrap();
    assert_eq!(repository.version(), "1.2.0");
}

/// The crates, the Python package and the Debian packages have one version.
#[test]
fn the_version_is_the_same_everywhere() {
    let page = read("Cargo.toml");
    let (_, rest) = page
        .split_once("[workspace.package]\nversion = \"")
        .unwrap();
    let (version, _) = rest.split_once('"').unwrap();
    for (file, words) in [
        ("packaging/debian/changelog", format!("enet ({version}) ")),
        ("packaging/Containerfile", format!("-t enet:{version} ")),
        ("packaging/enet-exporter.yaml", format!("/enet:{version}\n")),
        ("CHANGELOG.md", format!("\n## {version}")),
        (
            "tools/python/pyproject.toml",
            format!("version = \"{version}\""),
        ),
        ("mpi/btl_esp/Cargo.toml", format!("version = \"{version}\"")),
        (
            "Cargo.toml",
            format!("sockaddr_en = {{ version = \"{version}\""),
        ),
        (
            "netgauge/Cargo.toml",
            format!("enet-switch = {{ version = \"{version}\""),
        ),
    ] {
        let text = read(file);
        assert!(text.contains(&words), "{file} does not say {words:?}");
    }
}

/// Returns whether a pattern of debian/copyright matches a file. A star in the pattern also stands
/// for slashes.
fn is_about(pattern: &str, file: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == file,
        Some((start, "")) => file.starts_with(start),
        Some((start, end)) => file
            .strip_prefix(start)
            .is_some_and(|rest| rest.ends_with(end)),
    }
}

/// Returns the patterns and the licence of each `Files:` stanza of debian/copyright.
fn stanzas() -> Vec<(Vec<String>, String)> {
    let text = read("packaging/debian/copyright");
    let about_files = text
        .split("\n\n")
        .filter_map(|stanza| stanza.strip_prefix("Files:"));
    about_files
        .map(|stanza| {
            let (patterns, rest) = stanza.split_once("\nCopyright:").unwrap();
            let (_, licence) = rest.split_once("\nLicense: ").unwrap();
            let patterns = patterns.split_whitespace().map(str::to_owned);
            let licence = licence.lines().next().unwrap();
            (patterns.collect(), licence.replace(" or ", " OR "))
        })
        .collect()
}

/// The last stanza that matches a file has the licence of the file's SPDX line.
#[test]
fn the_packages_licences_are_those_of_the_files() {
    let stanzas = stanzas();
    let mut names = ["Kbuild", "Makefile", "Cargo.toml"]
        .map(str::to_owned)
        .to_vec();
    for directory in [
        "docs",
        "edp",
        "enet",
        "esp",
        "mk",
        "mpi",
        "netgauge",
        "packaging",
        "rust",
        "tests",
        "tools",
    ] {
        names.extend(files(directory));
    }
    let mut compared = 0;
    for name in names {
        let Ok(text) = fs::read_to_string(root().join(&name)) else {
            continue;
        };
        let mut lines = text.lines().take(4);
        let Some(line) = lines.find_map(|line| line.split_once("SPDX-License-Identifier: ")) else {
            continue;
        };
        let own = line.1.trim_end_matches([' ', '*', '/', '-', '>']);
        let own = if own == "GPL-2.0" {
            "GPL-2.0-only"
        } else {
            own
        };
        let patterns = |(patterns, _): &&(Vec<String>, String)| {
            patterns.iter().any(|pattern| is_about(pattern, &name))
        };
        let (_, licence) = stanzas.iter().rev().find(patterns).unwrap();
        assert_eq!(licence, own, "{name}");
        compared += 1;
    }
    assert!(compared > 800, "{compared}");
}

/// Each published crate contains the texts of its licences and the changelog.
#[test]
fn published_crates_have_their_licences() {
    for place in ["tools/sockaddr_en", "tools/switch", "netgauge"] {
        for (name, original) in [
            ("LICENSE-MIT", "LICENSES/MIT.txt"),
            ("LICENSE-APACHE", "LICENSES/Apache-2.0.txt"),
            ("CHANGELOG.md", "CHANGELOG.md"),
        ] {
            assert_eq!(read(&format!("{place}/{name}")), read(original), "{place}");
        }
        let manifest = read(&format!("{place}/Cargo.toml"));
        assert!(!manifest.contains("publish = false"), "{place}");
        // crates.io shows README.md without the files next to it, so relative links would be
        // broken.
        for line in read(&format!("{place}/README.md")).lines() {
            for target in pages::links(line) {
                assert!(
                    target.starts_with("https:") || target.starts_with('#'),
                    "{place}: {target}"
                );
            }
        }
    }
    for (name, original) in [
        ("LICENSE-MIT", "MIT.txt"),
        ("LICENSE-APACHE", "Apache-2.0.txt"),
    ] {
        // The licences must be files, because a Python source archive would contain symbolic links
        // as they are.
        let text = read(&format!("tools/python/{name}"));
        assert_eq!(text, read(&format!("LICENSES/{original}")));
        assert!(!root().join("tools/python").join(name).is_symlink());
    }
    for place in ["edp", "esp", "tools/enet", "tools/preload"] {
        let manifest = read(&format!("{place}/Cargo.toml"));
        assert!(manifest.contains("\npublish = false\n"), "{place}");
    }
}

/// Runs `packaging/dkms-build` while dpkg reports `status` for the package of the kernel's source.
/// Returns whether it builds, and its messages.
fn dkms_build(status: &str) -> (bool, String) {
    let directory = TempDir::new().unwrap();
    let place = |name: &str| directory.path().join(name);
    let program = |name: &str, body: &str| {
        fs::write(place(name), format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(place(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    let package = format!(
        "case $4 in linux-source-7.3) echo {status} 7.3.4-1 ;; *) echo installed 7.3.4-1 ;; esac"
    );
    program("dpkg-query", &package);
    program("make", "true");
    program("prepare-tree", r#"[ "$1" != unpack ] || mkdir "$3""#);
    fs::create_dir(place("headers")).unwrap();
    fs::write(place("headers/Module.symvers"), "").unwrap();
    fs::copy(root().join("packaging/dkms-build"), place("dkms-build")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new(place("dkms-build"))
        .args(["7.3.4+deb13-amd64", "headers"])
        .current_dir(directory.path())
        .env("PATH", format!("{}:{path}", directory.path().display()))
        .output()
        .unwrap();
    (
        output.status.success(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// DKMS may build when apt has unpacked the source but has not configured its package yet.
#[test]
fn the_kernels_source_need_not_be_configured() {
    for status in [
        "installed",
        "unpacked",
        "half-configured",
        "triggers-awaited",
        "triggers-pending",
    ] {
        let (is_good, said) = dkms_build(status);
        assert!(is_good, "{status}: {said}");
    }
    for status in ["config-files", "half-installed", "not-installed"] {
        let (is_good, said) = dkms_build(status);
        let words = "apt install linux-source-7.3=7.3.4-1";
        assert!(!is_good && said.contains(words), "{status}: {said}");
    }
}
