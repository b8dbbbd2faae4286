// SPDX-License-Identifier: GPL-2.0-only

//! A station without the module: an ESP peer played by hand, frame by frame.
//!
//! It sits on host `b`'s device under an address of its own and talks to the module of host `a`. To
//! know what `a` has sent, the station does not wait for silence: it sends an EDP echo request, and
//! `a`'s reply arrives behind everything that `a` sent before. Processors reorder frames among each
//! other, so the station stays on one.

use crate::calls::send_many;
use crate::frame::{edp, ETH_P_ALL};
use crate::prelude::*;
use crate::processor;

/// The station's address.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x66];

/// Somebody else's.
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x67];

/// The station's end of its one connection.
#[derive(Debug)]
pub struct Station {
    wire: PacketSocket,
    host: [u8; 6],
    port: u16,
    host_port: u16,
    /// Number of the station's next packet.
    pub next: u16,
    /// Number that the station expects next.
    pub expected: u16,
    echo: u8,
    /// Frames that arrived while the station waited for others.
    unread: Vec<EspHeader>,
}

impl Station {
    /// Connects a new socket of host `a` with a station at `port`.
    ///
    /// # Errors
    /// When the handshake does not go as it should.
    pub fn connect(lab: &Lab, port: u16) -> Result<(Self, Socket)> {
        Self::connect_telling(lab, port, &[])
    }

    /// The same of a station whose SYN|ACK has these options.
    ///
    /// # Errors
    /// When the handshake does not go as it should.
    pub fn connect_telling(lab: &Lab, port: u16, options: &[u8]) -> Result<(Self, Socket)> {
        Self::connect_far(lab, port, options, Duration::ZERO)
    }

    /// The same of a station so far away that its answer takes this time.
    ///
    /// # Errors
    /// When the handshake does not go as it should.
    pub fn connect_far(
        lab: &Lab,
        port: u16,
        options: &[u8],
        round_trip: Duration,
    ) -> Result<(Self, Socket)> {
        // Frames are received in the order in which they are sent: each processor has a queue of
        // its own.
        processor::stay()?;
        send_single_packets(&lab.a.namespace)?;
        let wire = lab.b.packets(ETH_P_ALL)?;
        let client = lab.a.esp()?;
        client.set_nonblocking(true)?;
        let address = Address {
            port,
            ifindex: lab.a.ifindex,
            mac: MAC,
        };
        refused(client.connect(&address), libc::EINPROGRESS, "connect")?;
        let mut station = Self {
            wire,
            host: lab.a.mac,
            port,
            host_port: 0,
            next: 0x7777,
            expected: 0,
            echo: 0,
            unread: Vec::new(),
        };
        let syn = station.wait_for(|header| header.flags & flag::SYN != 0)?;
        station.host_port = syn.source;
        station.expected = syn.sequence.wrapping_add(1);
        std::thread::sleep(round_trip);
        station.send(flag::SYN | flag::ACK, options)?;
        station.next = station.next.wrapping_add(1);
        await_events(&client, libc::POLLOUT)?;
        client.set_nonblocking(false)?;
        // The handshake's last packet is no answer to what comes now.
        station.sent_so_far()?;
        Ok((station, client))
    }

    /// Sends a packet with the next number. If the packet takes a number, the caller advances it.
    ///
    /// # Errors
    /// The errno of `send(2)`.
    pub fn send(&self, flags: u8, payload: &[u8]) -> Result<()> {
        self.put(&self.header(flags, payload.len() as u16), payload)
    }

    fn header(&self, flags: u8, length: u16) -> EspHeader {
        EspHeader {
            source: self.port,
            destination: self.host_port,
            length,
            sequence: self.next,
            acknowledgement: self.expected,
            flags,
        }
    }

    fn put(&self, header: &EspHeader, payload: &[u8]) -> Result<()> {
        self.put_packet(&header.packet(payload))
    }

    fn put_packet(&self, packet: &[u8]) -> Result<()> {
        let frame = ethernet(self.host, MAC, ETH_P_ESP, packet);
        self.wire.send(&frame).context("the station's frame")
    }

