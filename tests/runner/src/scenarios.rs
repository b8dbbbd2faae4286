//! Runs the scenarios in guests side by side, each taking the next that waits, and judges them.

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

/// Guests at a time, unless told otherwise, beside those with four processors and with a counting clock: these four keep two
/// processors of the host busy, and more of them only wait for each other.
const GUESTS: usize = 2;

/// How long a guest may take to boot, and for one scenario; those have deadlines of their own, which are shorter.
const DEADLINE: Duration = Duration::from_secs(400);

/// The network cards of guests whose kernel has their driver.
const CARDS: Wire = Wire::Cards(["02:00:00:00:03:01", "02:00:00:00:03:02"]);

/// Guests that one thread boots at most, when they keep dying.
const BOOTS: usize = 4;

/// Builds what the guests need, runs the scenarios `names` (all, if empty) in `guests` guests at a time, as many as suit
/// the kernel if not told, and returns the results.
///
/// # Errors
/// When something does not build or a guest does not boot.
pub fn run(layout: &Layout, names: &[String], guests: Option<usize>) -> Result<Part> {
    let initramfs = file_system(layout)?;
    judge(layout, &initramfs, names, guests)
}

/// Builds the module and the programs, and the guests' file system with everything in it, as far as sources changed.
///
/// # Errors
/// When something does not build, or is missing.
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
    let mut awaited = list(layout, names, &[])?;
    ensure!(!awaited.is_empty(), "scenarios --list names none");
    let mut counted = list(layout, names, &["--counted"])?;
    let mut part = Part::new("scenarios");
    let mut leave_out = |names: Vec<String>, reason| {
        if !names.is_empty() {
            step::say(&format!("left out, since {reason}: {}", names.join(", ")));
        }
        part.left_out.extend(names);
    };
    if layout.purpose == Purpose::Debug {
        leave_out(
            std::mem::take(&mut counted),
            "they judge times and counts of instructions, which this kernel multiplies",
        );
    } else {
        leave_out(
            list(layout, names, &["--starved"])?,
            "they have allocations fail, which takes the kernel of test-debug",
        );
    }
    if layout.architecture != Architecture::Amd64 {
        leave_out(
            std::mem::take(&mut counted),
            "they judge times and counts of instructions, which their limits are not for",
        );
    }
    let mut wide = list(layout, names, &["--wide"])?;
    let mut wire = None;
    if layout.architecture == Architecture::Amd64 && initramfs::has_module(layout, "igb")? {
        wire = Some(CARDS);
    } else {
        leave_out(
            list(layout, names, &["--cards"])?,
            "they need QEMU's network cards igb, which are for amd64, and a kernel with their driver",
        );
    }
    awaited.retain(|name| !part.left_out.contains(name));
    let mut free = awaited.clone();
    wide.retain(|name| awaited.contains(name));
    free.retain(|name| !counted.contains(name) && !wide.contains(name));
    let guests = wanted.unwrap_or(GUESTS);
    let guests = guests.max(1).min(free.len());
    // As many run at the end as at the beginning: a guest of the other kinds makes way for one more of these.
    let stays = wanted.is_none() && layout.purpose != Purpose::Debug;
    let counting = usize::from(!counted.is_empty());
    let widened = usize::from(!wide.is_empty());
    step::say(&format!(
        "running {} scenarios in {guests} guests, {} in {widened} with four processors, and {} in {counting} \
         whose clock counts instructions, with {}",
        free.len(),
        wide.len(),
        counted.len(),
        layout.release
    ));
    let results = Mutex::new(Scenarios::awaiting(awaited));
    // Taken from the end: there the long ones are, and starting with those leaves no guest alone at the end.
    let [free, wide, counted] = [free, wide, counted].map(|names| Work {
        waiting: Mutex::new(names),
        results: &results,
    });
    let prefix = layout.prefix();
    let guests = (1..=guests)
        .map(|index| {
            let name = format!("{prefix}scenarios-{index}");
            (name, Clock::Free(2), None, &free)
        })
        .chain((1..=widened).map(|index| {
            let name = format!("{prefix}scenarios-wide-{index}");
            (name, Clock::Free(4), wire.clone(), &wide)
        }))
        .chain((1..=counting).map(|index| {
            let name = format!("{prefix}scenarios-counted-{index}");
            (name, Clock::Instructions, None, &counted)
        }));
    let health: Vec<(String, Result<()>)> = thread::scope(|scope| {
        let threads: Vec<_> = guests
            .map(|(name, clock, wire, work)| {
                let free = (stays && !std::ptr::eq(work, &free)).then_some(&free);
                scope.spawn(move || {
                    let mut health = run_guests(layout, initramfs, (&name, clock, wire), work);
                    if let Some(free) = free.filter(|free| !free.is_done()) {
                        let name = format!("{name}-then");
                        let guest = (&name[..], Clock::Free(2), None);
                        health.extend(run_guests(layout, initramfs, guest, free));
                    }
                    health
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| match thread.join() {
                Ok(results) => results,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
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

/// The names of the scenarios that `names` stand for, or of those of them that `options` choose.
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

/// What guests of one kind share.
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

/// Runs one guest after the other until no work is left; usually one. Returns each one's state of health.
fn run_guests(
    layout: &Layout,
    initramfs: &Path,
    (name, clock, wire): (&str, Clock, Option<Wire>),
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
            clock,
            wire: wire.clone(),
            shared: &[],
            deadline: layout.allow(DEADLINE),
        };
        let outcome = watch(layout, &boot, work);
        health.push((name, outcome));
    }
    health
}

/// Runs scenarios in one guest, passing on what it says; an error is what its kernel, not a scenario, did wrong.
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
                // Comparisons are shown together at the end.
                if !line.starts_with("= ") {
                    println!("{line}");
                }
                writeln!(times, "{:6.1} {line}", started.elapsed().as_secs_f64())?;
                lock(work.results).hear(&line);
            }
            Said::Ready | Said::Done(_) => {
                guest.extend(layout.allow(DEADLINE));
                // An empty line ends the guest.
                guest.tell(&work.next().unwrap_or_default())?;
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
