// SPDX-License-Identifier: GPL-2.0

//! Tests of the order in which many senders get turns, and of a sender that waits while others have
//! the turn.

use std::collections::VecDeque;

use esp::ack_queue::{CREDIT, HOLD, IDLE, LISTS, PASSES};
use esp::{flags, AckQueue, Config, Demand, Nanos, Slot, Verdict};
use esp_testkit::pair::{bytes, Pair, A, B, MS, S, US};
use proptest::prelude::*;

/// A receiving device with the lists that a caller of the ACK queue keeps.
#[derive(Default)]
struct Device {
    queue: AckQueue,
    slots: Vec<Slot>,
    lists: [VecDeque<usize>; LISTS],
    left: Vec<usize>,
}

impl Device {
    /// Creates senders that have announced a transmission. Each sender is on its own host.
    fn with(senders: usize) -> Self {
        let hosts: Vec<_> = (0..senders as u64).collect();
        Self::on(&hosts)
    }

    /// Creates senders on these hosts. Each sender has announced a transmission.
    fn on(hosts: &[u64]) -> Self {
        let mut device = Self {
            slots: hosts.iter().map(|host| Slot::of(*host)).collect(),
            ..Self::default()
        };
        for id in 0..hosts.len() {
            device.announce(id, true, 0);
        }
        device
    }

    fn announce(&mut self, id: usize, scheduled: bool, now: Nanos) {
        let demand = if scheduled {
            Demand::Count
        } else {
            Demand::Nothing
        };
        match self.queue.update(&mut self.slots[id], demand, now) {
            Verdict::Unchanged => {}
            Verdict::Leaves(list) => self.lists[list.index()].retain(|other| *other != id),
            verdict => panic!("{verdict:?} was not asked for"),
        }
        self.serve(now);
    }

    fn request_turn(&mut self, id: usize, now: Nanos) {
        self.demand(id, Demand::Turn, now);
        self.serve(now);
    }

    /// Makes a sender announce a transmission and request its first turn.
    fn begin(&mut self, id: usize, now: Nanos) {
        self.demand(id, Demand::First, now);
        self.serve(now);
    }

    fn demand(&mut self, id: usize, demand: Demand, now: Nanos) {
        let waits = self.slots[id].is_waiting();
        match self.queue.update(&mut self.slots[id], demand, now) {
            Verdict::Unchanged => assert!(waits),
            Verdict::Turn => self.left.push(id),
            Verdict::Joins(list) => self.lists[list.index()].push_back(id),
            Verdict::Leaves(_) => panic!("a connection that asks does not leave"),
        }
    }

    fn serve(&mut self, now: Nanos) {
        while let Some(turn) = self.queue.next_turn(now) {
            let list = turn.list().index();
            let id = self.lists[list]
                .pop_front()
                .expect("the queue counts the lists");
            match turn.give(&mut self.slots[id]) {
                None => self.left.push(id),
                Some(list) => self.lists[list.index()].push_back(id),
            }
        }
        let listed: usize = self.lists.iter().map(VecDeque::len).sum();
        assert_eq!(listed, self.queue.waiting() as usize);
    }

    /// Returns how many turns a sender has had.
    fn turns(&self, id: usize) -> usize {
        self.left.iter().filter(|left| **left == id).count()
    }

    /// Goes through all senders `rounds` times, and requests a turn for each sender that has an
    /// announced transmission and does not wait yet.
    fn take_turns(&mut self, rounds: usize, now: Nanos) {
        for _ in 0..rounds {
            for id in 0..self.slots.len() {
                if self.slots[id].is_scheduled() && !self.slots[id].is_waiting() {
                    self.request_turn(id, now);
                }
            }
        }
    }
}

#[test]
fn a_single_sender_never_waits() {
    let mut device = Device::with(1);
    for now in 0..5 {
        device.request_turn(0, now);
    }
    assert_eq!(device.left, [0; 5]);
    assert_eq!(device.queue.deadline(), None);
}

#[test]
fn all_but_one_wait_and_leave_in_order() {
    let mut device = Device::with(4);
    for round in 0..3 {
        for id in 0..4 {
            device.request_turn(id, round);
        }
    }
    // The fourth request gives the first sender its turn. Each later request gives the next sender
    // its turn.
    assert_eq!(device.left[..5], [0, 1, 2, 3, 0]);
    assert_eq!(device.queue.waiting(), 3);
}

