// SPDX-License-Identifier: GPL-2.0-only

//! Measures many senders to one receiver on a switch with small buffers: goodput, drops and
//! fairness by protocol.
//!
//! Everything runs in one guest whose clock counts instructions. `enet-switch` makes the switch and
//! the hosts, `netgauge -x one-many` makes the traffic, and the switch's counters show the drops.
//! The single processor does the work of all hosts. The ports are so slow that the processor is not
//! the bottleneck.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure, Context, Result};
use clap::Args;
use serde::Deserialize;

use crate::beside;
use crate::commands::{json, netgauge_rate, Commands, Verb};
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

use crate::beside::RECEIVER;

/// Above this number of bytes in a port's buffer, the switch marks frames for DCTCP. This number is
/// about 20 frames, as DCTCP's authors chose.
const MARKING: &str = "30k";

/// The least share of the port's rate that ESP must reach in its worst round, for the largest size.
/// At that size, a round lasts much longer than the round trips at its start and end.
const LEAST_SHARE: f64 = 0.95;

/// The least fairness (Jain's index) of an ESP round of 256 KiB.
const LEAST_FAIRNESS: f64 = 0.97;
/// The least fairness of an ESP round of 64 KiB, which is two windows. This bound is lower than
/// [`LEAST_FAIRNESS`] because the first sender that finishes is a whole window ahead of the other
/// senders.
const LEAST_FAIRNESS_OF_TWO_WINDOWS: f64 = 0.95;

/// ESP is judged for up to this number of senders. The announcements of more senders may not fit a
/// port's buffer of 128 KiB if their first byte and what follows is not short.
const MOST_JUDGED: u32 = 128;

/// The least goodput of a stream on a lossy cable, as a share of its goodput without loss.
const LEAST_UNDER_LOSS: f64 = 0.95;

/// Numbers of questions (short requests, each with an answer) while streams run, without pauses and
/// with pauses. Questions with pauses take longer, so fewer of them are asked.
const QUESTIONS: u32 = 300;
const QUESTIONS_WITH_PAUSES: u32 = 100;

/// Time limit for a measurement; many times the usual duration.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Options of the incast measurement.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Protocols: ESP, and TCP by its congestion control.
    #[arg(long, value_delimiter = ',', default_value = "cubic,reno,dctcp,esp")]
    protocols: Vec<String>,
    /// Numbers of senders; ESP's drops, goodput and fairness are judged up to 128.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
    senders: Vec<u32>,
    /// KiB that each sender sends in a round; ESP's goodput is judged only at the last value, its
    /// fairness and drops at every value.
    #[arg(long, value_delimiter = ',', default_value = "64,256")]
    kib: Vec<u32>,
    /// Rounds that are counted.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Rate of each port.
    #[arg(long, default_value = "200mbit")]
    rate: String,
    /// Rate at which hosts send, or `none`, which makes bursts arrive at once [default: --rate].
    #[arg(long)]
    uplink: Option<String>,
    /// Buffer of each port.
    #[arg(long, default_value = "128k")]
    buffer: String,
    /// Numbers of streams while one more host sends short requests and measures the time until
    /// their answers; `0` leaves these measurements out.
    #[arg(long, value_delimiter = ',', default_value = "4,16")]
    beside: Vec<u32>,
    /// Milliseconds from an answer to the next request.
    #[arg(long, value_delimiter = ',', default_value = "0,50")]
    pause: Vec<u32>,
    /// Bytes of a request.
    #[arg(long, value_delimiter = ',', default_value = "100,10000")]
    question: Vec<u32>,
    /// MiB of the stream that is measured with and without loss; 0 leaves it out.
    #[arg(long, default_value_t = 256)]
    stream: u32,
    /// Loss on the cable of the stream that --stream measures, percent.
    #[arg(long, default_value_t = 0.05)]
    loss: f64,
    /// Values of `/proc/sys/esp`, as `name=value`, for all hosts; repeatable.
    #[arg(long, value_name = "NAME=VALUE")]
    sysctl: Vec<String>,
}

