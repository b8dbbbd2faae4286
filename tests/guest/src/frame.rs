// SPDX-License-Identifier: GPL-2.0-only

//! Encodes and decodes frames byte by byte, as protocol.md specifies them. Also has packet sockets,
//! which send and receive whole frames.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};

use crate::harness::same;
use crate::netns::Netns;
use crate::patience::patience;
use crate::socket::{bind_packet, interface_index, Socket};

/// EDP's default ethertype.
pub const ETH_P_EDP: u16 = 0x88b5;
/// ESP's default ethertype.
pub const ETH_P_ESP: u16 = 0x88b6;
/// The ethertype of a packet socket that receives frames of every ethertype.
pub const ETH_P_ALL: u16 = 3;

/// ESP's flag bits.
pub mod flag {
    /// Opens a connection.
    pub const SYN: u8 = 0x01;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x02;
    /// The sender's stream ends here.
    pub const FIN: u8 = 0x04;
    /// The connection no longer exists.
    pub const RST: u8 = 0x08;
    /// Retransmission request.
    pub const RRQ: u8 = 0x10;
    /// Start of transmission.
    pub const TXS: u8 = 0x20;
    /// Transmission finished.
    pub const TXF: u8 = 0x40;
    /// A checksum follows the payload.
    pub const CRC: u8 = 0x80;
    /// The flags of an empty packet that grants the peer a window. The packet's length field
    /// contains the grant, which is not 0.
    pub const GRANT: u8 = ACK | RRQ | TXF;
}

/// Encodes an Ethernet frame: two addresses, the type, the payload.
pub fn ethernet(to: [u8; 6], from: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(14 + payload.len());
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&from);
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Encodes an IPv4 packet of `protocol`, for an Ethernet frame.
pub fn ipv4(from: [u8; 4], to: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + payload.len() as u16).to_be_bytes();
    let begin = [0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    let mut packet = [&begin[..], &from, &to].concat();
    let mut sum: u32 = packet
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// Encodes an EDP header and a payload. The header's length field contains `length`, even if it is
/// wrong.
pub fn edp(source: u16, destination: u16, length: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(6 + payload.len());
    for field in [source, destination, length] {
        packet.extend_from_slice(&field.to_be_bytes());
    }
    packet.extend_from_slice(payload);
    packet
}

/// Encodes an EDP packet with a checksum after the payload.
pub fn edp_summed(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = edp(source, destination, 0x8000 | payload.len() as u16, payload);
    packet.extend_from_slice(&crc32c::crc32c(&packet).to_be_bytes());
    packet
}

/// Number of bytes of EDP's header.
pub const EDP_HEADER: usize = 6;

/// Number of bytes in front of an ESP frame's payload: Ethernet's header and ESP's header.
pub const ESP_HEADERS: usize = 14 + 11;

/// The bit of the length field that marks a grant of more than 255 packets.
const WIDE_GRANT: u16 = 0x8000;

/// ESP's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EspHeader {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// The length field: the number of payload bytes that follow, or a wrong number from a
    /// scenario. In a packet that grants a window, the field contains the grant.
    pub length: u16,
    /// Sequence number of this packet.
    pub sequence: u16,
    /// The sequence number that the sender of this packet expects next.
    pub acknowledgement: u16,
    /// Bits of [`flag`].
    pub flags: u8,
}

impl EspHeader {
    /// Makes the header of an empty packet from one port to another.
    pub fn new(source: u16, destination: u16, flags: u8) -> Self {
        Self {
            source,
            destination,
            flags,
            ..Self::default()
        }
    }

    /// Makes the header of a SYN with `options`. Its sequence number is 7.
    pub fn syn(source: u16, destination: u16, options: &[u8]) -> Self {
        Self {
            length: options.len() as u16,
            sequence: 7,
            ..Self::new(source, destination, flag::SYN)
        }
    }

