// SPDX-License-Identifier: GPL-2.0-only

//! The wire between two hosts: a switch that forwards frames between two devices. It can lose,
//! duplicate, reorder, damage, delay or withhold frames in either direction. A seeded random
//! generator decides the fate of each frame.
//!
//! Unless its checksum is switched on, ESP relies on Ethernet's frame check sequence, which a veth
//! pair lacks. So the relay emulates the check. It takes the CRC-32 of every frame, and damages
//! some frames. Like a receiving network card, it then discards each frame whose CRC no longer
//! matches. With [`Faults::fcs`] off, the relay forwards damaged frames, which a real Ethernet
//! never does. Then a test can only check that the module survives damaged frames, and not that the
//! data arrive unchanged.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use fastrand::Rng;

use crate::frame::ETH_P_ALL;
use crate::prelude::*;
use crate::priority::first_of_all;

/// The faults of a wire: probabilities from 0 to 1, and times.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Probability that a frame vanishes.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a frame arrives only after the frame that follows it.
    pub reorder: f64,
    /// Probability that one bit of a frame changes.
    pub corrupt: f64,
    /// Whether a changed frame is discarded. A receiver on a real Ethernet discards it because the
    /// frame check sequence is wrong.
    pub fcs: bool,
    /// The time that each frame takes to cross the wire.
    pub delay: Duration,
    /// The largest random time that is added to `delay`. Frames stay in order nevertheless.
    pub jitter: Duration,
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

impl Faults {
    /// A wire without faults.
    pub const NONE: Self = Self {
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        corrupt: 0.0,
        fcs: false,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
    };

    /// The worst wire that transfers must cope with: 5 % loss, 1 % duplication, 1 % corruption.
    pub const HARSH: Self = Self {
        loss: 0.05,
        duplicate: 0.01,
        corrupt: 0.01,
        fcs: true,
        ..Self::NONE
    };
}

/// A way in which the switch handles frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The switch forwards frames, with faults.
    #[default]
    Forward,
    /// The switch keeps frames, in order, until the mode changes.
    Hold,
    /// The switch discards all frames, as if the other host were gone.
    Cut,
    /// The switch discards frames of the module and forwards others, as if the other host lacked
    /// the module.
    Foreign,
}

/// The numbers of frames that the relay has forwarded, lost or changed so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of frames sent to the other side, copies included.
    pub forwarded: AtomicU64,
    /// Number of frames lost by chance.
    pub lost: AtomicU64,
    /// Number of frames sent twice.
    pub duplicated: AtomicU64,
    /// Number of frames delayed so that they arrive after the next frame.
    pub reordered: AtomicU64,
    /// Number of frames that were damaged, and therefore discarded by the frame check.
    pub discarded: AtomicU64,
    /// Number of frames that were damaged, and forwarded nevertheless.
    pub damaged: AtomicU64,
    /// Number of frames that could not be sent.
    pub refused: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    mode: Mode,
    faults: [Faults; 2],
}

#[derive(Debug, Default)]
struct Shared {
    settings: Mutex<Settings>,
    tally: Tally,
    /// Number of iterations of the worker's loop in which no frame had arrived.
    idle_turns: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().expect("the relay does not panic")
    }
}

/// A running switch, which stops when this value is dropped.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

/// The state of the relay for one direction of the wire.
struct Direction {
    rng: Rng,
    held: Vec<Vec<u8>>,
    late: Option<Vec<u8>>,
    /// Frames in flight, each with its arrival time.
    line: VecDeque<(Instant, Vec<u8>)>,
}

