// SPDX-License-Identifier: GPL-2.0

//! The ACK queue: in which order the senders that share a bottleneck get the
//! acknowledgements that open their windows (Treydte 2007).
//!
//! One [`AckQueue`] stands for one bottleneck, the receiving device. It counts
//! and decides; the [`LISTS`] of waiting connections are the caller's, each first
//! in, first out. Each connection keeps its [`Slot`].
//!
//! * After each call of a connection's engine, and before the connection sends,
//!   [`schedule`](AckQueue::schedule) tells what to do with the lists.
//! * Then, and at [`deadline`](AckQueue::deadline), the first connection of a
//!   list leaves it as long as there is a [`next_turn`](AckQueue::next_turn) to
//!   [give](NextTurn::give) it.
//!
//! Of `n` senders that have announced a transmission, `n - 1` wait and one
//! sends. If that one falls silent, the others would wait for ever. So when no
//! packet has arrived at the device for [`IDLE`], or none has left the lists for
//! [`HOLD`], the next one leaves all the same, and the connections that had the turn
//! until then are *overdue*: they do not count until they ask again. A silent
//! sender thus delays the others once, and not with every acknowledgement.
//!
//! # Who is next
//!
//! * **Classes.** A socket with a priority goes first, then the first turn of each
//!   transmission, then all others: what is short needs one turn at most, and does
//!   not wait behind what is long. A class that was passed over [`PASSES`] times in
//!   a row is next, so that nobody waits for ever.
//! * **Beside.** A first turn need not wait for the end of a later one: there may be one of
//!   each. What is short then costs the long ones the time of its packets, and not that
//!   of a round trip. A port has no room for a third window beside what comes unscheduled, so the
//!   next turn beside another one waits until that connection has asked again, the device was
//!   silent, or [`HOLD`] is over. Where transmissions turn out long, their first turns are not
//!   given beside others: after such a one, [`IN_LINE`] short ones have theirs in line.
//! * **Hosts.** In the last class each host has one turn in each round, however many
//!   connections it has. A round has a list; a host remembers the first round in
//!   which it has no turn yet. A first turn is the host's turn in the round, if it has
//!   none; beyond that a host may have [`CREDIT`] of them, and has to miss rounds before
//!   it may have more. A host that the table has no room for has as many turns
//!   as it has connections.
//! * **Trust.** A host that lets its turns pass may not hold the queue up again. Its
//!   connections have turns beside those of others, until it has used some of them.
//!
//! The queue also shares [`UNSCHEDULED`] packets among the senders. While fewer granted packets are
//! in flight than its `budget` has, a turn is given beside others.

use super::connection::Connection;
use super::timers::{Nanos, MILLISECOND};
pub(super) use budget::{least_time, on_wire, Samples};
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

/// So often in a row the turn passes over a class that waits.
pub const PASSES: u8 = 3;

/// So many first turns a host may have before the others beyond its turn in each round.
pub const CREDIT: u8 = 8;

/// After the first turn of a long transmission so many of short ones are given in line, and not
/// beside others.
pub const IN_LINE: u8 = 8;

/// Of a turn that a transmission ends, the parts are given back that it did not use.
pub(super) const PARTS: u8 = 16;

/// Rounds that have a list. A host with more connections than that in the lists waits for a place
/// in a round.
const ROUNDS: u32 = 16;

/// Classes in the order of their turns: those of [`List::CONTROL`], [`List::PREFERRED`],
/// [`List::FIRST`], and of the rounds.
const CLASSES: usize = 4;

/// Lists before those of the rounds.
const BEFORE: u8 = 6;

/// Lists of waiting connections that the caller keeps.
pub const LISTS: usize = BEFORE as usize + ROUNDS as usize;

/// With each turn so many connections are looked at that wait for a place in a round.
const MOVES: u8 = 2;

/// How long a turn may take until the transmission ends with it.
const LATE_END: Nanos = 2 * IDLE;

/// A list of waiting connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct List(u8);

impl List {
    /// Sockets with a priority that takes a privilege.
    const CONTROL: List = List(0);
    /// Sockets with a priority.
    const PREFERRED: List = List(1);
    /// First turns of transmissions.
    const FIRST: List = List(2);
    /// Hosts without trust.
    const UNTRUSTED: List = List(3);
    /// Connections whose hosts have one in each round: those that are looked at, and those that
    /// came later, in turn.
    const BACKLOG: [List; 2] = [List(4), List(5)];

    /// Its place among the [`LISTS`].
    #[inline]
    pub fn index(self) -> usize {
        self.0.into()
    }

    #[inline]
    fn is_round(self) -> bool {
        self.0 >= BEFORE
    }

    #[inline]
    fn of_round(round: u32) -> List {
        List(BEFORE.saturating_add((round % ROUNDS) as u8))
    }
}