    /// Encodes the header and a payload.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let mut packet = edp(self.source, self.destination, self.length, &[]);
        packet.extend_from_slice(&self.sequence.to_be_bytes());
        packet.extend_from_slice(&self.acknowledgement.to_be_bytes());
        packet.push(self.flags);
        packet.extend_from_slice(payload);
        packet
    }

    /// Encodes the header and a payload, with a checksum and the flag that announces it.
    pub fn summed_packet(&self, payload: &[u8]) -> Vec<u8> {
        self.masked_packet(payload, 0)
    }

    /// Encodes like [`summed_packet`](Self::summed_packet), but with `mask` XORed into the
    /// checksum.
    pub fn masked_packet(&self, payload: &[u8], mask: u32) -> Vec<u8> {
        let flags = self.flags | flag::CRC;
        let mut packet = Self { flags, ..*self }.packet(payload);
        let sum = crc32c::crc32c(&packet) ^ mask;
        packet.extend_from_slice(&sum.to_be_bytes());
        packet
    }

    /// Returns the mask that was XORed into the checksum of the packet in `frame`. The packet's ESP
    /// header is `self`. Returns `None` if the packet has no checksum.
    pub fn mask_in(&self, frame: &[u8]) -> Option<u32> {
        let length = if self.is_grant() { 0 } else { self.length };
        let end = ESP_HEADERS + usize::from(length);
        let sum = *frame.get(end..)?.first_chunk()?;
        let mask = u32::from_be_bytes(sum) ^ crc32c::crc32c(&frame[14..end]);
        (self.flags & flag::CRC != 0).then_some(mask)
    }

    /// Returns whether the packet grants a window, so that the length field contains the grant.
    pub fn is_grant(&self) -> bool {
        self.length > 0 && self.flags & !flag::CRC == flag::GRANT
    }

    /// Returns the grant: the number of packets that may follow an announcement, and the window.
    pub fn granted(&self) -> Option<[u16; 2]> {
        let granted = if self.length & WIDE_GRANT != 0 {
            [(self.length >> 9) & 63, (self.length & 511) * 4]
        } else {
            [self.length >> 8, self.length & 255]
        };
        self.is_grant().then_some(granted)
    }

    /// Decodes the ESP header of an Ethernet frame.
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        if word(12)? != ETH_P_ESP {
            return None;
        }
        Some(Self {
            source: word(14)?,
            destination: word(16)?,
            length: word(18)?,
            sequence: word(20)?,
            acknowledgement: word(22)?,
            flags: *frame.get(24)?,
        })
    }
}

