// SPDX-License-Identifier: GPL-2.0

//! Checksum masks. With a mask, the checksum of a packet fails if the packet is from another wrap
//! of the numbers, or from an earlier connection between the same ports.
//!
//! Numbers have 16 bits and wrap in 8 ms at 100 Gbit/s. So a late or repeated frame may carry the
//! next expected number. If both ends of a connection sent a *nonce*, the connection's numbers have
//! 32 bits, of which packets carry only the lower 16:
//!
//! * Each end sends 32 random bits, its nonce, in its SYN or SYN|ACK. Each direction has a *key*,
//!   which is computed from both nonces.
//! * Each end counts how often the numbers of both directions have wrapped. For an arriving number,
//!   the end chooses the count with which the number's 32-bit value is nearest to the expected
//!   32-bit value.
//! * The *mask* is computed from the direction's key and two counts of 16 bits each: how often the
//!   sequence number has wrapped, and how often the acknowledgement number has wrapped. For a given
//!   key, different counts always give different masks.
//! * The checksum on the wire is the exclusive or of the packet's CRC32c and its mask. So a host
//!   can compute a packet's mask, and merge packets with equal masks, even without knowing the
//!   connection. Masks do not weaken the detection of corruption, because a CRC is linear.
//! * SYN and SYN|ACK have the mask 0. If one end sends no nonce, all packets have the mask 0. For
//!   instance, a listener that answers with a cookie sends no nonce.
//! * A host that does not know the connection answers a packet with a RST that has the packet's own
//!   mask. So the RST proves that its sender has seen the packet.

use super::seq::Seq;
use super::wire::{flags, Header};

/// How often the numbers of a packet have wrapped since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wraps {
    /// The number of wraps of the sequence number.
    pub(super) seq: u16,
    /// The number of wraps of the acknowledgement number.
    pub(super) ack: u16,
}

/// The keys of the two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Keys {
    tx: u32,
    rx: u32,
}

/// The nonce and the keys of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Masks {
    /// This end's nonce.
    own: Option<u32>,
    /// The keys; `None` until the peer's nonce is known.
    keys: Option<Keys>,
    /// The mask of the most recent packet from another connection. The RST that answers the packet
    /// has this mask.
    other: u32,
}

impl Masks {
    /// Sets this end's nonce.
    pub(super) fn use_nonce(&mut self, nonce: u32) {
        self.own = Some(nonce);
    }

    /// Returns this end's nonce.
    pub(super) fn own(&self) -> Option<u32> {
        self.own
    }

    /// Returns whether packets have masks.
    #[inline]
    pub(super) fn are_enabled(&self) -> bool {
        self.keys.is_some()
    }

    /// Computes the keys from both nonces, if the peer sent its nonce.
    pub(super) fn take(&mut self, nonce: Option<u32>) {
        let ends = self.own.zip(nonce);
        self.keys = ends.map(|(own, other)| Keys {
            tx: key(own, other),
            rx: key(other, own),
        });
    }

    /// Ends the use of masks, because the peer does not know our nonce.
    pub(super) fn end(&mut self) {
        self.keys = None;
    }

    /// Notes the mask of a packet from another connection.
    pub(super) fn note_other(&mut self, mask: u32) {
        self.other = mask;
    }

    /// Returns the mask of a packet that is sent.
    #[inline]
    pub(super) fn tx_mask(&self, header: &Header, wraps: impl FnOnce() -> Wraps) -> u32 {
        match self.keys {
            Some(keys) if !header.has(flags::SYN) => mask(keys.tx, wraps()),
            None if header.is_stateless_reset() => self.other,
            _ => 0,
        }
    }

    /// Returns the mask of an arriving packet whose sender knows the connection.
    #[inline]
    pub(super) fn rx_mask(&self, header: &Header, wraps: impl FnOnce() -> Wraps) -> u32 {
        match self.keys {
            Some(keys) if !header.has(flags::SYN) => mask(keys.rx, wraps()),
            _ => 0,
        }
    }

    /// Returns the mask of a packet that was sent and is no SYN.
    pub(super) fn of_sent(&self, wraps: Wraps) -> u32 {
        self.keys.map_or(0, |keys| mask(keys.tx, wraps))
    }
}

/// How often one direction's numbers have wrapped when they reach a reference number, which only
/// advances. The count is the upper half of a 32-bit number whose lower half is a [`Seq`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Wrapped(u16);

impl Wrapped {
    /// Returns the number after that of a SYN, and the count at this number.
    pub(super) const fn behind_syn(syn: Seq) -> (Seq, Self) {
        let first = syn.add(1);
        (first, Self(0).advanced(syn, first))
    }

    /// Returns the count after the reference number advances from `from` to `to`.
    #[inline]
    #[must_use]
    pub(super) const fn advanced(self, from: Seq, to: Seq) -> Self {
        Self(self.0.wrapping_add((to.0 < from.0) as u16))
    }

    /// Returns the number of times that numbers have wrapped at `seq`. Of all 32-bit numbers that
    /// end in `seq`, the function uses the one nearest to the reference number.
    #[inline]
    pub(super) const fn count_at(self, reference: Seq, seq: Seq) -> u16 {
        let ahead = reference.distance(seq) as i16;
        let wide = ((self.0 as u32) << 16) | reference.0 as u32;
        (wide.wrapping_add(ahead as u32) >> 16) as u16
    }
}

/// Returns the key of the direction from the end with the nonce `from` to the end with the nonce
/// `to`.
fn key(from: u32, to: u32) -> u32 {
    scramble(scramble(from) ^ to)
}

/// Returns the mask. With the same `key`, different `wraps` have different masks.
#[inline]
fn mask(key: u32, wraps: Wraps) -> u32 {
    scramble(key ^ ((u32::from(wraps.seq) << 16) | u32::from(wraps.ack)))
}

/// Computes a bijection in which every output bit depends on every input bit: the finaliser of
/// MurmurHash3 (x86, 32 bits).
#[inline]
const fn scramble(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}
