// SPDX-License-Identifier: GPL-2.0-only

//! Remembers the frames that the hosts send to each other. From these, infers the state of the
//! socket that receives a frame.

use std::collections::HashMap;

use fastrand::Rng;

use crate::fuzz::mutation::Numbers;
use crate::fuzz::world::{World, PORTS, VACANT};
use crate::fuzz::wrap::Wrap;
use guest::control::receive_into;
use guest::packet_ring::FRAME_MAX;
use guest::prelude::*;

/// The state of the socket that receives a frame, as far as earlier frames reveal it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// A listener, or a connection that a listener has just made.
    Listening,
    /// A connection whose client has sent a SYN.
    Connecting,
    /// A connection whose ends have both sent a SYN.
    Transferring,
    /// A connection of which one end has sent a FIN.
    Closing,
    /// A connection of which one end has sent a RST.
    Reset,
    /// A datagram socket.
    Datagrams,
    /// There is no socket.
    Nobody,
}

impl State {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Listening,
        Self::Connecting,
        Self::Transferring,
        Self::Closing,
        Self::Reset,
        Self::Datagrams,
        Self::Nobody,
    ];
}

/// The state of one side of a connection, as the packets that it has sent so far reveal it.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    opened: bool,
    ended: bool,
    /// The sequence number of this side's next packet.
    next: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct Talk {
    /// The two halves of the connection, of host a and of host b.
    halves: [Half; 2],
    reset: bool,
}

/// A valid frame that one of the two hosts sent to the other.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The whole frame, without the headers around it.
    pub frame: Vec<u8>,
    /// The headers around the frame.
    pub wrap: Wrap,
    /// Whether the frame was sent to host b, rather than to host a.
    pub to_b: bool,
}

/// The number of frames that are remembered.
const MEMORY: usize = 4096;
/// The number of connections that are remembered.
const TALKS: usize = 16_384;

/// The most recent valid frames, and the state of each connection as its frames reveal it.
#[derive(Debug, Default)]
pub struct Memory {
    talks: HashMap<(Wrap, u16, u16), Talk>,
    seen: Vec<Seen>,
    next: usize,
}

/// Returns the key of a connection: the headers around its frames, a's port and b's port.
fn ends(header: &EspHeader, seen: &Seen) -> (Wrap, u16, u16) {
    if seen.to_b {
        (seen.wrap, header.source, header.destination)
    } else {
        (seen.wrap, header.destination, header.source)
    }
}

impl Memory {
    /// Remembers a valid frame.
    pub fn note(&mut self, seen: &Seen) {
        if let Some(header) = EspHeader::of_frame(&seen.frame) {
            if self.talks.len() > TALKS {
                self.talks.clear();
            }
            let talk = self.talks.entry(ends(&header, seen)).or_default();
            let opens = header.flags & flag::SYN != 0;
            if opens && header.flags & flag::ACK == 0 {
                // An earlier connection may have had the same ports, so the state starts anew.
                *talk = Talk::default();
            }
            let half = &mut talk.halves[usize::from(!seen.to_b)];
            half.opened |= opens;
            half.ended |= header.flags & flag::FIN != 0;
            let takes = header.length > 0 || header.flags & (flag::SYN | flag::FIN) != 0;
            half.next = header.sequence.wrapping_add(u16::from(takes));
            talk.reset |= header.flags & flag::RST != 0;
        }
        if self.seen.len() < MEMORY {
            self.seen.push(seen.clone());
        } else {
            self.seen[self.next] = seen.clone();
            self.next = (self.next + 1) % MEMORY;
        }
    }

    /// Returns the state of the frame's receiving socket, and the numbers that this socket would
    /// accept.
    pub fn target(&self, seen: &Seen) -> (State, Numbers) {
        let kind = seen.frame.get(12..14).unwrap_or_default();
        if kind == ETH_P_EDP.to_be_bytes() {
            return (State::Datagrams, Numbers::default());
        }
        let Some(header) = EspHeader::of_frame(&seen.frame) else {
            return (State::Nobody, Numbers::default());
        };
        let listens = PORTS.contains(&header.destination) && header.destination != VACANT;
        let Some(talk) = self.talks.get(&ends(&header, seen)) else {
            let state = if listens {
                State::Listening
            } else {
                State::Nobody
            };
            return (state, Numbers::default());
        };
        let [sender, receiver] =
            if seen.to_b { [0, 1] } else { [1, 0] }.map(|side: usize| talk.halves[side]);
        let state = match (sender.opened, receiver.opened) {
            _ if talk.reset => State::Reset,
            _ if sender.ended || receiver.ended => State::Closing,
            (true, true) => State::Transferring,
            (false, true) => State::Connecting,
            _ if listens => State::Listening,
            _ => State::Nobody,
        };
        let numbers = Numbers {
            sequence: sender.next,
            acknowledgement: receiver.next,
        };
        (state, numbers)
    }

    /// Returns a possible answer of the frame's receiver: an acknowledgement, or a SYN|ACK to a
    /// SYN.
    pub fn answer(&self, seen: &Seen) -> Option<Seen> {
        let header = EspHeader::of_frame(&seen.frame)?;
        let talk = self.talks.get(&ends(&header, seen))?;
        let answerer = talk.halves[usize::from(seen.to_b)];
        let opens = header.flags & flag::SYN != 0 && !answerer.opened;
        let takes = header.length > 0 || header.flags & (flag::SYN | flag::FIN) != 0;
        let answer = EspHeader {
            source: header.destination,
            destination: header.source,
            length: 0,
            sequence: answerer.next,
            acknowledgement: header.sequence.wrapping_add(u16::from(takes)),
            flags: if opens {
                flag::SYN | flag::ACK
            } else {
                flag::ACK
            },
        };
        let mut frame = seen.frame[6..12].to_vec();
        frame.extend_from_slice(&seen.frame[..6]);
        frame.extend_from_slice(&ETH_P_ESP.to_be_bytes());
        frame.extend(answer.packet(&[]));
        Some(Seen {
            frame,
            wrap: seen.wrap,
            to_b: !seen.to_b,
        })
    }

