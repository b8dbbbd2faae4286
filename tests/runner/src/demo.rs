// SPDX-License-Identifier: GPL-2.0-only

//! `make demo`: the instructions of a message by transport, and the goodput of many senders to one, in a minute and on
//! one screen.
//!
//! `mk/demo` has built the module and the programs: fewer than tests need.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;

use crate::bench;
use crate::commands::{Commands, Verb};
use crate::incast::{self, Cell};
use crate::initramfs;
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

/// How long one thing may take; many times of what it does.
const PATIENCE: Duration = Duration::from_secs(900);

/// The stream protocols that many senders use: Linux' usual TCP, and ESP.
const STREAMS: [&str; 2] = ["cubic", "esp"];

const NEXT: &str = "\
Next:
  make shell      a shell in such a guest, to try it by hand
  make bench      the same for more sizes and links; make incast for more senders and other TCPs
  make install    the module for this machine's kernel; then README.md, \"Load\"";

/// Prints what is measured.
///
/// # Errors
/// When something does not build, the guest does not boot, a measurement fails, or the kernel reports a fault.
pub fn run(layout: &Layout) -> Result<()> {
    let programs = ["netgauge", "enet-switch"].map(|name| layout.program(name));
    let initramfs = initramfs::with_module(layout, "guest-demo", programs.into())?;
    let mut guest = Commands::boot_from(
        layout,
        ("demo", &initramfs),
        Verb::Bench,
        Clock::Instructions,
        PATIENCE,
        None,
        &[],
    )?;
    step::say("a message of 1 byte, by tcp, udp, raw, edp and esp");
    let messages = bench::messages(&mut guest)?;
    step::say("16 senders to one receiver, by tcp and esp");
    let cells = incast::sample(&mut guest, &STREAMS)?;
    guest.end()?;
    println!("{}", page(&layout.release, &messages, &cells));
    Ok(())
}

/// A bar of `share` of the longest.
fn bar(share: f64) -> String {
    const LONGEST: f64 = 40.0;
    "#".repeat((share * LONGEST).round() as usize)
}

/// A whole number with commas between its thousands.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn page(release: &str, messages: &[(String, f64)], cells: &[Cell]) -> String {
    let mut text = format!(
        "\nHosts are network namespaces of a guest with Linux {release} and the module enet.\n\n\
         Instructions for a message of 1 byte, both hosts\' together (half a round trip):\n\n"
    );
    let most = messages
        .iter()
        .fold(1.0, |most: f64, (_, count)| most.max(*count));
    for (transport, count) in messages {
        let _ = writeln!(
            text,
            "  {transport:6} {:>7}  {}",
            thousands(*count),
            bar(count / most)
        );
    }
    text += "\nGoodput of 16 hosts that send 64 KiB each to one at the same time, by a switch with ports of 200 Mbit/s\n\
             and 128 KiB: the worst of 5 rounds, and the frames that the switch dropped:\n\n";
    for (protocol, cell) in STREAMS.iter().zip(cells) {
        let name = if *protocol == "esp" { "esp" } else { "tcp" };
        let percent = format!("{:.0} %", cell.share.worst * 100.0);
        let _ = writeln!(
            text,
            "  {name:6} {percent:>7}  {:40}  {} dropped",
            bar(cell.share.worst),
            thousands(cell.drops as f64)
        );
    }
    text.push('\n');
    text + NEXT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (number, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (16_179.0, "16,179"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn the_page_fits_a_screen() {
        let messages = ["tcp", "udp", "raw", "edp", "esp"].map(|name| (name.to_owned(), 16_000.0));
        let page = page("7.2.12+deb13-cloud-amd64", &messages, &[]);
        assert!(page.lines().count() < 40);
        assert!(page.lines().all(|line| line.len() <= 120), "{page}");
        assert!(
            page.contains(&format!("  tcp     16,000  {}\n", "#".repeat(40))),
            "{page}"
        );
    }
}
