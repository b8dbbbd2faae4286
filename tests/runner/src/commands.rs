// SPDX-License-Identifier: GPL-2.0-only

//! Commands in a guest, one after the other, each with its output and its exit status.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use alarms::alarm;
use anyhow::{bail, Context, Result};
use serde::de::DeserializeOwned;

use crate::layout::Layout;
use crate::qemu::{Boot, Clock, Guest, Monitor, Said, Wire};
use crate::scenarios;
use crate::shared::Shared;
use crate::step;

/// A guest that runs commands.
#[derive(Debug)]
pub struct Commands {
    guest: Guest,
    verb: Verb,
    patience: Duration,
}

/// How the guest's init takes what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Lines of shell.
    Commands,
    /// Arguments of netgauge, which talks to a server in another namespace.
    Bench,
    /// Lines of shell in a tree that the guest mounts.
    Tree,
}

/// What a command printed, both its outputs together, and its exit status.
#[derive(Debug)]
pub struct Ended {
    /// Its lines.
    pub text: String,
    /// 0 for success.
    pub status: i32,
}

/// The JSON values in what was printed, from the first on.
pub fn json(text: &str) -> impl Iterator<Item = Result<serde_json::Value>> + '_ {
    let start = text.find('{').unwrap_or(text.len());
    serde_json::Deserializer::from_str(&text[start..])
        .into_iter()
        .map(move |value| value.with_context(|| format!("cannot be read:\n{text}")))
}

impl Ended {
    /// The first JSON value that was printed, as a `T`; what stands behind it is not looked at.
    ///
    /// # Errors
    /// When there is none, or it is something else; with all that was printed.
    pub fn report<T: DeserializeOwned>(&self) -> Result<T> {
        let text = &self.text;
        let value = json(text)
            .next()
            .with_context(|| format!("no report was printed:\n{text}"))??;
        serde_json::from_value(value).with_context(|| format!("a report of another kind:\n{text}"))
    }
}

