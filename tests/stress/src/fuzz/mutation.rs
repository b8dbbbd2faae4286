// SPDX-License-Identifier: GPL-2.0-only

//! Changes valid frames so that they become hostile.

use fastrand::Rng;

use crate::fuzz::puts;
use crate::fuzz::world::PORTS;
use guest::channel::{header, HEADER, PUT, SEND};
use guest::frame::edp;
use guest::packet_ring::FRAME_MAX;
use guest::prelude::*;

/// A way to make a frame hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// The frame has changed flags.
    Flags,
    /// The frame has a wrong length field.
    Length,
    /// The frame has a changed sequence number.
    Sequence,
    /// The frame has a changed acknowledgement number.
    Acknowledgement,
    /// A random packet whose sequence and acknowledgement numbers are right or nearly right.
    Forged,
    /// The frame has changed ports.
    Ports,
    /// The frame is shortened.
    Truncated,
    /// The frame has additional bytes at its end.
    Extended,
    /// A changed destination: a group, an absent station, or the sender.
    Destination,
    /// A changed source: a group, an absent station, or the receiver itself.
    Source,
    /// A changed ethertype, or a length in its place.
    Type,
    /// The frame has one or two additional VLAN tags.
    Tagged,
    /// Some bits of the frame are flipped.
    Bits,
    /// The frame has a changed payload.
    Payload,
    /// The frame has a changed header of a message of a channel.
    Message,
    /// An earlier valid frame, sent again unchanged.
    Replayed,
    /// The same frame is sent several times.
    Repeated,
    /// A frame that is forwarded after later frames.
    Late,
    /// A SYN or datagram, from the sender or a random source.
    Opening,
    /// The same frame in different tags or a different tunnel.
    Wrapped,
    /// The frame inside tags or a tunnel whose headers are wrong, or inside two tunnels.
    Miswrapped,
    /// The next packet of the honest host, in another host's tags or tunnel.
    Foreign,
}

impl Mutation {
    /// All ways to make a frame hostile.
    pub const ALL: [Self; 22] = [
        Self::Flags,
        Self::Length,
        Self::Sequence,
        Self::Acknowledgement,
        Self::Forged,
        Self::Ports,
        Self::Truncated,
        Self::Extended,
        Self::Destination,
        Self::Source,
        Self::Type,
        Self::Tagged,
        Self::Bits,
        Self::Payload,
        Self::Message,
        Self::Replayed,
        Self::Repeated,
        Self::Late,
        Self::Opening,
        Self::Wrapped,
        Self::Miswrapped,
        Self::Foreign,
    ];

    /// Returns a random kind except [`Self::Late`], because only the code that forwards valid
    /// frames applies that kind.
    pub fn any(rng: &mut Rng) -> Self {
        loop {
            let one = Self::ALL[rng.usize(..Self::ALL.len())];
            if one != Self::Late {
                return one;
            }
        }
    }
}

/// The sequence and acknowledgement numbers with which a receiver would accept a packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    /// The sequence number that the receiver expects next.
    pub sequence: u16,
    /// The sequence number that follows the most recent packet that the receiver has sent.
    pub acknowledgement: u16,
}

// Offsets of the fields in a frame.
const SOURCE_PORT: usize = 14;
const DESTINATION_PORT: usize = 16;
const LENGTH: usize = 18;
const SEQUENCE: usize = 20;
const ACKNOWLEDGEMENT: usize = 22;
const FLAGS: usize = 24;
const PAYLOAD: usize = 25;

const GROUPS: [[u8; 6]; 5] = [
    [0xff; 6],
    [0x01, 0, 0x5e, 0, 0, 1],
    [0x33, 0x33, 0, 0, 0, 1],
    // Bridges do not forward frames to these reserved addresses.
    [0x01, 0x80, 0xc2, 0, 0, 0],
    [0x01, 0x80, 0xc2, 0, 0, 0x0e],
];

fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

