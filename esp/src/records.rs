// SPDX-License-Identifier: GPL-2.0

//! Records: messages that keep their bounds.
//!
//! Both ends of a connection with records say so in their SYN or SYN|ACK, or there is
//! no connection: see [`Connection::take_answer`]. Each record is a transmission of its
//! own: its first packet carries TXS, its last one TXF, and no others do.
//!
//! * The write queue knows the bounds ([`WriteQueue::flags`]).
//!   The caller queues a record as a whole or not at all, so one that has begun also ends.
//! * Each end tells the length of the longest record that it takes, which is at least
//!   [`LEAST_RECORD`]. A receiver that knows no record whole keeps its window open for the
//!   one that arrives: its reader cannot make room. So it must be able to hold one record of
//!   that length beside its receive buffer.
//! * Packets are taken in order. So there is nothing to put together: a peer sends TXS in a
//!   record, or data without it between two, or a longer record, or the FIN within one, only
//!   if it breaks the rules. Then the connection ends with a RST.

use super::config::Config;
use super::connection::Connection;
use super::outcome::{Outcome, WriteQueue};
use super::sender::{Outgoing, Sender};
use super::seq::Seq;
use super::state::Failure;
use super::wire::flags;

/// The longest record that every host takes, bytes. An option that says less counts as this.
pub const LEAST_RECORD: u32 = 65_536;

/// The longest record that a host may ever say it takes, bytes.
const MOST_RECORD: u32 = 1 << 30;

/// The longest record that a host with a receive buffer of `limit` bytes takes.
pub fn largest_record(limit: u32) -> u32 {
    limit.clamp(LEAST_RECORD, MOST_RECORD)
}

/// The part of a connection that has records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Records {
    /// The longest record that this end takes.
    own: u32,
    /// The longest that the peer takes.
    peer: u32,
    /// A record has begun to arrive and has not ended.
    open: bool,
    /// Its bytes so far.
    arrived: u32,
}

impl Records {
    /// The peer takes records of up to `largest` bytes.
    pub(super) fn set_peer_largest(&mut self, largest: u32) {
        self.peer = largest;
    }

    /// Whether a record has begun to arrive and has not ended.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Takes in data that are next in order. `None` if the peer breaks the rules.
    fn take(&mut self, starts: bool, ends: bool, bytes: u32) -> Option<Part> {
        let length = self.arrived.saturating_add(bytes);
        if starts == self.open || length > self.own {
            return None;
        }
        self.open = !ends;
        self.arrived = if ends { 0 } else { length };
        Some(if ends { Part::Last(length) } else { Part::More })
    }
}

/// The place of data in their record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// More is to follow.
    More,
    /// The record ends with them. It has so many bytes.
    Last(u32),
}

impl Connection {
    /// The connection has records; this end takes such of up to `largest` bytes, a
    /// [`largest_record`]. To be called before the first packet leaves.
    pub fn use_records(&mut self, largest: u32) {
        self.records = Some(Records {
            own: largest,
            peer: LEAST_RECORD,
            open: false,
            arrived: 0,
        });
        self.sender.keep_records();
    }

    /// Whether the connection has records.
    #[inline]
    pub fn has_records(&self) -> bool {
        self.records.is_some()
    }

    /// Of a connection with records, the longest that this end takes: what its SYN or
    /// SYN|ACK tells.
    pub fn records(&self) -> Option<u32> {
        Some(self.records?.own)
    }

    /// The longest record that the peer takes, 0 if the connection has none.
    pub fn largest_record(&self) -> u32 {
        self.records.map_or(0, |records| records.peer)
    }

    /// Takes the place in their record of the `bytes` that [`Outcome::deliver`] says to queue, from
    /// a run of `count` packets with `header_flags`. `None` if the peer breaks the rules: nothing
    /// is to be queued, and the connection has failed.
    pub fn take_part(
        &mut self,
        header_flags: u8,
        count: u16,
        bytes: u32,
        outcome: &mut Outcome,
    ) -> Option<Part> {
        let behind = outcome.skip.saturating_add(outcome.taken);
        let starts = header_flags & flags::TXS != 0 && outcome.skip == 0;
        let ends = header_flags & flags::TXF != 0 && behind == count;
        let part = self.records.as_mut()?.take(starts, ends, bytes);
        if part.is_none() {
            self.break_off(Failure::Reset, outcome);
        }
        part
    }
}

impl Sender {
    /// Decides how packets leave for the first time, at most `room`: the queue says where records
    /// start and end.
    // Out of line, so that connections without records pay for it with one branch.
    #[cold]
    #[inline(never)]
    pub(super) fn first_of_record(
        &mut self,
        seq: Seq,
        room: u16,
        config: &Config,
        queue: &mut impl WriteQueue,
    ) -> Option<Outgoing> {
        let most = self.most_first(seq, room, config, queue)?;
        let starts = queue.flags(seq) & flags::TXS != 0;
        let ends = queue.flags(seq.add(most).sub(1)) & flags::TXF != 0;
        Some(self.first(seq, most, starts, ends))
    }
}
