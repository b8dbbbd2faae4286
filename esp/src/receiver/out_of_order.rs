// SPDX-License-Identifier: GPL-2.0

//! Packets that are kept behind a hole, if both ends take [requests that name
//! packets](super::super::wire::Header::names_missing). The caller keeps them; here is which they
//! are, which ones are missing, and when those are requested.
//!
//! * A packet is kept if it is within a window of the expected one, less than 256 behind it, and
//!   the receive buffer has room. It is not acknowledged, so that it may be dropped at any time.
//!   When the hole closes, the caller hands it over as if it arrived then: TXS, TXF, records and
//!   the FIN count in their order.
//! * A missing packet is *lost* once [`REORDERING`] packets behind it have come, or a quarter of a round
//!   trip after it was found missing, or if the answer to a probe shows it. Only then it is
//!   requested, and is a loss for the windows. So packets that overtake others cost nothing.
//! * A packet that comes less than half the least round trip after it was requested was late: the
//!   request was needless. Each such request makes the receiver wait for more packets and longer,
//!   up to sixteen times as many, and more than a round trip; losses undo that.
//! * A request names the lost packets that no request has named before. It waits for its turn like
//!   any acknowledgement that opens a window. What it names is lost again if it has not come a
//!   round trip and its usual variation later, or if a packet comes that a later request has named.
//! * The way has no room for a window that loses more than one packet in [`MAX_LOSS_SHARE`] of it. Fewer
//!   losses are the line's, and leave the window as it is: each costs one packet.

use super::super::bits::{Bits, BYTES, MOST};
use super::super::config::Config;
use super::super::outcome::{DropReason, Room};
use super::super::rtt::{doubled, Rtt};
use super::super::seq::Seq;
use super::super::timers::{earlier, from_micros, is_due, Nanos, MICROSECOND, REQUEST_MAX};
use super::super::wire::Header;
use super::{Receiver, Request, Taken};

/// So many later packets show that one is lost: it may be overtaken by one less.
const REORDERING: u16 = 4;

/// The most steps by which the receiver waits longer after needless requests.
const MAX_SLACK: u8 = 4;

/// So many losses undo one step.
const LOSSES_PER_STEP: u8 = 16;

/// So often packets are requested that do not come; the timers of both ends go on.
const MAX_UNANSWERED: u8 = 12;

/// The part of a window that may be lost without a queue that is too small for it.
const MAX_LOSS_SHARE: u16 = 8;

/// The packets behind the expected one, by their distance from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OutOfOrder {
    /// Both ends take requests that name packets.
    enabled: bool,
    /// The caller hands a packet over that it has kept.
    delivering: bool,
    /// A retransmission has closed the hole, and what was kept behind it is being handed over.
    hole_filled: bool,
    /// Anything is known of packets behind the expected one: of usual packets this is all that is
    /// looked at.
    active: bool,
    /// Packets that the caller keeps. The expected one is among them until it is handed over.
    kept: Bits,
    /// What they cost, bytes.
    cost: u32,
    /// Missing packets that a request has named.
    requested: Bits,
    /// Of these, those that are on their way, as far as is known.
    awaited: Bits,
    /// Those of `awaited` that the last request named.
    last_named: Bits,
    /// Those of `last_named` that no request had named before.
    newly_named: Bits,
    /// When the last request left.
    last_request: Nanos,
    /// No answer to the last request can come before this time.
    earliest_answer: Nanos,
    /// From requests to what they have named.
    answer_rtt: Rtt,
    /// Requests in a row that nothing has followed.
    unanswered: u8,
    /// Missing packets below this distance are lost.
    lost_below: u16,
    /// Missing packets from `lost_below` up to this distance may only be late.
    late_below: u16,
    /// When `late_below` was set.
    late_since: Nanos,
    /// Steps by which the receiver waits longer.
    slack: u8,
    /// Losses since the last step.
    real_losses: u8,
    /// The first number of the window in which losses are counted.
    loss_window: Seq,
    /// Packets lost in it.
    lost_in_window: u16,
}

impl OutOfOrder {
    /// Nothing may be known any more of packets behind the expected one.
    fn settle(&mut self) {
        self.active = self.hole_filled
            || self.late_below != 0
            || self.lost_below != 0
            || !self.kept.is_empty();
    }

    /// The lost packets that are to be requested.
    fn wanted(&self) -> Bits {
        self.missing_before(self.lost_below).without(self.awaited)
    }

    fn missing_before(&self, end: u16) -> Bits {
        Bits::below(end).without(self.kept)
    }

    /// Missing packets that may only be late.
    fn late(&self) -> Bits {
        self.missing_before(self.late_below)
            .without(Bits::below(self.lost_below))
    }