    /// Returns a random remembered frame, with a preference for recent ones.
    pub fn any(&self, rng: &mut Rng) -> Option<&Seen> {
        let count = self.seen.len();
        if count == 0 {
            return None;
        }
        let ago = rng.usize(..count).min(rng.usize(..count)) + 1;
        let newest = if count < MEMORY {
            count
        } else {
            self.next + MEMORY
        };
        self.seen.get((newest - ago) % MEMORY.min(count))
    }
}

const PACKET_AUXDATA: i32 = 8; // <linux/if_packet.h>

/// Makes a packet socket report each frame's VLAN tag, which the kernel removes from the frame.
///
/// # Errors
/// If the kernel refuses.
pub fn tell_tags(port: &PacketSocket) -> Result<()> {
    (port.socket())
        .set_int_option(libc::SOL_PACKET, PACKET_AUXDATA, 1)
        .context("PACKET_AUXDATA")
}

/// Receives the next frame, and puts its VLAN tag back in place.
fn take(port: &PacketSocket) -> Option<Vec<u8>> {
    const VALID: u32 = 1 << 4; // TP_STATUS_VLAN_VALID
    let mut buffer = [0; FRAME_MAX];
    let (length, _, controls) =
        receive_into(port.socket(), &mut buffer, libc::MSG_DONTWAIT, usize::MAX).ok()?;
    let mut frame = buffer[..length].to_vec();
    let told = controls
        .iter()
        .find(|control| (control.level, control.kind) == (libc::SOL_PACKET, PACKET_AUXDATA));
    // struct tpacket_auxdata begins with the status, and ends with the tag and its type.
    if let Some([a, b, c, d, .., e, f, g, h]) = told.map(|control| &control.data[..]) {
        if u32::from_ne_bytes([*a, *b, *c, *d]) & VALID != 0 && length >= 12 {
            let (tag, kind) = (u16::from_ne_bytes([*e, *f]), u16::from_ne_bytes([*g, *h]));
            frame.splice(12..12, [kind.to_be_bytes(), tag.to_be_bytes()].concat());
        }
    }
    Some(frame)
}

/// Receives frames from a port of the wire. Returns the frames of the module's protocols, except
/// frames from the honest host. Passes frames for the honest host to `theirs`.
pub fn listen(
    port: &PacketSocket,
    to_b: bool,
    honest: [u8; 6],
    most: usize,
    mut theirs: impl FnMut(&[u8]),
) -> Vec<Seen> {
    let mut frames = Vec::new();
    while frames.len() < most {
        let Some(frame) = take(port) else {
            break;
        };
        if frame.starts_with(&honest) {
            theirs(&World::without_honest_tag(frame));
            continue;
        }
        let Some((wrap, frame)) = Wrap::peel(&frame) else {
            continue;
        };
        let ours = [ETH_P_EDP, ETH_P_ESP]
            .iter()
            .any(|kind| frame.get(12..14) == Some(&kind.to_be_bytes()));
        if ours && frame[6..12] != honest {
            frames.push(Seen { frame, wrap, to_b });
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::world::ACCEPTED;
    use guest::frame::ethernet;

    fn frame(to_b: bool, flags: u8, sequence: u16) -> Seen {
        let (source, destination) = if to_b {
            (50_000, ACCEPTED)
        } else {
            (ACCEPTED, 50_000)
        };
        let header = EspHeader {
            source,
            destination,
            length: 0,
            sequence,
            acknowledgement: 0,
            flags,
        };
        Seen {
            frame: ethernet([2; 6], [4; 6], ETH_P_ESP, &header.packet(&[])),
            wrap: Wrap::Bare,
            to_b,
        }
    }

    #[test]
    fn a_connections_state_is_told_from_its_frames() {
        let mut memory = Memory::default();
        let there = frame(true, flag::ACK, 0);
        let back = frame(false, flag::ACK, 0);
        assert_eq!(memory.target(&there).0, State::Listening);
        memory.note(&frame(true, flag::SYN, 10));
        assert_eq!(memory.target(&there).0, State::Listening);
        assert_eq!(memory.target(&back).0, State::Connecting);
        let answer = memory.answer(&frame(true, flag::SYN, 10)).unwrap();
        let header = EspHeader::of_frame(&answer.frame).unwrap();
        assert_eq!(header.flags, flag::SYN | flag::ACK);
        assert_eq!((header.destination, header.acknowledgement), (50_000, 11));
        assert_eq!(memory.target(&answer).0, State::Connecting);
        memory.note(&frame(false, flag::SYN | flag::ACK, 20));
        let (state, numbers) = memory.target(&there);
        assert_eq!(state, State::Transferring);
        assert_eq!((numbers.sequence, numbers.acknowledgement), (11, 21));
        memory.note(&frame(true, flag::FIN | flag::ACK, 11));
        assert_eq!(memory.target(&back).0, State::Closing);
        memory.note(&frame(false, flag::RST, 21));
        assert_eq!(memory.target(&there).0, State::Reset);
        // A new connection begins with the same ports.
        memory.note(&frame(true, flag::SYN, 99));
        assert_eq!(memory.target(&back).0, State::Connecting);
        assert!(memory.any(&mut Rng::with_seed(1)).is_some());
    }
}
