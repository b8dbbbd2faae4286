// SPDX-License-Identifier: GPL-2.0

//! The turn that the queue offers to its caller. The caller removes the first connection from the
//! turn's list, and gives the turn to that connection.

use super::super::timers::Nanos;
use super::slot::{Kind, Position, Turn};
use super::{AckQueue, List, Slot, MOVES};

/// An action that the queue takes for the head of a list, its first connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The head of the list gets a regular turn.
    Turn,
    /// The head of the list gets a turn while other connections have theirs.
    Concurrent,
    /// The head of the list gets an additional turn, because the budget has room.
    Budget,
    /// The head of the list gets no turn, but perhaps a place in a round.
    Move,
}

/// A turn for the connection at the head of a list. Nothing changes until the turn is
/// [given](Self::give).
#[derive(Debug)]
#[must_use]
pub struct NextTurn<'a> {
    pub(super) queue: &'a mut AckQueue,
    pub(super) now: Nanos,
    pub(super) list: List,
    pub(super) step: Step,
}

impl NextTurn<'_> {
    /// Returns the list whose head gets the turn.
    #[inline]
    pub fn list(&self) -> List {
        self.list
    }

    /// Gives the turn to the connection with this slot, which the caller has removed from the head
    /// of the list. If this returns a list, append the connection to that list. Otherwise call
    /// [`take_turn`](super::super::Connection::take_turn) on the connection.
    #[inline]
    pub fn give(self, slot: &mut Slot) -> Option<List> {
        let queue = self.queue;
        if self.step == Step::Turn {
            queue.expire_turns();
        }
        if matches!(self.step, Step::Turn | Step::Budget) {
            queue.count_passes(self.list);
        }
        let list = match slot.position {
            Position::Waiting(list) => list,
            Position::Unscheduled | Position::Turn(_) => return None,
        };
        queue.leave(list);
        let mut epoch = queue.epoch;
        match self.step {
            Step::Move => return Some(queue.move_from_backlog(slot, list)),
            Step::Concurrent => {
                // Regular turns do not wait for a connection with a concurrent turn. So count the
                // connection as overdue from the start: the queue does not wait for overdue
                // connections. When the turn ends, the past epoch makes `end_turn` stop counting it
                // as overdue.
                epoch = epoch.wrapping_sub(1);
                queue.overdue = queue.overdue.saturating_add(1);
                queue.concurrent_since = Some(self.now);
            }
            Step::Turn | Step::Budget => {
                queue.last_departure = self.now;
                let more = queue.in_flight(slot).saturating_add(slot.window);
                queue.count_in_flight(slot, more);
            }
        }
        let kind = match list {
            List::UNTRUSTED => {
                queue.untrusted_may_go = false;
                Kind::Untrusted
            }
            List::FIRST if self.step == Step::Concurrent => Kind::Concurrent,
            _ => {
                queue.untrusted_may_go = true;
                queue.last_turn_long = list.is_round() || List::BACKLOG.contains(&list);
                queue.to_move = MOVES;
                if list == List::FIRST {
                    Kind::First
                } else {
                    Kind::Listed
                }
            }
        };
        slot.position = Position::Turn(Turn {
            epoch,
            since: self.now,
            kind,
        });
        None
    }
}
