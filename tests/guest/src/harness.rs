// SPDX-License-Identifier: GPL-2.0-only

//! Runs scenarios, each in its own process and with a deadline, and checks for resources that they
//! leave behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use nix::sched::{setns, CloneFlags};
use nix::sys::signal::{killpg, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{fork, pipe2, setpgid, ForkResult, Pid};

use crate::kernel_log::{alarms, KernelLog};
use crate::lab::{await_events, eventually, Lab, Wiring};
use crate::memory;
use crate::module;
use crate::patience::{self, Allowance};
use crate::socket::{check, Socket};

/// The result of a scenario. An error says why the scenario failed.
pub type Outcome = Result<()>;

/// The work that a scenario does.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// Work on the whole guest.
    Guest(fn() -> Outcome),
    /// Work on two hosts that are made for the scenario. Afterwards, no socket of the module may be
    /// left on them.
    Lab(Wiring, fn(&Lab) -> Outcome),
    /// Work by a value that has both the scenario's data and the function that uses them.
    Work(&'static dyn Work),
}

/// The body of a scenario with data of its own: a comparison of two protocols, or traffic over a
/// faulty wire.
pub trait Work: std::fmt::Debug + Sync {
    /// Runs the scenario.
    ///
    /// # Errors
    /// If the scenario fails; the error gives the reason.
    fn run(&self) -> Outcome;
}

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The scenario's name. It states the property under test.
    pub name: &'static str,
    /// The time after which the scenario counts as hanging and is killed.
    pub deadline: Duration,
    /// Whether the scenario needs a guest whose clock counts instructions. In other guests the host
    /// may stop a virtual processor for longer than the protocol's timers wait, and emulated
    /// switches do not keep their rates.
    pub needs_icount: bool,
    /// Whether the scenario needs a kernel with fault injection for allocations.
    pub needs_faults: bool,
    /// Whether the scenario needs two network cards with the driver igb, on one wire.
    pub needs_cards: bool,
    /// Whether the scenario needs a guest with four processors.
    pub needs_smp: bool,
    /// Whether the scenario needs a kernel that was booted without IPv6.
    pub needs_no_ipv6: bool,
    /// The scenario's work.
    pub body: Body,
}

const DEADLINE: Duration = Duration::from_secs(60);

impl Scenario {
    /// Makes a scenario about the whole guest.
    pub const fn guest(name: &'static str, body: fn() -> Outcome) -> Self {
        Self::new(name, Body::Guest(body))
    }

    /// Makes a scenario on two hosts joined by a cable.
    pub const fn direct(name: &'static str, body: fn(&Lab) -> Outcome) -> Self {
        Self::new(name, Body::Lab(Wiring::Direct, body))
    }

    /// Makes a scenario on two hosts joined by a switch that can misbehave.
    pub const fn switched(name: &'static str, body: fn(&Lab) -> Outcome) -> Self {
        Self::new(name, Body::Lab(Wiring::Switched, body))
    }

    /// Makes a scenario from a value that has both the scenario's data and the function that uses
    /// them.
    pub const fn work(name: &'static str, work: &'static dyn Work) -> Self {
        Self::new(name, Body::Work(work))
    }

    const fn new(name: &'static str, body: Body) -> Self {
        Self {
            name,
            deadline: DEADLINE,
            needs_icount: false,
            needs_faults: false,
            needs_cards: false,
            needs_smp: false,
            needs_no_ipv6: false,
            body,
        }
    }

    /// Returns this scenario with a deadline of `seconds`.
    pub const fn within(self, seconds: u64) -> Self {
        Self {
            deadline: Duration::from_secs(seconds),
            ..self
        }
    }

    /// Returns this scenario, marked to run only in a guest whose clock counts instructions.
    pub const fn needs_icount(self) -> Self {
        Self {
            needs_icount: true,
            ..self
        }
    }

    /// Returns this scenario, marked to run only in a kernel with fault injection for allocations.
    pub const fn needs_faults(self) -> Self {
        Self {
            needs_faults: true,
            ..self
        }
    }

    /// Returns this scenario, marked to run only in a guest with four processors.
    pub const fn needs_smp(self) -> Self {
        Self {
            needs_smp: true,
            ..self
        }
    }

