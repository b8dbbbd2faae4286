//! Questions beside streams: how long short messages take while long ones have the port.

use anyhow::Result;
use clap::builder::TypedValueParser;
use clap::{value_parser, Args};
use esp::Nanos;
use serde::Serialize;

use super::{buffer, defaults, megabits, size, Common, Study};
use crate::report::{kib, part, Columns};
use crate::rounds::percentile;
use crate::simulation::{Counts, Parameters, Setup, Simulation};

/// A stream always has so much to send, bytes.
const AHEAD: u64 = 512 << 10;
/// What it is given at a time.
const PIECE: u64 = 256 << 10;

/// For so long the streams have the port to themselves before the first question, nanoseconds.
const WARM_UP: Nanos = 1_000_000_000;

/// A run that takes longer is given up, nanoseconds.
const LONGEST: Nanos = 600_000_000_000;

/// What is asked beside what; by default through the switch of `make incast`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Numbers of streams
    // Each from a host of its own.
    #[arg(long, value_delimiter = ',', default_value = "0,1,4,16,32")]
    pub streams: Vec<usize>,
    /// Bytes of a question
    #[arg(long, value_delimiter = ',', default_value = "100,10000", value_parser = size)]
    pub sizes: Vec<u64>,
    /// Hosts that ask
    // Each one question after the other.
    #[arg(long, default_value_t = 1)]
    pub askers: usize,
    /// Questions of each
    #[arg(long, default_value_t = 300)]
    pub questions: usize,
    /// Mean time from an answer to the next question, microseconds; 0: at once
    // Here nanoseconds.
    #[arg(long, default_value = "0", value_parser = value_parser!(u64).map(|pause| pause * 1_000))]
    pub pause: Nanos,
    /// Connections of one more host, each of which sends one message after the other
    #[arg(long, default_value_t = 0)]
    pub announcers: usize,
    /// Bytes of such a message
    #[arg(long, default_value = "16K", value_parser = size)]
    pub message: u64,
    /// Rate of every link, Mbit/s
    #[arg(long = "megabits", value_name = "MEGABITS", default_value = "200", value_parser = megabits())]
    pub bits: u64,
    /// Buffer of every port
    #[arg(long, default_value = "128K", value_parser = buffer)]
    pub buffer: u32,
}

impl Default for Options {
    fn default() -> Self {
        defaults()
    }
}

impl Study for Options {
    type Line = Line;

    const COLUMNS: Columns<Line> = &[
        ("streams", |line| line.streams.to_string()),
        ("question/B", |line| line.size.to_string()),
        ("alone/us", |line| micros(line.unloaded)),
        ("p50/us", |line| micros(line.median)),
        ("p99/us", |line| micros(line.slowest)),
        ("slowdown", |line| {
            format!("{:.1}", line.slowest as f64 / line.unloaded.max(1) as f64)
        }),
        ("streams'", |line| part(line.bulk)),
        ("least * n", |line| part(line.least)),
        ("announcers'", |line| part(line.announced)),
        ("of possible", |line| part(line.all)),
        ("wait/us", |line| micros(line.longest_wait)),
        ("turns", |line| line.most_turns.to_string()),
        ("peak/KiB", |line| kib(line.peak)),
        ("drops", |line| line.counts.drops.to_string()),
        ("resent", |line| line.counts.retransmissions.to_string()),
        ("overruns", |line| line.counts.overruns.to_string()),
        ("complete", |line| line.complete.to_string()),
    ];

    fn run(&self, common: &Common) -> Result<Vec<Line>> {
        let alone = Self {
            askers: 1,
            announcers: 0,
            ..self.clone()
        };
        let mut lines = Vec::new();
        for &size in &self.sizes {
            let unloaded = case(common, &alone, 0, size).median;
            for &streams in &self.streams {
                lines.push(Line {
                    unloaded,
                    ..case(common, self, streams, size)
                });
            }
        }
        Ok(lines)
    }
}

/// One number of streams with one size of questions.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    setup: Setup,
    /// Streams.
    pub streams: usize,
    /// Bytes of a question.
    pub size: u64,
    /// From a question to its answer, nanoseconds: the median and the 99th percentile.
    pub median: Nanos,
    /// See above.
    pub slowest: Nanos,
    /// The median without anything beside it, nanoseconds.
    pub unloaded: Nanos,
    /// What the streams received while questions were asked, part of the port's rate.
    pub bulk: f64,
    /// The least of a stream's parts of that, times their number.
    pub least: f64,
    /// What came from the connections that announce again and again.
    pub announced: f64,
    /// What was received in all, part of what is possible.
    pub all: f64,
    /// The longest that a stream waited for its turn, nanoseconds.
    pub longest_wait: Nanos,
    /// The most turns of others in such a time.
    pub most_turns: u64,
    /// The most bytes in the port.
    pub peak: u32,
    /// All questions were answered.
    pub complete: bool,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Who sends what; the connections' numbers.
struct Cast {
    announcers: usize,
    streams: usize,
}

/// What a connection does.
enum Role {
    Announcer,
    Stream,
    Asker(usize),
}

