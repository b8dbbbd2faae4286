// SPDX-License-Identifier: GPL-2.0

//! The windows that a receiver grants. Choices beyond Reinhardt 2006 and Treydte 2007:
//!
//! * A window holds the packets that arrive in [`SPAN`], or in two round trips if these are longer.
//!   This time covers a round trip and the reaction of both hosts. The window's packets fit the
//!   buffer of a slow port. The rate at which packets arrive is measured on the packets of the last
//!   turn, from the first arrival to the last. So the result is the line's rate even if the turns
//!   of many senders alternate. Several senders share this time, so that their turns fit the
//!   [budget](super::super::ack_queue). From one turn to the next, a window at most doubles or
//!   halves.
//! * The window of one of several senders also keeps within the [bounds](Port) of the port.
//! * A sender that gets its turns without waiting may need a larger window, or one below the
//!   configured [`Floor`]: see [`DelayBased`].
//! * A window above [`MOST_NARROW`] is only for a sender that is alone, or beside silent ones, if a
//!   round trip holds as many packets. If the sender is no longer alone, its window falls to that
//!   number with its next turn. Only connections with masks have such windows: see
//!   [`Connection::use_checksums`](super::super::Connection::use_checksums).
//! * A loss shows that a queue on the path, of a device or a port, is too small for the window. So
//!   a loss reduces the window by a quarter, and bounds the next [`LEASE`] windows.
//! * A hole closes the window until the acknowledgement of its retransmission arrives. So while
//!   packets go missing again and again, a lone sender whose packets the receiver keeps may have a
//!   window of [`MOST_LOSSY`] packets, even if a round trip holds fewer. Only packets that go
//!   missing in a window of at most [`MOST_NARROW`] packets have this effect: others may be missing
//!   because the larger window did not fit a queue on the path.
//! * The ACK queue of the device decides how many packets may follow an announcement. These packets
//!   do not wait for a turn. So the ACK queue allows all senders together no more of them than the
//!   buffer of a small port holds.
//! * Once a grant differed from the sender's own parameters, each empty acknowledgement that opens
//!   a window repeats the grant. So the loss of one of these acknowledgements does no harm. A
//!   sender whose SYN did not announce support for grants gets no grants.
//! * When the receiver's parameters become fixed, its grants carry the sender's own parameters, and
//!   are repeated in the same way. Otherwise the sender would keep its last window for ever.

use super::super::ack_queue::{least_time, on_wire, Port, RateSample};
use super::super::bits::MOST;
use super::super::config::{Config, LARGEST_WINDOW};
use super::super::options::{Options, Window};
use super::super::outcome::Room;
use super::super::timers::{Nanos, MICROSECOND, MILLISECOND, PORT_DELAY};
use super::super::wire::{Grant, MOST_NARROW};
use super::delay_based::DelayBased;

/// The time in which a window's packets arrive. At 10 Gbit/s these are 81 full packets with an MTU
/// of 1500 bytes.
const SPAN: Nanos = 100 * MICROSECOND;

/// Several senders share [`SPAN`] equally, but each has at least this part of it.
const LEAST_SPAN: Nanos = 12 * MICROSECOND;

/// A turn may end while some of its packets have not arrived, if these arrive within this time.
/// During this time the next sender's first packets are on their way. If more packets were left,
/// they would wait in the port, and unscheduled packets would wait behind them.
const HANDOVER: Nanos = 160 * MICROSECOND;

/// Number of packets that a switch and a sender store before the first packet is forwarded.
const STORED: u16 = 2;

/// Minimum number of packets that must arrive after the first ones to show a rate.
const LEAST_TRAIN: u16 = 4;

/// The time from one packet to the next is measured over this many packets.
const PACE_PACKETS: u16 = 16;

/// After a window that was too large for the path, this many windows stay smaller, counted as
/// windows of at most [`MOST_NARROW`] packets. Then larger windows are tried again, because packets
/// of other connections may have filled the buffers.
const LEASE: u32 = 256;

/// The largest window on a short path while packets go missing: the receiver keeps all packets that
/// the sender may send after a hole.
const MOST_LOSSY: u16 = Grant::rounded(MOST - 1);

/// After this many requests for missing packets, each less than [`LOSS_MEMORY`] turns after the one
/// before, windows may have [`MOST_LOSSY`] packets.
const LOSSES: u8 = 4;

/// Number of packets that the buffer of a port holds, at most.
const PORT_PACKETS: Nanos = 4096;