#[test]
fn a_connection_that_ends_gives_the_next_one_its_turn() {
    let mut device = Device::with(3);
    device.request_turn(1, 0);
    device.request_turn(2, 0);
    assert!(device.left.is_empty());
    device.announce(0, false, 0);
    assert_eq!(device.left, [1]);
    device.announce(2, false, 0);
    device.announce(1, false, 0);
    assert_eq!((device.queue.scheduled(), device.queue.waiting()), (0, 0));
}

#[test]
fn a_silent_sender_delays_the_others_once() {
    let mut device = Device::with(4);
    for id in 1..4 {
        device.request_turn(id, 0);
    }
    assert!(device.left.is_empty());
    assert_eq!(device.queue.deadline(), Some(IDLE));
    device.serve(IDLE - 1);
    assert!(device.left.is_empty());
    device.serve(IDLE);
    assert_eq!(device.left, [1]);
    for id in [1, 2, 3, 1, 2] {
        device.request_turn(id, IDLE + 1);
    }
    assert_eq!(device.left, [1, 2, 3, 1, 2, 3], "without another delay");
    assert_eq!(device.queue.overruns(), 1);
    // The silent sender sends again. It has a turn at the same time as the others, and does not
    // delay them again.
    device.request_turn(0, IDLE + 2);
    assert_eq!(device.left[6..], [0]);
    device.request_turn(3, IDLE + 3);
    assert_eq!(device.left[7..], [1]);
}

#[test]
fn a_slow_sender_has_its_turn_but_not_for_long() {
    let mut device = Device::with(2);
    device.request_turn(1, 0);
    let mut now = 0;
    while device.left.is_empty() {
        now += MS;
        device.queue.note_arrival(now);
        device.serve(now);
    }
    assert_eq!(now, HOLD);
}

#[test]
fn first_turns_are_given_concurrently_with_long_ones() {
    let mut device = Device::with(18);
    device.announce(17, false, 0);
    device.take_turns(3, 0);
    device.left.clear();
    device.begin(17, 0);
    assert_eq!(device.left, [17]);
    // Connection 17 has had its turn in this round. It gets its next turns like all others.
    device.request_turn(17, 0);
    device.take_turns(2, 0);
    assert!(device.turns(17) <= 3, "{:?}", device.left);
}

#[test]
fn only_one_first_turn_is_concurrent() {
    let mut device = Device::with(4);
    device.announce(2, false, 0);
    device.announce(3, false, 0);
    device.take_turns(2, 0);
    device.left.clear();
    device.begin(2, 0);
    device.begin(3, 0);
    assert_eq!(device.left, [2]);
    device.announce(2, false, 0);
    assert_eq!(device.left, [2, 3]);
    // If a sender falls silent in a first turn, it delays the first turns of the others by `IDLE`.
    // The delay is the same as in any other turn.
    device.begin(2, 0);
    device.serve(IDLE - 1);
    assert_eq!(device.turns(2), 1);
    device.serve(IDLE);
    assert_eq!(device.turns(2), 2);
}

#[test]
fn first_turns_of_equal_senders_come_before_all_others() {
    const SENDERS: usize = 200;
    let mut device = Device {
        slots: (0..SENDERS as u64).map(Slot::of).collect(),
        ..Device::default()
    };
    for id in 0..SENDERS {
        device.begin(id, 0);
    }
    device.take_turns(3 * SENDERS, 0);
    for (round, turns) in device.left.chunks_exact(SENDERS).enumerate() {
        let mut turns = turns.to_vec();
        turns.sort_unstable();
        assert!(
            turns.iter().copied().eq(0..SENDERS),
            "round {round}: {turns:?}"
        );
    }
}

#[test]
fn a_host_with_many_connections_has_as_many_turns_as_one_with_one() {
    for connections in [2, 8, 40, 200] {
        let mut hosts = vec![1; connections];
        hosts.push(2);
        let mut device = Device::on(&hosts);
        device.take_turns(10, 0);
        device.left.clear();
        device.take_turns(200, 0);
        let (one, all) = (device.turns(connections), device.left.len());
        assert!(
            (all * 9 / 20..=all * 11 / 20).contains(&one),
            "{connections}: {one} of {all}"
        );
        // All of the host's connections get turns, too.
        device.left.clear();
        device.take_turns(10 * connections, 0);
        for id in 0..connections {
            assert!(
                device.turns(id) >= 3,
                "{connections}, {id}: {}",
                device.turns(id)
            );
        }
    }
}

