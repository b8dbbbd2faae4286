// SPDX-License-Identifier: GPL-2.0-only

//! Tests SYN cookies: floods of SYNs, and clients that are slow to send their first data.

use guest::prelude::*;
use guest::station;

scenarios! {
    direct esp_slow_clients_survive_a_flood_of_syns = slow_clients;
    direct esp_cookies_are_of_one_client = made_up;
    direct esp_cookies_end_with_the_accept_queues_room = no_room;
    direct esp_copy_of_a_finished_connections_first_packet_opens_none = late_copy;
    direct esp_copy_of_a_first_packet_from_before_the_flood_opens_none = copy_from_before;
    direct esp_copies_of_a_syn_and_a_first_packet_open_none = two_copies;
    direct esp_client_that_lost_the_last_acknowledgement_ends_during_cookies = lost_end;
    direct esp_cookies_go_to_clients_that_tell_what_they_take = untold;
}

const PORT: u16 = 570;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x66];
const BACKLOG: i32 = 4;
/// Options of a SYN: the version, the largest payload, the window, and the capability to take skips
/// (packets that advance the expected sequence number).
const OPTIONS: [u8; 17] = [1, 1, 1, 4, 2, 0x05, 0xd1, 5, 4, 0, 21, 0, 1, 10, 2, 0, 1];

/// A client that has no module, and writes its own frames.
struct Client<'a> {
    lab: &'a Lab,
    wire: PacketSocket,
    port: u16,
    /// The sequence number of the client's SYN.
    isn: u16,
    /// The sequence number of the SYN|ACK.
    answer: u16,
}

impl<'a> Client<'a> {
    /// Returns a client that has sent nothing.
    fn new(lab: &'a Lab, port: u16) -> Result<Self> {
        Ok(Self {
            lab,
            wire: lab.b.packets(ETH_P_ESP)?,
            port,
            isn: port.wrapping_mul(77),
            answer: 0,
        })
    }

    /// Sends a SYN and waits for the answer.
    fn connect(lab: &'a Lab, port: u16) -> Result<Self> {
        let mut client = Self::new(lab, port)?;
        client.send(flag::SYN, client.isn, 0, &OPTIONS)?;
        let answer = client.wait_for(|header| header.flags == flag::SYN | flag::ACK)?;
        ensure!(
            answer.acknowledgement == client.isn.wrapping_add(1),
            "{answer:?}"
        );
        client.answer = answer.sequence;
        Ok(client)
    }

    fn send(&self, flags: u8, sequence: u16, acknowledgement: u16, payload: &[u8]) -> Outcome {
        let header = EspHeader {
            source: self.port,
            destination: PORT,
            length: payload.len() as u16,
            sequence,
            acknowledgement,
            flags,
        };
        let frame = ethernet(self.lab.a.mac, MAC, ETH_P_ESP, &header.packet(payload));
        self.wire.send(&frame).context("a client's frame")
    }

    /// Sends the first data.
    fn send_data(&self, payload: &[u8]) -> Outcome {
        self.send(
            flag::ACK | flag::TXS | flag::TXF,
            self.isn.wrapping_add(1),
            self.answer.wrapping_add(1),
            payload,
        )
    }

    fn header_of(&self, frame: &[u8]) -> Option<EspHeader> {
        EspHeader::of_frame(frame)
            .filter(|header| frame[..6] == MAC && header.destination == self.port)
    }

    fn is_reset(&self, frame: &[u8]) -> bool {
        self.header_of(frame)
            .is_some_and(|header| header.flags & flag::RST != 0)
    }

    fn wait_for(&self, wanted: impl Fn(&EspHeader) -> bool) -> Result<EspHeader> {
        let frame = self.wire.wait_for(patience(), |frame| {
            self.header_of(frame).is_some_and(|header| wanted(&header))
        })?;
        self.header_of(&frame).context("a frame without header")
    }
}

