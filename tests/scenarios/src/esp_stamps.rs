// SPDX-License-Identifier: GPL-2.0-only

//! Tests transmit time stamps of ESP, in cases that have no counterpart in the kernel's own
//! protocols.

use guest::socket::meminfo::RMEM_ALLOC;
use io_uring::{opcode, types::Fd};

use guest::address::{internet, internet6, EP_SO_ZEROCOPY, ESP_SO_CHECKSUM, IPPROTO_ENET};
use guest::control::receive_with_control;
use guest::mapped::{is_esp, known, listener, stream, MAPPED};
use guest::prelude::*;
use guest::stamps::{
    report, reports, set, OPT_CMSG, OPT_ID, OPT_TSONLY, SOFTWARE, TX_ACK, TX_SCHED, TX_SOFTWARE,
};
use guest::uring::Ring;

use crate::error_queue::{has_etf, want_reports, ETF};

scenarios! {
    direct esp_stamps_of_packets_that_are_cut = cut;
    direct esp_stamps_of_packets_with_sums = sums;
    direct esp_stamps_of_sends_without_a_copy = without_copy;
    direct esp_stamps_of_sends_that_wait_are_apart = apart;
    direct esp_stamps_survive_a_smaller_mtu = smaller_mtu;
    direct esp_stamps_that_nobody_takes_are_bounded = untaken;
    direct esp_stamps_of_records_count_records = records;
    direct esp_stamps_of_a_large_packet = large;
    direct esp_queued_bytes_of_records_by_uring = records_by_uring;
    direct mapped_stamps_of_ipv6_are_those_of_tcp = ipv6;
    direct mapped_stamps_with_packets_tell_nothing_of_ip = with_packets;
}

const STAGES: u32 = TX_SCHED | TX_SOFTWARE | TX_ACK;
const HOW: u32 = SOFTWARE | OPT_TSONLY | OPT_ID;
/// The size of a message that takes many packets, in bytes.
const MANY: usize = 60_000;

/// Sends stamped messages of many packets each, and takes the reports.
fn many(client: &Socket, server: &Socket) -> Outcome {
    set(client, STAGES | HOW)?;
    for round in 1..=3 {
        let bytes = random(MANY, round);
        let (_, got) = beside(
            || Ok(client.send_all(&bytes)?),
            || Ok(server.receive_all(MANY)?),
        )?;
        ensure!(got == bytes, "other bytes");
        let number = MANY as u32 * round as u32 - 1;
        for stage in ["scheduled", "sent", "acknowledged"] {
            reports(client, stage, number)?;
        }
    }
    same(report(client, Duration::ZERO)?, None, "another report")
}

/// Runs (several packets in one buffer) are cut for a device that accepts only single packets, and
/// each stamp stays with the right packet.
fn cut(lab: &Lab) -> Outcome {
    lab.calm()?;
    send_single_packets(&lab.a.namespace)?;
    let (client, server) = lab.esp_pair(210)?;
    many(&client, &server)
}

fn sums(lab: &Lab) -> Outcome {
    lab.calm()?;
    for single in [false, true] {
        if single {
            send_single_packets(&lab.a.namespace)?;
        }
        let listener = lab.b.esp_listener(211, 4)?;
        let client = lab.a.esp()?;
        client.set_int_option(SOL_EP, ESP_SO_CHECKSUM, 1)?;
        client.connect(&lab.a.to(&lab.b, 211))?;
        let (server, _) = listener.accept(0)?;
        many(&client, &server)?;
        client.send_all(b"short")?;
        for stage in ["scheduled", "sent", "acknowledged"] {
            reports(&client, stage, 3 * MANY as u32 + 4)?;
        }
    }
    Ok(())
}

/// In this test the error queue holds both time stamp reports and zero-copy completions.
fn without_copy(lab: &Lab) -> Outcome {
    lab.calm()?;
    let (client, server) = lab.esp_pair(212)?;
    client.set_int_option(SOL_EP, EP_SO_ZEROCOPY, 1)?;
    set(&client, TX_ACK | HOW)?;
    let bytes = random(MANY, 1);
    client.send(&bytes, libc::MSG_ZEROCOPY)?;
    let got = server.receive_all(MANY)?;
    ensure!(got == bytes, "other bytes");
    reports(&client, "acknowledged", MANY as u32 - 1)?;
    eventually("the notice", || {
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        Ok(client.receive(&mut [0; 8], flags).is_ok())
    })
}

