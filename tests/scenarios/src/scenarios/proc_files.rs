//! `/proc/net/edp` and `/proc/net/esp`.

use anyhow::{ensure, Context, Result};

use crate::harness::{Outcome, Scenario};
use crate::lab::{await_events, eventually, Host, Lab};

/// The scenarios of this file.
pub const ALL: &[Scenario] = &[
    Scenario::direct("proc_net_edp_lists_sockets", edp),
    Scenario::direct("proc_net_esp_lists_sockets", esp),
    Scenario::direct("proc_net_lists_many_sockets_once_each", many),
];

/// The line of `file` for the local `port`, as a list of fields.
fn line(host: &Host, file: &str, port: u16) -> Result<Vec<String>> {
    let text = host.namespace.proc_net(file)?;
    let end = format!(":{port}");
    text.lines()
        .skip(1)
        .find(|line| {
            let local = line.split_whitespace().next();
            local.is_some_and(|local| local.ends_with(&end))
        })
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .with_context(|| format!("port {port} is not listed in {text:?}"))
}

/// The column under `name` in the header of `file`.
fn column(host: &Host, file: &str, name: &str) -> Result<usize> {
    let text = host.namespace.proc_net(file)?;
    let header = text.lines().next().context("no header")?;
    header
        .split_whitespace()
        .position(|word| word == name)
        .with_context(|| format!("no column {name} in {header:?}"))
}

fn edp(lab: &Lab) -> Outcome {
    for host in [&lab.a, &lab.b] {
        ensure!(
            host.namespace.proc_net("edp")?.lines().count() == 1,
            "a header and nothing else"
        );
    }
    let (a, b) = lab.edp_pair(2805)?;
    let fields = line(&lab.a, "edp", 2805)?;
    let (local, remote) = (
        format!("02:00:00:00:00:01%{}:2805", lab.a.ifindex),
        format!("02:00:00:00:00:02%{}:2805", lab.a.ifindex),
    );
    ensure!(fields[..2] == [local, remote], "addresses: {fields:?}");
    b.set_int_option(libc::SOL_SOCKET, libc::SO_RCVBUF, 4096)?;
    for _ in 0..50 {
        a.send(&[0; 1000], 0)?;
    }
    await_events(&b, libc::POLLIN)?;
    let (drops, queue) = (
        column(&lab.b, "edp", "drops")?,
        column(&lab.b, "edp", "recv-q")?,
    );
    eventually("all datagrams accounted for", || {
        let stats = b.counters(4)?;
        Ok(stats[2] + stats[3] == 50)
    })?;
    let fields = line(&lab.b, "edp", 2805)?;
    let counted = b.counters(4)?[3];
    ensure!(
        fields[drops] == counted.to_string(),
        "{counted} drops, listed: {fields:?}"
    );
    ensure!(fields[queue] != "0", "an empty queue: {fields:?}");
    drop(a);
    ensure!(
        lab.a.namespace.proc_net("edp")?.lines().count() == 1,
        "a closed socket is listed"
    );
    Ok(())
}

fn esp(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(2805, 4)?;
    let state = column(&lab.b, "esp", "state")?;
    let listening = line(&lab.b, "esp", 2805)?;
    ensure!(
        listening[state] == "listen",
        "a listener is listed as {listening:?}"
    );
    let (client, server) = lab.esp_pair_through(&listener, 2805)?;
    let port = client.local_address()?.port;
    let fields = line(&lab.a, "esp", port)?;
    ensure!(
        fields[state] == "established",
        "a connection is listed as {fields:?}"
    );
    let remote = format!("02:00:00:00:00:02%{}:2805", lab.a.ifindex);
    ensure!(fields[1] == remote, "the peer: {fields:?}");
    client.send_all(&[0; 5000])?;
    eventually("the data's arrival", || {
        Ok(server.queued(libc::FIONREAD)? == 5000)
    })?;
    let lines = lab.b.namespace.proc_net("esp")?.lines().count();
    ensure!(
        lines == 3,
        "a header, a listener and a connection make {lines} lines"
    );
    client.shutdown(libc::SHUT_WR)?;
    eventually("fin-wait-2", || {
        Ok(line(&lab.a, "esp", port)?[state] == "fin-wait-2")
    })
}

/// More text than there is room for at first, in each part of the lists.
fn many(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(2806, 300)?;
    let mut held = Vec::new();
    for port in 3000..3150 {
        held.push(lab.b.edp_bound(port)?);
        held.push(lab.b.esp_listener(port, 1)?);
        let bound = lab.b.esp()?;
        bound.bind(&lab.b.here(port + 1000))?;
        held.push(bound);
        let (client, server) = lab.esp_pair_through(&listener, 2806)?;
        held.extend([client, server]);
    }
    for (file, count) in [("edp", 150), ("esp", 1 + 3 * 150)] {
        let text = lab.b.namespace.proc_net(file)?;
        let mut lines: Vec<&str> = text.lines().skip(1).collect();
        ensure!(
            lines.len() == count,
            "{} lines of {file} for {count} sockets",
            lines.len()
        );
        lines.sort_unstable();
        lines.dedup();
        ensure!(lines.len() == count, "{file} has the same line twice");
    }
    Ok(())
}
