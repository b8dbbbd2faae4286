// SPDX-License-Identifier: GPL-2.0

//! Handles out-of-order packets. Packets that arrive after a *hole*, a run of missing packets, are
//! kept if both ends support [requests that name
//! packets](super::super::wire::Header::names_missing). The caller stores the packets. This file
//! records the kept and the missing packets, and decides when to request the missing ones.
//!
//! * The caller keeps a packet whose number is within a window and less than [`MOST`] after the
//!   expected one, if the receive buffer has room. A kept packet is not acknowledged, so it may be
//!   dropped at any time. When the hole is filled, the caller delivers the packet as if it had just
//!   arrived. So TXS, TXF, records and the FIN take effect in order.
//! * A missing packet counts as *lost* in three cases. The first is that [`REORDERING`] later
//!   packets have arrived. The second is that the packet was found missing a quarter of a round
//!   trip ago. The third is that the answer to a probe shows the loss. Only then does the receiver
//!   request the packet and count a loss. So reordering costs nothing.
//! * If a packet arrives less than half the least round trip after its request, the packet was
//!   late, and the request was spurious. Each spurious request makes the receiver wait longer, up
//!   to more than a round trip. It also makes the receiver wait for more later packets, up to
//!   sixteen times as many. Real losses undo these changes.
//! * A request names lost packets that no earlier request named. The request waits for its turn
//!   like any acknowledgement that opens a window. A named packet counts as lost again if it does
//!   not arrive within a round trip and the usual variation of round trips. It also counts as lost
//!   again if a packet of a later request arrives first.
//! * A request names packets less than [`MOST`] after the expected one, and the caller keeps no
//!   others. If a long transmission has more packets in flight, those from there on are dropped. So
//!   the receiver then requests all packets from the expected one on: named one set after the
//!   other, the dropped packets would take a round trip for each set.
//! * If a window loses more than one packet in [`MAX_LOSS_SHARE`], the window is too large for a
//!   queue on the path. Fewer losses are transmission errors and leave the window as it is. Of a
//!   window of more than [`MOST`] packets, as many are looked at, because no request names others.
//!   A window that is larger only because packets go missing counts as too large after half as many
//!   losses.

use super::super::bits::{Bits, BYTES, MOST};
use super::super::config::Config;
use super::super::outcome::{DropReason, Room};
use super::super::rtt::{doubled, Rtt};
use super::super::seq::Seq;
use super::super::timers::{earlier, from_micros, is_due, Nanos, MICROSECOND, REQUEST_MAX};
use super::super::wire::Header;
use super::{Receiver, Request, Taken};

/// Once this many later packets have arrived, a missing packet counts as lost. Fewer packets may
/// merely have overtaken it.
const REORDERING: u16 = 4;

/// Maximum number of steps by which spurious requests lengthen the wait.
const MAX_SLACK: u8 = 4;

/// Number of real losses that undo one step of [`MAX_SLACK`].
const LOSSES_PER_STEP: u8 = 16;

/// Maximum number of requests in a row without any response. After that, only the other timers of
/// both ends act.
const MAX_UNANSWERED: u8 = 12;

/// If more than one packet in this many is lost, the window counts as too large.
const MAX_LOSS_SHARE: u16 = 8;

