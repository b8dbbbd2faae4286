// SPDX-License-Identifier: GPL-2.0

//! Packets that are kept behind a hole, if both ends take [requests that name
//! packets](super::super::wire::Header::names_missing). The caller keeps them; here is which they
//! are, which ones are missing, and when those are requested.
//!
//! * A packet is kept if it is within a window of the expected one, less than 256 behind it, and
//!   the receive buffer has room. It is not acknowledged, so that it may be dropped at any time.
//!   When the hole closes, the caller hands it over as if it arrived then: TXS, TXF, records and
//!   the FIN count in their order.
//! * A missing packet is *lost* once [`LATER`] packets behind it have come, or a quarter of a round
//!   trip after it was found missing, or if the answer to a probe shows it. Only then it is
//!   requested, and is a loss for the windows. So packets that overtake others cost nothing.
//! * A packet that comes less than half the least round trip after it was requested was late: the
//!   request was needless. Each such request makes the receiver wait for more packets and longer,
//!   up to sixteen times as many, and more than a round trip; losses undo that.
//! * A request names the lost packets that no request has named before. It waits for its turn like
//!   any acknowledgement that opens a window. What it names is lost again if it has not come a
//!   round trip and its usual variation later, or if a packet comes that a later request has named.
//! * The way has no room for a window that loses more than one packet in [`SHARE`] of it. Fewer
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
const LATER: u16 = 4;

/// The most steps by which the receiver waits longer after needless requests.
const MOST_SLACK: u8 = 4;

/// So many losses undo one step.
const LOSSES: u8 = 16;

/// So often packets are requested that do not come; the timers of both ends go on.
const MOST_TRIES: u8 = 12;

/// The part of a window that may be lost without a queue that is too small for it.
const SHARE: u16 = 8;

/// The packets behind the expected one, by their distance from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Behind {
    /// Both ends take requests that name packets.
    on: bool,
    /// The caller hands a packet over that it has kept.
    handing: bool,
    /// A retransmission has closed the hole, and what was kept behind it is being handed over.
    mended: bool,
    /// Anything is known of packets behind the expected one: of usual packets this is all that is
    /// looked at.
    active: bool,
    /// Packets that the caller keeps. The expected one is among them until it is handed over.
    kept: Bits,
    /// What they cost, bytes.
    cost: u32,
    /// Missing packets that a request has named.
    asked: Bits,
    /// Of these, those that are on their way, as far as is known.
    awaited: Bits,
    /// Those of `awaited` that the last request named.
    newest: Bits,
    /// Those of `newest` that no request had named before.
    fresh: Bits,
    /// When the last request left.
    asked_at: Nanos,
    /// No answer to the last request can come before this time.
    soon_until: Nanos,
    /// From requests to what they have named.
    answer: Rtt,
    /// Requests in a row that nothing has followed.
    tries: u8,
    /// Missing packets below this distance are lost.
    lost: u16,
    /// Missing packets from `lost` up to this distance may only be late.
    mark: u16,
    /// When `mark` was set.
    since: Nanos,
    /// Steps by which the receiver waits longer.
    slack: u8,
    /// Losses since the last step.
    losses: u8,
    /// The first number of the window in which losses are counted.
    stretch: Seq,
    /// Packets lost in it.
    gone: u16,
}

impl Behind {
    /// Nothing may be known any more of packets behind the expected one.
    fn settle(&mut self) {
        self.active = self.mended || self.mark != 0 || self.lost != 0 || !self.kept.is_empty();
    }

    /// The lost packets that are to be requested.
    fn wanted(&self) -> Bits {
        self.missing_before(self.lost).without(self.awaited)
    }

    fn missing_before(&self, end: u16) -> Bits {
        Bits::below(end).without(self.kept)
    }

    /// Missing packets that may only be late.
    fn late(&self) -> Bits {
        self.missing_before(self.mark)
            .without(Bits::below(self.lost))
    }

    /// These packets have come. A packet that was requested before one of them and has not come is
    /// lost again: retransmissions leave in the order of requests. Returns whether the last request
    /// was needless.
    fn come(&mut self, packets: Bits, now: Nanos) -> bool {
        let came = self.awaited.within(packets);
        self.awaited = self.awaited.without(packets);
        if came.is_empty() {
            return false;
        }
        self.tries = 0;
        let answers = !came.within(self.newest).is_empty();
        if now < self.soon_until && !came.within(self.fresh).is_empty() {
            self.slack = self.slack.saturating_add(1).min(MOST_SLACK);
            self.losses = 0;
            return true;
        }
        if answers {
            self.answer.sample(now.saturating_sub(self.asked_at));
        }
        self.losses = self.losses.saturating_add(1);
        if self.losses >= LOSSES {
            self.slack = self.slack.saturating_sub(1);
            self.losses = 0;
        }
        if let Some(last) = came.within(self.newest).last() {
            self.awaited = self.awaited.within(self.newest).without(Bits::below(last));
        }
        false
    }

