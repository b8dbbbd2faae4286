// SPDX-License-Identifier: GPL-2.0-only

//! Makes mixed traffic between two hosts for any length of time, while the link between them is cut
//! and restored at random.
//!
//! Every byte is checked. A connection may break only because of a cut. So its errno must be one
//! that a cut causes, and it must break at a time at which a cut can be the reason. Afterwards no
//! socket may be left, memory use must be as before, and the module must unload.
//!
//! Client and server are either two guests, whose link the runner cuts when the client says so, or
//! two namespaces of one guest.

mod breaks;
mod cuts;
mod datagrams;
mod lanes;
mod memory;

use std::collections::BTreeMap;
use std::io::{stdin, stdout, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::fuzz::sockets_in_memory;
use crate::traffic::{bulk, serve, Ledger};
use breaks::{Breaks, Stage};
use cuts::{Cut, Cutter, End, Link, Weather};
use guest::harness::own_threads;
use guest::prelude::*;
use guest::relay::{Mode, Relay};
use lanes::{Client, Road, LANES};
use memory::{Memory, Samples};

/// The server's port for both protocols, and the client's port for datagrams.
const PORT: u16 = 2880;

/// The addresses of the client's device and of the server's device.
const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The interval of two tasks: to sample the memory, and to look for lanes (threads of traffic) that
/// hang.
const SAMPLE: Duration = Duration::from_secs(1);

/// One of the two guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// The guest that begins all traffic and decides when the link is cut.
    Client,
    /// The guest that answers until the runner stops it.
    Server,
}

/// The options of the command line for one of two guests. They are not a group, because clap would
/// name the group after this type, and another type has the same name.
#[derive(Debug, Default, Args)]
#[group(skip)]
pub struct Options {
    /// Play one of two guests whose link the runner cuts and restores, instead of running
    /// scenarios.
    #[arg(long, value_name = "SIDE", conflicts_with_all = ["list", "shard", "names"])]
    endurance: Option<Side>,
    /// The number of minutes for which the client runs, with --endurance client.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
}

/// The figures of a guest at the time at which they are printed for the runner.
#[derive(Debug, Serialize)]
struct Figures {
    seconds: u64,
    messages: u64,
    bytes: u64,
    connections: u64,
    accepted: u64,
    /// Number of answers that the client got, or number of datagrams that the server sent back.
    datagrams: u64,
    /// Number of datagrams that the client sent.
    sent: u64,
    /// Number of packets that were retransmitted.
    resent: u64,
    /// Number of broken connections, by errno.
    broken: BTreeMap<String, u64>,
    cuts: u64,
    /// Number of objects in the module's slab caches, which hold the sockets of every state.
    sockets: BTreeMap<String, u64>,
    #[serde(flatten)]
    memory: Memory,
}

impl Options {
    /// Runs the side that the options name, and returns its result; `None` if they name no side.
    pub fn run(&self, seed: Option<u64>) -> Option<Result<()>> {
        Some(match self.endurance? {
            Side::Client => client(
                Duration::from_secs(60 * self.minutes),
                seed.unwrap_or_else(|| fastrand::u64(..)),
            ),
            Side::Server => server(),
        })
    }
}

/// Prints a line for the runner, and flushes it.
fn print_line(line: &str) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")?;
    out.flush().context("standard output")
}

/// Returns the guest itself, which has one device.
fn this_guest(mac: [u8; 6]) -> Result<Host> {
    Host::named(Netns::open("/proc/self/ns/net")?, mac)
}

/// The wire of QEMU, which the runner cuts.
struct Wire;

impl Link for Wire {
    fn cut(&self, end: End) -> Result<()> {
        print_line(match end {
            End::Near => "cut client",
            End::Far => "cut server",
            End::Both => "cut both",
        })
    }

    fn restore(&self) -> Result<()> {
        print_line("restore")
    }
}

impl Link for &Relay {
    /// Cuts both ends, whichever end is requested: the relay between the two namespaces cannot
    /// remove the carrier at a single end.
    fn cut(&self, _end: End) -> Result<()> {
        self.set_mode(Mode::Cut);
        Ok(())
    }

    fn restore(&self) -> Result<()> {
        self.set_mode(Mode::Forward);
        Ok(())
    }
}

/// The state of the guest before the traffic, to compare with its state afterwards.
struct Before {
    sockets: BTreeMap<String, u64>,
    samples: Samples,
}

impl Before {
    fn now() -> Result<Self> {
        Ok(Self {
            sockets: sockets_in_memory()?,
            samples: Samples::new()?,
        })
    }

    /// Checks that `hosts` have no socket left, and that the memory of all sockets is free. Returns
    /// a summary.
    fn judge(&self, hosts: &[&Host]) -> Result<String> {
        for host in hosts {
            // The last sockets may have been closed just before this check. An end that gets no
            // answer takes 10 s to close, so a failed wait is repeated once.
            host.await_no_sockets()
                .or_else(|_| host.await_no_sockets())?;
        }
        module::await_unused()?;
        let mut left = BTreeMap::new();
        eventually("the memory of all sockets", || {
            left = sockets_in_memory()?;
            Ok(left
                .iter()
                .all(|(name, count)| *count <= self.sockets[name]))
        })
        .with_context(|| format!("{:?} objects before, {left:?} after", self.sockets))?;
        let memory = self.samples.judge()?;
        Ok(format!("{memory}; sockets in memory: {left:?}"))
    }
}

