// SPDX-License-Identifier: GPL-2.0-only

//! Tests capability queries to EDP's port 0: a host announces its limits, and its peers respect
//! them.

use sockaddr_en::Capabilities;

use guest::address::EDP_SO_CHECKSUM;
use guest::frame::{edp, edp_summed, EDP_HEADER};
use guest::harness::ensure_largest_payload;
use guest::prelude::*;
use guest::station::MAC as STRANGER;

scenarios! {
    direct edp_query_is_answered_with_every_option = every_option;
    direct edp_query_answers_are_limited_in_rate = rate;
    direct edp_query_false_answers_change_nothing = false_answers;
    direct edp_query_silent_peer_gets_large_datagrams = silent_peer;
    direct edp_query_stays_in_its_namespace = namespaces;
    direct edp_query_by_the_library_and_by_ping = programs;
    direct mtu_of_9000_sends_no_datagram_that_1500_cannot_take = unequal_mtus;
}

const QUERY: u8 = 3;
const ANSWER: u8 = 4;

/// Number of bytes in front of EDP's payload: the Ethernet header and EDP's header.
const HEADERS: usize = 14 + EDP_HEADER;

/// Number of bytes of the shortest Ethernet frame, without its check sequence.
const LEAST_FRAME: usize = 60;

/// Returns a frame that the stranger, a station without the module, sends to host `a`.
fn to_a(lab: &Lab, packet: &[u8]) -> Vec<u8> {
    ethernet(lab.a.mac, STRANGER, ETH_P_EDP, packet)
}

fn every_option(lab: &Lab) -> Outcome {
    lab.a.set_mtu(2000)?;
    Knobs(&lab.a.namespace).set("burst_length", 40)?;
    let wire = lab.b.packets(ETH_P_EDP)?;
    // Queries that are too short.
    for length in 1..5 {
        let short = &[QUERY, 9, 9, 9, 9][..length];
        wire.send(&to_a(lab, &edp(700, 0, length as u16, short)))?;
    }
    // Five queries. The first comes from a socket's port, the second from port 0, the third has
    // more bytes after the nonce, the fourth has padding, and the fifth has a checksum.
    let queries = [
        edp(700, 0, 5, &[QUERY, 1, 2, 3, 4]),
        edp(0, 0, 5, &[QUERY, 1, 2, 3, 4]),
        edp(700, 0, 9, &[QUERY, 1, 2, 3, 4, 5, 6, 7, 8]),
        edp(700, 0, 5, &[&[QUERY, 1, 2, 3, 4][..], &[0xee; 35]].concat()),
        edp_summed(700, 0, &[QUERY, 1, 2, 3, 4]),
    ];
    let answer = [
        &[ANSWER, 1, 2, 3, 4][..],
        &[1, 1, 1],
        &[2, 2, 0, 0x0f],
        &[3, 2, 0x07, 0xca],
        &[4, 2, 0x07, 0xc5],
        &[5, 4, 0, 40, 0, 1],
        &[6, 2, 0, 10],
    ]
    .concat();
    for (number, query) in queries.iter().enumerate() {
        wire.send(&to_a(lab, query))?;
        let frame = wire
            .wait_for(patience(), |_| true)
            .with_context(|| format!("the answer to query {number}"))?;
        let port = u16::from_be_bytes([query[0], query[1]]);
        let expected = if query[4] & 0x80 != 0 {
            edp_summed(0, port, &answer)
        } else {
            edp(0, port, answer.len() as u16, &answer)
        };
        let expected = ethernet(STRANGER, lab.a.mac, ETH_P_EDP, &expected);
        ensure!(
            frame.starts_with(&expected) && frame.len() <= LEAST_FRAME,
            "query {number}: the answer is {frame:02x?}, not {expected:02x?}"
        );
    }
    lab.a.await_counter("EdpInQueries", queries.len() as u32)?;
    lab.a.await_counter("EdpInNoSocket", 4)?;
    // A query to or from a group address is not answered.
    let query = &queries[0];
    wire.send(&ethernet([0xff; 6], STRANGER, ETH_P_EDP, query))?;
    wire.send(&ethernet(lab.a.mac, [0xff; 6], ETH_P_EDP, query))?;
    lab.a.await_counter("EdpInNotOurs", 2)?;
    lab.a.await_counter("EdpInQueries", queries.len() as u32)
}

