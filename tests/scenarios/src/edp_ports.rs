// SPDX-License-Identifier: GPL-2.0-only

//! EDP's port numbers: the sockets that may bind a port, and the socket that gets the port's
//! datagrams.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use guest::patience::factor;
use guest::prelude::*;

scenarios! {
    direct edp_and_esp_have_ports_of_their_own = protocols;
    direct edp_does_not_send_by_another_interface = other_interface;
    direct edp_port_changes_do_not_hide_other_sockets = port_changes, within(150);
    direct edp_never_sends_from_port_0_while_another_thread_disconnects = disconnected_while_sending, within(120), needs_smp;
}

/// Makes a second device on host a; returns its index.
fn second_device(lab: &Lab) -> anyhow::Result<u32> {
    lab.a
        .namespace
        .ip("link add eth1 address 02:00:00:00:00:11 type veth peer name far1\nlink set eth1 up\nlink set far1 up\n")?;
    let index = lab
        .a
        .namespace
        .within(|| guest::socket::interface_index("eth1"))??;
    Ok(index)
}

/// EDP and ESP have separate port spaces. The comparisons with TCP and UDP cover conflicts within
/// one port space.
fn protocols(lab: &Lab) -> Outcome {
    let _datagrams = lab.a.edp_bound(63)?;
    let stream = lab.a.esp()?;
    stream
        .bind(&lab.a.here(63))
        .context("the same number in ESP")?;
    // `bind` ignores the Ethernet address in the socket's name.
    let socket = lab.a.edp()?;
    socket
        .bind(&lab.a.to(&lab.b, 64))
        .context("bind with a foreign address in it")?;
    ensure!(socket.local_address()?.port == 64, "the port");
    Ok(())
}

/// A bound socket does not send through another interface. The frame would have the wrong source
/// address.
fn other_interface(lab: &Lab) -> Outcome {
    let there = Address {
        ifindex: second_device(lab)?,
        ..lab.a.to(&lab.b, 65)
    };
    let sent = lab.a.edp_bound(65)?.send_to(b"x", 0, &there);
    ensure!(sent.is_err(), "a socket bound to eth0 sent through eth1");
    Ok(())
}

/// The module keeps ports in a table of 1024 buckets. In this test one socket moves between two
/// buckets without a pause, while datagrams arrive for another socket in one of these buckets.
fn port_changes(lab: &Lab) -> Outcome {
    const BUCKETS: u16 = 1024;
    let (datagrams, moves_at_least) = (100_000 / factor(), 100 / factor());
    let port = 50_000;
    // The only two ports that are free: one in the receiver's bucket, and one in a different
    // bucket.
    let free = [port + BUCKETS, port + 9 * BUCKETS + 1];
    let receiver = lab.a.edp_bound(port)?;
    let others = (49_152..=65_535).filter(|other| *other != port && !free.contains(other));
    let _others = others
        .map(|port| lab.a.edp_bound(port))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mover = lab.a.edp()?;
    let sender = lab.b.edp()?;
    let (nobody, there) = (lab.a.to_nobody(1), lab.b.to(&lab.a, port));
    let over = AtomicBool::new(false);
    let seen = [0, 0].map(AtomicU32::new);
    let moves = || {
        while !over.load(Relaxed) {
            mover.send_to(b"x", 0, &nobody)?;
            let port = mover.local_address()?.port;
            let which = free.iter().position(|free| *free == port);
            seen[which.context("a port that was taken")?].fetch_add(1, Relaxed);
            mover.connect_bytes(&[0; 16])?;
        }
        Ok(())
    };
    let moved = || {
        seen.iter()
            .all(|times| times.load(Relaxed) > moves_at_least)
    };
    let sends = || {
        let mut bytes = [0; 1];
        // Send more if the other socket has not moved often enough yet, as on a busy machine.
        for sent in 0..10 * datagrams {
            if sent >= datagrams && moved() {
                break;
            }
            sender.send_to(b"x", 0, &there)?;
            // The result is ignored, because not all datagrams need to be read. A datagram that a
            // full receive buffer drops is not counted in `EdpInNoSocket`, which the test checks.
            let _ = receiver.receive(&mut bytes, libc::MSG_DONTWAIT);
        }
        over.store(true, Relaxed);
        Ok(())
    };
    beside(moves, sends)?;
    note(&format!(
        "the other socket had the two ports {seen:?} times"
    ));
    ensure!(moved(), "the other socket did not move: {seen:?}");
    let missed = lab.a.counter("EdpInNoSocket")?;
    same(missed, 0, &format!("missed of {datagrams} datagrams"))
}

/// A disconnect releases an autobound port in two steps. If a concurrent send took the port between
/// these steps, the port would be lost. The socket would stay in the table without a port, and send
/// from port 0, the control port.
fn disconnected_while_sending(lab: &Lab) -> Outcome {
    let (there, unspecified) = (lab.a.to_nobody(1), [0; 16]);
    let calls = 200 / factor().min(4);
    for _ in 0..200 {
        let socket = lab.a.edp()?;
        let disconnects = || {
            for _ in 0..calls {
                socket.connect_bytes(&unspecified)?;
            }
            Ok(())
        };
        let sends = || {
            for _ in 0..calls {
                socket.send_to(b"x", 0, &there)?;
            }
            Ok(())
        };
        beside(disconnects, sends)?;
        socket.send_to(b"x", 0, &there)?;
        let port = socket.local_address()?.port;
        ensure!(port != 0, "a socket sends without a port");
    }
    Ok(())
}
