// SPDX-License-Identifier: GPL-2.0

//! The ACK queue. It gives senders with a common bottleneck the acknowledgements that open their
//! windows, one sender after the other (Treydte 2007).
//!
//! One [`AckQueue`] stands for one bottleneck, the receiving device. The queue counts the
//! connections and decides which of them is next. The caller stores the connections that wait, in
//! [`LISTS`] lists. Each list is first in, first out. Each connection has a [`Slot`].
//!
//! * After each call of a connection's engine, and before the connection sends,
//!   [`schedule`](AckQueue::schedule) returns the change that the caller makes to the lists.
//! * Then, and at [`deadline`](AckQueue::deadline), the caller gives turns. As long as
//!   [`next_turn`](AckQueue::next_turn) returns a turn, the caller removes the first connection
//!   from the turn's list, and [gives](NextTurn::give) the turn to that connection.
//!
//! Of `n` senders that have announced a transmission, `n - 1` wait and one sends. If that sender
//! fell silent, the others would wait for ever. So the next connection gets a turn anyway in two
//! cases: during the last [`IDLE`] no packet has arrived at the device, or during the last [`HOLD`]
//! no connection has left the lists. The connections whose turns this ends become *overdue*: the
//! queue does not wait for them, and counts them again once they ask for a turn. So a silent sender
//! delays the others once, and not with every acknowledgement.
//!
//! # Who is next
//!
//! * **Classes.** Sockets with a priority go first, then the first turn of each transmission, then
//!   all others. Short transmissions need at most one turn, and so do not wait behind long ones. A
//!   class that was passed over [`PASSES`] times in a row is next, so no class starves.
//! * **Concurrent turns.** A first turn and a turn of a long transmission may be in progress at the
//!   same time. So a short transmission delays the long ones by the time that its packets take, not
//!   by a round trip. The buffer of a switch port has room for two windows and the *unscheduled*
//!   packets, which senders send before their first turns. It has no room for a third window. So
//!   the next concurrent turn waits for one of three events: the connection with the last
//!   concurrent turn asks for a turn again, the device was silent for [`IDLE`], or [`HOLD`] has
//!   passed. After the first turn of a transmission that proves to be long, [`IN_LINE`] short
//!   transmissions get their first turns in line, not concurrently.
//! * **Hosts.** In the last class each host has one turn per round, however many connections it
//!   has. Each round has a list. For each host, the queue records the first round in which the host
//!   has no turn yet, and puts the host's next waiting connection on that round's list. A first
//!   turn counts as the host's turn in the current round, if the host has none in that round yet.
//!   If it has one, the host may have up to [`CREDIT`] first turns in advance. It repays each of
//!   them with a round in which it has no turn. If the table of hosts has no room for a host, each
//!   connection of the host has a turn per round.
//! * **Trust.** A host that leaves its turns unused must not be able to delay the queue again. So
//!   its connections get turns concurrently with the turns of other hosts, until the host has used
//!   some of its turns.
//!
//! The queue also shares [`UNSCHEDULED`] packets among the senders. While fewer granted packets are
//! in flight than the queue's `budget` allows, the queue gives more turns at a time.

use super::connection::Connection;
use super::timers::{Nanos, MILLISECOND};
pub(super) use budget::{least_time, on_wire, Arrivals, Port, RateSample, RoundTrip, Samples};
use budget::{link_rate, Budget};
use hosts::Hosts;
pub use next_turn::NextTurn;
use next_turn::Step;
use shares::Shares;
pub use shares::{CROWD, LAPSE, SHORT, UNSCHEDULED};
pub use slot::Slot;
use slot::{Kind, Position, Turn};

mod budget;
mod hosts;
mod next_turn;
mod shares;
mod slot;

/// If no packet arrives at the device for this many nanoseconds, the next waiting connection gets a
/// turn.
///
/// This time must be longer than a round trip, because a sender's packets begin to arrive one round
/// trip after its turn is given. It must also be longer than the time that a full packet takes,
/// which is 2 ms at 6 Mbit/s.
pub const IDLE: Nanos = 2 * MILLISECOND;

