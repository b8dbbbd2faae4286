// SPDX-License-Identifier: GPL-2.0

//! `/proc/sys/esp/`: the settings of each network namespace.
//!
//! The four numbers of the window are checked and stored together in one word. Concurrent writers
//! therefore cannot produce a combination that the check would refuse, and packet processing never
//! sees half of a change. Each setting that is a time depends on no other setting, and has a word
//! of its own. A counter of changes tells connections when to read the settings again.

use crate::net::errno::prelude::*;
use crate::{
    esp,
    net::{limits::Limits, sock::RawSock, sysctl::Numbers},
};
use core::ops::RangeInclusive;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use kernel::{str::CStr, sync::Arc};

/// Range of the window, in packets. With a window above 32767, sequence numbers could not be
/// compared.
const BURST_LENGTH: RangeInclusive<u16> = 1..=0x7fff;
/// The largest permitted value, in packets, of a `burst_length_max` that exceeds `burst_length`.
const MOST_GRANTED: u16 = esp::LARGEST_GRANT;
/// Range of `round_trip_time`, in microseconds. With less than 10, every packet would be requested
/// again while it is still in flight. With more than 1 s, the peer might count as dead before a
/// missing packet is requested.
const ROUND_TRIP_TIME: RangeInclusive<u32> = 10..=1_000_000;
/// Range of `retransmission_time_min`, in microseconds: at least twice the delay of an
/// acknowledgement that waits for data, and at most a second.
const RETRANSMISSION_TIME_MIN: RangeInclusive<u32> = 2_000..=1_000_000;
const NSEC_PER_USEC: u64 = 1_000;
/// If the setting `checksum` has this value, the link speed of a connection's device decides
/// whether the connection asks for checksums.
const BY_SPEED: u32 = 2;
/// If the setting `selective` has this value, only connections whose checksums have masks keep
/// out-of-order packets.
const WITH_MASKS: u32 = 2;

/// The least link speed, in Mbit/s, for which [`BY_SPEED`] selects checksums. At this speed, 16-bit
/// sequence numbers wrap within less than 80 ms, and a frame may be delayed for longer.
const FAST: u32 = 10_000;
/// Range of `mapped_wait`, in microseconds; 0 stands for no wait.
const MAPPED_WAIT: RangeInclusive<u32> = 0..=100_000;
/// The default of `mapped_wait`, in microseconds.
const MAPPED_WAIT_DEFAULT: u32 = 1_000;
/// Range of `user_timeout`, in milliseconds, up to a day.
pub(crate) const USER_TIMEOUT: RangeInclusive<u32> = 100..=86_400_000;

/// The settings of a namespace.
pub(crate) struct Settings {
    live: Arc<Live>,
    /// Returns the kernel's buffer limits for a new socket.
    new_limits: fn() -> Result<Limits>,
    /// The setting for the size of a send buffer, in bytes; 0 if the setting was never written.
    send_buffer: AtomicU32,
    /// The setting for the size of a receive buffer, in bytes; 0 if the setting was never written.
    receive_buffer: AtomicU32,
    /// Whether mapped sockets use ESP: 0 or 1.
    mapped: AtomicU32,
    /// The setting `mapped_wait`, in microseconds.
    mapped_wait: AtomicU32,
}

/// The settings that packet processing reads.
pub(crate) struct Live {
    /// Incremented after every change of the settings. Starts at 1 because [`Seen`] 0 stands for no
    /// change.
    changes: AtomicU32,
    window: AtomicU64,
    /// The setting `round_trip_time`, in microseconds.
    round_trip_time: AtomicU32,
    /// The setting `retransmission_time_min`, in microseconds.
    retransmission_time_min: AtomicU32,
    /// The setting `user_timeout`, in milliseconds.
    user_timeout: AtomicU32,
    /// Whether new connections ask for checksums: 0, 1 or [`BY_SPEED`].
    checksum: AtomicU32,
    /// Whether new connections keep out-of-order packets: 0, 1 or [`WITH_MASKS`].
    selective: AtomicU32,
}

/// The value of `changes` in [`Live`] that a connection has seen last; 0 if it has seen none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen(u32);