    /// Returns this scenario, marked to run only in a guest without IPv6.
    pub const fn needs_no_ipv6(self) -> Self {
        Self {
            needs_no_ipv6: true,
            ..self
        }
    }

    /// Returns this scenario, marked to run only in a guest with two network cards and four
    /// processors.
    pub const fn needs_cards(self) -> Self {
        Self {
            needs_cards: true,
            needs_smp: true,
            ..self
        }
    }
}

/// Defines `ALL`, the list of a file's scenarios. Each line names a constructor of [`Scenario`] and
/// then the scenario. The scenario's function has the same name unless the line gives a different
/// name after `=`. Two such lines are `direct edp_to_itself;` and `guest esp_random_loss =
/// random_loss, within(120), needs_icount;`.
///
/// [`Scenario`]: crate::harness::Scenario
#[macro_export]
macro_rules! scenarios {
    ($($lines:tt)*) => {
        $crate::table! { $crate::harness::Scenario: $($lines)* }
    };
}

/// Defines `ALL`, a list of items of a type. A line's first word is one of the type's constructors,
/// to which the macro passes the item's name and function. Each word after a comma is a method that
/// is called on the item.
#[macro_export]
macro_rules! table {
    ($type:ty: $($constructor:ident $name:ident $(= $body:expr)? $(, $also:ident $(($($argument:tt)*))?)*;)*) => {
        pub const ALL: &[$type] = &[$(
            <$type>::$constructor(
                stringify!($name),
                $crate::table!(@body $name $($body)?),
            )
            $(.$also($($($argument)*)?))*
        ),*];
    };
    (@body $name:ident) => { $name };
    (@body $name:ident $body:expr) => { $body };
}
pub use crate::scenarios;

/// Prefix of a [`note`] that reports the result of a comparison. The runner shows this result in a
/// table.
pub const REPORT: &str = "= ";

/// Prefix of a [`note`] that reports the figures of one cell of the fault matrix.
pub const FIGURES: &str = "figures ";

/// The descriptor that [`note`] writes to; -1 outside of a scenario.
static NOTES: AtomicI32 = AtomicI32::new(-1);

/// Leaves a remark that is printed if the scenario fails or is killed. Outside of a scenario the
/// remark is printed at once.
pub fn note(text: &str) {
    let line = format!("{}\n", one_line(text));
    let fd = NOTES.load(Ordering::Relaxed);
    if fd < 0 {
        eprint!("{line}");
    } else {
        // SAFETY: `line` is readable for its length. The pipe does not block; a lost remark is not
        // a failure.
        unsafe { libc::write(fd, line.as_ptr().cast(), line.len()) };
    }
}

/// Prefix of a remark that is printed even if the scenario passes.
const REMARK: &str = "remark: ";

