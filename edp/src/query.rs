// SPDX-License-Identifier: GPL-2.0

//! Port 0: a host's version, capabilities and limits.
//!
//! ```text
//! 3  nonce (4 bytes)             a query
//! 4  the query's nonce  options  its answer
//! ```
//!
//! The options are in any order:
//!
//! ```text
//! type (1 byte)  length of the value (1 byte)  value, big-endian
//!            1                              1  version of the protocols
//!            2                              2  capabilities, bits
//!            3                              2  largest EDP datagram that the host accepts, bytes
//!            4                              2  largest payload of an ESP packet that the host
//!                                              accepts, bytes
//!            5                              4  burst_length, initial_ack_burst_length
//!            6                              2  packets_to_ack
//! ```
//!
//! A receiver skips unknown types. The list ends at an option that is truncated, or whose length is
//! not the listed one. Header and answer fit the shortest Ethernet frame, so an answer is never
//! longer on the wire than its query.

use super::wire::Header;

/// Type of a query (`EDP_QUERY`).
pub const QUERY: u8 = 3;
/// Type of the answer to a query (`EDP_ANSWER`).
pub const ANSWER: u8 = 4;

/// The version of the protocols that this code implements.
pub const VERSION: u8 = 1;

/// Number of meaningful bytes of a query; more bytes may follow.
pub const QUERY_LEN: usize = 5;
/// Length of the answer that [`Host::answer`] returns, in bytes.
pub const ANSWER_LEN: usize = 30;
/// Maximum length of an answer, in bytes. With the header, such an answer just fits the shortest
/// Ethernet frame.
pub const ANSWER_MAX: usize = 40;

/// Bits of [`Capabilities::flags`].
pub mod flags {
    /// The host supports ESP.
    pub const ESP: u16 = 1 << 0;
    /// The host accepts datagrams and packets with a checksum.
    pub const SUMS: u16 = 1 << 1;
    /// The host accepts mapped connections: ESP connections that stand for TCP connections.
    pub const MAPPED: u16 = 1 << 2;
    /// The host also accepts mapped connections between IPv6 addresses.
    pub const MAPPED_V6: u16 = 1 << 3;
}

/// The types of options.
mod kind {
    pub const VERSION: u8 = 1;
    pub const FLAGS: u8 = 2;
    pub const LARGEST_DATAGRAM: u8 = 3;
    pub const LARGEST_PAYLOAD: u8 = 4;
    pub const WINDOW: u8 = 5;
    pub const PACKETS_TO_ACK: u8 = 6;
}

/// Largest payload of a datagram, in bytes, at the smallest MTU of an Ethernet device, which is 68
/// bytes (`ETH_MIN_MTU`).
const LEAST_DATAGRAM: u16 = 62;

/// Random bytes of a query. The answer repeats them; an answer with other bytes is dropped.
pub type Nonce = [u8; 4];

/// This host's limits and settings, as reported in the answers that it sends through one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// The largest datagram that the device carries, without a checksum, in bytes.
    pub largest_datagram: u32,
    /// The largest payload of an ESP packet that the device carries, without a checksum, in bytes.
    pub largest_payload: u32,
    /// The host's value of ESP's `burst_length`.
    pub burst_length: u16,
    /// The host's value of ESP's `initial_ack_burst_length`.
    pub initial_ack_burst_length: u16,
    /// The host's value of ESP's `packets_to_ack`.
    pub packets_to_ack: u16,
    /// Whether the host accepts mapped connections (ESP connections that stand for TCP
    /// connections).
    pub mapped: bool,
    /// Whether the host also accepts mapped connections between IPv6 addresses.
    pub mapped_v6: bool,
}

/// The contents of another host's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The version of the host's protocols.
    pub version: Option<u8>,
    /// Bits of [`flags`].
    pub flags: Option<u16>,
    /// The largest datagram that the host accepts, without a checksum, in bytes.
    pub largest_datagram: Option<u16>,
    /// The largest payload of an ESP packet that the host accepts, without a checksum, in bytes.
    pub largest_payload: Option<u16>,
    /// The host's `burst_length` and `initial_ack_burst_length`.
    pub window: Option<(u16, u16)>,
    /// The host's `packets_to_ack`.
    pub packets_to_ack: Option<u16>,
}

