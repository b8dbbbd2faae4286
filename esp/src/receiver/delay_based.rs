// SPDX-License-Identifier: GPL-2.0

//! A delay-based window, for a sender that gets its turns without waiting: the window follows the
//! time from a turn to its first packet.
//!
//! If a window is too small for the path, the sender pauses at the window's end. Then the first
//! packet of the next turn arrives a bare round trip after the turn. If the window is large enough,
//! packets queue somewhere on the path, and the first packet arrives behind them. So the time from
//! a turn to its first packet shows whether the window fills the path. This measurement does not
//! depend on gaps between packets, which arise where senders share a card or the receiver's card
//! coalesces packets.
//!
//! * The target for this time is the larger one of [`QUEUE`] and one and a half times the least
//!   measured time. The window is multiplied by the ratio of target and measured time. In addition
//!   it grows by one packet, so that streams on the same link get equal parts.
//! * A window above [`MOST_NARROW`] has proved to fit the path. If the sender's window had to fall
//!   to that number, because a transmission began or other connections needed turns, it grows by
//!   one packet for each one that arrives, until it has its last size again or packets queue.
//! * The least time is forgotten after [`MEMORY`], since paths change.

use super::super::timers::{Nanos, MICROSECOND, SECOND};
use super::super::wire::MOST_NARROW;

/// The minimum target time from a turn to its first packet.
const QUEUE: Nanos = 50 * MICROSECOND;

/// If the round trip is at most this long, windows follow the measured rate alone.
const SHORT_WAY: Nanos = 90 * MICROSECOND;

/// A window above [`MOST_NARROW`] lets at most this many packets queue on the path: a third of
/// [`MOST_NARROW`], as many as the target time lets queue with that window.
const MOST_QUEUED: Nanos = 85;

/// A window grows by at most this many packets in a round trip, because that many may have to queue
/// before the receiver sees that the window is too large.
const MOST_GROWTH: Nanos = 128;

/// The minimum time for which a measured round trip stays valid.
const MEMORY: Nanos = 10 * SECOND;

/// The measurement of a sender's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LastTurn {
    /// The sender's window before the turn, in packets.
    window: u16,
    /// The time from the turn to its first packet.
    time: Nanos,
}

/// Measurements of a sender's turns, while no other connection waits for a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct DelayBased {
    /// The least time from a turn to its first packet, in the current period of [`MEMORY`] and in
    /// the previous period; 0 for none.
    least: [Nanos; 2],
    /// The time when the current period of [`MEMORY`] began.
    since: Nanos,
    /// The measurement of the last turn, until [`wanted`](Self::wanted) takes it.
    last_turn: Option<LastTurn>,
    /// The window to which the present one grows again; 0 if there is none.
    known: u16,
    /// Whether the next window is halved, to drain queues and measure the bare path.
    drains: bool,
    /// The time from the last turn to its first packet.
    time: Nanos,
    /// Whether even the largest window is too small. If so, the receiver acknowledges early.
    pub(super) pressed: bool,
}

impl DelayBased {
    /// Notes that a turn's first packet arrived after `time`. `window` is the window before the
    /// turn, or 0 if other connections waited for turns.
    pub(super) fn note(&mut self, window: u16, time: Nanos, now: Nanos) {
        let time = time.max(1);
        if now.saturating_sub(self.since) > MEMORY {
            self.since = now;
            self.least = [0, self.least[0]];
            self.drains = true;
        }
        let [least, _] = &mut self.least;
        if *least == 0 || time < *least {
            *least = time;
        }
        if window > 0 {
            self.last_turn = Some(LastTurn { window, time });
        }
    }

    /// Returns the least time from a turn to its first packet; `None` if no such time was measured.
    #[inline]
    pub(super) fn least(&self) -> Option<Nanos> {
        self.least.into_iter().filter(|time| *time > 0).min()
    }

    /// Returns whether the round trip is too long for windows that follow the measured rate alone.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.least() > Some(SHORT_WAY)
    }

    /// Returns whether a round trip takes at most `time`.
    #[inline]
    pub(super) fn is_near(&self, time: Nanos) -> bool {
        self.least().is_some_and(|least| least <= time)
    }

    /// Returns the target time from a turn to its first packet.
    #[inline]
    pub(super) fn target(&self) -> Nanos {
        let least = self.least().unwrap_or(0);
        QUEUE.max(least.saturating_add(least / 2))
    }

    /// Returns the time from the last turn to its first packet.
    #[inline]
    pub(super) fn time(&self) -> Nanos {
        self.time
    }

    /// Notes a window that the sender had, before it falls.
    #[inline]
    pub(super) fn note_known(&mut self, window: u16) {
        if window > MOST_NARROW {
            self.known = self.known.max(window);
        }
    }

    /// Forgets the window that [`note_known`](Self::note_known) has noted, because packets were
    /// lost.
    #[inline]
    pub(super) fn forget_known(&mut self) {
        self.known = 0;
    }

    /// Returns the next window, if it grows again to one that the sender had before. `arrived` is
    /// the number of packets since the last turn.
    pub(super) fn regrown(&mut self, window: u16, arrived: u16) -> Option<u16> {
        if window >= self.known {
            self.known = 0;
            return None;
        }
        let time = self.last_turn.map_or(0, |turn| turn.time);
        if time > self.most_unqueued() {
            self.known = 0;
            return None;
        }
        self.last_turn = None;
        Some(window.saturating_add(arrived).min(self.known))
    }

    /// Returns the longest time from a turn to its first packet that shows no queue.
    fn most_unqueued(&self) -> Nanos {
        let least = self.least().unwrap_or(0);
        least.saturating_add(least / 16)
    }

    /// Returns the window that the last measurement asks for; `None` if there is no new
    /// measurement. `most` is the largest window.
    pub(super) fn wanted(&mut self, window: u16, most: u16) -> Option<u16> {
        let LastTurn { window: used, time } = self.last_turn.take()?;
        if core::mem::take(&mut self.drains) {
            return Some(window / 2);
        }
        self.time = time;
        let least = self.least().unwrap_or(time);
        if time > least.saturating_mul(2) {
            self.pressed = false;
        } else if window >= most && time <= least.saturating_add(least / 4) {
            self.pressed = true;
        }
        let used = Nanos::from(used);
        // The packets that are in flight without a queue.
        let bare = used.saturating_mul(least).checked_div(time)?;
        let queued = used.saturating_sub(bare);
        let wanted = if time <= self.most_unqueued() && queued <= MOST_QUEUED / 4 {
            used.saturating_add(used.min(MOST_GROWTH))
        } else {
            let wanted = used.saturating_mul(self.target()).checked_div(time)?;
            let most = bare.saturating_add(MOST_QUEUED).max(MOST_NARROW.into());
            wanted.min(most)
        };
        Some(u16::try_from(wanted.saturating_add(1)).unwrap_or(u16::MAX))
    }
}