/// The module answers a burst of queries, and then at most ten in a millisecond.
fn rate(lab: &Lab) -> Outcome {
    const QUERIES: u32 = 20_000;
    const BURST: u128 = 1024;
    let wire = lab.b.packets(ETH_P_EDP)?;
    let frame = to_a(lab, &edp(700, 0, 5, &[QUERY, 1, 2, 3, 4]));
    let start = Instant::now();
    for _ in 0..QUERIES {
        wire.send(&frame)?;
    }
    let mut answered = 0;
    eventually("the last query", || {
        answered = lab.a.counter("EdpInQueries")?;
        Ok(answered + lab.a.counter("EdpInQueriesRefused")? == QUERIES)
    })?;
    let most = BURST + 1 + start.elapsed().as_micros() / 100;
    ensure!(
        (BURST..=most).contains(&answered.into()),
        "{answered} of {QUERIES} queries were answered, at most {most} were to be"
    );
    Ok(())
}

/// Waits for the query that host `a` sends to the stranger, and returns its nonce.
fn asked(lab: &Lab, wire: &PacketSocket) -> Result<[u8; 4]> {
    let frame = wire
        .wait_for(patience(), |frame| frame.get(HEADERS) == Some(&QUERY))
        .context("a query")?;
    let expected = ethernet(STRANGER, lab.a.mac, ETH_P_EDP, &edp(0, 0, 5, &[QUERY]));
    ensure!(frame.starts_with(&expected), "the query is {frame:02x?}");
    frame
        .get(HEADERS + 1..HEADERS + 5)
        .and_then(|nonce| nonce.try_into().ok())
        .context("a query without nonce")
}

/// Waits until host `a` has dropped `wanted` packets.
fn await_dropped(lab: &Lab, wanted: usize) -> Outcome {
    eventually(&format!("{wanted} dropped packets"), || {
        let dropped = lab.a.counter("EdpInNoSocket")? + lab.a.counter("EdpInMalformed")?;
        Ok(dropped as usize == wanted)
    })
}

/// Returns an answer to the query that has this nonce.
fn answer(nonce: [u8; 4], options: &[u8]) -> Vec<u8> {
    let payload = [&[ANSWER], &nonce[..], options].concat();
    edp(0, 0, payload.len() as u16, &payload)
}

/// The option of a peer that takes datagrams of up to 1494 bytes.
const SMALL: &[u8] = &[3, 2, 0x05, 0xd6];

/// Returns frames that are sent to host `a` and are not valid answers to its query with this nonce.
fn forgeries(lab: &Lab, nonce: [u8; 4]) -> [Vec<u8>; 6] {
    let right = answer(nonce, SMALL);
    let payload = &right[EDP_HEADER..];
    [
        to_a(lab, &answer(nonce.map(|byte| !byte), SMALL)),
        ethernet(lab.a.mac, lab.b.mac, ETH_P_EDP, &right),
        // Two answers that end within the nonce: one whose frame is too short, and one whose length
        // field is too small.
        to_a(lab, &right[..EDP_HEADER + 4]),
        to_a(lab, &edp(0, 0, 4, &payload[..4])),
        // This answer comes from a socket's port instead of port 0.
        to_a(lab, &edp(5, 0, payload.len() as u16, payload)),
        // This is an echo reply.
        to_a(lab, &edp(0, 0, 5, &[&[2], &nonce[..]].concat())),
    ]
}

