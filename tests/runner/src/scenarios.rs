// SPDX-License-Identifier: GPL-2.0-only

//! Runs the scenarios in parallel guests, and finds out which scenarios passed. Each guest takes
//! the next waiting scenario.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use alarms::Ear;
use anyhow::{ensure, Result};

use crate::architecture::Architecture;
use crate::initramfs::{self, Contents};
use crate::judge::{badly_tainted, Part, Scenarios};
use crate::layout::{Layout, Purpose};
use crate::qemu::{Boot, Clock, Guest, Said, Wire};
use crate::{programs, python, step};

/// Default number of parallel guests with two processors. A guest with four processors and a guest
/// with a counting clock run beside them. These four guests keep two processors of the host busy,
/// so more guests would only wait for each other.
const GUESTS: usize = 2;

/// Time limit for booting a guest, and for a scenario. Scenarios have shorter deadlines of their
/// own, of at most 300 s.
const DEADLINE: Duration = Duration::from_secs(500);

/// Options of the guest's kernel for scenarios that need a kernel without IPv6.
const NO_IPV6: &str = "ipv6.disable=1 ";

/// Addresses of the virtio-net devices of guests with four processors.
const VIRTIO: [&str; 2] = ["02:00:00:00:03:03", "02:00:00:00:03:04"];
/// Addresses of the igb cards of guests with four processors, if the guest's kernel has the driver
/// igb.
const CARDS: [&str; 2] = ["02:00:00:00:03:01", "02:00:00:00:03:02"];

/// Maximum number of guests that a thread boots if its guests keep dying.
const BOOTS: usize = 4;

/// Builds the guests' contents, runs the scenarios `names` (all, if empty), and returns the
/// results. `guests` is the number of guests at a time, by default a number that suits the kernel.
///
/// # Errors
/// If something does not build or a guest does not boot.
pub fn run(layout: &Layout, names: &[String], guests: Option<usize>) -> Result<Part> {
    let initramfs = file_system(layout)?;
    judge(layout, &initramfs, names, guests)
}

/// Builds the module, the programs, and the guests' file system that contains them, each only if
/// its sources changed.
///
/// # Errors
/// If something does not build, or is missing.
pub fn file_system(layout: &Layout) -> Result<PathBuf> {
    let _lock = layout.lock()?;
    programs::build_module(layout)?;
    programs::build_programs(layout)?;
    let mut programs: Vec<_> = programs::PROGRAMS
        .iter()
        .map(|name| layout.program(name))
        .collect();
    programs.extend(programs::EXAMPLES.iter().map(|name| layout.example(name)));
    programs.extend(programs::build_peers(layout)?);
    initramfs::build(
        layout,
        &Contents {
            place: layout.guest(),
            programs,
            files: python::files(layout)?,
            module: layout.module(),
        },
    )
}