impl Live {
    /// If a setting has changed since `seen`, returns the engine's parameters and updates `seen`.
    /// Callable in any context.
    #[inline]
    pub(crate) fn news(&self, seen: &mut Seen) -> Option<esp::Config> {
        let now = Seen(self.changes.load(Acquire));
        if *seen == now {
            return None;
        }
        *seen = now;
        Some(self.config())
    }

    /// Returns the window's values, all from one write. They are read together, because each limits
    /// the others.
    fn window(&self) -> Window {
        Window::from_bits(self.window.load(Relaxed))
    }

    fn config(&self) -> esp::Config {
        let window = self.window();
        esp::Config {
            burst_length: window.burst_length,
            burst_length_max: window.burst_length_max,
            initial_ack_burst_length: window.initial_ack_burst_length,
            packets_to_ack: window.packets_to_ack,
            round_trip_time: self.round_trip_time.load(Relaxed),
            retransmission_time_min: self.retransmission_time_min.load(Relaxed),
            user_timeout: self.user_timeout.load(Relaxed),
            selective: selective(self.selective.load(Relaxed)),
        }
    }
}

/// Returns the engine's parameter for a value of the setting `selective`.
fn selective(setting: u32) -> esp::Selective {
    match setting {
        0 => esp::Selective::Never,
        WITH_MASKS => esp::Selective::WithMasks,
        _ => esp::Selective::Always,
    }
}

/// Returns the value of the setting `selective` for a parameter of the engine.
fn setting_of(selective: esp::Selective) -> u32 {
    match selective {
        esp::Selective::Never => 0,
        esp::Selective::Always => 1,
        esp::Selective::WithMasks => WITH_MASKS,
    }
}

/// The setting that a file in `/proc/sys/esp` shows.
#[derive(Clone, Copy)]
pub(crate) enum Setting {
    /// The window. A write to this file also sets `burst_length_max` to the same number, which ends
    /// granting.
    BurstLength,
    /// Another number of the [`Window`].
    Packets(fn(&mut Window) -> &mut u16),
    RoundTripTime,
    RetransmissionTimeMin,
    UserTimeout,
    Checksum,
    Mapped,
    MappedWait,
    Selective,
    /// The size of a buffer. The first function selects the setting, the second one the limit of a
    /// new socket.
    Buffer(fn(&Settings) -> &AtomicU32, fn(Limits) -> u32),
}

/// The numbers of the window, in packets. The range of each depends on the others.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    burst_length: u16,
    initial_ack_burst_length: u16,
    packets_to_ack: u16,
    burst_length_max: u16,
}

impl Window {
    fn of(config: &esp::Config) -> Self {
        Window {
            burst_length: config.burst_length,
            initial_ack_burst_length: config.initial_ack_burst_length,
            packets_to_ack: config.packets_to_ack,
            burst_length_max: config.burst_length_max,
        }
    }

    #[inline]
    fn from_bits(bits: u64) -> Self {
        Window {
            burst_length: bits as u16,
            initial_ack_burst_length: (bits >> 16) as u16,
            packets_to_ack: (bits >> 32) as u16,
            burst_length_max: (bits >> 48) as u16,
        }
    }

    fn to_bits(self) -> u64 {
        u64::from(self.burst_length)
            | u64::from(self.initial_ack_burst_length) << 16
            | u64::from(self.packets_to_ack) << 32
            | u64::from(self.burst_length_max) << 48
    }

    /// Returns whether all numbers are in their ranges.
    fn is_valid(self) -> bool {
        BURST_LENGTH.contains(&self.burst_length)
            && self.initial_ack_burst_length <= self.burst_length
            && (1..=self.burst_length).contains(&self.packets_to_ack)
            && (self.burst_length_max == self.burst_length
                || (self.burst_length <= esp::MOST_NARROW
                    && (self.burst_length..=MOST_GRANTED).contains(&self.burst_length_max)))
    }
}

