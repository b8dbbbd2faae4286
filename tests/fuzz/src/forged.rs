// SPDX-License-Identifier: GPL-2.0-only

//! Fuzzes two engines on a wire, with a neighbour that forges packets with correct or almost
//! correct numbers. Forged packets may fill or end the streams. They must not make the two engines
//! send without end: when the neighbour falls silent, the engines fall silent, too.

use arbitrary::{Arbitrary, Result, Unstructured};
use esp::Nanos;

use crate::calls::Packet;
use crate::pair::side;
use esp_testkit::pair::{bytes, Pair, A, B, MS, PORTS, S, US};

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Event {
    Forge(bool, Packet),
    Send(bool, u16),
    Close(bool),
    Abort(bool),
    Reader(bool, bool),
    /// Lets this number of microseconds pass.
    Run(u16),
    /// Lets this number of milliseconds pass.
    Rest(u8),
    /// Lets this number of events happen: arrivals of packets and expiries of timers.
    Steps(u8),
}

/// Maximum number of packets that two ends exchange before they find that their states contradict
/// each other. In each direction there may be ten requests per second for 15 s, and each request
/// causes a burst to be retransmitted in vain.
const MOST: usize = 10_000;

fn run(pair: &mut Pair, event: Event) {
    match event {
        Event::Forge(b, packet) => {
            let to = side(b);
            let expected = pair.sides[1 - to].conn().cursor();
            let high = pair.sides[to].conn().cursor();
            let header = packet.header([PORTS[1 - to], PORTS[to]], expected, high);
            let payload = vec![0xee; usize::from(header.payload())];
            let _ = pair.receive(to, &header, &payload);
        }
        Event::Send(b, len) => {
            let at = side(b);
            if pair.sides[at].conn().unacked() < 100 {
                pair.send(at, &bytes(usize::from(len) % 3_000, 1));
            }
        }
        Event::Close(b) => pair.close(side(b)),
        Event::Abort(b) => pair.abort(side(b)),
        Event::Reader(b, reads) => pair.sides[side(b)].reads = reads,
        Event::Run(us) => pair.run_for(Nanos::from(us) * US),
        Event::Rest(ms) => pair.run_for(Nanos::from(ms) * MS),
        Event::Steps(steps) => {
            for _ in 0..steps {
                pair.step();
            }
        }
    }
}

fn play(input: &mut Unstructured<'_>) -> Result<()> {
    let mut pair = Pair::established();
    for _ in 0..100 {
        if input.is_empty() {
            break;
        }
        let Ok(event) = input.arbitrary() else { break };
        run(&mut pair, event);
    }
    pair.restart_log();
    for at in [A, B] {
        let now = pair.now;
        pair.sides[at].reads = true;
        pair.read(at);
        pair.close(at);
        pair.sides[at].conn().orphan(now);
    }
    // The programs have exited. A FIN, a RST or the other end's silence soon closes both ends, and
    // no more packets are sent.
    let end = pair.now + 150 * S;
    while let Some(at) = pair.next_event() {
        assert!(at < end, "a connection does not end: {pair:?}");
        assert!(pair.log.len() < MOST, "they do not fall silent: {pair:?}");
        pair.step();
    }
    Ok(())
}

/// Fuzzes two engines and a neighbour that forges packets.
///
/// # Panics
///
/// If a property does not hold.
pub fn esp_forged(data: &[u8]) {
    let _ = play(&mut Unstructured::new(data));
}