/// The bytes of two stamped calls never share a packet, even while they wait for the window. So
/// each call has reports of its own.
fn apart(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(213)?;
    set(&client, STAGES | HOW)?;
    let mut expected = Vec::new();
    let mut count = 0;
    // Delay the peer's acknowledgements, so that sends wait for the window.
    let line = ["netem", "delay", "20ms"];
    lab.b.queue("add", &line)?;
    for length in 1..=40 {
        client.send_all(&vec![7; length])?;
        count += length as u32;
        expected.push(count - 1);
    }
    server.receive_all(count as usize)?;
    let mut found = [Vec::new(), Vec::new(), Vec::new()];
    while found.iter().any(|all| all.len() < expected.len()) {
        let report = report(&client, patience())?
            .with_context(|| format!("no more reports than {found:?}"))?;
        let place = ["scheduled", "sent", "acknowledged"]
            .iter()
            .position(|stage| *stage == report.stage);
        let all = &mut found[place.context("a stage")?];
        // If a packet is retransmitted, its time stamp is reported again.
        if !all.contains(&report.number) {
            all.push(report.number);
        }
    }
    for all in &found {
        same(all, &expected, "numbers")?;
    }
    Ok(())
}

/// In this test the MTU shrinks while packets wait. They are cut to the smaller MTU, and the last
/// piece of a packet must have the packet's stamp.
fn smaller_mtu(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(214)?;
    set(&client, TX_SOFTWARE | TX_ACK | HOW)?;
    // No packet leaves before the MTU changes.
    lab.a.namespace.ip("link set eth0 down\n")?;
    client.send_all(&[1; 1000])?;
    client.send_all(&[2; 10_000])?;
    lab.set_mtu(500)?;
    lab.a.namespace.ip("link set eth0 up\n")?;
    server.receive_all(11_000)?;
    let mut wanted = vec![
        ("sent", 999),
        ("acknowledged", 999),
        ("sent", 10_999),
        ("acknowledged", 10_999),
    ];
    while !wanted.is_empty() {
        let report =
            report(&client, patience())?.with_context(|| format!("no report of {wanted:?}"))?;
        let found = (report.stage, report.number);
        ensure!([999, 10_999].contains(&report.number), "{report}");
        wanted.retain(|one| *one != found);
    }
    Ok(())
}

/// Unread reports are charged to the receive buffer, and never exceed its size. Once they are read,
/// the stream continues.
fn untaken(lab: &Lab) -> Outcome {
    lab.calm()?;
    let (client, server) = lab.esp_pair(215)?;
    client.set_so(libc::SO_RCVBUF, 50_000)?;
    let limit = client.so(libc::SO_RCVBUF)? as u32;
    set(&client, STAGES | HOW)?;
    for _ in 0..1000 {
        client.send_all(b"abc")?;
        server.receive_all(3)?;
    }
    let used = client.meminfo()?[RMEM_ALLOC];
    ensure!(used > limit / 2 && used <= limit, "{used} bytes of {limit}");
    beside(
        || Ok(server.send_all(&[5; 400_000])?),
        || {
            let mut count = 0;
            while report(&client, Duration::ZERO)?.is_some() {
                count += 1;
            }
            note(&format!("{count} reports"));
            set(&client, 0)?;
            client.receive_all(400_000)?;
            Ok(())
        },
    )?;
    exchange(&client, &server)
}

/// Returns two connected `SOCK_SEQPACKET` sockets.
fn record_pair(lab: &Lab, port: u16) -> Result<(Socket, Socket)> {
    let socket = |host: &Host| -> Result<Socket> {
        let made = host
            .namespace
            .within(|| Socket::new(AF_ENET, libc::SOCK_SEQPACKET, 0))?;
        Ok(made?)
    };
    let listener = socket(&lab.b)?;
    listener.bind(&lab.b.here(port))?;
    listener.listen(1)?;
    let client = socket(&lab.a)?;
    client.connect(&lab.a.to(&lab.b, port))?;
    Ok((client, listener.accept(0)?.0))
}

fn records(lab: &Lab) -> Outcome {
    lab.calm()?;
    let (client, server) = record_pair(lab, 216)?;
    set(&client, STAGES | HOW)?;
    for (number, length) in [3, 60_000, 1, 5_000].into_iter().enumerate() {
        client.send(&vec![1; length], 0)?;
        let got = server.receive(&mut vec![0; 70_000], 0)?;
        same(got, length, "a record")?;
        for stage in ["scheduled", "sent", "acknowledged"] {
            reports(&client, stage, number as u32)?;
        }
    }
    same(report(&client, Duration::ZERO)?, None, "another report")
}

/// At the MTU of this test, a single packet has more bytes than a run (several packets in one
/// buffer) can hold.
fn large(lab: &Lab) -> Outcome {
    lab.calm()?;
    lab.set_mtu(65_535)?;
    let (client, server) = lab.esp_pair(217)?;
    many(&client, &server)
}