    /// The expected number is `packets` later.
    #[cold]
    fn shift(&mut self, packets: u16, now: Nanos) -> bool {
        let taken = Bits::below(packets);
        self.mended |= !self.asked.within(taken).is_empty();
        let needless = self.come(taken, now);
        self.kept = self.kept.from(packets);
        self.asked = self.asked.from(packets);
        self.awaited = self.awaited.from(packets);
        self.newest = self.newest.from(packets);
        self.fresh = self.fresh.from(packets);
        self.lost = self.lost.saturating_sub(packets);
        self.mark = self.mark.saturating_sub(packets);
        if self.lost == 0 && self.mark == 0 && self.kept.is_empty() {
            self.awaited = Bits::default();
        }
        self.settle();
        needless
    }
}

impl Receiver {
    /// Both ends take requests that name packets, so the caller keeps those behind a hole.
    pub(in super::super) fn be_selective(&mut self) {
        self.behind.on = true;
    }

    /// Whether they do.
    #[inline]
    pub(in super::super) fn is_selective(&self) -> bool {
        self.behind.on
    }

    /// Whether the caller keeps packets.
    #[inline]
    pub(in super::super) fn keeps(&self) -> bool {
        self.behind.active && !self.behind.kept.is_empty()
    }

    /// How many.
    #[inline]
    pub(super) fn kept_packets(&self) -> u16 {
        if self.behind.active {
            self.behind.kept.count()
        } else {
            0
        }
    }

    /// Whether one that it keeps has the expected number.
    #[inline]
    fn takes_kept(&self) -> bool {
        self.behind.active && self.behind.kept.has(0)
    }

    /// What the caller keeps costs so many bytes now.
    pub(in super::super) fn set_kept(&mut self, bytes: u32) {
        self.behind.cost = bytes;
    }

    /// Whether the caller hands one over.
    #[inline]
    pub(super) fn is_handed(&self) -> bool {
        self.behind.handing
    }

    /// The caller begins or ends to hand one over.
    pub(in super::super) fn hand(&mut self, handing: bool) {
        self.behind.handing = handing;
    }

    /// The caller keeps nothing any more.
    #[inline]
    pub(in super::super) fn drop_kept(&mut self) {
        if self.behind.active {
            self.forget_kept();
        }
    }

