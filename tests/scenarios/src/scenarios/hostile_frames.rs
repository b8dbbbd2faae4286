//! Frames that no honest station sends. They are counted and dropped; nobody else notices.

use fastrand::Rng;

use crate::frame::edp;
use crate::prelude::*;

scenarios! {
    direct hostile_edp_frames_are_counted_and_dropped = edp_frames;
    direct hostile_esp_frames_are_dropped = esp_frames;
    direct hostile_frames_to_other_hosts_are_dropped = to_others;
    direct hostile_sources_get_no_answer = no_answer;
    direct hostile_resets_outside_the_window_do_not_count = wild_resets;
    direct hostile_syn_flood_does_not_stop_other_listeners = syn_flood;
    direct hostile_10000_random_frames = random_frames, within(120);
}

/// A station that takes part without any socket of the module.
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x66];

fn edp_frames(lab: &Lab) -> Outcome {
    let socket = lab.a.edp_bound(95)?;
    let wire = lab.b.packets(ETH_P_EDP)?;
    let send = |packet: &[u8]| wire.send(&ethernet(lab.a.mac, lab.b.mac, ETH_P_EDP, packet));
    // Cut short: not even a header.
    for length in 1..6 {
        send(&edp(1, 95, 0, &[])[..length])?;
    }
    // Lying about its length: more is announced than is there.
    for (announced, there) in [(1, 0), (100, 99), (0xffff, 40), (1494, 1493)] {
        send(&edp(1, 95, announced, &vec![0x55; there]))?;
    }
    // To a port that nobody holds.
    send(&edp(1, 96, 2, b"??"))?;
    // Padding is no lie.
    send(&edp(1, 95, 5, b"valid and padded"))?;
    receives(&socket, b"valid")?;
    silent(&socket, "a hostile frame")?;
    let stats = socket.edp_counters()?;
    ensure!(stats.pkt_rx == 1, "{stats:?}");
    lab.a.await_counter("EdpInMalformed", 5 + 4)?;
    lab.a.await_counter("EdpInNoSocket", 1)
}

/// A connection to be left alone, and the station that will not.
fn victim(lab: &Lab) -> Result<(Socket, Socket, PacketSocket)> {
    let (client, server) = lab.esp_pair(910)?;
    exchange(&client, &server)?;
    Ok((client, server, lab.a.packets(ETH_P_ESP)?))
}

/// The next header that passes `wire`, while `client` and `server` talk.
fn overheard(client: &Socket, server: &Socket, wire: &PacketSocket) -> Result<EspHeader> {
    client.send_all(b"listen")?;
    server.receive_exact(&mut [0; 6])?;
    server.send_all(b"listen")?;
    client.receive_exact(&mut [0; 6])?;
    let frame = wire.wait_for(patience(), |frame| {
        EspHeader::of_frame(frame).is_some_and(|header| header.source == 910 && header.length == 6)
    })?;
    EspHeader::of_frame(&frame).context("a frame without header")
}