/// The server's sockets.
struct Service {
    streams: Socket,
    datagrams: Socket,
}

impl Service {
    fn open(host: &Host) -> Result<Self> {
        Ok(Self {
            streams: host.esp_listener(PORT, 256)?,
            datagrams: host.edp_bound(PORT)?,
        })
    }

    /// Answers until `stop` is set, and then until the last connection has ended.
    fn attend(&self, stop: &AtomicBool, ledger: &Ledger, breaks: &Breaks) -> Result<()> {
        let excused = |error: &anyhow::Error| breaks.count(Stage::Connected, error);
        beside(
            || serve(&self.streams, stop, ledger, &excused),
            || datagrams::echo(&self.datagrams, stop, ledger),
        )
        .map(drop)
    }
}

/// The counters of one side, client or server.
#[derive(Debug, Default)]
struct Books {
    ledger: Ledger,
    breaks: Breaks,
    weather: Weather,
    sent: AtomicU64,
}

impl Books {
    fn figures(&self, since: Instant) -> Result<Figures> {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Ok(Figures {
            seconds: since.elapsed().as_secs(),
            messages: read(&self.ledger.messages),
            bytes: read(&self.ledger.bytes),
            connections: read(&self.ledger.connections),
            accepted: read(&self.ledger.accepted),
            datagrams: read(&self.ledger.datagrams),
            sent: read(&self.sent),
            resent: read(&self.ledger.resent),
            broken: self.breaks.all(),
            cuts: self.weather.cuts(),
            sockets: sockets_in_memory()?,
            memory: Memory::now()?,
        })
    }

    fn print(&self, since: Instant) -> Result<()> {
        let figures = serde_json::to_string(&self.figures(since)?)?;
        print_line(&format!("figures {figures}"))
    }
}

/// Runs the server in its own guest, until it reads a line from standard input.
fn server() -> Result<()> {
    let host = this_guest(SERVER)?;
    let mut before = Before::now()?;
    let books = Books::default();
    let (told, orders) = mpsc::channel();
    // This thread is never joined, because it reads until the process ends.
    thread::spawn(move || {
        let _ = stdin().read_line(&mut String::new());
        let _ = told.send(());
    });
    let service = Service::open(&host)?;
    let (started, stop) = (Instant::now(), AtomicBool::new(false));
    let mut watch = || -> Result<()> {
        let mut seconds = 0;
        loop {
            if seconds % 10 == 0 {
                books.print(started)?;
            }
            seconds += 1;
            before.samples.take()?;
            if books.ledger.failed()
                || orders.recv_timeout(SAMPLE) != Err(RecvTimeoutError::Timeout)
            {
                return Ok(());
            }
        }
    };
    beside(
        || service.attend(&stop, &books.ledger, &books.breaks),
        || {
            let ended = watch();
            stop.store(true, Relaxed);
            ended
        },
    )?;
    drop(service);
    books.print(started)?;
    books.ledger.judge()?;
    print_line(&format!("server: {}", before.judge(&[&host])?))?;
    module::unload()?;
    print_line("server: the module was unloaded")
}

/// Runs the client in its own guest.
fn client(time: Duration, seed: u64) -> Result<()> {
    print_line(&format!("seed {seed}"))?;
    let host = this_guest(CLIENT)?;
    let road = Road {
        host: &host,
        server: SERVER,
    };
    let mut before = Before::now()?;
    let books = Books::default();
    let end = Instant::now() + time;
    let watching = Watching {
        end: Some(end),
        samples: &mut before.samples,
        prints: true,
    };
    conduct(
        road,
        &Wire,
        &mut cuts::at_random(seed),
        seed,
        &books,
        watching,
    )?;
    print_line(&format!("client: {}", before.judge(&[&host])?))?;
    module::unload()?;
    print_line("client: the module was unloaded")
}

/// The main thread's work while the traffic runs.
struct Watching<'a> {
    /// The time at which to stop starting sessions; `None` if the schedule of cuts ends the
    /// traffic.
    end: Option<Instant>,
    samples: &'a mut Samples,
    /// Whether to print figures once a minute.
    prints: bool,
}

