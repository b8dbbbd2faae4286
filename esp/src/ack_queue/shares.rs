// SPDX-License-Identifier: GPL-2.0

//! How many packets each sender may have behind an announcement.
//!
//! All of them together may have [`UNSCHEDULED`]: each asks for a share when it needs
//! a turn. An idle connection must not keep its share from the others, so a share
//! lapses: the shares given in the current [`LAPSE`] and in the one before count, and
//! older ones are forgotten. Nobody tells the sender, which may use its last share at
//! any time. So connections that come back together after a pause may send more than
//! [`UNSCHEDULED`] packets, once: with its next turn each of them gets a share of what
//! is left. That may cost a timeout of some 10 ms, which is little beside [`LAPSE`]; a
//! connection without a share loses a round trip.

use super::super::timers::{Nanos, SECOND};

/// Packets that all senders together may have behind announcements: half of what a port with a
/// buffer of 128 KiB takes.
pub const UNSCHEDULED: u16 = 42;

/// Where more connections than these come by a device, one that opens is told so: it announces its
/// first transmission by a [short](SHORT) packet.
pub const CROWD: usize = 8;

/// Bytes of the packet by which a connection without a share announces a transmission of more: as
/// many as the shortest frame has room for. So a port with a buffer of 128 KiB takes the
/// announcements of 1,500 senders at once.
pub const SHORT: usize = 35;

/// A share of [`UNSCHEDULED`] lapses when its connection has not asked for a turn for
/// this long, and at the latest for twice as long.
pub const LAPSE: Nanos = SECOND;

/// The shares of [`UNSCHEDULED`] that count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Shares {
    /// The [`LAPSE`] in which a share was given last, counted from time 0.
    generation: u32,
    /// The shares that were given in it.
    recent: Given,
    /// The shares that were given in the generation before, and not since.
    older: Given,
}

/// Shares that were given in one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Given {
    /// Connections that have one, of 0 packets too.
    connections: u32,
    /// Their sum.
    packets: u16,
}

/// A connection's share of [`UNSCHEDULED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Share {
    packets: u16,
    /// When it was given. It counts in this generation and the next one.
    generation: u32,
}

impl Shares {
    /// Gives a connection a new share, now that so many have one: it takes what the others leave.
    pub(super) fn give(&mut self, share: &mut Option<Share>, now: Nanos) -> u16 {
        self.forget(now);
        self.release(share);
        let Self { recent, older, .. } = self;
        let others = recent.packets.saturating_add(older.packets);
        recent.connections = recent.connections.saturating_add(1);
        let sharing = recent.connections.saturating_add(older.connections);
        let fair = u32::from(UNSCHEDULED).checked_div(sharing);
        let fair = fair.and_then(|fair| u16::try_from(fair).ok()).unwrap_or(0);
        let packets = fair.min(UNSCHEDULED.saturating_sub(others));
        recent.packets = recent.packets.saturating_add(packets);
        *share = Some(Share {
            packets,
            generation: self.generation,
        });
        packets
    }

    /// Shares that nobody has asked for lately lapse. Their slots still have them.
    #[inline]
    fn forget(&mut self, now: Nanos) {
        let generation = u32::try_from(now / LAPSE).unwrap_or(u32::MAX);
        self.older = match generation.saturating_sub(self.generation) {
            // Processors may hand in their times out of order.
            0 => return,
            1 => core::mem::take(&mut self.recent),
            _ => Given::default(),
        };
        self.recent = Given::default();
        self.generation = generation;
    }

    /// Takes a connection's share back, unless that has lapsed.
    pub(super) fn release(&mut self, share: &mut Option<Share>) {
        let Some(share) = share.take() else {
            return;
        };
        let counted = match self.generation.saturating_sub(share.generation) {
            0 => &mut self.recent,
            1 => &mut self.older,
            _ => return,
        };
        counted.connections = counted.connections.saturating_sub(1);
        counted.packets = counted.packets.saturating_sub(share.packets);
    }
}