/// The part of netgauge's report on one-many that is used here.
#[derive(Debug, Deserialize)]
struct Report {
    runs: Vec<Run>,
}

#[derive(Debug, Deserialize)]
struct Run {
    error: Option<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    share: Option<Spread>,
    fairness: Option<Spread>,
    errors: u64,
}

/// Statistics over all rounds.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Spread {
    worst: f64,
    median: f64,
}

/// The part of the output of `enet-switch drops --json` that is used here.
#[derive(Debug, Deserialize)]
struct Counters {
    ports: Vec<Port>,
}

#[derive(Debug, Deserialize)]
struct Port {
    host: String,
    dropped_packets: u64,
    marked_packets: u64,
}

/// The results of one protocol for one number of senders and one size.
#[derive(Clone, Debug)]
struct Cell {
    /// Goodput as a share of the port's rate.
    share: Spread,
    fairness: Spread,
    /// Number of frames that the receiver's port dropped, summed over the rounds.
    drops: u64,
    marks: u64,
}

/// A row of the table: protocol, KiB, senders.
type Key = (String, u32, u32);

type Table = BTreeMap<Key, Result<Cell, String>>;

/// Prints the table, and the limits that ESP exceeds; returns true if it exceeds none.
///
/// # Errors
/// If something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    let mut guest = Commands::boot(
        layout,
        "incast",
        Verb::Commands,
        Clock::Instructions,
        PATIENCE,
    )?;
    let beside = options.beside.iter().map(|streams| streams + 1);
    let senders = options.senders.iter().copied().chain(beside).max();
    let hosts = senders.context("no senders")? + 1;
    // Removes the kernel's limit on the time of real-time processes. The senders are real-time
    // processes of one priority, so they do not preempt each other, and start together.
    let ended = guest.shell("echo -1 >/proc/sys/kernel/sched_rt_runtime_us")?;
    ensure!(ended.status == 0, "{}", ended.text);
    make_switch(&mut guest, options, hosts, &format!(" --ecn {MARKING}"))?;
    let mut table = Table::new();
    for protocol in &options.protocols {
        for kib in &options.kib {
            step::say(&format!("{protocol}, {kib} KiB per sender"));
            for senders in &options.senders {
                let cell = measure(&mut guest, options, (protocol, *kib, *senders))?;
                table.insert((protocol.clone(), *kib, *senders), cell);
            }
        }
    }
    let mut questions = Vec::new();
    for protocol in &options.protocols {
        for streams in options.beside.iter().filter(|streams| **streams > 0) {
            for pause in &options.pause {
                step::say(&format!(
                    "{protocol}, questions beside {streams} streams, {pause} ms between them"
                ));
                questions.push(ask(&mut guest, options, protocol, (*streams, *pause))?);
            }
        }
    }
    let streams = if options.stream > 0 {
        Some(streams(&mut guest, options)?)
    } else {
        None
    };
    guest.end()?;
    print!("{}", print_table(options, &table));
    let mut faults = judge(options, &table);
    if !questions.is_empty() {
        print!("{}", beside::print(&questions));
        faults.extend(beside::judge(&questions));
    }
    if let Some(streams) = streams {
        let share = streams.lossy / streams.lossless;
        println!(
            "\nOne ESP stream of {} MiB: {:.2} Mbit/s; with {} % of all frames lost: {:.2} Mbit/s, {share:.3} of it",
            options.stream, streams.lossless, options.loss, streams.lossy
        );
        if share < LEAST_UNDER_LOSS {
            faults.push(format!(
                "esp with loss: {share:.3} of the goodput without is less than {LEAST_UNDER_LOSS}"
            ));
        }
    }
    for fault in &faults {
        println!("not fulfilled: {fault}");
    }
    Ok(faults.is_empty())
}

