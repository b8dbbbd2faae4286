// SPDX-License-Identifier: GPL-2.0-only

//! Tests receiving datagrams by a mapped ring: the datagrams, their senders, what does not fit,
//! several senders at once, and readiness.

use std::os::fd::OwnedFd;

use sockaddr_en::{Datagram, DatagramRing, EdpSocket};

use guest::address::EP_SO_RECEIVE_RING;
use guest::prelude::*;

scenarios! {
    direct datagram_ring_gives_datagrams_with_their_senders = with_senders;
    direct datagram_ring_drops_what_does_not_fit = drops;
    direct datagram_ring_leaves_earlier_datagrams_to_calls = earlier;
    direct datagram_ring_has_the_readiness_of_a_socket = readiness;
    direct datagram_ring_is_made_once = refusals;
    direct datagram_ring_keeps_datagrams_of_many_senders_apart = many, needs_smp;
    direct datagram_ring_of_random_counts_harms_only_its_program = hostile;
}

const PAGE: usize = 4096;

/// Makes a ring of `size` bytes for a socket.
fn ring(socket: &Socket, size: usize) -> Result<DatagramRing> {
    let socket = EdpSocket::from(OwnedFd::from(socket.duplicate()?));
    DatagramRing::new(&socket, size).context("a ring")
}

/// Returns a copy of the first datagram, and consumes it.
fn next(ring: &mut DatagramRing) -> Option<(u16, [u8; 6], Vec<u8>)> {
    let Datagram { sender, bytes } = ring.first()?;
    let taken = (sender.port, sender.mac.0, bytes.to_vec());
    ring.consume();
    Some(taken)
}

/// Waits for the next datagram.
fn await_next(ring: &mut DatagramRing) -> Result<(u16, [u8; 6], Vec<u8>)> {
    let mut got = None;
    eventually("a datagram", || {
        got = next(ring);
        Ok(got.is_some())
    })?;
    got.context("no datagram")
}

fn with_senders(lab: &Lab) -> Outcome {
    let server = lab.b.edp_bound(640)?;
    let clients = [lab.a.edp_bound(641)?, lab.a.edp_bound(642)?];
    // The datagrams wrap around the end of the ring many times.
    let mut ring = ring(&server, 2 * PAGE)?;
    let mut rng = fastrand::Rng::with_seed(640);
    for turn in 0..300 {
        let which = rng.usize(..2);
        let length = [0, 1, 7, 8, 9, 46, 1_000, 1_494][rng.usize(..8)];
        let bytes = random(length, turn);
        clients[which].send_to(&bytes, 0, &lab.a.to(&lab.b, 640))?;
        let got = await_next(&mut ring)?;
        let wanted = (641 + which as u16, lab.a.mac, bytes);
        ensure!(got == wanted, "{got:?} in place of {wanted:?}");
    }
    let got = server.edp_counters()?;
    same(
        (got.pkt_rx, got.pkt_rx_drop),
        (300, 0),
        "received and dropped",
    )
}

fn drops(lab: &Lab) -> Outcome {
    let (client, server) = lab.edp_pair(643)?;
    let mut ring = ring(&server, PAGE)?;
    // With 24 bytes for each, three of a kilobyte fit.
    for turn in 0..10_u8 {
        client.send(&[turn; 1_024], 0)?;
    }
    lab.b.await_counter("EdpInReceiveBuffer", 7)?;
    for turn in 0..3 {
        let (_, _, bytes) = await_next(&mut ring)?;
        ensure!(bytes == [turn; 1_024], "another datagram than the first");
    }
    ensure!(ring.first().is_none(), "a fourth one");
    let got = server.edp_counters()?;
    same(
        (got.pkt_rx, got.pkt_rx_drop),
        (3, 7),
        "received and dropped",
    )?;
    client.send(b"there is room again", 0)?;
    ensure!(await_next(&mut ring)?.2 == b"there is room again");
    Ok(())
}

