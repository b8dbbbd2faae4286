// SPDX-License-Identifier: GPL-2.0-only

//! Tests frames that no honest station sends. The module counts and drops them, and they do not
//! affect other sockets.

use fastrand::Rng;

use guest::frame::edp;
use guest::prelude::*;

scenarios! {
    direct hostile_edp_frames_are_counted_and_dropped = edp_frames;
    direct hostile_esp_frames_are_dropped = esp_frames;
    direct hostile_frames_to_other_hosts_are_dropped = to_others;
    direct hostile_sources_get_no_answer = no_answer;
    direct hostile_resets_outside_the_window_do_not_count = wild_resets;
    direct hostile_syn_flood_does_not_stop_other_listeners = syn_flood;
    direct hostile_10000_random_frames = random_frames, within(120);
}

/// The address of a station without the module.
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x66];

fn edp_frames(lab: &Lab) -> Outcome {
    let socket = lab.a.edp_bound(95)?;
    let wire = lab.b.packets(ETH_P_EDP)?;
    let send = |packet: &[u8]| wire.send(&ethernet(lab.a.mac, lab.b.mac, ETH_P_EDP, packet));
    // Send frames that are shorter than a header.
    for length in 1..6 {
        send(&edp(1, 95, 0, &[])[..length])?;
    }
    // Send frames whose length field exceeds the payload.
    for (announced, there) in [(1, 0), (100, 99), (0xffff, 40), (1494, 1493)] {
        send(&edp(1, 95, announced, &vec![0x55; there]))?;
    }
    // Send a packet to a port without a socket.
    send(&edp(1, 96, 2, b"??"))?;
    // Padding after the announced number of bytes is valid.
    send(&edp(1, 95, 5, b"valid and padded"))?;
    receives(&socket, b"valid")?;
    silent(&socket, "a hostile frame")?;
    let stats = socket.edp_counters()?;
    ensure!(stats.pkt_rx == 1, "{stats:?}");
    lab.a.await_counter("EdpInMalformed", 5 + 4)?;
    lab.a.await_counter("EdpInNoSocket", 1)
}

/// Returns a connection, and the packet socket that attacks it.
fn victim(lab: &Lab) -> Result<(Socket, Socket, PacketSocket)> {
    // A retransmitted packet would show sequence numbers that are no longer current.
    lab.calm()?;
    let (client, server) = lab.esp_pair(910)?;
    exchange(&client, &server)?;
    Ok((client, server, lab.a.packets(ETH_P_ESP)?))
}

/// Exchanges messages that `wire` captures. Returns the header of the packet that the client would
/// send next.
fn next_packet(client: &Socket, server: &Socket, wire: &PacketSocket) -> Result<EspHeader> {
    for (from, to) in [(client, server), (server, client)] {
        from.send_all(b"listen")?;
        to.receive_exact(&mut [0; 6])?;
    }
    let seen = wire.wait_for_esp(|header| header.source == 910 && header.length == 6)?;
    Ok(EspHeader {
        source: seen.destination,
        destination: seen.source,
        length: 0,
        // The server's acknowledgement number is the client's next sequence number.
        sequence: seen.acknowledgement,
        acknowledgement: seen.sequence.wrapping_add(1),
        flags: flag::ACK,
    })
}

/// Returns packets that are cut short within the header, and packets with less payload than they
/// announce.
fn malformed(next: EspHeader) -> Vec<Vec<u8>> {
    let whole = next.packet(&[]);
    let cut = (1..whole.len()).map(|length| whole[..length].to_vec());
    let lies = [(1, 0), (100, 99), (0xffff, 40), (1489, 1488)].map(|(length, there)| {
        let flags = flag::ACK | flag::TXS | flag::TXF;
        let lie = EspHeader {
            length,
            flags,
            ..next
        };
        lie.packet(&vec![0x55; there])
    });
    cut.chain(lies).collect()
}

