// SPDX-License-Identifier: GPL-2.0-only

//! Runs traffic between two guests for an hour while the link between them is cut and restored.
//!
//! The client requests each cut on its serial port, and QEMU cuts the link at the requested end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use clap::Args;
use serde::Deserialize;
use tempfile::TempDir;

use crate::commands::{await_ready, check};
use crate::judge::badly_tainted;
use crate::layout::{Layout, Purpose};
use crate::qemu::{self, Boot, Clock, Guest, Monitor, Said};
use crate::scenarios;
use crate::step;

/// A guest that prints nothing for this long is ended. The client prints at every cut and in every
/// minute. At the end, however, the client prints nothing until its last connections have ended. A
/// connection may last for 300 s (`LIMIT` in `tests/stress/src/endurance/lanes.rs`).
const SILENCE: Duration = Duration::from_secs(600);

/// Options of the endurance run.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Minutes to run.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Seed of the cuts and of the data sent; random if not given, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// The server's kernel, as `mk/kernel path` prints it; the client's kernel if not given.
    #[arg(long)]
    server_kernel: Option<PathBuf>,
}

/// The counters that one of the two guests reports.
#[derive(Clone, Debug, Default, Deserialize)]
struct Figures {
    seconds: u64,
    messages: u64,
    bytes: u64,
    connections: u64,
    datagrams: u64,
    sent: u64,
    resent: u64,
    broken: BTreeMap<String, u64>,
    cuts: u64,
    sockets: BTreeMap<String, u64>,
    available: u64,
    slab: u64,
}

/// The state that the threads of the two guests share.
struct Shared {
    server: Mutex<Figures>,
    /// Whether the server has been told to end, or has ended.
    over: AtomicBool,
}

impl Shared {
    fn server(&self) -> MutexGuard<'_, Figures> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prints a line of figures each minute. Returns true if only cut links broke connections, and no
/// socket or memory is left.
///
/// # Errors
/// If something does not build, a guest does not boot or hangs, or its kernel reports a fault.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    let other = (options.server_kernel.as_deref())
        .map(|kernel| Layout::new(kernel, Purpose::Other, layout.as_built))
        .transpose()?;
    let initramfs = scenarios::file_system(layout)?;
    let other_initramfs = other.as_ref().map(scenarios::file_system).transpose()?;
    let far_layout = other.as_ref().unwrap_or(layout);
    let far_initramfs = other_initramfs.as_ref().unwrap_or(&initramfs);
    let directory = TempDir::with_prefix("wire-").context("a temporary directory")?;
    let [near, far] = qemu::wire(directory.path());
    let seed = crate::commands::seed(options.seed);
    let client_verb = format!("endurance client --minutes {}{seed}", options.minutes);
    step::say(&format!(
        "booting a client with {} and a server with {}, joined by a wire that will be cut",
        layout.release, far_layout.release
    ));
    let boot = |layout: &Layout, initramfs: &Path, name, verb: &str, wire| {
        let verb: Vec<_> = verb.split_whitespace().map(str::to_owned).collect();
        let boot = Boot {
            name,
            initramfs,
            verb: &verb,
            clock: Clock::Free(2),
            options: "",
            wire: Some(wire),
            shared: &[],
            quiet: false,
            deadline: layout.allow(SILENCE),
        };
        Guest::boot(layout, &boot)
    };
    let mut server = boot(
        far_layout,
        far_initramfs,
        "endurance-server",
        "endurance server",
        far,
    )?;
    let mut client = boot(layout, &initramfs, "endurance-client", &client_verb, near)?;
    await_ready(&mut server)?;
    await_ready(&mut client)?;
    let cable = Cable([client.monitor()?, server.monitor()?]);
    let shared = Shared {
        server: Mutex::default(),
        over: AtomicBool::new(false),
    };
    server.send_line("go")?;
    await_figures(&mut server)?;
    step::say(&format!("traffic for {} minutes", options.minutes));
    client.send_line("go")?;
    let serving = || {
        let ended = serve(far_layout, server, &shared);
        shared.over.store(true, Relaxed);
        ended
    };
    let following = || {
        let ended = follow(layout, client, cable, &shared);
        shared.over.store(true, Relaxed);
        ended
    };
    // If both guests failed, the server's failure may be the cause of the client's.
    match step::both(serving, following) {
        (Err(other), Err(one)) => Err(one.context(format!("the server: {other:#}"))),
        (served, ended) => Ok(ended? && served?),
    }
}

/// The QEMU monitors of both guests. Each monitor cuts and restores its guest's end of the wire.
struct Cable([Monitor; 2]);

impl Cable {
    fn set(&mut self, ends: &[usize], state: &str) -> Result<()> {
        ends.iter()
            .try_for_each(|end| self.0[*end].command(&format!("set_link {} {state}", qemu::WIRE)))
    }