/// Parses `arguments` like the options on a command line.
fn options(arguments: &[&str]) -> Options {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }
    <Line as clap::Parser>::parse_from([&["incast"], arguments].concat()).options
}

/// The parameters of the demonstration on a switch.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of a question, which is a request to the receiver.
    pub question: u32,
    /// Number of hosts that stream to the receiver while the questions are measured.
    pub streams: u32,
    /// Number of hosts that send to one receiver at the same time.
    pub senders: u32,
    /// KiB that each of these `senders` sends.
    pub kib: u32,
}

/// The demonstration's results for one protocol.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The 99th percentile of the times from a question to its answer, nanoseconds.
    pub p99_ns: u64,
    /// Without streams, the median of the times from a question to its answer, nanoseconds.
    pub alone_ns: u64,
    /// Goodput of the median round as a share of the port's rate.
    pub share: f64,
    /// Number of rounds.
    pub rounds: u32,
    /// Number of frames that the receiver's port dropped, summed over the rounds.
    pub drops: u64,
}

/// Makes the default switch, which stays up, and measures protocols on it. Each element of
/// `protocols` is a protocol and its number of rounds.
///
/// # Errors
/// If the guest ends, or a protocol cannot be measured.
pub fn sample(
    guest: &mut Commands,
    protocols: &[(&str, u32)],
    sizes: &Sizes,
) -> Result<Vec<Sample>> {
    let mut options = options(&[&format!("--question={}", sizes.question)]);
    make_switch(
        guest,
        &options,
        sizes.senders.max(sizes.streams + 1) + 1,
        "",
    )?;
    let measured = protocols.iter().map(|(protocol, rounds)| {
        options.rounds = *rounds;
        step::say(&format!(
            "{protocol}: questions beside {} streams, then {} senders at the same time",
            sizes.streams, sizes.senders
        ));
        let line = ask(guest, &options, protocol, (sizes.streams, 0))?;
        let row = line.rows.first().context("no question was measured")?;
        let many = (*protocol, sizes.kib, sizes.senders);
        let cell =
            measure(guest, &options, many)?.map_err(|error| anyhow!("{protocol}: {error}"))?;
        Ok(Sample {
            p99_ns: row.p99_ns,
            alone_ns: row.alone_median_ns,
            share: cell.share.median,
            rounds: *rounds,
            drops: cell.drops,
        })
    });
    measured.collect()
}

/// Replaces the switch by a new one.
fn make_switch(guest: &mut Commands, options: &Options, hosts: u32, more: &str) -> Result<()> {
    let uplink = options
        .uplink
        .as_ref()
        .map_or_else(String::new, |uplink| format!(" --uplink {uplink}"));
    let mut line = format!(
        "enet-switch down && enet-switch up --hosts {hosts} --rate {} --buffer {}{uplink}{more}",
        options.rate, options.buffer
    );
    for setting in &options.sysctl {
        // Each host has a network namespace, with its own sysctls.
        let _ = write!(
            line,
            " && for host in $(seq 0 {}); do ip netns exec h$host sysctl -w esp.{setting} || exit; done",
            hosts - 1
        );
    }
    let ended = guest.shell(&line)?;
    ensure!(ended.status == 0, "{line}:\n{}", ended.text);
    Ok(())
}

/// Returns netgauge's options for a protocol.
fn mode(protocol: &str) -> String {
    match protocol {
        "esp" => "-m esp".to_owned(),
        congestion => format!("-m tcp --congestion {congestion}"),
    }
}

