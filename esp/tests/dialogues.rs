// SPDX-License-Identifier: GPL-2.0

//! Tests of the end of an acknowledgement's delay (R2): when the reader sleeps, and in a dialogue,
//! where another thread answers.

use esp_testkit::pair::*;

/// Sends a message of `from`, which the other end reads before its reader sleeps.
fn tell(pair: &mut Pair, from: usize) {
    let before = pair.sides[1 - from].received.len();
    pair.send(from, b"x");
    pair.run_until(|p| p.sides[1 - from].received.len() > before);
    pair.sleep(1 - from);
    pair.transmit(1 - from);
}

/// Returns the number of empty acknowledgements that both ends have sent.
fn empty(pair: &Pair) -> usize {
    pair.log.iter().filter(|sent| sent.is_pure_ack()).count()
}

#[test]
fn a_sleeping_reader_acknowledges_at_once() {
    let mut pair = Pair::established();
    for messages in 1..=3 {
        tell(&mut pair, A);
        assert_eq!(empty(&pair), messages);
    }
}

/// Returns two ends that have answered each other some times. As with a thread that reads and
/// another that sends, each reader sleeps before the answer is sent.
fn in_dialogue() -> Pair {
    let mut pair = Pair::established();
    for _ in 0..5 {
        tell(&mut pair, A);
        tell(&mut pair, B);
    }
    pair.restart_log();
    pair
}

#[test]
fn in_a_dialogue_a_sleeping_reader_leaves_the_acknowledgement_to_the_answer() {
    let mut pair = in_dialogue();
    for _ in 0..5 {
        tell(&mut pair, A);
        tell(&mut pair, B);
    }
    assert_eq!(empty(&pair), 0);

    // The dialogue ends: nothing carries the last acknowledgement, so the delay passes.
    pair.run_for(3_900 * US);
    assert_eq!(empty(&pair), 0);
    pair.run_for(300 * US);
    assert_eq!(empty(&pair), 1);
    tell(&mut pair, B);
    assert_eq!(empty(&pair), 2, "the next reader that sleeps acknowledges");
}

#[test]
fn a_sender_that_waits_for_room_in_a_dialogue_is_delayed_once() {
    // A request of two transmissions: the sender has no room for the second one until the first is
    // acknowledged.
    let mut pair = in_dialogue();
    for round in 0..5 {
        let (before, sent) = (empty(&pair), pair.now);
        tell(&mut pair, A);
        pair.run_until(|p| empty(p) > before);
        assert!(round == 0 || pair.now - sent < MS, "in round {round}");
        tell(&mut pair, A);
        tell(&mut pair, B);
    }
}

#[test]
fn answers_that_come_late_begin_no_dialogue() {
    let mut pair = Pair::established();
    for _ in 0..10 {
        tell(&mut pair, A);
        pair.run_for(5 * MS);
        tell(&mut pair, B);
        pair.run_for(5 * MS);
    }
    assert_eq!(empty(&pair), 20, "each reader that slept has acknowledged");
}
