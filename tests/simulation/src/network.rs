// SPDX-License-Identifier: GPL-2.0-only

//! Simulates wires and switch ports. They compute the time at which the last bit of each frame
//! leaves.
//!
//! The simulation needs no events for this: a frame's departure time follows from that of the frame
//! before it. Times in this module are in picoseconds, because nanoseconds are too coarse: at 100
//! Gbit/s an acknowledgement takes 6.72 ns.

use std::collections::VecDeque;

use esp::{Nanos, HEADER_LEN};
use serde::Serialize;

/// A time in picoseconds.
type Picos = u64;

/// Length of Ethernet's header, in bytes.
const ETHERNET: u32 = 14;
/// The length of the shortest frame without its check sequence, bytes. Shorter frames are padded to
/// this length.
const LEAST_FRAME: u32 = 60;

/// Returns the bytes that a frame with `payload` bytes of ESP payload takes in a buffer: headers,
/// payload and padding, without check sequence.
pub fn frame_bytes(payload: u16) -> u32 {
    (ETHERNET + HEADER_LEN as u32 + u32::from(payload)).max(LEAST_FRAME)
}

/// The speed of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Bits per second.
    pub bits: u64,
    /// Bytes that a frame occupies on the wire in addition to the bytes that it takes in a buffer.
    /// On Ethernet these are 4 bytes of check sequence, 8 of preamble and 12 of gap.
    pub framing: u32,
}

impl Rate {
    /// Returns how long a frame occupies the wire, rounded up.
    pub fn nanos(self, frame: u32) -> Nanos {
        nanos(self.duration(frame))
    }

    fn duration(self, frame: u32) -> Picos {
        let bits = u64::from(frame + self.framing) * 8;
        // Even at 1 Mbit/s, a frame of 64 KiB takes only 5.2e11 ps, far below the limit of u64.
        (u128::from(bits) * 1_000_000_000_000 / u128::from(self.bits)) as Picos
    }
}

fn picos(at: Nanos) -> Picos {
    at * 1_000
}

fn nanos(at: Picos) -> Nanos {
    at.div_ceil(1_000)
}

/// The wire on which a host sends. Frames wait in the host, which drops none.
#[derive(Debug)]
pub struct Wire {
    rate: Rate,
    free: Picos,
}

impl Wire {
    /// Returns an idle wire.
    pub fn new(rate: Rate) -> Self {
        Self { rate, free: 0 }
    }

    /// Queues a frame at the time `at`; returns the time at which its last bit has left.
    pub fn send(&mut self, frame: u32, at: Nanos) -> Nanos {
        self.free = self.free.max(picos(at)) + self.rate.duration(frame);
        nanos(self.free)
    }
}

/// A switch port: a wire with a FIFO buffer. The buffer drops frames that do not fit.
#[derive(Debug)]
pub struct Port {
    rate: Rate,
    /// Capacity of the buffer, bytes.
    limit: u32,
    /// The frames in the buffer: the time at which each frame's last bit leaves, and the frame's
    /// bytes.
    queue: VecDeque<(Picos, u32)>,
    queued: u32,
    free: Picos,
    /// The largest number of bytes in the buffer since this field was last set to 0. A frame counts
    /// until its last bit has left.
    pub peak: u32,
    /// Number of frames dropped since the start.
    pub drops: u64,
}

impl Port {
    /// Returns an idle port with a buffer of `limit` bytes.
    pub fn new(rate: Rate, limit: u32) -> Self {
        Self {
            rate,
            limit,
            queue: VecDeque::new(),
            queued: 0,
            free: 0,
            peak: 0,
            drops: 0,
        }
    }

    /// Handles a frame that arrives at the time `at`. Returns the time at which its last bit will
    /// have left, or `None` if the port drops the frame. Calls must be in the order of arrival.
    pub fn send(&mut self, frame: u32, at: Nanos) -> Option<Nanos> {
        let now = picos(at);
        while let Some(&(leaves, bytes)) = self.queue.front() {
            if leaves > now {
                break;
            }
            self.queued -= bytes;
            self.queue.pop_front();
        }
        if self.queued + frame > self.limit {
            self.drops += 1;
            return None;
        }
        self.free = self.free.max(now) + self.rate.duration(frame);
        self.queue.push_back((self.free, frame));
        self.queued += frame;
        self.peak = self.peak.max(self.queued);
        Some(nanos(self.free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Rate = Rate {
        bits: 1_000_000_000,
        framing: 24,
    };

    #[test]
    fn a_full_frame_lasts_as_long_as_on_ethernet() {
        assert_eq!(frame_bytes(1489), 1514);
        assert_eq!(Wire::new(GIGABIT).send(1514, 5), 5 + 1538 * 8);
    }

    #[test]
    fn frames_queue_behind_each_other() {
        let mut wire = Wire::new(GIGABIT);
        assert_eq!(wire.send(1514, 0), 12_304);
        assert_eq!(wire.send(1514, 0), 24_608);
        assert_eq!(wire.send(1514, 50_000), 62_304);
    }

    #[test]
    fn a_port_drops_what_does_not_fit_and_has_room_again_when_frames_have_left() {
        let mut port = Port::new(GIGABIT, 2 * 1514);
        assert_eq!(port.send(1514, 0), Some(12_304));
        assert_eq!(port.send(1514, 0), Some(24_608));
        assert_eq!(port.send(60, 12_303), None);
        assert_eq!(port.send(1514, 12_304), Some(36_912));
        assert_eq!((port.peak, port.drops), (2 * 1514, 1));
    }

    #[test]
    fn short_frames_are_padded() {
        assert_eq!(frame_bytes(0), 60);
        assert_eq!(frame_bytes(35), 60);
        assert_eq!(frame_bytes(36), 61);
    }
}