/// Leaves a remark that is printed even if the scenario passes.
pub fn remark(text: &str) {
    note(&format!("{REMARK}{text}"));
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs one scenario and prints its result line; returns whether it passed.
pub fn run(scenario: &Scenario) -> bool {
    let mut notes = Vec::new();
    let outcome = supervise(scenario, &mut notes);
    match &outcome {
        Ok(()) => {
            // A note with this prefix reports the result of a comparison, for the runner's table.
            if let Some(report) = notes.iter().find_map(|line| line.strip_prefix(REPORT)) {
                println!("{}{}: {report}", REPORT, scenario.name);
            }
            // A note with this prefix reports the figures of one cell of the fault matrix: one kind
            // of traffic over one faulty wire.
            if let Some(figures) = notes.iter().find_map(|line| line.strip_prefix(FIGURES)) {
                println!("# {}{figures}", FIGURES);
            }
            for remark in notes.iter().filter_map(|line| line.strip_prefix(REMARK)) {
                println!("# {remark}");
            }
            println!("ok {}", scenario.name);
        }
        Err(error) => {
            for line in notes {
                println!("# {}", line.strip_prefix(REMARK).unwrap_or(&line));
            }
            println!(
                "not ok {}: {}",
                scenario.name,
                one_line(&format!("{error:#}"))
            );
        }
    }
    // Flush, so that the runner gets this result even if the guest dies later.
    let _ = std::io::stdout().flush();
    outcome.is_ok()
}

fn supervise(scenario: &Scenario, notes: &mut Vec<String>) -> Outcome {
    module::ensure_loaded()?;
    let mut log = KernelLog::from_now()?;
    let mut outcome = in_child(scenario, notes);
    if outcome.is_ok() {
        outcome = module::await_unused().context("sockets outlived the scenario");
    }
    if outcome.is_err() && matches!(scenario.body, Body::Guest(_)) {
        // A killed scenario may have left the module loaded with other parameters, or fault
        // injection switched on. An error of `reload` is ignored because the next scenario reports
        // it.
        memory::end_failures();
        let _ = module::reload();
    }
    let records = log.records()?;
    let alarms = alarms(&records);
    if let Some(first) = alarms.first() {
        notes.extend(records.iter().map(|record| format!("kernel: {record}")));
        let first = anyhow!("kernel log: {first}");
        outcome = Err(match outcome {
            Ok(()) => first,
            Err(error) => error.context(first.to_string()),
        });
    }
    outcome
}

fn in_child(scenario: &Scenario, notes: &mut Vec<String>) -> Outcome {
    let flags = nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK;
    let (reader, writer) = pipe2(flags).context("pipe")?;
    std::io::stdout().flush()?;
    patience::clock_counts(scenario.needs_icount);
    // SAFETY: This process has a single thread here, so the child may run any code.
    let child = match unsafe { fork() }.context("fork")? {
        ForkResult::Child => {
            drop(reader);
            become_scenario(scenario, &writer)
        }
        ForkResult::Parent { child } => child,
    };
    // Parent and child both set the process group, so that neither of them acts before the group is
    // set.
    let _ = setpgid(child, child);
    drop(writer);
    let started = Instant::now();
    let ended = await_end(child, Allowance::new(scenario.deadline));
    if let Ok(false) = ended {
        notes.extend(where_it_hangs(child));
    }
    // Kill the scenario's processes that still run. An error is ignored because ESRCH means that
    // none is left.
    let _ = killpg(child, Signal::SIGKILL);
    let status = waitpid(child, None).context("waitpid")?;
    let mut text = Vec::new();
    // The pipe does not block. The scenario's processes are gone, so all their remarks are in the
    // pipe.
    let _ = fs::File::from(reader).read_to_end(&mut text);
    let said: Vec<String> = String::from_utf8_lossy(&text)
        .lines()
        .map(str::to_owned)
        .collect();
    let last = said.last().cloned().unwrap_or_default();
    notes.splice(0..0, said);
    if !ended? {
        bail!(
            "still running after {:.0?}, which {:?} are here; last word: {last}",
            started.elapsed(),
            scenario.deadline
        );
    }
    match status {
        WaitStatus::Exited(_, 0) => Ok(()),
        WaitStatus::Exited(_, 1) => bail!("{last}"),
        WaitStatus::Exited(_, code) => bail!("exit status {code}; last word: {last}"),
        WaitStatus::Signaled(_, signal, _) => bail!("killed by {signal}; last word: {last}"),
        status => bail!("unexpected end {status:?}"),
    }
}

/// Waits for the child to end, but does not reap it; returns whether it ended in time.
fn await_end(child: Pid, mut allowance: Allowance) -> Result<bool> {
    // SAFETY: `pidfd_open` takes two integers.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, child.as_raw(), 0) })?;
    // SAFETY: The kernel just returned this descriptor and nothing else owns it.
    let fd: OwnedFd = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd as RawFd) };
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    while let Some(wait) = allowance.wait() {
        // SAFETY: `entry` is one pollfd, alive and writable for the call.
        let ready = check(unsafe { libc::poll(&mut entry, 1, wait.as_millis().max(1) as i32) })?;
        if ready == 1 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns where the threads of this process wait.
pub fn own_threads() -> Vec<String> {
    where_it_hangs(Pid::this())
}

/// Returns where the threads of an overdue scenario wait, and the sockets that they wait on.
fn where_it_hangs(child: Pid) -> Vec<String> {
    let mut lines = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{child}/task")) else {
        return lines;
    };
    for thread in threads.flatten() {
        let path = thread.path();
        let read = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
        lines.push(format!(
            "thread {}: {} syscall {} stack {}",
            path.display(),
            read("wchan"),
            one_line(&read("syscall")),
            one_line(&read("stack"))
        ));
    }
    lines.extend(sockets_of(child));
    lines
}

