//! Where the instructions of a half round trip go: how many each function executes, by transport.
//!
//! QEMU logs every block of instructions that it executes, while a guest like the benchmark's exchanges messages. Two
//! runs that differ in nothing but their number of round trips are subtracted from each other, so that what netgauge
//! does before and after cancels out. The guest's own list of symbols says which function a block belongs to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write as _};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use clap::Args;
use serde_json::Value;

use crate::commands::{Commands, Verb};
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

/// The address of the server's namespace, see `guest/init`.
const SERVER: &str = "10.0.0.2";

const DEADLINE: Duration = Duration::from_secs(1800);

/// Round trips of the two runs that are compared.
const SHORT: u64 = 100;
const LONG: u64 = 400;

/// The runner's own line at the end of what QEMU has logged.
const END: &[u8] = b"(end)\n";

/// What runs outside the kernel.
const PROGRAMS: &str = "(programs)";

/// What to profile.
#[derive(Debug, Args)]
pub struct Options {
    /// The transports, as netgauge calls them; the first decides the order of the lines.
    #[arg(default_values_t = ["esp", "edp", "raw", "tcp"].map(str::to_owned))]
    protocols: Vec<String>,
    /// Bytes per message.
    #[arg(long, default_value_t = 1)]
    size: u64,
    /// Functions to print.
    #[arg(long, default_value_t = 40)]
    top: usize,
}

/// Instructions by function.
type Profile = BTreeMap<String, f64>;

/// Prints the table; true when every transport could be measured.
///
/// # Errors
/// When something does not build, the guest does not boot, a transport fails, or QEMU's log cannot be understood.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    let directory = tempfile::TempDir::with_prefix("profile-")?;
    let pipe = directory.path().join("log");
    let status = Command::new("mkfifo").arg(&pipe).status()?;
    ensure!(status.success(), "mkfifo: {status}");
    let mut guest = Commands::boot(
        layout,
        "profile",
        Verb::Bench,
        Clock::Instructions,
        DEADLINE,
    )?;
    // QEMU never sees an end of it, nor waits for one who reads.
    let mut log = OpenOptions::new().read(true).write(true).open(&pipe)?;
    let mut monitor = guest.monitor()?;
    monitor.tell(&format!("logfile {}", pipe.display()))?;
    let size = options.size;
    let arguments = |protocol: &str, count| {
        format!(
            "-m {protocol} --connect {SERVER} --interface veth0 --format json -x one-one -s {size} -c {count} \
             --warmup 20"
        )
    };
    step::say("first runs, not counted");
    for protocol in &options.protocols {
        ask(&mut guest, &arguments(protocol, LONG))?;
    }
    // By now all modules are loaded that are needed.
    step::say("reading the guest's symbols");
    let symbols = Symbols::read(&mut guest)?;
    let mut trace = Trace::default();
    let mut profiles = Vec::new();
    let mut medians = Vec::new();
    for protocol in &options.protocols {
        step::say(&format!("counting {protocol}"));
        let mut counts = Vec::new();
        for count in [SHORT, LONG] {
            monitor.tell("log in_asm,exec,nochain")?;
            let from = log.try_clone()?;
            let (counted, report) = thread::scope(|scope| {
                let reader = scope.spawn(|| trace.read(from));
                let report = ask(&mut guest, &arguments(protocol, count));
                // What QEMU logs it has written by then.
                monitor.tell("log none")?;
                log.write_all(END)?;
                let counted = reader.join().expect("the reader of QEMU's log")?;
                anyhow::Ok((counted, report?))
            })?;
            counts.push(counted);
            if count == LONG {
                medians.push(report);
            }
        }
        profiles.push(compare(&counts[0], &counts[1], &symbols));
    }
    guest.end()?;
    if trace.unlisted > 0 {
        step::say(&format!(
            "{} times a block was entered that QEMU had not listed, and counted as one instruction",
            trace.unlisted
        ));
    }
    println!("{}", table(options, &profiles, &medians));
    Ok(true)
}

/// Has the guest run netgauge; the median of half a round trip in instructions.
fn ask(guest: &mut Commands, arguments: &str) -> Result<u64> {
    let report: Value = guest.ask(arguments)?.report().context("netgauge")?;
    let run = &report["runs"][0];
    run["rows"][0]["half_rtt_ns"]["median"]
        .as_u64()
        .with_context(|| format!("netgauge measured nothing: {run}"))
}

/// What a half round trip takes by function, from instructions by address.
fn compare(short: &Counts, long: &Counts, symbols: &Symbols) -> Profile {
    let mut profile = Profile::new();
    let addresses: BTreeSet<_> = short.keys().chain(long.keys()).collect();
    for address in addresses {
        let of = |counts: &Counts| counts.get(address).copied().unwrap_or(0) as f64;
        let halves = 2.0 * (LONG - SHORT) as f64;
        let name = symbols.name(*address).to_owned();
        *profile.entry(name).or_default() += (of(long) - of(short)) / halves;
    }
    profile
}