/// The minimum window, in packets, once losses have shown that the path is shared.
const LEAST: u16 = 2;

/// After this many consecutive turns that indicate a shared path, the path counts as shared.
const SHARED_PROOF: u8 = 8;

/// Number of turns for which missing packets are remembered.
const LOSS_MEMORY: u8 = 32;

/// While there are several senders, a window below the minimum grows by this many packets from one
/// turn to the next.
const GROWTH: u16 = 2;

/// After this many consecutive turns that want a larger window, the minimum window grows by a
/// packet.
const PATIENCE: u16 = 8;

/// The minimum window: the configured window, or a smaller one once the configured window has
/// proved too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Floor {
    /// The number of packets by which the minimum is smaller than the configured window.
    below: u16,
    /// Number of consecutive turns that wanted a larger window.
    turns: u16,
}

impl Floor {
    #[inline]
    fn of(self, config: &Config) -> u16 {
        let window = config.window();
        window.saturating_sub(self.below).max(LEAST.min(window))
    }

    /// Lowers the minimum window to [`LEAST`], since the configured window is too large.
    fn lower(&mut self) {
        *self = Self {
            below: LARGEST_WINDOW,
            turns: 0,
        };
    }

    /// Lowers the minimum window by an eighth.
    fn sink(&mut self, config: &Config) {
        let less = (self.of(config) / 8).max(1);
        self.below = self.below.saturating_add(less);
        self.turns = 0;
    }

    /// Updates the minimum window for a turn that wants the window `wanted`, and returns the
    /// minimum.
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

/// Packets that arrive one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Train {
    /// The time at which the first packets arrived. These packets are not counted in the rate.
    first: Nanos,
    /// The time when the last packets arrived.
    last: Nanos,
    /// Number of packets that arrived at the time `first`.
    head: u16,
    /// Number of packets that arrived after the time `first`.
    packets: u16,
}

impl Train {
    /// Returns whether the packets show the rate at which they arrived.
    fn shows_rate(&self) -> bool {
        self.packets >= LEAST_TRAIN && self.last > self.first
    }

    /// Adds packets, or begins a train with them.
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

/// A measurement of the pace (the time from one packet to the next). It covers [`PACE_PACKETS`]
/// packets after the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct PaceSample {
    /// The time when the first packet arrived.
    first: Nanos,
    /// Number of packets that are still to arrive; 0 before the first packet.
    left: u16,
    /// Payload of the packets that arrived, in bytes.
    payload: u32,
}

/// The grants to one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Grants {
    /// The sender's own parameters, if it supports grants.
    own: Option<Window>,
    /// The largest window that the sender accepts, in packets.
    largest: u16,
    /// Whether forged packets cannot pass for the sender's, so that windows may be larger than
    /// [`MOST_NARROW`].
    safe: bool,
    /// Whether the sender's announcements are short when nothing may follow them.
    short: bool,
    /// Whether the receiver keeps packets that arrive out of order.
    keeps: bool,
    /// The granted window; 0 while the sender uses its own window.
    window: u16,
    /// Number of packets that may follow an announcement, once the ACK queue has decided.
    start: Option<u16>,
    /// The window that the path needs, even if the receive buffer has no room for it.
    wanted: u16,
    /// The largest window that fits the path, as a loss has shown.
    ceiling: u16,
    /// Number of further packets for which `ceiling` stays valid.
    lease: u32,
    /// Half of the size of the receive buffer, in bytes. A larger burst would keep the receiver
    /// congested.
    half: u32,
    /// Number of bytes that a packet takes in the receive buffer.
    packet: u32,
    /// Number of packets that arrive in [`HANDOVER`]; `None` before it is measured.
    handover: Option<u16>,
    /// Whether a grant has ever differed from the sender's own parameters. If so, each empty
    /// acknowledgement that opens a window repeats the grant.
    repeats: bool,
    /// The packets since the last turn.
    train: Option<Train>,
    /// Whether the first packet that a turn allowed has arrived since the last turn.
    is_resumed: bool,
    /// The packets since then.
    resumed: Option<Train>,
    delay_based: DelayBased,
    /// The minimum window.
    floor: Floor,
    /// The shortest recent time between two packets.
    pace: Option<Nanos>,
    /// The bounds that the port sets to windows and rates.
    port: Port,
    /// The current measurement of `pace`.
    pace_sample: PaceSample,
    /// Whether the path is shared with senders that this receiver does not schedule, because they
    /// send to other devices.
    shared: bool,
    /// Number of consecutive turns that indicate a shared path.
    shared_turns: u8,
    /// Number of turns until missing packets are forgotten.
    loss_memory: u8,
    /// Number of requests for missing packets until these are forgotten.
    losses: u8,
    /// Number of turns in which windows may have [`MOST_LOSSY`] packets.
    lossy_turns: u8,
    /// Whether the receiver may acknowledge late: see [`is_near`](Self::is_near).
    near: bool,
    /// The last rate measurement, until the ACK queue takes it.
    rate_sample: Option<RateSample>,
}

