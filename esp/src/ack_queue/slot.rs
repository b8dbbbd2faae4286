// SPDX-License-Identifier: GPL-2.0

//! The state that the ACK queue keeps of each connection.

use super::super::timers::Nanos;
use super::shares::Share;
use super::List;

/// A connection's state in the ACK queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    pub(super) position: Position,
    pub(super) share: Option<Share>,
    /// A number that identifies the peer's host.
    pub(super) host: u64,
    pub(super) priority: u32,
    /// Number of the connection's packets in flight, as the budget counts them. This number is
    /// valid only in the epoch `counted`.
    pub(super) in_flight: u16,
    pub(super) counted: u32,
    /// The window that the next turn opens, in packets.
    pub(super) window: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Position {
    /// No transmission is announced.
    #[default]
    Unscheduled,
    /// The connection has its turn: the sender may send.
    Turn(Turn),
    /// The connection waits in this list.
    Waiting(List),
}

/// A turn that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Turn {
    /// The epoch in which the turn was given.
    pub(super) epoch: u32,
    /// The time when the turn was given.
    pub(super) since: Nanos,
    pub(super) kind: Kind,
}

/// Whether a turn was given, and in which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// No turn has been given yet: the transmission has only been announced.
    Announced,
    /// The turn was given at once, because no other connection waited. No round counts this turn.
    Immediate,
    /// The turn was given to the head of a list.
    Listed,
    /// The turn was given to the head of the list of untrusted hosts.
    Untrusted,
    /// The turn is the first of a transmission, and was given to the head of a list.
    First,
    /// The turn is the first of a transmission, and was given concurrently with a turn of a long
    /// transmission.
    Concurrent,
}

impl Slot {
    /// Creates the slot of a connection to the host that has the number `host`.
    pub fn of(host: u64) -> Self {
        Slot {
            host,
            ..Slot::default()
        }
    }

    /// Sets the socket's priority; 0 for none.
    #[inline]
    pub fn set_priority(&mut self, priority: u32) {
        self.priority = priority;
    }

    /// Returns whether the connection is in a list.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        matches!(self.position, Position::Waiting(_))
    }

    /// Returns whether the connection has a turn from a list.
    #[inline]
    pub(super) fn has_listed_turn(&self) -> bool {
        match self.position {
            Position::Turn(turn) => !matches!(turn.kind, Kind::Announced | Kind::Immediate),
            Position::Unscheduled | Position::Waiting(_) => false,
        }
    }

    /// Returns whether the queue counts the connection.
    #[inline]
    pub fn is_scheduled(&self) -> bool {
        self.position != Position::Unscheduled
    }
}
