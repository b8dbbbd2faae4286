// SPDX-License-Identifier: GPL-2.0-only

//! Plays a station that opens connections to a host, and then misuses them.

use guest::prelude::*;

/// A connection of the station with the attacked host.
#[derive(Clone, Copy, Debug)]
pub struct Dialed {
    host: [u8; 6],
    /// The station's address.
    pub mac: [u8; 6],
    /// The station's port.
    pub port: u16,
    host_port: u16,
    /// The sequence number of the station's next packet.
    pub next: u16,
    /// The sequence number that the station expects next from the host.
    pub expected: u16,
}

/// Returns the address of station `number`.
pub fn address(number: u64) -> [u8; 6] {
    let [.., a, b, c] = number.to_be_bytes();
    [2, 0, 1, a, b, c]
}

impl Dialed {
    /// Connects station `number` to `host_port` of host a; `wire` receives the frames that arrive
    /// at host b.
    ///
    /// # Errors
    /// If the host does not answer as expected.
    pub fn open(lab: &Lab, wire: &PacketSocket, number: u64, host_port: u16) -> Result<Self> {
        Self::open_telling(lab, wire, number, host_port, &[])
    }

    /// Works like [`open`](Self::open), but with these options in the SYN.
    ///
    /// # Errors
    /// If the host does not answer as expected.
    pub fn open_telling(
        lab: &Lab,
        wire: &PacketSocket,
        number: u64,
        host_port: u16,
        options: &[u8],
    ) -> Result<Self> {
        let mut dialed = Self {
            host: lab.a.mac,
            mac: address(number),
            port: 3000,
            host_port,
            next: 0x1234,
            expected: 0,
        };
        wire.send(&dialed.frame(flag::SYN, options))?;
        let answer = wire
            .wait_for(patience(), |frame| {
                frame[..6] == dialed.mac
                    && EspHeader::of_frame(frame)
                        .is_some_and(|header| header.flags == flag::SYN | flag::ACK)
            })
            .with_context(|| format!("the answer to station {number}"))?;
        let header = EspHeader::of_frame(&answer).context("a frame without header")?;
        dialed.next = dialed.next.wrapping_add(1);
        dialed.expected = header.sequence.wrapping_add(1);
        wire.send(&dialed.frame(flag::ACK, &[]))?;
        Ok(dialed)
    }

    /// Encodes a frame of the connection, with the next sequence number and acknowledgement number.
    pub fn frame(&self, flags: u8, payload: &[u8]) -> Vec<u8> {
        self.frame_of(&self.header(flags, payload.len() as u16), payload)
    }

    /// Makes the header of a packet, with the next sequence number and acknowledgement number.
    pub fn header(&self, flags: u8, length: u16) -> EspHeader {
        EspHeader {
            source: self.port,
            destination: self.host_port,
            length,
            sequence: self.next,
            acknowledgement: self.expected,
            flags,
        }
    }

    /// Encodes a frame with this header.
    pub fn frame_of(&self, header: &EspHeader, payload: &[u8]) -> Vec<u8> {
        ethernet(self.host, self.mac, ETH_P_ESP, &header.packet(payload))
    }

    /// Encodes a frame with data, and advances `next`.
    pub fn data(&mut self, flags: u8, payload: &[u8]) -> Vec<u8> {
        let frame = self.frame(flags | flag::ACK, payload);
        self.next = self.next.wrapping_add(1);
        frame
    }

    /// Encodes a frame that resets the connection.
    pub fn reset(&self) -> Vec<u8> {
        self.frame(flag::RST | flag::ACK, &[])
    }
}
