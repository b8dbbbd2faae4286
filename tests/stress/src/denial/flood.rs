// SPDX-License-Identifier: GPL-2.0-only

//! Sends floods of frames at a given rate, and measures the cost of each frame to the receiving
//! host.

use std::sync::atomic::Ordering::Relaxed;

use guest::prelude::*;
use guest::priority::first_of_all;

/// A function that makes one frame of a flood, given the frame's number.
pub type Make<'a> = &'a mut (dyn FnMut(u64) -> Vec<u8> + Send);

/// Opens the attacker's socket: a packet socket on host b that sends, and receives nothing.
///
/// # Errors
/// If it cannot be opened.
pub fn wire(lab: &Lab) -> Result<PacketSocket> {
    PacketSocket::open(&lab.b.namespace, DEVICE, 0)
}

/// Number of frames that a flood sends per second while a measurement runs.
pub const RATE: u64 = 10_000;

/// Runs `here` while frames are sent at [`RATE`]; returns the number of frames sent, and the result
/// of `here`.
///
/// # Errors
/// If a frame cannot be sent, or `here` fails.
pub fn during<T>(
    wire: &PacketSocket,
    make: Make<'_>,
    here: impl FnOnce() -> Result<T>,
) -> Result<(u64, T)> {
    during_at(RATE, wire, make, here)
}

/// Works like [`during`], but sends at `rate`.
///
/// # Errors
/// If a frame cannot be sent, or `here` fails.
pub fn during_at<T>(
    rate: u64,
    wire: &PacketSocket,
    make: Make<'_>,
    here: impl FnOnce() -> Result<T>,
) -> Result<(u64, T)> {
    let over = AtomicBool::new(false);
    let flood = || {
        first_of_all()?;
        let started = Instant::now();
        let mut sent = 0;
        while !over.load(Relaxed) {
            let due = started.elapsed().as_micros() as u64 * rate / 1_000_000;
            while sent < due {
                wire.send(&make(sent)).context("a frame of the flood")?;
                sent += 1;
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(sent)
    };
    beside(flood, || {
        let result = here();
        over.store(true, Relaxed);
        result
    })
}

/// The number of frames that are sent to measure the cost of one frame.
const COUNT: u64 = 3000;

/// Returns how many more instructions a frame costs, its reply included, than a short frame for
/// another station. The guest's clock must count instructions.
///
/// # Errors
/// If a frame cannot be sent.
pub fn cost(lab: &Lab, wire: &PacketSocket, make: Make<'_>) -> Result<f64> {
    let others = ethernet([2, 0, 0, 0, 0, 0x77], lab.b.mac, ETH_P_ESP, &[0; 11]);
    let ours = each(wire, make)?;
    let theirs = each(wire, &mut |_| others.clone())?;
    Ok(ours - theirs)
}

/// Returns the median time per frame over groups of frames, in nanoseconds. It is a median, because
/// now and then the guest has other work, or is idle while its clock advances.
fn each(wire: &PacketSocket, make: Make<'_>) -> Result<f64> {
    const GROUP: usize = 100;
    // All frames are made before the measurement, so that the measured time does not include making
    // them.
    let frames: Vec<_> = (0..COUNT).map(make).collect();
    let mut times = Vec::new();
    for group in frames.chunks(GROUP) {
        let started = Instant::now();
        for frame in group {
            wire.send(frame)?;
        }
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2].as_nanos() as f64 / GROUP as f64)
}