/// Maximum time, in nanoseconds, between two turns while an acknowledgement waits. After this time,
/// the next turn is given even if the current sender's packets still arrive.
///
/// At 20 Mbit/s, a burst of 21 full packets takes less than this time.
pub const HOLD: Nanos = 20 * MILLISECOND;

/// The maximum number of consecutive turns for which a waiting class may be passed over.
pub const PASSES: u8 = 3;

/// A host may have the first turns of this many transmissions in advance, in addition to its one
/// turn in each round.
pub const CREDIT: u8 = 8;

/// After a transmission has proved longer than its first turn, first turns are not given
/// concurrently until this many transmissions have ended in their first turns.
pub const IN_LINE: u8 = 8;

/// Number of parts into which a turn is divided. When a transmission ends, it returns the unused
/// parts of its last turn.
pub(super) const PARTS: u8 = 16;

/// Number of rounds that have a list. At most this many connections of a host wait in rounds, one
/// in each. The host's other connections wait in the backlog.
const ROUNDS: u32 = 16;

/// Number of classes. In order of precedence, the classes are [`List::CONTROL`],
/// [`List::PREFERRED`], [`List::FIRST`], and the lists of all rounds together.
const CLASSES: usize = 4;

/// Number of lists that precede the lists of the rounds.
const LISTS_BEFORE_ROUNDS: u8 = 6;

/// Number of lists of waiting connections that the caller keeps.
pub const LISTS: usize = LISTS_BEFORE_ROUNDS as usize + ROUNDS as usize;

/// After each turn, up to this many connections are taken from the backlog and, if possible, given
/// a place in a round.
const MOVES: u8 = 2;

/// If a transmission ends later than this many nanoseconds after its last turn was given, the turn
/// counts as unused.
const LATE_END: Nanos = 2 * IDLE;

/// A list of waiting connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct List(u8);

impl List {
    /// The list of sockets whose priority requires a privilege.
    const CONTROL: List = List(0);
    /// The list of sockets with a priority that requires no privilege.
    const PREFERRED: List = List(1);
    /// The list of connections that wait for the first turn of a transmission.
    const FIRST: List = List(2);
    /// The list of connections of untrusted hosts.
    const UNTRUSTED: List = List(3);
    /// The two lists of the backlog, for connections whose hosts already have a place in every
    /// round. Connections are taken from one list while the other collects newcomers, and then the
    /// lists change roles.
    const BACKLOG: [List; 2] = [List(4), List(5)];

    /// Returns the list's index among the [`LISTS`].
    #[inline]
    pub fn index(self) -> usize {
        self.0.into()
    }

    #[inline]
    fn is_round(self) -> bool {
        self.0 >= LISTS_BEFORE_ROUNDS
    }

    #[inline]
    fn of_round(round: u32) -> List {
        List(LISTS_BEFORE_ROUNDS.saturating_add((round % ROUNDS) as u8))
    }
}

/// Decides in which order the connections at one bottleneck send the acknowledgements that open
/// their peers' windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AckQueue {
    /// Number of connections that receive an announced transmission, called n in
    /// `docs/protocol.md`.
    scheduled: u32,
    /// Number of `scheduled` connections that are in the lists.
    waiting: u32,
    /// Number of `scheduled` connections whose turn has expired or is concurrent. They are in no
    /// list, and do not count as active.
    overdue: u32,
    /// Number of times that turns have expired; wraps.
    epoch: u32,
    /// The later one of two times: when the most recent regular (not concurrent) turn was given,
    /// and when the lists became non-empty.
    last_departure: Nanos,
    /// The time when a packet last arrived at the device.
    last_device_rx: Nanos,
    shares: Shares,
    /// The current round.
    round: u32,
    /// For each class with waiting connections, the number of consecutive turns for which it was
    /// passed over. If a first turn was requested before the current round began, giving it does
    /// not count as passing over the lists of later rounds.
    passed: [u8; CLASSES],
    /// Number of first turns that were requested before the current round began and have not been
    /// given yet.
    firsts_before_round: u32,
    /// Number of connections in the lists of rounds.
    in_rounds: u32,
    /// Whether one untrusted host may have a turn concurrently with the most recent regular turn.
    untrusted_may_go: bool,
    /// Whether the most recent regular turn was a later turn of a transmission, not its first one.
    last_turn_long: bool,
    /// The time at which the most recent concurrent turn was given; `None` once its connection has
    /// asked for a turn again.
    concurrent_since: Option<Nanos>,
    /// First turns are given in line, not concurrently, until this many more transmissions have
    /// ended in their first turns.
    in_line: u8,
    /// Number of connections that may still be taken from the backlog before the next turn.
    to_move: u8,
    /// The lowest bit selects the backlog list from which connections are taken.
    current_backlog: u8,
    /// Number of connections in each list.
    lists: [u32; LISTS],
    hosts: Hosts,
    budget: Budget,
}

