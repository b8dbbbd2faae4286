// SPDX-License-Identifier: GPL-2.0-only

//! Makes random calls with random arguments, in the threads of processes that are killed at random.
//! Meanwhile devices go down and up, and the module is unloaded.

mod arena;
mod calls;
mod channels;
mod mapped;
mod tally;
mod worker;

use fastrand::Rng;
use nix::sys::signal::{kill, Signal};
use nix::sys::socket::{socketpair, AddressFamily, SockFlag, SockType};
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

use guest::meminfo::{give_back, slabs};
use guest::prelude::*;

use tally::Tally;
use worker::Orders;

/// Number of processes that make calls at the same time.
const WORKERS: usize = 4;

/// The parameters of a run of the fuzzer.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The seed. It determines everything except the order in which the kernel schedules threads.
    pub seed: u64,
    /// The time for which calls are made. A run on a busy machine goes on for up to four times as
    /// long, until it has reached `calls`, `kills` and a success of every kind of call.
    pub time: Duration,
    /// The smallest number of calls that a run must make.
    pub calls: u64,
    /// The smallest number of processes that a run must kill.
    pub kills: u64,
}

/// The results of a run of the fuzzer.
#[derive(Debug)]
pub struct Report {
    /// A table of the calls by kind.
    pub calls: String,
    /// Number of calls of all kinds.
    pub total: u64,
    /// The kinds of calls that never succeeded.
    pub never: Vec<calls::Kind>,
    /// Number of processes killed.
    pub killed: u64,
    /// Two numbers: how often the module refused to unload, and how often it was unloaded.
    pub unloads: (u64, u64),
    /// The number of times that a device went down and up.
    pub bounces: u64,
}

impl Report {
    /// Tries to unload the module.
    fn unload(&mut self, lab: &Lab) -> Result<()> {
        match module::try_unload() {
            Ok(()) => {
                self.unloads.1 += 1;
                // The `socket` call of a worker may already have loaded the module again, by its
                // alias.
                module::ensure_loaded()?;
                mapped::be_patient(lab)
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EWOULDBLOCK) => {
                    self.unloads.0 += 1;
                    Ok(())
                }
                // Another process is loading the module at this moment.
                Some(libc::ENOENT | libc::EBUSY) => Ok(()),
                _ => Err(error).context("delete_module"),
            },
        }
    }
}

/// Runs a campaign, then checks that nothing is left and everything still works.
///
/// # Errors
/// If something is left or does not work.
pub fn run(campaign: Campaign) -> Result<Report> {
    note(&format!("seed {}", campaign.seed));
    // The kernel then logs where a worker has crashed.
    fs::write("/proc/sys/kernel/print-fatal-signals", "1")?;
    let _ssocks = mapped::WithSsocks::load()?;
    let lab = Lab::new(Wiring::Direct)?;
    mapped::prepare(&lab)?;
    warm(&lab)?;
    let before = Held::now()?;
    let report = hammer(&lab, campaign)?;
    for host in [&lab.a, &lab.b] {
        host.namespace.ip(&format!("link set {DEVICE} up\n"))?;
    }
    module::ensure_loaded()?;
    // A connection whose peer was killed while the wire was cut takes the longest time to end. It
    // may outlast the first wait, so there is a second one.
    lab.await_no_sockets().or_else(|_| lab.await_no_sockets())?;
    module::reload().context("loading it again")?;
    before.is_held_again()?;
    warm(&lab).context("a transfer after all of it")?;
    lab.await_no_sockets()?;
    Ok(report)
}

/// Runs a campaign for `seconds` and prints its results.
///
/// # Errors
/// The errors of [`run`].
pub fn print(seed: u64, seconds: u64) -> Result<()> {
    println!("seed {seed}, {seconds} s");
    let report = run(Campaign {
        seed,
        time: Duration::from_secs(seconds),
        calls: 0,
        kills: 0,
    })?;
    println!("{}", report.calls);
    ensure!(
        report.never.is_empty(),
        "these never succeeded: {:?}",
        report.never
    );
    println!(
        "{} calls; {} processes killed; {} times a device went down and up; the module refused to go {} times and went {}",
        report.total, report.killed, report.bounces, report.unloads.0, report.unloads.1
    );
    println!("no socket left, slab caches as before, loaded again, a transfer works");
    Ok(())
}

/// Transfers bytes over ESP, and sends a datagram over EDP.
fn warm(lab: &Lab) -> Result<()> {
    let (client, server) = lab.esp_pair(980)?;
    let load = Load::of(200_000, 5_000, 1);
    transfer(&client, &server, load)?;
    let (a, b) = lab.edp_pair(981)?;
    a.send(b"still here", 0)?;
    let mut bytes = [0; 16];
    let got = b.receive(&mut bytes, 0)?;
    ensure!(&bytes[..got] == b"still here", "{:?} came", &bytes[..got]);
    Ok(())
}

/// The slab caches of the kernel objects that sockets consist of: for each cache, its name and the
/// number of its bytes in use.
struct Held(Vec<(String, i64)>);

