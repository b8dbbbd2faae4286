// SPDX-License-Identifier: GPL-2.0

//! The windows that a receiver grants. Choices beyond the theses:
//!
//! * A window holds the packets that arrive in [`SPAN`]: that covers a round trip and both hosts'
//!   reaction, and a slow port's buffer takes it. The rate is that of the packets which the last
//!   turn let go: from the first arrival to the last, so that it is the line's also where the turns
//!   of many senders alternate. Several senders share that time, so that their turns fit the
//!   [budget](super::super::ack_queue). A window doubles or halves at most.
//! * A sender whose turns come at once may need a larger window, or one below the configured
//!   [`Floor`]: see [`DelayBased`].
//! * A loss shows that a queue on the way is too small for the window: a device's ring, or a port's
//!   buffer. So it takes a quarter off, and bounds those of the next [`LEASE`] windows.
//! * OutOfOrder an announcement come as many packets as the ACK queue of the device has given this
//!   sender. Nobody schedules those, so all senders together have no more than a small port's
//!   buffer takes.
//! * Once a sender was granted something else than its own parameters, a grant stands in each
//!   empty acknowledgement that opens a window, so that a lost one does no harm. A sender that
//!   has not told in its SYN that it takes grants gets none.
//! * When the receiver's parameters become fixed, it grants such a sender the sender's own
//!   parameters in the same way. Otherwise the sender would keep its last window for ever.

use super::super::ack_queue::{least_time, on_wire};
use super::super::config::{Config, LARGEST_WINDOW};
use super::super::options::{Options, Window};
use super::super::outcome::Room;
use super::super::timers::{Nanos, MICROSECOND};
use super::super::wire::Grant;
use super::delay_based::DelayBased;

/// A window lasts this long at the rate of arrivals: at 10 Gbit/s it has 81 full packets of an MTU
/// of 1500 bytes.
const SPAN: Nanos = 100 * MICROSECOND;

/// Of several senders each has an equal part of that, but no less than this.
const LEAST_SPAN: Nanos = 12 * MICROSECOND;

/// A turn goes on while packets are yet to come for so long: that covers the time until the next
/// sender's first ones arrive. What is more waits in the port, before whatever comes unscheduled.
const HANDOVER: Nanos = 300 * MICROSECOND;

/// Packets that a switch and a sender store before they forward the first one.
const STORED: u16 = 2;

/// So many packets behind the first arrival tell a rate.
const LEAST_TRAIN: u16 = 4;

/// So many tell how closely packets follow each other.
const PACE_PACKETS: u16 = 16;

/// For so many windows after a loss they stay below the one that was too large. It is tried again
/// then, since buffers on the way may have been full of others' packets.
const LEASE: u32 = 256;

/// The least window, once losses have shown that the way is shared.
const LEAST: u16 = 2;

/// So many turns in a row show that the way is shared.
const SHARED_PROOF: u8 = 8;

/// For so many turns packets that were missing are remembered.
const LOSS_MEMORY: u8 = 32;

/// With so many turns in a row that ask for more, the least window grows by a packet.
const PATIENCE: u16 = 8;

/// The least window: the configured one, unless the way has shown to be too narrow for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Floor {
    /// It is so much smaller.
    below: u16,
    /// Turns in a row that asked for more.
    turns: u16,
}

impl Floor {
    #[inline]
    fn of(self, config: &Config) -> u16 {
        let window = config.window();
        window.saturating_sub(self.below).max(LEAST.min(window))
    }

    /// The configured window is too large.
    fn lower(&mut self) {
        *self = Self {
            below: LARGEST_WINDOW,
            turns: 0,
        };
    }

    /// The window should be smaller.
    fn sink(&mut self, config: &Config) {
        let less = (self.of(config) / 8).max(1);
        self.below = self.below.saturating_add(less);
        self.turns = 0;
    }

    /// A turn asks for a window. Returns the least one.
    #[inline]
    fn follow(&mut self, wanted: u16, config: &Config) -> u16 {
        if self.below > 0 {
            self.below = self.below.min(config.window());
            self.turns = if wanted > self.of(config) {
                self.turns.saturating_add(1)
            } else {
                0
            };
            if self.turns >= PATIENCE {
                self.turns = 0;
                self.below = self.below.saturating_sub(1);
            }
        }
        self.of(config)
    }
}

/// Packets that arrive one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Train {
    /// When the first ones came, which the rate does not count.
    first: Nanos,
    /// When the last ones came.
    last: Nanos,
    /// The first ones.
    head: u16,
    /// Those behind them.
    packets: u16,
}