fn esp_frames(lab: &Lab) -> Outcome {
    let (client, server, wire) = victim(lab)?;
    let seen = overheard(&client, &server, &wire)?;
    // What the client would send next; the server's numbers are those it acknowledged.
    let next = EspHeader {
        source: seen.destination,
        destination: seen.source,
        length: 0,
        sequence: seen.acknowledgement,
        acknowledgement: seen.sequence.wrapping_add(1),
        flags: flag::ACK,
    };
    let send = |packet: &[u8]| wire.send(&ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, packet));
    let whole = next.packet(&[]);
    for length in 1..whole.len() {
        send(&whole[..length])?;
    }
    for (announced, there) in [(1, 0), (100, 99), (0xffff, 40), (1489, 1488)] {
        let lie = EspHeader {
            length: announced,
            flags: flag::ACK | flag::TXS | flag::TXF,
            ..next
        };
        send(&lie.packet(&vec![0x55; there]))?;
    }
    // A far future and a far past, with data in them; an ACK of what was never sent.
    for distance in [0x1000, 0x4000, 0x8000, 0xf000] {
        let sequence = next.sequence.wrapping_add(distance);
        let far = EspHeader {
            sequence,
            length: 4,
            flags: flag::ACK | flag::TXS | flag::TXF,
            ..next
        };
        send(&far.packet(b"far!"))?;
        let acknowledgement = next.acknowledgement.wrapping_add(distance);
        let packet = EspHeader {
            acknowledgement,
            ..next
        }
        .packet(&[]);
        send(&packet)?;
    }
    // Every combination of flags that cannot belong here: all of them contain SYN, none is a reset.
    for flags in 0..=u8::MAX {
        if flags & flag::SYN != 0 && flags & flag::RST == 0 {
            let sequence = next.sequence.wrapping_add(0x2000);
            let packet = EspHeader {
                flags,
                sequence,
                ..next
            }
            .packet(&[]);
            send(&packet)?;
        }
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
    lab.a.namespace.ip("link set eth0 promisc on\n")?;
    let socket = lab.a.edp_bound(97)?;
    let listener = lab.a.esp_listener(97, 4)?;
    let edp_wire = lab.b.packets(ETH_P_EDP)?;
    let esp_wire = lab.b.packets(ETH_P_ESP)?;
    let others = [STRANGER, [2, 0, 0, 0, 0, 2], [0, 0, 0, 0, 0, 0]];
    let syn = EspHeader {
        source: 9,
        destination: 97,
        flags: flag::SYN,
        ..EspHeader::default()
    };
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
    // What belongs to us comes after all of that, and so does its answer.
    edp_wire.send_edp(lab.a.mac, lab.b.mac, &edp(9, 97, 4, b"ours"))?;
    receives(&socket, b"ours")?;
    edp_wire.send_edp(lab.a.mac, lab.b.mac, &edp(10, 0, 2, &[1, 77]))?;
    let reply = edp_wire.wait_for(patience(), |_| true)?;
    same(&reply[14..22], edp(0, 10, 2, &[2, 77]), "answered")?;
    refused(listener_accept(&listener), libc::EAGAIN, "others' accept")?;
    let probe = EspHeader {
        source: 11,
        destination: 99,
        flags: flag::SYN,
        ..EspHeader::default()
    };
    esp_wire.send_esp(lab.a.mac, lab.b.mac, probe)?;
    let reply = esp_wire.wait_for(patience(), |_| true)?;
    let header = EspHeader::of_frame(&reply).context("no ESP header")?;
    ensure!(
        header.destination == 11 && header.flags & flag::RST != 0,
        "answered: {header:?}"
    );
    lab.a.await_counter("EdpInNotOurs", 6)?;
    lab.a.await_counter("EspInNotOurs", 6)
}

fn listener_accept(listener: &Socket) -> std::io::Result<Vec<u8>> {
    listener.set_nonblocking(true)?;
    listener.accept(0).map(|(_, from)| from)
}

fn no_answer(lab: &Lab) -> Outcome {
    let wire = lab.b.packets(ETH_P_ESP)?;
    let edp_wire = lab.b.packets(ETH_P_EDP)?;
    let listener = lab.a.esp_listener(920, 4)?;
    let header = EspHeader {
        source: 12,
        destination: 920,
        ..EspHeader::default()
    };
    // Sources that cannot be stations; and a reset, which is never answered, to nobody.
    for source in [
        [0x01, 0, 0x5e, 0, 0, 1],
        [0xff; 6],
        [0x33, 0x33, 0, 0, 0, 1],
    ] {
        for destination in [920, 921] {
            for flags in [flag::SYN, flag::ACK, !flag::RST, flag::FIN | flag::ACK] {
                let header = EspHeader {
                    flags,
                    destination,
                    ..header
                };
                wire.send_esp(lab.a.mac, source, header)?;
            }
        }
        edp_wire.send_edp(lab.a.mac, source, &edp(12, 0, 2, &[1, 2]))?;
    }
    for flags in [flag::RST, flag::RST | flag::ACK, 0xff] {
        let header = EspHeader {
            flags,
            destination: 921,
            ..header
        };
        wire.send_esp(lab.a.mac, lab.b.mac, header)?;
    }
    // To everybody: neither a connection nor a reset can come of it.
    for destination in [[0xff; 6], [0x01, 0, 0x5e, 0, 0, 1]] {
        for port in [920, 921] {
            let header = EspHeader {
                flags: flag::SYN,
                destination: port,
                ..header
            };
            wire.send_esp(destination, lab.b.mac, header)?;
        }
    }
    // Any answer would have come before this one's.
    let probe = EspHeader {
        source: 13,
        destination: 922,
        flags: flag::SYN,
        ..header
    };
    wire.send_esp(lab.a.mac, lab.b.mac, probe)?;
    let reply = wire.wait_for(patience(), |_| true)?;
    let answer = EspHeader::of_frame(&reply).context("no ESP header")?;
    ensure!(
        answer.destination == 13 && answer.flags & flag::RST != 0,
        "answered: {answer:?} to {:02x?}",
        &reply[..6]
    );
    refused(listener_accept(&listener), libc::EAGAIN, "from nowhere")?;
    edp_wire.send_edp(lab.a.mac, lab.b.mac, &edp(14, 0, 1, &[1]))?;
    let reply = edp_wire.wait_for(patience(), |_| true)?;
    same(&reply[14..20], edp(0, 14, 1, &[]), "answered")
}