impl Settings {
    /// Creates the default settings. `new_limits` returns the kernel's buffer limits for a new
    /// socket.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(new_limits: fn() -> Result<Limits>) -> Result<Self> {
        let config = esp::Config::default();
        let live = Live {
            changes: AtomicU32::new(1),
            window: AtomicU64::new(Window::of(&config).to_bits()),
            round_trip_time: AtomicU32::new(config.round_trip_time),
            retransmission_time_min: AtomicU32::new(config.retransmission_time_min),
            user_timeout: AtomicU32::new(config.user_timeout),
            checksum: AtomicU32::new(BY_SPEED),
            selective: AtomicU32::new(setting_of(config.selective)),
        };
        Ok(Settings {
            live: Arc::new(live, GFP_KERNEL_ACCOUNT)?,
            new_limits,
            send_buffer: AtomicU32::new(0),
            receive_buffer: AtomicU32::new(0),
            mapped: AtomicU32::new(1),
            mapped_wait: AtomicU32::new(MAPPED_WAIT_DEFAULT),
        })
    }

    /// Returns the settings that packet processing reads.
    pub(crate) fn live(&self) -> Arc<Live> {
        self.live.clone()
    }

    /// Returns the current parameters of the engine.
    pub(crate) fn config(&self) -> esp::Config {
        self.live.config()
    }

    /// Returns whether the device's link speed decides whether a new connection asks for checksums.
    pub(crate) fn checksum_by_speed(&self) -> bool {
        self.live.checksum.load(Relaxed) == BY_SPEED
    }

    /// Returns whether a new connection through a device with a link of `speed` Mbit/s asks for
    /// checksums.
    pub(crate) fn checksum_at(&self, speed: u32) -> bool {
        match self.live.checksum.load(Relaxed) {
            BY_SPEED => speed >= FAST,
            chosen => chosen != 0,
        }
    }

    /// Returns whether mapped sockets use ESP.
    pub(crate) fn mapped(&self) -> bool {
        self.mapped.load(Relaxed) != 0
    }

    /// Returns for how long a mapped socket that connects waits for the answer of a host, in
    /// nanoseconds; 0 if it does not wait.
    pub(crate) fn mapped_wait(&self) -> u64 {
        u64::from(self.mapped_wait.load(Relaxed)) * NSEC_PER_USEC
    }

    /// Applies the buffer sizes, if they were set, to a socket that no other context can reach yet.
    /// The socket is new, or it is the child of a listener whose buffer sizes the user has not set.
    pub(crate) fn limit_buffers(&self, sock: &RawSock) {
        let set = |buffer: &AtomicU32| Some(buffer.load(Relaxed)).filter(|&bytes| bytes != 0);
        sock.set_limits(set(&self.send_buffer), set(&self.receive_buffer));
    }

    /// Raises the limit of the send buffer to `bytes` if the limit is less, unless the settings or
    /// the socket's user have set the limit. `net.core.wmem_max` bounds `bytes`.
    pub(crate) fn grow_send_buffer(&self, sock: &RawSock, bytes: u32) {
        let bytes = bytes.min(Limits::max().send);
        if self.send_buffer.load(Relaxed) == 0 && sock.send_limit() < bytes {
            sock.set_limits(Some(bytes), None);
        }
    }

    /// Raises the limit of the receive buffer like [`grow_send_buffer`](Self::grow_send_buffer),
    /// but `net.core.rmem_max` bounds `bytes`.
    pub(crate) fn grow_receive_buffer(&self, sock: &RawSock, bytes: u32) {
        if self.may_grow_receive_buffer(sock, bytes) {
            sock.set_limits(None, Some(bytes.min(Limits::max().receive)));
        }
    }

    /// Returns whether [`grow_receive_buffer`](Self::grow_receive_buffer) would have an effect.
    pub(crate) fn may_grow_receive_buffer(&self, sock: &RawSock, bytes: u32) -> bool {
        let bytes = bytes.min(Limits::max().receive);
        self.receive_buffer.load(Relaxed) == 0
            && !sock.has_fixed_receive_limit()
            && sock.receive_limit() < bytes
    }

    /// Sets a number of the window if the resulting numbers are valid together.
    fn set_packets(&self, number: u32, set: impl Fn(&mut Window, u16)) -> Result {
        let packets = u16::try_from(number).map_err(|_| EINVAL)?;
        self.live
            .window
            .fetch_update(Relaxed, Relaxed, |bits| {
                let mut window = Window::from_bits(bits);
                set(&mut window, packets);
                window.is_valid().then(|| window.to_bits())
            })
            .map(drop)
            .map_err(|_| EINVAL)
    }
}

