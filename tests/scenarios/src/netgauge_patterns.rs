// SPDX-License-Identifier: GPL-2.0-only

//! Tests netgauge's patterns for two hosts, and whether their results describe the path.

use std::collections::BTreeSet;

use serde_json::Value;

use guest::netgauge::{client, join_by_tipc, report, Server, TRANSPORTS};
use guest::prelude::*;

scenarios! {
    direct netgauge_measures_by_every_pattern = everything, within(180);
    direct netgauge_flood_shows_the_gain_of_shared_packets = joining, within(180);
    direct netgauge_recovery_counts_losses = losses, within(180);
    direct netgauge_polls_both_ends_in_one_thread = polled, within(180);
}

/// The patterns for two hosts.
const PATTERNS: [&str; 6] = ["one-one", "bulk", "logp", "flood", "setup", "recovery"];

/// Transports for which one thread of netgauge can hold both ends.
const POLLED: [&str; 7] = ["tcp", "udp", "raw", "edp", "esp", "esp-records", "unix"];

/// Transports whose connections netgauge can set up by the thousand.
const STREAMS: [&str; 4] = ["tcp", "esp", "unix", "tipc"];

/// Runs a client with these options on the first host, and returns the client's report of the path
/// to the second host.
fn measure(lab: &Lab, options: &str) -> Result<Value> {
    let output = client(&lab.a, options)?;
    let report = report(&output)?;
    ensure!(output.status.success(), "{options}: not complete: {report}");
    Ok(report)
}

/// Returns the rows that a report has for one transport and one pattern.
fn rows<'a>(report: &'a Value, transport: &str, pattern: &str) -> Result<&'a [Value]> {
    let runs = report["runs"].as_array().context("no runs")?;
    let run = runs
        .iter()
        .find(|run| run["transport"] == transport && run["pattern"] == pattern)
        .with_context(|| format!("{transport}, {pattern}: not in {report}"))?;
    Ok(run["rows"].as_array().context("no rows")?)
}

fn number(row: &Value, name: &str) -> Result<f64> {
    row[name]
        .as_f64()
        .with_context(|| format!("no {name} in {row}"))
}

fn everything(lab: &Lab) -> Outcome {
    join_by_tipc(lab)?;
    lab.give_ip_addresses()?;
    let _server = Server::on(&lab.b)?;
    let transports = TRANSPORTS.join(",");
    let line = format!("-m {transports} -x all -s 1,1400 -c 20 --warmup 2");
    let report = measure(lab, &line)?;
    let mut left_out = BTreeSet::new();
    for transport in TRANSPORTS {
        for pattern in PATTERNS {
            if pattern == "setup" && !STREAMS.contains(&transport) {
                left_out.insert((transport, pattern));
                continue;
            }
            let rows = rows(&report, transport, pattern)?;
            let sizes: Vec<_> = rows.iter().map(|row| row["size"].as_u64()).collect();
            let what = format!("{transport}, {pattern}");
            same(sizes, [Some(1), Some(1400)], &what)?;
        }
    }
    let told = report["left_out"].as_array().context("nothing left out")?;
    let told: BTreeSet<_> = told
        .iter()
        .filter_map(|out| Some((out["transport"].as_str()?, out["pattern"].as_str()?)))
        .collect();
    ensure!(told == left_out, "left out: {told:?}");
    Ok(())
}

