// SPDX-License-Identifier: GPL-2.0

//! Shares of the packets that senders may send directly after announcements.
//!
//! An announcement is the packet that starts a transmission. All senders together may have
//! [`UNSCHEDULED`] packets directly after announcements. Each connection gets a share when it asks
//! for a turn. An idle connection must not keep its share from the others, so shares lapse. Time is
//! divided into periods of [`LAPSE`], and a share counts only if it was given in the current or the
//! previous period. The sender does not learn that its share has lapsed, and may use it at any
//! time. So connections that resume together after a pause may send more than [`UNSCHEDULED`]
//! packets. They can do so only once, because the next turn gives each of them a share of the rest.
//! The excess may cost a timeout of some 10 ms, which is little compared to [`LAPSE`]. A connection
//! without a share loses a round trip.

use super::super::timers::{Nanos, SECOND};

/// Number of packets that all senders together may send directly after their announcements, without
/// waiting for a turn. A port with a buffer of 128 KiB has room for twice as many.
pub const UNSCHEDULED: u16 = 42;

/// If a device has more connections than this, its host reports that to each peer that opens a new
/// connection. The peer then announces its first transmission with a [short](SHORT) packet.
pub const CROWD: usize = 8;

/// Number of payload bytes of a short announcement: the most that the shortest frame has room for.
/// A connection without a share announces a transmission of several packets in this way. A short
/// announcement takes 84 bytes on the wire, so a switch port with a buffer of 128 KiB holds those
/// of 1,500 senders.
pub const SHORT: usize = 35;

/// The minimum time after which a share of [`UNSCHEDULED`] lapses if its connection asks for no
/// turn. The maximum is twice this time.
pub const LAPSE: Nanos = SECOND;

/// The shares of [`UNSCHEDULED`] that have not lapsed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Shares {
    /// The number of the period in which the last share was given. Each period lasts [`LAPSE`], and
    /// period 0 begins at time 0.
    generation: u32,
    /// The shares that were given in `generation`.
    recent: Given,
    /// The shares that were given in the generation before `generation`, and were not renewed
    /// since.
    older: Given,
}

/// The shares that were given in one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Given {
    /// Number of connections that have a share, including shares of 0 packets.
    connections: u32,
    /// The sum of these connections' shares, in packets.
    packets: u16,
}

/// A connection's share of [`UNSCHEDULED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Share {
    packets: u16,
    /// The generation in which the share was given. The share counts in this generation and the
    /// next.
    generation: u32,
}

impl Shares {
    /// Gives a connection a new share: an equal part, or what the other shares leave, whichever is
    /// less.
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

    /// Returns the number of connections that asked for a turn in this period or the previous one.
    pub(super) fn connections(&self) -> u32 {
        let Self { recent, older, .. } = self;
        recent.connections.saturating_add(older.connections)
    }

    /// Stops counting the shares that have lapsed. The connections' slots still contain these
    /// shares.
    #[inline]
    fn forget(&mut self, now: Nanos) {
        let generation = u32::try_from(now / LAPSE).unwrap_or(u32::MAX);
        self.older = match generation.saturating_sub(self.generation) {
            // No period has begun since the last call, or `now` comes from a processor whose clock
            // is behind.
            0 => return,
            1 => core::mem::take(&mut self.recent),
            _ => Given::default(),
        };
        self.recent = Given::default();
        self.generation = generation;
    }

    /// Frees a connection's share, unless the share has lapsed.
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
