// SPDX-License-Identifier: GPL-2.0

//! Masks of sums: a packet of another wrap of the numbers, or of an earlier connection between the
//! same ports, fails its sum.
//!
//! Numbers have 16 bits and wrap in 8 ms at 100 Gbit/s, so a frame that is late or repeated may
//! carry the number that is expected next. A connection whose ends both told a *nonce* has numbers
//! of 32 bits, of which the upper halves do not leave:
//!
//! * Either end tells 32 random bits, its nonce, in its SYN or SYN|ACK. Each direction has a *key*
//!   of both nonces.
//! * Each end counts how often the numbers of both directions have wrapped. The number nearest to
//!   the one that is expected tells the count, as it tells the number itself.
//! * The *mask* is a bijection of the wraps of the sequence number and of the acknowledgement
//!   number, 16 bits each, under the direction's key. Two packets of a connection have different
//!   masks if one of these wraps differs.
//! * The sum on the wire is the CRC32c of the packet, with the mask added to it (exclusive or). Sum
//!   and CRC32c of a packet give its mask back, so packets can be joined by whoever does not know
//!   the connection: if their masks are equal. What changes on the path is found as without masks:
//!   a CRC is linear.
//! * SYN and SYN|ACK have the mask 0. So have all packets if one end tells no nonce, as a listener
//!   that sends a cookie.
//! * The RST of a host that does not know the connection has the mask of the packet that it
//!   answers: no other host has seen that.

use super::seq::Seq;
use super::wire::{flags, Header};

/// How often the numbers of a packet have wrapped since the connection's first ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wraps {
    /// Those of the direction that the packet goes.
    pub(super) seq: u16,
    /// Those of the other direction.
    pub(super) ack: u16,
}

/// The keys of the two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Keys {
    tx: u32,
    rx: u32,
}

/// The nonces of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Masks {
    /// The own nonce.
    own: Option<u32>,
    /// Once the peer has told its own.
    keys: Option<Keys>,
    /// The mask of a packet of another connection, which is answered with RST.
    other: u32,
}

impl Masks {
    /// This end tells `nonce`.
    pub(super) fn use_nonce(&mut self, nonce: u32) {
        self.own = Some(nonce);
    }

    /// The own nonce.
    pub(super) fn own(&self) -> Option<u32> {
        self.own
    }

    /// Whether packets have masks.
    #[inline]
    pub(super) fn are_enabled(&self) -> bool {
        self.keys.is_some()
    }

    /// The peer has told `nonce`, or none.
    pub(super) fn take(&mut self, nonce: Option<u32>) {
        let ends = self.own.zip(nonce);
        self.keys = ends.map(|(own, other)| Keys {
            tx: key(own, other),
            rx: key(other, own),
        });
    }

    /// The peer does not know the own nonce.
    pub(super) fn end(&mut self) {
        self.keys = None;
    }

    /// A packet of another connection has this mask.
    pub(super) fn note_other(&mut self, mask: u32) {
        self.other = mask;
    }

    /// The mask of a packet that is sent.
    #[inline]
    pub(super) fn tx_mask(&self, header: &Header, wraps: impl FnOnce() -> Wraps) -> u32 {
        match self.keys {
            Some(keys) if !header.has(flags::SYN) => mask(keys.tx, wraps()),
            None if header.is_stateless_reset() => self.other,
            _ => 0,
        }
    }

    /// The mask that a packet which arrives is to have, if its sender knows the connection.
    #[inline]
    pub(super) fn rx_mask(&self, header: &Header, wraps: impl FnOnce() -> Wraps) -> u32 {
        match self.keys {
            Some(keys) if !header.has(flags::SYN) => mask(keys.rx, wraps()),
            _ => 0,
        }
    }

    /// The mask of a packet that was sent, which was no SYN.
    pub(super) fn of_sent(&self, wraps: Wraps) -> u32 {
        self.keys.map_or(0, |keys| mask(keys.tx, wraps))
    }
}

/// How often the numbers of a direction have wrapped at a number that only advances: the upper half
/// of the number of 32 bits, of which a [`Seq`] is the lower one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Wrapped(u16);

impl Wrapped {
    /// The number has advanced from `from` to `to`.
    #[inline]
    #[must_use]
    pub(super) const fn advanced(self, from: Seq, to: Seq) -> Self {
        Self(self.0.wrapping_add((to.0 < from.0) as u16))
    }

    /// How often numbers have wrapped at `seq`, of all such numbers the one nearest to `here`,
    /// where this counts.
    #[inline]
    pub(super) const fn at(self, here: Seq, seq: Seq) -> u16 {
        let ahead = here.distance(seq) as i16;
        let wide = ((self.0 as u32) << 16) | here.0 as u32;
        (wide.wrapping_add(ahead as u32) >> 16) as u16
    }
}

/// The key of the direction from the side with the nonce `from`.
fn key(from: u32, to: u32) -> u32 {
    scramble(scramble(from) ^ to)
}

/// A bijection of the wraps.
#[inline]
fn mask(key: u32, wraps: Wraps) -> u32 {
    scramble(key ^ ((u32::from(wraps.seq) << 16) | u32::from(wraps.ack)))
}

/// A bijection whose every output bit depends on every input bit: the end of MurmurHash3 (x86, 32
/// bits).
#[inline]
const fn scramble(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}
