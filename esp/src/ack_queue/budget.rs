// SPDX-License-Identifier: GPL-2.0

//! The budget: how many granted packets may be in flight to a device at once.
//!
//! A turn ends when its connection asks for the next one. If the turn's packets arrive slowly, or
//! if all of them arrive within less than a round trip, the port idles. So the queue gives more
//! turns while the number of packets in flight (granted, but not arrived) is below the budget. The
//! budget follows the port's utilisation:
//!
//! * The port's rate is the highest recent rate of the packets of one turn. The queue counts bytes
//!   over spans of at least [`SPAN`], during which at least one connection always waits. If the
//!   bytes of a span arrived more slowly than the port's rate, the port idled, and the budget
//!   grows.
//! * While the port is fully used, the budget shrinks slowly, down to the number of packets that
//!   arrive in two round trips. It shrinks faster while more than [`QUEUED`] packets always stand
//!   in the port.
//! * When transmissions begin after all earlier ones have ended, all connections may announce at
//!   once. The port's buffer then holds their announcements beside the granted packets. So the
//!   budget is bounded by what the announcements leave of the buffer, until the first span ends.
//! * If, in every turn of a span, the first packet arrived more than [`DELAY`] later than the least
//!   round trip, packets queue in the port. Then the budget shrinks, whatever the rate.
//! * A port's buffer is limited. So the budget stays below a ceiling, which a loss lowers to three
//!   quarters of the packets in flight. The ceiling rises again while the port idles, but slowly
//!   for the first [`LEASE`] spans.
//! * On a long path, the packets of a round trip are on their way and not in the port's buffer. So
//!   the ceiling is at least their [number](Budget::path). To keep them from arriving together, the
//!   budget is less than the buffer holds at first, and grows by one packet at most for each one
//!   that arrives.
//!
//! If the port idles although packets of more than two round trips are in flight, the senders are
//! busy with other receivers. Then many small windows use the port better than a few large ones,
//! because each sender has packets for several receivers at a time. So once the budget exceeds two
//! round trips by half, and a long one, windows are [parts](Port::most) of it.
//!
//! The budget counts packets, because turns do. Rates count bytes, because many packets are small.

use super::super::config::LARGEST_GRANT;
use super::super::timers::{Nanos, MICROSECOND, MILLISECOND};

/// A span lasts at least this time, in nanoseconds, and until the bytes of [`LEAST_COUNT`] full
/// packets have arrived.
const SPAN: Nanos = 100 * MICROSECOND;
const LEAST_COUNT: u32 = 16;

/// Packets of a turn may queue in the port for at most this time plus the time that 32 full packets
/// take. The queueing time is the time from the turn to its first packet, minus the least round
/// trip.
const DELAY: Nanos = 50 * MICROSECOND;

/// A gap between packets is not counted in a span if the gap is longer than this.
const PAUSE: Nanos = 2 * MILLISECOND;

/// The first ceiling of the budget. A port with a buffer of 128 KiB has room for this many packets
/// in addition to the [unscheduled](super::UNSCHEDULED) packets.
const FIRST_CEILING: u32 = 42;
const LEAST_CEILING: u32 = 8;

/// The buffer of a fast port holds the packets that arrive in this time: 400 packets at 100 Gbit/s.
const FAST: Nanos = 50 * MICROSECOND;

/// A slow port should hold no more packets than it sends in this time: 24 at 1 Gbit/s. If the port
/// sends fewer than [`FEWEST`] packets in this time and in a round trip, a single turn suffices to
/// fill it, so no additional turns are given.
const SLOW: Nanos = 300 * MICROSECOND;
const FEWEST: u32 = 16;

/// Upper bound for the size of a port's buffer, in bytes.
const LARGEST: u64 = 1_200_000;

/// Upper bound for the number of packets of a round trip: two of the largest windows.
const MOST_ON_PATH: u32 = 2 * LARGEST_GRANT as u32;

/// Upper bound for the number of packets of a round trip longer than [`SLOW`], unless more packets
/// arrive in [`SLOW`]. If such a path's packets arrive together, a buffer of 128 KiB holds two
/// thirds of them.
const MOST_ON_LONG_PATH: u32 = 128;

/// After a loss, the budget's ceiling rises slowly for this many spans.
const LEASE: u16 = 256;