/// Returns data packets whose numbers are much higher or much lower than the expected one, and
/// acknowledgements of packets that were never sent.
fn out_of_reach(next: EspHeader) -> Vec<Vec<u8>> {
    let packets = [0x1000, 0x4000, 0x8000, 0xf000].map(|distance| {
        let data = EspHeader {
            sequence: next.sequence.wrapping_add(distance),
            length: 4,
            flags: flag::ACK | flag::TXS | flag::TXF,
            ..next
        };
        let acknowledgement = EspHeader {
            acknowledgement: next.acknowledgement.wrapping_add(distance),
            ..next
        };
        [data.packet(b"far!"), acknowledgement.packet(&[])]
    });
    packets.concat()
}

/// Returns a packet for each combination of flags that contains SYN and is no reset. An open
/// connection has no such packets.
fn with_impossible_flags(next: EspHeader) -> Vec<Vec<u8>> {
    let sequence = next.sequence.wrapping_add(0x2000);
    (0..=u8::MAX)
        .filter(|flags| flags & flag::SYN != 0 && flags & flag::RST == 0)
        .map(|flags| {
            EspHeader {
                flags,
                sequence,
                ..next
            }
            .packet(&[])
        })
        .collect()
}

fn esp_frames(lab: &Lab) -> Outcome {
    let (client, server, wire) = victim(lab)?;
    let next = next_packet(&client, &server, &wire)?;
    for packet in [
        malformed(next),
        out_of_reach(next),
        with_impossible_flags(next),
    ]
    .concat()
    {
        wire.send(&ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, &packet))?;
    }
    exchange(&client, &server).context("the connection after all of this")?;
    lab.b.await_counter("EspInMalformed", 10 + 4)?;
    let stats = server.esp_counters()?;
    ensure!(
        stats.pkt_rx_drop > 0,
        "no dropped packet was counted: {stats:?}"
    );
    Ok(())
}

fn to_others(lab: &Lab) -> Outcome {
    lab.a.link("promisc on")?;
    let socket = lab.a.edp_bound(97)?;
    let listener = lab.a.esp_listener(97, 4)?;
    let edp_wire = lab.b.packets(ETH_P_EDP)?;
    let esp_wire = lab.b.packets(ETH_P_ESP)?;
    let others = [STRANGER, [2, 0, 0, 0, 0, 2], [0, 0, 0, 0, 0, 0]];
    let syn = EspHeader::new(9, 97, flag::SYN);
    for other in others {
        edp_wire.send_edp(other, lab.b.mac, &edp(9, 97, 5, b"other"))?;
        edp_wire.send_edp(other, lab.b.mac, &edp(9, 0, 2, &[1, 2]))?;
        esp_wire.send_esp(other, lab.b.mac, syn)?;
        let stray = EspHeader {
            destination: 98,
            flags: flag::ACK,
            ..syn
        };
        esp_wire.send_esp(other, lab.b.mac, stray)?;
    }
    // Frames to the host itself follow, so their answers would come after any answer to the frames
    // above.
    edp_wire.send_edp(lab.a.mac, lab.b.mac, &edp(9, 97, 4, b"ours"))?;
    receives(&socket, b"ours")?;
    edp_wire.echo_comes_first(lab.a.mac, lab.b.mac, 10)?;
    refused(listener_accept(&listener), libc::EAGAIN, "others' accept")?;
    esp_wire.reset_comes_first(lab.a.mac, lab.b.mac, 99)?;
    lab.a.await_counter("EdpInNotOurs", 6)?;
    lab.a.await_counter("EspInNotOurs", 6)
}

fn listener_accept(listener: &Socket) -> std::io::Result<Vec<u8>> {
    listener.set_nonblocking(true)?;
    listener.accept(0).map(|(_, from)| from)
}

