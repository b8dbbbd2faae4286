// SPDX-License-Identifier: GPL-2.0

//! The window of a sender whose turns come at once: by the time that a window's first packet takes.
//!
//! A window is too small for the way if its sender stands still at its end. Then the first packet
//! that the next turn lets go comes a bare round trip after it. If the window is large enough,
//! packets wait somewhere, and that one comes behind them. So the time from a turn to that packet
//! tells whether a window fills the way, whatever lies between its packets: the sender's card may
//! be shared, or the receiver's may collect packets.
//!
//! * The window is to have that time at [`QUEUE`], or a little above the least that was seen, if
//!   that is more. It grows and shrinks in proportion, and by one packet beyond: so streams that
//!   share a link get the same part of it.
//! * The least is forgotten after [`MEMORY`], since ways change.

use super::super::timers::{Nanos, MICROSECOND, SECOND};

/// The time from a turn to its first packet that a window aims at, if the way has less.
const QUEUE: Nanos = 50 * MICROSECOND;

/// The round trip of the longest way whose windows follow the rate alone.
const SHORT_WAY: Nanos = 90 * MICROSECOND;

/// For how long at least a round trip counts as one that the way has.
const MEMORY: Nanos = 10 * SECOND;

/// What the turns of a sender that is alone have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct DelayBased {
    /// The least time from a turn to its first packet, in this [`MEMORY`] and in the one before; 0
    /// for none.
    least: [Nanos; 2],
    /// When this one began.
    since: Nanos,
    /// A window whose end was awaited, and the time that its next turn's first packet took.
    shown: Option<(u16, Nanos)>,
    /// The next window is a small one, which shows the bare way.
    drains: bool,
    /// The time that the last turn's first packet took.
    time: Nanos,
    /// The largest window is too small: it has to be acknowledged early.
    pub(super) pressed: bool,
}

impl DelayBased {
    /// The first packet that a turn let go came after `time`. `window`: the one before it, or 0 if
    /// others waited for turns.
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
            self.shown = Some((window, time));
        }
    }

    /// The least time from a turn to its first packet; `None` if none was seen.
    #[inline]
    pub(super) fn least(&self) -> Option<Nanos> {
        self.least.into_iter().filter(|time| *time > 0).min()
    }

    /// Whether windows that follow the rate may be too small for the way.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.least() > Some(SHORT_WAY)
    }

    /// Whether a round trip takes no more than `time`.
    #[inline]
    pub(super) fn is_near(&self, time: Nanos) -> bool {
        self.least().is_some_and(|least| least <= time)
    }

    /// The time that a window aims at.
    #[inline]
    pub(super) fn aim(&self) -> Nanos {
        let least = self.least().unwrap_or(0);
        QUEUE.max(least.saturating_add(least / 2))
    }

    /// The time from the last turn to its first packet.
    #[inline]
    pub(super) fn time(&self) -> Nanos {
        self.time
    }

    /// The window that the last time asks for, if there is a new one; `most` is the largest.
    pub(super) fn wanted(&mut self, window: u16, most: u16) -> Option<u16> {
        let (shown, time) = self.shown.take()?;
        if core::mem::take(&mut self.drains) {
            return Some(window / 2);
        }
        self.time = time;
        let aim = self.aim();
        let least = self.least().unwrap_or(time);
        if time > least.saturating_mul(2) {
            self.pressed = false;
        } else if window >= most && time <= least.saturating_add(least / 4) {
            self.pressed = true;
        }
        let wanted = if time <= least.saturating_add(least / 16) {
            Nanos::from(shown).saturating_mul(2)
        } else {
            Nanos::from(shown).saturating_mul(aim).checked_div(time)?
        };
        Some(u16::try_from(wanted.saturating_add(1)).unwrap_or(u16::MAX))
    }
}
