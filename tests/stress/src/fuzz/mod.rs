// SPDX-License-Identifier: GPL-2.0-only

//! Sends millions of hostile frames: frames of valid conversations, changed on their way. They meet
//! sockets in every state.
//!
//! Two hosts talk to each other, and all their frames pass through the fuzzer. A seed determines
//! how the fuzzer changes frames. The conversations also depend on timing, so two runs with the
//! same seed are similar, but not identical.

mod cast;
mod honest;
mod lanes;
mod mutation;
mod puts;
mod report;
mod talk;
mod world;
mod wrap;

use std::collections::BTreeMap;

use fastrand::Rng;

use cast::Cast;
use guest::frame::ETH_P_ALL;
use guest::kernel_log::{alarms, KernelLog};
use guest::prelude::*;
use honest::Honest;
use lanes::{Lane, Lanes};
use mutation::{mutate, Mutation};
use report::Report;
use talk::{listen, tell_tags, Memory, Seen, State};
use world::World;
use wrap::Wrap;

/// Number of hostile frames that are sent between two steps of the programs.
const BATCH: usize = 64;
/// Number of valid frames that are forwarded in each direction between two steps.
const CAPTURE: usize = 128;
/// Number of steps after which a packet socket for all frames on host b is opened or closed.
const TAP: u64 = 16;
/// Number of steps after which GRO on host b is switched on or off.
const JOINING: u64 = 64;

/// The parameters of a run of the fuzzer.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of hostile frames to send.
    pub frames: u64,
    /// The seed, which determines how valid frames are changed.
    pub seed: u64,
}

/// Runs the fuzzer as `plan` says, prints the figures and checks the results.
pub fn run(plan: Plan) -> Result<()> {
    println!("{} hostile frames, seed {}", plan.frames, plan.seed);
    let mut log = KernelLog::from_now()?;
    let report = attack(plan);
    let records = log.records()?;
    let alarms = alarms(&records);
    for alarm in &alarms {
        println!("kernel: {alarm}");
    }
    let report = report?;
    println!("{report}");
    ensure!(alarms.is_empty(), "the kernel's log has {}", alarms.len());
    Ok(())
}

/// Runs the fuzzer as `plan` says, and returns the figures.
pub fn attack(plan: Plan) -> Result<Report> {
    let mut report = Report::default();
    let slabs = sockets_in_memory()?;
    let world = World::new().context("setting up the wire")?;
    let counters = counters(&world)?;
    let honest = Honest::new(&world)?;
    let (stop, started) = (AtomicBool::new(false), Instant::now());
    let fire = || {
        let fired = Attack::new(plan, &world, &mut report).and_then(Attack::run);
        stop.store(true, Ordering::Relaxed);
        fired
    };
    let (exchanged, ()) = beside(|| honest.exchange(&stop), fire)?;
    report.honest = exchanged;
    report.took = started.elapsed();
    for (name, after) in self::counters(&world)? {
        let before = counters.get(&name).copied().unwrap_or(0);
        report.counters.insert(name, [before, after]);
    }
    drop(honest);
    world.unplug()?;
    for host in [&world.a, &world.b, &world.honest] {
        host.await_no_sockets()?;
    }
    drop(world);
    module::await_unused()?;
    // Sockets are freed only after a grace period, so this loop waits until their memory is free.
    let mut left = slabs.clone();
    eventually("the memory of all sockets", || {
        left = sockets_in_memory()?;
        Ok(left.iter().all(|(name, count)| *count <= slabs[name]))
    })
    .with_context(|| format!("{slabs:?} objects before, {left:?} after"))?;
    for (name, before) in slabs {
        let after = left[&name];
        report.slabs.insert(name, [before, after]);
    }
    // The module unloads only after the last socket's memory and the last packet were freed.
    module::reload()?;
    Ok(report)
}

/// Returns the module's counters, summed over both attacked hosts.
fn counters(world: &World) -> Result<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    for host in [&world.a, &world.b] {
        for line in host.namespace.proc_net("enet")?.lines() {
            let (name, value) = line.split_once(' ').context("a line without a number")?;
            *sums.entry(name.to_owned()).or_default() += value.trim().parse::<u64>()?;
        }
    }
    Ok(sums)
}

/// Returns the number of allocated sockets of each protocol. Objects in per-processor caches would
/// count as in use, so this function shrinks the caches first.
///
/// # Errors
/// If the caches are missing, as they are without the module.
pub fn sockets_in_memory() -> Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for name in ["EDP", "ESP"] {
        let path = format!("/sys/kernel/slab/{name}");
        fs::write(format!("{path}/shrink"), "1").with_context(|| path.clone())?;
        let text = fs::read_to_string(format!("{path}/objects"))?;
        let number = text.split_whitespace().next().context("no number")?;
        found.insert(name.to_owned(), number.parse()?);
    }
    Ok(found)
}