impl Grants {
    /// Takes the options of the sender's SYN.
    pub(super) fn take_options(&mut self, options: &Options) {
        self.largest = options.largest_grant;
        self.own = options.window.filter(|_| self.largest > 0);
        self.short = options.announces_short;
    }

    /// Sets whether forged packets cannot pass for the sender's.
    pub(super) fn set_safe(&mut self, safe: bool) {
        self.safe = safe;
    }

    /// Returns the largest window that the sender can be granted.
    #[inline]
    fn largest(&self) -> u16 {
        if self.safe {
            self.largest
        } else {
            self.largest.min(MOST_NARROW)
        }
    }

    /// Returns whether the sender's announcements are short when nothing may follow them.
    #[inline]
    pub(super) fn are_short(&self) -> bool {
        self.short
    }

    /// Returns whether the receiver grants windows to the sender.
    #[inline]
    pub(super) fn is_on(&self, config: &Config) -> bool {
        self.own.is_some() && config.is_adaptive()
    }

    /// Returns whether the sender's window is larger than [`adapt`](Self::adapt) gives a sender
    /// that is not alone.
    #[inline]
    pub(super) fn is_wide(&self, config: &Config) -> bool {
        self.window > MOST_NARROW && self.own.is_some() && self.window > self.floor.of(config)
    }

    /// Returns whether the last grant was of at most [`MOST_NARROW`] packets, and is repeated.
    #[inline]
    pub(super) fn is_narrow(&self) -> bool {
        self.own.is_some() && self.repeats && self.window <= MOST_NARROW
    }

    /// Sets the number of packets that may follow an announcement.
    #[inline]
    pub(super) fn set_start(&mut self, start: u16) {
        self.start = Some(start);
    }

    /// Returns the last granted window, or the window of `config` if none was granted.
    #[inline]
    pub(super) fn window(&self, config: &Config) -> u16 {
        if self.window == 0 {
            config.window()
        } else {
            self.window
        }
    }

    /// Returns how many packets, at most, the sender may send beyond the packet with the last
    /// advertised number.
    #[inline]
    pub(super) fn max_in_flight(&self, config: &Config) -> u16 {
        self.window(config)
            .max(self.start.unwrap_or(0).saturating_add(1))
    }

    /// Returns the size of a receive buffer, in bytes, that holds two windows as large as the path
    /// needs; `None` if the present size suffices.
    #[inline]
    pub(super) fn wanted_room(&self) -> Option<u32> {
        if self.wanted <= self.window {
            return None;
        }
        let packets = u32::from(self.wanted).saturating_mul(2);
        Some(packets.saturating_mul(self.packet))
    }

    /// Sets the bounds that the port sets to windows and rates.
    #[inline]
    pub(super) fn set_port(&mut self, port: Port) {
        self.port = port;
    }

    /// Sets whether the receiver keeps packets that arrive out of order.
    pub(super) fn set_keeps(&mut self, keeps: bool) {
        self.keeps = keeps;
    }

    /// Notes that packets are missing.
    #[inline]
    pub(super) fn note_missing(&mut self) {
        self.loss_memory = LOSS_MEMORY;
        self.near = false;
        if self.keeps && self.window <= MOST_NARROW {
            self.losses = self.losses.saturating_add(1);
            if self.losses >= LOSSES {
                self.lossy_turns = LOSS_MEMORY;
            }
        }
    }

    /// Returns whether the window is larger than usual because packets go missing.
    #[inline]
    pub(super) fn is_lossy(&self) -> bool {
        self.lossy_turns > 0 && self.window > MOST_NARROW
    }

    /// Returns how long packets of other connections may delay a packet in the receiver's port.
    pub(super) fn port_delay(&self) -> Nanos {
        let buffer = self.pace.map(|pace| pace.saturating_mul(PORT_PACKETS));
        buffer.map_or(PORT_DELAY, |time| time.clamp(MILLISECOND, PORT_DELAY))
    }