/// Returns the payload of a query.
pub const fn query(nonce: Nonce) -> [u8; QUERY_LEN] {
    let [n0, n1, n2, n3] = nonce;
    [QUERY, n0, n1, n2, n3]
}

/// Returns the nonce of a query with this `payload`. The first [`QUERY_LEN`] bytes of the payload
/// suffice.
pub fn nonce_of_query(payload: &[u8]) -> Option<Nonce> {
    match *payload {
        [QUERY, n0, n1, n2, n3, ..] => Some([n0, n1, n2, n3]),
        _ => None,
    }
}

/// Returns the header of the answer to a query with the header `query`. Queries from port 0 are
/// answered too. This cannot loop, since answers are never answered.
pub const fn answer_to(query: &Header) -> Header {
    Header {
        src: 0,
        dst: query.src,
        len: ANSWER_LEN as u16,
        has_checksum: query.has_checksum,
    }
}

impl Host {
    /// Returns the payload of the answer to a query with `nonce`.
    pub fn answer(&self, nonce: Nonce) -> [u8; ANSWER_LEN] {
        let short = |number: u32| u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes();
        let [n0, n1, n2, n3] = nonce;
        let v6 = if self.mapped_v6 { flags::MAPPED_V6 } else { 0 };
        let mapped = if self.mapped { flags::MAPPED | v6 } else { 0 };
        let [f0, f1] = (flags::ESP | flags::SUMS | mapped).to_be_bytes();
        let [d0, d1] = short(self.largest_datagram);
        let [p0, p1] = short(self.largest_payload);
        let [b0, b1] = self.burst_length.to_be_bytes();
        let [i0, i1] = self.initial_ack_burst_length.to_be_bytes();
        let [a0, a1] = self.packets_to_ack.to_be_bytes();
        [
            ANSWER,
            n0,
            n1,
            n2,
            n3,
            kind::VERSION,
            1,
            VERSION,
            kind::FLAGS,
            2,
            f0,
            f1,
            kind::LARGEST_DATAGRAM,
            2,
            d0,
            d1,
            kind::LARGEST_PAYLOAD,
            2,
            p0,
            p1,
            kind::WINDOW,
            4,
            b0,
            b1,
            i0,
            i1,
            kind::PACKETS_TO_ACK,
            2,
            a0,
            a1,
        ]
    }
}

impl Capabilities {
    /// Returns the nonce and the contents of an answer with this `payload`. If an option is
    /// repeated, the last one counts.
    pub fn of_answer(payload: &[u8]) -> Option<(Nonce, Self)> {
        match *payload {
            [ANSWER, n0, n1, n2, n3, ref options @ ..] => {
                Some(([n0, n1, n2, n3], Self::parse(options)))
            }
            _ => None,
        }
    }

    fn parse(mut bytes: &[u8]) -> Self {
        let mut told = Self::default();
        while let [kind, len, rest @ ..] = bytes {
            let Some((value, behind)) = rest.split_at_checked((*len).into()) else {
                break;
            };
            match (*kind, value) {
                (kind::VERSION, &[version]) => told.version = Some(version),
                (kind::FLAGS, &[f0, f1]) => told.flags = Some(u16::from_be_bytes([f0, f1])),
                (kind::LARGEST_DATAGRAM, &[d0, d1]) => {
                    let largest = u16::from_be_bytes([d0, d1]);
                    told.largest_datagram = Some(largest.max(LEAST_DATAGRAM));
                }
                (kind::LARGEST_PAYLOAD, &[p0, p1]) => {
                    told.largest_payload = Some(u16::from_be_bytes([p0, p1]));
                }
                (kind::WINDOW, &[b0, b1, i0, i1]) => {
                    let burst_length = u16::from_be_bytes([b0, b1]);
                    told.window = Some((burst_length, u16::from_be_bytes([i0, i1])));
                }
                (kind::PACKETS_TO_ACK, &[a0, a1]) => {
                    told.packets_to_ack = Some(u16::from_be_bytes([a0, a1]));
                }
                (kind::VERSION..=kind::PACKETS_TO_ACK, _) => break,
                _ => {}
            }
            bytes = behind;
        }
        told
    }
}
