// SPDX-License-Identifier: MIT OR Apache-2.0

//! Says what to do where the module is not loaded.

use std::fs;

/// Returns the message for a host on which the module is not loaded. It says how to load the
/// module, or how to install it if the running kernel has none.
pub fn missing() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    // `modules.dep` is the index that depmod makes and modprobe searches. If it cannot be read,
    // modprobe finds no module, so it counts as empty.
    let index = fs::read_to_string(format!("/lib/modules/{release}/modules.dep"));
    explain(release, &index.unwrap_or_default())
}

fn explain(release: &str, index: &str) -> String {
    if is_installed(index) {
        "the module is not loaded on this host: load it with `modprobe enet`".to_owned()
    } else {
        format!(
            "the module is not loaded on this host, and /lib/modules has none for kernel {release}: \
             install the package enet-modules-{release} or enet-dkms, or run `make install` in enet's sources"
        )
    }
}

/// Returns whether an index of modules has enet. Each line is a module's file, which may be
/// compressed, and the files of the modules that it needs: `updates/enet.ko.xz: kernel/...`.
fn is_installed(index: &str) -> bool {
    let files = index.lines().filter_map(|line| line.split(':').next());
    let mut names = files.filter_map(|file| file.rsplit('/').next());
    names.any(|name| name == "enet.ko" || name.starts_with("enet.ko."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_module_is_to_be_loaded_and_another_to_be_installed() {
        for file in ["updates/enet.ko", "updates/dkms/enet.ko.xz", "enet.ko.zst"] {
            let index = format!("kernel/a.ko: kernel/b.ko\n{file}: kernel/a.ko\n");
            let told = explain("7.3.4", &index);
            assert!(told.ends_with("load it with `modprobe enet`"), "{told}");
        }
        for index in [
            "",
            "kernel/drivers/net/xenet.ko:\nkernel/enet.kobold:\n",
            "kernel/a.ko: updates/enet.ko\n",
            "enet.ko/a.ko:\n",
        ] {
            let told = explain("7.3.4", index);
            for words in [
                "kernel 7.3.4",
                "enet-modules-7.3.4",
                "enet-dkms",
                "make install",
            ] {
                assert!(told.contains(words), "{index:?}: {told}");
            }
            assert!(!told.contains("modprobe"), "{index:?}: {told}");
        }
    }
}