/// Runs all lanes (threads of traffic) while the link is cut and restored. Then restores the link
/// and waits for the lanes to end.
fn conduct(
    road: Road<'_>,
    link: &dyn Link,
    schedule: &mut dyn Iterator<Item = Cut>,
    seed: u64,
    books: &Books,
    mut watching: Watching<'_>,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let busy: Vec<_> = LANES.iter().map(|_| AtomicU64::new(0)).collect();
    let client = Client {
        road,
        seed,
        ledger: &books.ledger,
        breaks: &books.breaks,
        weather: &books.weather,
        stop: &stop,
        sent: &books.sent,
        busy: &busy,
        started: Instant::now(),
    };
    thread::scope(|scope| {
        let (running, ended) = mpsc::channel::<()>();
        for (number, kind) in LANES.iter().enumerate() {
            let (client, running) = (&client, running.clone());
            scope.spawn(move || {
                client.run(number, *kind);
                // This message wakes the main thread, which then sees whether the lane has failed.
                // An error is ignored, because the main thread may be gone.
                let _ = running.send(());
            });
        }
        drop(running);
        let cutter = Cutter::new(link, &books.weather, schedule);
        let cut = watching.cut_until_the_end(cutter, &client, books, &ended);
        stop.store(true, Relaxed);
        let last = watching.await_lanes(&client, books, &ended);
        cut.and(last)
    })?;
    if watching.prints {
        books.print(client.started)?;
    }
    books.ledger.judge()?;
    ensure!(
        books.ledger.datagrams.load(Relaxed) > 0,
        "no datagram was answered"
    );
    Ok(())
}

impl Watching<'_> {
    fn cut_until_the_end(
        &mut self,
        mut cutter: Cutter<'_>,
        client: &Client<'_>,
        books: &Books,
        ended: &Receiver<()>,
    ) -> Result<()> {
        let mut next = client.started;
        let done = loop {
            let due = match cutter.step() {
                Ok(Some(due)) => due,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let now = Instant::now();
            if books.ledger.failed() || self.end.is_some_and(|end| end <= now) {
                break Ok(());
            }
            if next <= now {
                if let Err(error) = self.look(client, books) {
                    break Err(error);
                }
                next += SAMPLE;
            }
            let left = due.min(next).saturating_duration_since(Instant::now());
            if ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                break Ok(());
            }
        };
        done.and(cutter.restore())
    }

    /// Waits until the last lane (a thread of traffic) has ended.
    fn await_lanes(
        &mut self,
        client: &Client<'_>,
        books: &Books,
        ended: &Receiver<()>,
    ) -> Result<()> {
        while ended.recv_timeout(SAMPLE) != Err(RecvTimeoutError::Disconnected) {
            self.look(client, books)?;
        }
        Ok(())
    }

    /// Takes a sample, prints the figures once a minute, and ends the process if a lane (a thread
    /// of traffic) hangs.
    fn look(&mut self, client: &Client<'_>, books: &Books) -> Result<()> {
        self.samples.take()?;
        if self.prints && self.samples.count() % 60 == 0 {
            books.print(client.started)?;
        }
        if let Some(lane) = client.overdue() {
            own_threads().iter().for_each(|line| note(line));
            note(&format!(
                "lane {lane}, {:?}, has a connection that lasts for too long; so far: {books:?}",
                LANES[lane]
            ));
            std::process::exit(1);
        }
        Ok(())
    }
}

/// The results of [`rehearse`].
#[derive(Debug)]
pub struct Rehearsal {
    /// Number of connections that succeeded.
    pub connections: u64,
    /// Number of connections and attempts to connect that failed because of the cuts.
    pub broken: u64,
    /// Number of cuts of the link.
    pub cuts: u64,
}

/// Runs half a minute of the traffic between two hosts of one guest.
///
/// # Errors
/// If a byte is wrong, a connection breaks without a reason, or anything is left.
pub fn rehearse(lab: &Lab, seed: u64) -> Result<Rehearsal> {
    let road = Road {
        host: &lab.a,
        server: lab.b.mac,
    };
    let mut before = Before::now()?;
    let (near, far) = (Books::default(), Books::default());
    let service = Service::open(&lab.b)?;
    let stop = AtomicBool::new(false);
    let watching = Watching {
        end: None,
        samples: &mut before.samples,
        prints: false,
    };
    beside(
        || service.attend(&stop, &far.ledger, &far.breaks),
        || {
            let mut schedule = cuts::rehearsal(seed);
            let ended = conduct(road, &lab.relay(), &mut schedule, seed, &near, watching);
            // The link has been restored, so this transfer must succeed.
            let last = ended.and_then(|()| transfer(&road));
            stop.store(true, Relaxed);
            last
        },
    )?;
    drop(service);
    far.ledger.judge()?;
    note(&format!("{near:?}; {far:?}"));
    note(&before.judge(&[&lab.a, &lab.b])?);
    Ok(Rehearsal {
        connections: near.ledger.connections.load(Relaxed),
        broken: near.breaks.all().values().sum(),
        cuts: near.weather.cuts(),
    })
}

/// Makes a connection that must succeed.
fn transfer(road: &Road<'_>) -> Result<()> {
    let client = road.host.esp()?;
    client
        .connect(&road.address())
        .and_then(|()| client.set_timeout(libc::SO_RCVTIMEO, Duration::from_secs(60)))
        .context("connecting after all cuts")?;
    bulk(&client, 1, 1 << 16).context("after all cuts")
}
