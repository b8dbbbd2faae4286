// SPDX-License-Identifier: GPL-2.0

//! The ACK queue: in which order the senders that share a bottleneck get the
//! acknowledgements that open their windows (Treydte 2007).
//!
//! One [`AckQueue`] stands for one bottleneck, the receiving device. It counts
//! and decides; the list of waiting connections is the caller's, first in, first
//! out. Each connection keeps its [`Slot`].
//!
//! * After each call of a connection's engine, and before the connection sends,
//!   [`schedule`](AckQueue::schedule) tells what to do with the list.
//! * Then, and at [`deadline`](AckQueue::deadline), the first connection of the
//!   list leaves it as long as there is a [`next_turn`](AckQueue::next_turn) to
//!   [give](NextTurn::give) it.
//!
//! Of `n` senders that have announced a transmission, `n - 1` wait and one
//! sends. If that one falls silent, the others would wait for ever. So when no
//! packet has arrived at the device for [`IDLE`], or none has left the list for
//! [`HOLD`], its head leaves all the same, and the connections that had the turn
//! until then are *overdue*: they do not count until they ask again. A silent
//! sender thus delays the others once, and not with every acknowledgement.
//!
//! The queue also [shares](shares) [`UNSCHEDULED`] packets among the senders.

use super::connection::Connection;
use super::timers::{Nanos, MILLISECOND};
use shares::{Share, Shares};
pub use shares::{LAPSE, UNSCHEDULED};

mod shares;

/// How long no packet may arrive at the device while an acknowledgement waits.
///
/// The sender that has the turn is heard a round trip later, and then with every
/// packet: longer gaps than this, a full packet at 6 Mbit/s, are silence.
pub const IDLE: Nanos = 2 * MILLISECOND;

/// The longest time between two departures while an acknowledgement waits, also
/// if the sender that has the turn sends slowly.
///
/// Long enough for a burst of 21 full packets at 20 Mbit/s.
pub const HOLD: Nanos = 20 * MILLISECOND;

/// The order of acknowledgements at one bottleneck.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AckQueue {
    /// Connections that receive an announced transmission: the protocol's n.
    scheduled: u32,
    /// Of these, connections in the list.
    waiting: u32,
    /// Of the others, connections whose turn ended without a sign of them.
    overdue: u32,
    /// How often turns ended so.
    epoch: u32,
    /// When the head left last, or the list began to fill.
    departed: Nanos,
    /// When a packet last arrived at the device.
    heard: Nanos,
    shares: Shares,
}

/// A connection's slot in the ACK queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    position: Position,
    share: Option<Share>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Position {
    /// No transmission is announced.
    #[default]
    Unscheduled,
    /// The sender may send, since this epoch.
    Turn(u32),
    /// In the list.
    Waiting,
}

impl Slot {
    /// Whether the connection is in the list.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.position == Position::Waiting
    }

    /// Whether the queue counts the connection.
    #[inline]
    pub fn is_scheduled(&self) -> bool {
        self.position != Position::Unscheduled
    }
}

/// A connection's demand to the ACK queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing: no transmission is announced, or its receiver is congested.
    Nothing,
    /// To be counted.
    Count,
    /// A turn, for an acknowledgement that is due and opens the window.
    Turn,
}

/// The queue's answer to a connection's demand, and the change of the caller's
/// list that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The list stays as it is.
    Unchanged,
    /// The turn has come at once. The list stays as it is.
    Turn,
    /// The connection waits for its turn: it joins the list's tail.
    Joins,
    /// The connection is in the list and has to leave it.
    Leaves,
}

/// A turn for the connection at the list's head.
#[derive(Debug)]
#[must_use]
pub struct NextTurn<'a> {
    queue: &'a mut AckQueue,
    now: Nanos,
}

impl NextTurn<'_> {
    /// The list's head, whose slot this is, has left it. Its connection's
    /// [`take_turn`](Connection::take_turn) is to follow.
    #[inline]
    pub fn give(self, slot: &mut Slot) {
        if slot.is_waiting() {
            self.queue.waiting = self.queue.waiting.saturating_sub(1);
            slot.position = Position::Turn(self.queue.epoch);
        }
        self.queue.departed = self.now;
    }
}