fn earlier(lab: &Lab) -> Outcome {
    let (client, server) = lab.edp_pair(644)?;
    client.send(b"early", 0)?;
    await_events(&server, libc::POLLIN)?;
    let mut ring = ring(&server, PAGE)?;
    client.send(b"late", 0)?;
    eventually("the late one", || Ok(ring.first().is_some()))?;
    let mut room = [0; 9];
    for wanted in [&b"early"[..], b"late"] {
        let (length, _) = ring.recv_from(&mut room)?;
        ensure!(room[..length] == *wanted, "{:?}", &room[..length]);
    }
    let kind = ring.recv_from(&mut room).err().map(|error| error.kind());
    same(kind, Some(std::io::ErrorKind::WouldBlock), "a third one")?;
    refused(server.receive(&mut room, 0), libc::EAGAIN, "a call")?;
    // Two values of one process would take the same bytes.
    let other = EdpSocket::from(OwnedFd::from(server.duplicate()?));
    let second = DatagramRing::new(&other, PAGE).map(drop);
    refused(second, libc::EBUSY, "a second value")?;
    drop(ring);
    DatagramRing::new(&other, PAGE)
        .map(drop)
        .context("afterwards")
}

fn readiness(lab: &Lab) -> Outcome {
    let (client, server) = lab.edp_pair(645)?;
    let mut ring = ring(&server, PAGE)?;
    same(server.events()? & libc::POLLIN, 0, "nothing has come")?;
    let waits = || {
        await_events(&server, libc::POLLIN)?;
        Ok(())
    };
    beside(waits, || Ok(client.send_all(b"wake up")?))?;
    same(server.queued(libc::FIONREAD)?, 32, "24 bytes and 7, padded")?;
    ring.consume();
    same(server.events()? & libc::POLLIN, 0, "it was taken")?;
    same(server.queued(libc::FIONREAD)?, 0, "it was taken")
}

fn refusals(lab: &Lab) -> Outcome {
    let socket = lab.b.edp_bound(646)?;
    let set = |size| socket.set_int_option(SOL_EP, EP_SO_RECEIVE_RING, size);
    for size in [0, 100, 12 << 10, 32 << 20, -1] {
        refused(set(size), libc::EINVAL, "a size that is none")?;
    }
    same(socket.int_option(SOL_EP, EP_SO_RECEIVE_RING)?, 0, "no ring")?;
    set(PAGE as i32)?;
    same(
        socket.int_option(SOL_EP, EP_SO_RECEIVE_RING)?,
        PAGE as i32,
        "its size",
    )?;
    refused(set(PAGE as i32), libc::EBUSY, "a second ring")
}

/// Each datagram repeats the byte of its sender.
fn many(lab: &Lab) -> Outcome {
    const EACH: usize = 2_000;
    let server = lab.b.edp()?;
    server.bind(&lab.b.anywhere(647))?;
    let mut ring = ring(&server, 4 << 20)?;
    // The host's own datagrams are received on the processor of their sender.
    let senders: Vec<_> = (1..=3)
        .map(|n| Ok((n, lab.b.edp_bound(647 + u16::from(n))?)))
        .collect::<Result<_>>()?;
    let there = lab.b.to(&lab.b, 647);
    let sends = || {
        thread::scope(|scope| {
            let threads: Vec<_> = senders
                .iter()
                .map(|(n, socket)| {
                    scope.spawn(|| -> Outcome {
                        for turn in 0..EACH {
                            socket.send_to(&vec![*n; 100 + turn % 900], 0, &there)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a sender panicked"))?)
        })
    };
    let mut counts = [0; 4];
    let reads = || {
        eventually("all datagrams", || {
            while let Some((port, _, bytes)) = next(&mut ring) {
                let n = port - 647;
                let length = 100 + counts[usize::from(n)] % 900;
                ensure!(bytes == vec![n as u8; length], "mixed, from {port}");
                counts[usize::from(n)] += 1;
            }
            Ok(counts[1..] == [EACH; 3])
        })
    };
    beside(sends, reads).map(drop)
}

fn hostile(lab: &Lab) -> Outcome {
    let (client, server) = lab.edp_pair(651)?;
    server.set_int_option(SOL_EP, EP_SO_RECEIVE_RING, PAGE as i32)?;
    crate::receive_ring::with_random_counts(&server, PAGE, || {
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            let _ = client.send(&random(1_000, 651), 0);
            let _ = server.receive(&mut [0; 100], 0);
            server.queued(libc::FIONREAD)?;
            server.events()?;
        }
        Ok(())
    })?;
    drop((client, server));
    // Others are as they were.
    let (client, server) = lab.edp_pair(652)?;
    client.send(b"to another socket", 0)?;
    let mut room = [0; 100];
    same(server.receive(&mut room, 0)?, 17, "a datagram")
}