fn ask(socket: &Socket, operation: u32) -> Result<i32> {
    let entry = opcode::UringCmd16::new(Fd(socket.as_raw_fd()), operation).build();
    // SAFETY: The operation refers to no memory.
    Ok(unsafe { Ring::new()?.once(entry) }?.result)
}

fn records_by_uring(lab: &Lab) -> Outcome {
    let (client, server) = record_pair(lab, 218)?;
    same(ask(&server, 0)?, 0, "nothing there")?;
    client.send(&[1; 100], 0)?;
    client.send(&[1; 7], 0)?;
    arrived(&server, 100)?;
    same(ask(&server, 0)?, 100, "the first record")?;
    server.receive(&mut [0; 200], 0)?;
    same(ask(&server, 0)?, 7, "the second record")?;
    eventually("an acknowledgement", || Ok(ask(&client, 1)? == 0))
}

/// Returns two mapped sockets whose connection ESP carries. `family` is the client's address
/// family.
fn mapped_pair(lab: &Lab, family: i32, port: u16) -> Result<(Socket, Socket)> {
    let listener = listener(&lab.b, MAPPED, port, 4)?;
    let client = stream(&lab.a, family, IPPROTO_ENET)?;
    let mut address = [0; 16];
    address[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 2]);
    client.connect_bytes(&match family {
        libc::AF_INET6 => internet6(address, port),
        _ => internet([10, 0, 0, 2], port),
    })?;
    let (server, _) = listener.accept(0)?;
    ensure!(is_esp(&client), "TCP carries the connection");
    Ok((client, server))
}

fn ipv6(lab: &Lab) -> Outcome {
    lab.calm()?;
    known(lab)?;
    let (client, server) = mapped_pair(lab, libc::AF_INET6, 219)?;
    many(&client, &server)
}

/// A report may contain a frame of ESP, which has no IP header. The offender's address in IP's
/// control message is therefore zero. The program may clear `OPT_TSONLY`, which keeps frames out of
/// reports, between the send and the report.
fn with_packets(lab: &Lab) -> Outcome {
    const LENGTH: usize = 14 + 11 + 3;
    lab.calm()?;
    known(lab)?;
    for (family, port, address) in [(libc::AF_INET, 220, 16), (libc::AF_INET6, 221, 28)] {
        let (client, server) = mapped_pair(lab, family, port)?;
        for option in [libc::IP_PKTINFO, libc::IP_RECVTTL, libc::IP_RECVTOS] {
            client.set_int_option(libc::SOL_IP, option, 1)?;
        }
        let stage = TX_SOFTWARE | SOFTWARE | OPT_ID | OPT_CMSG;
        let line = ["netem", "delay", "300ms"];
        for late in [false, true] {
            if late {
                lab.a.queue("add", &line)?;
                set(&client, stage | OPT_TSONLY)?;
            } else {
                set(&client, stage)?;
            }
            client.send_all(b"abc")?;
            set(&client, stage)?;
            let found = report(&client, patience())?.context("a report")?;
            same(found.stage, "sent", "a report")?;
            same(found.length, LENGTH, "bytes of the frame")?;
            same(found.offender, (address, false), "the offender")?;
            receives(&server, b"abc")?;
        }
        lab.a.queue("del", &[])?;
        while report(&client, Duration::ZERO)?.is_some() {}
        set(&client, stage | OPT_TSONLY)?;
        client.send_all(b"abc")?;
        let found = report(&client, patience())?.context("a report")?;
        same((found.stage, found.length), ("sent", 0), "a report")?;
        same(found.offender, (address, false), "the offender")?;
        receives(&server, b"abc")?;
        refused_by_discipline(lab, &client, &server)?;
    }
    Ok(())
}

/// The queueing discipline reports a frame that it does not send, whatever time stamps the socket
/// asks for.
fn refused_by_discipline(lab: &Lab, client: &Socket, server: &Socket) -> Outcome {
    if !has_etf()? {
        return Ok(());
    }
    want_reports(client)?;
    lab.a.queue("add", &ETF)?;
    client.send_all(b"abc")?;
    await_events(client, libc::POLLIN)?;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let (_, _, control) = receive_with_control(client, flags, 512)?;
    let kinds = [libc::IP_RECVERR, libc::IPV6_RECVERR];
    let about = control.iter().find(|one| kinds.contains(&one.kind));
    let about = &about.context("a report")?.data;
    same(about.get(4), Some(&6), "SO_EE_ORIGIN_TXTIME")?;
    ensure!(about[16..].iter().all(|byte| *byte == 0), "{about:?}");
    lab.a.queue("del", &[])?;
    comes_next(server, b"abc")
}