    /// Returns whether at the last turn the round trip was at most a third of [`SPAN`], and no
    /// packet was missing recently. If so, one acknowledgement may cover three quarters of a
    /// window.
    #[inline]
    pub(super) fn is_near(&self) -> bool {
        self.near
    }

    /// Limits the next windows after a loss: a queue on the path, such as a device's ring, may be
    /// smaller than the window. Sender and receiver keep the present window until the next grant.
    pub(super) fn on_loss(&mut self, config: &Config) {
        let window = self.window(config);
        self.delay_based.forget_known();
        if self.shared {
            self.floor.lower();
        }
        let floor = self.floor.of(config);
        if window > floor {
            let mut smaller = window / 4 * 3;
            if self.is_lossy() {
                // The window was larger than usual, and a queue on the path was too small for it.
                smaller = smaller.min(MOST_NARROW);
            }
            self.lossy_turns = 0;
            self.ceiling = smaller.max(floor);
            self.lease = LEASE.saturating_mul(window.min(MOST_NARROW).into());
        }
    }

    /// Notes the time from a turn to its first packet. `window` is the window before the turn, or 0
    /// if other connections waited for turns.
    #[inline]
    pub(super) fn note_time(&mut self, window: u16, time: Nanos, now: Nanos) {
        self.pace_sample = PaceSample::default();
        self.delay_based.note(window, time, now);
        self.is_resumed = true;
        self.resumed = None;
    }

    /// Returns the least time from a turn to its first packet.
    #[inline]
    pub(super) fn least_time(&self) -> Option<Nanos> {
        self.delay_based.least()
    }

    /// Takes the last rate measurement, if there is a new one.
    #[inline]
    pub(super) fn take_rate_sample(&mut self) -> Option<RateSample> {
        self.rate_sample.take()
    }

    /// Notes that `packets` data packets were taken.
    #[inline]
    pub(super) fn take(&mut self, packets: u16, payload: u16, room: Room, now: Nanos) {
        if self.own.is_none() {
            return;
        }
        self.half = room.limit / 2;
        self.packet = room.packet;
        Train::add(&mut self.train, packets, now);
        if self.is_resumed {
            Train::add(&mut self.resumed, packets, now);
        }
        if packets >= self.pace_sample.left || now == self.pace_sample.first {
            self.end_pace_sample(packets, payload, now);
        } else {
            self.pace_sample.left = self.pace_sample.left.saturating_sub(packets);
            self.pace_sample.payload = self.pace_sample.payload.saturating_add(payload.into());
        }
    }