/// Stores `value` in `number`, a setting with a `range` that depends on no other setting.
fn store(number: &AtomicU32, range: RangeInclusive<u32>, value: u32) -> Result {
    if !range.contains(&value) {
        return Err(EINVAL);
    }
    number.store(value, Relaxed);
    Ok(())
}

impl Numbers for Settings {
    const DIRECTORY: &'static CStr = c"esp";

    type File = Setting;

    const FILES: &'static [(&'static CStr, Setting)] = &[
        (c"burst_length", Setting::BurstLength),
        (
            c"burst_length_max",
            Setting::Packets(|window| &mut window.burst_length_max),
        ),
        (c"checksum", Setting::Checksum),
        (
            c"initial_ack_burst_length",
            Setting::Packets(|window| &mut window.initial_ack_burst_length),
        ),
        (c"mapped", Setting::Mapped),
        (c"mapped_wait", Setting::MappedWait),
        (
            c"packets_to_ack",
            Setting::Packets(|window| &mut window.packets_to_ack),
        ),
        (
            c"recv_buff_size",
            Setting::Buffer(|all| &all.receive_buffer, |limits| limits.receive),
        ),
        (c"retransmission_time_min", Setting::RetransmissionTimeMin),
        (c"round_trip_time", Setting::RoundTripTime),
        (c"selective", Setting::Selective),
        (
            c"send_buff_size",
            Setting::Buffer(|all| &all.send_buffer, |limits| limits.send),
        ),
        (c"user_timeout", Setting::UserTimeout),
    ];

    fn get(&self, file: Setting) -> Result<u32> {
        match file {
            Setting::BurstLength => Ok(self.live.window().burst_length.into()),
            Setting::Packets(part) => Ok((*part(&mut self.live.window())).into()),
            Setting::RoundTripTime => Ok(self.live.round_trip_time.load(Relaxed)),
            Setting::RetransmissionTimeMin => Ok(self.live.retransmission_time_min.load(Relaxed)),
            Setting::UserTimeout => Ok(self.live.user_timeout.load(Relaxed)),
            Setting::Checksum => Ok(self.live.checksum.load(Relaxed)),
            Setting::Mapped => Ok(self.mapped.load(Relaxed)),
            Setting::MappedWait => Ok(self.mapped_wait.load(Relaxed)),
            Setting::Selective => Ok(self.live.selective.load(Relaxed)),
            Setting::Buffer(buffer, which) => match buffer(self).load(Relaxed) {
                0 => (self.new_limits)().map(which),
                bytes => Ok(bytes),
            },
        }
    }

    fn set(&self, file: Setting, number: u32) -> Result {
        let live = &*self.live;
        match file {
            Setting::BurstLength => self.set_packets(number, |window, packets| {
                window.burst_length = packets;
                window.burst_length_max = packets;
            }),
            Setting::Packets(part) => {
                self.set_packets(number, |window, packets| *part(window) = packets)
            }
            Setting::RoundTripTime => store(&live.round_trip_time, ROUND_TRIP_TIME, number),
            Setting::RetransmissionTimeMin => store(
                &live.retransmission_time_min,
                RETRANSMISSION_TIME_MIN,
                number,
            ),
            Setting::UserTimeout => store(&live.user_timeout, USER_TIMEOUT, number),
            Setting::Checksum => store(&live.checksum, 0..=BY_SPEED, number),
            Setting::Mapped => store(&self.mapped, 0..=1, number),
            Setting::MappedWait => store(&self.mapped_wait, MAPPED_WAIT, number),
            Setting::Selective => store(&live.selective, 0..=WITH_MASKS, number),
            Setting::Buffer(buffer, which) => store(
                buffer(self),
                which(Limits::MIN)..=which(Limits::max()),
                number,
            ),
        }?;
        live.changes.fetch_add(1, Release);
        Ok(())
    }
}
