// SPDX-License-Identifier: GPL-2.0

//! How many granted packets may be on their way to a device at once.
//!
//! A turn ends when its sender asks for the next one. If its packets trickle in, or a round trip lasts longer than they do,
//! the port idles meanwhile. So a turn is also given beside others while fewer packets than the budget are in flight:
//! granted and not arrived. The budget follows the port's use:
//!
//! * The port's rate is the highest that the packets of one turn had lately. Over spans of at least [`SPAN`] in which a
//!   connection always waited, packets that came more slowly show that the port idled: the budget grows.
//! * A port in full use lets the budget shrink slowly, to nothing in the end: then one turn at a time suffices.
//! * If every turn of a span took [`DELAY`] longer than it might to bring its first packet, packets wait in the port:
//!   the budget shrinks, whatever the rate.
//! * No port takes any number. The budget stays below a ceiling, which a loss takes down to three quarters of what was in flight.
//!   It rises again while the port idles, slowly until as many spans have passed as [`LEASE`].

use super::super::timers::{Nanos, MICROSECOND, MILLISECOND};

/// Packets are counted over at least this time, and at least [`LEAST_COUNT`] of them.
const SPAN: Nanos = 100 * MICROSECOND;
const LEAST_COUNT: u32 = 16;

/// So much longer than the least round trip packets may wait in the port, beside those of one turn.
const DELAY: Nanos = 50 * MICROSECOND;

/// After so much time without a packet a count begins anew.
const PAUSE: Nanos = 2 * MILLISECOND;

/// So many packets a port with a buffer of 128 KiB takes beside those that come [unscheduled](super::UNSCHEDULED).
const FIRST_CEILING: u32 = 42;
const LEAST_CEILING: u32 = 8;

/// The buffer of a fast port takes what comes in this time: 800 packets at 100 Gbit/s.
const FAST: Nanos = 50 * MICROSECOND;

/// What more comes in this time waits too long in a slow port: 24 packets at 1 Gbit/s.
const SLOW: Nanos = 300 * MICROSECOND;

/// For so many spans after a loss the ceiling rises slowly.
const LEASE: u16 = 256;

/// After so many spans in full use the budget shrinks.
const FULL: u8 = 16;

/// Rates are packets in 2^20 ns.
const RATE_SHIFT: u32 = 20;

/// What the packets of a connection have shown since the queue last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in super::super) struct News {
    /// Packets that were taken.
    pub(in super::super) arrived: u16,
    /// Others were found missing.
    pub(in super::super) lost: bool,
    /// So many packets of a turn came in a time.
    pub(in super::super) train: Option<(u16, Nanos)>,
    /// The time that the first packet of a turn took, and the least one.
    pub(in super::super) time: Option<(Nanos, Nanos)>,
}

/// The budget of one device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Granted packets that have not arrived.
    pub(super) in_flight: u32,
    /// Turns are given beside others while fewer are in flight.
    most: u32,
    ceiling: u32,
    lease: u16,
    /// Spans in a row in which the port was in full use.
    full: u8,
    /// The least round trip that a connection had lately.
    round_trip: Nanos,
    /// The port's rate, packets in 2^20 ns.
    rate: u32,
    /// When packets came last.
    last: Nanos,
    /// Whether a connection waited then.
    waits: bool,
    /// For how long one has waited since the budget was last fitted.
    elapsed: Nanos,
    /// Packets that came meanwhile.
    count: u32,
    /// The least delay of a turn since then.
    delay: Option<Nanos>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            in_flight: 0,
            most: 0,
            ceiling: FIRST_CEILING,
            lease: 0,
            full: 0,
            round_trip: 0,
            rate: 0,
            last: 0,
            waits: false,
            elapsed: 0,
            count: 0,
            delay: None,
        }
    }
}

