// SPDX-License-Identifier: GPL-2.0

//! Options of a SYN or SYN|ACK.
//!
//! Options take the place of the payload, without a sequence number:
//!
//! ```text
//! type  length  value, big-endian; type and length are a byte each
//!    1       1  version of the protocol
//!    4       2  most payload of one packet, bytes
//!    5       4  burst_length, initial_ack_burst_length
//!    7       1  the largest window that a grant can give the sender, 0 for none
//!    8      36  source and destination of a mapped connection (SYN only):
//!               IPv6 address and port of each; an IPv4 address is written as an
//!               IPv4-mapped IPv6 address (::ffff:a.b.c.d)
//!    9       4  bits 0 to 30, the longest record that the sender takes, bytes;
//!               bit 31, the connection is a channel; only a connection with
//!               records has this option
//!   10       2  capabilities of the connection: bit 0, the sender takes skips;
//!               bit 1, it takes requests that name packets; bit 2, its
//!               announcements are short when nothing may follow them; bit 3,
//!               many connections send to it, so that announcements to it are
//!               short before it grants anything; bits 8 to 15, the largest
//!               window that a grant can give the sender, in units of 8
//!               packets, if that is more than 255 packets, otherwise 0
//!   11       4  a nonce for the masks of checksums
//! ```
//!
//! Answers on EDP's port 0 use the same types, and more types in addition.
//!
//! A receiver skips unknown types. A truncated option, or one with a length other than the listed
//! one, ends the list. If a side omits its payload limit or its window, the other side assumes its
//! own values. If a side omits the option for grants, records, capabilities or the nonce, it has
//! none of these.

use super::config::{Config, Selective, LARGEST_WINDOW};
use super::records::{Kind, LEAST_RECORD};
use super::wire::{MOST_NARROW, MOST_WIDE_START};

/// Number of bytes of the options that [`Options::emit`] returns.
pub const OPTIONS_LEN: usize = 20;

/// At most this many bytes of options are read, including skipped ones.
pub const OPTIONS_MAX: usize = 64;

/// The types of options.
mod kind {
    pub const VERSION: u8 = 1;
    pub const LARGEST_PAYLOAD: u8 = 4;
    pub const WINDOW: u8 = 5;
    pub const GRANTS: u8 = 7;
    pub const MAPPED: u8 = 8;
    pub const RECORDS: u8 = 9;
    pub const CAPABILITIES: u8 = 10;
    pub const NONCE: u8 = 11;
}

/// Capability bit: the host that sends this option accepts skips.
const TAKES_SKIPS: u8 = 1;

/// Capability bit: the host supports retransmission requests that name packets.
const SELECTIVE: u8 = 2;

/// Capability bit: the host makes its announcements [short](super::ack_queue::SHORT) when it is not
/// allowed to send packets directly after an announcement.
const ANNOUNCES_SHORT: u8 = 4;

/// Capability bit: many connections send to the host, so its peers should make their announcements
/// short.
const CROWDED: u8 = 8;

/// The unit of the largest window in the option of the capabilities, packets.
const WIDE_UNIT: u16 = 8;

/// Bit of the option of records: each record begins with the header of a message.
const CHANNEL: u32 = 1 << 31;

/// Number of bytes of the option that [`Options::emit_records`] returns.
pub const RECORDS_LEN: usize = 6;

/// Number of bytes of the option that [`Options::emit_nonce`] returns.
pub const NONCE_LEN: usize = 6;

/// Number of bytes of the option that [`Mapped::emit`] returns.
pub const MAPPED_LEN: usize = 38;

/// An end of a mapped connection, as the program sees it: a port and an IPv6 address. An IPv4
/// address has the form `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InternetEnd {
    /// The address.
    pub address: [u8; 16],
    /// The port.
    pub port: u16,
}

/// The two ends of a mapped connection, which stands for a TCP connection. A SYN with this option
/// opens a connection only to a listener for mapped connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mapped {
    /// The end at the SYN's sender.
    pub source: InternetEnd,
    /// The end at the SYN's receiver.
    pub destination: InternetEnd,
}