    /// Begins a measurement of the pace, or ends the measurement when its last packets arrive.
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
            // These packets arrived together with the first one, so they are not measured.
            return;
        }
        self.pace_sample = PaceSample::default();
        let packets = PACE_PACKETS
            .saturating_sub(sample.left)
            .saturating_add(packets);
        let payload = sample.payload.saturating_add(payload.into());
        let bytes = on_wire(packets, payload);
        // Packets that the card has coalesced seem to arrive faster than the link allows. So
        // `elapsed` is at least the time that the link needs for them.
        let elapsed = elapsed.max(least_time(bytes, self.port.link));
        self.rate_sample = Some(RateSample {
            packets,
            bytes,
            elapsed,
        });
        let each = elapsed.checked_div(packets.into()).unwrap_or(0);
        self.pace = Some(self.pace.map_or(each, |least| {
            each.min(least.saturating_add(least.div_ceil(64)))
        }));
    }

    /// Returns the grant of the acknowledgement being sent, in wire format and as parameters. If
    /// the receiver's parameters are fixed, the grant has the sender's own parameters.
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
            // Forget all measurements.
            *self = Self {
                own: self.own,
                largest: self.largest,
                safe: self.safe,
                short: self.short,
                keeps: self.keeps,
                repeats: self.repeats,
                port: self.port,
                ..Self::default()
            };
            own
        };
        self.repeats |= wanted != own;
        let most = self.largest().max(MOST_NARROW);
        let grant = Grant {
            start: u8::try_from(wanted.initial_ack_burst_length).unwrap_or(u8::MAX),
            window: Grant::rounded(wanted.burst_length.min(most)),
        };
        let window = Window {
            burst_length: grant.window,
            initial_ack_burst_length: grant.start.into(),
        };
        self.repeats.then_some((grant, window))
    }

    /// When a turn comes, adapts the window to the measurements of the previous turn. `at_once` is
    /// set if no other connection wanted a turn, and `alone` if none had an announced transmission.
    /// If the packets were `unscheduled`, they show no rate, because packets of other connections
    /// arrived between them. `arrived` is the number of packets since the last turn.
    #[inline]
    pub(super) fn adapt(
        &mut self,
        arrived: u16,
        unscheduled: bool,
        at_once: bool,
        alone: bool,
        senders: u16,
        config: &Config,
    ) {
        let train = self.train.take();
        let resumed = self.take_resumed();
        let window = self.window(config);
        self.loss_memory = self.loss_memory.saturating_sub(1);
        self.lossy_turns = self.lossy_turns.saturating_sub(1);
        if self.loss_memory == 0 {
            self.losses = 0;
        }
        self.near = self.loss_memory == 0 && self.delay_based.is_near(SPAN / 3);
        if !config.is_adaptive() {
            return;
        }
        // The ACK queue also gives turns at once while several senders fit its budget.
        let wide = at_once && alone && !unscheduled;
        let most = self.most(wide, window, arrived, config);
        self.delay_based.pressed &= at_once && window >= most;
        let by_rate = resumed
            .or(train)
            .filter(|_| !unscheduled)
            .and_then(|train| self.by_rate(train, senders, window));
        let regrown = if most > MOST_NARROW {
            self.delay_based.regrown(window, arrived)
        } else {
            None
        };
        let by_time = if regrown.is_some() {
            regrown
        } else if at_once {
            self.delay_based.wanted(window, most)
        } else {
            None
        };
        if by_time.is_some() || !at_once {
            // If the link's speed is unknown and packets arrive in batches, `pace` is too short.
            // Then late packets cause such times and gaps, too. So missing packets have to show
            // in addition that windows are too large.
            let knows_pace = self.port.link > 0 || self.loss_memory > 0;
            self.shared_turns = if at_once && knows_pace && self.is_behind_others(window) {
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
        // The packets of one [`SPAN`] suffice for a short path. On a long path, the time from a
        // turn to its first packet decides. There, a low rate may merely show that the windows are
        // too small.
        let by_time = by_time.filter(|_| self.shared || self.delay_based.is_long());
        let wanted = match by_rate {
            // While even the largest window is too small, the sender pauses within a turn's
            // packets, so the measured rate is too low.
            _ if self.shared || self.delay_based.pressed => by_time.unwrap_or(window),
            Some(rate) if at_once && self.delay_based.is_long() => {
                rate.max(by_time.unwrap_or(window))
            }
            Some(rate) => rate,
            None => by_time.unwrap_or(0).max(window),
        };
        let most_of_port = self.port.most.unwrap_or(u16::MAX);
        let floor = self.floor.follow(wanted, config).min(most_of_port);
        // The ACK queue counts the present window in advance. So a window that was below the floor
        // does not jump back to it.
        let floor = if senders > 1 {
            floor.min(window.saturating_add(GROWTH))
        } else {
            floor
        };
        let wanted = wanted
            .min(most_of_port)
            .clamp(window / 2, window.saturating_mul(2))
            .min(most)
            .min(self.most_kept())
            .max(floor);
        self.wanted = Grant::rounded(wanted);
        let fit = self.half.checked_div(self.packet).unwrap_or(u32::MAX);
        let fit = u16::try_from(fit).unwrap_or(u16::MAX);
        self.window = Grant::rounded(self.wanted.min(fit).max(floor));
    }

    /// Takes the packets since the first packet that a turn allowed, if they show a rate. The
    /// sender may have stopped before them, and this gap would make the rate of all packets too
    /// low.
    fn take_resumed(&mut self) -> Option<Train> {
        self.is_resumed = false;
        self.resumed.take().filter(Train::shows_rate)
    }

    /// Returns the largest window for the next turn. `wide` is set if it may be above
    /// [`MOST_NARROW`]: the first window of a transmission leaves the sender at once, so it may
    /// not. `arrived` is the number of packets since the last turn, which had `window`.
    fn most(&mut self, wide: bool, window: u16, arrived: u16, config: &Config) -> u16 {
        let mut most = config.burst_length_max.min(self.largest());
        if !wide {
            let bound = if self.lease > 0 { self.ceiling } else { window };
            self.delay_based.note_known(window.min(bound));
            most = most.min(MOST_NARROW);
        }
        if self.lease > 0 {
            self.lease = self.lease.saturating_sub(arrived.into());
            most = most.min(self.ceiling);
        }
        // No window exceeds this, because each one is rounded.
        Grant::rounded(most)
    }

    /// Returns the largest window while packets go missing and the receiver keeps those after them:
    /// [`MOST_LOSSY`], or a round trip of packets if these are more. After a go-back all packets of
    /// a window leave at once, so a larger one might overflow a queue on the path again.
    fn most_kept(&self) -> u16 {
        if !self.keeps || self.loss_memory == 0 {
            return u16::MAX;
        }
        let least = self.least_time().unwrap_or(Nanos::MAX);
        let packets = self.pace.and_then(|pace| least.checked_div(pace));
        let packets = packets.and_then(|packets| u16::try_from(packets).ok());
        packets.unwrap_or(u16::MAX).max(MOST_LOSSY)
    }

    /// Returns whether the first packet of the last turn arrived later than the packets of its own
    /// sender can explain. If so, the packet queued behind packets of other connections, or a host
    /// was slow.
    fn is_behind_others(&self, window: u16) -> bool {
        self.twice_the_time(window).is_some_and(|own| {
            self.delay_based.time() > own.saturating_add(self.delay_based.target())
        })
    }

    /// Returns whether packets of other connections also arrived between the packets of this train.
    /// A slow host alone cannot cause such a train.
    fn has_others_between(&self, train: Train) -> bool {
        let elapsed = train.last.saturating_sub(train.first);
        self.twice_the_time(train.packets)
            .is_some_and(|own| elapsed > own)
    }

    /// Returns twice the time that `packets` packets take at the `pace`, the shortest recent time
    /// between two packets; `None` if the pace is unknown.
    fn twice_the_time(&self, packets: u16) -> Option<Nanos> {
        let own = |pace| Nanos::from(packets).saturating_mul(pace);
        self.pace.map(|pace| own(pace).saturating_mul(2))
    }

    /// Returns how many packets of a window make an acknowledgement due: at least `least`, unless
    /// even the largest window is too small.
    #[inline]
    pub(super) fn packets_to_ack(&self, window: u16, least: u16) -> u16 {
        if self.delay_based.pressed {
            return least.min((window / 8).max(1));
        }
        // The sender may use less of a wide window, for instance if its send buffer is small. An
        // acknowledgement must not wait for more packets than that.
        let window = window.min(MOST_NARROW);
        self.handover
            .map_or(least, |packets| least.max(window.saturating_sub(packets)))
    }

    /// Returns the window for the rate of this train of packets: as many packets as arrive in
    /// [`SPAN`]. Returns `None` if the train does not show a rate.
    fn by_rate(&mut self, train: Train, senders: u16, window: u16) -> Option<u16> {
        let elapsed = train.last.saturating_sub(train.first);
        if elapsed == 0 {
            // All packets arrived at the same time, so their rate cannot be measured. If they are
            // at least half a window, the rate is so high that the largest window is needed.
            let tells = train.head >= window / 2;
            return tells.then_some(MOST_NARROW);
        }
        if train.packets < LEAST_TRAIN {
            return None;
        }
        let arrive = |time: Nanos| {
            let packets = u64::from(train.packets).saturating_mul(time);
            u16::try_from(packets.checked_div(elapsed).unwrap_or(0)).unwrap_or(u16::MAX)
        };
        // Packets of other connections that arrive in between lower the measured rate, and nothing
        // raises it. So `handover` falls slowly.
        let handover = arrive(HANDOVER.max(self.delay_based.target())).saturating_add(STORED);
        let before = self.handover.unwrap_or(window).saturating_sub(1);
        self.handover = Some(handover.max(before));
        let least = self.delay_based.least().unwrap_or(0);
        let span = SPAN.max(least.saturating_mul(2));
        let packets = arrive(LEAST_SPAN.max(span / Nanos::from(senders.max(1))));
        let wide = if self.delay_based.is_long() {
            // There, the time from a turn to its first packet decides on larger windows.
            MOST_NARROW
        } else {
            let usual = if self.lossy_turns > 0 {
                MOST_LOSSY
            } else {
                MOST_NARROW
            };
            arrive(least.saturating_add(least / 2)).max(usual)
        };
        Some(packets.max(self.port.least).min(wide))
    }
}
