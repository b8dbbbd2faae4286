// SPDX-License-Identifier: GPL-2.0

//! Whose turn it is: the order in which the senders that share a bottleneck get
//! the acknowledgements that open their windows (Treydte 2007, the ACK queue).
//!
//! One [`Turns`] stands for one bottleneck, the receiving device. It counts and
//! decides; the list of those that wait is the caller's, first in, first out,
//! and each connection keeps its [`Ticket`]. With every connection the caller
//! looks at, in this order:
//!
//! 1. [`update`](Turns::update) with what
//!    [`Connection::is_scheduled`](super::Connection::is_scheduled) says;
//! 2. if [`Connection::wants_turn`](super::Connection::wants_turn), then
//!    [`ask`](Turns::ask): the acknowledgement leaves, or the connection joins
//!    the list;
//! 3. while [`head_leaves`](Turns::head_leaves), the list's first connection
//!    gets its turn, and [`depart`](Turns::depart) is told;
//! 4. at [`deadline`](Turns::deadline), 3 is done again.
//!
//! Of `n` senders that have announced something, `n - 1` wait and one sends. If
//! the one falls silent the others would wait for ever: so when nothing has come
//! by the device for [`IDLE`], or nothing has left the list for [`HOLD`], its
//! head leaves all the same, and all who had the turn until then are *overdue*:
//! they count no more until they ask again. A silent sender thus delays the
//! others once, and not with every acknowledgement.

use super::timers::{Nanos, MILLISECOND};

/// How long nothing may come by the device while an acknowledgement waits.
///
/// Whoever has the turn is heard a round trip later, and then with every packet:
/// longer gaps than this, a full packet at 6 Mbit/s, are silence.
pub const IDLE: Nanos = 2 * MILLISECOND;

/// The longest time between two departures while an acknowledgement waits, also
/// if whoever has the turn sends slowly.
///
/// Long enough for a burst of 21 full packets at 20 Mbit/s.
pub const HOLD: Nanos = 20 * MILLISECOND;

/// The turns at one bottleneck.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Turns {
    /// Connections with an announced transmission coming in: the protocol's n.
    scheduled: u32,
    /// Of these, those in the list.
    waiting: u32,
    /// Of the others, those that had the turn when it was taken from them.
    overdue: u32,
    /// How often a turn was taken from its holders.
    epoch: u32,
    /// When the head left last, or the list began to fill.
    departed: Nanos,
    /// When a packet last came by the device.
    heard: Nanos,
}

/// A connection's place in the turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ticket(Place);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Place {
    /// Nothing is announced.
    #[default]
    Out,
    /// Its sender may send, since this epoch.
    Turn(u32),
    /// In the list.
    Waiting,
}

impl Ticket {
    /// Whether the connection is in the list.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.0 == Place::Waiting
    }

    /// Whether the connection is counted.
    #[inline]
    pub fn is_scheduled(&self) -> bool {
        self.0 != Place::Out
    }
}

impl Turns {
    /// Counts a connection in or out. `true` when it was in the list: it is to
    /// be taken out of it.
    #[inline]
    pub fn update(&mut self, ticket: &mut Ticket, scheduled: bool) -> bool {
        match (ticket.0, scheduled) {
            (Place::Out, true) => {
                self.scheduled = self.scheduled.saturating_add(1);
                ticket.0 = Place::Turn(self.epoch);
                false
            }
            (Place::Turn(since), false) => {
                self.scheduled = self.scheduled.saturating_sub(1);
                self.catch_up(since);
                ticket.0 = Place::Out;
                false
            }
            (Place::Waiting, false) => {
                self.scheduled = self.scheduled.saturating_sub(1);
                self.waiting = self.waiting.saturating_sub(1);
                ticket.0 = Place::Out;
                true
            }
            _ => false,
        }
    }

    /// A holder of the turn is heard of.
    #[inline]
    fn catch_up(&mut self, since: u32) {
        if since != self.epoch {
            self.overdue = self.overdue.saturating_sub(1);
        }
    }

    /// Senders that are counted on.
    #[inline]
    fn active(&self) -> u32 {
        self.scheduled.saturating_sub(self.overdue)
    }

    /// A counted connection has an acknowledgement due. `true` when that leaves
    /// at once; else the connection joins the list's tail.
    #[inline]
    #[must_use]
    pub fn ask(&mut self, ticket: &mut Ticket, now: Nanos) -> bool {
        if let Place::Turn(since) = ticket.0 {
            self.catch_up(since);
            ticket.0 = Place::Turn(self.epoch);
        }
        if self.active() <= 1 || ticket.0 == Place::Out {
            return true;
        }
        if self.waiting == 0 {
            self.departed = now;
        }
        if ticket.0 != Place::Waiting {
            self.waiting = self.waiting.saturating_add(1);
            ticket.0 = Place::Waiting;
        }
        false
    }

    /// When a packet of any connection last came by the device; to be said
    /// before it is asked what is due.
    #[inline]
    pub fn heard(&mut self, at: Nanos) {
        self.heard = at;
    }

    /// When the turn is taken from its holders.
    #[inline]
    fn limit(&self) -> Nanos {
        let idle = self.departed.max(self.heard).saturating_add(IDLE);
        idle.min(self.departed.saturating_add(HOLD))
    }

    /// Whether [`head_leaves`](Self::head_leaves) would say yes.
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.waiting > 0 && (self.waiting >= self.active() || now >= self.limit())
    }

    /// Whether the list's head leaves now. If it does so for the time's sake,
    /// the turn is taken from its holders.
    #[inline]
    #[must_use]
    pub fn head_leaves(&mut self, now: Nanos) -> bool {
        if !self.is_due(now) {
            return false;
        }
        if self.waiting < self.active() {
            self.overdue = self.scheduled.saturating_sub(self.waiting);
            self.epoch = self.epoch.wrapping_add(1);
        }
        true
    }

    /// The list's head has left it.
    #[inline]
    pub fn depart(&mut self, ticket: &mut Ticket, now: Nanos) {
        if ticket.is_waiting() {
            self.waiting = self.waiting.saturating_sub(1);
            ticket.0 = Place::Turn(self.epoch);
        }
        self.departed = now;
    }

    /// When [`head_leaves`](Self::head_leaves) is to be asked again though
    /// nothing else has happened.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        (self.waiting > 0).then(|| self.limit())
    }

    /// Connections counted: the protocol's n.
    #[inline]
    pub fn scheduled(&self) -> u32 {
        self.scheduled
    }

    /// Connections in the list.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// How often the turn was taken from its holders; wraps.
    #[inline]
    pub fn overruns(&self) -> u32 {
        self.epoch
    }
}