#[test]
fn repeated_announcements_take_no_turns_from_other_hosts() {
    const ANNOUNCERS: usize = 32;
    let mut hosts = vec![1; ANNOUNCERS];
    hosts.push(2);
    let mut device = Device::on(&hosts);
    device.left.clear();
    for _ in 0..100 {
        for id in 0..ANNOUNCERS {
            if !device.slots[id].is_waiting() {
                device.announce(id, false, 0);
                device.begin(id, 0);
            }
        }
        if !device.slots[ANNOUNCERS].is_waiting() {
            device.request_turn(ANNOUNCERS, 0);
        }
    }
    let (stream, all) = (device.turns(ANNOUNCERS), device.left.len());
    assert!(
        all - stream <= stream + 2 * usize::from(CREDIT),
        "{stream} of {all}"
    );
}

#[test]
fn a_host_with_unused_turns_does_not_delay_others_again() {
    const ANNOUNCERS: usize = 8;
    let mut device = Device::on(&[1, 1, 1, 1, 1, 1, 1, 1, 2]);
    let mut now = 0;
    let mut lapse = |device: &mut Device, rounds: usize| {
        device.left.clear();
        let before = now;
        for _ in 0..rounds {
            for id in 0..ANNOUNCERS {
                if !device.slots[id].is_waiting() {
                    device.announce(id, false, now);
                    device.begin(id, now);
                }
            }
            if device.slots[ANNOUNCERS].is_waiting() {
                now = device.queue.deadline().expect("one waits");
                device.serve(now);
            } else {
                now += 100 * US;
                device.request_turn(ANNOUNCERS, now);
            }
        }
        (device.turns(ANNOUNCERS), now - before)
    };
    lapse(&mut device, 100);
    let (turns, elapsed) = lapse(&mut device, 100);
    assert_eq!((turns, elapsed), (100, 100 * 100 * US));
}

#[test]
fn untrusted_hosts_that_use_their_turns_have_as_many_as_others() {
    let mut device = Device::with(3);
    // Two senders fall silent in their turns, and later send again.
    for id in 1..3 {
        device.request_turn(id, 0);
    }
    device.serve(IDLE);
    device.serve(2 * IDLE);
    assert_eq!(device.left, [1, 2]);
    for round in 0..20 {
        for id in 0..3 {
            if !device.slots[id].is_waiting() {
                device.request_turn(id, 2 * IDLE + round);
            }
        }
    }
    device.left.clear();
    device.take_turns(30, 2 * IDLE + 100);
    for id in 0..3 {
        let turns = device.turns(id);
        assert!(
            3 * turns >= device.left.len() - 3,
            "{id}: {turns} of {}",
            device.left.len()
        );
    }
}

#[test]
fn priorities_go_first_and_no_class_starves() {
    let mut device = Device::with(6);
    for (id, priority) in [(0, 7), (1, 7), (2, 6), (3, 1)] {
        device.slots[id].set_priority(priority);
    }
    device.take_turns(3, 0);
    device.left.clear();
    device.take_turns(1_000, 0);
    let turns: Vec<_> = (0..6).map(|id| device.turns(id)).collect();
    assert!(turns[0] > turns[2] && turns[2] >= turns[4], "{turns:?}");
    assert!(
        turns.iter().all(|turns| 12 * turns >= device.left.len()),
        "{turns:?}"
    );
}

