// SPDX-License-Identifier: GPL-2.0-only

//! Tests conversations in which every allocation of the module fails in turn: in calls, in the
//! handling of received frames, and in timers.

use super::memory_fails::on_hosts;
use guest::address::EDP_SO_CHECKSUM;
use guest::frame::edp;
use guest::harness::remark;
use guest::memory::{in_turn, insist, Injection, Within};
use guest::prelude::*;

scenarios! {
    guest memory_fails_during_connections = connections, within(290), needs_faults;
    guest memory_fails_during_connections_with_large_packets = large, within(290), needs_faults;
    guest memory_fails_during_connections_with_checksums = summed, within(290), needs_faults;
    guest memory_fails_during_refusals = refusals, within(240), needs_faults;
    guest memory_fails_during_datagrams_and_echoes = datagrams, within(240), needs_faults;
    guest memory_fails_and_an_announcement_is_repeated = announcement, within(240), needs_faults;
    guest memory_fails_often_under_load = load, within(240), needs_faults;
}

/// Prepares nothing, for a conversation that needs no preparation.
fn nothing() -> Result<()> {
    Ok(())
}

/// Sends all of `bytes`. Repeats calls that fail for lack of memory, and counts them in `refused`.
pub fn send_all(refused: &mut u32, socket: &Socket, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let sent = insist(refused, || socket.send(bytes, libc::MSG_NOSIGNAL)).context("send")?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Receives as many bytes as `bytes` has, and checks that they are equal. Repeats calls that fail
/// for lack of memory.
pub fn receive_all(refused: &mut u32, socket: &Socket, bytes: &[u8]) -> Result<()> {
    let mut got = vec![0; bytes.len()];
    let mut filled = 0;
    while filled < got.len() {
        let length =
            insist(refused, || socket.receive(&mut got[filled..], 0)).context("receive")?;
        ensure!(length > 0, "the stream ends after {filled} bytes");
        filled += length;
    }
    ensure!(got == bytes, "the bytes changed on the way");
    Ok(())
}

/// Connects host `a` to `port` of host `b`. Repeats calls that fail for lack of memory.
fn pair(refused: &mut u32, lab: &Lab, port: u16) -> Result<(Socket, Socket)> {
    let listener = insist(refused, || {
        lab.b.namespace.within(Socket::esp).expect("setns")
    })?;
    listener.bind(&lab.b.here(port))?;
    insist(refused, || listener.listen(4)).context("listen")?;
    let client = insist(refused, || {
        lab.a.namespace.within(Socket::esp).expect("setns")
    })?;
    insist(refused, || client.connect(&lab.a.to(&lab.b, port))).context("connect")?;
    let (server, _) = insist(refused, || listener.accept(0)).context("accept")?;
    Ok((client, server))
}

/// Opens a connection, sends bytes in both directions, and closes it. Returns how many calls failed
/// for lack of memory.
fn conversation(lab: &Lab, bytes: &[u8]) -> Result<u32> {
    let mut refused = 0;
    let (client, server) = pair(&mut refused, lab, 7)?;
    for (from, to) in [(&client, &server), (&server, &client)] {
        send_all(&mut refused, from, bytes)?;
        receive_all(&mut refused, to, bytes)?;
        from.shutdown(libc::SHUT_WR)?;
        ensure!(to.receive(&mut [0], 0)? == 0, "bytes behind the end");
    }
    drop((client, server));
    lab.await_no_sockets()?;
    Ok(refused)
}

fn connections() -> Outcome {
    on_hosts(Within::Module, |lab, injection| {
        let bytes = random(6000, 5);
        in_turn(injection, "a connection", nothing, |()| {
            conversation(lab, &bytes)
        })
    })
}

fn large() -> Outcome {
    on_hosts(Within::Module, |lab, injection| {
        lab.set_mtu(60_000)?;
        let bytes = random(100_000, 5);
        in_turn(
            injection,
            "a connection with large packets",
            nothing,
            |()| conversation(lab, &bytes),
        )
    })
}

/// The sender cuts a run of bytes into packets with a checksum each. The receiver validates each
/// checksum before it merges packets (GRO).
fn summed() -> Outcome {
    on_hosts(Within::Module, |lab, injection| {
        for host in [&lab.a, &lab.b] {
            Knobs(&host.namespace).set("checksum", 1)?;
        }
        let bytes = random(20_000, 5);
        in_turn(injection, "a connection with checksums", nothing, |()| {
            conversation(lab, &bytes)
        })?;
        ensure!(
            lab.b.counter("EspInCsumErrors")? == 0,
            "a sum was wrong for want of memory"
        );
        Ok(())
    })
}

/// Sends packets that are answered with a reset. A reset may be lost for lack of memory; then the
/// next packet is answered with a reset, too.
fn refusals() -> Outcome {
    on_hosts(Within::Module, |lab, injection| {
        let client = || lab.a.esp();
        in_turn(
            injection,
            "a connection that is refused",
            client,
            |client| {
                let mut refused = 0;
                let result = insist(&mut refused, || client.connect(&lab.a.to(&lab.b, 7)));
                ensure!(
                    result
                        .as_ref()
                        .is_err_and(|e| e.raw_os_error() == Some(libc::ECONNREFUSED)),
                    "connect: {result:?}"
                );
                drop(client);
                lab.await_no_sockets()?;
                Ok(refused)
            },
        )?;
        let wire = lab.a.packets(ETH_P_ESP)?;
        let packet = EspHeader::new(9, 9, flag::ACK);
        let stray = ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, &packet.packet(&[]));
        let mut strays = lab.b.counter("EspInNoSocket")?;
        in_turn(injection, "a stray packet", nothing, |()| {
            wire.send(&stray)?;
            strays += 1;
            lab.b.await_counter("EspInNoSocket", strays)?;
            Ok(0)
        })
    })
}