impl Direction {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            held: Vec::new(),
            late: None,
            line: VecDeque::new(),
        }
    }

    fn forward(&mut self, frame: &[u8], faults: &Faults, tally: &Tally, to: &PacketSocket) {
        if self.rng.f64() < faults.loss {
            count(&tally.lost);
            return;
        }
        let mut frame = frame.to_vec();
        if self.rng.f64() < faults.corrupt && damage(&mut frame, &mut self.rng) {
            if faults.fcs {
                count(&tally.discarded);
                return;
            }
            count(&tally.damaged);
        }
        if self.late.is_none() && self.rng.f64() < faults.reorder {
            count(&tally.reordered);
            self.late = Some(frame);
            return;
        }
        self.depart(&frame, faults, tally, to);
        if self.rng.f64() < faults.duplicate {
            count(&tally.duplicated);
            self.depart(&frame, faults, tally, to);
        }
        self.depart_late(faults, tally, to);
    }

    fn forward_held(&mut self, faults: &Faults, tally: &Tally, to: &PacketSocket) {
        for frame in std::mem::take(&mut self.held) {
            self.forward(&frame, faults, tally, to);
        }
    }

    fn depart_late(&mut self, faults: &Faults, tally: &Tally, to: &PacketSocket) {
        if let Some(late) = self.late.take() {
            self.depart(&late, faults, tally, to);
        }
    }

    /// Puts a frame in flight, after the frames that are already in flight.
    fn depart(&mut self, frame: &[u8], faults: &Faults, tally: &Tally, to: &PacketSocket) {
        let mut takes = faults.delay;
        if !faults.jitter.is_zero() {
            takes += faults.jitter.mul_f64(self.rng.f64());
        }
        if takes.is_zero() && self.line.is_empty() {
            return put(frame, tally, to);
        }
        let arrives = Instant::now() + takes;
        let behind = self.line.back().map(|(before, _)| *before);
        let arrives = behind.map_or(arrives, |before| arrives.max(before));
        self.line.push_back((arrives, frame.to_vec()));
    }

    /// Delivers the frames whose arrival time has come.
    fn arrive(&mut self, tally: &Tally, to: &PacketSocket) {
        let now = Instant::now();
        while self
            .line
            .front()
            .is_some_and(|(arrives, _)| *arrives <= now)
        {
            if let Some((_, frame)) = self.line.pop_front() {
                put(&frame, tally, to);
            }
        }
    }

    /// Returns the time until the next frame arrives.
    fn until_arrival(&self) -> Option<Duration> {
        let (arrives, _) = self.line.front()?;
        Some(arrives.saturating_duration_since(Instant::now()))
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn put(frame: &[u8], tally: &Tally, to: &PacketSocket) {
    match to.send(frame) {
        Ok(()) => count(&tally.forwarded),
        Err(_) => count(&tally.refused),
    }
}

/// Flips one bit; returns whether the frame's CRC detects it.
fn damage(frame: &mut [u8], rng: &mut Rng) -> bool {
    let sent = crc32fast::hash(frame);
    let bit = rng.usize(..frame.len() * 8);
    frame[bit / 8] ^= 1 << (bit % 8);
    crc32fast::hash(frame) != sent
}

impl Relay {
    /// Starts forwarding between two devices of `switch`; `seed` determines all faults.
    ///
    /// # Errors
    /// If the packet sockets cannot be opened.
    pub fn start(switch: &Netns, devices: [&str; 2], seed: u64) -> Result<Self> {
        let ports = [
            PacketSocket::open(switch, devices[0], ETH_P_ALL)?,
            PacketSocket::open(switch, devices[1], ETH_P_ALL)?,
        ];
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let worker = std::thread::spawn(move || run(&seen, &ports, seed));
        Ok(Self {
            shared,
            worker: Some(worker),
        })
    }

    /// Changes the faults of both directions.
    pub fn set_faults(&self, faults: Faults) {
        self.set_faults_each([faults; 2]);
    }

    /// Changes the faults of each direction: first for frames from the first host, then for frames
    /// from the second host.
    pub fn set_faults_each(&self, faults: [Faults; 2]) {
        self.shared.settings().faults = faults;
    }

    /// Changes the mode of both directions.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.settings().mode = mode;
    }

    /// Waits until the relay has handled, as the current mode says, all frames that reached it
    /// before this call.
    ///
    /// # Errors
    /// If frames still come after [`patience`].
    pub fn settle(&self) -> Result<()> {
        let turns = || self.shared.idle_turns.load(Ordering::Relaxed);
        let before = turns();
        // The first of the two idle iterations may have begun before this call.
        eventually("the relay has nothing to do", || Ok(turns() >= before + 2))
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            // The error is ignored: it means that the relay panicked, which the panic hook has
            // already reported.
            let _ = worker.join();
        }
    }
}