    /// Drops all kept packets if the receive buffer cannot hold them beside the arriving one, which
    /// is in order.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room(&mut self, room: Room) {
        let queued = room.queued.saturating_add(room.arriving);
        if !self.behind.handing && queued.saturating_add(self.behind.cost) > room.limit {
            self.forget_kept();
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_kept(&mut self) {
        self.behind = Behind {
            on: self.behind.on,
            handing: self.behind.handing,
            cost: self.behind.cost,
            answer: self.behind.answer,
            slack: self.behind.slack,
            losses: self.behind.losses,
            stretch: self.behind.stretch,
            gone: self.behind.gone,
            ..Behind::default()
        };
    }

    /// Whether packets may be missing.
    #[inline]
    pub(in super::super) fn has_hole(&self) -> bool {
        self.behind.active
    }

    /// Whether the last packet was taken behind a hole that a retransmission has closed: the window
    /// has stood still since a round trip, so the acknowledgement does not wait for more packets.
    /// The next call says no.
    #[inline]
    pub(super) fn take_mended(&mut self) -> bool {
        self.behind.active && self.end_mended()
    }

    #[cold]
    #[inline(never)]
    fn end_mended(&mut self) -> bool {
        let mended = !self.takes_kept() && core::mem::take(&mut self.behind.mended);
        self.behind.settle();
        mended
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
        if end <= most && run.without(self.behind.kept).is_empty() {
            return Err(DropReason::Duplicate);
        }
        if room.queued.saturating_add(self.behind.cost) >= room.limit {
            self.starved = true;
            return Err(DropReason::OutOfSequence);
        }
        self.see(header.seq.add(count));
        if end > most {
            self.find_missing(now);
            return Err(DropReason::OutOfSequence);
        }
        if self.behind.awaited.is_empty() {
            // The acknowledgement's first packet may be among those that wait behind the hole.
            self.timed = None;
        }
        if self.behind.come(run, now) {
            self.timed = None;
        }
        self.behind.kept = self.behind.kept.and_also(run);
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
        if self.behind.shift(packets, now) {
            // The packet did not come for the request.
            self.timed = None;
        }
        if self.behind.lost == 0 || self.behind.wanted().is_empty() {
            // It has become needless.
            self.request = Request::Not;
        }
    }

    /// A packet has come, or a number was seen: looks for packets that are missing.
    #[cold]
    #[inline(never)]
    pub(super) fn find_missing(&mut self, now: Nanos) {
        let later = (LATER << self.behind.slack).saturating_sub(1);
        let later = self.behind.kept.highest_but(later);
        self.behind.lost = self.behind.lost.max(later);
        if self.behind.late().is_empty() {
            let mark = self.behind.mark;
            self.behind.mark = self.known();
            if self.behind.late().is_empty() {
                self.behind.mark = mark;
            } else {
                self.behind.since = now;
            }
        }
        self.behind.settle();
        self.request_lost();
    }

    /// The missing packets before `seq` are lost, as the answer to a probe shows.
    #[cold]
    #[inline(never)]
    pub(super) fn lose_before(&mut self, seq: Seq) {
        let end = self.expected.distance(seq).min(MOST);
        self.behind.lost = self.behind.lost.max(end);
        // The answer left behind all that was retransmitted.
        self.behind.awaited = Bits::default();
        self.behind.newest = Bits::default();
        self.behind.tries = 0;
        self.behind.settle();
        if !self.behind.wanted().is_empty() {
            self.request = Request::Probed;
        }
    }

    /// Requests the lost packets, if there are any; otherwise ends a request that has become
    /// needless.
    fn request_lost(&mut self) {
        if self.request == Request::Skipped {
            return;
        }
        if self.behind.wanted().is_empty() {
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
        let wanted = self.behind.wanted();
        if wanted.is_empty() {
            return None;
        }
        self.behind.fresh = wanted.without(self.behind.asked);
        let lost = self.behind.fresh.count();
        if lost > 0 {
            self.grants.note_missing();
            self.behind.tries = 0;
        }
        self.behind.asked = self.behind.asked.and_also(wanted);
        self.behind.awaited = self.behind.awaited.and_also(wanted);
        self.behind.newest = wanted;
        self.behind.asked_at = now;
        let (usual, _) = self.round_trip(config, rtt);
        let least = self
            .grants
            .least_time()
            .map_or(usual, |least| least.min(usual));
        self.behind.soon_until = now.saturating_add(least / 2);
        self.note_loss(lost, config);
        Some(lost.into())
    }

    /// So many packets were lost.
    fn note_loss(&mut self, packets: u16, config: &Config) {
        if packets == 0 {
            return;
        }
        let window = self.grants.window(config);
        if self.behind.stretch.distance(self.expected) > window {
            self.behind.stretch = self.expected;
            self.behind.gone = 0;
        }
        self.behind.gone = self.behind.gone.saturating_add(packets);
        if self.behind.gone > window / SHARE {
            self.news.lost = true;
            self.grants.on_loss(config);
        }
    }

    /// The packets that the request named which has just left, as bytes, and how many of these it
    /// has.
    pub(in super::super) fn named(&self) -> ([u8; BYTES], u16) {
        let len = self.behind.newest.last().map_or(0, |last| last / 8 + 1);
        (self.behind.newest.emit(), len)
    }

    /// Whether the request that leaves asks for the expected packet.
    pub(super) fn names_expected(&self) -> bool {
        !self.behind.active || self.behind.lost == 0 || self.behind.newest.has(0)
    }

    /// When missing packets are lost, or lost again.
    #[inline]
    pub(super) fn hole_timer(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        if self.behind.active {
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
        let late = !self.behind.late().is_empty();
        let quarter = (self.round_trip(config, rtt).0 / 4).max(MICROSECOND);
        let wait = quarter.saturating_mul(u64::from(self.behind.slack).saturating_add(1));
        late.then(|| self.behind.since.saturating_add(wait))
    }

    /// When a packet that was requested is lost again.
    fn awaited_until(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        let awaited = !self.behind.awaited.is_empty() && self.behind.tries < MOST_TRIES;
        let (mean, longest) = self.round_trip(config, rtt);
        let patience = longest.max(mean.saturating_add(mean / 4)).max(MICROSECOND);
        let patience = doubled(patience, self.behind.tries).min(REQUEST_MAX.max(patience));
        awaited.then(|| self.behind.asked_at.saturating_add(patience))
    }

    /// From a request to what it requests, usually and at most.
    fn round_trip(&self, config: &Config, rtt: &Rtt) -> (Nanos, Nanos) {
        // An acknowledgement's turnaround may contain the time that the sender needs for its
        // window.
        let known = [&self.behind.answer, rtt, &self.turnaround];
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
            self.behind.lost = self.behind.mark;
        }
        if is_due(self.awaited_until(config, rtt), now) {
            self.behind.awaited = Bits::default();
            self.behind.newest = Bits::default();
            self.behind.tries = self.behind.tries.saturating_add(1);
        }
        self.find_missing(now);
    }
}
