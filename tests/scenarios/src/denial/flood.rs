// SPDX-License-Identifier: GPL-2.0-only

//! Frames sent at a rate, and what each costs the host that they are for.

use std::sync::atomic::Ordering::Relaxed;

use crate::prelude::*;
use crate::priority::first_of_all;

/// What makes the frame with a number.
pub type Make<'a> = &'a mut (dyn FnMut(u64) -> Vec<u8> + Send);

/// Where attacks come from: a packet socket on host b that hears nothing.
///
/// # Errors
/// When it cannot be opened.
pub fn wire(lab: &Lab) -> Result<PacketSocket> {
    PacketSocket::open(&lab.b.namespace, DEVICE, 0)
}

/// Frames of one kind per second while something else is measured.
pub const RATE: u64 = 10_000;

/// Runs `here` while frames come at [`RATE`]: how many came, and what `here` returned.
///
/// # Errors
/// When a frame cannot be sent, or `here` fails.
pub fn during<T>(
    wire: &PacketSocket,
    make: Make<'_>,
    here: impl FnOnce() -> Result<T>,
) -> Result<(u64, T)> {
    during_at(RATE, wire, make, here)
}

/// As [`during`], at another rate.
///
/// # Errors
/// When a frame cannot be sent, or `here` fails.
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

/// Frames that are sent to find what one costs.
const COUNT: u64 = 3000;

/// Instructions that a frame costs its receiver and whatever that does in answer, in a guest whose
/// clock counts them: more than one of the same length that is for somebody else.
///
/// # Errors
/// When a frame cannot be sent.
pub fn cost(lab: &Lab, wire: &PacketSocket, make: Make<'_>) -> Result<f64> {
    let others = ethernet([2, 0, 0, 0, 0, 0x77], lab.b.mac, ETH_P_ESP, &[0; 11]);
    let ours = each(wire, make)?;
    let theirs = each(wire, &mut |_| others.clone())?;
    Ok(ours - theirs)
}

/// The median over groups of frames: now and then the guest has something else to do, or nothing,
/// and its clock runs ahead.
fn each(wire: &PacketSocket, make: Make<'_>) -> Result<f64> {
    const GROUP: usize = 100;
    // Made before, so that making them is not in the figure.
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