impl Default for AckQueue {
    fn default() -> Self {
        AckQueue {
            scheduled: 0,
            waiting: 0,
            overdue: 0,
            epoch: 0,
            last_departure: 0,
            last_device_rx: 0,
            shares: Shares::default(),
            round: 0,
            passed: [0; CLASSES],
            firsts_before_round: 0,
            in_rounds: 0,
            untrusted_may_go: false,
            last_turn_long: false,
            concurrent_since: None,
            in_line: 0,
            to_move: 0,
            current_backlog: 0,
            lists: [0; LISTS],
            hosts: Hosts::default(),
            budget: Budget::default(),
        }
    }
}

/// A connection's demand on the ACK queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// No demand: no transmission is announced, or the receiver is congested.
    Nothing,
    /// The connection needs no turn now, but the queue has to count it as a receiver of an
    /// announced transmission.
    Count,
    /// The connection needs a transmission's first turn, to acknowledge the announcement.
    First,
    /// The connection needs a turn after its transmission's first one, because an acknowledgement
    /// or a retransmission request is due. Either opens the sender's window.
    Turn,
}

impl Demand {
    /// Returns whether the demand is for a turn.
    #[inline]
    pub fn is_turn(self) -> bool {
        matches!(self, Demand::First | Demand::Turn)
    }

    /// Returns whether the queue is to count the connection.
    #[inline]
    pub fn counts(self) -> bool {
        self != Demand::Nothing
    }

    /// Returns whether the caller has to call [`AckQueue::schedule`]. The call is needed if the
    /// demand is for a turn, or if the queue would start or stop counting the connection. `counted`
    /// is set if the queue counts it now. The call is also needed while any connection of the
    /// device waits for its turn (`waits`), because each packet may make room in the budget.
    #[inline]
    pub fn needs_schedule(self, counted: bool, waits: bool) -> bool {
        self.is_turn() || self.counts() != counted || waits
    }
}

/// The queue's answer to a connection's demand. It says how the caller has to change its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The lists stay as they are.
    Unchanged,
    /// The connection has its turn at once. The lists stay as they are.
    Turn,
    /// The connection waits for its turn: append it to this list.
    Joins(List),
    /// The connection no longer waits: remove it from this list.
    Leaves(List),
}

impl AckQueue {
    /// Processes a connection's demand: gives it a turn or makes it wait. Call this before the
    /// connection sends, and change the lists as the verdict says.
    #[inline]
    pub fn schedule(
        &mut self,
        slot: &mut Slot,
        connection: &mut Connection,
        now: Nanos,
    ) -> Verdict {
        if slot.has_listed_turn() && connection.waits_turn() {
            // This connection was given a turn, and has not taken it yet.
            return Verdict::Unchanged;
        }
        let demand = connection.demand();
        if demand.is_turn() && connection.grants() {
            connection.set_start(self.start(slot, connection.is_long(), now));
        }
        if demand == Demand::Nothing {
            self.refund(slot, connection);
        }
        if connection.grants() {
            self.budget
                .note(connection.take_samples(), self.waiting > 0, now);
        }
        let verdict = self.update(slot, demand, now);
        if demand.is_turn() {
            let alone = self.active() <= 1;
            let port = self.budget.port(if alone { 1 } else { self.scheduled });
            connection.set_port(self.scheduled, alone, port);
            if !connection.is_adaptive() {
                // The budget cannot adapt to fixed windows. So end it, and give no additional
                // turns.
                self.budget.end();
            }
        }
        if let Some(packets) = connection.in_flight().filter(|_| slot.is_scheduled()) {
            slot.window = connection.next_window();
            let opened = if verdict == Verdict::Turn {
                slot.window
            } else {
                0
            };
            self.count_in_flight(slot, packets.saturating_add(opened));
        }
        match verdict {
            Verdict::Turn => connection.take_immediate_turn(),
            Verdict::Joins(_) => connection.wait_turn(),
            Verdict::Unchanged if slot.is_waiting() => connection.wait_turn(),
            Verdict::Unchanged | Verdict::Leaves(_) => {}
        }
        verdict
    }