    /// Sends data, a packet of its own, and counts on.
    ///
    /// # Errors
    /// The errno of `send(2)`.
    pub fn send_data(&mut self, flags: u8, payload: &[u8]) -> Result<()> {
        self.send(flags | flag::ACK, payload)?;
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Sends data with a checksum, without a mask. The number stays the next.
    ///
    /// # Errors
    /// The errno of `send(2)`.
    pub fn send_summed(&self, flags: u8, payload: &[u8]) -> Result<()> {
        let header = self.header(flags, payload.len() as u16);
        self.put_packet(&header.summed_packet(payload))
    }

    /// As [`send_data`](Self::send_data), and right behind it sends what another host would, if it
    /// claimed to go on with `more`.
    ///
    /// # Errors
    /// The errno of `sendmmsg(2)`.
    pub fn send_before_a_stranger(&mut self, flags: u8, payload: &[u8], more: &[u8]) -> Result<()> {
        let own = self.header(flags | flag::ACK, payload.len() as u16);
        self.next = self.next.wrapping_add(1);
        let other = self.header(flag::ACK, more.len() as u16);
        let [own, other] =
            [(MAC, own, payload), (STRANGER, other, more)].map(|(source, header, payload)| {
                ethernet(self.host, source, ETH_P_ESP, &header.packet(payload))
            });
        let frames = [Piece::Good(&own), Piece::Good(&other)];
        let sent = send_many(self.wire.socket(), &frames, 0)?;
        ensure!(sent == 2, "{sent} frames left");
        Ok(())
    }

    /// Acknowledges what was seen, and with it ends the count. When this returns the host has
    /// answered: a frame may wait for its turn on the way, and a setting changed meanwhile would
    /// hold for it.
    ///
    /// # Errors
    /// When the host does not answer any more.
    pub fn acknowledge(&mut self) -> Result<()> {
        self.send(flag::ACK, &[])?;
        self.unread = self.sent_so_far()?;
        Ok(())
    }

    /// As [`acknowledge`](Self::acknowledge), with a grant: packets that may follow the next
    /// announcement, and the window.
    ///
    /// # Errors
    /// When the host does not answer any more.
    pub fn grant(&mut self, start: u8, window: u8) -> Result<()> {
        let header = self.header(flag::GRANT, u16::from_be_bytes([start, window]));
        self.put(&header, &[])?;
        self.unread = self.sent_so_far()?;
        Ok(())
    }

    /// Ends the connection at once.
    ///
    /// # Errors
    /// The errno of `send(2)`.
    pub fn reset(&self) -> Result<()> {
        self.send(flag::RST | flag::ACK, &[])
    }

    /// The headers of the connection's packets that the host has sent since the last time.
    ///
    /// # Errors
    /// When the host does not answer any more.
    pub fn sent_so_far(&mut self) -> Result<Vec<EspHeader>> {
        self.echo = self.echo.wrapping_add(1);
        let request = edp(self.port, 0, 2, &[1, self.echo]);
        self.wire
            .send(&ethernet(self.host, MAC, ETH_P_EDP, &request))?;
        let reply = edp(0, self.port, 2, &[2, self.echo]);
        let mut headers = std::mem::take(&mut self.unread);
        loop {
            let frame = self.wire.wait_for(patience(), |_| true)?;
            headers.extend(self.of_ours(&frame));
            if frame[..6] == MAC && frame.get(14..22) == Some(&reply[..]) {
                return Ok(headers);
            }
        }
    }

    /// How many packets of data the host has sent for the first time since the last time; they must
    /// follow each other.
    ///
    /// # Errors
    /// When one is missing.
    pub fn new_packets(&mut self) -> Result<u16> {
        let before = self.expected;
        for header in self.sent_so_far()? {
            let ahead = header.sequence.wrapping_sub(self.expected);
            if header.length == 0 || ahead > 0x7fff {
                continue;
            }
            ensure!(
                ahead == 0,
                "packet {} came where {} was due",
                header.sequence,
                self.expected
            );
            self.expected = self.expected.wrapping_add(1);
        }
        Ok(self.expected.wrapping_sub(before))
    }

    fn of_ours(&self, frame: &[u8]) -> Option<EspHeader> {
        EspHeader::of_frame(frame)
            .filter(|header| frame[..6] == MAC && header.destination == self.port)
    }

    /// The next packet of the connection that `wanted` accepts; others are dropped.
    ///
    /// # Errors
    /// When none comes.
    pub fn wait_for(&self, wanted: impl Fn(&EspHeader) -> bool) -> Result<EspHeader> {
        let frame = self.wire.wait_for(patience(), |frame| {
            self.of_ours(frame).is_some_and(|header| wanted(&header))
        })?;
        self.of_ours(&frame).context("a frame without header")
    }
}