proptest! {
    /// A waiting connection gets its turn within a bounded number of turns.
    #[test]
    fn waits_are_bounded(
        script in prop::collection::vec((0..12_usize, 0..4_u8), 1..2_000),
        priorities in prop::collection::vec(prop_oneof![4 => Just(0_u32), 1 => Just(6), 1 => Just(7)], 12),
    ) {
        let hosts = [1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8];
        let mut device = Device::on(&hosts);
        for (slot, priority) in device.slots.iter_mut().zip(priorities) {
            slot.set_priority(priority);
        }
        let mut since = [None; 12];
        for (id, what) in script {
            if device.slots[id].is_waiting() && what > 0 {
                continue;
            }
            match what {
                0 => device.announce(id, false, 0),
                1 => device.begin(id, 0),
                _ => {
                    if device.slots[id].is_scheduled() {
                        device.request_turn(id, 0);
                    }
                }
            }
            let given = device.left.len();
            for (slot, since) in device.slots.iter().zip(&mut since) {
                if !slot.is_waiting() {
                    *since = None;
                    continue;
                }
                let waited = given - *since.get_or_insert(given);
                let most = 12 * 4 * (usize::from(PASSES) + 1);
                prop_assert!(waited <= most, "{waited} turns");
            }
        }
    }

    /// While connections wait, the next turn comes no later than [`HOLD`] after the previous one,
    /// in any schedule. Every sender that keeps requesting turns gets turns.
    #[test]
    fn waiting_connections_get_turns_in_bounded_time(
        senders in 2..8_usize,
        silent in 0..3_usize,
        hosts in prop::collection::vec(0..8_u64, 8),
        script in prop::collection::vec((0..8_usize, 0..4_u8, 0..30 * MS), 0..60),
    ) {
        let mut device = Device::on(&hosts[..senders]);
        let mut now = 0;
        for (id, what, after) in script {
            now += after;
            let id = id % senders;
            if let Some(at) = device.queue.deadline().filter(|at| *at <= now) {
                device.serve(at);
            }
            match what {
                0 => device.announce(id, false, now),
                1 => device.announce(id, true, now),
                2 => device.begin(id, now),
                _ if device.slots[id].is_scheduled() => device.request_turn(id, now),
                _ => {}
            }
        }
        let silent = silent.min(senders - 1);
        for id in 0..senders {
            device.announce(id, true, now);
        }
        device.left.clear();
        let until = now + 3 * HOLD;
        while now < until {
            for id in silent..senders {
                device.request_turn(id, now);
            }
            device.serve(now);
            now += MS;
        }
        for id in silent..senders {
            let turns = device.left.iter().filter(|left| **left == id).count();
            prop_assert!(turns >= 5, "{id} got {turns} of {}", device.left.len());
        }
    }
}

#[test]
fn a_waiting_sender_retransmits_nothing() {
    let mut pair = Pair::established();
    pair.sides[B].device.held = true;
    pair.send(A, &bytes(3_000, 1));
    pair.run_for(S);
    // The announcement and unscheduled packets are sent once. A hold, which opens no window,
    // reports their receipt.
    assert_eq!(pair.data_sent(A).len(), 2);
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
    let holds = pair.sent_by(B, |s| s.header.flags == flags::ACK | flags::TXS);
    assert_eq!(holds.len(), 1);
    pair.sides[B].device.held = false;
    pair.sides[B].conn().take_turn();
    pair.transmit(B);
    pair.run_until(|p| p.sides[B].received.len() == 3_000);
    pair.assert_intact();
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
}

#[test]
fn data_opens_no_window_out_of_turn() {
    let mut pair = Pair::established();
    pair.sides[B].device.held = true;
    pair.send(A, &bytes(3_000, 1));
    pair.run_for(5 * MS);
    for i in 0..20 {
        pair.send(B, &[i; 100]);
        pair.run_for(MS);
    }
    assert_eq!(pair.data_sent(A).len(), 2);
    assert_eq!(pair.sides[A].received.len(), 2_000);
}

#[test]
fn a_lost_hold_is_repeated_when_its_packet_is() {
    let mut pair = Pair::established();
    pair.sides[B].device.held = true;
    pair.lose_matching(B, 1, |h| h.flags == flags::ACK | flags::TXS);
    pair.send(A, &bytes(3_000, 1));
    pair.run_for(900 * MS);
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 1);
    assert_eq!(pair.sides[A].conn().unacked(), 28);
}

#[test]
fn a_sender_probes_for_a_lost_window_update() {
    // In this test, the receiver has no room for a while, and the acknowledgement that opens the
    // window again is lost. No packet is in flight that would cause another acknowledgement.
    let mut pair = Pair::with_config(Config {
        burst_length: 4,
        packets_to_ack: 2,
        ..Config::default()
    })
    .establish();
    pair.sides[B].limit = 5 * 200;
    pair.sides[B].reads = false;
    for _ in 0..3 {
        pair.send(A, &bytes(150, 1));
        pair.run_for(20 * MS);
    }
    pair.send(A, &bytes(150, 1));
    pair.run_for(100 * MS);
    let rtx = pair.sides[A].conn().stats.pkt_rtx;
    assert_eq!(rtx, 0, "all was reported");
    pair.lose_matching(B, 1, |_| true);
    pair.sides[B].reads = true;
    pair.read(B);
    pair.run_for(300 * MS);
    assert_eq!(pair.sides[B].received.len(), 600);
    pair.assert_intact();
}