/// The budget shrinks after this many consecutive spans in which the port was fully used, or after
/// one of them during which more than [`QUEUED`] packets always stood in the port.
const FULL_SPANS: u8 = 16;

/// If more packets than this stand in the port throughout a span, the budget need not be as large
/// as it is.
const QUEUED: u32 = 32;

/// The window of one of several senders has at least the packets that arrive in this time at the
/// port's rate: 48 packets at 100 Gbit/s.
const LEAST_PART: Nanos = 6 * MICROSECOND;

/// A part of the budget is never smaller than this, because each turn costs an acknowledgement.
const SMALLEST_PART: u32 = 8;

/// Number of short announcements that take the room of one full packet in a port's buffer.
const SHORTS: u32 = 25;

/// Rates are in bytes per 2^16 ns.
const RATE_SHIFT: u32 = 16;

/// Number of bytes that a packet has on the wire in addition to its payload: ESP's header (11),
/// Ethernet's header and checksum (18), preamble and gap (20). The shortest packet has [`SHORTEST`]
/// bytes in total.
const FRAMING: u32 = 49;
const SHORTEST: u32 = 84;

/// Packets that arrived at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in super::super) struct Arrivals {
    pub(in super::super) packets: u16,
    /// Number of bytes that these packets take on the wire.
    pub(in super::super) bytes: u32,
    pub(in super::super) at: Nanos,
}

/// A rate measurement within a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct RateSample {
    pub(in super::super) packets: u16,
    /// Number of bytes that these packets take on the wire.
    pub(in super::super) bytes: u32,
    /// The time in which the packets arrived.
    pub(in super::super) elapsed: Nanos,
}

/// The times from a connection's turns to the first packet of each turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct RoundTrip {
    /// The time from the connection's most recent turn to its first packet.
    pub(in super::super) last: Nanos,
    /// The least time from any turn of the connection to the turn's first packet.
    pub(in super::super) least: Nanos,
}

/// The bounds that the port sets to a sender's window. The bounds are 0 and `None` if the sender is
/// the only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in super::super) struct Port {
    /// The link's rate, in bytes per 2^16 ns; 0 if unknown. It is an upper bound of all other
    /// rates.
    pub(in super::super) link: u32,
    /// The minimum window by the port's rate. The sender's own packets seem to arrive more slowly
    /// than that while packets of other senders arrive between them.
    pub(in super::super) least: u16,
    /// The maximum window, once the budget has grown. It may be smaller than the configured window.
    pub(in super::super) most: Option<u16>,
}

/// A connection's measurements since the queue last took them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in super::super) struct Samples {
    /// The packets that arrived most recently.
    pub(in super::super) arrived: Arrivals,
    /// Whether packets were lost.
    pub(in super::super) lost: bool,
    pub(in super::super) rate: Option<RateSample>,
    pub(in super::super) round_trip: Option<RoundTrip>,
}

/// Returns the number of bytes on the wire of `packets` packets that have `payload` payload bytes
/// in total.
#[inline]
pub(in super::super) fn on_wire(packets: u16, payload: u32) -> u32 {
    let packets = u32::from(packets);
    let frames = packets.saturating_mul(FRAMING).saturating_add(payload);
    frames.max(packets.saturating_mul(SHORTEST))
}

/// Converts a link's speed from Mbit/s to bytes per 2^16 ns.
pub(super) fn link_rate(megabits: u32) -> u32 {
    // 1 Mbit/s is 125 bytes a millisecond.
    rate(megabits.saturating_mul(125), MILLISECOND)
}

/// Returns the least time that `bytes` bytes take on a link with the rate `rate`; 0 if `rate` is 0
/// (unknown).
#[inline]
pub(in super::super) fn least_time(bytes: u32, rate: u32) -> Nanos {
    let bytes = Nanos::from(bytes) << RATE_SHIFT;
    bytes.checked_div(rate.into()).unwrap_or(0)
}

