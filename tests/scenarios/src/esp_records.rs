// SPDX-License-Identifier: GPL-2.0-only

//! Tests records of ESP (`SOCK_SEQPACKET`): each receive call returns the bytes of one send call,
//! whatever happens on the way.

use fastrand::Rng;
use guest::socket::meminfo::RMEM_ALLOC;

use guest::prelude::*;
use guest::program::{start, wait_for_word};
use guest::station::MAC as STRANGER;

scenarios! {
    direct esp_records_arrive_as_they_were_sent = as_sent;
    direct esp_records_are_not_joined_on_the_wire = on_the_wire;
    direct esp_records_arrive_through_a_bad_wire = bad_wire, within(120);
    direct esp_records_longer_than_the_receive_buffer = long_ones;
    direct esp_records_survive_a_smaller_mtu = smaller_mtu;
    direct esp_records_arrive_at_the_least_mtu = least_mtu;
    direct esp_records_to_the_own_host = own_host;
    direct esp_records_and_streams_refuse_each_other = other_kind;
    direct esp_records_refuse_a_peer_that_does_not_know_them = old_peer;
    direct esp_records_of_a_peer_that_breaks_them_end_with_a_reset = broken;
    direct esp_records_without_end_take_bounded_memory = endless;
    direct esp_records_behind_cookies = cookies;
    direct esp_records_show_their_type = shown;
    direct esp_records_example_asks_and_is_answered = example;
}

/// Returns a new `SOCK_SEQPACKET` socket of `host`.
pub(crate) fn socket(host: &Host) -> Result<Socket> {
    host.namespace
        .within(|| Socket::new(AF_ENET, libc::SOCK_SEQPACKET, 0))?
        .context("a socket of records")
}

fn listener(host: &Host, port: u16, backlog: i32) -> Result<Socket> {
    let socket = socket(host)?;
    socket.bind(&host.here(port)).context("bind")?;
    socket.listen(backlog).context("listen")?;
    Ok(socket)
}

/// Returns a connection with records from `a` to a port of `b`.
fn pair(lab: &Lab, port: u16) -> Result<(Socket, Socket)> {
    let listener = listener(&lab.b, port, 4)?;
    let client = socket(&lab.a)?;
    client.connect(&lab.a.to(&lab.b, port)).context("connect")?;
    let (server, _) = listener.accept(0).context("accept")?;
    Ok((client, server))
}

/// Returns `count` records of random lengths. Most are short. A quarter have up to `most` bytes, so
/// that some of them fill many packets.
fn records(count: usize, most: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::with_seed(seed);
    (0..count)
        .map(|n| {
            let most = if rng.u8(..4) == 0 { most } else { 200 };
            random(rng.usize(1..=most), seed + n as u64)
        })
        .collect()
}

fn send_all(socket: &Socket, records: &[Vec<u8>]) -> Outcome {
    for record in records {
        let sent = socket.send(record, 0).context("send")?;
        ensure!(sent == record.len(), "{sent} of {} bytes", record.len());
    }
    Ok(())
}

fn receive_all(socket: &Socket, records: &[Vec<u8>]) -> Outcome {
    let mut room = vec![0; 1 << 20];
    for (n, record) in records.iter().enumerate() {
        let got = socket.receive(&mut room, 0).context("receive")?;
        ensure!(
            got == record.len() && room[..got] == record[..],
            "record {n}: {got} bytes came, {} were sent, or others",
            record.len()
        );
    }
    Ok(())
}

/// Sends records one way, then the other, then both at once.
fn converse(ends: &(Socket, Socket), records: &[Vec<u8>]) -> Outcome {
    let (client, server) = ends;
    for (from, to) in [(client, server), (server, client)] {
        beside(|| send_all(from, records), || receive_all(to, records))?;
    }
    let way = |from, to| beside(|| send_all(from, records), || receive_all(to, records));
    beside(|| way(client, server), || way(server, client)).map(drop)
}

fn as_sent(lab: &Lab) -> Outcome {
    // First the veth pair passes runs (several packets in one buffer) whole, then the sender cuts
    // them, then the receiver's GRO merges their packets.
    converse(&pair(lab, 700)?, &records(2_000, 60_000, 1))?;
    send_single_packets(&lab.a.namespace)?;
    send_single_packets(&lab.b.namespace)?;
    converse(&pair(lab, 701)?, &records(2_000, 60_000, 2))?;
    for host in [&lab.a, &lab.b] {
        host.namespace
            .run("ethtool", &["-K", DEVICE, "gro", "on"])?;
    }
    converse(&pair(lab, 702)?, &records(2_000, 60_000, 3))
}