    /// Processes a demand like [`schedule`](Self::schedule), but does not tell the connection of
    /// its turn. The caller has to do that.
    #[inline]
    pub fn update(&mut self, slot: &mut Slot, demand: Demand, now: Nanos) -> Verdict {
        match (slot.position, demand) {
            (Position::Unscheduled, Demand::Nothing) => return Verdict::Unchanged,
            (Position::Unscheduled, _) => {
                self.scheduled = self.scheduled.saturating_add(1);
                slot.position = Position::Turn(Turn {
                    epoch: self.epoch,
                    since: now,
                    kind: Kind::Announced,
                });
            }
            (Position::Turn(turn), Demand::Nothing) => {
                self.end_turn(slot.host, turn, true, now);
                self.unschedule(slot);
                return Verdict::Unchanged;
            }
            (Position::Waiting(list), Demand::Nothing) => {
                self.leave(list);
                self.return_place(slot.host, list);
                self.unschedule(slot);
                return Verdict::Leaves(list);
            }
            (Position::Turn(_) | Position::Waiting(_), _) => {}
        }
        if demand.is_turn() {
            self.request_turn(slot, demand, now)
        } else {
            Verdict::Unchanged
        }
    }

    /// Returns the number of a connection's packets that count as in flight. Packets of expired
    /// turns do not count.
    #[inline]
    fn in_flight(&self, slot: &Slot) -> u16 {
        if slot.counted == self.epoch {
            slot.in_flight
        } else {
            0
        }
    }

    /// Sets the number of packets of a connection that are in flight.
    #[inline]
    fn count_in_flight(&mut self, slot: &mut Slot, packets: u16) {
        self.budget.change(self.in_flight(slot), packets);
        slot.in_flight = packets;
        slot.counted = self.epoch;
    }

    /// Stops counting a connection as a receiver of an announced transmission.
    #[inline]
    fn unschedule(&mut self, slot: &mut Slot) {
        self.count_in_flight(slot, 0);
        slot.position = Position::Unscheduled;
        self.scheduled = self.scheduled.saturating_sub(1);
        if self.scheduled == 0 {
            self.last_turn_long = false;
            self.budget.rest(self.shares.connections());
            // Skip `ROUNDS` rounds, so that no host has turns in advance from now on.
            self.round = self.round.wrapping_add(ROUNDS);
        }
    }

    /// Returns the number of packets that a sender may send directly after its next announcement.
    /// If other connections receive announced transmissions, too, a long transmission gives up its
    /// share. Short transmissions, which come and go, benefit more from the share.
    #[inline]
    fn start(&mut self, slot: &mut Slot, is_long: bool, now: Nanos) -> u16 {
        if is_long && self.scheduled > 1 {
            self.release(slot);
            return 0;
        }
        self.share(slot, now)
    }

    /// Gives a connection a new share of [`UNSCHEDULED`], and returns the number of packets in the
    /// share. The share is an equal part, or what the other shares leave, whichever is less. Unlike
    /// [`schedule`](Self::schedule), this does not tell the connection of its share.
    pub fn share(&mut self, slot: &mut Slot, now: Nanos) -> u16 {
        self.shares.give(&mut slot.share, now)
    }

    /// Frees the share of a connection that has ended, unless the share has lapsed.
    pub fn release(&mut self, slot: &mut Slot) {
        self.shares.release(&mut slot.share);
    }