/// The budget of one device, and the measurements that it follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Number of packets that were granted and have not arrived.
    in_flight: u32,
    /// Bound on `in_flight` that keeps the packets of a long path from arriving together.
    open: u32,
    /// The budget: additional turns are given while fewer packets than this are in flight.
    limit: u32,
    ceiling: u32,
    lease: u16,
    /// The room that announcements may take in the port until the end of the span, in full packets.
    announcements: u32,
    /// Number of consecutive spans in which the port was fully used.
    full_spans: u8,
    /// The shortest recent round trip of any connection.
    round_trip: Nanos,
    /// The shortest round trip since a transmission began while there was no other one. A longer
    /// one may include packets that stand in the port.
    clear_round_trip: Nanos,
    /// The port's rate, in bytes per 2^16 ns.
    rate: u32,
    /// The link's rate, in bytes per 2^16 ns; 0 if unknown. It is an upper bound of the port's
    /// rate.
    pub(super) link: u32,
    /// Number of bytes that the largest packet takes on the wire.
    packet: u32,
    /// The time when packets last arrived.
    last: Nanos,
    /// Whether a connection waited when packets last arrived.
    waits: bool,
    /// The length of the current span.
    elapsed: Nanos,
    /// Number of bytes that arrived in the span.
    count: u32,
    /// The least delay of a turn's first packet in the span, compared to the least round trip;
    /// `None` if no turn was measured.
    delay: Option<Nanos>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            in_flight: 0,
            open: 0,
            limit: 0,
            ceiling: FIRST_CEILING,
            lease: 0,
            announcements: 0,
            full_spans: 0,
            round_trip: 0,
            clear_round_trip: 0,
            rate: 0,
            link: 0,
            packet: SHORTEST,
            last: 0,
            waits: false,
            elapsed: 0,
            count: 0,
            delay: None,
        }
    }
}

impl Budget {
    /// Resets the budget when windows are fixed. The queue then gives one turn at a time.
    pub(super) fn end(&mut self) {
        *self = Self {
            in_flight: self.in_flight,
            link: self.link,
            ..Self::default()
        };
    }