impl AckQueue {
    /// Asks what a connection needs, and has it take its turn or wait for it: to
    /// be called before it sends. The caller does to its list what the answer
    /// says.
    #[inline]
    pub fn schedule(
        &mut self,
        slot: &mut Slot,
        connection: &mut Connection,
        now: Nanos,
    ) -> Verdict {
        let demand = connection.demand();
        if demand == Demand::Turn && connection.grants() {
            connection.set_start(self.share(slot, now));
        }
        let verdict = self.update(slot, demand, now);
        match verdict {
            Verdict::Turn => connection.take_turn(),
            Verdict::Joins => connection.wait_turn(),
            Verdict::Unchanged if slot.is_waiting() => connection.wait_turn(),
            Verdict::Unchanged | Verdict::Leaves => {}
        }
        verdict
    }

    /// Books what a connection needs. [`schedule`](Self::schedule) tells the
    /// connection as well.
    #[inline]
    pub fn update(&mut self, slot: &mut Slot, demand: Demand, now: Nanos) -> Verdict {
        match (slot.position, demand) {
            (Position::Unscheduled, Demand::Nothing) => return Verdict::Unchanged,
            (Position::Unscheduled, _) => {
                self.scheduled = self.scheduled.saturating_add(1);
                slot.position = Position::Turn(self.epoch);
            }
            (Position::Turn(since), Demand::Nothing) => {
                self.scheduled = self.scheduled.saturating_sub(1);
                self.catch_up(since);
                slot.position = Position::Unscheduled;
                return Verdict::Unchanged;
            }
            (Position::Waiting, Demand::Nothing) => {
                self.scheduled = self.scheduled.saturating_sub(1);
                self.waiting = self.waiting.saturating_sub(1);
                slot.position = Position::Unscheduled;
                return Verdict::Leaves;
            }
            (Position::Turn(_) | Position::Waiting, _) => {}
        }
        if demand == Demand::Turn {
            self.ask(slot, now)
        } else {
            Verdict::Unchanged
        }
    }

    /// A connection's share of [`UNSCHEDULED`], now that so many have one: it takes what the others
    /// leave. [`schedule`](Self::schedule) tells the connection as well.
    pub fn share(&mut self, slot: &mut Slot, now: Nanos) -> u16 {
        self.shares.give(&mut slot.share, now)
    }

    /// A connection is over, or begins anew: others get its share, unless that has lapsed.
    pub fn release(&mut self, slot: &mut Slot) {
        self.shares.release(&mut slot.share);
    }

    /// A counted connection has an acknowledgement due.
    #[inline]
    fn ask(&mut self, slot: &mut Slot, now: Nanos) -> Verdict {
        let Position::Turn(since) = slot.position else {
            return Verdict::Unchanged;
        };
        self.catch_up(since);
        slot.position = Position::Turn(self.epoch);
        if self.active() <= 1 {
            return Verdict::Turn;
        }
        if self.waiting == 0 {
            self.departed = now;
        }
        self.waiting = self.waiting.saturating_add(1);
        slot.position = Position::Waiting;
        Verdict::Joins
    }

    /// A connection with a turn of the epoch `since` asks or ends.
    #[inline]
    fn catch_up(&mut self, since: u32) {
        if since != self.epoch {
            self.overdue = self.overdue.saturating_sub(1);
        }
    }

    /// Scheduled connections that are not overdue.
    #[inline]
    fn active(&self) -> u32 {
        self.scheduled.saturating_sub(self.overdue)
    }

    /// A packet of any connection last arrived at the device at `at`: to be told
    /// before [`is_due`](Self::is_due), [`next_turn`](Self::next_turn) and
    /// [`deadline`](Self::deadline).
    #[inline]
    pub fn note_arrival(&mut self, at: Nanos) {
        self.heard = at;
    }

    /// When the turn of its holders ends.
    #[inline]
    fn limit(&self) -> Nanos {
        let idle = self.departed.max(self.heard).saturating_add(IDLE);
        idle.min(self.departed.saturating_add(HOLD))
    }

    /// Whether there is a [`next_turn`](Self::next_turn).
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.waiting > 0 && (self.waiting >= self.active() || now >= self.limit())
    }

    /// The turn of the list's head, if it is due. If only the time makes it due,
    /// the turns of its holders end.
    #[inline]
    pub fn next_turn(&mut self, now: Nanos) -> Option<NextTurn<'_>> {
        if !self.is_due(now) {
            return None;
        }
        if self.waiting < self.active() {
            self.overdue = self.scheduled.saturating_sub(self.waiting);
            self.epoch = self.epoch.wrapping_add(1);
        }
        Some(NextTurn { queue: self, now })
    }

    /// When [`next_turn`](Self::next_turn) is to be asked for though nothing else
    /// has happened.
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

    /// How often silent connections lost their turns; wraps.
    #[inline]
    pub fn overruns(&self) -> u32 {
        self.epoch
    }
}