fn wild_resets(lab: &Lab) -> Outcome {
    let (client, server, wire) = victim(lab)?;
    let seen = overheard(&client, &server, &wire)?;
    let expected = seen.acknowledgement;
    // All but the neighbourhood of what the server expects next.
    for distance in (0x0400..=0xfc00u16).step_by(0x100) {
        let reset = EspHeader {
            source: seen.destination,
            destination: seen.source,
            length: 0,
            sequence: expected.wrapping_add(distance),
            acknowledgement: seen.sequence.wrapping_add(1),
            flags: flag::RST | flag::ACK,
        };
        wire.send_esp(lab.b.mac, lab.a.mac, reset)?;
    }
    exchange(&client, &server).context("the connection after resets outside its window")?;
    let reset = EspHeader {
        source: seen.destination,
        destination: seen.source,
        length: 0,
        // One packet has been sent since, by exchange.
        sequence: expected.wrapping_add(1),
        acknowledgement: seen.sequence.wrapping_add(1),
        flags: flag::RST | flag::ACK,
    };
    wire.send_esp(lab.b.mac, lab.a.mac, reset)?;
    refused(server.receive(&mut [0; 4], 0), libc::ECONNRESET, "recv")
}

fn syn_flood(lab: &Lab) -> Outcome {
    let flooded = lab.b.esp_listener(930, 8)?;
    let other = lab.b.esp_listener(931, 8)?;
    let wire = lab.a.packets(ETH_P_ESP)?;
    for number in 0..5000u16 {
        let [high, low] = number.to_be_bytes();
        let syn = EspHeader {
            source: 1 + number,
            destination: 930,
            sequence: number,
            flags: flag::SYN,
            ..EspHeader::default()
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

fn random_frames(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(940)?;
    let listener = lab.b.esp_listener(941, 8)?;
    let (a, b) = lab.edp_pair(942)?;
    let open = lab.b.edp_bound(943)?;
    open.set_so(libc::SO_RCVBUF, 1 << 16)?;
    let client_port = client.local_address()?.port;
    let wire = lab.a.packets(ETH_P_ESP)?;
    let mut rng = Rng::with_seed(10_000);
    for number in 0..10_000 {
        for ethertype in [ETH_P_EDP, ETH_P_ESP] {
            let mut payload = random(rng.usize(1..200), rng.u64(..));
            // Every second frame is aimed at a socket, every fourth has a true length as well.
            if number % 2 == 0 && payload.len() >= 6 {
                let target = match ethertype {
                    ETH_P_EDP => [942u16, 943][rng.usize(..2)],
                    _ => [940, 941][rng.usize(..2)],
                };
                payload[..2].copy_from_slice(&client_port.to_be_bytes());
                payload[2..4].copy_from_slice(&target.to_be_bytes());
                if number % 4 == 0 {
                    let header = if ethertype == ETH_P_EDP { 6 } else { 11 };
                    let length = payload.len().saturating_sub(header) as u16;
                    payload[4..6].copy_from_slice(&length.to_be_bytes());
                }
            }
            // From a stranger: with the peer's own address this would be forgery, which nothing here can tell.
            wire.send(&ethernet(lab.b.mac, STRANGER, ethertype, &payload))?;
        }
        if number % 1000 == 0 {
            exchange(&client, &server).with_context(|| format!("after {number} frames"))?;
        }
    }
    exchange(&client, &server).context("after 10,000 frames")?;
    for protocol in ["Edp", "Esp"] {
        let mut total = 0;
        for reason in ["NotOurs", "Malformed", "NoSocket"] {
            total += lab.b.counter(&format!("{protocol}In{reason}"))?;
        }
        // Half of them were not even aimed at a socket.
        ensure!(
            total > 5000,
            "only {total} of 10,000 {protocol} frames were refused"
        );
    }
    a.send(b"alive", 0)?;
    receives(&b, b"alive").context("at a connected socket")?;
    let stats = open.edp_counters()?;
    ensure!(
        stats.pkt_rx > 0,
        "not even honest frames reached the open socket: {stats:?}"
    );
    drop(listener);
    // With the true addresses anything may happen to this connection, but to nothing else.
    for _ in 0..2000 {
        let mut payload = random(rng.usize(11..100), rng.u64(..));
        payload[..2].copy_from_slice(&client_port.to_be_bytes());
        payload[2..4].copy_from_slice(&940u16.to_be_bytes());
        let length = payload.len() as u16 - 11;
        payload[4..6].copy_from_slice(&length.to_be_bytes());
        wire.send(&ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, &payload))?;
    }
    drop((client, server));
    eventually("a new connection", || {
        let (client, server) = lab.esp_pair(944)?;
        exchange(&client, &server)?;
        Ok(true)
    })
}
