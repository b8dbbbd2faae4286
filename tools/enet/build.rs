// SPDX-License-Identifier: MIT OR Apache-2.0

//! Makes the program report the version in `ENET_VERSION`, if it is set, instead of the crate's.
//! Packages set it to their own version.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ENET_VERSION");
    if let Ok(version) = std::env::var("ENET_VERSION") {
        if !version.is_empty() {
            println!("cargo::rustc-env=CARGO_PKG_VERSION={version}");
        }
    }
}