impl Mapped {
    /// Returns the option with both ends exchanged, as the peer sees the connection.
    pub fn swapped(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
        }
    }

    /// Returns the option as bytes on the wire.
    pub fn emit(&self) -> [u8; MAPPED_LEN] {
        let mut bytes = [0; MAPPED_LEN];
        let ends = [self.source, self.destination];
        let value = ends.iter().flat_map(|end| {
            let [high, low] = end.port.to_be_bytes();
            end.address.into_iter().chain([high, low])
        });
        let start = [kind::MAPPED, (MAPPED_LEN - 2) as u8];
        for (to, byte) in bytes.iter_mut().zip(start.into_iter().chain(value)) {
            *to = byte;
        }
        bytes
    }

    /// Reads the option's value.
    fn parse(value: &[u8]) -> Option<Self> {
        let (source, rest) = value.split_first_chunk::<16>()?;
        let (source_port, rest) = rest.split_first_chunk::<2>()?;
        let (destination, rest) = rest.split_first_chunk::<16>()?;
        let port = <[u8; 2]>::try_from(rest).ok()?;
        Some(Self {
            source: InternetEnd {
                address: *source,
                port: u16::from_be_bytes(*source_port),
            },
            destination: InternetEnd {
                address: *destination,
                port: u16::from_be_bytes(port),
            },
        })
    }
}

/// The version of the protocol that this code speaks. A host that sends no version option speaks
/// this version too.
pub const VERSION: u8 = 1;

/// Number of payload bytes that every Ethernet device can carry in a packet. Every MTU is at least
/// 68 bytes (`ETH_MIN_MTU`). Smaller values in an option are raised to this.
const LEAST_PAYLOAD: u16 = 57;

/// Number of payload bytes in a packet for a peer whose SYN was not kept. Such a packet fits an MTU
/// of 1500 bytes, which every host of the segment is supposed to have.
pub const COMMON_PAYLOAD: u16 = 1489;

/// The parameters of a sender's window, as in [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// See [`Config::burst_length`].
    pub burst_length: u16,
    /// See [`Config::initial_ack_burst_length`].
    pub initial_ack_burst_length: u16,
}

/// The parameters that a SYN or SYN|ACK advertises. They hold for the life of the connection.
/// Repeats advertise the same, because the peer takes the options of one of them only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Advertised {
    pub(super) window: Window,
    pub(super) largest_grant: u16,
    pub(super) selective: bool,
}

impl Advertised {
    /// Returns what a host with the parameters `config` advertises in a connection without masks.
    pub fn of(config: &Config) -> Self {
        Self {
            window: Window {
                burst_length: config.window(),
                initial_ack_burst_length: config.initial_ack_burst_length,
            },
            largest_grant: config.largest_grant(),
            selective: config.selective == Selective::Always,
        }
    }
}

/// The options of a SYN or SYN|ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// The maximum payload, in bytes, that the sender accepts in one packet.
    pub largest_payload: Option<u16>,
    /// The sender's window.
    pub window: Option<Window>,
    /// The version of the protocol that the sender speaks.
    pub version: Option<u8>,
    /// The largest window that a [`Grant`](super::Grant) may give the sender; 0 for no grants.
    pub largest_grant: u16,
    /// The ends of a mapped connection; in a SYN only.
    pub mapped: Option<Mapped>,
    /// The kind of records that the sender accepts; `None` if the connection has no records.
    pub records: Option<Kind>,
    /// Whether the sender accepts skips: see [`Header::is_skip`](super::Header::is_skip).
    pub takes_skips: bool,
    /// Whether the sender supports requests that name packets: see
    /// [`Header::names_missing`](super::Header::names_missing).
    pub selective: bool,
    /// Whether the sender makes its announcements short when it is not allowed to send packets
    /// directly after an announcement.
    pub announces_short: bool,
    /// Whether many connections are open at the sender's device. If so, announcements to the sender
    /// are short until it grants more.
    pub crowded: bool,
    /// The sender's nonce for checksum masks.
    pub nonce: Option<u32>,
}

impl Options {
    /// Returns the options that are assumed for a peer whose SYN was not kept.
    pub fn forgotten() -> Self {
        Self {
            largest_payload: Some(COMMON_PAYLOAD),
            window: None,
            version: None,
            largest_grant: 0,
            mapped: None,
            records: None,
            takes_skips: false,
            selective: false,
            announces_short: false,
            crowded: false,
            nonce: None,
        }
    }

    /// Returns the option with which a host accepts records of the kind `records`.
    pub fn emit_records(records: Kind) -> [u8; RECORDS_LEN] {
        let channel = if records.is_channel { CHANNEL } else { 0 };
        let [r0, r1, r2, r3] = (records.largest & !CHANNEL | channel).to_be_bytes();
        [kind::RECORDS, 4, r0, r1, r2, r3]
    }

    /// Returns the option with a nonce.
    pub fn emit_nonce(nonce: u32) -> [u8; NONCE_LEN] {
        let [n0, n1, n2, n3] = nonce.to_be_bytes();
        [kind::NONCE, 4, n0, n1, n2, n3]
    }