/// Sends SYNs in the names of hosts that do not exist: more than the backlog holds, and as many
/// again after 50 ms.
fn flood(lab: &Lab) -> Outcome {
    let wire = lab.b.packets(ETH_P_ESP)?;
    for round in 0..2 {
        for number in 0..100u8 {
            let syn = EspHeader {
                sequence: u16::from(number) << round,
                length: OPTIONS.len() as u16,
                ..EspHeader::new(1 + u16::from(number), PORT, flag::SYN)
            };
            let source = [2, 0, 0, 1, round, number];
            let frame = ethernet(lab.a.mac, source, ETH_P_ESP, &syn.packet(&OPTIONS));
            wire.send(&frame)?;
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Sends SYNs from a station to `port` of `victim` until the victim sends a cookie. The station
/// leaves every SYN|ACK unanswered, so half-open connections fill the listener's backlog first.
///
/// # Errors
/// When the victim sends no cookie, or a frame cannot be sent.
pub fn await_cookies(victim: &Host, wire: &PacketSocket, port: u16) -> Outcome {
    let mut source = 3100;
    while victim.counter("EspOutCookies")? == 0 {
        let syn = EspHeader::syn(source, port, &OPTIONS);
        wire.send(&ethernet(
            victim.mac,
            station::MAC,
            ETH_P_ESP,
            &syn.packet(&OPTIONS),
        ))?;
        source += 1;
        ensure!(source < 9000, "no SYN was answered by a cookie");
    }
    Ok(())
}

fn receive(listener: &Socket, wanted: &[u8]) -> Result<Socket> {
    await_events(listener, libc::POLLIN).context("a connection")?;
    let (server, _) = listener.accept(0)?;
    // Closing must reset the connection, because the server's peer does not answer a FIN.
    server.set_linger(Some(0))?;
    comes_next(&server, wanted)?;
    Ok(server)
}

/// One client connects before the flood, and one during the flood. Both send their first data only
/// after a second flood.
fn slow_clients(lab: &Lab) -> Outcome {
    let listener = lab.a.esp_listener(PORT, BACKLOG)?;
    let early = Client::connect(lab, 1001)?;
    flood(lab)?;
    let late = Client::connect(lab, 1002).context("a client within the flood")?;
    ensure!(
        lab.a.counter("EspOutCookies")? > 0,
        "no SYN was answered by a cookie"
    );
    flood(lab)?;
    for (client, what) in [(&early, "before"), (&late, "within")] {
        client.send_data(what.as_bytes())?;
        let server = receive(&listener, what.as_bytes())
            .with_context(|| format!("a client that connected {what} the flood"))?;
        server.send_all(b"yes")?;
        let answer = client.wait_for(|header| header.length == 3)?;
        ensure!(
            answer.sequence == client.answer.wrapping_add(1)
                && answer.acknowledgement == client.isn.wrapping_add(2),
            "{answer:?}"
        );
    }
    ensure!(
        lab.a.counter("EspInCookies")? == 1,
        "one client of two had a cookie"
    );
    Ok(())
}

/// A packet with another client's cookie is answered with a reset, and opens no connection. If a
/// client's first packet is lost, its second packet is dropped without a reset, so that the
/// retransmitted first packet can still open the connection.
fn made_up(lab: &Lab) -> Outcome {
    let listener = lab.a.esp_listener(PORT, BACKLOG)?;
    listener.set_nonblocking(true)?;
    flood(lab)?;
    let client = Client::connect(lab, 1003)?;
    let other = Client {
        port: 1004,
        wire: lab.b.packets(ETH_P_ESP)?,
        ..client
    };
    other.send_data(b"made up")?;
    other.wait_for(|header| header.flags == flag::RST)?;
    // The client's second packet arrives without the first one.
    let (second, acknowledged) = (client.isn.wrapping_add(2), client.answer.wrapping_add(1));
    client.send(flag::ACK | flag::TXF, second, acknowledged, b"second")?;
    lab.a.await_counter("EspInNoSocket", 2)?;
    refused(listener.accept(0), libc::EAGAIN, "accept")?;
    ensure!(lab.a.counter("EspInCookies")? == 0, "a connection was made");
    client.send_data(b"first")?;
    let _server = receive(&listener, b"first")?;
    let reset = client
        .wire
        .wait_for(Duration::from_millis(100), |frame| client.is_reset(frame));
    ensure!(reset.is_err(), "a reset was sent");
    Ok(())
}

/// Opens a connection by a cookie, and closes it from both sides. Returns the client, which then
/// behaves as if the last acknowledgement had been lost.
fn ended<'a>(lab: &'a Lab, listener: &Socket, port: u16) -> Result<Client<'a>> {
    let cookies = lab.a.counter("EspInCookies")?;
    let client = ended_somehow(lab, listener, port)?;
    ensure!(lab.a.counter("EspInCookies")? == cookies + 1, "no cookie");
    Ok(client)
}

/// Returns a client whose connection has ended, whether or not it was made by a cookie.
fn ended_somehow<'a>(lab: &'a Lab, listener: &Socket, port: u16) -> Result<Client<'a>> {
    let client = Client::connect(lab, port)?;
    client.send_data(b"once")?;
    await_events(listener, libc::POLLIN).context("a connection")?;
    let (server, _) = listener.accept(0)?;
    comes_next(&server, b"once")?;
    drop(server);
    let end = client.wait_for(|header| header.flags == flag::FIN | flag::ACK)?;
    client.send(
        flag::FIN | flag::ACK,
        client.isn.wrapping_add(2),
        end.sequence.wrapping_add(1),
        &[],
    )?;
    client.wait_for(|header| header.acknowledgement == client.isn.wrapping_add(3))?;
    Ok(client)
}