/// Functions by their share of the first transport, then of the others; all of them in the last line.
fn table(options: &Options, profiles: &[Profile], medians: &[u64]) -> String {
    let names: BTreeSet<&String> = profiles.iter().flat_map(Profile::keys).collect();
    let count = |profile: &Profile, name: &str| profile.get(name).copied().unwrap_or(0.0);
    let mut lines: Vec<_> = names
        .into_iter()
        .map(|name| (name, profiles.iter().map(|p| count(p, name)).collect()))
        .collect();
    lines.sort_by(|(_, a): &(_, Vec<f64>), (_, b)| {
        b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut text = format!(
        "Instructions per half round trip of {} B, both ends together, by function\n\n",
        options.size
    );
    let mut line = |name: &str, cells: Vec<String>| {
        for cell in cells {
            let _ = write!(text, "{cell:>8} ");
        }
        let _ = writeln!(text, "  {name}");
    };
    line("", options.protocols.clone());
    let numbers = |numbers: &[f64]| numbers.iter().map(|n| format!("{n:.1}")).collect();
    for (name, counts) in lines.iter().take(options.top) {
        line(name, numbers(counts));
    }
    let mut rest = vec![0.0; profiles.len()];
    for (_, counts) in lines.iter().skip(options.top) {
        for (sum, count) in rest.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    line("(others)", numbers(&rest));
    let totals: Vec<f64> = profiles.iter().map(|p| p.values().sum()).collect();
    line("total", numbers(&totals));
    line(
        "as netgauge measured it (median)",
        medians.iter().map(u64::to_string).collect(),
    );
    text
}

/// Instructions executed, by the address of the block that they are in.
type Counts = HashMap<u64, u64>;

/// What is known of the blocks that QEMU has translated.
#[derive(Debug, Default)]
struct Trace {
    /// Instructions by QEMU's own address of the block, which may run at several of the guest's.
    blocks: HashMap<u64, u64>,
    /// Blocks that were translated and have not run since: instructions by address.
    fresh: HashMap<u64, u64>,
    /// Where the block starts whose instructions are being listed.
    listed: Listed,
    /// Blocks that were entered though their contents are unknown.
    unlisted: u64,
}

/// Whether lines are a list of a block's instructions.
#[derive(Debug, Default)]
enum Listed {
    #[default]
    No,
    /// The first is still to come.
    Empty,
    From(u64),
}

#[derive(Clone, Copy, Debug)]
struct Block {
    address: u64,
    instructions: u64,
}

impl Trace {
    /// Reads QEMU's log up to [`END`].
    fn read(&mut self, pipe: File) -> Result<Counts> {
        let mut log = BufReader::with_capacity(1 << 20, pipe);
        let mut counts = Counts::new();
        let mut last = None;
        let mut line = Vec::new();
        let mut result = Ok(());
        loop {
            line.clear();
            ensure!(log.read_until(b'\n', &mut line)? > 0, "QEMU's log ended");
            if line == END {
                return result.map(|()| counts);
            }
            // QEMU waits for somebody to read the rest all the same.
            if result.is_ok() {
                result = self.take(&line, &mut counts, &mut last);
            }
        }
    }

    fn take(&mut self, line: &[u8], counts: &mut Counts, last: &mut Option<Block>) -> Result<()> {
        if line.starts_with(b"0x") {
            self.list(line);
            return Ok(());
        }
        self.listed = Listed::No;
        if line.starts_with(b"IN:") {
            self.listed = Listed::Empty;
        } else if line.starts_with(b"Trace ") {
            let block = self.entered(line)?;
            *counts.entry(block.address).or_default() += block.instructions;
            *last = Some(block);
        } else if line.starts_with(b"Stopped execution") {
            // It was announced, and will be again.
            if let Some(count) = last.take().and_then(|block| {
                let instructions = block.instructions;
                counts.get_mut(&block.address).map(|c| (c, instructions))
            }) {
                *count.0 = count.0.saturating_sub(count.1);
            }
        }
        Ok(())
    }

    /// `0xffffffff81000000:  55    pushq    %rbp`: an instruction of a block that is translated. The bytes of a long one go
    /// on in a line of their own, without a name.
    fn list(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let Some((address, rest)) = text.split_once(':') else {
            return;
        };
        let is_byte = |word: &str| word.len() == 2 && u8::from_str_radix(word, 16).is_ok();
        if rest.split_whitespace().all(is_byte) {
            return;
        }
        match self.listed {
            Listed::No => {}
            Listed::Empty => {
                if let Some(address) = hexadecimal(address) {
                    self.listed = Listed::From(address);
                    self.fresh.insert(address, 1);
                }
            }
            Listed::From(address) => *self.fresh.entry(address).or_default() += 1,
        }
    }

    /// `Trace 0: 0x7f.. [00000000/ffffffff81000000/00000000/ff000000] `: a block is entered.
    fn entered(&mut self, line: &[u8]) -> Result<Block> {
        let text = String::from_utf8_lossy(line);
        let read = || {
            let (own, place) = text.split_once(": ")?.1.split_once(" [")?;
            Some((hexadecimal(own)?, hexadecimal(place.split('/').nth(1)?)?))
        };
        let (own, address) = read().with_context(|| format!("QEMU's log: {text}"))?;
        if let Some(instructions) = self.fresh.remove(&address) {
            self.blocks.insert(own, instructions);
        }
        let instructions = self.blocks.get(&own).copied().unwrap_or_else(|| {
            // Translated before QEMU was asked to list what it translates: at least one.
            self.unlisted += 1;
            1
        });
        Ok(Block {
            address,
            instructions,
        })
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// The kernel's functions, by their addresses.
#[derive(Debug)]
struct Symbols(Vec<(u64, String)>);

impl Symbols {
    fn read(guest: &mut Commands) -> Result<Self> {
        let mut symbols = Vec::new();
        guest.run("symbols", |line| symbols.extend(symbol(line)))?;
        ensure!(!symbols.is_empty(), "the guest has no symbols");
        symbols.sort();
        Ok(Self(symbols))
    }

    /// The function that `address` is in.
    fn name(&self, address: u64) -> &str {
        if address >> 63 == 0 {
            return PROGRAMS;
        }
        let behind = self.0.partition_point(|(start, _)| *start <= address);
        match behind.checked_sub(1).and_then(|at| self.0.get(at)) {
            Some((_, name)) => name,
            None => "(unknown)",
        }
    }
}

/// `ffffffff81000000 T name [module]`
fn symbol(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_whitespace();
    let address = hexadecimal(words.next()?)?;
    let _kind = words.next()?;
    let name = words.next()?;
    // Rust's names without the hash at their end.
    let mut name = format!("{:#}", rustc_demangle::demangle(name));
    if let Some(module) = words.next() {
        let _ = write!(name, " {module}");
    }
    Some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "----------------
IN: 
0xffffffff81000010:  48 89 e5                 movq     %rsp, %rbp
0xffffffff81000013:  48 c7 05 00 00 00 00 01  movq     $1, (%rip)
0xffffffff8100001b:  00 00 00
0xffffffff8100001e:  c3                       retq

Trace 0: 0x7f00000001c0 [00000000/ffffffff81000010/0040c0b0/ff020200] 
Trace 0: 0x7f00000001c0 [00000000/ffffffff81000010/0040c0b0/ff020200] 
Stopped execution of TB chain before 0x7f00000001c0 [ffffffff81000010] 
Trace 0: 0x7f00000001c0 [00000000/ffffffff81000010/0040c0b0/ff020200] 
";

    #[test]
    fn blocks_that_ran_are_counted_by_their_instructions() {
        let mut trace = Trace::default();
        let mut counts = Counts::new();
        let mut last = None;
        for line in LOG.lines() {
            trace.take(line.as_bytes(), &mut counts, &mut last).unwrap();
        }
        assert_eq!(counts, Counts::from([(0xffff_ffff_8100_0010, 6)]));
        let unknown = "Trace 0: 0x7f0 [00000000/ffffffff81000020/0040c0b0/ff020200] ";
        trace
            .take(unknown.as_bytes(), &mut counts, &mut last)
            .unwrap();
        assert_eq!(counts.get(&0xffff_ffff_8100_0020), Some(&1));
        assert_eq!(trace.unlisted, 1);
        let torn = "Trace 0: 0x7f0 [00000000";
        assert!(trace.take(torn.as_bytes(), &mut counts, &mut last).is_err());
    }

    #[test]
    fn an_address_has_the_name_before_it() {
        let lines = [
            "ffffffff81000000 T start",
            "ffffffffc0000010 t _RNvNtCs1234_4enet10esp_output8transmit\t[enet]",
        ];
        let symbols = Symbols(lines.iter().filter_map(|line| symbol(line)).collect());
        assert_eq!(symbols.name(0xffff_ffff_8100_0010), "start");
        assert_eq!(
            symbols.name(0xffff_ffff_c000_0010),
            "enet::esp_output::transmit [enet]"
        );
        assert_eq!(symbols.name(0x40_0000), PROGRAMS);
        assert_eq!(symbols.name(0xffff_8000_0000_0000), "(unknown)");
    }
}