impl Cast {
    fn role(&self, sender: usize) -> Role {
        if sender < self.announcers {
            Role::Announcer
        } else if sender < self.announcers + self.streams {
            Role::Stream
        } else {
            Role::Asker(sender - self.announcers - self.streams)
        }
    }
}

/// One asker's questions.
#[derive(Clone, Debug, Default)]
struct Asker {
    left: usize,
    asked: Nanos,
    /// What the receiver is to have when the question has come.
    until: u64,
}

/// Runs one case.
pub fn case(common: &Common, options: &Options, streams: usize, size: u64) -> Line {
    let cast = Cast {
        announcers: options.announcers,
        streams,
    };
    let first_asker = options.announcers + streams;
    let senders = first_asker + options.askers;
    let esp = Parameters::default();
    let mut setup = common.setup(senders, options.bits, options.buffer, esp);
    setup.together = options.announcers;
    let mut simulation = Simulation::new(setup.clone());
    let mut written = vec![0; senders];
    let begin = simulation.now();
    for (sender, written) in written.iter_mut().enumerate().take(first_asker) {
        *written = match cast.role(sender) {
            Role::Announcer => options.message,
            Role::Stream | Role::Asker(_) => PIECE,
        };
        simulation.send_at(begin, sender, *written);
    }
    let mut askers = vec![
        Asker {
            left: options.questions,
            ..Asker::default()
        };
        options.askers
    ];
    let mut times = Vec::new();
    let warm = if first_asker > 0 { WARM_UP } else { 0 };
    let start = begin + warm;
    let mut base = None;
    let mut left = options.askers;
    let deadline = start + LONGEST;
    while left > 0 && simulation.next().is_some_and(|at| at < deadline) || base.is_none() {
        if base.is_none() && simulation.next().is_none_or(|at| at >= start) {
            let received: Vec<u64> = (0..senders).map(|id| simulation.received(id)).collect();
            base = Some((received, simulation.counts()));
            let _ = simulation.take_peaks();
            for sender in 0..senders {
                let _ = simulation.take_longest_wait(sender);
            }
            for (id, asker) in askers.iter_mut().enumerate() {
                ask(
                    &mut simulation,
                    asker,
                    first_asker + id,
                    size,
                    options.pause,
                    start,
                );
            }
        }
        simulation.step();
        if let Some(sender) = simulation.take_answered() {
            if let Role::Asker(id) = cast.role(sender) {
                let asker = &mut askers[id];
                times.push(simulation.now() - asker.asked);
                asker.left -= 1;
                if asker.left == 0 {
                    left -= 1;
                } else {
                    let now = simulation.now();
                    ask(&mut simulation, asker, sender, size, options.pause, now);
                }
            }
        }
        let Some(sender) = simulation.take_delivery() else {
            continue;
        };
        let now = simulation.now();
        let received = simulation.received(sender);
        match cast.role(sender) {
            Role::Announcer if received == written[sender] => {
                written[sender] += options.message;
                simulation.send_at(now, sender, options.message);
            }
            Role::Stream if received + AHEAD > written[sender] => {
                written[sender] += PIECE;
                simulation.send_at(now, sender, PIECE);
            }
            Role::Asker(id) if received == askers[id].until => simulation.answer(sender, 1),
            _ => {}
        }
    }
    let (received, counts) = base.expect("the questions have begun");
    let elapsed = (simulation.now() - start).max(1) as f64 * options.bits as f64 / 8e9;
    let share = |ids: std::ops::Range<usize>| {
        let bytes: u64 = ids.map(|id| simulation.received(id) - received[id]).sum();
        bytes as f64 / elapsed
    };
    let announced = share(0..options.announcers);
    let bulk = share(options.announcers..first_asker);
    let each = (options.announcers..first_asker).map(|id| share(id..id + 1));
    let least = each.fold(f64::INFINITY, f64::min) * streams as f64;
    let all = share(0..senders) / setup.most_goodput();
    let (peak, _) = simulation.take_peaks();
    let waits: Vec<_> = (options.announcers..first_asker)
        .map(|id| simulation.take_longest_wait(id))
        .collect();
    times.sort_unstable();
    Line {
        streams,
        size,
        median: percentile(&times, 50).unwrap_or(0),
        slowest: percentile(&times, 99).unwrap_or(0),
        unloaded: 0,
        bulk,
        least: if streams > 0 { least } else { 0.0 },
        announced,
        all,
        longest_wait: waits.iter().map(|(wait, _)| *wait).max().unwrap_or(0),
        most_turns: waits.iter().map(|(_, turns)| *turns).max().unwrap_or(0),
        peak,
        complete: left == 0,
        counts: simulation.counts().since(&counts),
        setup,
    }
}

/// The next question of an asker, at `now` or a random time later.
fn ask(
    simulation: &mut Simulation,
    asker: &mut Asker,
    sender: usize,
    size: u64,
    pause: Nanos,
    now: Nanos,
) {
    let later = -(1.0 - simulation.rng().f64()).ln() * pause as f64;
    asker.asked = now + later as Nanos;
    asker.until = simulation.received(sender) + size;
    simulation.send_at(asker.asked, sender, size);
}

/// Nanoseconds in microseconds.
fn micros(nanos: Nanos) -> String {
    (nanos / 1_000).to_string()
}