fn false_answers(lab: &Lab) -> Outcome {
    // The devices carry 9000 bytes; only the stranger accepts less.
    lab.set_mtu(9000)?;
    let wire = lab.b.packets(ETH_P_EDP)?;
    let socket = lab.a.edp_bound(701)?;
    socket.connect(&Address {
        mac: STRANGER,
        ..lab.a.to(&lab.b, 700)
    })?;
    // Host `a` drops this answer, because it has sent no query yet.
    wire.send(&to_a(lab, &answer([0; 4], SMALL)))?;
    lab.a.await_counter("EdpInNoSocket", 1)?;
    // A datagram of the length that every host accepts causes no query.
    socket.send(&[1; 1494], 0)?;
    same(lab.a.counter("EdpOutQueries")?, 0, "queries that left")?;
    socket.send(&[1; 5000], 0).context("the first large one")?;
    let nonce = asked(lab, &wire)?;
    let forged = forgeries(lab, nonce);
    for frame in &forged {
        wire.send(frame)?;
    }
    await_dropped(lab, 1 + forged.len())?;
    same(lab.a.counter("EdpInAnswers")?, 0, "forged answers")?;
    ensure_largest_payload(&socket, 8994, "after forged answers")?;
    socket.send(&[1; 5000], 0).context("after forged answers")?;

    wire.send(&to_a(lab, &answer(nonce, SMALL)))?;
    lab.a.await_counter("EdpInAnswers", 1)?;
    ensure_largest_payload(&socket, 1494, "after the answer")?;
    refused(socket.send(&[1; 1495], 0), libc::EMSGSIZE, "1495 bytes")?;
    socket.send(&[1; 1494], 0).context("what the peer takes")?;
    // A nonce is valid for one answer.
    wire.send(&to_a(lab, &answer(nonce, &[3, 2, 0x20, 0])))?;
    await_dropped(lab, 1 + forged.len() + 1)?;
    ensure_largest_payload(&socket, 1494, "after the second answer")?;
    same(lab.a.counter("EdpOutQueries")?, 1, "queries that left")
}

/// A peer with an older version of the module answers no query. The host sends it one query, and
/// then datagrams as large as the host's own device carries.
fn silent_peer(lab: &Lab) -> Outcome {
    lab.set_mtu(9000)?;
    let socket = lab.a.edp_bound(702)?;
    let nobody = lab.a.to_nobody(700);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1500) {
        socket.send_to(&[1; 8994], 0, &nobody)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    refused(
        socket.send_to(&[1; 8995], 0, &nobody),
        libc::EMSGSIZE,
        "more than the device carries",
    )?;
    let queries = lab.a.counter("EdpOutQueries")?;
    // A second query may leave after 11 s: the host waits 1 s for an answer, and then sends no
    // query for 10 s. In a slow guest this test may take that long.
    let most = 1 + start.elapsed().as_secs() / 11;
    ensure!(
        (1..=most).contains(&queries.into()),
        "{queries} queries left"
    );
    Ok(())
}

/// Sends a datagram that is too large for the peer's device. A veth pair reports the loss to the
/// sender (`ENOBUFS`); other devices do not.
fn send_in_vain(socket: &Socket, to: &Address) -> Outcome {
    match socket.send_to(&[1; 5000], 0, to) {
        Err(error) if error.raw_os_error() != Some(libc::ENOBUFS) => {
            Err(error).context("a large datagram")
        }
        _ => Ok(()),
    }
}

/// Sends a large datagram to a peer whose limit is not known yet, and waits for the peer's answer.
fn learn(host: &Host, socket: &Socket, to: &Address) -> Outcome {
    let answers = host.counter("EdpInAnswers")?;
    send_in_vain(socket, to)?;
    host.await_counter("EdpInAnswers", answers + 1)
}