/// A hostile frame that is ready to be sent.
struct Hostile {
    frame: Vec<u8>,
    to_b: bool,
    lane: Lane,
}

struct Attack<'a> {
    plan: Plan,
    rng: Rng,
    world: &'a World,
    cast: Cast<'a>,
    /// Packet sockets at the wire: one receives the frames from host a, the other those from host
    /// b.
    ears: [PacketSocket; 2],
    lanes: Lanes,
    memory: Memory,
    /// Valid frames that are held back until the next step.
    late: Vec<(Seen, State)>,
    /// The header of host b's latest packet to the honest host.
    honest: Option<EspHeader>,
    batch: Vec<Hostile>,
    fired: u64,
    report: &'a mut Report,
}

impl<'a> Attack<'a> {
    fn new(plan: Plan, world: &'a World, report: &'a mut Report) -> Result<Self> {
        let ear = |device| -> Result<_> {
            let ear = PacketSocket::open(&world.wire, device, ETH_P_ALL)?;
            tell_tags(&ear)?;
            Ok(ear)
        };
        Ok(Self {
            plan,
            rng: Rng::with_seed(plan.seed),
            world,
            cast: Cast::new(world)?,
            ears: [ear("ap")?, ear("bp")?],
            lanes: Lanes::open(world)?,
            memory: Memory::default(),
            late: Vec::new(),
            honest: None,
            batch: Vec::new(),
            fired: 0,
            report,
        })
    }

    fn run(mut self) -> Result<()> {
        let mut tap = None;
        let mut steps = 0;
        let mut told = 0;
        while self.fired < self.plan.frames {
            if self.fired * 10 / self.plan.frames > told {
                told = self.fired * 10 / self.plan.frames;
                note(&format!("{told} tenths of the frames are sent"));
            }
            if steps % TAP == 0 {
                // While this packet socket is open, it shares the buffers of all frames with host
                // b's protocols, and keeps them in its queue.
                tap = match tap {
                    None => Some(PacketSocket::open(
                        &self.world.b.namespace,
                        DEVICE,
                        ETH_P_ALL,
                    )?),
                    Some(_) => None,
                };
            }
            if steps % JOINING == 0 {
                self.world.join_packets(steps / JOINING % 2 == 0)?;
            }
            steps += 1;
            self.cast.step(&mut self.rng)?;
            self.pass()?;
            while self.batch.len() < BATCH && self.invent() {}
            self.fire()?;
        }
        let Self {
            cast,
            lanes,
            report,
            ..
        } = self;
        report.refused = lanes.refused;
        report.programs = [cast.begun, cast.accepted, cast.received];
        report.failures = cast.failures.clone();
        cast.leave()
    }

    /// Forwards valid frames, most of them unchanged. Before that, sends the hostile frames that
    /// are derived from the valid ones.
    fn pass(&mut self) -> Result<()> {
        let honest = self.world.honest.mac;
        for (seen, state) in std::mem::take(&mut self.late) {
            self.count(Mutation::Late, state);
            self.add(seen.frame, seen.wrap, seen.to_b);
        }
        for (ear, to_b) in [(0, true), (1, false)] {
            let mut valid = Vec::new();
            let mut theirs = self.honest;
            let heard = listen(&self.ears[ear], to_b, honest, CAPTURE, |frame| {
                theirs = EspHeader::of_frame(frame).or(theirs);
            });
            self.honest = theirs;
            for seen in heard {
                if self.rng.u8(..3) == 0 {
                    self.derive(&seen);
                }
                let (state, _) = self.memory.target(&seen);
                self.memory.note(&seen);
                match self.rng.u8(..64) {
                    // The frame is discarded, as if the wire had lost it.
                    0 => {}
                    1 => self.late.push((seen, state)),
                    _ => {
                        self.report.wrapped += u64::from(seen.wrap != Wrap::Bare);
                        valid.push(seen.wrap.around(&seen.frame, to_b));
                    }
                }
            }
            self.fire()?;
            self.report.valid += valid.len() as u64;
            self.lanes.send(Lane::Plain, to_b, &valid, &mut self.rng)?;
        }
        Ok(())
    }

