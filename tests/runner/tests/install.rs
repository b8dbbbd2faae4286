// SPDX-License-Identifier: GPL-2.0-only

//! Tests `make uninstall`, and the cases in which `make install` refuses to install.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A directory that stands for a system, with substitutes for the system's programs.
struct System(TempDir);

impl System {
    fn new(release: &str) -> Self {
        let system = Self(TempDir::new().unwrap());
        system.program("uname", &format!("echo {release}"));
        system
    }

    fn program(&self, name: &str, body: &str) {
        let place = self.0.path().join(name);
        fs::write(&place, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs mk/module. Returns whether it succeeds, and its messages.
    fn module(&self, command: &str) -> (bool, String) {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = std::env::var("PATH").unwrap();
        let output = Command::new(project.join("mk/module"))
            .arg(command)
            .env("PATH", format!("{}:{path}", self.0.path().display()))
            .env("INSTALL_MOD_PATH", self.0.path())
            .env("ENET_CACHE", self.0.path())
            .env_remove("KDIR")
            .env_remove("RELEASE")
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.success(), said)
    }
}

/// Returns the output of `make install` if `uname -r` prints `release`; the command must fail.
fn refusal(release: &str) -> String {
    let (is_good, said) = System::new(release).module("install");
    assert!(!is_good, "{release}: {said}");
    said
}

/// `make install` refuses if a package has installed the module. Otherwise it and dpkg would
/// overwrite each other's module.
#[test]
fn the_module_of_a_package_is_not_overwritten() {
    let release = "7.3.4+deb13-amd64";
    let owned = format!(
        "[ $2 = -S ] && echo enet-modules-{release}: /usr/lib/modules/{release}/updates/enet.ko"
    );
    let with_dkms = "[ $2 = -W ] && [ $5 = enet-dkms ] && echo installed".to_owned();
    for (body, owner) in [
        (owned, format!("enet-modules-{release}")),
        (with_dkms, "enet-dkms".to_owned()),
    ] {
        let system = System::new(release);
        system.program("dpkg-query", &body);
        let (is_good, said) = system.module("install");
        let words = format!("the package {owner} has installed the module for {release}");
        assert!(!is_good && said.contains(&words), "{said}");
        assert!(said.contains(&format!("'apt remove {owner}'")), "{said}");
    }
}

#[test]
fn uninstall_removes_what_is_listed() {
    let system = System::new("7.3.4+deb13-amd64");
    let place = |name: &str| system.0.path().join(name);
    let module = "lib/modules/7.3.4+deb13-amd64/updates";
    for directory in [
        "usr/local/lib/enet",
        "usr/local/bin",
        "usr/local/share/man/man7",
        module,
    ] {
        fs::create_dir_all(place(directory)).unwrap();
    }
    let ours = ["usr/local/bin/enet", "usr/local/share/man/man7/esp.7"];
    let packaged = format!("{module}/enet.ko");
    for file in ours
        .into_iter()
        .chain([&packaged[..], "usr/local/bin/theirs"])
    {
        fs::write(place(file), "").unwrap();
    }
    let listed = format!(
        "/usr/local/bin/\n/usr/local/bin/enet\n/usr/local/lib/enet/\n/{packaged}\n\
         /usr/local/share/man/\n/usr/local/share/man/man7/\n/usr/local/share/man/man7/esp.7\n"
    );
    fs::write(place("usr/local/lib/enet/installed"), listed).unwrap();
    // After `make install`, a package has replaced the module.
    system.program(
        "dpkg-query",
        r#"case $3 in *enet.ko) echo "a-package: $3" ;; *) exit 1 ;; esac"#,
    );
    let (is_good, said) = system.module("uninstall");
    assert!(is_good, "{said}");
    for gone in ours
        .into_iter()
        .chain(["usr/local/lib/enet", "usr/local/share/man"])
    {
        assert!(!place(gone).exists(), "{gone}: {said}");
    }
    for left in ["usr/local/bin/theirs", "usr/local/share", &packaged] {
        assert!(place(left).exists(), "{left}: {said}");
    }
    let (is_good, said) = system.module("uninstall");
    assert!(!is_good && said.contains("nothing is installed"), "{said}");
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