/// Returns headers of packets to a listener's port 920 and to port 921, where there is no socket.
fn headers(flags: &[u8]) -> impl Iterator<Item = EspHeader> + '_ {
    let to = |port| {
        flags
            .iter()
            .map(move |flags| EspHeader::new(12, port, *flags))
    };
    to(920).chain(to(921))
}

fn no_answer(lab: &Lab) -> Outcome {
    const EVERYBODY: [u8; 6] = [0xff; 6];
    const GROUP: [u8; 6] = [0x01, 0, 0x5e, 0, 0, 1];
    let wire = lab.b.packets(ETH_P_ESP)?;
    let edp_wire = lab.b.packets(ETH_P_EDP)?;
    let listener = lab.a.esp_listener(920, 4)?;
    // Group addresses, which no station can have.
    for source in [GROUP, EVERYBODY, [0x33, 0x33, 0, 0, 0, 1]] {
        for header in headers(&[flag::SYN, flag::ACK, !flag::RST, flag::FIN | flag::ACK]) {
            wire.send_esp(lab.a.mac, source, header)?;
        }
        edp_wire.send_edp(lab.a.mac, source, &edp(12, 0, 2, &[1, 2]))?;
    }
    // Resets without a connection: none is answered with a reset.
    for header in headers(&[flag::RST, flag::RST | flag::ACK, 0xff]) {
        wire.send_esp(lab.a.mac, lab.b.mac, header)?;
    }
    // SYNs to group addresses cause neither a connection nor a reset.
    for destination in [EVERYBODY, GROUP] {
        for header in headers(&[flag::SYN]) {
            wire.send_esp(destination, lab.b.mac, header)?;
        }
    }
    wire.reset_comes_first(lab.a.mac, lab.b.mac, 922)?;
    refused(listener_accept(&listener), libc::EAGAIN, "from nowhere")?;
    edp_wire.echo_comes_first(lab.a.mac, lab.b.mac, 14)
}

fn wild_resets(lab: &Lab) -> Outcome {
    let (client, server, wire) = victim(lab)?;
    let next = next_packet(&client, &server, &wire)?;
    // Sends a reset. Its number is the number that the server expects, plus `distance`. Each end
    // has sent `sent` packets since `next` was read.
    let reset = |sent: u16, distance: u16| {
        let reset = EspHeader {
            sequence: next.sequence.wrapping_add(sent).wrapping_add(distance),
            acknowledgement: next.acknowledgement.wrapping_add(sent),
            flags: flag::RST | flag::ACK,
            ..next
        };
        wire.send_esp(lab.b.mac, lab.a.mac, reset)
    };
    // Send resets at all distances, except near the number that the server expects next.
    for distance in (0x0400..=0xfc00).step_by(0x100) {
        reset(0, distance)?;
    }
    exchange(&client, &server).context("the connection after resets outside its window")?;
    // Send resets within the window. The server answers them with one challenge ACK, which the
    // client does not answer. The server may also send acknowledgements that it has delayed.
    let before = server.esp_counters()?.pkt_tx;
    for distance in 1..=40 {
        reset(1, distance)?;
    }
    let more = server.esp_counters()?.pkt_tx - before;
    ensure!(more < 5, "40 resets caused {more} packets");
    exchange(&client, &server).context("the connection after resets within its window")?;
    reset(2, 0)?;
    refused(server.receive(&mut [0; 4], 0), libc::ECONNRESET, "recv")
}

fn syn_flood(lab: &Lab) -> Outcome {
    let flooded = lab.b.esp_listener(930, 8)?;
    let other = lab.b.esp_listener(931, 8)?;
    let wire = lab.a.packets(ETH_P_ESP)?;
    for number in 0..5000u16 {
        let [high, low] = number.to_be_bytes();
        let syn = EspHeader {
            sequence: number,
            ..EspHeader::new(1 + number, 930, flag::SYN)
        };
        let source = [2, 0, 0, 1, high, low];
        wire.send_esp(lab.b.mac, source, syn)?;
    }
    let listed = lab.b.namespace.proc_net("esp")?.lines().count();
    ensure!(
        listed < 50,
        "{listed} sockets came of a flood on a backlog of 8"
    );
    let (client, server) = lab.esp_pair_through(&other, 931)?;
    exchange(&client, &server)?;
    refused(listener_accept(&flooded), libc::EAGAIN, "half-open")
}