/// The state of the packets after the expected packet. A packet's number in a set is its distance
/// from the expected packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OutOfOrder {
    /// Whether both ends support requests that name packets.
    enabled: bool,
    /// Whether the caller is delivering a packet that it kept.
    delivering: bool,
    /// Whether a retransmission has filled the hole, and the packets kept after the hole are being
    /// delivered.
    hole_filled: bool,
    /// Whether any packet after the expected packet was seen. The fast path reads no other field.
    active: bool,
    /// Packets that the caller keeps. The expected packet is among them until it is delivered.
    kept: Bits,
    /// Number of bytes that the kept packets take in the receive buffer.
    cost: u32,
    /// Missing packets that a request has named.
    requested: Bits,
    /// Packets of `requested` whose retransmissions are assumed to be in flight.
    awaited: Bits,
    /// Packets of `awaited` that the last request named.
    last_named: Bits,
    /// Packets of `last_named` that no request had named before.
    newly_named: Bits,
    /// Whether the last request asked for all packets from the expected one on, and the expected
    /// packet has not arrived since.
    goes_back: bool,
    /// The time when the last request was sent.
    last_request: Nanos,
    /// If a packet that the most recent request named arrives before this time, it cannot be a
    /// retransmission: the packet was late, not lost.
    earliest_answer: Nanos,
    /// The round trip time, measured from requests to the packets that they named.
    answer_rtt: Rtt,
    /// Number of consecutive requests after which no named packet has arrived.
    unanswered: u8,
    /// A missing packet counts as lost if its distance from the expected packet is less than this.
    lost_below: u16,
    /// A missing packet whose distance is at least `lost_below` and less than this may still be
    /// late.
    late_below: u16,
    /// The time when `late_below` was set.
    late_since: Nanos,
    /// Number of steps by which the receiver waits longer because packets were reordered.
    slack: u8,
    /// Number of real losses since a step of `slack` was last added or undone.
    real_losses: u8,
    /// The first number of the window in which losses are counted.
    loss_window: Seq,
    /// Number of packets lost in the window that begins at `loss_window`.
    lost_in_window: u16,
}

impl OutOfOrder {
    /// Recomputes `active`.
    fn settle(&mut self) {
        self.active = self.hole_filled
            || self.late_below != 0
            || self.lost_below != 0
            || !self.kept.is_empty();
    }

    /// Returns the lost packets that the next request should name.
    fn wanted(&self) -> Bits {
        if self.goes_back {
            return Bits::default();
        }
        self.missing_before(self.lost_below).without(self.awaited)
    }

    fn missing_before(&self, end: u16) -> Bits {
        Bits::below(end).without(self.kept)
    }

    /// Returns the missing packets that may be late, not lost.
    fn late(&self) -> Bits {
        self.missing_before(self.late_below)
            .without(Bits::below(self.lost_below))
    }

    /// Notes the arrival of `packets`. Retransmissions are sent in the order of requests. So a
    /// packet that was requested before one of `packets`, and is still missing, counts as lost
    /// again. Returns whether the last request was spurious.
    fn on_arrival(&mut self, packets: Bits, now: Nanos) -> bool {
        let came = self.awaited.intersection(packets);
        self.awaited = self.awaited.without(packets);
        if came.is_empty() {
            return false;
        }
        self.unanswered = 0;
        // A later packet than the expected one has answered, so the expected one may be lost again.
        self.goes_back = false;
        let answers = !came.intersection(self.last_named).is_empty();
        if now < self.earliest_answer && !came.intersection(self.newly_named).is_empty() {
            self.slack = self.slack.saturating_add(1).min(MAX_SLACK);
            self.real_losses = 0;
            return true;
        }
        if answers {
            // If an earlier request has also named the packet, this time may be too short. Then
            // packets are requested twice until the mean has grown. Longer waits instead would
            // make streams that lose much on a shared path yield to the others.
            self.answer_rtt
                .sample(now.saturating_sub(self.last_request));
        }
        self.real_losses = self.real_losses.saturating_add(1);
        if self.real_losses >= LOSSES_PER_STEP {
            self.slack = self.slack.saturating_sub(1);
            self.real_losses = 0;
        }
        if let Some(last) = came.intersection(self.last_named).last() {
            self.awaited = self
                .awaited
                .intersection(self.last_named)
                .without(Bits::below(last));
        }
        false
    }