/// A packet socket on a host's only Ethernet device.
#[derive(Debug)]
pub struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens a socket for whole frames of `ethertype` on `device` in `namespace`.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn open(namespace: &Netns, device: &str, ethertype: u16) -> Result<Self> {
        let socket = Self::open_both_ways(namespace, device, ethertype)?;
        let ignore_outgoing = 23; // PACKET_IGNORE_OUTGOING, <linux/if_packet.h>
        socket
            .0
            .set_int_option(libc::SOL_PACKET, ignore_outgoing, 1)?;
        Ok(socket)
    }

    /// Opens a socket like [`open`](Self::open). If `ethertype` is [`ETH_P_ALL`], the socket also
    /// sees the frames that leave by the device.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn open_both_ways(namespace: &Netns, device: &str, ethertype: u16) -> Result<Self> {
        let socket = namespace.within(|| -> io::Result<Socket> {
            // A socket of protocol 0 receives nothing until it is bound, so it gets no frame of
            // another device.
            let socket = Socket::new(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
            socket.set_so(libc::SO_RCVBUFFORCE, 16 << 20)?;
            bind_packet(&socket, interface_index(device)?, ethertype)?;
            Ok(socket)
        })??;
        Ok(Self(socket))
    }

    /// Sends one frame as it is.
    ///
    /// # Errors
    /// The errno of `send(2)`.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame, 0).map(drop)
    }

    /// Sends an ESP header without a payload from one station to another.
    ///
    /// # Errors
    /// The errno of `send(2)`.
    pub fn send_esp(&self, to: [u8; 6], from: [u8; 6], header: EspHeader) -> io::Result<()> {
        self.send(&ethernet(to, from, ETH_P_ESP, &header.packet(&[])))
    }

    /// Sends an EDP packet from one station to another.
    ///
    /// # Errors
    /// The errno of `send(2)`.
    pub fn send_edp(&self, to: [u8; 6], from: [u8; 6], packet: &[u8]) -> io::Result<()> {
        self.send(&ethernet(to, from, ETH_P_EDP, packet))
    }

    /// Receives the next frame without waiting.
    ///
    /// # Errors
    /// The errno of `recv(2)`; `EAGAIN` if there is no frame.
    pub fn take(&self, frame: &mut [u8]) -> io::Result<usize> {
        self.0.receive(frame, libc::MSG_DONTWAIT)
    }

    /// Waits for a frame that `wanted` accepts; drops other frames.
    ///
    /// # Errors
    /// If none came within `patience`.
    pub fn wait_for(&self, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>> {
        let end = Instant::now() + patience;
        // The buffer has room for a GSO packet, the largest frame.
        let mut frame = vec![0u8; 1 << 16];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if self.0.poll(libc::POLLIN, left)? == 0 {
                bail!("no such frame within {patience:?}");
            }
            let length = self.take(&mut frame)?;
            if wanted(&frame[..length]) {
                return Ok(frame[..length].to_vec());
            }
        }
    }

    /// Waits for an ESP packet whose header `wanted` accepts, and returns the header. Drops other
    /// frames.
    ///
    /// # Errors
    /// If none comes within [`patience`].
    pub fn wait_for_esp(&self, wanted: impl Fn(&EspHeader) -> bool) -> Result<EspHeader> {
        let header = |frame: &[u8]| EspHeader::of_frame(frame).filter(|header| wanted(header));
        let frame = self.wait_for(patience(), |frame| header(frame).is_some())?;
        header(&frame).context("no ESP")
    }

    /// Sends an EDP echo request to `to`, and checks that no other EDP packet comes before the echo
    /// reply. A reply to an earlier frame would come before the echo reply. This socket must have
    /// EDP's ethertype.
    ///
    /// # Errors
    /// If another frame comes, or none.
    pub fn echo_comes_first(&self, to: [u8; 6], from: [u8; 6], port: u16) -> Result<()> {
        self.send_edp(to, from, &edp(port, 0, 2, &[1, 77]))?;
        let reply = self.wait_for(patience(), |_| true)?;
        same(&reply[14..22], edp(0, port, 2, &[2, 77]), "answered")
    }

    /// Sends `to` a SYN for `port`, to which no socket is bound. Checks that the first ESP packet
    /// to come is the reset in answer to the SYN. This socket must have ESP's ethertype.
    ///
    /// # Errors
    /// If another frame comes, or none.
    pub fn reset_comes_first(&self, to: [u8; 6], from: [u8; 6], port: u16) -> Result<()> {
        let probe = EspHeader::new(11, port, flag::SYN);
        self.send_esp(to, from, probe)?;
        let reply = self.wait_for(patience(), |_| true)?;
        let header = EspHeader::of_frame(&reply).context("no ESP header")?;
        ensure!(
            header.destination == 11 && header.flags & flag::RST != 0,
            "answered: {header:?} to {:02x?}",
            &reply[..6]
        );
        Ok(())
    }

    /// Returns the underlying socket.
    pub fn socket(&self) -> &Socket {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn esp_header_survives_the_round_trip() {
        let header = EspHeader {
            source: 1,
            destination: 2805,
            length: 3,
            sequence: 0xfffe,
            acknowledgement: 7,
            flags: flag::SYN | flag::TXF,
        };
        let frame = ethernet([1; 6], [2; 6], ETH_P_ESP, &header.packet(b"abc"));
        assert_eq!(frame.len(), ESP_HEADERS + 3);
        assert_eq!(EspHeader::of_frame(&frame), Some(header));
        assert_eq!(EspHeader::of_frame(&frame[..20]), None);
    }
}