/// In a run, a slab cache must grow by less than this, in bytes. Idle objects in the processors'
/// own caches take less. A leak in hundreds of thousands of calls takes more.
const SLACK: i64 = 4 << 20;

impl Held {
    fn now() -> Result<Self> {
        let wanted = [
            "ESP",
            "EDP",
            "TCP",
            "TCPv6",
            "skbuff_head_cache",
            "skbuff_fclone_cache",
            "skbuff_small_head",
            "sock_inode_cache",
            "filp",
        ];
        for name in wanted {
            give_back(name)?;
        }
        let found = slabs()?
            .into_iter()
            .filter(|(name, _)| wanted.contains(&name.as_str()));
        Ok(Self(found.collect()))
    }

    fn is_held_again(&self) -> Result<()> {
        ensure!(!self.0.is_empty(), "/proc/slabinfo has none of the caches");
        let now = Self::now()?.0;
        for (name, before) in &self.0 {
            let after = now.iter().find(|(other, _)| other == name);
            let after = after.map_or(0, |(_, bytes)| *bytes);
            ensure!(
                after - before < SLACK,
                "{name} had {before} bytes in use and has {after} now"
            );
        }
        Ok(())
    }
}

fn hammer(lab: &Lab, campaign: Campaign) -> Result<Report> {
    let tally = Tally::shared()?;
    let (one, other) = socketpair(
        AddressFamily::Unix,
        SockType::Datagram,
        None,
        SockFlag::empty(),
    )
    .context("socketpair")?;
    let post = [one.as_raw_fd(), other.as_raw_fd()];
    let mut rng = Rng::with_seed(campaign.seed);
    let mut report = Report {
        calls: String::new(),
        total: 0,
        never: Vec::new(),
        killed: 0,
        unloads: (0, 0),
        bounces: 0,
    };
    let mut workers = Workers(Vec::new());
    let begin = Instant::now();
    let goes_on = |report: &Report| {
        let all = tally.never().is_empty() && report.bounces > 0 && report.unloads.0 > 0;
        let enough = tally.total() >= campaign.calls && report.killed >= campaign.kills && all;
        begin.elapsed() < campaign.time * if enough { 1 } else { 4 }
    };
    while goes_on(&report) {
        while workers.0.len() < WORKERS {
            workers.start(lab, &mut rng, post, tally)?;
        }
        // In this time the workers make up to a few thousand calls. The time is random, because no
        // event marks the moment at which a kill does the most harm.
        thread::sleep(Duration::from_millis(rng.u64(1..150)));
        match rng.u8(..8) {
            0..=3 => {
                workers.kill_one(&mut rng)?;
                report.killed += 1;
            }
            4 => {
                // After the last worker has ended, only closing connections may still use the
                // module and keep it loaded.
                report.killed += workers.0.len() as u64;
                workers.kill_all()?;
                report.unload(lab)?;
            }
            5 => {
                bounce(if rng.bool() { &lab.a } else { &lab.b })?;
                report.bounces += 1;
            }
            _ => report.unload(lab)?,
        }
    }
    report.killed += workers.0.len() as u64;
    workers.kill_all()?;
    report.calls = tally.table();
    report.total = tally.total();
    report.never = tally.never();
    Ok(report)
}

/// Takes a device down and up.
fn bounce(host: &Host) -> Result<()> {
    host.namespace
        .ip(&format!("link set {DEVICE} down\nlink set {DEVICE} up\n"))
}

/// Processes that are killed when this value is dropped.
struct Workers(Vec<Pid>);

impl Workers {
    fn start(
        &mut self,
        lab: &Lab,
        rng: &mut Rng,
        post: [i32; 2],
        tally: &'static Tally,
    ) -> Result<()> {
        let (host, other, other_number) = match rng.bool() {
            true => (&lab.a, &lab.b, 2),
            false => (&lab.b, &lab.a, 1),
        };
        let orders = Orders {
            host,
            other,
            other_number,
            seed: rng.u64(..),
            post,
            tally,
        };
        let pid = start_process(|| {
            if let Err(error) = worker::run(&orders) {
                note(&format!("a worker: {error:#}"));
            }
            1
        })?;
        self.0.push(pid);
        Ok(())
    }

    fn kill_all(&mut self) -> Result<()> {
        while let Some(pid) = self.0.pop() {
            end(pid)?;
        }
        Ok(())
    }

    fn kill_one(&mut self, rng: &mut Rng) -> Result<()> {
        let pid = self.0.swap_remove(rng.usize(..self.0.len()));
        end(pid)
    }
}

/// Kills a worker. Fails if the worker has already ended, because a worker ends only if it cannot
/// do its work.
fn end(pid: Pid) -> Result<()> {
    kill(pid, Signal::SIGKILL).context("kill")?;
    match waitpid(pid, Some(WaitPidFlag::empty())).context("waitpid")? {
        WaitStatus::Signaled(_, Signal::SIGKILL, _) => Ok(()),
        other => bail!("a worker ended by itself: {other:?}"),
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // There are workers left only after another failure.
        if let Err(error) = self.kill_all() {
            note(&format!("{error:#}"));
        }
    }
}