    /// Requests a turn for a counted connection.
    #[inline]
    fn request_turn(&mut self, slot: &mut Slot, demand: Demand, now: Nanos) -> Verdict {
        let Position::Turn(turn) = slot.position else {
            return Verdict::Unchanged;
        };
        self.end_turn(slot.host, turn, false, now);
        if self.active() <= 1 || (self.waiting == 0 && self.budget.has_room()) {
            slot.position = Position::Turn(Turn {
                epoch: self.epoch,
                since: now,
                kind: Kind::Immediate,
            });
            self.last_turn_long = demand == Demand::Turn;
            return Verdict::Turn;
        }
        if self.waiting == 0 {
            self.last_departure = now;
        }
        if turn.kind == Kind::Immediate {
            if let Some(host) = self.hosts.find(slot.host, self.round) {
                host.count(self.round);
            }
        }
        let list = self.choose_list(slot, demand == Demand::First, false);
        self.join(list);
        slot.position = Position::Waiting(list);
        Verdict::Joins(list)
    }

    /// Ends a turn, either because its transmission has ended (`ends`) or because its connection
    /// has asked for the next turn.
    #[inline]
    fn end_turn(&mut self, host: u64, turn: Turn, ends: bool, now: Nanos) {
        let overdue = turn.epoch != self.epoch;
        if overdue {
            self.overdue = self.overdue.saturating_sub(1);
        }
        let late = now.saturating_sub(turn.since) > if ends { LATE_END } else { HOLD };
        let untrusted = turn.kind == Kind::Untrusted;
        let concurrent = turn.kind == Kind::Concurrent;
        if (untrusted || concurrent) && self.concurrent_since == Some(turn.since) {
            self.concurrent_since = None;
        }
        if concurrent || turn.kind == Kind::First {
            self.in_line = if ends {
                self.in_line.saturating_sub(1)
            } else {
                IN_LINE
            };
        }
        let passed = late || (overdue && !untrusted && !concurrent);
        if passed || untrusted {
            if let Some(host) = self.hosts.find(host, self.round) {
                host.update_trust(passed);
            }
        }
    }

    /// Chooses the list for a connection that begins to wait or, if `moves` is set, comes from the
    /// backlog.
    #[inline]
    fn choose_list(&mut self, slot: &Slot, first: bool, moves: bool) -> List {
        let round = self.round;
        let backlog = self.backlog(u8::from(!moves));
        let most = if moves || self.to_move().is_none() {
            ROUNDS
        } else {
            // Places in the later half of the rounds are reserved for connections from the backlog.
            ROUNDS / 2
        };
        let host = self.hosts.find(slot.host, round);
        if host.as_ref().is_some_and(|host| !host.is_trusted()) {
            return List::UNTRUSTED;
        }
        match (slot.priority, host) {
            (0, Some(host)) => host.place(round, most, first).unwrap_or(backlog),
            (0, None) if first => List::FIRST,
            (0, None) => List::of_round(round.wrapping_add(1)),
            (1..=6, _) => List::PREFERRED,
            _ => List::CONTROL,
        }
    }

    /// Chooses a new list for a connection that the caller has removed from the backlog list
    /// `list`. Returns the new list.
    #[inline]
    fn move_from_backlog(&mut self, slot: &mut Slot, list: List) -> List {
        self.to_move = self.to_move.saturating_sub(1);
        if list != self.backlog(0) {
            self.current_backlog ^= 1;
        }
        let list = self.choose_list(slot, false, true);
        self.join(list);
        slot.position = Position::Waiting(list);
        list
    }

    /// Gives back the place of a connection that leaves its list before it gets a turn.
    #[inline]
    fn return_place(&mut self, host: u64, list: List) {
        let first = list == List::FIRST;
        if first || list.is_round() {
            if let Some(host) = self.hosts.find(host, self.round) {
                host.return_place(self.round, first);
            }
        }
    }

    /// Gives the unused part of a turn back to its host, because the transmission ended in that
    /// turn.
    #[inline]
    fn refund(&mut self, slot: &Slot, connection: &Connection) {
        let used = match slot.position {
            Position::Turn(turn) => {
                matches!(turn.kind, Kind::Listed | Kind::First | Kind::Concurrent)
            }
            Position::Unscheduled | Position::Waiting(_) => false,
        };
        if !used || slot.priority > 0 {
            return;
        }
        if let Some(host) = self.hosts.find(slot.host, self.round) {
            host.refund(self.round, connection.unused());
        }
    }