/// Returns whether a frame has one of the module's ethertypes.
fn is_ours(frame: &[u8]) -> bool {
    let ours = [ETH_P_EDP, ETH_P_ESP].map(u16::to_be_bytes);
    frame
        .get(12..14)
        .is_some_and(|kind| ours.iter().any(|ours| ours == kind))
}

fn run(shared: &Shared, ports: &[PacketSocket; 2], seed: u64) {
    // On a single processor, the relay gets priority, because a wire does not wait for the hosts at
    // its ends. If there are more processors, the relay gets no priority, because in a slow kernel
    // it would monopolize one of them.
    if thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
        if let Err(error) = first_of_all() {
            note(&format!("a wire: {error:#}"));
        }
    }
    let mut ways = [Direction::new(seed), Direction::new(!seed)];
    let mut buffer = vec![0u8; 1 << 16];
    while !shared.stop.load(Ordering::Relaxed) {
        let arrival = ways.iter().filter_map(Direction::until_arrival).min();
        wait_readable(ports, arrival.map_or(MOMENT, |left| left.min(MOMENT)));
        let mut idle_turn = true;
        for (side, way) in ways.iter_mut().enumerate() {
            let (from, to) = (&ports[side], &ports[1 - side]);
            if shared.settings().mode == Mode::Cut {
                way.line.clear();
            }
            way.arrive(&shared.tally, to);
            let mut idle = true;
            // The number of frames is bounded, so that one direction cannot starve the other.
            for _ in 0..64 {
                let Ok(length) = from.take(&mut buffer) else {
                    break;
                };
                idle = false;
                // The settings are read after the frame has arrived. So a change that was made
                // before the frame was sent applies to the frame.
                let Settings { mode, faults } = *shared.settings();
                match mode {
                    Mode::Forward => {
                        way.forward_held(&faults[side], &shared.tally, to);
                        way.forward(&buffer[..length], &faults[side], &shared.tally, to);
                    }
                    Mode::Hold => way.held.push(buffer[..length].to_vec()),
                    Mode::Cut => {}
                    Mode::Foreign if is_ours(&buffer[..length]) => {}
                    Mode::Foreign => put(&buffer[..length], &shared.tally, to),
                }
            }
            if idle {
                let Settings { mode, faults } = *shared.settings();
                if mode == Mode::Forward {
                    way.forward_held(&faults[side], &shared.tally, to);
                }
                // A reordered frame without a successor is sent late, so it is not lost.
                way.depart_late(&faults[side], &shared.tally, to);
            }
            idle_turn &= idle;
        }
        if idle_turn {
            count(&shared.idle_turns);
        }
    }
}

/// The longest time until a change of the relay's settings takes effect.
const MOMENT: Duration = Duration::from_millis(10);

/// Waits until either port has a frame, at most for `limit`.
fn wait_readable(ports: &[PacketSocket; 2], limit: Duration) {
    use std::os::fd::AsRawFd;
    let mut entries = [0, 1].map(|side| libc::pollfd {
        fd: ports[side].socket().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let limit = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // SAFETY: `entries` has two pollfds, alive and writable for the call; the call only reads
    // `limit`, and there is no signal mask. The result is ignored because an error means that there
    // is nothing to read yet.
    unsafe { libc::ppoll(entries.as_mut_ptr(), 2, &limit, std::ptr::null()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_bit_error_is_seen_by_the_frame_check() {
        let mut rng = Rng::with_seed(1);
        for length in [14, 60, 1514] {
            let mut frame = vec![0x5a; length];
            assert!(damage(&mut frame, &mut rng));
            assert_ne!(frame, vec![0x5a; length]);
        }
    }
}
