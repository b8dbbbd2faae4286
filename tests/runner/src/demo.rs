//! Two guests on an emulated wire: netgauge's server in one, its client in the other.

use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use tempfile::TempDir;

use crate::layout::Layout;
use crate::qemu::{self, Boot, Clock, Guest, Said};
use crate::scenarios;
use crate::step;
use alarms::alarm;

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "10.0.0.2";

/// What netgauge measures here: enough sizes for a picture, few enough repetitions for a minute.
const MEASURE: &str = "-m tcp,udp,raw,edp,esp -s 1-65536 -c 50";

/// How long the guests may take to be ready, and then to measure; many times of what they do.
const PATIENCE: Duration = Duration::from_secs(900);

/// Prints netgauge's table, measured between two guests.
///
/// # Errors
/// When something does not build, a guest does not boot, netgauge fails, or a kernel reports a fault.
pub fn run(layout: &Layout) -> Result<()> {
    let initramfs = scenarios::file_system(layout)?;
    let directory = TempDir::with_prefix("wire-").context("a temporary directory")?;
    let [a, b] = qemu::wire(directory.path());
    let server_verb = words(&format!("host {SERVER}"));
    let client_verb = words(&format!(
        "client {CLIENT} {MEASURE} --connect {SERVER} --interface eth0"
    ));
    step::say(&format!(
        "booting two guests with {}, joined by an emulated wire",
        layout.release
    ));
    let boot = |name, verb, wire| {
        let boot = Boot {
            name,
            initramfs: &initramfs,
            verb,
            clock: Clock::Free(1),
            wire: Some(wire),
            deadline: PATIENCE,
        };
        Guest::boot(layout, &boot)
    };
    let mut server = boot("demo-server", &server_verb, b)?;
    let mut client = boot("demo-client", &client_verb, a)?;
    await_ready(&mut server)?;
    await_ready(&mut client)?;
    step::say("measuring");
    client.extend(PATIENCE);
    client.tell("go")?;
    let status = pass_on(&mut client)?;
    server.extend(PATIENCE);
    server.tell("stop")?;
    pass_on(&mut server)?;
    ensure!(status == 0, "netgauge ended with status {status}");
    Ok(())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Waits until the guest is set up.
///
/// # Errors
/// When it ends instead, or its kernel reports a fault.
pub fn await_ready(guest: &mut Guest) -> Result<()> {
    loop {
        match guest.next()? {
            Said::Ready => return Ok(()),
            Said::Kernel(line) => check(guest, &line)?,
            Said::Program(line) => eprintln!("{line}"),
            Said::Exit(status) => bail!("the guest's setting up ended with status {status}"),
            Said::Off => bail!(
                "the guest ended while starting; the end of {}:\n{}",
                guest.console().display(),
                step::tail(guest.console(), 15)
            ),
            Said::Done(_) | Said::Tainted(_) => {}
        }
    }
}

/// Prints what the guest's programs print until it ends, and returns its status.
fn pass_on(guest: &mut Guest) -> Result<i32> {
    let mut status = None;
    loop {
        match guest.next()? {
            Said::Kernel(line) => check(guest, &line)?,
            Said::Program(line) => println!("{line}"),
            Said::Exit(code) => status = Some(code),
            Said::Ready | Said::Done(_) | Said::Tainted(_) => {}
            Said::Off => break,
        }
    }
    status.with_context(|| {
        format!(
            "the guest ended before its init did; the end of {}:\n{}",
            guest.console().display(),
            step::tail(guest.console(), 15)
        )
    })
}

/// Fails when the kernel's `line` reports a fault.
///
/// # Errors
/// With that line.
pub fn check(guest: &Guest, line: &str) -> Result<()> {
    match alarm(line) {
        Some(fault) => bail!("{fault}; the whole log is {}", guest.console().display()),
        None => Ok(()),
    }
}
