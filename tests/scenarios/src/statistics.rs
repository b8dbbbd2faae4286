// SPDX-License-Identifier: GPL-2.0-only

//! Tests the counters of `/proc/net/enet`, which must answer the question "why is it slow?".

use std::collections::BTreeMap;

use guest::address::ESP_SO_USER_TIMEOUT;
use guest::prelude::*;

scenarios! {
    direct counters_tell_of_lost_packets = losses, within(120);
    direct counters_tell_of_opens_refusals_and_silence = ends;
    direct counters_tell_of_full_queues = queues;
}

const PORT: u16 = 2860;

/// Returns all counters of a host.
fn counters(host: &Host) -> Result<BTreeMap<String, u64>> {
    let text = host.namespace.proc_net("enet")?;
    text.lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').context("a line without a number")?;
            Ok((name.to_owned(), value.trim().parse()?))
        })
        .collect()
}

/// Returns the counters that a host and its only connection both have: for each, the name, the
/// host's value and the connection's value.
fn beside(host: &Host, socket: &Socket) -> Result<[(&'static str, u64, u64); 4]> {
    let of_host = counters(host)?;
    let of_socket = socket.esp_counters()?;
    Ok([
        ("EspOutPkts", of_socket.pkt_tx),
        ("EspRetransPkts", of_socket.pkt_rtx),
        ("EspInPkts", of_socket.pkt_rx),
        ("EspOutRequests", of_socket.arq_tx),
    ]
    .map(|(name, own)| {
        let value = of_host.get(name).copied().unwrap_or_default();
        (name, value, own.into())
    }))
}

fn losses(lab: &Lab) -> Outcome {
    let load = Load::of(4 << 20, 1 << 16, 86);
    // `Lab::netem` also makes the hosts send single packets, because a run of packets would be
    // lost as a whole.
    lab.netem(&["loss", "10%"])?;
    let (client, server) = lab.esp_pair(PORT)?;
    transfer(&client, &server, load)?;
    for (host, socket) in [(&lab.a, &client), (&lab.b, &server)] {
        // Acknowledgements may still be in flight.
        eventually("the counters' agreement", || {
            let pairs = beside(host, socket)?;
            Ok(pairs.iter().all(|(_, host, socket)| host == socket))
        })
        .with_context(|| format!("{:?}", beside(host, socket)))?;
    }
    let [a, b] = [counters(&lab.a)?, counters(&lab.b)?];
    note(&format!("sender {a:?}"));
    note(&format!("receiver {b:?}"));
    for (host, names) in [
        (&a, ["EspRetransPkts", "EspInRequests"]),
        (&b, ["EspOutRequests", "EspInOutOfSequence"]),
    ] {
        for name in names {
            ensure!(host[name] > 0, "{name} did not count");
        }
    }
    Ok(())
}

fn ends(lab: &Lab) -> Outcome {
    // Count a connection that is accepted.
    let pair = lab.esp_pair(PORT)?;
    ensure!(lab.a.counter("EspActiveOpens")? == 1, "no active open");
    ensure!(lab.b.counter("EspPassiveOpens")? == 1, "no passive open");
    drop(pair);
    lab.await_no_sockets()?;
    // Count a connection that is refused.
    let before = lab.b.counter("EspOutResets")?;
    let client = lab.a.esp()?;
    let to = lab.a.to(&lab.b, PORT + 1);
    refused(client.connect(&to), libc::ECONNREFUSED, "connect")?;
    ensure!(lab.a.counter("EspActiveOpens")? == 2, "no active open");
    ensure!(lab.a.counter("EspInResets")? == 1, "no reset came");
    ensure!(
        lab.b.counter("EspOutResets")? == before + 1,
        "no reset left"
    );
    ensure!(
        lab.b.counter("EspInNoSocket")? > 0,
        "a SYN for nobody was not counted"
    );
    // Count a connection attempt without an answer.
    let client = lab.a.esp()?;
    client.set_int_option(SOL_EP, ESP_SO_USER_TIMEOUT, 200)?;
    let connected = client.connect(&lab.a.to_nobody(PORT));
    refused(connected, libc::ETIMEDOUT, "connect to nobody")?;
    ensure!(lab.a.counter("EspTimeouts")? == 1, "no time-out");
    ensure!(lab.a.counter("EspPassiveOpens")? == 0, "a has no listener");
    Ok(())
}

fn queues(lab: &Lab) -> Outcome {
    // Count connections that a full accept queue refuses.
    let _listener = lab.b.esp_listener(PORT, 0)?;
    let mut clients = Vec::new();
    eventually("a refused connection", || {
        let client = lab.a.esp()?;
        client.set_nonblocking(true)?;
        let started = client.connect(&lab.a.to(&lab.b, PORT));
        refused(started, libc::EINPROGRESS, "connect")?;
        clients.push(client);
        Ok(lab.b.counter("EspInListenQueue")? > 0)
    })?;
    // Count datagrams that a full receive buffer drops.
    let (a, b) = lab.edp_pair(PORT)?;
    b.set_so(libc::SO_RCVBUF, 4096)?;
    for _ in 0..50 {
        a.send(&[0; 1000], 0)?;
    }
    await_events(&b, libc::POLLIN)?;
    eventually("all datagrams accounted for", || {
        let taken = lab.b.counter("EdpInDatagrams")?;
        let dropped = lab.b.counter("EdpInReceiveBuffer")?;
        ensure!(taken <= 50 && dropped <= 50, "{taken} and {dropped} of 50");
        Ok(dropped > 0 && taken + dropped == 50)
    })?;
    ensure!(
        lab.a.counter("EdpOutDatagrams")? == 50,
        "50 datagrams did not leave"
    );
    Ok(())
}
