// SPDX-License-Identifier: GPL-2.0-only

//! Builds the programs for the guests: the module, the Rust programs, and the peers in C.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{ensure, Context, Result};

use crate::layout::{Layout, Purpose};
use crate::step;

/// The packages of the workspace whose programs run in guests.
const PACKAGES: &[&str] = &["enet-switch", "enet-tools", "netgauge", "suite"];

/// The programs that are built from `PACKAGES` and put into the guests' file system.
pub const PROGRAMS: &[&str] = &["enet", "enet-switch", "netgauge", "scenarios"];

/// The examples of the library `sockaddr_en`, which scenarios run.
pub const EXAMPLES: &[&str] = &[
    "esp_nc",
    "esp_tokio_echo",
    "esp_tokio_records",
    "esp_uring_echo",
];

/// Builds the module if its sources changed; `mk/module` prints the progress.
///
/// # Errors
/// If the module does not build.
pub fn build_module(layout: &Layout) -> Result<()> {
    if layout.as_built {
        return Ok(());
    }
    let mut command = Command::new(layout.project.join("mk/module"));
    command
        .current_dir(&layout.project)
        .env_remove("KDIR")
        .env_remove("RELEASE");
    match layout.purpose {
        Purpose::Stock => {}
        Purpose::Other => {
            command.env("RELEASE", &layout.release);
        }
        Purpose::Debug => {
            command.arg("debug");
        }
    }
    let status = command.status().context("mk/module")?;
    ensure!(status.success(), "enet.ko does not build; see above");
    Ok(())
}

/// Builds the Rust programs if their sources changed.
///
/// # Errors
/// If they do not build.
pub fn build_programs(layout: &Layout) -> Result<()> {
    build_packages(layout, PACKAGES)?;
    let arguments = ["-p", "sockaddr_en", "--all-features", "--examples"];
    build(layout, "the library's examples", "examples.log", &arguments)
}

/// Builds some packages if their sources changed.
///
/// # Errors
/// If they do not build.
pub fn build_packages(layout: &Layout, packages: &[&str]) -> Result<()> {
    let arguments: Vec<_> = packages.iter().flat_map(|name| ["-p", *name]).collect();
    build(layout, &packages.join(" and "), "programs.log", &arguments)
}

fn build(layout: &Layout, what: &str, log: &str, arguments: &[&str]) -> Result<()> {
    if layout.as_built {
        return Ok(());
    }
    step::run(
        &format!("building {what}"),
        &layout.logs()?.join(log),
        layout
            .architecture
            .cargo_build()
            .args(["--release", "--locked"])
            .args(arguments)
            .current_dir(&layout.project),
    )
}

/// Compiles the C programs that changed: peers of tests, and examples of the library `sockaddr_en`.
/// These programs include the library's public headers. Returns the paths of all C programs.
///
/// # Errors
/// If a program does not compile without warnings.
pub fn build_peers(layout: &Layout) -> Result<Vec<PathBuf>> {
    let include = layout.project.join("tools/sockaddr_en/include");
    let headers = step::files_of(&include, "h")?;
    let mut sources = step::files_of(&layout.project.join("tests/peers"), "c")?;
    let examples = layout.project.join("tools/sockaddr_en/examples");
    sources.extend(step::files_of(&examples, "c")?);
    let target = layout
        .build()
        .join("peers")
        .join(layout.architecture.target().unwrap_or_default());
    fs::create_dir_all(&target).with_context(|| target.display().to_string())?;
    let age = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
    let newest_header = headers.iter().filter_map(age).max();
    let mut peers = Vec::new();
    for source in sources {
        let stem = source.file_stem().context("a source without a name")?;
        let peer = target.join(stem);
        if age(&peer).is_none() || age(&peer) < age(&source) || age(&peer) < newest_header {
            // The partial file of an interrupted run must not be taken for a program.
            let partial = peer.with_extension("partial");
            step::run(
                &format!("compiling {}", stem.to_string_lossy()),
                &layout.logs()?.join("peers.log"),
                layout
                    .architecture
                    .tool("gcc-14")
                    .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
                    .arg(&include)
                    .arg("-o")
                    .arg(&partial)
                    .arg(&source)
                    .arg("-lpthread"),
            )?;
            fs::rename(&partial, &peer).with_context(|| peer.display().to_string())?;
        }
        peers.push(peer);
    }
    Ok(peers)
}
