// SPDX-License-Identifier: GPL-2.0-only

//! Fuzzes two engines on a wire. The input says which packets the wire loses, repeats and delays,
//! and when the programs at both ends send, read, sleep and close. At the end the wire has no
//! faults and both programs read, so all data must arrive.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use arbitrary::{Arbitrary, Result, Unstructured};
use esp::{flags, Config, DropReason, Header, Nanos, Selective, Seq};

use esp_testkit::pair::{bytes, Fate, Pair, A, B, MS, US};

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Event {
    Send(bool, u16),
    Read(bool, u8),
    Sleep(bool),
    Close(bool),
    /// Loses one of the packets that one side sends next. `Twice` repeats one of them, and `Late`
    /// delays one.
    Lose(bool, u8),
    Twice(bool, u8),
    Late(bool, u8, u8),
    /// Lets this number of microseconds pass.
    Run(u16),
    /// Lets this number of milliseconds pass.
    Rest(u8),
    /// Lets this number of events happen: arrivals of packets and expiries of timers.
    Steps(u8),
    /// Sets whether the program of one side reads data as soon as they arrive.
    Reader(bool, bool),
    /// Sets whether sockets of another device hold the turn (the permission to let a peer send).
    Turn(bool, bool),
    /// Makes the packets of one side smaller by this number of bytes from now on.
    Shrink(bool, u8),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Host {
    burst: u8,
    initial: u8,
    to_ack: u8,
    round_trip: u16,
    mss: u8,
    limit: u8,
}

impl Host {
    fn burst(self) -> u16 {
        u16::from(self.burst % 48) + 1
    }

    /// Returns the host's parameters, which do not depend on the peer's.
    fn config(self) -> Config {
        Config {
            burst_length: self.burst(),
            initial_ack_burst_length: u16::from(self.initial % 8).min(self.burst()),
            packets_to_ack: (u16::from(self.to_ack % 48) + 1).min(self.burst()),
            round_trip_time: u32::from(self.round_trip) % 5_000,
            selective: match self.to_ack {
                0..32 => Selective::Never,
                32..64 => Selective::WithMasks,
                64.. => Selective::Always,
            },
            ..Config::default()
        }
    }
}

/// The faults that are still to come in each direction. Their number is limited, so the wire
/// recovers.
type Faults = Rc<RefCell<[VecDeque<Fate>; 2]>>;

/// Maximum number of faults in each direction. More consecutive losses could end a connection,
/// because an engine ends its connection when the peer is silent for too long.
const MOST_FAULTS: usize = 60;

/// The window that one side (the opener) has opened for the other side (the user), according to the
/// packets on the wire.
struct Window {
    burst: u16,
    initial: u16,
    /// The highest acknowledgement from the opener. The window begins at this number.
    granted: Option<Seq>,
    /// The sequence number that follows the numbers that the user skipped most recently.
    skipped: Option<Seq>,
    /// The sequence number that follows the highest one that the user has sent.
    high: Option<Seq>,
    /// The sequence number of the most recent new packet with TXS, the flag of a packet that starts
    /// a transmission.
    announced: Option<Seq>,
}

impl Window {
    fn of(config: Config) -> Self {
        Self {
            burst: config.burst_length,
            initial: config.initial_ack_burst_length,
            granted: None,
            skipped: None,
            high: None,
            announced: None,
        }
    }

    /// Processes a packet from the opener, which may open the window further.
    fn open(&mut self, header: &Header) {
        if header.is_skipped() {
            if self.skipped != Some(header.seq) {
                self.skipped = Some(header.seq);
                // Skipped numbers do not use up the window.
                let skipped = header.ack.distance(header.seq);
                self.granted = self.granted.map(|granted| granted.add(skipped));
            }
            return;
        }
        let hold = header.len == 0 && header.flags == flags::ACK | flags::TXS;
        if hold || !header.has(flags::ACK) || header.has(flags::RST) {
            return;
        }
        if self
            .granted
            .is_none_or(|granted| granted.before(header.ack))
        {
            self.granted = Some(header.ack);
            if header.is_grant() {
                // The user may still use an earlier grant, so the larger numbers count.
                let grant = header.grant(true).expect("it is one");
                self.initial = self.initial.max(grant.start.into());
                self.burst = self.burst.max(grant.window);
            }
            self.announced = self.announced.filter(|seq| !seq.before(header.ack));
        }
    }

    /// Checks a packet from the user of the window. If `recut` is set, data that were sent before
    /// may be sent again under higher numbers, so a number does not show whether a packet is new.
    fn pass(&mut self, header: &Header, recut: bool) {
        if header.payload() == 0 || header.has(flags::SYN) || header.names_missing() {
            return;
        }
        let granted = self.granted.expect("no data before the handshake");
        assert!(
            granted.distance(header.seq) < self.burst || header.seq.before(granted),
            "{header:?} is beyond the window from {granted:?}"
        );
        if recut || self.high.is_some_and(|high| header.seq.before(high)) {
            return;
        }
        self.high = Some(header.seq.add(1));
        if header.has(flags::TXS) {
            self.announced = Some(header.seq);
        } else if let Some(announced) = self.announced {
            assert!(
                announced.distance(header.seq) <= self.initial,
                "{header:?} is beyond what follows {announced:?}"
            );
        }
    }
}

struct Stage {
    pair: Pair,
    faults: Faults,
    recut: Rc<RefCell<bool>>,
    total: [usize; 2],
}

pub(crate) fn side(b: bool) -> usize {
    if b {
        B
    } else {
        A
    }
}

impl Stage {
    fn new(hosts: [Host; 2], latency: u16) -> Self {
        let mut pair = Pair::new();
        pair.latency = (Nanos::from(latency % 4_000) + 1) * US;
        for (at, host) in hosts.into_iter().enumerate() {
            let side = &mut pair.sides[at];
            side.config = host.config();
            side.sends_options = host.initial >= 128;
            side.nonce = (host.initial >= 192).then_some(host.initial.into());
            side.mss = usize::from(host.mss) + 1;
            // A large buffer has room for windows of more than 255 packets.
            let scale = if host.limit >= 192 { 32 } else { 1 };
            side.limit = (u32::from(host.limit) + 1) * scale * side.packet_cost();
        }
        let faults = Faults::default();
        let left = Rc::clone(&faults);
        pair.rule(move |from, _, _| left.borrow_mut()[from].pop_front().unwrap_or(Fate::Pass));
        let recut = Rc::new(RefCell::new(false));
        let cut = Rc::clone(&recut);
        let mut windows = [A, B].map(|at| Window::of(pair.sides[at].config));
        pair.rule(move |from, _, header| {
            windows[1 - from].open(header);
            windows[from].pass(header, *cut.borrow());
            Fate::Pass
        });
        Self {
            pair,
            faults,
            recut,
            total: [0; 2],
        }
    }

    fn fault(&mut self, from: bool, fate: Fate, after: u8) {
        let mut faults = self.faults.borrow_mut();
        let coming = &mut faults[side(from)];
        for _ in 0..after % 8 {
            coming.push_back(Fate::Pass);
        }
        coming.push_back(fate);
        coming.truncate(MOST_FAULTS);
    }

    fn run(&mut self, event: Event) {
        let pair = &mut self.pair;
        match event {
            Event::Send(from, len) => {
                let at = side(from);
                let message = bytes(usize::from(len) % 6_000, u64::from(len));
                if pair.sides[at].conn().unacked() < 300 {
                    self.total[at] += pair.send(at, &message);
                }
            }
            Event::Read(from, most) => pair.read_packets(side(from), most.into()),
            Event::Sleep(from) => pair.sleep(side(from)),
            Event::Close(from) => pair.close(side(from)),
            Event::Lose(from, after) => self.fault(from, Fate::Lose, after),
            Event::Twice(from, after) => self.fault(from, Fate::Twice, after),
            Event::Late(from, after, by) => {
                self.fault(from, Fate::Late(Nanos::from(by) * 50 * US), after);
            }
            Event::Run(us) => pair.run_for(Nanos::from(us) * US),
            Event::Rest(ms) => pair.run_for(Nanos::from(ms) * MS),
            Event::Steps(steps) => {
                for _ in 0..steps {
                    pair.step();
                }
            }
            Event::Reader(from, reads) => pair.sides[side(from)].reads = reads,
            Event::Turn(from, true) => pair.sides[side(from)].device.held = true,
            Event::Turn(from, false) => self.give_turn(side(from)),
            Event::Shrink(from, by) => {
                let at = side(from);
                let mss = pair.sides[at].mss;
                if !pair.sides[1 - at].sends_options {
                    // A peer without options accepts no skips (packets that advance the expected
                    // number). Smaller packets could then end the connection, so the size stays.
                    return;
                }
                *self.recut.borrow_mut() = true;
                pair.shrink(at, mss.saturating_sub(by.into()).max(1));
            }
        }
        self.check();
    }

    /// Ends the turn of the other device's sockets, and gives this side's socket its turn.
    fn give_turn(&mut self, at: usize) {
        let side = &mut self.pair.sides[at];
        if std::mem::take(&mut side.device.held) {
            side.conn().take_turn();
        }
        self.pair.transmit(at);
    }

    /// Checks the invariants.
    fn check(&mut self) {
        for (from, to) in [(A, B), (B, A)] {
            let sent = &self.pair.sides[from].sent;
            let received = &self.pair.sides[to].received;
            assert_eq!(sent.len(), self.total[from]);
            assert!(sent.starts_with(received), "a byte is out of place");
            let receiver = &self.pair.sides[to];
            let burst = u32::from(receiver.config.burst_length) * receiver.packet_cost();
            assert!(receiver.most_queued <= receiver.limit + burst, "overfull");
            if self.pair.sides[from].config.burst_length <= receiver.config.burst_length {
                let lacked = receiver.drops.contains(&DropReason::NoRoom);
                assert!(!lacked, "what was granted has its place");
            }
        }
    }

    fn end(mut self) {
        *self.faults.borrow_mut() = Default::default();
        for at in [A, B] {
            self.give_turn(at);
            self.pair.sides[at].reads = true;
            self.pair.read(at);
            self.pair.close(at);
        }
        self.pair
            .run_until(|pair| pair.sides.iter().all(|side| side.closed));
        self.check();
        self.pair.assert_intact();
        for at in [A, B] {
            assert_eq!(self.pair.sides[at].failed, None);
            assert!(self.pair.sides[at].eof);
        }
    }
}

fn play(input: &mut Unstructured<'_>) -> Result<()> {
    let hosts = [input.arbitrary()?, input.arbitrary()?];
    let mut stage = Stage::new(hosts, input.arbitrary()?);
    for _ in 0..input.int_in_range(0..=4)? {
        let event = input.arbitrary()?;
        if matches!(event, Event::Lose(..) | Event::Twice(..) | Event::Late(..)) {
            stage.run(event);
        }
    }
    stage.pair.connect();
    while !stage.pair.sides.iter().all(|side| side.established) {
        assert!(
            stage.pair.step(),
            "four faults are no peer that is not there"
        );
    }
    for _ in 0..200 {
        if input.is_empty() {
            break;
        }
        let Ok(event) = input.arbitrary() else { break };
        stage.run(event);
    }
    stage.end();
    Ok(())
}

/// Fuzzes two engines on a wire.
///
/// # Panics
///
/// If a property does not hold.
pub fn esp_pair(data: &[u8]) {
    // The error is ignored: it only says that the input ends before it has described the hosts, so
    // there is no test to run.
    let _ = play(&mut Unstructured::new(data));
}