/// Measures the times from one host's requests to their answers while streams run. After each
/// answer, the host pauses before the next request.
fn ask(
    guest: &mut Commands,
    options: &Options,
    protocol: &str,
    (streams, pause): (u32, u32),
) -> Result<beside::Line> {
    let clients = streams + 1;
    let questions = if pause == 0 {
        QUESTIONS
    } else {
        QUESTIONS_WITH_PAUSES
    };
    let netns: Vec<_> = (0..=clients).map(|host| format!("h{host}")).collect();
    let sizes: Vec<_> = options.question.iter().map(u32::to_string).collect();
    let sizes = sizes.join(",");
    let line = format!(
        "enet-switch reset && chrt -f 1 netgauge -x loaded-latency --netns {} --server-index 0 {} --clients {clients} \
         -s {sizes} -c {questions} --pause {pause} --rate {} --format json 2>/tmp/errors; status=$?; enet-switch drops --json; cat /tmp/errors; \
         exit $status",
        netns.join(","),
        mode(protocol),
        netgauge_rate(&options.rate),
    );
    let ended = guest.shell(&line)?;
    beside::read(&ended.text, protocol, (streams, pause)).with_context(|| {
        format!(
            "{protocol}, questions beside {streams} streams:\n{}",
            ended.text
        )
    })
}

/// Measures rounds of one protocol. The outer result is an error if the guest fails; the inner
/// result is an error if only the rounds fail.
fn measure(
    guest: &mut Commands,
    options: &Options,
    (protocol, kib, senders): (&str, u32, u32),
) -> Result<Result<Cell, String>> {
    let mode = mode(protocol);
    let netns: Vec<_> = (0..=senders).map(|host| format!("h{host}")).collect();
    let rate = netgauge_rate(&options.rate);
    let line = format!(
        "enet-switch reset && chrt -f 1 netgauge -x one-many --netns {} --server-index 0 {mode} --clients {senders} -s {kib}K \
         -c {} --rate {rate} --format json 2>/tmp/errors; status=$?; enet-switch drops --json; cat /tmp/errors; \
         exit $status",
        netns.join(","),
        options.rounds
    );
    let ended = guest.shell(&line)?;
    Ok(read_cell(&ended.text).map_err(|error| {
        let error = format!("{error:#}");
        eprintln!(
            "{protocol}, {kib} KiB, {senders} senders: {error}\n{}",
            ended.text
        );
        error
    }))
}

/// Reads netgauge's report and the switch's counters that follow the report.
fn read_cell(text: &str) -> Result<Cell> {
    let mut values = json(text);
    let mut next = || {
        values
            .next()
            .context("netgauge or enet-switch printed no report")?
    };
    let report: Report = serde_json::from_value(next()?).context("netgauge's report")?;
    let counters: Counters = serde_json::from_value(next()?).context("enet-switch's counters")?;
    let run = report.runs.first().context("netgauge measured nothing")?;
    if let Some(error) = &run.error {
        bail!("{error}");
    }
    let row = run.rows.first().context("netgauge measured no size")?;
    ensure!(row.errors == 0, "{} rounds broke", row.errors);
    let port = counters.ports.iter().find(|port| port.host == RECEIVER);
    let port = port.context("the receiver has no port")?;
    Ok(Cell {
        share: row.share.context("no share of the rate")?,
        fairness: row.fairness.context("no fairness")?,
        drops: port.dropped_packets,
        marks: port.marked_packets,
    })
}

/// Goodput of one long stream in Mbit/s, on a cable without loss and on a cable with loss.
struct Streams {
    lossless: f64,
    lossy: f64,
}

fn streams(guest: &mut Commands, options: &Options) -> Result<Streams> {
    let mut goodput = |loss: f64| -> Result<f64> {
        step::say(&format!(
            "one ESP stream of {} MiB, {loss} % loss",
            options.stream
        ));
        make_switch(guest, options, 2, &format!(" --loss {loss}"))?;
        stream(guest, options.stream)
    };
    Ok(Streams {
        lossless: goodput(0.0)?,
        lossy: goodput(options.loss)?,
    })
}