/// Returns the sockets and counters of the namespaces that a process has open.
fn sockets_of(process: Pid) -> Vec<String> {
    let mut namespaces = BTreeSet::new();
    let mut lines = Vec::new();
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else {
        return lines;
    };
    for path in descriptors.flatten().map(|entry| entry.path()) {
        let Ok(name) = fs::read_link(&path) else {
            continue;
        };
        if !name.to_string_lossy().starts_with("net:[") || !namespaces.insert(name.clone()) {
            continue;
        }
        let read = thread::spawn(move || -> Result<String> {
            setns(fs::File::open(path)?, CloneFlags::CLONE_NEWNET)?;
            let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
            Ok(read("esp")? + &read("enet")?)
        });
        let Ok(Ok(text)) = read.join() else {
            continue;
        };
        let nonzero = text.lines().filter(|line| !line.ends_with(" 0"));
        lines.extend(nonzero.map(|line| format!("{}: {line}", name.display())));
    }
    lines
}

/// Runs the scenario in the child and exits.
fn become_scenario(scenario: &Scenario, notes: &OwnedFd) -> ! {
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    NOTES.store(notes.as_raw_fd(), Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| note(&panic.to_string())));
    let outcome = catch_unwind(AssertUnwindSafe(|| play(scenario)));
    let code = match outcome {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            note(&format!("{error:#}"));
            1
        }
        // The panic hook has left a remark with the reason of the panic.
        Err(_) => 1,
    };
    std::process::exit(code)
}

fn play(scenario: &Scenario) -> Outcome {
    match scenario.body {
        Body::Guest(body) => body(),
        Body::Lab(wiring, body) => {
            let lab = Lab::new(wiring).context("setting up the lab")?;
            body(&lab)
                .and_then(|()| lab.await_no_sockets())
                .inspect_err(|_| lab.note_counters())
        }
        Body::Work(work) => work.run(),
    }
}

/// Runs `work` in a forked process and returns its wait status. The calling process must have a
/// single thread.
///
/// # Errors
/// If the process cannot be made or waited for.
pub fn in_process(work: impl FnOnce() -> i32) -> Result<WaitStatus> {
    let child = start_process(work)?;
    waitpid(child, Some(WaitPidFlag::empty())).context("waitpid")
}

/// Runs `work` in a forked process and checks that it succeeds. Error messages call the process
/// `name`.
///
/// # Errors
/// As [`in_process`], or if `work` fails.
pub fn well_in_process(name: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    let status = in_process(|| {
        let outcome = work();
        if let Err(error) = &outcome {
            note(&format!("{name}: {error:#}"));
        }
        i32::from(outcome.is_err())
    })?;
    ensure!(
        matches!(status, WaitStatus::Exited(_, 0)),
        "{name}: {status:?}"
    );
    Ok(())
}