fn unequal_mtus(lab: &Lab) -> Outcome {
    lab.a.set_mtu(9000)?;
    let peer = lab.a.to(&lab.b, 703);
    let unconnected = lab.a.edp_bound(704)?;
    let connected = lab.a.edp_bound(705)?;
    connected.connect(&peer)?;
    let receiver = lab.b.edp_bound(703)?;
    ensure_largest_payload(&connected, 8994, "before anything is known")?;
    learn(&lab.a, &unconnected, &peer)?;
    ensure_largest_payload(&connected, 1494, "connected")?;
    ensure_largest_payload(&unconnected, 8994, "not connected")?;
    refused(
        unconnected.send_to(&[1; 1495], 0, &peer),
        libc::EMSGSIZE,
        "1495 bytes",
    )?;
    connected.send(&[1; 800], libc::MSG_MORE)?;
    refused(connected.send(&[1; 800], 0), libc::EMSGSIZE, "two sends")?;
    connected.set_int_option(SOL_EP, EDP_SO_CHECKSUM, 1)?;
    ensure_largest_payload(&connected, 1490, "with a sum")?;
    refused(connected.send(&[1; 1491], 0), libc::EMSGSIZE, "with a sum")?;
    connected.send(&[2; 1490], 0)?;
    unconnected.send_to(&[3; 1494], 0, &peer)?;
    let mut bytes = [0; 2000];
    for (length, first) in [(1490, 2), (1494, 3)] {
        let got = receiver.receive(&mut bytes, 0)?;
        ensure!((got, bytes[0]) == (length, first), "{got} of {}", bytes[0]);
    }
    // A datagram to the sender's own host is limited by the device only, and causes no query.
    let own = lab.a.to(&lab.a, 705);
    unconnected.send_to(&[4; 8994], 0, &own)?;
    let queries = lab.a.counter("EdpOutQueries")?;
    ensure!(queries == 1, "{queries} queries left");
    Ok(())
}

/// Each namespace learns a peer's limits by a query of its own.
fn namespaces(lab: &Lab) -> Outcome {
    lab.a.set_mtu(9000)?;
    let peer = lab.a.to(&lab.b, 706);
    let socket = lab.a.edp_bound(706)?;
    learn(&lab.a, &socket, &peer)?;
    refused(socket.send_to(&[1; 5000], 0, &peer), libc::EMSGSIZE, "a")?;

    let other = Host::alone([2, 0, 0, 0, 0, 3])?;
    other.set_mtu(9000)?;
    let peer = other.to(&lab.b, 706);
    let socket = other.edp_bound(706)?;
    for _ in 0..2 {
        send_in_vain(&socket, &peer)?;
    }
    for (host, queries, answers) in [(&lab.a, 1, 1), (&other, 1, 0)] {
        host.await_counter("EdpOutQueries", queries)?;
        host.await_counter("EdpInAnswers", answers)?;
    }
    ensure!(lab.b.counter("EdpInQueries")? == 1, "b was asked twice");
    Ok(())
}

fn programs(lab: &Lab) -> Outcome {
    lab.b.set_mtu(9000)?;
    let peer = format!("{}%{DEVICE}", print_mac(lab.b.mac));
    let line = "version 1, datagrams up to 8994 bytes, ESP payload 8989, window 21/1, \
                acknowledges every 10, checksums, takes mapped connections";
    let text = lab
        .a
        .namespace
        .run("enet", &["ping", "-c", "1", "-W", "10", &peer])?;
    ensure!(text.contains(&format!("\npeer: {line}\n")), "{text:?}");
    let address = format!("{peer}:7");
    let told = lab
        .a
        .namespace
        .within(|| Capabilities::of(address.as_str(), patience()))?
        .context("asking")?;
    ensure!(told.to_string() == line, "{told:?}");
    // No host has this address.
    let nobody = "02:00:00:00:de:ad%eth0:7";
    let short = Duration::from_millis(300);
    let silent = lab.a.namespace.within(|| Capabilities::of(nobody, short))?;
    ensure!(
        silent
            .as_ref()
            .is_err_and(|error| error.kind() == std::io::ErrorKind::TimedOut),
        "{silent:?}"
    );
    Ok(())
}
