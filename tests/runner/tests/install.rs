// SPDX-License-Identifier: GPL-2.0-only

//! Tests the message of `make install` on a kernel that is too old, because this is the most
//! frequent first error.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Returns the output of `make install` if `uname -r` prints `release`; the command must fail.
fn refusal(release: &str) -> String {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = TempDir::new().unwrap();
    let uname = directory.path().join("uname");
    fs::write(&uname, format!("#!/bin/sh\necho {release}\n")).unwrap();
    fs::set_permissions(&uname, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new(project.join("mk/module"))
        .arg("install")
        .env("PATH", format!("{}:{path}", directory.path().display()))
        .env("INSTALL_MOD_PATH", directory.path())
        .env("ENET_CACHE", directory.path())
        .env_remove("KDIR")
        .env_remove("RELEASE")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{release}: {said}");
    said
}

#[test]
fn an_old_kernel_is_answered_with_the_one_to_install() {
    for (release, package) in [
        ("6.1.0-37-amd64", "linux-image-amd64"),
        ("6.12.48+deb13-amd64", "linux-image-amd64"),
        ("6.12.48+deb13-cloud-amd64", "linux-image-cloud-amd64"),
        ("6.12.48+deb13-arm64", "linux-image-arm64"),
        ("7.1.13+deb13-amd64", "linux-image-amd64"),
    ] {
        let said = refusal(release);
        let command = format!("apt install -t trixie-backports {package}'");
        for words in [&command[..], release, "Linux 7.2 or newer"] {
            assert!(said.contains(words), "{release}: {said}");
        }
        assert!(!said.contains("KDIR"), "{release}: {said}");
    }
}

/// The documents and the scripts name the same kernel as the oldest supported one.
#[test]
fn the_oldest_kernel_is_the_same_everywhere() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (file, words) in [
        ("mk/lib.sh", "\noldest=7.2\n"),
        ("README.md", "Linux 7.2 or newer"),
        ("docs/using.md", "Linux 7.2 or newer"),
        ("docs/packages.md", "Kernels before 7.2"),
        ("docs/packages.md", "Linux 7.2 or newer"),
        ("docs/kernels.md", "The oldest is Linux 7.2."),
        ("packaging/debian/control", "from 7.2 on"),
        (
            "packaging/debian/enet-dkms.dkms",
            "BUILD_EXCLUSIVE_KERNEL_MIN=\"7.2\"",
        ),
    ] {
        let text = fs::read_to_string(project.join(file)).unwrap();
        assert!(text.contains(words), "{file} does not say {words:?}");
    }
}