fn datagrams() -> Outcome {
    on_hosts(Within::Module, |lab, injection| {
        let bytes = random(1000, 5);
        both_ways(lab, injection, &bytes)?;
        answers_of_port_0(lab, injection, &bytes)
    })
}

fn both_ways(lab: &Lab, injection: &Injection, bytes: &[u8]) -> Outcome {
    let (a, b) = lab.edp_pair(7)?;
    let exchange = |()| {
        let mut refused = 0;
        for (from, to) in [(&a, &b), (&b, &a)] {
            // At most one of the two datagrams is lost.
            for _ in 0..2 {
                insist(&mut refused, || from.send(bytes, 0))?;
            }
            let mut room = vec![0; 2000];
            let length = to.receive(&mut room, 0)?;
            ensure!(room[..length] == *bytes, "another datagram came");
        }
        drain(&a)?;
        drain(&b)?;
        Ok(refused)
    };
    for (sums, what) in [
        (0, "a datagram and its answer"),
        (1, "a datagram and its answer, with sums"),
    ] {
        a.set_int_option(SOL_EP, EDP_SO_CHECKSUM, sums)?;
        b.set_int_option(SOL_EP, EDP_SO_CHECKSUM, sums)?;
        in_turn(injection, what, nothing, exchange)?;
    }
    Ok(())
}

/// The module itself answers messages to port 0, without a socket.
fn answers_of_port_0(lab: &Lab, injection: &Injection, bytes: &[u8]) -> Outcome {
    let wire = lab.a.packets(ETH_P_EDP)?;
    let mut number = 0u32;
    // An echo reply repeats the whole request, but the answer to a query repeats only the query's
    // nonce (`number`).
    for (request, reply, rest, what) in [(1, 2, bytes, "an echo"), (3, 4, &[], "a query")] {
        in_turn(injection, what, nothing, |()| {
            number += 1;
            let message =
                |kind: u8, rest: &[u8]| [&[kind], &number.to_ne_bytes()[..], rest].concat();
            let asked = message(request, bytes);
            let asked = edp(4711, 0, asked.len() as u16, &asked);
            for _ in 0..2 {
                wire.send_edp(lab.b.mac, lab.a.mac, &asked)?;
            }
            let told = message(reply, rest);
            let tells = |frame: &[u8]| frame.get(20..).is_some_and(|is| is.starts_with(&told));
            wire.wait_for(patience(), tells)
                .with_context(|| format!("what answers one of two requests of {what}"))?;
            Ok(0)
        })?;
    }
    Ok(())
}