/// On a path with a delay the window is soon used up. Small messages are packed together while they
/// wait for a new window.
fn joining(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    lab.netem(&["delay", "1ms"])?;
    let _server = Server::on(&lab.b)?;
    let line = "-m tcp,esp -x flood -s 1 -c 2000";
    let after = measure(lab, line)?;
    let before = measure(lab, &format!("{line} --eor"))?;
    for transport in ["tcp", "esp"] {
        let of = |report| -> Result<(f64, f64)> {
            let row = rows(report, transport, "flood")?
                .first()
                .context("no row")?;
            let packets = number(row, "packets_per_message")?;
            Ok((packets, number(row, "messages_per_s")?))
        };
        let ((apart, slow), (joined, fast)) = (of(&before)?, of(&after)?);
        note(&format!(
            "{transport}: {apart:.2} packets and {slow:.0} messages/s apart, {joined:.3} and {fast:.0} joined"
        ));
        ensure!(apart >= 1.0, "{transport}: {apart} packets for a record");
        // The number of messages that TCP joins depends on when its reader reads. On a slow machine
        // TCP may join none.
        let most = if transport == "esp" { 0.5 } else { apart };
        ensure!(
            joined <= most,
            "{transport}: {joined} packets for a message"
        );
    }
    Ok(())
}

fn losses(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    let _server = Server::on(&lab.b)?;
    // On a clean path no exchange is lost. The timeout is long enough for a busy machine.
    let line = "-m udp,edp,esp -x recovery -s 1 -c 100";
    let clean = measure(lab, &format!("{line} --loss-timeout 20000"))?;
    for transport in ["udp", "edp"] {
        let row = rows(&clean, transport, "recovery")?
            .first()
            .context("no row")?;
        ensure!(row["lost"] == 0, "{transport}: {row}");
    }
    lab.netem(&["loss", "10%"])?;
    let lossy = measure(lab, &format!("{line} --loss-timeout 100"))?;
    for transport in ["udp", "edp"] {
        let row = rows(&lossy, transport, "recovery")?
            .first()
            .context("no row")?;
        let share = number(row, "lost_share")?;
        note(&format!(
            "{transport}: {share:.2} of the exchanges are lost"
        ));
        ensure!(0.0 < share && share < 0.6, "{transport}: {row}");
    }
    let row = rows(&lossy, "esp", "recovery")?.first().context("no row")?;
    note(&format!(
        "esp: {} stalls of {} ns in all, {} packets sent again",
        row["stalls"], row["stalled_ns"], row["packets_resent"]
    ));
    ensure!(row["lost"] == 0, "esp loses nothing: {row}");
    ensure!(number(row, "stalls")? > 0.0, "no stalls: {row}");
    ensure!(number(row, "packets_resent")? > 0.0, "none resent: {row}");
    Ok(())
}

/// Runs `netgauge polled` between two ends, and checks that it has measured `transports`.
fn between(ends: [&str; 2], transports: &[&str], options: &str) -> Outcome {
    let mut command = Command::new("netgauge");
    command.arg("polled").args(ends).args(["--format", "json"]);
    command.args(["-m", &transports.join(",")]);
    command.args(options.split_whitespace());
    let output = command.output().context("starting netgauge")?;
    let report = report(&output)?;
    ensure!(output.status.success(), "{ends:?}: not complete: {report}");
    for transport in transports {
        for row in rows(&report, transport, "polled")? {
            ensure!(
                row["lost"] == 0 && number(&row["half_rtt_ns"], "min")? > 0.0,
                "{transport}: {row}"
            );
        }
        let measured = rows(&report, transport, "polled")?.len();
        same(measured, 3, transport)?;
    }
    Ok(())
}

fn polled(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    // Three sizes of messages: one packet, several packets, and more than a socket's buffer holds.
    const SIZES: &str = "-s 1,4K,300K -c 20 --warmup 2";
    let [a, b] = [&lab.a, &lab.b].map(|host| format!("{}/{DEVICE}", host.namespace.path()));
    between([&a, &b], &POLLED, SIZES)?;
    // Run netgauge with the options of `make bench`.
    between([&b, &a], &POLLED, &format!("{SIZES} --no-timeouts"))?;
    // Measure between two interfaces of one host.
    lab.a
        .namespace
        .ip("link add p0 type veth peer name p1\nlink set p0 up\nlink set p1 up")?;
    let [p0, p1] = ["p0", "p1"].map(|name| format!("{}/{name}", lab.a.namespace.path()));
    between([&p0, &p1], &["raw", "edp", "esp"], SIZES)
}