    #[inline]
    fn join(&mut self, list: List) {
        self.waiting = self.waiting.saturating_add(1);
        if let Some(count) = self.lists.get_mut(list.index()) {
            *count = count.saturating_add(1);
        }
        if list.is_round() {
            if self.in_rounds == 0 {
                self.firsts_before_round = self.count(List::FIRST);
            }
            self.in_rounds = self.in_rounds.saturating_add(1);
        }
    }

    #[inline]
    fn leave(&mut self, list: List) {
        self.waiting = self.waiting.saturating_sub(1);
        if let Some(count) = self.lists.get_mut(list.index()) {
            *count = count.saturating_sub(1);
        }
        if list.is_round() {
            self.in_rounds = self.in_rounds.saturating_sub(1);
        }
    }

    #[inline]
    fn count(&self, list: List) -> u32 {
        self.lists.get(list.index()).copied().unwrap_or(0)
    }

    #[inline]
    fn is_empty(&self, list: List) -> bool {
        self.count(list) == 0
    }

    /// Returns the number of scheduled connections that are not overdue.
    #[inline]
    fn active(&self) -> u32 {
        self.scheduled.saturating_sub(self.overdue)
    }

    /// Sets the time at which a packet of any connection last arrived at the device. Call this
    /// before [`is_due`](Self::is_due), [`next_turn`](Self::next_turn) and
    /// [`deadline`](Self::deadline).
    #[inline]
    pub fn note_arrival(&mut self, at: Nanos) {
        self.last_device_rx = at;
    }

    /// Returns the time at which the current turns expire.
    #[inline]
    fn turn_limit(&self) -> Nanos {
        let idle = self
            .last_departure
            .max(self.last_device_rx)
            .saturating_add(IDLE);
        idle.min(self.last_departure.saturating_add(HOLD))
    }