    /// These packets have come. A packet that was requested before one of them and has not come is
    /// lost again: retransmissions leave in the order of requests. Returns whether the last request
    /// was needless.
    fn on_arrival(&mut self, packets: Bits, now: Nanos) -> bool {
        let came = self.awaited.within(packets);
        self.awaited = self.awaited.without(packets);
        if came.is_empty() {
            return false;
        }
        self.unanswered = 0;
        let answers = !came.within(self.last_named).is_empty();
        if now < self.earliest_answer && !came.within(self.newly_named).is_empty() {
            self.slack = self.slack.saturating_add(1).min(MAX_SLACK);
            self.real_losses = 0;
            return true;
        }
        if answers {
            self.answer_rtt
                .sample(now.saturating_sub(self.last_request));
        }
        self.real_losses = self.real_losses.saturating_add(1);
        if self.real_losses >= LOSSES_PER_STEP {
            self.slack = self.slack.saturating_sub(1);
            self.real_losses = 0;
        }
        if let Some(last) = came.within(self.last_named).last() {
            self.awaited = self
                .awaited
                .within(self.last_named)
                .without(Bits::below(last));
        }
        false
    }

    /// The expected number is `packets` later.
    #[cold]
    fn advance(&mut self, packets: u16, now: Nanos) -> bool {
        let taken = Bits::below(packets);
        self.hole_filled |= !self.requested.within(taken).is_empty();
        let needless = self.on_arrival(taken, now);
        self.kept = self.kept.from(packets);
        self.requested = self.requested.from(packets);
        self.awaited = self.awaited.from(packets);
        self.last_named = self.last_named.from(packets);
        self.newly_named = self.newly_named.from(packets);
        self.lost_below = self.lost_below.saturating_sub(packets);
        self.late_below = self.late_below.saturating_sub(packets);
        if self.lost_below == 0 && self.late_below == 0 && self.kept.is_empty() {
            self.awaited = Bits::default();
        }
        self.settle();
        needless
    }
}

impl Receiver {
    /// Both ends take requests that name packets, so the caller keeps those behind a hole.
    pub(in super::super) fn enable_selective(&mut self) {
        self.out_of_order.enabled = true;
    }

    /// Whether they do.
    #[inline]
    pub(in super::super) fn is_selective(&self) -> bool {
        self.out_of_order.enabled
    }

    /// Whether the caller keeps packets.
    #[inline]
    pub(in super::super) fn keeps(&self) -> bool {
        self.out_of_order.active && !self.out_of_order.kept.is_empty()
    }

    /// How many.
    #[inline]
    pub(super) fn kept_packets(&self) -> u16 {
        if self.out_of_order.active {
            self.out_of_order.kept.count()
        } else {
            0
        }
    }

    /// Whether one that it keeps has the expected number.
    #[inline]
    fn has_kept_expected(&self) -> bool {
        self.out_of_order.active && self.out_of_order.kept.has(0)
    }

    /// What the caller keeps costs so many bytes now.
    pub(in super::super) fn set_kept(&mut self, bytes: u32) {
        self.out_of_order.cost = bytes;
    }

    /// Whether the caller hands one over.
    #[inline]
    pub(super) fn is_delivering(&self) -> bool {
        self.out_of_order.delivering
    }

    /// The caller begins or ends to hand one over.
    pub(in super::super) fn set_delivering(&mut self, delivering: bool) {
        self.out_of_order.delivering = delivering;
    }

    /// The caller keeps nothing any more.
    #[inline]
    pub(in super::super) fn drop_kept(&mut self) {
        if self.out_of_order.active {
            self.forget_kept();
        }
    }