fn judge(
    layout: &Layout,
    initramfs: &Path,
    names: &[String],
    wanted: Option<usize>,
) -> Result<Part> {
    let mut part = Part::new("scenarios");
    let Sorted {
        free,
        smp,
        icount,
        bare,
        left_out,
        wire,
    } = Sorted::of(layout, names)?;
    part.left_out = left_out;
    let guests = wanted.unwrap_or(GUESTS).max(1).min(free.len());
    let [widened, counting, without] =
        [&smp, &icount, &bare].map(|names| usize::from(!names.is_empty()));
    step::say(&format!(
        "running {} scenarios in {guests} guests, {} in {widened} with four processors, {} in {counting} \
         whose clock counts instructions, and {} in {without} without IPv6, with {}",
        free.len(),
        smp.len(),
        icount.len(),
        bare.len(),
        layout.release
    ));
    let awaited = [&free[..], &smp, &icount, &bare].concat();
    let results = Mutex::new(Scenarios::awaiting(awaited));
    // Guests take scenarios from the end of the list, where the long scenarios are. Long scenarios
    // thus start first, and all guests are done at about the same time.
    let [free, smp, icount, bare] = [free, smp, icount, bare].map(|names| Work {
        waiting: Mutex::new(names),
        results: &results,
    });
    // The number of guests stays the same. When a guest with four processors or a counting clock is
    // done, a guest with two processors starts in its place.
    let then = (wanted.is_none() && layout.purpose != Purpose::Debug).then_some(&free);
    let wide = Machine {
        clock: Clock::Free(4),
        wire: Some(wire),
        ..Machine::USUAL
    };
    let exact = Machine {
        clock: Clock::Instructions,
        ..Machine::USUAL
    };
    let no_ipv6 = Machine {
        options: NO_IPV6,
        ..Machine::USUAL
    };
    let kinds = [
        (guests, "", Machine::USUAL, &free, None),
        (widened, "-smp", wide, &smp, then),
        (counting, "-icount", exact, &icount, then),
        (without, "-no-ipv6", no_ipv6, &bare, None),
    ];
    let prefix = layout.prefix();
    let health: Vec<(String, Result<()>)> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (count, kind, machine, work, then) in kinds {
            for index in 1..=count {
                let name = format!("{prefix}scenarios{kind}-{index}");
                let machine = machine.clone();
                threads.push(scope.spawn(move || {
                    let mut health = run_guests(layout, initramfs, &name, machine, work);
                    if let Some(free) = then.filter(|free| !free.is_done()) {
                        let name = format!("{name}-then");
                        health.extend(run_guests(layout, initramfs, &name, Machine::USUAL, free));
                    }
                    health
                }));
            }
        }
        let ended = threads.into_iter().map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ended.flatten().collect()
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(table) = results.comparison() {
        println!("{table}");
    }
    results.conclude(&mut part);
    for (name, outcome) in health {
        part.take(&format!("{name}: kernel log clean"), outcome);
    }
    Ok(part)
}

/// The requested scenarios, by the kind of guest that they need.
struct Sorted {
    /// Scenarios for any guest.
    free: Vec<String>,
    /// Scenarios that need four processors.
    smp: Vec<String>,
    /// Scenarios that need a counting clock.
    icount: Vec<String>,
    /// Scenarios that need a kernel without IPv6.
    bare: Vec<String>,
    /// Scenarios that do not run, because this kernel does not support the guests for them.
    left_out: Vec<String>,
    /// The network cards of guests with four processors.
    wire: Wire,
}

impl Sorted {
    /// Sorts the scenarios that match `names` (all, if empty). Prints the scenarios that no guest
    /// can run, and the reason.
    fn of(layout: &Layout, names: &[String]) -> Result<Self> {
        let mut free = list(layout, names, &[])?;
        ensure!(!free.is_empty(), "scenarios --list names none");
        let debug = layout.purpose == Purpose::Debug;
        let amd64 = layout.architecture == Architecture::Amd64;
        let cards = amd64 && initramfs::has_module(layout, "igb")?;
        let mut left_out: Vec<String> = Vec::new();
        for (cannot, kind, reason) in [
            (debug, "--needs-icount", "they judge times and counts of instructions, which this kernel multiplies"),
            (!debug, "--needs-faults", "they have allocations fail, which takes the kernel of test-debug"),
            (
                !amd64 || layout.is_realtime(),
                "--needs-icount",
                "they judge times and counts of instructions, which their limits are not for",
            ),
            (
                !cards,
                "--needs-cards",
                "they need QEMU's network cards igb, which are for amd64, and a kernel with their driver",
            ),
        ] {
            if cannot {
                let mut these = list(layout, names, &[kind])?;
                these.retain(|name| !left_out.contains(name));
                if !these.is_empty() {
                    step::say(&format!("left out, since {reason}: {}", these.join(", ")));
                }
                left_out.extend(these);
            }
        }
        let [mut smp, mut icount, bare] = [
            list(layout, names, &["--needs-smp"])?,
            list(layout, names, &["--needs-icount"])?,
            list(layout, names, &["--needs-no-ipv6"])?,
        ];
        for names in [&mut free, &mut smp, &mut icount] {
            names.retain(|name| !left_out.contains(name));
        }
        free.retain(|name| {
            [&icount, &smp, &bare]
                .iter()
                .all(|kind| !kind.contains(name))
        });
        Ok(Self {
            free,
            smp,
            icount,
            bare,
            left_out,
            wire: if cards {
                Wire::Cards {
                    virtio: VIRTIO,
                    cards: CARDS,
                }
            } else {
                Wire::Within(VIRTIO)
            },
        })
    }
}