impl Budget {
    /// Whether one more turn may be given beside others.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.most.max(self.least())
    }

    /// Instead of `before`, a connection has `after` packets in flight.
    #[inline]
    pub(super) fn change(&mut self, before: u16, after: u16) {
        let others = self.in_flight.saturating_sub(before.into());
        self.in_flight = others.saturating_add(after.into());
    }

    /// A connection has news; `waits` tells whether one waits for its turn.
    #[inline]
    pub(super) fn note(&mut self, news: News, waits: bool, now: Nanos) {
        if news.lost {
            self.on_loss();
        }
        if let Some((packets, time)) = news.train {
            self.rate = self.rate.max(rate(packets.into(), time));
            let buffer = self.rate_in(FAST).max(FIRST_CEILING);
            if self.lease == 0 {
                self.ceiling = self.ceiling.max(buffer);
            }
        }
        if let Some((time, least)) = news.time {
            let delay = time.saturating_sub(least);
            self.round_trip = match self.round_trip {
                0 => least,
                known => least.min(known.saturating_add(known / 64)),
            };
            self.delay = Some(self.delay.map_or(delay, |least| least.min(delay)));
        }
        if news.arrived > 0 {
            self.arrive(news.arrived, waits, now);
        }
    }

    /// Packets came. Those count that come while a connection waits, and the time between them.
    #[inline]
    fn arrive(&mut self, packets: u16, waits: bool, now: Nanos) {
        let gap = now.saturating_sub(self.last);
        let waited = self.waits && gap <= PAUSE;
        self.last = now;
        self.waits = waits;
        if !waited {
            return;
        }
        self.elapsed = self.elapsed.saturating_add(gap);
        self.count = self.count.saturating_add(packets.into());
        if self.elapsed >= SPAN && self.count >= LEAST_COUNT {
            self.judge();
            self.elapsed = 0;
            self.count = 0;
            self.delay = None;
        }
    }

    /// Fits the budget to what came in this time.
    fn judge(&mut self) {
        let elapsed = self.elapsed; let rate = rate(self.count, elapsed);
        if std::env::var_os("DBGB").is_some() { std::eprintln!("judge elapsed {elapsed} count {} rate {rate} of {} most {} ceil {} inflight {} delay {:?} {:p}", self.count, self.rate, self.most, self.ceiling, self.in_flight, self.delay, self); }
        self.rate = self.rate.saturating_sub(self.rate / 1024);
        self.lease = self.lease.saturating_sub(1);
        let packet = (1 << RATE_SHIFT) / Nanos::from(self.rate.max(1));
        let most = DELAY.saturating_add(packet.saturating_mul(32));
        if rate >= self.rate / 8 * 7 && self.delay.is_some_and(|delay| delay > most) {
            self.most = self.most.saturating_sub((self.most / 8).max(1));
            return;
        }
        if rate >= self.rate / 16 * 15 {
            self.full = self.full.saturating_add(1);
            if self.full >= FULL {
                self.full = 0;
                self.most = self.most.saturating_sub((self.most / 64).max(1));
            }
            return;
        }
        self.full = 0;
        let more = if rate < self.rate / 2 {
            self.most.max(16)
        } else if rate < self.rate / 4 * 3 {
            (self.most / 2).max(8)
        } else {
            (self.most / 8).max(4)
        };
        let wanted = self.most.saturating_add(more);
        if wanted > self.ceiling {
            let more = if self.lease > 0 { 0 } else { self.ceiling / 4 };
            self.ceiling = self.ceiling.saturating_add(more.max(1));
        }
        self.ceiling = self.ceiling.min(self.rate_in(SLOW)).min(800);
        self.most = wanted.min(self.ceiling);
    }

    /// Packets that the port's rate has in a round trip and a half.
    #[inline]
    fn least(&self) -> u32 {
        let time = self.round_trip.saturating_add(self.round_trip / 2);
        self.rate_in(time).min(self.ceiling)
    }

    /// Packets that the port's rate has in this time.
    #[inline]
    fn rate_in(&self, time: Nanos) -> u32 {
        let packets = Nanos::from(self.rate).saturating_mul(time) >> RATE_SHIFT;
        u32::try_from(packets).unwrap_or(u32::MAX)
    }

    /// Packets were lost: the port, or another queue on the way, takes less than was in flight.
    fn on_loss(&mut self) {
        if self.lease == LEASE {
            return;
        }
        let flight = self.in_flight.min(self.most);
        if flight > 0 {
            self.ceiling = (flight / 4 * 3).max(LEAST_CEILING);
            self.most = self.most.min(self.ceiling);
            self.lease = LEASE;
        }
    }
}

fn rate(packets: u32, time: Nanos) -> u32 {
    let scaled = Nanos::from(packets) << RATE_SHIFT;
    u32::try_from(scaled.checked_div(time).unwrap_or(0)).unwrap_or(u32::MAX)
}