/// Receives all queued datagrams.
fn drain(socket: &Socket) -> Result<()> {
    while socket.events()? != 0 {
        socket.receive(&mut [0; 2000], 0)?;
    }
    Ok(())
}

/// A packet that could not be sent is retransmitted with the same flags. The flag TXS of the first
/// packet tells the receiver that a transmission starts. If this flag were missing, the receiver
/// would request lost packets only once.
fn announcement() -> Outcome {
    on_hosts(Within::Module, |lab, injection| {
        send_single_packets(&lab.a.namespace)?;
        let (client, server) = lab.esp_pair(7)?;
        let wire = lab.b.packets(ETH_P_ESP)?;
        let bytes = random(30_000, 5);
        // The first sequence number of the next message, once it is known. Packets with lower
        // numbers belong to an earlier message.
        let mut next = None;
        in_turn(injection, "an announcement", nothing, |()| {
            let mut refused = 0;
            send_all(&mut refused, &client, &bytes)?;
            receive_all(&mut refused, &server, &bytes)?;
            let mut data = Vec::new();
            let mut frame = vec![0; 2000];
            while let Ok(length) = wire.take(&mut frame) {
                let header = EspHeader::of_frame(&frame[..length]);
                data.extend(header.filter(|header| header.length > 0));
            }
            let first = next.or(data.first().map(|header| header.sequence));
            let first = first.context("no data came by")?;
            let place = |header: &EspHeader| header.sequence.wrapping_sub(first);
            data.retain(|header| place(header) < 1 << 15);
            let last = data.iter().map(place).max().context("no data came by")?;
            let last = first.wrapping_add(last);
            next = Some(last.wrapping_add(1));
            for (number, flag, name) in [(first, flag::TXS, "TXS"), (last, flag::TXF, "TXF")] {
                ensure!(
                    data.iter()
                        .filter(|header| header.sequence == number)
                        .all(|header| header.flags & flag != 0),
                    "packet {number} of {first} to {last} came without {name}: {data:?}"
                );
            }
            Ok(refused)
        })
    })
}

/// In this test one of ten allocations fails while several streams carry bytes in both directions.
fn load() -> Outcome {
    on_hosts(Within::Module, |lab, injection| {
        let bytes = random(600_000, 5);
        const MOST: u32 = 100_000;
        let order = injection.often(10, MOST)?;
        let mut refused = 0;
        let pairs = (7..11)
            .map(|port| pair(&mut refused, lab, port))
            .collect::<Result<Vec<_>>>()?;
        refused += thread::scope(|scope| {
            let bytes = &bytes;
            let ends = pairs.iter().flat_map(|(client, server)| {
                [(client, server), (server, client)].map(|(from, to)| {
                    let send = scope.spawn(move || {
                        let mut refused = 0;
                        send_all(&mut refused, from, bytes).map(|()| refused)
                    });
                    let receive = scope.spawn(move || {
                        let mut refused = 0;
                        receive_all(&mut refused, to, bytes).map(|()| refused)
                    });
                    [send, receive]
                })
            });
            let threads: Vec<_> = ends.flatten().collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("threads do not panic"))
                .sum::<Result<u32>>()
        })?;
        let failed = MOST - order.left()?;
        drop(order);
        ensure!(failed > 20, "only {failed} allocations failed");
        remark(&format!(
            "four streams both ways: {failed} allocations failed, and {refused} calls for it"
        ));
        pairs
            .iter()
            .try_for_each(|(client, server)| exchange(client, server))
    })
}