    /// Shifts the sets, because the expected number advanced by `packets`. Returns whether the last
    /// request was spurious.
    #[cold]
    fn advance(&mut self, packets: u16, now: Nanos) -> bool {
        let taken = Bits::below(packets);
        self.hole_filled |= !self.requested.intersection(taken).is_empty();
        let needless = self.on_arrival(taken, now);
        self.kept = self.kept.from(packets);
        self.requested = self.requested.from(packets);
        self.awaited = self.awaited.from(packets);
        self.last_named = self.last_named.from(packets);
        self.newly_named = self.newly_named.from(packets);
        self.lost_below = self.lost_below.saturating_sub(packets);
        self.late_below = self.late_below.saturating_sub(packets);
        self.goes_back = false;
        if self.lost_below == 0 && self.late_below == 0 && self.kept.is_empty() {
            self.awaited = Bits::default();
        }
        self.settle();
        needless
    }
}

impl Receiver {
    /// Sets whether the caller keeps packets that arrive out of order, because both ends support
    /// requests that name packets. Called during the handshake.
    pub(in super::super) fn set_selective(&mut self, selective: bool) {
        self.out_of_order.enabled = selective;
        self.grants.set_keeps(selective);
    }

    /// Returns whether both ends support requests that name packets.
    #[inline]
    pub(in super::super) fn is_selective(&self) -> bool {
        self.out_of_order.enabled
    }

    /// Returns whether the caller keeps any packets.
    #[inline]
    pub(in super::super) fn keeps(&self) -> bool {
        self.out_of_order.active && !self.out_of_order.kept.is_empty()
    }

    /// Returns the number of packets that the caller keeps.
    #[inline]
    pub(super) fn kept_packets(&self) -> u16 {
        if self.out_of_order.active {
            self.out_of_order.kept.count()
        } else {
            0
        }
    }

    /// Returns whether the caller keeps the expected packet.
    #[inline]
    fn has_kept_expected(&self) -> bool {
        self.out_of_order.active && self.out_of_order.kept.has(0)
    }

    /// Sets the number of bytes that kept packets take in the receive buffer.
    pub(in super::super) fn set_kept(&mut self, bytes: u32) {
        self.out_of_order.cost = bytes;
    }

    /// Returns whether the caller is delivering a kept packet.
    #[inline]
    pub(super) fn is_delivering(&self) -> bool {
        self.out_of_order.delivering
    }

    /// Marks the beginning or the end of the delivery of a kept packet.
    pub(in super::super) fn set_delivering(&mut self, delivering: bool) {
        self.out_of_order.delivering = delivering;
    }

    /// Forgets the kept packets, which the caller drops.
    #[inline]
    pub(in super::super) fn drop_kept(&mut self) {
        if self.out_of_order.active {
            self.forget_kept();
        }
    }

    /// Drops all kept packets if the receive buffer has no room for them and for the arriving
    /// packet, which is in order.
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

    /// Returns whether packets may be missing.
    #[inline]
    pub(in super::super) fn has_hole(&self) -> bool {
        self.out_of_order.active
    }

    /// Returns whether a retransmission has filled a hole and all packets after the hole were
    /// delivered, and clears `hole_filled` in that case. The acknowledgement is then sent at once,
    /// because the sender's window was shut for a round trip.
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

    /// Returns how far `seen` is ahead of the expected number, at most [`MOST`].
    fn known(&self) -> u16 {
        self.expected.distance(self.seen).min(MOST)
    }