fn stream(guest: &mut Commands, mib: u32) -> Result<f64> {
    #[derive(Deserialize)]
    struct Report {
        runs: Vec<Run>,
    }
    #[derive(Deserialize)]
    struct Run {
        error: Option<String>,
        rows: Vec<Row>,
    }
    #[derive(Deserialize)]
    struct Row {
        mbit_per_s: f64,
    }
    let line = format!(
        "ip netns exec {RECEIVER} netgauge --server --once >/tmp/server 2>&1 & \
         ip netns exec h1 netgauge -m esp -x bulk -s {mib}M -c 1 --warmup 0 --connect 10.0.0.1 --format json \
         2>/tmp/errors; status=$?; kill $! 2>/dev/null; cat /tmp/errors; exit $status"
    );
    let report: Report = guest.shell(&line)?.report()?;
    let run = report.runs.first().context("netgauge measured nothing")?;
    if let Some(error) = &run.error {
        bail!("one stream: {error}");
    }
    Ok(run.rows.first().context("no row")?.mbit_per_s)
}

fn print_table(options: &Options, table: &Table) -> String {
    let mut text = format!(
        "Rounds of N senders to one receiver, ports of {} with {} of buffer, {} rounds each.\n\
         Goodput as share of the rate; frames dropped and marked (ECN) at the receiver's port in all rounds;\n\
         Jain's fairness when the first is done.\n\n",
        options.rate, options.buffer, options.rounds
    );
    text += "protocol     KiB    N |  median   worst |   drops   marks | fairness  worst\n";
    for protocol in &options.protocols {
        for kib in &options.kib {
            text +=
                "----------------------+-----------------+-----------------+-----------------\n";
            for senders in &options.senders {
                let _ = write!(text, "{protocol:9} {kib:6} {senders:4} |");
                let _ = match &table[&(protocol.clone(), *kib, *senders)] {
                    Ok(cell) => writeln!(
                        text,
                        " {:>7.3} {:>7.3} | {:>7} {:>7} |  {:>7.3} {:>6.3}",
                        cell.share.median,
                        cell.share.worst,
                        cell.drops,
                        cell.marks,
                        cell.fairness.median,
                        cell.fairness.worst
                    ),
                    Err(error) => writeln!(text, " failed: {error}"),
                };
            }
        }
    }
    text
}

