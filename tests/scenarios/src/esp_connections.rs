// SPDX-License-Identifier: GPL-2.0-only

//! Tests the beginnings and ends of ESP connections.

use guest::meminfo::kib;
use guest::prelude::*;
use guest::relay::Mode;

scenarios! {
    switched esp_simultaneous_connect_opens_one_connection = simultaneous_connect;
    switched esp_simultaneous_shutdown = simultaneous_shutdown;
    switched esp_simultaneous_close = simultaneous_close;
    direct esp_1000_connections_leave_no_memory_behind = thousand, within(120);
}

/// In this test both sides connect to each other at the same time, and their SYNs cross on the
/// wire.
fn simultaneous_connect(lab: &Lab) -> Outcome {
    let (here, there) = (lab.a.esp()?, lab.b.esp()?);
    here.bind(&lab.a.here(90))?;
    there.bind(&lab.b.here(91))?;
    lab.relay().set_mode(Mode::Hold);
    for (socket, peer) in [
        (&here, lab.a.to(&lab.b, 91)),
        (&there, lab.b.to(&lab.a, 90)),
    ] {
        socket.set_nonblocking(true)?;
        refused(socket.connect(&peer), libc::EINPROGRESS, "connect")?;
    }
    lab.relay().set_mode(Mode::Forward);
    for socket in [&here, &there] {
        await_events(socket, libc::POLLOUT)?;
        let error = socket.pending_error()?;
        ensure!(error == 0, "SO_ERROR {error} after both sides connected");
        socket.set_nonblocking(false)?;
    }
    exchange(&here, &there)?;
    exchange(&there, &here)?;
    for socket in [&here, &there] {
        // Each socket got at least a SYN and a SYN|ACK.
        let received = socket.esp_counters()?.pkt_rx;
        ensure!(received >= 2, "{received} packets came");
    }
    Ok(())
}

fn simultaneous_shutdown(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(560)?;
    exchange(&client, &server)?;
    // Each end sends its FIN before the other end's FIN arrives.
    lab.relay().set_mode(Mode::Hold);
    client.shutdown(libc::SHUT_WR)?;
    server.shutdown(libc::SHUT_WR)?;
    lab.relay().set_mode(Mode::Forward);
    for (name, end) in [("client", &client), ("server", &server)] {
        ensure!(end.receive(&mut [0; 4], 0)? == 0, "{name}: more data");
        eventually(
            "both halves shut",
            || Ok(end.events()? & libc::POLLHUP != 0),
        )
        .context(name)?;
        ensure!(end.pending_error()? == 0, "{name}: an error is pending");
    }
    Ok(())
}

fn simultaneous_close(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(561)?;
    exchange(&client, &server)?;
    lab.relay().set_mode(Mode::Hold);
    drop(client);
    drop(server);
    lab.relay().set_mode(Mode::Forward);
    lab.await_no_sockets()
}

/// Returns the number of sockets and pages of memory that `/proc/net/protocols` reports for ESP.
fn esp_usage(host: &guest::lab::Host) -> anyhow::Result<(i64, i64)> {
    let text = host.namespace.proc_net("protocols")?;
    let line = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some("ESP"))
        .context("no ESP in /proc/net/protocols")?;
    let fields: Vec<_> = line.split_whitespace().collect();
    Ok((fields[2].parse()?, fields[3].parse()?))
}

fn thousand(lab: &Lab) -> Outcome {
    use nix::sys::resource::{setrlimit, Resource};
    setrlimit(Resource::RLIMIT_NOFILE, 4096, 4096)?;
    // The first round fills caches, whose growth would otherwise look like a leak.
    thousand_at_once(lab)?;
    lab.await_no_sockets()?;
    let before = kib("SUnreclaim")? << 10;
    for _ in 0..3 {
        thousand_at_once(lab)?;
        lab.await_no_sockets()?;
    }
    let mut grown = 0;
    eventually("the return of all memory", || {
        grown = (kib("SUnreclaim")? << 10) - before;
        // A leak of 400 bytes in each of the 3,000 connections would exceed this limit.
        Ok(grown < 1 << 20)
    })
    .with_context(|| format!("slabs grew by {grown} bytes"))?;
    for host in [&lab.a, &lab.b] {
        let (sockets, memory) = esp_usage(host)?;
        ensure!(sockets == 0, "{sockets} sockets in /proc/net/protocols");
        ensure!(memory <= 0, "{memory} pages in /proc/net/protocols");
    }
    Ok(())
}

fn thousand_at_once(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(580, 128)?;
    let mut pairs: Vec<(Socket, Socket)> = Vec::with_capacity(1000);
    for number in 0..1000 {
        let pair = lab
            .esp_pair_through(&listener, 580)
            .with_context(|| format!("connection {number}"))?;
        pairs.push(pair);
    }
    for (number, (client, server)) in pairs.iter().enumerate() {
        exchange(client, server).with_context(|| format!("connection {number} of 1,000"))?;
    }
    let listed = lab.a.namespace.proc_net("esp")?.lines().count();
    ensure!(listed > 1000, "/proc/net/esp has {listed} lines");
    Ok(())
}