impl Train {
    /// Packets came, maybe the first ones.
    #[inline]
    fn add(train: &mut Option<Self>, packets: u16, now: Nanos) {
        match train {
            None => {
                *train = Some(Self {
                    first: now,
                    last: now,
                    head: packets,
                    packets: 0,
                });
            }
            Some(train) if train.first == now => train.head = train.head.saturating_add(packets),
            Some(train) => {
                train.last = now;
                train.packets = train.packets.saturating_add(packets);
            }
        }
    }
}

/// [`PACE_PACKETS`] packets behind a first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct PaceSample {
    /// When that came.
    first: Nanos,
    /// So many are yet to come; 0 if the first one is.
    left: u16,
    /// Payload of those that have come, bytes.
    payload: u32,
}

/// The grants to one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Grants {
    /// The sender's own parameters, if it takes grants.
    own: Option<Window>,
    /// The largest one that it takes.
    largest: u16,
    /// Its announcements are short when nothing may follow them.
    short: bool,
    /// The window, 0 as long as it is the sender's own choice.
    window: u16,
    /// Packets behind an announcement, once the ACK queue has told.
    start: Option<u16>,
    /// The window that the rate asks for, whether or not the receive buffer has room for it.
    wanted: u16,
    /// The largest window that the way has room for, as a loss has shown.
    ceiling: u16,
    /// Packets for which that holds.
    lease: u32,
    /// Half of the receive buffer, bytes: a larger burst would keep the receiver congested.
    half: u32,
    /// The room that a packet takes there, bytes.
    packet: u32,
    /// What arrives in [`HANDOVER`], once it is known.
    handover: Option<u16>,
    /// It was granted something else than its own choice.
    repeats: bool,
    /// The packets since the last turn.
    train: Option<Train>,
    delay_based: DelayBased,
    /// The least window.
    floor: Floor,
    /// The least time that a packet took lately behind another one.
    pace: Option<Nanos>,
    /// The link's rate, which no packets exceed, bytes in 2^16 ns; 0 if it is not known.
    link: u32,
    /// Packets that are to show it.
    pace_sample: PaceSample,
    /// Senders to other devices share the way, whose turns nobody gives.
    shared: bool,
    /// Turns in a row that have shown it.
    shared_turns: u8,
    /// So many turns until it is forgotten that packets were missing.
    loss_memory: u8,
    /// See [`is_near`](Self::is_near).
    near: bool,
    /// Packets of the turn before, their bytes, and in which time they came, until it is asked for.
    rate_sample: Option<(u16, u32, Nanos)>,
}

impl Grants {
    /// The sender's SYN had these options.
    pub(super) fn take_options(&mut self, options: &Options) {
        self.largest = options.largest_grant.into();
        self.own = options.window.filter(|_| self.largest > 0);
        self.short = options.announces_short;
    }

    /// Whether the sender's announcements are short when nothing may follow them.
    #[inline]
    pub(super) fn are_short(&self) -> bool {
        self.short
    }

    /// Whether the sender's windows follow what arrives.
    #[inline]
    pub(super) fn is_on(&self, config: &Config) -> bool {
        self.own.is_some() && config.is_adaptive()
    }

    /// The sender may have so many packets behind an announcement.
    #[inline]
    pub(super) fn set_start(&mut self, start: u16) {
        self.start = Some(start);
    }

    /// The window that was granted last, or that of `config`.
    #[inline]
    pub(super) fn window(&self, config: &Config) -> u16 {
        if self.window == 0 {
            config.window()
        } else {
            self.window
        }
    }

    /// The most packets that may come behind the last advertised number.
    #[inline]
    pub(super) fn max_in_flight(&self, config: &Config) -> u16 {
        self.window(config)
            .max(self.start.unwrap_or(0).saturating_add(1))
    }

    /// Bytes that the receive buffer lacks room for: two windows as large as the rate asks for.
    #[inline]
    pub(super) fn wanted_room(&self) -> Option<u32> {
        if self.wanted <= self.window {
            return None;
        }
        let packets = u32::from(self.wanted).saturating_mul(2);
        Some(packets.saturating_mul(self.packet))
    }

    /// The link has this rate, bytes in 2^16 ns; 0 if it is not known.
    #[inline]
    pub(super) fn set_link(&mut self, rate: u32) {
        self.link = rate;
    }

    /// Packets are missing.
    #[inline]
    pub(super) fn note_missing(&mut self) {
        self.loss_memory = LOSS_MEMORY;
        self.near = false;
    }

    /// Whether the round trip was at most a third of [`SPAN`] when the last turn came, and no
    /// packet was missing lately. Then three quarters of a window can be acknowledged at once.
    #[inline]
    pub(super) fn is_near(&self) -> bool {
        self.near
    }