    /// Keeps `count` packets with `header`, because earlier packets are missing.
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
        // A packet beyond a window is forged, or was sent before the window shrank. It is not kept.
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
            // End the round-trip measurement, because the packet that it waits for may be after the
            // hole.
            self.timed = None;
        }
        if self.out_of_order.on_arrival(run, now) {
            self.timed = None;
        }
        self.out_of_order.kept = self.out_of_order.kept.union(run);
        if self.is_receiving() {
            self.grants.take(count, header.len, room, now);
        }
        self.find_missing(now);
        Ok(Taken::Kept)
    }

    /// Advances past `packets` packets that were taken. Cancels a request if it became unnecessary.
    #[cold]
    #[inline(never)]
    pub(super) fn close_hole(&mut self, packets: u16, now: Nanos) {
        if self.out_of_order.advance(packets, now) {
            // The packet was late and does not answer the request, so it shows no round trip.
            self.timed = None;
        }
        if self.out_of_order.lost_below == 0 || self.out_of_order.wanted().is_empty() {
            // Nothing is left to request.
            self.request = Request::Not;
        }
    }

    /// Looks for missing packets, after a packet arrived or a number was seen.
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

    /// Marks the missing packets before `seq` as lost, because the answer to a probe has shown
    /// their loss.
    #[cold]
    #[inline(never)]
    pub(super) fn mark_lost_before(&mut self, seq: Seq) {
        let end = self.expected.distance(seq).min(MOST);
        self.out_of_order.lost_below = self.out_of_order.lost_below.max(end);
        // The peer sent the answer after all retransmissions, so none of them is still in flight.
        self.out_of_order.awaited = Bits::default();
        self.out_of_order.last_named = Bits::default();
        self.out_of_order.unanswered = 0;
        self.out_of_order.goes_back = false;
        self.out_of_order.settle();
        if !self.out_of_order.wanted().is_empty() {
            self.request = Request::Probed;
        }
    }

    /// Requests the lost packets if there are any; otherwise cancels a request that became
    /// unnecessary.
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

    /// Chooses the packets for the request being sent. Returns how many of the chosen packets are
    /// newly lost; `None` if no packet is to be requested.
    #[cold]
    pub(in super::super) fn name_lost(
        &mut self,
        config: &Config,
        rtt: &Rtt,
        now: Nanos,
    ) -> Option<u32> {
        let wanted = self.out_of_order.wanted();
        if wanted.is_empty() {
            self.out_of_order.newly_named = Bits::default();
            return None;
        }
        self.out_of_order.newly_named = wanted.without(self.out_of_order.requested);
        let lost = self.out_of_order.newly_named.count();
        if lost > 0 {
            self.grants.note_missing();
            self.out_of_order.unanswered = 0;
        }
        self.out_of_order.requested = self.out_of_order.requested.union(wanted);
        self.out_of_order.awaited = self.out_of_order.awaited.union(wanted);
        self.out_of_order.last_named = wanted;
        self.out_of_order.last_request = now;
        let (usual, _) = self.round_trip(config, rtt);
        let least = self
            .grants
            .least_time()
            .map_or(usual, |least| least.min(usual));
        self.out_of_order.earliest_answer = now.saturating_add(least / 2);
        self.count_loss(lost, config);
        // Within a transmission the sender mostly uses its whole window, because the last packet
        // that it has queued ends the transmission.
        let in_flight = self.expected.distance(self.allowed);
        self.out_of_order.goes_back =
            self.is_long() && self.expected.before(self.allowed) && in_flight > MOST;
        Some(lost.into())
    }

    /// Returns whether the request that [`name_lost`](Self::name_lost) has prepared asks for all
    /// packets from the expected one on, and names none.
    #[inline]
    pub(in super::super) fn goes_back(&self) -> bool {
        self.out_of_order.goes_back
    }

    /// Counts the packets that were found lost after a request for all packets, which names none.
    /// Returns how many these are.
    #[inline]
    pub(super) fn count_unnamed(&mut self, config: &Config) -> u16 {
        if self.out_of_order.goes_back {
            self.count_repeated(config)
        } else {
            0
        }
    }

    #[cold]
    #[inline(never)]
    fn count_repeated(&mut self, config: &Config) -> u16 {
        let lost = self
            .out_of_order
            .missing_before(self.out_of_order.lost_below);
        let lost = lost.without(self.out_of_order.requested);
        self.out_of_order.requested = self.out_of_order.requested.union(lost);
        self.count_loss(lost.count(), config);
        lost.count()
    }

    /// Counts lost packets. If too many are lost, reports a loss to `grants`, so that the window
    /// shrinks.
    fn count_loss(&mut self, packets: u16, config: &Config) {
        if packets == 0 {
            return;
        }
        let window = self.grants.window(config).min(MOST);
        if self.out_of_order.loss_window.distance(self.expected) > window {
            self.out_of_order.loss_window = self.expected;
            self.out_of_order.lost_in_window = 0;
        }
        self.out_of_order.lost_in_window = self.out_of_order.lost_in_window.saturating_add(packets);
        let share = if self.grants.is_lossy() {
            2 * MAX_LOSS_SHARE
        } else {
            MAX_LOSS_SHARE
        };
        if self.out_of_order.lost_in_window > window / share {
            self.samples.lost = true;
            self.grants.on_loss(config);
        }
    }

    /// Returns the payload of the most recent request that named packets, and the payload's length.
    pub(in super::super) fn named(&self) -> ([u8; BYTES], u16) {
        let len = self
            .out_of_order
            .last_named
            .last()
            .map_or(0, |last| last / 8 + 1);
        (self.out_of_order.last_named.emit(), len)
    }

    /// Returns whether the request being sent asks for the expected packet.
    pub(super) fn names_expected(&self) -> bool {
        !self.out_of_order.active
            || self.out_of_order.lost_below == 0
            || self.out_of_order.last_named.has(0)
    }

    /// Returns whether an earlier request has named the expected packet. If so, the packet may
    /// arrive in answer to either request (Karn's rule).
    pub(super) fn names_expected_again(&self) -> bool {
        self.out_of_order.active
            && self.out_of_order.lost_below > 0
            && self.out_of_order.last_named.has(0)
            && !self.out_of_order.newly_named.has(0)
    }

    /// Returns the time from which missing packets count as lost, or as lost again, if any are
    /// missing.
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

    /// Returns the time from which the [late](OutOfOrder::late) packets count as lost, if there are
    /// any. Before that time, they may be merely late.
    fn late_until(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        let late = !self.out_of_order.late().is_empty();
        let quarter = (self.round_trip(config, rtt).0 / 4).max(MICROSECOND);
        let wait = quarter.saturating_mul(u64::from(self.out_of_order.slack).saturating_add(1));
        late.then(|| self.out_of_order.late_since.saturating_add(wait))
    }

    /// Returns the time from which requested packets that have not arrived count as lost again, if
    /// there are any.
    fn awaited_until(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        let awaited =
            !self.out_of_order.awaited.is_empty() && self.out_of_order.unanswered < MAX_UNANSWERED;
        let (mean, longest) = self.round_trip(config, rtt);
        let patience = longest.max(mean.saturating_add(mean / 4)).max(MICROSECOND);
        let patience =
            doubled(patience, self.out_of_order.unanswered).min(REQUEST_MAX.max(patience));
        awaited.then(|| self.out_of_order.last_request.saturating_add(patience))
    }

    /// Returns how long it usually takes, and how long it takes at most, until a requested packet
    /// arrives.
    fn round_trip(&self, config: &Config, rtt: &Rtt) -> (Nanos, Nanos) {
        // The time from an acknowledgement to the packet that it allowed (`turnaround`) may include
        // the time that the sender takes to send all packets of its window. So `turnaround` is the
        // last choice.
        let known = [&self.out_of_order.answer_rtt, rtt, &self.turnaround];
        if let Some(known) = known.into_iter().find(|known| known.is_known()) {
            (known.smoothed(), known.longest())
        } else {
            let least = from_micros(config.round_trip_time);
            (least, least)
        }
    }

    /// Handles the timer for missing packets, if it has expired.
    pub(super) fn on_hole_timer(&mut self, config: &Config, rtt: &Rtt, now: Nanos) {
        if is_due(self.late_until(config, rtt), now) {
            self.out_of_order.lost_below = self.out_of_order.late_below;
        }
        if is_due(self.awaited_until(config, rtt), now) {
            self.out_of_order.awaited = Bits::default();
            self.out_of_order.last_named = Bits::default();
            self.out_of_order.unanswered = self.out_of_order.unanswered.saturating_add(1);
            self.out_of_order.goes_back = false;
        }
        self.find_missing(now);
    }
}
