// SPDX-License-Identifier: GPL-2.0-only

//! Plays an ESP peer by hand, frame by frame: a station without the module.
//!
//! The station sits on host `b`'s device with its own address, and talks to the module of host `a`.
//! To find out what `a` has sent, the station does not wait for silence. It sends an EDP echo
//! request, and the reply of `a` arrives after all earlier packets of `a`. Frames sent by different
//! processors may be reordered, so the station stays on one processor.

use crate::calls::send_many;
use crate::frame::{edp, ETH_P_ALL};
use crate::prelude::*;
use crate::processor;

/// The station's address.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x66];

/// The address of a second station, which has no part in the connection.
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x67];

/// A station, which has a single connection, and its end of that connection.
#[derive(Debug)]
pub struct Station {
    wire: PacketSocket,
    host: [u8; 6],
    port: u16,
    host_port: u16,
    /// Sequence number of the next packet that the station sends.
    pub next: u16,
    /// Sequence number of the next packet that the station expects.
    pub expected: u16,
    echo: u8,
    /// Headers of frames that arrived while the station waited for a frame of another kind.
    unread: Vec<EspHeader>,
}

impl Station {
    /// Connects a new socket of host `a` to a station at `port`.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn connect(lab: &Lab, port: u16) -> Result<(Self, Socket)> {
        Self::connect_telling(lab, port, &[])
    }

    /// Connects to a station whose SYN|ACK carries `options`.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn connect_telling(lab: &Lab, port: u16, options: &[u8]) -> Result<(Self, Socket)> {
        Self::connect_far(lab, port, options, Duration::ZERO)
    }

    /// Connects to a distant station, whose SYN|ACK comes after `round_trip`.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn connect_far(
        lab: &Lab,
        port: u16,
        options: &[u8],
        round_trip: Duration,
    ) -> Result<(Self, Socket)> {
        // Each processor has its own queue of received frames. On a single processor, frames are
        // received in the order in which they are sent.
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
        // Take the handshake's last packet out of the packet socket, so that later checks do not
        // see it.
        station.sent_so_far()?;
        Ok((station, client))
    }

    /// Sends a packet with the sequence number `next`. If the packet consumes this number, the
    /// caller advances `next`.
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

    /// Sends data in one packet, and advances the sequence number `next`.
    pub fn send_data(&mut self, flags: u8, payload: &[u8]) -> Result<()> {
        self.send(flags | flag::ACK, payload)?;
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Sends data with a checksum into which no mask is XORed. Does not advance the sequence number
    /// `next`.
    pub fn send_summed(&self, flags: u8, payload: &[u8]) -> Result<()> {
        let header = self.header(flags, payload.len() as u16);
        self.put_packet(&header.summed_packet(payload))
    }

    /// Sends data like [`send_data`](Self::send_data). A packet from another station follows at
    /// once. It carries `more`, and has the number and the ports of the connection's next packet.
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

    /// Acknowledges all packets seen, so that the host may send the next window. Sends an echo
    /// request after the acknowledgement, and returns once the host has answered the request.
    /// Without the echo, a delayed acknowledgement might arrive only after the scenario has changed
    /// the host's settings.
    ///
    /// # Errors
    /// If the host no longer answers.
    pub fn acknowledge(&mut self) -> Result<()> {
        self.send(flag::ACK, &[])?;
        self.unread = self.sent_so_far()?;
        Ok(())
    }

    /// Acknowledges like [`acknowledge`](Self::acknowledge), and grants the host a window of
    /// `window` packets. `start` is the number of packets that may follow the next announcement,
    /// which is the first packet of a transmission.
    ///
    /// # Errors
    /// If the host no longer answers.
    pub fn grant(&mut self, start: u8, window: u8) -> Result<()> {
        let header = self.header(flag::GRANT, u16::from_be_bytes([start, window]));
        self.put(&header, &[])?;
        self.unread = self.sent_so_far()?;
        Ok(())
    }

    /// Resets the connection.
    ///
    /// # Errors
    /// The errno of `send(2)`.
    pub fn reset(&self) -> Result<()> {
        self.send(flag::RST | flag::ACK, &[])
    }

    /// Returns the headers of the connection's packets that the host has sent since the last call.
    ///
    /// # Errors
    /// If the host no longer answers.
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

    /// Returns the number of new data packets that the host has sent since the last call. Their
    /// sequence numbers must be consecutive.
    ///
    /// # Errors
    /// If a packet is missing.
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

    /// Waits for a packet of the connection that `wanted` accepts; drops other packets.
    ///
    /// # Errors
    /// If none comes.
    pub fn wait_for(&self, wanted: impl Fn(&EspHeader) -> bool) -> Result<EspHeader> {
        let frame = self.wire.wait_for(patience(), |frame| {
            self.of_ours(frame).is_some_and(|header| wanted(&header))
        })?;
        self.of_ours(&frame).context("a frame without header")
    }
}