/// Starts `work` in a forked process, which exits with the result of `work`.
///
/// # Errors
/// If the calling process has other threads, or the process cannot be made.
pub fn start_process(work: impl FnOnce() -> i32) -> Result<Pid> {
    // A thread that has been joined stays in `/proc/self/task` for a moment.
    eventually("a single thread before forking", || {
        Ok(fs::read_dir("/proc/self/task")?.count() == 1)
    })?;
    // SAFETY: The check above has found a single thread, so the child may run any code.
    match unsafe { fork() }.context("fork")? {
        ForkResult::Child => {
            let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(99);
            // SAFETY: `_exit` takes an integer and does not return; destructors of the copied
            // process must not run.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => Ok(child),
    }
}

/// Starts `work` in a forked process, which exits with 0 if it succeeds, and otherwise notes the
/// error.
///
/// # Errors
/// The errors of [`start_process`].
pub fn start_outcome(work: impl FnOnce() -> Outcome) -> Result<Pid> {
    start_process(|| match work() {
        Ok(()) => 0,
        Err(error) => {
            note(&format!("{error:#}"));
            1
        }
    })
}

/// Waits for a process of [`start_outcome`].
///
/// # Errors
/// If the work has failed.
pub fn succeeds(child: Pid) -> Outcome {
    let status = waitpid(child, None)?;
    same(status, WaitStatus::Exited(child, 0), "the process")
}

/// Returns the difference of each counter between `before` and `after`.
pub fn growth(before: &[u64], after: &[u64]) -> Vec<u64> {
    let pairs = before.iter().zip(after);
    pairs.map(|(before, after)| after - before).collect()
}

/// Checks that the largest payload of `socket`'s packets is `bytes`.
///
/// # Errors
/// If the largest payload differs from `bytes`.
pub fn ensure_largest_payload(socket: &Socket, bytes: i32, what: &str) -> Outcome {
    let largest = socket.largest_payload()?;
    ensure!(
        largest == bytes,
        "{what}: the largest payload is {largest} bytes, not {bytes}"
    );
    Ok(())
}

/// Checks that there is nothing to receive from `socket`.
///
/// # Errors
/// If there is something, or receiving fails with an error other than EAGAIN.
pub fn silent(socket: &Socket, what: &str) -> Outcome {
    let received = socket.receive(&mut [0; 64], libc::MSG_DONTWAIT);
    refused(received, libc::EAGAIN, what)
}

/// Checks that `poll(2)` reports no event for `socket`.
///
/// # Errors
/// If there is one.
pub fn quiet(socket: &Socket, what: &str) -> Outcome {
    let events = socket.events()?;
    ensure!(events == 0, "{what}: events {events:#x}, not none");
    Ok(())
}

/// Checks that `socket` has one of the `wanted` events already.
///
/// # Errors
/// If it has none of them.
pub fn has_events(socket: &Socket, wanted: i16, what: &str) -> Outcome {
    let events = socket.poll(libc::POLLIN | wanted, Duration::ZERO)?;
    ensure!(
        events & wanted != 0,
        "{what}: events {events:#x}, none of {wanted:#x}"
    );
    Ok(())
}

/// Receives once, blocking, and checks that exactly `bytes` come.
///
/// # Errors
/// If other bytes come, or none within [`patience`](crate::patience::patience).
pub fn receives(socket: &Socket, bytes: &[u8]) -> Outcome {
    await_events(socket, libc::POLLIN)?;
    let mut room = vec![0; bytes.len() + 64];
    let length = socket.receive(&mut room, libc::MSG_DONTWAIT)?;
    let came = &room[..length];
    ensure!(came == bytes, "{:?} came", came.escape_ascii().to_string());
    Ok(())
}

/// Checks that `found` is `wanted`.
///
/// # Errors
/// If they differ; the message has both.
pub fn same<T: std::fmt::Debug + PartialEq<U>, U: std::fmt::Debug>(
    found: T,
    wanted: U,
    what: &str,
) -> Outcome {
    ensure!(found == wanted, "{what}: {found:?}, not {wanted:?}");
    Ok(())
}

/// Receives from a stream, blocking, and checks that `bytes` come next.
///
/// # Errors
/// If other bytes come, or the call fails.
pub fn comes_next(socket: &Socket, bytes: &[u8]) -> Outcome {
    let got = socket.receive_all(bytes.len())?;
    let begin = got[..got.len().min(40)].escape_ascii();
    ensure!(got == bytes, "other bytes came, beginning with {begin}");
    Ok(())
}

/// Checks that `errno` is the socket's pending error.
///
/// # Errors
/// If another error is pending, or none.
pub fn failed_with(socket: &Socket, errno: i32) -> Outcome {
    same(
        errno_name(socket.pending_error()?),
        errno_name(errno),
        "SO_ERROR",
    )
}

/// Returns an errno's name, or `0` if `number` is 0.
pub fn errno_name(number: i32) -> String {
    match number {
        0 => "0".into(),
        number => format!("{:?}", nix::errno::Errno::from_raw(number)),
    }
}

/// Checks that `result` failed with `errno`.
///
/// # Errors
/// If it succeeded, or failed with another errno.
pub fn refused<T: std::fmt::Debug>(
    result: std::io::Result<T>,
    errno: i32,
    what: &str,
) -> Result<()> {
    let wanted = nix::errno::Errno::from_raw(errno);
    match result {
        Ok(value) => bail!("{what}: expected {wanted:?}, got success ({value:?})"),
        Err(error) if error.raw_os_error() == Some(errno) => Ok(()),
        Err(error) => {
            let found = error.raw_os_error().map(nix::errno::Errno::from_raw);
            bail!("{what}: expected {wanted:?}, got {found:?} ({error})")
        }
    }
}
