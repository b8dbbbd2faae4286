// SPDX-License-Identifier: GPL-2.0-only

//! `make demo`: the cost of a message by transport, the delay at a switch port with many senders,
//! and how much faster an unmodified program gets its answers over ESP than over TCP. It takes a
//! minute, and shows the results on one screen and in one picture.
//!
//! `mk/demo` builds the module and the programs before it starts this subcommand. The demonstration
//! needs fewer programs than the tests.

mod page;
mod picture;
mod redis;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use self::page::{thousands, Bar, Panel};
use self::redis::Gets;
use crate::bench;
use crate::commands::{Commands, Verb};
use crate::incast::{self, Sample, Sizes};
use crate::initramfs;
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

/// Time limit for a measurement; many times the usual duration.
const PATIENCE: Duration = Duration::from_secs(900);

/// The stream protocols that share a port: Linux' default TCP, and ESP. The number is how many
/// rounds of the incast measurement make the protocol's median reproducible. ESP's rounds are all
/// alike, so few suffice.
const STREAMS: [(&str, u32); 2] = [("cubic", 25), ("esp", 5)];

/// Sizes at which the results are reproducible. With TCP, 32 senders of 64 KiB overflow a port in
/// every round. 16 senders overflow the port only in some rounds, so their worst round is random.
const SIZES: Sizes = Sizes {
    question: 100,
    streams: 16,
    senders: 32,
    kib: 64,
};

/// Programs of the workspace that run in the guest.
const PROGRAMS: [&str; 3] = ["enet", "enet-switch", "netgauge"];

/// Programs of Debian that the guest runs unmodified, in addition to Debian's tools.
const UNCHANGED: [&str; 3] = ["redis-benchmark", "redis-cli", "redis-server"];

/// The results of the demonstration.
#[derive(Debug)]
struct Figures {
    /// Instructions of a message, by transport.
    messages: Vec<(String, f64)>,
    /// Results by protocol, TCP first.
    samples: Vec<Sample>,
    /// Results of redis, TCP first.
    gets: [Gets; 2],
}

/// Prints the results, and draws them.
///
/// # Errors
/// If something does not build, the guest does not boot, a measurement fails, or the kernel reports
/// a fault.
pub fn run(layout: &Layout) -> Result<()> {
    let initramfs =
        initramfs::with_module(layout, "guest-demo", programs(layout), redis::files(layout))?;
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
    let samples = incast::sample(&mut guest, &STREAMS, &SIZES)?;
    let gets = redis::measure(&mut guest)?;
    guest.end()?;
    let panels = Figures {
        messages,
        samples,
        gets,
    }
    .panels();
    let file = layout.build().join("demo.svg");
    fs::write(
        &file,
        picture::svg(&panels, &page::emulated(&layout.release))?,
    )
    .with_context(|| file.display().to_string())?;
    println!("{}", page::page(&layout.release, &panels, &file));
    Ok(())
}

fn programs(layout: &Layout) -> Vec<PathBuf> {
    let ours = PROGRAMS.map(|name| layout.program(name));
    let in_toolbox = |name| layout.architecture.in_toolbox(format!("/usr/bin/{name}"));
    ours.into_iter().chain(UNCHANGED.map(in_toolbox)).collect()
}

impl Figures {
    /// Returns the panels in display order.
    fn panels(&self) -> Vec<Panel> {
        let messages = self.messages.iter().map(|(transport, count)| Bar {
            name: transport.clone(),
            value: thousands(*count),
            length: *count,
            note: String::new(),
        });
        let names = ["tcp", "esp"];
        let samples = || names.into_iter().zip(&self.samples);
        let questions = samples().map(|(name, sample)| Bar {
            name: name.to_owned(),
            value: micros(sample.p99_ns as f64),
            length: sample.p99_ns as f64,
            note: format!("{} without the streams", micros(sample.alone_ns as f64)),
        });
        let many = samples().map(|(name, sample)| Bar {
            name: name.to_owned(),
            value: format!("{:.0} %", sample.share * 100.0),
            length: sample.share,
            note: format!(
                "{} rounds, {:.0} frames dropped in each",
                sample.rounds,
                sample.drops as f64 / f64::from(sample.rounds)
            ),
        });
        let gets = self
            .gets
            .iter()
            .zip(["tcp", "enet run"])
            .map(|(gets, name)| Bar {
                name: name.to_owned(),
                value: micros(gets.p99_ms * 1e6),
                length: gets.p99_ms,
                note: format!("{} requests a second", thousands(gets.per_second)),
            });
        vec![
            Panel::new(
                "Instructions for a message of 1 byte, both hosts together (half a round trip)".to_owned(),
                messages.collect(),
            ),
            Panel::new(
                format!(
                    "A question of {} bytes while {} hosts stream to the one that is asked: 99 of 100 take at most",
                    SIZES.question, SIZES.streams
                ),
                questions.collect(),
            ),
            Panel::new(
                format!(
                    "{} hosts send {} KiB each to one at the same time: goodput of the median round",
                    SIZES.senders, SIZES.kib
                ),
                many.collect(),
            )
            .of(1.0),
            Panel::new(
                "redis, unchanged, while 8 others stream to its host: 99 of 100 GETs take at most".to_owned(),
                gets.collect(),
            ),
        ]
    }
}

/// Formats nanoseconds as whole microseconds.
fn micros(ns: f64) -> String {
    format!("{} us", thousands(ns / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn figures() -> Figures {
        let sample = |p99_ns, share, drops| Sample {
            p99_ns,
            alone_ns: 50_000,
            share,
            rounds: 20,
            drops,
        };
        Figures {
            messages: ["tcp", "udp", "raw", "edp", "esp"]
                .map(|name| (name.to_owned(), 16_000.0))
                .into(),
            samples: vec![sample(5_277_000, 0.31, 4_076), sample(377_000, 0.97, 0)],
            gets: [(6.503, 201.0), (0.543, 2370.0)]
                .map(|(p99_ms, per_second)| Gets { p99_ms, per_second }),
        }
    }

    #[test]
    fn the_page_fits_a_screen_and_says_what_is_emulated() {
        let panels = figures().panels();
        let release = "7.2.12+deb13-cloud-amd64";
        let page = page::page(release, &panels, Path::new("/usr/src/enet/build/demo.svg"));
        assert!(page.lines().count() < 40, "{page}");
        assert!(page.lines().all(|line| line.len() <= 100), "{page}");
        assert!(
            page.contains(&format!(
                "Emulated, with Linux {release}: time is counted instructions,"
            )),
            "{page}"
        );
        assert!(page.contains("Left out: misses of caches"), "{page}");
        for line in [
            format!("  tcp        16,000  {}", "#".repeat(40)),
            format!(
                "  esp        377 us  {:40}  50 us without the streams",
                "###"
            ),
            format!(
                "  tcp          31 %  {:40}  20 rounds, 204 frames dropped in each",
                "#".repeat(12)
            ),
            format!("  enet run   543 us  {:40}  2,370 requests a second", "###"),
            "As a picture: /usr/src/enet/build/demo.svg".to_owned(),
        ] {
            assert!(page.contains(&format!("\n{line}\n")), "{line}\n{page}");
        }
    }
}