/// The order of acknowledgements at one bottleneck.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AckQueue {
    /// Connections that receive an announced transmission: the protocol's n.
    scheduled: u32,
    /// Of these, connections in the lists.
    waiting: u32,
    /// Of the others, connections whose turn ended without a sign of them, or that hold nobody up.
    overdue: u32,
    /// How often turns ended so.
    epoch: u32,
    /// When one left the lists last, or they began to fill.
    last_departure: Nanos,
    /// When a packet last arrived at the device.
    last_device_rx: Nanos,
    shares: Shares,
    /// The round whose turns are given.
    round: u32,
    /// How often in a row the turn passed over each class. First turns that were asked for before
    /// pass over a round that has not begun without being counted.
    passed: [u8; CLASSES],
    /// So many of these are left.
    firsts_before_round: u32,
    /// Connections in the lists of rounds.
    in_rounds: u32,
    /// The host without trust that is next may have a turn beside the one that was given.
    untrusted_may_go: bool,
    /// The turn that was given last is not the first one of a transmission.
    last_turn_long: bool,
    /// When a turn was given beside that, until its connection asks again.
    concurrent_since: Option<Nanos>,
    /// First turns are given in line and not beside others until so many have ended their
    /// transmissions.
    in_line: u8,
    /// So many connections that wait for a place in a round are to be looked at.
    to_move: u8,
    /// In which of their lists.
    current_backlog: u8,
    /// Connections in each list.
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

/// A connection's demand to the ACK queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing: no transmission is announced, or its receiver is congested.
    Nothing,
    /// To be counted.
    Count,
    /// The first turn of a transmission, for the acknowledgement of its announcement.
    First,
    /// A turn, for an acknowledgement that is due and opens the window.
    Turn,
}

impl Demand {
    /// Whether it is for a turn.
    #[inline]
    pub fn is_turn(self) -> bool {
        matches!(self, Demand::First | Demand::Turn)
    }

    /// Whether the queue is to count the connection.
    #[inline]
    pub fn counts(self) -> bool {
        self != Demand::Nothing
    }

    /// Whether the queue is to be asked: for a turn, if it has `counted` the connection and is to
    /// do so no more or the reverse, and while any connection `waits` for its turn, since each
    /// packet may make room in the budget.
    #[inline]
    pub fn needs_schedule(self, counted: bool, waits: bool) -> bool {
        self.is_turn() || self.counts() != counted || waits
    }
}

/// The queue's answer to a connection's demand, and the change of the caller's
/// lists that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The lists stay as they are.
    Unchanged,
    /// The turn has come at once. The lists stay as they are.
    Turn,
    /// The connection waits for its turn: it joins this list's tail.
    Joins(List),
    /// The connection is in this list and has to leave it.
    Leaves(List),
}

