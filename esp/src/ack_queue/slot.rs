// SPDX-License-Identifier: GPL-2.0

//! What the ACK queue knows of each connection.

use super::super::timers::Nanos;
use super::shares::Share;
use super::List;

/// A connection's slot in the ACK queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    pub(super) position: Position,
    pub(super) share: Option<Share>,
    /// The sender's host.
    pub(super) host: u64,
    pub(super) priority: u32,
    /// Its packets that the budget counts as in flight, in an epoch.
    pub(super) in_flight: u16,
    pub(super) counted: u32,
    /// The window that its next turn opens.
    pub(super) window: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Position {
    /// No transmission is announced.
    #[default]
    Unscheduled,
    /// The sender may send.
    Turn(Turn),
    /// In a list.
    Waiting(List),
}

/// A turn that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Turn {
    /// In this epoch.
    pub(super) epoch: u32,
    /// When.
    pub(super) since: Nanos,
    pub(super) kind: Kind,
}

/// How a turn was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Not at all: the transmission was announced.
    Announced,
    /// At once, as nobody else waited. No round counts it.
    Immediate,
    /// From a list.
    Listed,
    /// From the list of those without trust.
    Untrusted,
    /// A first turn, from a list.
    First,
    /// A first turn beside one of a long transmission.
    Concurrent,
}

impl Slot {
    /// The slot of a connection with a host, which has a number of its own.
    pub fn of(host: u64) -> Self {
        Slot {
            host,
            ..Slot::default()
        }
    }

    /// The socket's priority, 0 for none.
    #[inline]
    pub fn set_priority(&mut self, priority: u32) {
        self.priority = priority;
    }

    /// Whether the connection is in a list.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        matches!(self.position, Position::Waiting(_))
    }

    /// Whether it has a turn from a list.
    #[inline]
    pub(super) fn has_listed_turn(&self) -> bool {
        match self.position {
            Position::Turn(turn) => !matches!(turn.kind, Kind::Announced | Kind::Immediate),
            Position::Unscheduled | Position::Waiting(_) => false,
        }
    }

    /// Whether the queue counts the connection.
    #[inline]
    pub fn is_scheduled(&self) -> bool {
        self.position != Position::Unscheduled
    }
}