/// The first packet of each record has TXS and the last packet has TXF, though all records were
/// queued at once.
fn on_the_wire(lab: &Lab) -> Outcome {
    send_single_packets(&lab.a.namespace)?;
    let (client, server) = pair(lab, 703)?;
    let ear = lab.b.packets(ETH_P_ESP)?;
    let lengths = [1, 10, 2_000, 5_000, 3, 1_489, 1_490];
    let records: Vec<_> = (0..)
        .zip(lengths)
        .map(|(seed, n)| random(n, seed))
        .collect();
    send_all(&client, &records)?;
    receive_all(&server, &records)?;
    let mut frame = vec![0; 1 << 16];
    let mut lines = Vec::new();
    while let Ok(length) = ear.take(&mut frame) {
        let header = EspHeader::of_frame(&frame[..length]);
        if let Some(header) = header.filter(|h| h.length > 0 && h.destination == 703) {
            lines.push(header);
        }
    }
    // Frames of several processors may arrive out of order.
    let first = lines
        .first()
        .context("no frame")?
        .sequence
        .wrapping_sub(100);
    lines.sort_by_key(|header| header.sequence.wrapping_sub(first));
    lines.dedup_by_key(|header| header.sequence);
    let mut found = Vec::new();
    let mut length = None;
    for header in lines {
        ensure!(
            (header.flags & flag::TXS != 0) == length.is_none(),
            "TXS is not where a record begins: {header:?}"
        );
        let so_far = length.unwrap_or(0) + usize::from(header.length);
        length = Some(so_far);
        if header.flags & flag::TXF != 0 {
            found.push(so_far);
            length = None;
        }
    }
    ensure!(found == lengths, "{found:?} on the wire");
    Ok(())
}

fn bad_wire(lab: &Lab) -> Outcome {
    lab.netem(&["loss", "3%", "duplicate", "1%", "delay", "200us", "100us"])?;
    converse(&pair(lab, 704)?, &records(300, 20_000, 4))
}

fn long_ones(lab: &Lab) -> Outcome {
    let (client, server) = pair(lab, 705)?;
    // From now on the receive buffer holds one or two packets.
    server.set_so(libc::SO_RCVBUF, 1)?;
    let records: Vec<_> = (0..4).map(|seed| random(60_000, seed)).collect();
    beside(
        || send_all(&client, &records),
        || receive_all(&server, &records),
    )?;
    // A record of 16 MiB exceeds the limit that the listener has announced. A record of 60,000
    // bytes fits, because no limit may be lower than 65,536 bytes.
    refused(client.send(&vec![0; 16 << 20], 0), libc::EMSGSIZE, "16 MiB")?;
    send_all(&client, &records[..1])?;
    receive_all(&server, &records[..1])
}

fn smaller_mtu(lab: &Lab) -> Outcome {
    for host in [&lab.a, &lab.b] {
        host.set_mtu(9_000)?;
        send_single_packets(&host.namespace)?;
    }
    let (client, server) = pair(lab, 706)?;
    let records = records(200, 40_000, 5);
    // The device's queue loses all packets that the socket transmits.
    lab.a.queue("add", &["netem", "loss", "100%"])?;
    client.set_nonblocking(true)?;
    let mut queued = 0;
    while queued < records.len() && client.send(&records[queued], 0).is_ok() {
        queued += 1;
    }
    lab.set_mtu(1_500)?;
    lab.a.queue("del", &[])?;
    client.set_nonblocking(false)?;
    beside(
        || send_all(&client, &records[queued..]),
        || receive_all(&server, &records),
    )
    .map(drop)
}

fn least_mtu(lab: &Lab) -> Outcome {
    lab.set_mtu(68)?;
    let ends = pair(lab, 707)?;
    ends.1.set_so(libc::SO_RCVBUF, 1)?;
    converse(&ends, &records(50, 30_000, 6))
}

fn own_host(lab: &Lab) -> Outcome {
    let listener = listener(&lab.b, 708, 1)?;
    let client = socket(&lab.b)?;
    client.connect(&lab.b.to(&lab.b, 708)).context("connect")?;
    let (server, _) = listener.accept(0).context("accept")?;
    converse(&(client, server), &records(500, 60_000, 7))
}

fn other_kind(lab: &Lab) -> Outcome {
    let streams = lab.b.esp_listener(709, 4)?;
    let client = socket(&lab.a)?;
    let to = |port| lab.a.to(&lab.b, port);
    refused(client.connect(&to(709)), libc::ECONNREFUSED, "of streams")?;
    let records = listener(&lab.b, 710, 4)?;
    let client = lab.a.esp()?;
    refused(client.connect(&to(710)), libc::ECONNREFUSED, "of records")?;
    for listener in [&streams, &records] {
        listener.set_nonblocking(true)?;
        refused(listener.accept(0), libc::EAGAIN, "accept")?;
    }
    // Both listeners still accept connections.
    socket(&lab.a)?.connect(&to(710)).context("records")?;
    lab.a.esp()?.connect(&to(709)).context("a stream")
}