/// A copy of a finished connection's first packet gets a reset, like any packet without a
/// connection, and its bytes are not delivered again.
fn late_copy(lab: &Lab) -> Outcome {
    let listener = lab.a.esp_listener(PORT, BACKLOG)?;
    listener.set_nonblocking(true)?;
    flood(lab)?;
    let client = ended(lab, &listener, 1005)?;
    let cookies = lab.a.counter("EspInCookies")?;
    client.send_data(b"once")?;
    client.wait_for(|header| header.flags == flag::RST)?;
    refused(listener.accept(0), libc::EAGAIN, "accept")?;
    ensure!(lab.a.counter("EspInCookies")? == cookies, "a ghost");
    // The next connection from that port has a different sequence number, and gets a cookie of its
    // own.
    let next = Client {
        isn: client.isn.wrapping_add(1000),
        ..Client::new(lab, 1005)?
    };
    next.send(flag::SYN, next.isn, 0, &OPTIONS)?;
    next.wait_for(|header| header.flags == flag::SYN | flag::ACK)?;
    Ok(())
}

/// The connection was not made by a cookie, but its SYN|ACK had the number of one.
fn copy_from_before(lab: &Lab) -> Outcome {
    let listener = lab.a.esp_listener(PORT, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let client = ended_somehow(lab, &listener, 1008)?;
    flood(lab)?;
    client.send_data(b"once")?;
    client.wait_for(|header| header.flags == flag::RST)?;
    refused(listener.accept(0), libc::EAGAIN, "accept")?;
    ensure!(lab.a.counter("EspInCookies")? == 0, "a ghost");
    Ok(())
}

/// Copies of the SYN and of the first packet arrive after the connection has ended, within the time
/// in which the listener would choose the same number again.
fn two_copies(lab: &Lab) -> Outcome {
    let listener = lab.a.esp_listener(PORT, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let client = ended_somehow(lab, &listener, 1009)?;
    client.send(flag::SYN, client.isn, 0, &OPTIONS)?;
    client.wait_for(|header| {
        header.flags == flag::SYN | flag::ACK && header.sequence != client.answer
    })?;
    client.send_data(b"once")?;
    // The packet before this one has been processed once this one is answered.
    let next = Client::new(lab, 1010)?;
    next.send(flag::ACK, 0, 0, &[])?;
    next.wait_for(|header| header.flags & flag::RST != 0)?;
    refused(listener.accept(0), libc::EAGAIN, "accept").map(drop)
}

/// In this test the client retransmits its FIN after the server has forgotten the connection. So
/// the server answers with a reset.
fn lost_end(lab: &Lab) -> Outcome {
    let listener = lab.a.esp_listener(PORT, BACKLOG)?;
    flood(lab)?;
    let client = ended(lab, &listener, 1006)?;
    // The server has sent no data. Its SYN|ACK and its FIN took one sequence number each.
    let (end, acknowledged) = (client.isn.wrapping_add(2), client.answer.wrapping_add(2));
    client.send(flag::FIN | flag::ACK, end, acknowledged, &[])?;
    let reset = client.wait_for(|header| header.flags == flag::RST)?;
    ensure!(
        (reset.sequence, reset.acknowledgement) == (acknowledged, end.wrapping_add(1)),
        "{reset:?}"
    );
    Ok(())
}

/// A listener that sends cookies keeps no options. So it drops a SYN unless the SYN's options have
/// a version, a window of at most 256 packets, and the capability to take skips.
fn untold(lab: &Lab) -> Outcome {
    let _listener = lab.a.esp_listener(PORT, BACKLOG)?;
    flood(lab)?;
    let wide = [1, 1, 1, 5, 4, 1, 1, 0, 1, 10, 2, 0, 1];
    for options in [&[][..], &OPTIONS[3..], &OPTIONS[..7], &OPTIONS[..13], &wide] {
        let client = Client::new(lab, 1007)?;
        let (sent, drops) = (
            lab.a.counter("EspOutCookies")?,
            lab.a.counter("EspInListenQueue")?,
        );
        client.send(flag::SYN, client.isn, 0, options)?;
        lab.a.await_counter("EspInListenQueue", drops + 1)?;
        ensure!(
            lab.a.counter("EspOutCookies")? == sent,
            "a cookie for {options:?}"
        );
    }
    Ok(())
}

/// While the accept queue is full, the listener does not answer data that would complete a
/// connection. A client that has a cookie connects once the queue has room.
fn no_room(lab: &Lab) -> Outcome {
    let listener = lab.a.esp_listener(PORT, BACKLOG)?;
    flood(lab)?;
    let clients = (0..=BACKLOG as u16 + 1)
        .map(|number| Client::connect(lab, 1100 + number))
        .collect::<Result<Vec<_>>>()?;
    for client in &clients {
        client.send_data(b"here")?;
    }
    // A backlog of n holds n + 1 connections.
    lab.a.await_counter("EspInCookies", BACKLOG as u32 + 1)?;
    let last = clients.last().context("clients")?;
    thread::sleep(Duration::from_millis(50));
    ensure!(
        lab.a.counter("EspInCookies")? == BACKLOG as u32 + 1,
        "more connections than the backlog holds"
    );
    let mut servers = Vec::new();
    for _ in 1..clients.len() {
        servers.push(receive(&listener, b"here")?);
    }
    // The last client retransmits its data, as the module would.
    last.send_data(b"here")?;
    servers.push(receive(&listener, b"here")?);
    ensure!(servers.len() == clients.len(), "connections");
    Ok(())
}
