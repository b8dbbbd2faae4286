// SPDX-License-Identifier: GPL-2.0

//! Records: messages that keep their bounds.
//!
//! Each end of a connection with records announces records in its SYN or SYN|ACK, and their
//! [`Kind`]. If only one end does so, or the ends announce different kinds, the connection is
//! refused: see [`Connection::take_answer`]. Each record is one
//! transmission, so only its first packet carries TXS, and only its last packet carries TXF.
//!
//! * The write queue knows the bounds ([`WriteQueue::flags`]). The caller queues only whole
//!   records, so each record that begins also ends.
//! * Each end advertises the longest record that it accepts, at least [`LEAST_RECORD`]. While no
//!   whole record is queued, the reader cannot make room. So the receiver then keeps its window
//!   open for the arriving record, and must be able to hold one record of the advertised length in
//!   addition to its receive buffer.
//! * Packets are taken in order, so no reassembly is needed. A peer breaks the rules if it sends
//!   TXS or the FIN within a record, data without TXS between two records, or a record that is too
//!   long. Then the connection ends with a RST.

use super::config::Config;
use super::connection::Connection;
use super::outcome::{Outcome, WriteQueue};
use super::sender::{Outgoing, Sender};
use super::seq::Seq;
use super::state::Failure;
use super::wire::flags;

/// Lower bound, in bytes, of the longest record that a host accepts: every host accepts records of
/// this length. A smaller value in a peer's option is raised to this.
pub const LEAST_RECORD: u32 = 65_536;

/// Upper bound, in bytes, of the longest record that a host advertises.
const MOST_RECORD: u32 = 1 << 30;

/// Returns the longest record that a host with a receive buffer of `limit` bytes accepts.
pub fn largest_record(limit: u32) -> u32 {
    limit.clamp(LEAST_RECORD, MOST_RECORD)
}

/// A kind of records, as an end of a connection announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The longest record that the end accepts, in bytes.
    pub largest: u32,
    /// Whether each record begins with the header of a [message](super::messages).
    pub is_channel: bool,
}

impl Kind {
    /// Returns plain records of up to `largest` bytes.
    pub fn plain(largest: u32) -> Self {
        Kind {
            largest,
            is_channel: false,
        }
    }

    /// Returns whether two ends that announce these records, if any, can have a connection.
    pub fn agree(one: Option<Self>, other: Option<Self>) -> bool {
        let of = |kind: Option<Self>| kind.map(|kind| kind.is_channel);
        of(one) == of(other)
    }
}

/// The record state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Records {
    /// The records that this end accepts.
    own: Kind,
    /// The longest record that the peer accepts, in bytes.
    peer: u32,
    /// Whether a record has begun to arrive and has not ended.
    open: bool,
    /// Number of bytes of the current record that have arrived.
    arrived: u32,
}

impl Records {
    /// Sets the longest record that the peer accepts.
    pub(super) fn set_peer_largest(&mut self, largest: u32) {
        self.peer = largest;
    }

    /// Returns whether a record has begun to arrive and has not ended.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Processes `bytes` bytes of data that are next in order. `starts` and `ends` state whether a
    /// record begins or ends with them. Returns `None` if the peer breaks the rules: if a record
    /// begins before the previous one has ended, if the data belong to no record, or if a record is
    /// too long.
    fn take(&mut self, starts: bool, ends: bool, bytes: u32) -> Option<Part> {
        let length = self.arrived.saturating_add(bytes);
        if starts == self.open || length > self.own.largest {
            return None;
        }
        self.open = !ends;
        self.arrived = if ends { 0 } else { length };
        Some(if ends { Part::Last(length) } else { Part::More })
    }
}

/// The position of data in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// More data of the record follows.
    More,
    /// The record ends, with this length in bytes.
    Last(u32),
}

impl Connection {
    /// Makes this a connection with records of the kind `kind` (see [`largest_record`]). Call this
    /// before the first packet is sent.
    pub fn use_records(&mut self, kind: Kind) {
        self.records = Some(Records {
            own: kind,
            peer: LEAST_RECORD,
            open: false,
            arrived: 0,
        });
        self.sender.keep_records();
    }

    /// Returns whether the connection has records.
    #[inline]
    pub fn has_records(&self) -> bool {
        self.records.is_some()
    }

    /// Returns the records that this end accepts, as its SYN or SYN|ACK announces them; `None`
    /// without records.
    pub fn records(&self) -> Option<Kind> {
        Some(self.records?.own)
    }

    /// Returns whether the connection is a channel.
    pub fn is_channel(&self) -> bool {
        self.records().is_some_and(|kind| kind.is_channel)
    }

    /// Returns the longest record that the peer accepts; 0 if the connection has no records.
    pub fn largest_record(&self) -> u32 {
        self.records.map_or(0, |records| records.peer)
    }

    /// Processes the record bounds of data that the caller is about to queue
    /// ([`Outcome::deliver`]): `bytes` bytes from a run of `count` packets with `header_flags`.
    /// Returns the position of these bytes in their record. Returns `None` if the peer broke the
    /// rules: then nothing is to be queued, and the connection has failed.
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
    /// Chooses at most `room` new packets of a record to send. Their flags come from the write
    /// queue.
    // This function is not inlined, so that connections without records only pay for one branch.
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