/// Returns the scenarios that `scenarios --list` prints for `options` and `names`.
fn list(layout: &Layout, names: &[String], options: &[&str]) -> Result<Vec<String>> {
    let text = step::output(
        layout
            .architecture
            .run(layout.program("scenarios"))
            .arg("--list")
            .args(options)
            .args(names),
    )?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// How a guest that runs scenarios is made.
#[derive(Clone)]
struct Machine {
    clock: Clock,
    wire: Option<Wire>,
    /// See [`Boot::options`].
    options: &'static str,
}

impl Machine {
    const USUAL: Self = Self {
        clock: Clock::Free(2),
        wire: None,
        options: "",
    };
}

/// State shared by guests of one kind.
struct Work<'a> {
    waiting: Mutex<Vec<String>>,
    results: &'a Mutex<Scenarios>,
}

impl Work<'_> {
    fn next(&self) -> Option<String> {
        lock(&self.waiting).pop()
    }

    fn is_done(&self) -> bool {
        lock(&self.waiting).is_empty()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a guest until no work is left. If the guest dies, runs the remaining work in another guest.
/// Returns the name of each guest, and whether its kernel was healthy.
fn run_guests(
    layout: &Layout,
    initramfs: &Path,
    name: &str,
    machine: Machine,
    work: &Work<'_>,
) -> Vec<(String, Result<()>)> {
    let mut health = Vec::new();
    while health.len() < BOOTS && (health.is_empty() || !work.is_done()) {
        let name = match health.len() {
            0 => name.to_owned(),
            again => format!("{name}-again-{again}"),
        };
        let verb = ["scenarios".to_owned()];
        let boot = Boot {
            name: &name,
            initramfs,
            verb: &verb,
            clock: machine.clock,
            options: machine.options,
            wire: machine.wire.clone(),
            shared: &[],
            quiet: false,
            deadline: layout.allow(DEADLINE),
        };
        let outcome = watch(layout, &boot, work);
        health.push((name, outcome));
    }
    health
}

/// Runs scenarios in one guest and prints its output. An error is a fault of the guest's kernel,
/// not of a scenario.
fn watch(layout: &Layout, boot: &Boot<'_>, work: &Work<'_>) -> Result<()> {
    let started = Instant::now();
    let mut times = File::create(layout.logs()?.join(format!("{}.log", boot.name)))?;
    let mut guest = Guest::boot(layout, boot)?;
    let (mut ear, mut faults) = (Ear::default(), Vec::new());
    let mut tainted = None;
    loop {
        match guest.next()? {
            Said::Kernel(line) => faults.extend(ear.alarm(&line).map(str::to_owned)),
            Said::Program(line) => {
                // Comparisons are printed together after all scenarios.
                if !line.starts_with("= ") {
                    println!("{line}");
                }
                writeln!(times, "{:6.1} {line}", started.elapsed().as_secs_f64())?;
                lock(work.results).hear(&line);
            }
            Said::Ready | Said::Done(_) => {
                guest.extend(layout.allow(DEADLINE));
                // An empty line ends the guest.
                guest.send_line(&work.next().unwrap_or_default())?;
            }
            Said::Tainted(bits) => tainted = Some(bits),
            Said::Exit(_) => {}
            Said::Off => break,
        }
    }
    let log = guest.console().display();
    ensure!(
        faults.is_empty(),
        "{}; the whole log is {log}",
        faults.join("; ")
    );
    let Some(bits) = tainted else {
        anyhow::bail!(
            "the guest ended before its init did; the end of {log}:\n{}",
            step::tail(guest.console(), 15)
        );
    };
    ensure!(
        !badly_tainted(bits),
        "the kernel is tainted ({bits:#x}): it warned or died; the whole log is {log}"
    );
    Ok(())
}