    /// Packets were lost: some queue on the way may be smaller than the window, as a device's ring.
    /// The sender keeps its window until the next grant, so the receiver does as well.
    pub(super) fn on_loss(&mut self, config: &Config) {
        let window = self.window(config);
        if self.shared {
            self.floor.lower();
        }
        let floor = self.floor.of(config);
        if window > floor {
            self.ceiling = (window / 4 * 3).max(floor);
            self.lease = LEASE.saturating_mul(window.into());
        }
    }

    /// The first packet that a turn let go has come in this time; `window` is what there was before
    /// it, or 0 if the sender was not alone.
    #[inline]
    pub(super) fn note_time(&mut self, window: u16, time: Nanos, now: Nanos) {
        self.pace_sample = PaceSample::default();
        self.delay_based.note(window, time, now);
    }

    /// The least time that a turn's first packet took.
    #[inline]
    pub(super) fn least_time(&self) -> Option<Nanos> {
        self.delay_based.least()
    }

    /// So many packets of a turn came in a time, and their bytes on the wire, if there is news
    /// since this was last asked.
    #[inline]
    pub(super) fn take_train(&mut self) -> Option<(u16, u32, Nanos)> {
        self.rate_sample.take()
    }

    /// Packets were taken.
    #[inline]
    pub(super) fn take(&mut self, packets: u16, payload: u16, room: Room, now: Nanos) {
        if self.own.is_none() {
            return;
        }
        self.half = room.limit / 2;
        self.packet = room.packet;
        Train::add(&mut self.train, packets, now);
        if packets >= self.pace_sample.left || now == self.pace_sample.first {
            self.end_pace_sample(packets, payload, now);
        } else {
            self.pace_sample.left = self.pace_sample.left.saturating_sub(packets);
            self.pace_sample.payload = self.pace_sample.payload.saturating_add(payload.into());
        }
    }

    /// Packets came with the first ones of [`PACE_PACKETS`], or are the last of them.
    #[inline(never)]
    fn end_pace_sample(&mut self, packets: u16, payload: u16, now: Nanos) {
        let sample = self.pace_sample;
        if sample.left == 0 {
            self.pace_sample = PaceSample {
                first: now,
                left: PACE_PACKETS,
                payload: 0,
            };
            return;
        }
        let elapsed = now.saturating_sub(sample.first);
        if elapsed == 0 {
            // The first ones as well.
            return;
        }
        self.pace_sample = PaceSample::default();
        let packets = PACE_PACKETS
            .saturating_sub(sample.left)
            .saturating_add(packets);
        let payload = sample.payload.saturating_add(payload.into());
        let bytes = on_wire(packets, payload);
        // The processor takes packets in faster than they arrived if the card has collected them.
        let elapsed = elapsed.max(least_time(bytes, self.link));
        self.rate_sample = Some((packets, bytes, elapsed));
        let each = elapsed.checked_div(packets.into()).unwrap_or(0);
        self.pace = Some(self.pace.map_or(each, |least| {
            each.min(least.saturating_add(least.div_ceil(64)))
        }));
    }

    /// The grant of an acknowledgement that leaves now, and the same as parameters. It is the
    /// sender's own parameters if those of the receiver are fixed.
    #[inline]
    pub(super) fn grant(&mut self, config: &Config) -> Option<(Grant, Window)> {
        let own = self.own?;
        let wanted = if config.is_adaptive() {
            Window {
                burst_length: self.window(config),
                initial_ack_burst_length: match self.start {
                    Some(0) if self.short => 0,
                    start => start.unwrap_or(0).max(own.initial_ack_burst_length),
                },
            }
        } else {
            // Forgets all that arrivals have shown.
            *self = Self {
                own: self.own,
                largest: self.largest,
                short: self.short,
                repeats: self.repeats,
                link: self.link,
                ..Self::default()
            };
            own
        };
        self.repeats |= wanted != own;
        let byte = |packets: u16| u8::try_from(packets).unwrap_or(u8::MAX);
        let grant = Grant {
            start: byte(wanted.initial_ack_burst_length),
            window: byte(wanted.burst_length),
        };
        let window = Window {
            burst_length: grant.window.into(),
            initial_ack_burst_length: grant.start.into(),
        };
        self.repeats.then_some((grant, window))
    }