    /// Returns the options of a host with the parameters `config`, whose device carries `payload`
    /// bytes in one packet.
    pub fn emit(payload: u32, config: &Config) -> [u8; OPTIONS_LEN] {
        Self::emit_advertised(payload, Advertised::of(config))
    }

    /// Returns the options of a host that advertises `told`, like [`emit`](Self::emit).
    pub fn emit_advertised(payload: u32, told: Advertised) -> [u8; OPTIONS_LEN] {
        let payload = u16::try_from(payload).unwrap_or(u16::MAX);
        let [p0, p1] = payload.to_be_bytes();
        let [b0, b1] = told.window.burst_length.to_be_bytes();
        let [i0, i1] = told.window.initial_ack_burst_length.to_be_bytes();
        let largest = told.largest_grant;
        let narrow = u8::try_from(largest).unwrap_or(u8::MAX);
        let wide = if largest > MOST_NARROW {
            u8::try_from(largest / WIDE_UNIT).unwrap_or(u8::MAX)
        } else {
            0
        };
        [
            kind::VERSION,
            1,
            VERSION,
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
            kind::GRANTS,
            1,
            narrow,
            kind::CAPABILITIES,
            2,
            wide,
            TAKES_SKIPS | ANNOUNCES_SHORT | if told.selective { SELECTIVE } else { 0 },
        ]
    }

    /// Adds the capability `CROWDED` to `options`, because many connections send to this host's
    /// device.
    pub fn crowded(mut options: [u8; OPTIONS_LEN]) -> [u8; OPTIONS_LEN] {
        let [.., bits] = &mut options;
        *bits |= CROWDED;
        options
    }

    /// Reads the payload of a SYN or SYN|ACK. If an option is repeated, the last one counts.
    pub fn parse(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        let mut wide = 0;
        while let [kind, len, rest @ ..] = bytes {
            let Some((value, behind)) = rest.split_at_checked((*len).into()) else {
                break;
            };
            match (*kind, value) {
                (kind::LARGEST_PAYLOAD, &[p0, p1]) => {
                    let payload = u16::from_be_bytes([p0, p1]);
                    options.largest_payload = Some(payload.max(LEAST_PAYLOAD));
                }
                (kind::WINDOW, &[b0, b1, i0, i1]) => {
                    let burst_length = u16::from_be_bytes([b0, b1]).clamp(1, LARGEST_WINDOW);
                    options.window = Some(Window {
                        burst_length,
                        initial_ack_burst_length: u16::from_be_bytes([i0, i1]).min(burst_length),
                    });
                }
                (kind::VERSION, &[version]) => options.version = Some(version),
                (kind::GRANTS, &[packets]) => options.largest_grant = packets.into(),
                (kind::RECORDS, &[r0, r1, r2, r3]) => {
                    let value = u32::from_be_bytes([r0, r1, r2, r3]);
                    options.records = Some(Kind {
                        largest: (value & !CHANNEL).max(LEAST_RECORD),
                        is_channel: value & CHANNEL != 0,
                    });
                }
                (kind::CAPABILITIES, &[units, bits]) => {
                    wide = u16::from(units).saturating_mul(WIDE_UNIT);
                    options.takes_skips = bits & TAKES_SKIPS != 0;
                    options.selective = bits & SELECTIVE != 0;
                    options.announces_short = bits & ANNOUNCES_SHORT != 0;
                    options.crowded = bits & CROWDED != 0;
                }
                (kind::NONCE, &[n0, n1, n2, n3]) => {
                    options.nonce = Some(u32::from_be_bytes([n0, n1, n2, n3]));
                }
                (kind::MAPPED, value) => match Mapped::parse(value) {
                    Some(mapped) => options.mapped = Some(mapped),
                    None => break,
                },
                (
                    kind::LARGEST_PAYLOAD
                    | kind::WINDOW
                    | kind::VERSION
                    | kind::GRANTS
                    | kind::RECORDS
                    | kind::CAPABILITIES
                    | kind::NONCE,
                    _,
                ) => break,
                _ => {}
            }
            bytes = behind;
        }
        // Narrow grants to a sender with a larger `initial_ack_burst_length` may have the bit of
        // wide ones.
        let start = options.window.map(|window| window.initial_ack_burst_length);
        let has_room = start.is_some_and(|start| start <= MOST_WIDE_START.into());
        if options.largest_grant > 0 && wide > MOST_NARROW && has_room {
            options.largest_grant = wide;
        }
        options
    }
}