    /// Carries out the client's request in `line`; returns false if `line` is no request.
    fn obey(&mut self, line: &str) -> Result<bool> {
        match line {
            "cut client" => self.set(&[0], "off")?,
            "cut server" => self.set(&[1], "off")?,
            "cut both" => self.set(&[0, 1], "off")?,
            "restore" => self.set(&[0, 1], "on")?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses the figures in a line, if it has any.
fn figures(line: &str) -> Result<Option<Figures>> {
    line.strip_prefix("figures ")
        .map(|json| serde_json::from_str(json).with_context(|| line.to_owned()))
        .transpose()
}

/// Waits until the server prints its first figures, which shows that it listens.
fn await_figures(server: &mut Guest) -> Result<()> {
    loop {
        match server.next()? {
            Said::Kernel(line) => check(server, &line)?,
            Said::Program(line) if figures(&line)?.is_some() => return Ok(()),
            Said::Program(line) => println!("{line}"),
            Said::Exit(status) => bail!("the server's program ended with status {status}"),
            Said::Off => bail!("the server's guest has ended"),
            Said::Ready | Said::Done(_) | Said::Tainted(_) => {}
        }
    }
}

/// Reads a guest's output to its end and prints the lines that are neither requests nor figures.
/// Returns true if the guest's program succeeded and its kernel reported no fault.
fn hear(
    layout: &Layout,
    mut guest: Guest,
    mut take: impl FnMut(&mut Guest, &str) -> Result<bool>,
) -> Result<bool> {
    let (mut status, mut tainted) = (None, None);
    loop {
        match guest.next()? {
            Said::Kernel(line) => check(&guest, &line)?,
            Said::Program(line) => {
                guest.extend(layout.allow(SILENCE));
                if !take(&mut guest, &line)? {
                    println!("{line}");
                }
            }
            Said::Exit(code) => status = Some(code),
            Said::Tainted(bits) => tainted = Some(bits),
            Said::Ready | Said::Done(_) => {}
            Said::Off => break,
        }
    }
    let log = guest.console().display();
    let (Some(status), Some(bits)) = (status, tainted) else {
        bail!(
            "a guest ended before its init did; the end of {log}:\n{}",
            step::tail(guest.console(), 15)
        );
    };
    ensure!(
        !badly_tainted(bits),
        "the kernel is tainted ({bits:#x}): it warned or died; the whole log is {log}"
    );
    Ok(status == 0)
}

fn serve(layout: &Layout, server: Guest, shared: &Shared) -> Result<bool> {
    let mut told = false;
    hear(layout, server, |guest, line| {
        let Some(figures) = figures(line)? else {
            return Ok(false);
        };
        *shared.server() = figures;
        if shared.over.load(Relaxed) && !told {
            told = true;
            guest.send_line("stop")?;
        }
        Ok(true)
    })
}

fn follow(layout: &Layout, client: Guest, mut cable: Cable, shared: &Shared) -> Result<bool> {
    hear(layout, client, |_, line| {
        ensure!(
            !shared.over.load(Relaxed),
            "the server ended before the client"
        );
        if let Some(near) = figures(line)? {
            println!("{}", minute(&near, &shared.server()));
            return Ok(true);
        }
        cable.obey(line)
    })
}

/// Formats the counters of both ends as a line for people. If the two ends must count the same
/// number, the line has only the client's counter.
fn minute(near: &Figures, far: &Figures) -> String {
    let mut text = format!(
        "{:3}:{:02} min: {} cuts; {} messages, {} MB, {} connections, {} of {} datagrams back, {} packets resent; broken:",
        near.seconds / 60,
        near.seconds % 60,
        near.cuts,
        near.messages,
        (near.bytes + far.bytes) / 1_000_000,
        near.connections,
        near.datagrams,
        near.sent,
        near.resent + far.resent,
    );
    for (side, figures) in [("client", near), ("server", far)] {
        let _ = write!(text, " {side}");
        let all: Vec<_> = figures
            .broken
            .iter()
            .map(|(how, count)| format!(" {count} {how}"))
            .collect();
        let _ = match all.is_empty() {
            true => write!(text, " none;"),
            false => write!(text, "{};", all.join(",")),
        };
    }
    for (side, figures) in [("client", near), ("server", far)] {
        let _ = write!(text, " {side}:");
        for (name, count) in &figures.sockets {
            let _ = write!(text, " {count} {name},");
        }
        let _ = write!(
            text,
            " MemAvailable {} KiB, Slab {} KiB;",
            figures.available, figures.slab
        );
    }
    text.truncate(text.trim_end_matches(';').len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"figures {"seconds":61,"messages":10,"bytes":2000000,"connections":3,"accepted":0,"datagrams":4,
        "sent":5,"resent":6,"broken":{"EPIPE":1,"connecting: ETIMEDOUT":2},"cuts":7,"sockets":{"EDP":1,"ESP":9},
        "available":900000,"slab":40000}"#;

    #[test]
    fn figures_become_a_line() {
        let near = figures(LINE).unwrap().unwrap();
        let text = minute(&near, &Figures::default());
        assert_eq!(
            text,
            "  1:01 min: 7 cuts; 10 messages, 2 MB, 3 connections, 4 of 5 datagrams back, 6 packets resent; \
             broken: client 1 EPIPE, 2 connecting: ETIMEDOUT; server none; \
             client: 1 EDP, 9 ESP, MemAvailable 900000 KiB, Slab 40000 KiB; server: MemAvailable 0 KiB, Slab 0 KiB"
        );
        assert!(figures("cut both").unwrap().is_none());
        assert!(figures("figures none").is_err());
    }
}