    /// A turn has come: fits the window to what the last one has shown; `alone` tells that no other
    /// connection wanted one. Packets that came `unscheduled` tell no rate, since they came between
    /// those of others.
    #[inline]
    pub(super) fn adapt(&mut self, unscheduled: bool, alone: bool, senders: u16, config: &Config) {
        let train = self.train.take();
        self.delay_based.pressed &= alone;
        let window = self.window(config);
        self.loss_memory = self.loss_memory.saturating_sub(1);
        self.near = self.loss_memory == 0 && self.delay_based.is_near(SPAN / 3);
        if !config.is_adaptive() {
            return;
        }
        let mut most = config.burst_length_max.min(self.largest);
        if self.lease > 0 {
            let came = train.map_or(0, |train| train.head.saturating_add(train.packets));
            self.lease = self.lease.saturating_sub(came.into());
            most = most.min(self.ceiling);
        }
        let by_rate = train
            .filter(|_| !unscheduled)
            .and_then(|train| self.by_rate(train, senders, window));
        let by_time = if alone {
            self.delay_based.wanted(window, most)
        } else {
            None
        };
        if by_time.is_some() || !alone {
            self.shared_turns = if alone && self.is_behind_others(window) {
                let between = train.is_some_and(|train| self.has_others_between(train));
                self.shared_turns.saturating_add(between.into())
            } else {
                0
            };
            self.shared = self.shared_turns >= SHARED_PROOF;
            if self.shared {
                self.floor.sink(config);
            }
        }
        // What arrives in [`SPAN`] covers a short way. On a long one the time decides: a rate may
        // be low for want of windows.
        let by_time = by_time.filter(|_| self.shared || self.delay_based.is_long());
        let wanted = match by_rate {
            // While the largest window is too small, the sender stands still in the midst of what a
            // turn let go.
            _ if self.shared || self.delay_based.pressed => by_time.unwrap_or(window),
            Some(rate) if alone && self.delay_based.is_long() => {
                rate.max(by_time.unwrap_or(window))
            }
            Some(rate) => rate,
            None => by_time.unwrap_or(0).max(window),
        };
        let floor = self.floor.follow(wanted, config);
        self.wanted = wanted
            .clamp(window / 2, window.saturating_mul(2))
            .min(most)
            .max(floor);
        let fit = self.half.checked_div(self.packet).unwrap_or(u32::MAX);
        let fit = u16::try_from(fit).unwrap_or(u16::MAX);
        self.window = self.wanted.min(fit).max(floor);
    }

    /// Whether more packets were in front of the last turn's first one than its sender's own, or a
    /// host held it back.
    fn is_behind_others(&self, window: u16) -> bool {
        self.twice_the_time(window)
            .is_some_and(|own| self.delay_based.time() > own.saturating_add(self.delay_based.aim()))
    }

    /// Whether there were others between these packets as well: not if a host held them back.
    fn has_others_between(&self, train: Train) -> bool {
        let elapsed = train.last.saturating_sub(train.first);
        self.twice_the_time(train.packets)
            .is_some_and(|own| elapsed > own)
    }

    /// Twice the time of so many packets at their closest pace; `None` if that is not known.
    fn twice_the_time(&self, packets: u16) -> Option<Nanos> {
        let own = |pace| Nanos::from(packets).saturating_mul(pace);
        self.pace.map(|pace| own(pace).saturating_mul(2))
    }

    /// How many packets of a window make an acknowledgement due, if `least` do at least.
    #[inline]
    pub(super) fn packets_to_ack(&self, window: u16, least: u16) -> u16 {
        if self.delay_based.pressed {
            return least.min((window / 8).max(1));
        }
        self.handover
            .map_or(least, |packets| least.max(window.saturating_sub(packets)))
    }

    /// The window that holds what arrives in [`SPAN`] at the rate of these packets.
    fn by_rate(&mut self, train: Train, senders: u16, window: u16) -> Option<u16> {
        let elapsed = train.last.saturating_sub(train.first);
        if elapsed == 0 {
            // All came at once, faster than anyone can tell.
            let tells = train.head >= window / 2;
            return tells.then_some(u16::MAX);
        }
        if train.packets < LEAST_TRAIN {
            return None;
        }
        let arrive = |time: Nanos| {
            let packets = u64::from(train.packets).saturating_mul(time);
            u16::try_from(packets.checked_div(elapsed).unwrap_or(0)).unwrap_or(u16::MAX)
        };
        // The packets of others between them make a rate look low, and nothing makes it look high.
        let handover = arrive(HANDOVER.max(self.delay_based.aim())).saturating_add(STORED);
        let before = self.handover.unwrap_or(window).saturating_sub(1);
        self.handover = Some(handover.max(before));
        Some(arrive(LEAST_SPAN.max(SPAN / Nanos::from(senders.max(1)))))
    }
}
