// SPDX-License-Identifier: MIT OR Apache-2.0

//! Has the program tell the version of the package that it is built for, `ENET_VERSION`, in place
//! of the crate's.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ENET_VERSION");
    if let Ok(version) = std::env::var("ENET_VERSION") {
        if !version.is_empty() {
            println!("cargo::rustc-env=CARGO_PKG_VERSION={version}");
        }
    }
}
