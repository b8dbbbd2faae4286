//! Runs the scenarios in guests, shard by shard side by side, and judges them.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Result};

use crate::initramfs::{self, Contents};
use crate::judge::{alarm, badly_tainted, Part, Scenarios};
use crate::layout::Layout;
use crate::programs;
use crate::qemu::{Boot, Clock, Guest, Said};
use crate::step;

/// Guests at a time; each has a share of the scenarios.
const GUESTS: usize = 2;

/// No guest runs longer, whatever its scenarios' own deadlines add up to.
const DEADLINE: Duration = Duration::from_secs(900);

/// Builds what the guests need, runs the scenarios `names` (all, if empty), and returns the results.
///
/// # Errors
/// When something does not build or a guest does not boot.
pub fn run(layout: &Layout, names: &[String]) -> Result<Part> {
    programs::build_module(layout)?;
    programs::build_crates(layout, programs::CRATES)?;
    let initramfs = file_system(layout)?;
    judge(layout, &initramfs, names)
}

/// The guests' file system with everything in it; what it is made of is built already.
///
/// # Errors
/// When something is missing.
pub fn file_system(layout: &Layout) -> Result<std::path::PathBuf> {
    let mut programs: Vec<_> = programs::CRATES
        .iter()
        .map(|name| layout.program(name))
        .collect();
    programs.extend(programs::build_peers(layout)?);
    initramfs::build(
        layout,
        &Contents {
            programs,
            module: layout.module(),
        },
    )
}

fn judge(layout: &Layout, initramfs: &Path, names: &[String]) -> Result<Part> {
    let list = step::output(
        Command::new(layout.program("scenarios"))
            .arg("--list")
            .args(names),
    )?;
    let awaited: Vec<String> = list.lines().map(str::to_owned).collect();
    ensure!(!awaited.is_empty(), "scenarios --list names none");
    let guests = GUESTS.min(awaited.len());
    step::say(&format!(
        "running {} scenarios in {guests} guests with {}",
        awaited.len(),
        layout.release
    ));
    let scenarios = Mutex::new(Scenarios::awaiting(awaited));
    let mut part = Part::new("scenarios");
    let health: Vec<(String, Result<()>)> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=guests)
            .map(|index| {
                let scenarios = &scenarios;
                scope.spawn(move || {
                    let name = format!("scenarios-{index}");
                    let mut verb = vec![
                        "scenarios".to_owned(),
                        "--shard".to_owned(),
                        format!("{index}/{guests}"),
                    ];
                    verb.extend_from_slice(names);
                    let boot = Boot {
                        name: &name,
                        initramfs,
                        verb: &verb,
                        clock: Clock::Free(2),
                        wire: None,
                        deadline: DEADLINE,
                    };
                    let outcome = watch(layout, &boot, scenarios);
                    (name, outcome)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    let scenarios = scenarios
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    scenarios.conclude(&mut part);
    for (name, outcome) in health {
        part.take(&format!("{name}: kernel log clean"), outcome);
    }
    Ok(part)
}

/// Runs one guest to its end, passing on what it says; an error is what its kernel, not a scenario, did wrong.
fn watch(layout: &Layout, boot: &Boot<'_>, scenarios: &Mutex<Scenarios>) -> Result<()> {
    let mut guest = Guest::boot(layout, boot)?;
    let mut faults = Vec::new();
    let mut tainted = None;
    loop {
        match guest.next()? {
            Said::Kernel(line) => faults.extend(alarm(&line).map(str::to_owned)),
            Said::Program(line) => {
                println!("{line}");
                let mut scenarios = scenarios
                    .lock()
                    .unwrap_or_else(|poison| poison.into_inner());
                scenarios.hear(&line);
            }
            Said::Tainted(bits) => tainted = Some(bits),
            Said::Ready | Said::Done(_) | Said::Exit(_) => {}
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
