// SPDX-License-Identifier: GPL-2.0-only

//! Runs netgauge between two hosts with every transport that it has.

use std::collections::BTreeSet;
use std::process::Output;

use guest::netgauge::{client, enable_bearer, join_by_tipc, report, Server, TRANSPORTS};
use guest::netns::finish;
use guest::prelude::*;

scenarios! {
    direct netgauge_measures_by_every_transport = everything, within(180);
    direct netgauge_edp_zerocopy_ends_without_timeouts = without_timeouts;
    direct netgauge_reports_why_tipc_does_not_work = bearers;
    guest netgauge_measures_by_tipc_without_a_bearer = one_host;
}

/// Checks that a client has measured both patterns by every transport, and `rows` sizes in each of
/// these runs.
fn complete(output: &Output, rows: usize) -> Outcome {
    let report = report(output)?;
    ensure!(output.status.success(), "not complete: {report}");
    ensure!(report.get("left_out").is_none(), "left out: {report}");
    let runs = report["runs"].as_array().context("no runs")?;
    let mut measured = BTreeSet::new();
    for run in runs {
        let of = run["rows"].as_array().context("no rows")?;
        ensure!(of.len() == rows, "{} of {rows} sizes: {run}", of.len());
        measured.insert((run["transport"].as_str(), run["pattern"].as_str()));
    }
    for transport in TRANSPORTS {
        for pattern in ["one-one", "bulk"] {
            ensure!(
                measured.contains(&(Some(transport), Some(pattern))),
                "{transport}, {pattern}: not in {report}"
            );
        }
    }
    Ok(())
}

fn everything(lab: &Lab) -> Outcome {
    join_by_tipc(lab)?;
    lab.give_ip_addresses()?;
    let _server = Server::on(&lab.b)?;
    // Messages of one datagram and of several, and a packet that is not full.
    let line = "-m all -x one-one,bulk -s 1,1400,20000 -c 3 --warmup 1";
    complete(&client(&lab.a, line)?, 3)?;
    for options in ["-N both", "--nodelay off --receive-buffer 64K -N receive"] {
        complete(&client(&lab.a, &format!("{line} {options}"))?, 3).context(options)?;
    }
    Ok(())
}

/// When the last answer is sent, the server waits for a datagram or for the client's next order. A
/// completion in the error queue must not end this wait: the server would wait for a datagram only,
/// and nothing limits that wait.
fn without_timeouts(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    let _server = Server::on(&lab.b)?;
    let line = "-m edp-zerocopy,edp -x one-one -s 1,1400,20000 -c 20 --no-timeouts";
    let output = client(&lab.a, line)?;
    let report = report(&output)?;
    ensure!(output.status.success(), "not complete: {report}");
    for transport in ["edp-zerocopy", "edp"] {
        let mut runs = report["runs"].as_array().context("no runs")?.iter();
        let run = runs
            .find(|run| run["transport"] == transport)
            .context(transport)?;
        same(run["rows"].as_array().map(Vec::len), Some(3), transport)?;
        // The pages of a program do not cross to another host of the same machine.
        let copies = run.to_string().contains("the kernel copied");
        same(copies, transport == "edp-zerocopy", transport)?;
    }
    Ok(())
}

fn bearers(lab: &Lab) -> Outcome {
    finish(Command::new("modprobe").arg("tipc"), "")?;
    lab.give_ip_addresses()?;
    let _server = Server::on(&lab.b)?;
    let output = client(&lab.a, "-m all -s 1 -c 1")?;
    let report = report(&output)?;
    ensure!(output.status.success(), "not complete: {report}");
    let left_out = &report["left_out"];
    ensure!(
        left_out.as_array().map(Vec::len) == Some(1) && left_out[0]["transport"] == "tipc",
        "left out: {left_out}"
    );
    let refused = |expected: &str| -> Outcome {
        let output = client(&lab.a, "-m tipc -s 1 -c 1")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{:?}", output.status);
        ensure!(stderr.contains(expected), "{stderr} without {expected}");
        Ok(())
    };
    refused("no bearer on both hosts: `tipc bearer enable")?;
    enable_bearer(&lab.a)?;
    // The node has an address once it has found that no other node uses it.
    eventually("TIPC's address", || {
        let address = lab.a.namespace.run("tipc", &["node", "get", "address"])?;
        Ok(!address.trim().trim_start_matches('0').is_empty())
    })?;
    refused("no bearer on the peer's host")
}

fn one_host() -> Outcome {
    finish(Command::new("modprobe").arg("tipc"), "")?;
    let host = Host::alone([2, 0, 0, 0, 0, 2])?;
    host.namespace
        .ip(&format!("address add 10.0.0.2/24 dev {DEVICE}\n"))?;
    let _server = Server::on(&host)?;
    let output = client(&host, "-m tipc,unix -x one-one,bulk -s 1,100000 -c 3")?;
    let report = report(&output)?;
    ensure!(output.status.success(), "not complete: {report}");
    Ok(())
}