/// A peer that writes its own frames, and is connected to a socket of host `a`.
pub(crate) struct Peer {
    wire: PacketSocket,
    host: [u8; 6],
    ports: [u16; 2],
    next: u16,
    expected: u16,
}

const OPTION: &[u8] = &[9, 4, 0, 1, 0, 0];

impl Peer {
    /// Starts to connect a socket of host `a`, and answers its SYN with `options`.
    fn answer(lab: &Lab, port: u16, options: &[u8]) -> Result<(Self, Socket)> {
        Self::answer_to(lab, socket(&lab.a)?, port, options)
    }

    /// Starts to connect `client`, a socket of host `a`, and answers its SYN with `options`.
    pub(crate) fn answer_to(
        lab: &Lab,
        client: Socket,
        port: u16,
        options: &[u8],
    ) -> Result<(Self, Socket)> {
        let wire = lab.b.packets(ETH_P_ESP)?;
        client.set_nonblocking(true)?;
        let address = Address {
            port,
            ifindex: lab.a.ifindex,
            mac: STRANGER,
        };
        refused(client.connect(&address), libc::EINPROGRESS, "connect")?;
        let mut peer = Self {
            wire,
            host: lab.a.mac,
            ports: [port, 0],
            next: 500,
            expected: 0,
        };
        let syn = peer.wait_for(|header| header.flags & flag::SYN != 0)?;
        peer.ports[1] = syn.source;
        peer.expected = syn.sequence.wrapping_add(1);
        peer.send(flag::SYN | flag::ACK, options)?;
        Ok((peer, client))
    }