#[test]
fn a_request_waits_while_the_port_is_busy() {
    let mut pair = Pair::established();
    pair.lose_matching(A, 19, |h| h.len > 0 && h.flags & flags::TXS == 0);
    pair.send(A, &bytes(2_000, 1));
    let start = pair.now;
    let asked = |p: &Pair| p.log.iter().any(|s| s.header.has(flags::RRQ));
    while !asked(&pair) {
        // Packets of other connections arrive at the device for 5 ms.
        let at = pair.now.min(start + 5 * MS);
        pair.sides[B].device.note_arrival(at);
        pair.run_for(100 * US);
    }
    let waited = pair.now - start;
    assert!((5 * MS..7 * MS).contains(&waited), "{waited}");
    pair.run_until(|p| p.sides[B].received.len() == 2_000);
    pair.assert_intact();
}

#[test]
fn a_sender_probes_for_a_window_update_lost_after_txf() {
    // The model checker found this case. Holds, which open no window, have reported both packets.
    // So neither side runs a timer, although one more packet waits for the window.
    let mut pair = Pair::with_config(Config {
        burst_length: 2,
        packets_to_ack: 1,
        ..Config::default()
    })
    .establish();
    pair.sides[B].limit = 200;
    pair.sides[B].reads = false;
    pair.send(A, &bytes(150, 1));
    pair.send(A, &bytes(50, 2));
    pair.run_for(30 * MS);
    pair.lose_matching(B, 1, |_| true);
    pair.sides[B].reads = true;
    pair.read(B);
    pair.run_for(200 * MS);
    assert_eq!(pair.sides[B].received.len(), 200);
    pair.assert_intact();
}

#[test]
fn a_turn_after_a_silence_requests_lost_packets() {
    let mut pair = Pair::established();
    pair.sides[B].device.held = true;
    pair.lose(A, 1);
    pair.send(A, &bytes(3_000, 1));
    pair.run_for(5 * MS);
    pair.sides[B].device.held = false;
    pair.sides[B].conn().take_turn();
    pair.transmit(B);
    pair.run_until(|p| p.sides[B].received.len() == 3_000);
    pair.assert_intact();
    assert_eq!(pair.sides[B].conn().stats.arq_tx, 1);
    assert_eq!(
        pair.sides[A].conn().stats.pkt_rtx,
        1,
        "no burst thrown away"
    );
}

#[test]
fn a_waiting_request_survives_the_retransmission_of_its_packet() {
    // The simulation found this case. The sender's timer retransmits the first packet of the hole
    // while the request waits. The request still asks for the later packets, which were dropped.
    let mut pair = Pair::established();
    pair.lose(A, 0);
    pair.lose_matching(B, 2, |h| h.has(flags::RRQ));
    pair.send(A, &bytes(3_000, 1));
    pair.run_for(300 * US);
    pair.sides[B].device.held = true;
    pair.run_for(60 * MS);
    let start = pair.now;
    pair.sides[B].device.held = false;
    pair.sides[B].conn().take_turn();
    pair.transmit(B);
    pair.run_until(|p| p.sides[B].received.len() == 3_000);
    pair.assert_intact();
    assert!(pair.now - start < 5 * MS, "{}", pair.now - start);
}

#[test]
fn a_link_slower_than_the_request_timer_is_learnt() {
    // In this test, a packet takes four times the least wait of the request timer, and no packet is
    // lost. Each spurious request would make the sender retransmit a burst.
    let mut pair = Pair::new();
    pair.spacing = 4 * MS;
    let mut pair = pair.establish();
    pair.send(A, &bytes(30_000, 1));
    pair.run_until(|p| p.sides[B].received.len() == 30_000);
    pair.assert_intact();
    let asked = pair.sides[B].conn().stats.arq_tx;
    assert!(asked <= 3, "{asked} requests");
}

#[test]
fn a_turn_after_the_end_sends_nothing() {
    let mut pair = Pair::established();
    pair.sides[B].device.held = true;
    pair.send(A, &bytes(3_000, 1));
    pair.run_for(MS);
    pair.abort(B);
    pair.settle();
    pair.restart_log();
    pair.sides[B].conn().take_turn();
    pair.transmit(B);
    assert!(pair.log.is_empty(), "{:?}", pair.log);
}