/// Describes each result of ESP that exceeds a limit, and each cell of any protocol that could not
/// be measured.
fn judge(options: &Options, table: &Table) -> Vec<String> {
    let mut faults = Vec::new();
    for ((protocol, kib, senders), cell) in table {
        let mut fault = |what: String| {
            faults.push(format!("{protocol}, {kib} KiB, {senders} senders: {what}"));
        };
        let cell = match cell {
            Ok(cell) => cell,
            Err(error) => {
                fault(error.clone());
                continue;
            }
        };
        if protocol != "esp" || *senders > MOST_JUDGED {
            continue;
        }
        if cell.drops > 0 {
            fault(format!("{} frames were dropped", cell.drops));
        }
        if options.kib.last() == Some(kib) && cell.share.worst < LEAST_SHARE {
            fault(format!(
                "the worst round had {:.3} of the rate, less than {LEAST_SHARE}",
                cell.share.worst
            ));
        }
        let least = if *kib > 64 {
            LEAST_FAIRNESS
        } else {
            LEAST_FAIRNESS_OF_TWO_WINDOWS
        };
        if cell.fairness.worst < least {
            fault(format!(
                "the least fair round had {:.3}, less than {least}",
                cell.fairness.worst
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"netgauge": "0.1.0", "pattern": "one-many", "participants": ["h0", "h1"], "seed": 7,
        "rate_bit_per_s": 200000000, "runs": [{"transport": "tcp", "about": "", "congestion": "cubic", "clients": 32,
        "server": "h0", "server_index": 0, "status": "ok", "rows": [{"size": 65536, "rounds": 20, "errors": 0,
        "goodput_bit_per_s": {"worst": 1, "median": 2, "best": 3},
        "share": {"worst": 0.1, "median": 0.2, "best": 0.3}, "fairness": {"worst": 0.9, "median": 0.99}}]}]}
        {"rate": 200000000, "uplink": null, "buffer": 131072, "loss": 0.0, "ports": [
        {"host": "h1", "sent_bytes": 1, "sent_packets": 1, "dropped_packets": 0, "marked_packets": 0, "lost_packets": 0},
        {"host": "h0", "sent_bytes": 1, "sent_packets": 1, "dropped_packets": 42, "marked_packets": 0,
         "lost_packets": 0}]}"#;

    fn cell(worst: f64, drops: u64, fairness: f64) -> Cell {
        let spread = |worst| Spread { worst, median: 1.0 };
        Cell {
            share: spread(worst),
            fairness: spread(fairness),
            drops,
            marks: 0,
        }
    }

    #[test]
    fn a_cell_has_the_receivers_drops() {
        let cell = read_cell(TEXT).unwrap();
        assert_eq!(cell.drops, 42);
        assert_eq!((cell.share.worst, cell.share.median), (0.1, 0.2));
        assert_eq!((cell.fairness.worst, cell.fairness.median), (0.9, 0.99));
    }

    #[test]
    fn a_failed_run_is_a_failure() {
        let failed = TEXT.replace(
            r#""status": "ok","#,
            r#""status": "failed", "error": "no route","#,
        );
        assert_eq!(read_cell(&failed).unwrap_err().to_string(), "no route");
        assert!(read_cell(&TEXT.replace(r#""errors": 0"#, r#""errors": 1"#)).is_err());
        assert!(read_cell("netgauge: no such namespace\n").is_err());
    }

    #[test]
    fn only_esp_is_judged_and_its_goodput_by_the_largest_size() {
        let options = options(&[]);
        let judged = |protocol: &str, kib, cell| {
            judge(
                &options,
                &Table::from([((protocol.to_owned(), kib, 8), cell)]),
            )
        };
        assert!(judged("cubic", 256, Ok(cell(0.1, 99, 0.5))).is_empty());
        assert!(judged("esp", 256, Ok(cell(0.95, 0, 0.97))).is_empty());
        assert!(judged("esp", 64, Ok(cell(0.5, 0, 0.97))).is_empty());
        assert_eq!(judged("esp", 64, Ok(cell(1.0, 0, 0.949))).len(), 1);
        assert_eq!(judged("esp", 256, Ok(cell(0.949, 0, 1.0))).len(), 1);
        assert_eq!(judged("esp", 64, Ok(cell(1.0, 1, 1.0))).len(), 1);
        assert_eq!(judged("esp", 256, Ok(cell(1.0, 0, 0.969))).len(), 1);
        assert_eq!(judged("reno", 64, Err("broken".to_owned())).len(), 1);
    }

    #[test]
    fn more_senders_than_fit_the_port_are_shown_and_not_judged() {
        let key = ("esp".to_owned(), 64, MOST_JUDGED + 1);
        let judged = |cell| judge(&options(&[]), &Table::from([(key.clone(), cell)]));
        assert!(judged(Ok(cell(0.96, 320, 0.9))).is_empty());
        assert_eq!(judged(Err("broken".to_owned())).len(), 1);
    }

    #[test]
    fn the_table_has_a_line_for_each_cell() {
        let options = options(&["--protocols", "esp", "--senders", "1,2", "--kib", "64"]);
        let key = |senders| ("esp".to_owned(), 64, senders);
        let table = Table::from([
            (key(1), Ok(cell(0.96, 0, 1.0))),
            (key(2), Err("broken".to_owned())),
        ]);
        let text = print_table(&options, &table);
        assert!(
            text.contains(
                "esp           64    1 |   1.000   0.960 |       0       0 |    1.000  1.000"
            ),
            "{text}"
        );
        assert!(
            text.contains("esp           64    2 | failed: broken"),
            "{text}"
        );
    }
}