    /// Derives a hostile frame from a remembered valid frame; returns `false` if none is
    /// remembered.
    fn invent(&mut self) -> bool {
        for tries in 0..8 {
            let Some(seen) = self.memory.any(&mut self.rng) else {
                return false;
            };
            // Most of the remembered frames are datagrams, or belong to connections that have
            // ended. Hostile frames derived from these would mostly have no effect, so other frames
            // are preferred.
            let wanted = match self.memory.target(seen).0 {
                State::Reset => false,
                State::Datagrams => tries > 1,
                _ => true,
            };
            if wanted || tries == 7 {
                let seen = seen.clone();
                self.derive(&seen);
                break;
            }
        }
        true
    }

    /// Derives a hostile frame from `seen`, or from a possible answer to it.
    fn derive(&mut self, seen: &Seen) {
        let answer = match self.rng.u8(..4) {
            0 => self.memory.answer(seen),
            _ => None,
        };
        let seen = answer.as_ref().unwrap_or(seen);
        let kind = Mutation::any(&mut self.rng);
        if kind == Mutation::Foreign {
            self.speak_for_the_honest();
            return;
        }
        let (state, numbers) = self.memory.target(seen);
        let mut frame = seen.frame.clone();
        mutate(kind, &mut frame, numbers, &mut self.rng);
        let times = match kind {
            Mutation::Repeated => self.rng.usize(2..6),
            _ => 1,
        };
        let wrap = match kind {
            Mutation::Wrapped | Mutation::Miswrapped => Wrap::around_something(&mut self.rng),
            _ => seen.wrap,
        };
        for _ in 0..times {
            self.count(kind, state);
            if kind == Mutation::Miswrapped {
                let frame = self.not_honest(frame.clone());
                let wrapped = wrap.wrongly_around(&frame, seen.to_b, &mut self.rng);
                self.put(wrapped, wrap, seen.to_b);
            } else {
                self.add(frame.clone(), wrap, seen.to_b);
            }
        }
    }

    /// Sends packets that look like the next packets of the honest host. But they are sent in
    /// another VLAN or in a tunnel, where any host may send them. So they must not affect the
    /// honest host's connections.
    fn speak_for_the_honest(&mut self) {
        let Some(told) = self.honest else {
            return;
        };
        let (from, to) = (self.world.honest.mac, self.world.b.mac);
        let length = match told.length {
            0 => self.rng.u16(1..3000),
            length => length,
        };
        let wrap = Wrap::around_something(&mut self.rng);
        let payload = vec![0x66; length.into()];
        for ahead in 0..self.rng.u16(1..6) {
            let header = EspHeader {
                source: told.destination,
                destination: told.source,
                length,
                sequence: told.acknowledgement.wrapping_add(ahead),
                acknowledgement: told.sequence,
                flags: flag::ACK,
            };
            let frame = ethernet(to, from, ETH_P_ESP, &header.packet(&payload));
            self.count(Mutation::Foreign, State::Transferring);
            self.put(wrap.around(&frame, true), wrap, true);
        }
    }

    fn count(&mut self, kind: Mutation, state: State) {
        *self.report.frames.entry((kind, state)).or_default() += 1;
        self.fired += 1;
    }

    fn add(&mut self, frame: Vec<u8>, wrap: Wrap, to_b: bool) {
        let frame = self.not_honest(frame);
        self.put(wrap.around(&frame, to_b), wrap, to_b);
    }

    /// Changes the source address if it is the honest host's address, because a frame from that
    /// address could legitimately affect the honest host's connections.
    fn not_honest(&self, mut frame: Vec<u8>) -> Vec<u8> {
        if frame.get(6..12) == Some(&self.world.honest.mac) {
            frame[11] ^= 0x80;
        }
        frame
    }

    fn put(&mut self, frame: Vec<u8>, wrap: Wrap, to_b: bool) {
        let lane = Lane::any(to_b, &mut self.rng);
        *self.report.lanes.entry(lane).or_default() += 1;
        *self.report.wraps.entry(wrap).or_default() += 1;
        self.batch.push(Hostile { frame, to_b, lane });
    }

    /// Sends the gathered frames, lane by lane (by the kind of buffer that the host gets). Frames
    /// of the same lane stay in order.
    fn fire(&mut self) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.sort_by_key(|hostile| (hostile.lane, hostile.to_b));
        for group in batch.chunk_by_mut(|a, b| (a.lane, a.to_b) == (b.lane, b.to_b)) {
            let frames: Vec<_> = group
                .iter_mut()
                .map(|h| std::mem::take(&mut h.frame))
                .collect();
            self.lanes
                .send(group[0].lane, group[0].to_b, &frames, &mut self.rng)?;
        }
        Ok(())
    }
}