fn get(frame: &[u8], at: usize) -> u16 {
    frame
        .get(at..at + 2)
        .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Returns a number that is close to `right` in most cases. Sometimes the number is random, and
/// sometimes it is `right` plus half of the number space.
fn near(right: u16, rng: &mut Rng) -> u16 {
    match rng.u8(..8) {
        0..=3 => right.wrapping_add_signed(rng.i16(-3..=3)),
        4 | 5 => right.wrapping_add_signed(rng.i16(-64..=64)),
        6 => right
            .wrapping_add(0x8000)
            .wrapping_add_signed(rng.i16(-2..=2)),
        _ => rng.u16(..),
    }
}

fn garbage(length: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    bytes
}

/// Returns a payload length: often a short one, sometimes the largest possible.
fn some_length(rng: &mut Rng) -> usize {
    match rng.u8(..8) {
        0..=4 => rng.usize(..64),
        5 | 6 => rng.usize(..1500),
        _ => rng.usize(..FRAME_MAX - 64),
    }
}

/// Returns a group address, the zero address, a random address, or `other`.
fn address(other: [u8; 6], rng: &mut Rng) -> [u8; 6] {
    match rng.u8(..8) {
        0..=3 => GROUPS[rng.usize(..GROUPS.len())],
        4 => [0; 6],
        5 | 6 => other,
        _ => std::array::from_fn(|_| rng.u8(..)),
    }
}

/// Applies `kind` to `frame`. `numbers` are the sequence and acknowledgement numbers with which the
/// receiver would accept `frame`.
pub fn mutate(kind: Mutation, frame: &mut Vec<u8>, numbers: Numbers, rng: &mut Rng) {
    match kind {
        Mutation::Flags => {
            if let Some(flags) = frame.get_mut(FLAGS) {
                *flags = if rng.bool() {
                    *flags ^ (1 << rng.u8(..8))
                } else {
                    rng.u8(..)
                };
            }
        }
        Mutation::Length => {
            let told = get(frame, LENGTH);
            let lie = match rng.u8(..5) {
                0 => told.wrapping_add(1),
                1 => told.wrapping_sub(1),
                2 => 0,
                3 => u16::MAX,
                _ => rng.u16(..),
            };
            put(frame, LENGTH, lie);
        }
        Mutation::Sequence => {
            let right = get(frame, SEQUENCE);
            put(frame, SEQUENCE, near(right, rng));
        }
        Mutation::Acknowledgement => {
            let right = get(frame, ACKNOWLEDGEMENT);
            put(frame, ACKNOWLEDGEMENT, near(right, rng));
        }
        Mutation::Forged => forge(frame, numbers, rng),
        Mutation::Ports => {
            let at = [SOURCE_PORT, DESTINATION_PORT][rng.usize(..2)];
            let port = match rng.u8(..4) {
                0 => 0,
                1 => rng.u16(..),
                _ => PORTS[rng.usize(..PORTS.len())],
            };
            put(frame, at, port);
        }
        Mutation::Truncated => {
            // A packet socket sends at least an Ethernet header.
            let whole = frame.len();
            let least = if rng.bool() { 14 } else { whole.min(26) };
            frame.truncate(rng.usize(least.min(whole)..=whole));
        }
        Mutation::Extended => {
            let room = FRAME_MAX.saturating_sub(frame.len());
            let more = some_length(rng).min(room);
            frame.extend(garbage(more, rng));
        }
        Mutation::Destination => {
            let source: [u8; 6] = frame[6..12].try_into().unwrap_or_default();
            frame[..6].copy_from_slice(&address(source, rng));
        }
        Mutation::Source => {
            let destination: [u8; 6] = frame[..6].try_into().unwrap_or_default();
            frame[6..12].copy_from_slice(&address(destination, rng));
        }
        Mutation::Type => {
            let other = match rng.u8(..5) {
                0 | 1 if get(frame, 12) == ETH_P_EDP => ETH_P_ESP,
                0 | 1 => ETH_P_EDP,
                // A type field below 1536 is a length.
                2 => rng.u16(..1536),
                _ => rng.u16(..),
            };
            put(frame, 12, other);
        }
        Mutation::Tagged => {
            for _ in 0..=rng.u8(..2) {
                let kind = [0x8100u16, 0x88a8][rng.usize(..2)].to_be_bytes();
                // VLAN 0 only carries a priority.
                let tag = [0, rng.u16(..)][rng.usize(..2)].to_be_bytes();
                frame.splice(12..12, kind.into_iter().chain(tag));
            }
            frame.truncate(FRAME_MAX);
        }
        Mutation::Bits => {
            for _ in 0..=rng.u8(..4) {
                // Flip only bits after the addresses, since other mutations change the addresses.
                let end = if rng.bool() {
                    frame.len().min(25)
                } else {
                    frame.len()
                };
                if end > 12 {
                    let at = rng.usize(12..end);
                    frame[at] ^= 1 << rng.u8(..8);
                }
            }
        }
        Mutation::Payload => {
            let header = if get(frame, 12) == ETH_P_ESP { 25 } else { 20 };
            if frame.len() >= header {
                let length = some_length(rng).min(FRAME_MAX - header);
                frame.truncate(header);
                frame.extend(garbage(length, rng));
                put(frame, LENGTH, length as u16);
            }
        }
        Mutation::Message => misdirect(frame, numbers, rng),
        Mutation::Opening => open(frame, rng),
        // `Attack` applies these mutations itself, because they repeat, delay or wrap a frame.
        Mutation::Replayed
        | Mutation::Repeated
        | Mutation::Late
        | Mutation::Wrapped
        | Mutation::Miswrapped
        | Mutation::Foreign => {}
    }
}

/// Makes a packet with random flags and a random length, whose sequence and acknowledgement numbers
/// are right or nearly right.
fn forge(frame: &mut Vec<u8>, numbers: Numbers, rng: &mut Rng) {
    let Some(header) = EspHeader::of_frame(frame) else {
        return mutate(Mutation::Payload, frame, numbers, rng);
    };
    let payload = garbage([0, some_length(rng)][rng.usize(..2)], rng);
    let flags = match rng.u8(..8) {
        0 => flag::RST | flag::ACK,
        1 => flag::RST,
        2 => flag::FIN | flag::ACK,
        3 => flag::ACK | flag::RRQ,
        4 => flag::ACK | flag::TXS,
        5 => flag::ACK | rng.u8(..) & (flag::TXS | flag::TXF),
        6 => flag::SYN | flag::ACK,
        _ => rng.u8(..),
    };
    let close = |right: u16, rng: &mut Rng| {
        right.wrapping_add_signed([0, 0, rng.i16(-2..=25)][rng.usize(..3)])
    };
    let forged = EspHeader {
        length: payload.len() as u16,
        sequence: close(numbers.sequence, rng),
        acknowledgement: close(numbers.acknowledgement, rng),
        flags,
        ..header
    };
    // Half of the packets get a correct checksum, so that the receiver also runs the code that
    // follows its check of the checksum.
    let mask = header.mask_in(frame).unwrap_or(0);
    frame.truncate(14);
    frame.extend(if rng.bool() {
        forged.masked_packet(&payload, mask)
    } else {
        forged.packet(&payload)
    });
}

/// Changes the header of a message, with which a packet of a channel may begin. The new header has
/// another operation, other flags or another key, or it names a place near the end of the region or
/// of the number space, or all of it is random. A packet without such a header gets one, and the
/// numbers with which the receiver would accept it. The checksum is right.
fn misdirect(frame: &mut Vec<u8>, numbers: Numbers, rng: &mut Rng) {
    let Some(mut header) = EspHeader::of_frame(frame) else {
        return mutate(Mutation::Payload, frame, numbers, rng);
    };
    let mask = header.mask_in(frame).unwrap_or(0);
    // A checksum may follow the payload.
    let room = FRAME_MAX - PAYLOAD - 4;
    let length = usize::from(header.length).min(room);
    let mut payload = match frame.get(PAYLOAD..PAYLOAD + length) {
        Some(bytes) if length >= HEADER => bytes.to_vec(),
        _ => {
            let more = garbage(some_length(rng).min(room - HEADER), rng);
            header.length = (HEADER + more.len()) as u16;
            header.sequence = numbers.sequence;
            header.acknowledgement = numbers.acknowledgement;
            header.flags = flag::ACK | rng.u8(..) & (flag::TXS | flag::TXF);
            [message(rng), more].concat()
        }
    };
    match rng.u8(..6) {
        0 => payload[0] = rng.u8(..4),
        1 => payload[1] ^= 1 << rng.u8(..8),
        2 => payload[rng.usize(8..16)] ^= 1 << rng.u8(..8),
        3 => {
            let near = (puts::LENGTH as u64).wrapping_add_signed(rng.i64(-2_000..=40));
            payload[16..HEADER].copy_from_slice(&near.to_be_bytes());
        }
        4 => payload[16..HEADER].copy_from_slice(&(u64::MAX - rng.u64(..2_000)).to_be_bytes()),
        _ => rng.fill(&mut payload[..HEADER]),
    }
    frame.truncate(14);
    frame.extend(header.masked_packet(&payload, mask));
}

/// Makes the header of a message to an unknown region.
fn message(rng: &mut Rng) -> Vec<u8> {
    let operation = [SEND, PUT][rng.usize(..2)];
    let (key, offset) = (rng.u64(..), rng.u64(..puts::LENGTH as u64));
    header(operation, rng.u8(..2), rng.u32(..), key, offset)
}

/// Makes a SYN, or a datagram, from the sender or from a stranger, to a random port.
fn open(frame: &mut Vec<u8>, rng: &mut Rng) {
    let to: [u8; 6] = frame[..6].try_into().unwrap_or_default();
    let mut from: [u8; 6] = frame[6..12].try_into().unwrap_or_default();
    if rng.bool() {
        from = [2, 0, 0, 1, 0, rng.u8(..16)];
    }
    let source = [rng.u16(..), rng.u16(..32)][rng.usize(..2)];
    let destination = PORTS[rng.usize(..PORTS.len())];
    if rng.u8(..8) == 0 {
        // EDP has no opening packet, so this is a datagram. It is an echo request if it goes to
        // port 0.
        let payload = garbage(some_length(rng), rng);
        let destination = [0, destination][rng.usize(..2)];
        let packet = edp(source, destination, payload.len() as u16, &payload);
        *frame = ethernet(to, from, ETH_P_EDP, &packet);
        if destination == 0 && frame.len() > 20 {
            frame[20] = 1;
        }
        return;
    }
    let options = options(rng);
    let header = EspHeader {
        source,
        destination,
        length: options.len() as u16,
        sequence: rng.u16(..),
        acknowledgement: rng.u16(..),
        flags: [flag::SYN, flag::SYN, flag::ACK, rng.u8(..)][rng.usize(..4)],
    };
    let packet = if rng.u8(..4) == 0 {
        header.summed_packet(&options)
    } else {
        header.packet(&options)
    };
    *frame = ethernet(to, from, ETH_P_ESP, &packet);
}

/// Makes the options of a SYN: none, some known options, the options of a connection with records,
/// or random bytes.
fn options(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..5) {
        4 => [&[9, 4][..], &garbage(4, rng)].concat(),
        0 => Vec::new(),
        1 => garbage(some_length(rng), rng),
        _ => {
            let mut options = Vec::new();
            for _ in 0..rng.u8(..5) {
                let (kind, length) = (rng.u8(..5), [0, 1, 2, 4, rng.u8(..)][rng.usize(..5)]);
                options.extend([kind, length]);
                options.extend(garbage(length.into(), rng));
            }
            options
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_leaves_a_frame_that_can_be_sent() {
        let mut rng = Rng::with_seed(1);
        let header = EspHeader {
            source: PORTS[0],
            destination: PORTS[1],
            length: 5,
            sequence: 7,
            acknowledgement: 9,
            flags: flag::ACK,
        };
        let esp = ethernet([2; 6], [4; 6], ETH_P_ESP, &header.packet(b"bytes"));
        let datagram = ethernet([2; 6], [4; 6], ETH_P_EDP, &edp(1, 2, 3, b"abc"));
        for kind in Mutation::ALL {
            let mut changed = 0;
            for _ in 0..500 {
                for whole in [&esp, &datagram] {
                    let mut frame = whole.clone();
                    mutate(kind, &mut frame, Numbers::default(), &mut rng);
                    assert!((14..=FRAME_MAX).contains(&frame.len()), "{kind:?}");
                    changed += usize::from(frame != *whole);
                }
            }
            let as_it_was = matches!(
                kind,
                Mutation::Replayed
                    | Mutation::Repeated
                    | Mutation::Late
                    | Mutation::Wrapped
                    | Mutation::Miswrapped
                    | Mutation::Foreign
            );
            assert_eq!(changed == 0, as_it_was, "{kind:?}");
        }
    }
}