/// Writes ports into a random packet. If `header` gives the length of the header, also writes the
/// true length of the payload.
fn aim(packet: &mut [u8], source: u16, destination: u16, header: Option<usize>) {
    let length = header.map(|header| packet.len().saturating_sub(header) as u16);
    let fields = [Some(source), Some(destination), length];
    for (room, field) in packet.chunks_exact_mut(2).zip(fields.iter().flatten()) {
        room.copy_from_slice(&field.to_be_bytes());
    }
}

/// Sends 10,000 random frames of each protocol from a stranger to host `b`, while `client` and
/// `server` exchange messages. Frames that carry the peer's address are left out, because to the
/// module they would be the peer's own packets.
fn random_frames_of_a_stranger(
    lab: &Lab,
    wire: &PacketSocket,
    (client, server): &(Socket, Socket),
    rng: &mut Rng,
) -> Outcome {
    let port = client.local_address()?.port;
    for number in 0..10_000 {
        for (ethertype, targets, header) in
            [(ETH_P_EDP, [942, 943], 6), (ETH_P_ESP, [940, 941], 11)]
        {
            let mut packet = random(rng.usize(1..200), rng.u64(..));
            // Every second frame is aimed at a socket, and every fourth frame has a true length as
            // well.
            if number % 2 == 0 && packet.len() >= 6 {
                let header = (number % 4 == 0).then_some(header);
                aim(&mut packet, port, targets[rng.usize(..2)], header);
            }
            wire.send(&ethernet(lab.b.mac, STRANGER, ethertype, &packet))?;
        }
        if number % 1000 == 0 {
            exchange(client, server).with_context(|| format!("after {number} frames"))?;
        }
    }
    exchange(client, server).context("after 10,000 frames")?;
    for protocol in ["Edp", "Esp"] {
        let mut total = 0;
        for reason in ["NotOurs", "Malformed", "NoSocket"] {
            total += lab.b.counter(&format!("{protocol}In{reason}"))?;
        }
        // The half of the frames that was not aimed at a socket is refused, and so are some of the
        // aimed frames.
        ensure!(
            total > 5000,
            "only {total} of 10,000 {protocol} frames were refused"
        );
    }
    Ok(())
}

fn random_frames(lab: &Lab) -> Outcome {
    let pair = lab.esp_pair(940)?;
    let listener = lab.b.esp_listener(941, 8)?;
    let (a, b) = lab.edp_pair(942)?;
    let open = lab.b.edp_bound(943)?;
    open.set_so(libc::SO_RCVBUF, 1 << 16)?;
    let wire = lab.a.packets(ETH_P_ESP)?;
    let mut rng = Rng::with_seed(10_000);
    random_frames_of_a_stranger(lab, &wire, &pair, &mut rng)?;
    a.send(b"alive", 0)?;
    receives(&b, b"alive").context("at a connected socket")?;
    let stats = open.edp_counters()?;
    ensure!(
        stats.pkt_rx > 0,
        "not even honest frames reached the open socket: {stats:?}"
    );
    drop(listener);
    // Frames with the client's address may do anything to this connection, but must not affect
    // other connections.
    let port = pair.0.local_address()?.port;
    for _ in 0..2000 {
        let mut packet = random(rng.usize(11..100), rng.u64(..));
        aim(&mut packet, port, 940, Some(11));
        wire.send(&ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, &packet))?;
    }
    drop(pair);
    eventually("a new connection", || {
        let (client, server) = lab.esp_pair(944)?;
        exchange(&client, &server)?;
        Ok(true)
    })
}