    /// Returns whether an additional turn may be given before the current ones end.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let open = self.open.max(self.at_once());
        self.in_flight < self.limit.max(self.least()).min(self.most()).min(open)
            && self.needs_more_turns()
    }

    /// Returns the bounds for the window of one of `senders` senders.
    pub(super) fn port(&self, senders: u32) -> Port {
        let link = self.link;
        let Some(part) = self.limit.checked_div(senders.saturating_sub(1)) else {
            return Port {
                link,
                ..Port::default()
            };
        };
        let of = |packets: u32| u16::try_from(packets).unwrap_or(u16::MAX);
        let least = self.arrive_in(LEAST_PART);
        // The parts of all others fill the budget. So while all senders have their windows, the
        // last one has to wait, and the budget keeps measuring whether the port idles.
        let part = part.saturating_add(1).max(SMALLEST_PART).max(least);
        Port {
            link,
            least: of(least),
            most: self.has_grown().then(|| of(part)),
        }
    }

    /// Returns whether the budget has had to grow beyond two round trips by half, and beyond a long
    /// one by half, because the port idled.
    fn has_grown(&self) -> bool {
        let least = self.two_round_trips().max(self.path());
        least > 0 && self.limit >= least.saturating_add(least / 2) && self.needs_more_turns()
    }

    /// Returns the maximum budget while the port may hold many announcements.
    #[inline]
    fn most(&self) -> u32 {
        if self.announcements == 0 {
            return u32::MAX;
        }
        let buffer = self.usual_ceiling().saturating_mul(2);
        buffer.saturating_sub(self.announcements)
    }

    /// Returns the budget that a port's buffer allows. The buffer holds twice as many packets.
    #[inline]
    fn usual_ceiling(&self) -> u32 {
        self.arrive_in(FAST).max(FIRST_CEILING)
    }

    /// Returns how many packets may arrive together: three quarters of the usual budget, because
    /// packets that follow announcements stand in the same buffer.
    fn at_once(&self) -> u32 {
        self.usual_ceiling() / 4 * 3
    }

    /// Returns the number of packets that arrive in a round trip. Of a round trip longer than
    /// [`SLOW`], only [`MOST_ON_LONG_PATH`] packets count, or those of [`SLOW`].
    fn path(&self) -> u32 {
        // Without the link's rate, packets that the card has coalesced seem to arrive faster than
        // they do.
        let most = if self.link == 0 { LARGEST } else { u64::MAX };
        let time = self.clear_round_trip;
        let packets = self.arrive_up_to(most, time.min(SLOW)).min(MOST_ON_PATH);
        if time <= SLOW {
            return packets;
        }
        let long = self.arrive_up_to(most, time).min(MOST_ON_LONG_PATH);
        packets.max(long)
    }

    /// Returns the ceiling to which the budget returns while the port is fully used: what the
    /// port's buffer allows, or the packets of a round trip.
    fn least_ceiling(&self) -> u32 {
        self.usual_ceiling().max(self.path())
    }

    /// Notes that all transmissions have ended. The next ones may begin together, with an
    /// announcement of each of the `connections`. These announcements then stand in the port. A new
    /// span begins, at the end of which they have left the port.
    pub(super) fn rest(&mut self, connections: u32) {
        self.announcements = connections / SHORTS;
        self.clear_round_trip = 0;
        self.begin_span();
    }

    fn begin_span(&mut self) {
        self.elapsed = 0;
        self.count = 0;
        self.delay = None;
    }

    /// Notes that a connection had `before` packets in flight and now has `after`.
    #[inline]
    pub(super) fn change(&mut self, before: u16, after: u16) {
        let others = self.in_flight.saturating_sub(before.into());
        self.in_flight = others.saturating_add(after.into());
        if after < before {
            let most = self.in_flight.saturating_add(self.at_once());
            let arrived = before.saturating_sub(after).div_ceil(2);
            self.open = self.open.saturating_add(arrived.into()).min(most);
        }
    }

    /// Notes that no packets are expected to be in flight any more.
    pub(super) fn forget(&mut self) {
        self.in_flight = 0;
        self.open = 0;
    }

    /// Takes a connection's samples. `waits` is set while any connection waits for its turn.
    #[inline]
    pub(super) fn note(&mut self, samples: Samples, waits: bool, now: Nanos) {
        if samples.lost {
            self.on_loss();
        }
        if let Some(sample) = samples.rate {
            // The size of a full packet is learned first. If packets were assumed to be short, a
            // slow port would seem to have room for many of them.
            self.measure_packet(sample.packets, sample.bytes);
            self.rate = self.rate.max(rate(sample.bytes, sample.elapsed));
            if self.lease == 0 {
                self.ceiling = self.ceiling.max(self.arrive_in(FAST));
            }
        }
        if let Some(RoundTrip { last, least }) = samples.round_trip {
            let delay = last.saturating_sub(least);
            self.round_trip = match self.round_trip {
                0 => least,
                known => least.min(known.saturating_add(known / 64)),
            };
            self.clear_round_trip = match self.clear_round_trip {
                0 => least,
                known => least.min(known),
            };
            self.delay = Some(self.delay.map_or(delay, |least| least.min(delay)));
        }
        let Arrivals { packets, bytes, .. } = samples.arrived;
        if packets > 0 {
            self.measure_packet(packets, bytes);
            self.arrive(bytes, waits, now);
        } else if !waits {
            self.waits = false;
        }
    }

    /// Updates the size of the largest packet.
    #[inline]
    fn measure_packet(&mut self, packets: u16, bytes: u32) {
        let each = bytes.checked_div(packets.into()).unwrap_or(0);
        self.packet = self.packet.max(each);
    }

    /// While a connection waits, counts the arriving bytes and the time since the last arrival.
    #[inline]
    fn arrive(&mut self, bytes: u32, waits: bool, now: Nanos) {
        let gap = now.saturating_sub(self.last);
        let waited = self.waits && gap <= PAUSE;
        self.last = now;
        self.waits = waits;
        if !waited {
            return;
        }
        self.elapsed = self.elapsed.saturating_add(gap);
        self.count = self.count.saturating_add(bytes);
        if self.elapsed >= SPAN && self.count >= self.packet.saturating_mul(LEAST_COUNT) {
            self.fit();
            self.begin_span();
        }
    }

    /// Adapts the budget to the span's measurements.
    fn fit(&mut self) {
        let elapsed = self.elapsed.max(least_time(self.count, self.link));
        let rate = rate(self.count, elapsed);
        self.rate = self.rate.saturating_sub(self.rate / 1024).max(rate);
        self.packet = self.packet.saturating_sub(self.packet / 1024);
        self.lease = self.lease.saturating_sub(1);
        self.announcements = 0;
        if rate >= self.rate / 8 * 7 && self.delay.is_some_and(|delay| delay > self.most_delay()) {
            self.limit = self.limit.saturating_sub((self.limit / 8).max(1));
            return;
        }
        let empty = self.delay.is_some_and(|delay| delay <= self.takes(2));
        if rate >= self.rate / 16 * 15 && !empty {
            if self.ceiling > self.least_ceiling() {
                self.ceiling = self.ceiling.saturating_sub(1);
            }
            let queued = self.delay.is_some_and(|delay| delay > self.takes(QUEUED));
            let spans = if queued { FULL_SPANS } else { 1 };
            self.full_spans = self.full_spans.saturating_add(spans);
            if self.full_spans >= FULL_SPANS {
                self.full_spans = 0;
                self.limit = self.limit.saturating_sub((self.limit / 64).max(1));
            }
            return;
        }
        self.full_spans = 0;
        if rate < self.rate / 4 * 3 {
            // A smaller budget than the least one has no effect, so it need not grow first.
            self.limit = self.limit.max(self.least());
        }
        let more = if rate < self.rate / 2 || rate >= self.rate / 16 * 15 {
            self.limit.max(16)
        } else if rate < self.rate / 4 * 3 {
            (self.limit / 2).max(8)
        } else {
            (self.limit / 8).max(4)
        };
        let wanted = self.limit.saturating_add(more);
        if wanted > self.ceiling {
            let more = match self.lease {
                0 if self.ceiling < self.least_ceiling() => self.ceiling / 8,
                0 => self.ceiling / 64,
                _ => 0,
            };
            self.ceiling = self.ceiling.saturating_add(more.max(1));
        }
        if self.clear_round_trip > 0 {
            self.ceiling = self.ceiling.min(self.arrive_in(SLOW).max(self.path()));
        }
        self.limit = wanted.min(self.ceiling);
    }

    /// Returns the maximum time for which packets may queue in the port.
    fn most_delay(&self) -> Nanos {
        DELAY.saturating_add(self.takes(32))
    }

    /// Returns the time that `packets` full packets take at the port's rate.
    fn takes(&self, packets: u32) -> Nanos {
        least_time(self.packet.saturating_mul(packets), self.rate)
    }

    /// Returns the minimum budget, which is the number of packets that arrive in two round trips.
    #[inline]
    fn least(&self) -> u32 {
        self.two_round_trips().min(self.ceiling)
    }

    /// Returns the number of full packets that arrive in two round trips, of at most [`SLOW`]
    /// together.
    #[inline]
    fn two_round_trips(&self) -> u32 {
        let time = self.round_trip.saturating_mul(2);
        self.arrive_in(time.min(SLOW))
    }

    /// Returns whether a single turn leaves the port idle: at least [`FEWEST`] packets arrive in
    /// [`SLOW`], or in a round trip.
    #[inline]
    fn needs_more_turns(&self) -> bool {
        self.arrive_in(SLOW) >= FEWEST || self.path() >= FEWEST
    }

    /// Returns the number of full packets that arrive in `time` at the port's rate.
    #[inline]
    fn arrive_in(&self, time: Nanos) -> u32 {
        self.arrive_up_to(LARGEST, time)
    }

    /// Returns the number of full packets that arrive in `time` at the port's rate, in at most
    /// `most` bytes.
    #[inline]
    fn arrive_up_to(&self, most: u64, time: Nanos) -> u32 {
        let bytes = Nanos::from(self.rate).saturating_mul(time) >> RATE_SHIFT;
        let packets = bytes.min(most).checked_div(self.packet.into());
        packets
            .and_then(|packets| u32::try_from(packets).ok())
            .unwrap_or(0)
    }

    /// Lowers the ceiling after a loss. The loss shows that a queue on the path, such as the
    /// port's, holds fewer packets than were in flight.
    fn on_loss(&mut self) {
        if self.lease == LEASE {
            return;
        }
        let flight = self.in_flight.min(self.limit.max(self.least()));
        if flight > 0 {
            self.ceiling = (flight / 4 * 3).max(LEAST_CEILING);
            self.limit = self.limit.min(self.ceiling);
            self.lease = LEASE;
        }
    }
}

/// Returns the rate at which `bytes` bytes arrive within `time`, in bytes per 2^16 ns.
#[inline]
fn rate(bytes: u32, time: Nanos) -> u32 {
    let scaled = Nanos::from(bytes) << RATE_SHIFT;
    u32::try_from(scaled.checked_div(time).unwrap_or(0)).unwrap_or(u32::MAX)
}