    pub(crate) fn send(&mut self, flags: u8, payload: &[u8]) -> Outcome {
        let header = EspHeader {
            source: self.ports[0],
            destination: self.ports[1],
            length: payload.len() as u16,
            sequence: self.next,
            acknowledgement: self.expected,
            flags,
        };
        let frame = ethernet(self.host, STRANGER, ETH_P_ESP, &header.packet(payload));
        self.wire.send(&frame)?;
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Sends a probe (an empty packet with an earlier sequence number), and waits for the answer,
    /// which acknowledges all packets.
    fn probe(&mut self) -> Outcome {
        let next = self.next;
        self.next = next.wrapping_sub(1);
        self.send(flag::ACK, &[])?;
        self.wait_for(|header| header.acknowledgement == next)?;
        Ok(())
    }

    pub(crate) fn wait_for(&self, wanted: impl Fn(&EspHeader) -> bool) -> Result<EspHeader> {
        let of_ours = |frame: &[u8]| {
            EspHeader::of_frame(frame)
                .filter(|header| header.destination == self.ports[0] && frame[..6] == STRANGER)
        };
        let frame = self.wire.wait_for(patience(), |frame| {
            of_ours(frame).is_some_and(|h| wanted(&h))
        })?;
        of_ours(&frame).context("no ESP")
    }
}

fn old_peer(lab: &Lab) -> Outcome {
    // Version, largest payload and window: the options of a host that does not know records.
    let known = [1, 1, 1, 4, 2, 5, 0xd1, 5, 4, 0, 21, 0, 1];
    for (port, options) in [(711, &known[..]), (712, &[]), (713, &[9, 3, 0, 1, 0])] {
        let (peer, client) = Peer::answer(lab, port, options)?;
        peer.wait_for(|header| header.flags & flag::RST != 0)?;
        eventually("the end", || {
            Ok(client.poll(libc::POLLHUP, Duration::ZERO)? & libc::POLLHUP != 0)
        })?;
        failed_with(&client, libc::ECONNREFUSED)?;
    }
    let (_peer, client) = Peer::answer(lab, 714, OPTION)?;
    ensure!(client.poll(libc::POLLOUT, patience())? & libc::POLLOUT != 0);
    // The peer would not answer a FIN.
    client.set_linger(Some(0))?;
    Ok(())
}

fn broken(lab: &Lab) -> Outcome {
    const STARTS: u8 = flag::ACK | flag::TXS;
    const ENDS: u8 = flag::ACK | flag::TXF;
    const WHOLE: u8 = STARTS | ENDS;
    let ways: [&[(u8, &[u8])]; 5] = [
        &[(WHOLE, b"whole"), (STARTS, b"begun"), (STARTS, b"again")],
        &[(WHOLE, b"whole"), (STARTS, b"begun"), (WHOLE, b"another")],
        &[(WHOLE, b"whole"), (flag::ACK, b"of none")],
        &[(WHOLE, b"whole"), (ENDS, b"of none")],
        &[
            (WHOLE, b"whole"),
            (STARTS, b"begun"),
            (flag::FIN | flag::ACK, b""),
        ],
    ];
    for (port, packets) in (715..).zip(ways) {
        let (mut peer, client) = Peer::answer(lab, port, OPTION)?;
        for (flags, payload) in packets {
            peer.send(*flags, payload)?;
        }
        peer.wait_for(|header| header.flags & flag::RST != 0)?;
        let mut room = [0; 100];
        let got = client.receive(&mut room, 0).context("the whole record")?;
        ensure!(room[..got] == *b"whole", "{got} bytes");
        refused(client.receive(&mut room, 0), libc::ECONNRESET, "then")?;
    }
    Ok(())
}

/// The memory of a record is bounded, even if each of its packets has a single byte.
fn endless(lab: &Lab) -> Outcome {
    let (mut peer, client) = Peer::answer(lab, 720, OPTION)?;
    ensure!(client.poll(libc::POLLOUT, patience())? & libc::POLLOUT != 0);
    let limit = client.so(libc::SO_RCVBUF)?;
    let mut most = 0;
    peer.send(flag::ACK | flag::TXS, b"x")?;
    for n in 0..20_000_u32 {
        peer.send(flag::ACK, b"x")?;
        if n % 100 == 0 {
            peer.probe()?;
            most = most.max(client.meminfo()?[RMEM_ALLOC]);
        }
    }
    client.set_nonblocking(true)?;
    refused(client.receive(&mut [0; 10], 0), libc::EAGAIN, "receive")?;
    ensure!(
        i64::from(most) <= 4 * i64::from(limit),
        "{most} bytes of memory"
    );
    ensure!(most < 1_000_000, "{most} bytes of memory for 20,000 bytes");
    Ok(())
}

/// Fills the backlog of a listener of `b` with half-open connections, so that it answers the next
/// SYN with a cookie. `option` is the option of records that the listener agrees with.
pub(crate) fn fill_backlog(lab: &Lab, port: u16, option: &[u8]) -> Outcome {
    let wire = lab.a.packets(ETH_P_ESP)?;
    for source in 3_000..3_050 {
        let header = EspHeader {
            source,
            destination: port,
            length: option.len() as u16,
            sequence: source,
            acknowledgement: 0,
            flags: flag::SYN,
        };
        let frame = ethernet(lab.b.mac, STRANGER, ETH_P_ESP, &header.packet(option));
        wire.send(&frame)?;
    }
    Ok(())
}

fn cookies(lab: &Lab) -> Outcome {
    let listener = listener(&lab.b, 721, 0)?;
    fill_backlog(lab, 721, OPTION)?;
    let client = socket(&lab.a)?;
    client.connect(&lab.a.to(&lab.b, 721)).context("connect")?;
    let record = random(60_000, 9);
    client.send(&record, 0).context("send")?;
    let (server, _) = listener.accept(0).context("accept")?;
    receive_all(&server, &[record])?;
    ensure!(lab.b.counter("EspOutCookies")? > 0, "no cookie left");
    Ok(())
}

fn shown(lab: &Lab) -> Outcome {
    let _records = pair(lab, 722)?;
    let _stream = lab.esp_pair(723)?;
    let text = lab.a.namespace.proc_net("esp")?;
    for (port, kind) in [(722, "records"), (723, "stream")] {
        let line = text
            .lines()
            .find(|line| line.contains(&format!(":{port} ")));
        let line = line.with_context(|| format!("no line with {port}: {text}"))?;
        ensure!(line.ends_with(kind), "{line}");
    }
    Ok(())
}

fn example(lab: &Lab) -> Outcome {
    let mut command = Command::new("esp_records");
    command.args(["serve", "*:724"]);
    let mut serving = start((&lab.b, command), Stdio::null(), Stdio::null())?;
    let said = wait_for_word(&mut serving, "listening")?;
    let there = format!("{}%{DEVICE}:724", print_mac(lab.b.mac));
    let long = "x".repeat(5_000);
    let mut command = Command::new("esp_records");
    command.args(["ask", &there, "one", "and two", &long]);
    let output = lab
        .a
        .namespace
        .within(|| command.output())?
        .context("esp_records")?;
    serving.kill()?;
    serving.wait()?;
    let _ = said.join().map_err(|_| anyhow!("the listener panicked"))?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {words}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut expected = String::new();
    for question in ["one", "and two", &long] {
        expected += &format!("{} bytes: {question}\n", question.len());
    }
    ensure!(text == expected, "{text:?}");
    Ok(())
}