    /// Returns whether a turn is due, that is, whether [`next_turn`](Self::next_turn) would return
    /// one.
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.waiting > 0
            && (self.waiting >= self.active()
                || now >= self.turn_limit()
                || self.concurrent_list(now).is_some()
                || self.budget.has_room()
                || (self.to_move > 0 && self.to_move().is_some()))
    }

    /// Returns the backlog list whose first connection may get a place in a round: the current list
    /// or, if that is empty, the list of newcomers.
    #[inline]
    fn to_move(&self) -> Option<List> {
        let lists = [self.backlog(0), self.backlog(1)];
        lists.into_iter().find(|list| !self.is_empty(*list))
    }

    /// Returns a backlog list: the current list if `place` is 0, the list of newcomers if `place`
    /// is 1.
    #[inline]
    fn backlog(&self, place: u8) -> List {
        let [one, other] = List::BACKLOG;
        if (self.current_backlog ^ place) & 1 == 0 {
            one
        } else {
            other
        }
    }

    /// Returns the list whose first connection may get a concurrent turn, which does not wait for
    /// the end of other turns. Returns `None` if no concurrent turn may be given now.
    #[inline]
    fn concurrent_list(&self, now: Nanos) -> Option<List> {
        let silent = now >= self.last_device_rx.saturating_add(IDLE);
        let free = self
            .concurrent_since
            .is_none_or(|since| now >= since.saturating_add(if silent { IDLE } else { HOLD }));
        if !free {
            return None;
        }
        if self.untrusted_may_go && !self.is_empty(List::UNTRUSTED) {
            Some(List::UNTRUSTED)
        } else if self.last_turn_long && self.in_line == 0 && !self.is_empty(List::FIRST) {
            Some(List::FIRST)
        } else {
            None
        }
    }

    /// Returns the next turn, if one is due. If the turn is due only because the time limit of the
    /// current turns has passed, the current turns expire when the next one is given.
    #[inline]
    pub fn next_turn(&mut self, now: Nanos) -> Option<NextTurn<'_>> {
        if !self.is_due(now) {
            return None;
        }
        let to_move = self.to_move().filter(|_| self.to_move > 0);
        let (list, step) = if let Some(list) = to_move {
            (list, Step::Move)
        } else if let Some(list) = self.concurrent_list(now) {
            (list, Step::Concurrent)
        } else if self.waiting >= self.active() || now >= self.turn_limit() {
            (self.next_list(), Step::Turn)
        } else {
            (self.next_list(), Step::Budget)
        };
        Some(NextTurn {
            queue: self,
            now,
            list,
            step,
        })
    }

    /// Returns, for each class in order of precedence, the list whose first connection may get the
    /// next regular (not concurrent) turn.
    #[inline]
    fn classes(&self) -> [Option<List>; CLASSES] {
        let waits = |list: List| (!self.is_empty(list)).then_some(list);
        let rounds = (0..ROUNDS).map(|ahead| List::of_round(self.round.wrapping_add(ahead)));
        let rounds = rounds.filter_map(waits).next();
        // While long transmissions have turns, first turns are given concurrently with them, so the
        // list of first turns gets no regular turn.
        let first = waits(List::FIRST)
            .filter(|_| !self.last_turn_long || self.in_line > 0 || rounds.is_none());
        [waits(List::CONTROL), waits(List::PREFERRED), first, rounds]
    }

    /// Returns the list whose first connection gets the next regular (not concurrent) turn.
    #[inline]
    fn next_list(&self) -> List {
        let classes = self.classes();
        let overdue = classes.iter().zip(&self.passed).rev();
        let overdue = overdue.filter_map(|(list, n)| list.filter(|_| *n >= PASSES));
        let mut next = overdue.chain(classes.iter().copied().flatten());
        next.next().or(self.to_move()).unwrap_or(List::UNTRUSTED)
    }

    /// Updates how often each class was passed over, because the first connection of `chosen` gets
    /// a turn.
    #[inline]
    fn count_passes(&mut self, chosen: List) {
        let classes = self.classes();
        let now = List::of_round(self.round);
        let before = chosen == List::FIRST && self.firsts_before_round > 0;
        for (list, passed) in classes.into_iter().zip(&mut self.passed) {
            *passed = match list {
                Some(list) if list != chosen => {
                    let counts = !(before && list.is_round() && list != now);
                    passed.saturating_add(counts.into())
                }
                _ => 0,
            };
        }
        if chosen == List::FIRST {
            self.firsts_before_round = self.firsts_before_round.saturating_sub(1);
        } else if chosen.is_round() {
            self.firsts_before_round = self.count(List::FIRST);
        }
        self.round = self.round_of(chosen).unwrap_or(self.round);
    }

    /// Returns the number of the round whose connections wait in `list`: the current round or a
    /// later one. Returns `None` if `list` belongs to no round.
    #[inline]
    fn round_of(&self, list: List) -> Option<u32> {
        let place = u32::from(list.0.checked_sub(LISTS_BEFORE_ROUNDS)?);
        let ahead = place.wrapping_sub(self.round) % ROUNDS;
        Some(self.round.wrapping_add(ahead))
    }

    /// Expires the turns that have not ended. Their connections become overdue.
    #[inline]
    fn expire_turns(&mut self) {
        if self.waiting < self.active() {
            self.overdue = self.scheduled.saturating_sub(self.waiting);
            self.epoch = self.epoch.wrapping_add(1);
            self.budget.forget();
        }
    }

    /// Returns the time at which to call [`next_turn`](Self::next_turn) if nothing else happens.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        (self.waiting > 0).then(|| self.turn_limit())
    }

    /// Sets the speed of the device's link, in Mbit/s; 0 if unknown.
    pub fn set_link(&mut self, megabits: u32) {
        self.budget.link = link_rate(megabits);
    }

    /// Returns the number of counted connections, called n in `docs/protocol.md`.
    #[inline]
    pub fn scheduled(&self) -> u32 {
        self.scheduled
    }

    /// Returns the number of connections in the lists.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Returns the number of times that turns of silent connections expired; wraps.
    #[inline]
    pub fn overruns(&self) -> u32 {
        self.epoch
    }
}