/// A rate of `enet-switch`, as `200mbit`, the way netgauge writes it.
pub fn netgauge_rate(rate: &str) -> String {
    rate.trim_end_matches("bit").to_uppercase()
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

/// How long the kernel may take to say all of what is wrong.
const REPORT: Duration = Duration::from_secs(10);

impl Commands {
    /// Builds what guests need and boots one named `name`; it is ended when one thing takes longer
    /// than `patience`.
    ///
    /// # Errors
    /// When something does not build, or the guest does not boot.
    pub fn boot(
        layout: &Layout,
        name: &str,
        verb: Verb,
        clock: Clock,
        patience: Duration,
    ) -> Result<Self> {
        Self::boot_on(layout, name, verb, clock, patience, None)
    }

    /// The same with this wire.
    ///
    /// # Errors
    /// As [`Commands::boot`].
    pub fn boot_on(
        layout: &Layout,
        name: &str,
        verb: Verb,
        clock: Clock,
        patience: Duration,
        wire: Option<Wire>,
    ) -> Result<Self> {
        let initramfs = scenarios::file_system(layout)?;
        let place = (name, initramfs.as_path());
        Self::boot_from(layout, place, verb, clock, patience, wire, &[])
    }

    /// The same with a name, a file system that is built already, and directories that the guest
    /// can mount.
    ///
    /// # Errors
    /// When the guest does not boot.
    pub fn boot_from(
        layout: &Layout,
        (name, initramfs): (&str, &Path),
        verb: Verb,
        clock: Clock,
        patience: Duration,
        wire: Option<Wire>,
        shared: &[Shared],
    ) -> Result<Self> {
        let how = match clock {
            Clock::Instructions => " whose clock counts instructions",
            Clock::Watched => {
                " whose clock counts instructions, and whose accesses of memory are counted"
            }
            Clock::Free(_) => "",
        };
        step::say(&format!("booting a guest with {}{how}", layout.release));
        let word = match verb {
            Verb::Commands => "commands",
            Verb::Bench => "bench",
            Verb::Tree => "tree",
        };
        let mut guest = Guest::boot(
            layout,
            &Boot {
                name,
                initramfs,
                verb: &[word.to_owned()],
                clock,
                wire,
                shared,
                quiet: false,
                deadline: patience,
            },
        )?;
        await_ready(&mut guest)?;
        Ok(Self {
            guest,
            verb,
            patience,
        })
    }

    /// The same in a tree that is served as "toolbox", beside a directory that is served as
    /// "share".
    ///
    /// # Errors
    /// As [`Commands::boot_from`].
    pub fn boot_tree(
        layout: &Layout,
        place: (&str, &Path),
        shared: &[Shared; 2],
        clock: Clock,
        patience: Duration,
    ) -> Result<Self> {
        Self::boot_from(layout, place, Verb::Tree, clock, patience, None, shared)
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        self.guest.extend(self.patience);
        self.guest.tell(line)
    }

    /// Has init take one line and calls `heard` with each line it prints.
    ///
    /// # Errors
    /// When the guest ends, or its kernel reports a fault.
    pub fn run(&mut self, line: &str, mut heard: impl FnMut(&str)) -> Result<i32> {
        self.tell(line)?;
        let mut fault = Ok(());
        loop {
            let said = match self.guest.next() {
                Ok(said) => said,
                Err(error) => return Err(fault.err().unwrap_or(error)),
            };
            match said {
                Said::Kernel(line) if fault.is_ok() => {
                    fault = check(&self.guest, &line);
                    if fault.is_err() {
                        // The log is to have the rest of the report.
                        self.guest.extend(REPORT);
                    }
                }
                Said::Kernel(_) => {}
                Said::Program(line) => heard(&line),
                Said::Done(status) => return fault.map(|()| status),
                Said::Off => {
                    fault?;
                    bail!(
                        "the guest ended; its log is {}",
                        self.guest.console().display()
                    )
                }
                Said::Ready | Said::Tainted(_) | Said::Exit(_) => {}
            }
        }
    }

    /// Has init take one line and waits for its end.
    ///
    /// # Errors
    /// As [`Commands::run`].
    pub fn ask(&mut self, line: &str) -> Result<Ended> {
        let mut text = String::new();
        let status = self.run(line, |line| {
            text += line;
            text.push('\n');
        })?;
        Ok(Ended { text, status })
    }

    /// Has the guest's shell run one line, whatever else init takes, and waits for its end.
    ///
    /// # Errors
    /// As [`Commands::run`].
    pub fn shell(&mut self, line: &str) -> Result<Ended> {
        match self.verb {
            Verb::Commands | Verb::Tree => self.ask(line),
            Verb::Bench => self.ask(&format!("! {line}")),
        }
    }

    /// QEMU's own ear.
    ///
    /// # Errors
    /// When QEMU does not answer.
    pub fn monitor(&self) -> Result<Monitor> {
        self.guest.monitor()
    }

    /// What tells the counts of a guest that is watched.
    ///
    /// # Errors
    /// When the plugin does not answer.
    pub fn counts(&self) -> Result<UnixStream> {
        self.guest.counts()
    }

    /// Ends the guest.
    ///
    /// # Errors
    /// When it does not end, or its kernel reports a fault.
    pub fn end(mut self) -> Result<()> {
        self.tell("")?;
        loop {
            match self.guest.next()? {
                Said::Kernel(line) => check(&self.guest, &line)?,
                Said::Off => return Ok(()),
                _ => {}
            }
        }
    }
}

/// Boots a guest named `name` for the one command `line`, prints what it prints, and ends the
/// guest; true when the command succeeded. It may take as long as `patience`, and so may booting.
///
/// # Errors
/// When something does not build, the guest does not boot, or its kernel reports a fault.
pub fn once(
    layout: &Layout,
    name: &str,
    clock: Clock,
    patience: Duration,
    line: &str,
) -> Result<bool> {
    let mut guest = Commands::boot(layout, name, Verb::Commands, clock, patience)?;
    step::say(line);
    let status = guest.run(line, |line| println!("{line}"))?;
    guest.end()?;
    Ok(status == 0)
}

/// How a program is told `seed`, if there is one.
pub fn seed(seed: Option<u64>) -> String {
    seed.map(|seed| format!(" --seed {seed}"))
        .unwrap_or_default()
}

/// How long a command of a user may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Runs `commands` until one fails, printing what they print; true when none did.
///
/// # Errors
/// When something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout, commands: &[String], counted: bool) -> Result<bool> {
    let clock = if counted {
        Clock::Instructions
    } else {
        Clock::Free(2)
    };
    let mut guest = Commands::boot(layout, "run", Verb::Commands, clock, PATIENCE)?;
    let mut good = true;
    for command in commands {
        let status = guest.run(command, |line| println!("{line}"))?;
        if status != 0 {
            eprintln!("{command}: exit status {status}");
            good = false;
            break;
        }
    }
    guest.end()?;
    Ok(good)
}