impl AckQueue {
    /// Asks what a connection needs, and has it take its turn or wait for it: to
    /// be called before it sends. The caller does to its lists what the answer
    /// says.
    #[inline]
    pub fn schedule(
        &mut self,
        slot: &mut Slot,
        connection: &mut Connection,
        now: Nanos,
    ) -> Verdict {
        if slot.has_listed_turn() && connection.waits_turn() {
            // It was given and is yet to be taken.
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
            connection.set_port(self.scheduled, self.budget.link);
            if !connection.is_adaptive() {
                // Nothing fits the budget to fixed windows, so it gives no turns.
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

    /// Books what a connection needs. [`schedule`](Self::schedule) tells the
    /// connection as well.
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

    /// A connection's packets that count as in flight. Those of turns that the time has ended do
    /// not.
    #[inline]
    fn in_flight(&self, slot: &Slot) -> u16 {
        if slot.counted == self.epoch {
            slot.in_flight
        } else {
            0
        }
    }

    /// So many packets of a connection are in flight.
    #[inline]
    fn count_in_flight(&mut self, slot: &mut Slot, packets: u16) {
        self.budget.change(self.in_flight(slot), packets);
        slot.in_flight = packets;
        slot.counted = self.epoch;
    }

    /// A connection is no longer counted.
    #[inline]
    fn unschedule(&mut self, slot: &mut Slot) {
        self.count_in_flight(slot, 0);
        slot.position = Position::Unscheduled;
        self.scheduled = self.scheduled.saturating_sub(1);
        if self.scheduled == 0 {
            self.last_turn_long = false;
            // Nobody is ahead of anybody.
            self.round = self.round.wrapping_add(ROUNDS);
        }
    }

    /// What a connection may send behind its next announcement. A long transmission beside others
    /// gives its share up: short ones, which come and go, make more of it.
    #[inline]
    fn start(&mut self, slot: &mut Slot, is_long: bool, now: Nanos) -> u16 {
        if is_long && self.scheduled > 1 {
            self.release(slot);
            return 0;
        }
        self.share(slot, now)
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

    /// A connection asks, or its transmission `ends`, after this turn.
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

    /// The list for a connection that waits from now on, or `moves` to a place in a round.
    #[inline]
    fn choose_list(&mut self, slot: &Slot, first: bool, moves: bool) -> List {
        let round = self.round;
        let backlog = self.backlog(u8::from(!moves));
        let most = if moves || self.to_move().is_none() {
            ROUNDS
        } else {
            // Those that wait for a place have the next ones.
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

    /// A connection leaves a list without a turn.
    #[inline]
    fn return_place(&mut self, host: u64, list: List) {
        let first = list == List::FIRST;
        if first || list.is_round() {
            if let Some(host) = self.hosts.find(host, self.round) {
                host.return_place(self.round, first);
            }
        }
    }

    /// A transmission ends in its turn: what it did not use counts less.
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
        self.last_device_rx = at;
    }

    /// When the turn of its holders ends.
    #[inline]
    fn turn_limit(&self) -> Nanos {
        let idle = self
            .last_departure
            .max(self.last_device_rx)
            .saturating_add(IDLE);
        idle.min(self.last_departure.saturating_add(HOLD))
    }

    /// Whether there is a [`next_turn`](Self::next_turn).
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.waiting > 0
            && (self.waiting >= self.active()
                || now >= self.turn_limit()
                || self.concurrent_list(now).is_some()
                || self.budget.has_room()
                || (self.to_move > 0 && self.to_move().is_some()))
    }

    /// A connection that may have a place in a round is at the head of this list. Nobody comes
    /// before those that are looked at until all of them have one.
    #[inline]
    fn to_move(&self) -> Option<List> {
        let lists = [self.backlog(0), self.backlog(1)];
        lists.into_iter().find(|list| !self.is_empty(*list))
    }

    /// The list of the connections that wait for a place in a round and are looked at, or of those
    /// that came later.
    #[inline]
    fn backlog(&self, place: u8) -> List {
        let [one, other] = List::BACKLOG;
        if (self.current_backlog ^ place) & 1 == 0 {
            one
        } else {
            other
        }
    }

    /// The list whose head is to have a turn beside the one that was given last, and holds nobody
    /// up.
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

    /// The next turn, if it is due. If only the time makes it due, the turns of its holders end.
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

    /// The classes that wait, in the order in which they go.
    #[inline]
    fn classes(&self) -> [Option<List>; CLASSES] {
        let waits = |list: List| (!self.is_empty(list)).then_some(list);
        let rounds = (0..ROUNDS).map(|ahead| List::of_round(self.round.wrapping_add(ahead)));
        let rounds = rounds.filter_map(waits).next();
        // Beside long transmissions there are turns enough.
        let first = waits(List::FIRST)
            .filter(|_| !self.last_turn_long || self.in_line > 0 || rounds.is_none());
        [waits(List::CONTROL), waits(List::PREFERRED), first, rounds]
    }

    /// The list whose head is next.
    #[inline]
    fn next_list(&self) -> List {
        let classes = self.classes();
        let overdue = classes.iter().zip(&self.passed).rev();
        let overdue = overdue.filter_map(|(list, n)| list.filter(|_| *n >= PASSES));
        let mut next = overdue.chain(classes.iter().copied().flatten());
        next.next().or(self.to_move()).unwrap_or(List::UNTRUSTED)
    }

    /// The head of this list has the turn, and not those of the others.
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

    /// The round that has this list, from the one on whose turns are given.
    #[inline]
    fn round_of(&self, list: List) -> Option<u32> {
        let place = u32::from(list.0.checked_sub(BEFORE)?);
        let ahead = place.wrapping_sub(self.round) % ROUNDS;
        Some(self.round.wrapping_add(ahead))
    }

    /// If there are turns that only the time has ended, their connections are overdue.
    #[inline]
    fn expire_turns(&mut self) {
        if self.waiting < self.active() {
            self.overdue = self.scheduled.saturating_sub(self.waiting);
            self.epoch = self.epoch.wrapping_add(1);
            self.budget.in_flight = 0;
        }
    }

    /// When [`next_turn`](Self::next_turn) is to be asked for though nothing else
    /// has happened.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        (self.waiting > 0).then(|| self.turn_limit())
    }

    /// The device's link has so many Mbit/s; 0 if that is not known.
    pub fn set_link(&mut self, megabits: u32) {
        self.budget.link = link_rate(megabits);
    }

    /// Connections counted: the protocol's n.
    #[inline]
    pub fn scheduled(&self) -> u32 {
        self.scheduled
    }

    /// Connections in the lists.
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