    /// Drops all kept packets if the receive buffer cannot hold them beside the arriving one, which
    /// is in order.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room(&mut self, room: Room) {
        let queued = room.queued.saturating_add(room.arriving);
        if !self.out_of_order.delivering
            && queued.saturating_add(self.out_of_order.cost) > room.limit
        {
            self.forget_kept();
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_kept(&mut self) {
        self.out_of_order = OutOfOrder {
            enabled: self.out_of_order.enabled,
            delivering: self.out_of_order.delivering,
            cost: self.out_of_order.cost,
            answer_rtt: self.out_of_order.answer_rtt,
            slack: self.out_of_order.slack,
            real_losses: self.out_of_order.real_losses,
            loss_window: self.out_of_order.loss_window,
            lost_in_window: self.out_of_order.lost_in_window,
            ..OutOfOrder::default()
        };
    }

    /// Whether packets may be missing.
    #[inline]
    pub(in super::super) fn has_hole(&self) -> bool {
        self.out_of_order.active
    }

    /// Whether the last packet was taken behind a hole that a retransmission has closed: the window
    /// has stood still since a round trip, so the acknowledgement does not wait for more packets.
    /// The next call says no.
    #[inline]
    pub(super) fn take_hole_filled(&mut self) -> bool {
        self.out_of_order.active && self.clear_hole_filled()
    }

    #[cold]
    #[inline(never)]
    fn clear_hole_filled(&mut self) -> bool {
        let filled =
            !self.has_kept_expected() && core::mem::take(&mut self.out_of_order.hole_filled);
        self.out_of_order.settle();
        filled
    }

    /// The numbers behind the expected one up to the last that is known to be in use.
    fn known(&self) -> u16 {
        self.expected.distance(self.seen).min(MOST)
    }

    /// The `count` packets with `header` are behind a hole.
    #[cold]
    #[inline(never)]
    pub(super) fn keep(
        &mut self,
        header: &Header,
        count: u16,
        room: Room,
        now: Nanos,
    ) -> Result<Taken, DropReason> {
        let first = self.expected.distance(header.seq);
        let end = first.saturating_add(count);
        let run = Bits::run(first, count);
        // Beyond a window there is nothing but what is forged, and what was sent before the window
        // became smaller.
        let most = self.peer.span().map_or(MOST, |span| (span / 2).min(MOST));
        if end <= most && run.without(self.out_of_order.kept).is_empty() {
            return Err(DropReason::Duplicate);
        }
        if room.queued.saturating_add(self.out_of_order.cost) >= room.limit {
            self.dropped_for_room = true;
            return Err(DropReason::OutOfSequence);
        }
        self.note_seen(header.seq.add(count));
        if end > most {
            self.find_missing(now);
            return Err(DropReason::OutOfSequence);
        }
        if self.out_of_order.awaited.is_empty() {
            // The acknowledgement's first packet may be among those that wait behind the hole.
            self.timed = None;
        }
        if self.out_of_order.on_arrival(run, now) {
            self.timed = None;
        }
        self.out_of_order.kept = self.out_of_order.kept.and_also(run);
        if self.is_receiving() {
            self.grants.take(count, header.len, room, now);
        }
        self.find_missing(now);
        Ok(Taken::Kept)
    }

    /// The numbers before the expected one, `packets` more, have been taken.
    #[cold]
    #[inline(never)]
    pub(super) fn close_hole(&mut self, packets: u16, now: Nanos) {
        if self.out_of_order.advance(packets, now) {
            // The packet did not come for the request.
            self.timed = None;
        }
        if self.out_of_order.lost_below == 0 || self.out_of_order.wanted().is_empty() {
            // It has become needless.
            self.request = Request::Not;
        }
    }

    /// A packet has come, or a number was seen: looks for packets that are missing.
    #[cold]
    #[inline(never)]
    pub(super) fn find_missing(&mut self, now: Nanos) {
        let later = (REORDERING << self.out_of_order.slack).saturating_sub(1);
        let later = self.out_of_order.kept.highest_but(later);
        self.out_of_order.lost_below = self.out_of_order.lost_below.max(later);
        if self.out_of_order.late().is_empty() {
            let mark = self.out_of_order.late_below;
            self.out_of_order.late_below = self.known();
            if self.out_of_order.late().is_empty() {
                self.out_of_order.late_below = mark;
            } else {
                self.out_of_order.late_since = now;
            }
        }
        self.out_of_order.settle();
        self.request_lost();
    }

    /// The missing packets before `seq` are lost, as the answer to a probe shows.
    #[cold]
    #[inline(never)]
    pub(super) fn mark_lost_before(&mut self, seq: Seq) {
        let end = self.expected.distance(seq).min(MOST);
        self.out_of_order.lost_below = self.out_of_order.lost_below.max(end);
        // The answer left behind all that was retransmitted.
        self.out_of_order.awaited = Bits::default();
        self.out_of_order.last_named = Bits::default();
        self.out_of_order.unanswered = 0;
        self.out_of_order.settle();
        if !self.out_of_order.wanted().is_empty() {
            self.request = Request::Probed;
        }
    }

    /// Requests the lost packets, if there are any; otherwise ends a request that has become
    /// needless.
    fn request_lost(&mut self) {
        if self.request == Request::Skipped {
            return;
        }
        if self.out_of_order.wanted().is_empty() {
            if self.keeps() {
                self.request = Request::Not;
            }
        } else if self.request == Request::Not {
            self.request = Request::Hole;
        }
    }

    /// A request leaves: names the lost packets, and returns how many were not known to be lost
    /// before. `None` if it names none.
    #[cold]
    pub(in super::super) fn name_lost(
        &mut self,
        config: &Config,
        rtt: &Rtt,
        now: Nanos,
    ) -> Option<u32> {
        let wanted = self.out_of_order.wanted();
        if wanted.is_empty() {
            return None;
        }
        self.out_of_order.newly_named = wanted.without(self.out_of_order.requested);
        let lost = self.out_of_order.newly_named.count();
        if lost > 0 {
            self.grants.note_missing();
            self.out_of_order.unanswered = 0;
        }
        self.out_of_order.requested = self.out_of_order.requested.and_also(wanted);
        self.out_of_order.awaited = self.out_of_order.awaited.and_also(wanted);
        self.out_of_order.last_named = wanted;
        self.out_of_order.last_request = now;
        let (usual, _) = self.round_trip(config, rtt);
        let least = self
            .grants
            .least_time()
            .map_or(usual, |least| least.min(usual));
        self.out_of_order.earliest_answer = now.saturating_add(least / 2);
        self.count_loss(lost, config);
        Some(lost.into())
    }

    /// So many packets were lost.
    fn count_loss(&mut self, packets: u16, config: &Config) {
        if packets == 0 {
            return;
        }
        let window = self.grants.window(config);
        if self.out_of_order.loss_window.distance(self.expected) > window {
            self.out_of_order.loss_window = self.expected;
            self.out_of_order.lost_in_window = 0;
        }
        self.out_of_order.lost_in_window = self.out_of_order.lost_in_window.saturating_add(packets);
        if self.out_of_order.lost_in_window > window / MAX_LOSS_SHARE {
            self.samples.lost = true;
            self.grants.on_loss(config);
        }
    }

    /// The packets that the request named which has just left, as bytes, and how many of these it
    /// has.
    pub(in super::super) fn named(&self) -> ([u8; BYTES], u16) {
        let len = self
            .out_of_order
            .last_named
            .last()
            .map_or(0, |last| last / 8 + 1);
        (self.out_of_order.last_named.emit(), len)
    }

    /// Whether the request that leaves asks for the expected packet.
    pub(super) fn names_expected(&self) -> bool {
        !self.out_of_order.active
            || self.out_of_order.lost_below == 0
            || self.out_of_order.last_named.has(0)
    }

    /// When missing packets are lost, or lost again.
    #[inline]
    pub(super) fn hole_timer(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        if self.out_of_order.active {
            self.lost_at(config, rtt)
        } else {
            None
        }
    }

    #[cold]
    #[inline(never)]
    fn lost_at(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        earlier(
            self.late_until(config, rtt),
            self.awaited_until(config, rtt),
        )
    }

    /// When a packet that may only be late is lost.
    fn late_until(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        let late = !self.out_of_order.late().is_empty();
        let quarter = (self.round_trip(config, rtt).0 / 4).max(MICROSECOND);
        let wait = quarter.saturating_mul(u64::from(self.out_of_order.slack).saturating_add(1));
        late.then(|| self.out_of_order.late_since.saturating_add(wait))
    }

    /// When a packet that was requested is lost again.
    fn awaited_until(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        let awaited =
            !self.out_of_order.awaited.is_empty() && self.out_of_order.unanswered < MAX_UNANSWERED;
        let (mean, longest) = self.round_trip(config, rtt);
        let patience = longest.max(mean.saturating_add(mean / 4)).max(MICROSECOND);
        let patience =
            doubled(patience, self.out_of_order.unanswered).min(REQUEST_MAX.max(patience));
        awaited.then(|| self.out_of_order.last_request.saturating_add(patience))
    }

    /// From a request to what it requests, usually and at most.
    fn round_trip(&self, config: &Config, rtt: &Rtt) -> (Nanos, Nanos) {
        // An acknowledgement's turnaround may contain the time that the sender needs for its
        // window.
        let known = [&self.out_of_order.answer_rtt, rtt, &self.turnaround];
        if let Some(known) = known.into_iter().find(|known| known.is_known()) {
            (known.smoothed(), known.longest())
        } else {
            let least = from_micros(config.round_trip_time);
            (least, least)
        }
    }

    /// The timer has expired if it was due.
    pub(super) fn on_hole_timer(&mut self, config: &Config, rtt: &Rtt, now: Nanos) {
        if is_due(self.late_until(config, rtt), now) {
            self.out_of_order.lost_below = self.out_of_order.late_below;
        }
        if is_due(self.awaited_until(config, rtt), now) {
            self.out_of_order.awaited = Bits::default();
            self.out_of_order.last_named = Bits::default();
            self.out_of_order.unanswered = self.out_of_order.unanswered.saturating_add(1);
        }
        self.find_missing(now);
    }
}
