// SPDX-License-Identifier: GPL-2.0-only

//! Runs commands in a guest, one after the other, and returns their output and exit status.

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

/// How the guest's init interprets the lines it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Each line is a shell command.
    Commands,
    /// Each line has arguments of netgauge, which measures to a server in another namespace.
    Bench,
    /// Each line is a shell command, run in a root file system that the runner shares.
    Tree,
}

/// The output of a command (its standard output and its standard error together), and the command's
/// exit status.
#[derive(Debug)]
pub struct Ended {
    /// The output's lines.
    pub text: String,
    /// The exit status, 0 for success.
    pub status: i32,
}

/// Parses the JSON values in `text`, from the first `{` on.
pub fn json(text: &str) -> impl Iterator<Item = Result<serde_json::Value>> + '_ {
    let start = text.find('{').unwrap_or(text.len());
    serde_json::Deserializer::from_str(&text[start..])
        .into_iter()
        .map(move |value| value.with_context(|| format!("cannot be read:\n{text}")))
}

impl Ended {
    /// Parses the first JSON value of the output as a `T`; ignores the rest.
    ///
    /// # Errors
    /// If the output has no JSON value, or the value is no `T`; the message has the whole output.
    pub fn report<T: DeserializeOwned>(&self) -> Result<T> {
        let text = &self.text;
        let value = json(text)
            .next()
            .with_context(|| format!("no report was printed:\n{text}"))??;
        serde_json::from_value(value).with_context(|| format!("a report of another kind:\n{text}"))
    }
}

/// Converts a rate of `enet-switch`, such as `200mbit`, to netgauge's notation.
pub fn netgauge_rate(rate: &str) -> String {
    rate.trim_end_matches("bit").to_uppercase()
}

/// Waits until the guest is set up.
///
/// # Errors
/// If the guest ends first, or its kernel reports a fault.
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

/// Fails if the kernel's `line` reports a fault.
///
/// # Errors
/// If `line` reports a fault, which the error then describes.
pub fn check(guest: &Guest, line: &str) -> Result<()> {
    match alarm(line) {
        Some(fault) => bail!("{fault}; the whole log is {}", guest.console().display()),
        None => Ok(()),
    }
}

/// The kernel has this time to write the rest of a fault report.
const REPORT: Duration = Duration::from_secs(10);

impl Commands {
    /// Builds the guest's contents and boots it under the name `name`. The guest is ended if
    /// booting or a command takes longer than `patience`.
    ///
    /// # Errors
    /// If something does not build, or the guest does not boot.
    pub fn boot(
        layout: &Layout,
        name: &str,
        verb: Verb,
        clock: Clock,
        patience: Duration,
    ) -> Result<Self> {
        Self::boot_on(layout, name, verb, clock, patience, None)
    }

    /// Boots a guest like [`Commands::boot`], but with network devices at the ends of `wire`.
    ///
    /// # Errors
    /// The errors of [`Commands::boot`].
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

    /// Boots a guest like [`Commands::boot_on`], but with a name and a file system of the caller's
    /// choice, and with directories that the guest can mount. With [`Verb::Tree`], the directory in
    /// `shared` with the tag "toolbox" becomes the root file system of the guest's commands. The
    /// directory with the tag "share" is mounted there at `/share`.
    ///
    /// # Errors
    /// If the guest does not boot.
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
                options: "",
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

    fn send_line(&mut self, line: &str) -> Result<()> {
        self.guest.extend(self.patience);
        self.guest.send_line(line)
    }

    /// Sends init a line and calls `heard` with each line of output.
    ///
    /// # Errors
    /// If the guest ends, or its kernel reports a fault.
    pub fn run(&mut self, line: &str, mut heard: impl FnMut(&str)) -> Result<i32> {
        self.send_line(line)?;
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
                        // Keep reading, so that the log contains the whole report.
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

    /// Sends init a line and waits until the line's command ends.
    ///
    /// # Errors
    /// The errors of [`Commands::run`].
    pub fn ask(&mut self, line: &str) -> Result<Ended> {
        let mut text = String::new();
        let status = self.run(line, |line| {
            text += line;
            text.push('\n');
        })?;
        Ok(Ended { text, status })
    }

    /// Runs a line in the guest's shell, in any mode of init, and waits until the line's command
    /// ends.
    ///
    /// # Errors
    /// The errors of [`Commands::run`].
    pub fn shell(&mut self, line: &str) -> Result<Ended> {
        match self.verb {
            Verb::Commands | Verb::Tree => self.ask(line),
            Verb::Bench => self.ask(&format!("! {line}")),
        }
    }

    /// Returns QEMU's monitor.
    ///
    /// # Errors
    /// If QEMU does not answer.
    pub fn monitor(&self) -> Result<Monitor> {
        self.guest.monitor()
    }

    /// Connects to the plugin that counts memory accesses, in a guest booted with
    /// [`Clock::Watched`].
    ///
    /// # Errors
    /// If the plugin does not answer.
    pub fn counts(&self) -> Result<UnixStream> {
        self.guest.counts()
    }

    /// Ends the guest.
    ///
    /// # Errors
    /// If the guest does not end, or its kernel reports a fault.
    pub fn end(mut self) -> Result<()> {
        self.send_line("")?;
        loop {
            match self.guest.next()? {
                Said::Kernel(line) => check(&self.guest, &line)?,
                Said::Off => return Ok(()),
                _ => {}
            }
        }
    }
}

/// Boots a guest named `name` for one command, prints the command's output, and ends the guest.
/// Returns true if the command succeeded. Booting and the command may take `patience` each.
///
/// # Errors
/// If something does not build, the guest does not boot, or its kernel reports a fault.
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

/// Returns the option that passes `seed` to a program; an empty string without a seed.
pub fn seed(seed: Option<u64>) -> String {
    seed.map(|seed| format!(" --seed {seed}"))
        .unwrap_or_default()
}

/// Time limit for a command that a user runs with `make run`.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Runs `commands` until one fails, and prints their output; returns true if none failed.
///
/// # Errors
/// If something does not build, the guest does not boot, or its kernel reports a fault.
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
