// SPDX-License-Identifier: GPL-2.0

//! Tests of the cache of other hosts' answers, and of the times at which this host queries the
//! others.

use std::collections::HashMap;

use edp::peers::{
    Answer, Bucket, Known, Patience, Peer, ANSWER_LIFETIME, QUERY_INTERVAL, REFRESH_AFTER, REST,
    REST_EXPECTED, REST_EXPECTED_MAX, REST_MAX, SILENCE_BACKOFF, WAYS,
};
use edp::query::{flags, Capabilities};
use proptest::prelude::*;

const START: u64 = 1_000_000_000_000;

fn peer(number: u8) -> Peer {
    Peer {
        mac: [2, 0, 0, 0, 0, number],
        ifindex: 3,
    }
}

fn nonce(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Returns the answer of a host that reports `largest_datagram`.
fn answer_with(largest_datagram: Option<u16>) -> Capabilities {
    Capabilities {
        largest_datagram,
        ..Capabilities::default()
    }
}

const LARGE: Answer = Answer {
    largest: 1_494,
    mapped: false,
    mapped_v6: false,
};

#[test]
fn a_mapped_peer_is_queried_again_once_its_answer_is_invalidated() {
    let mut bucket = Bucket::default();
    let p = peer(1);
    bucket.look_up(&p, START, || nonce(7));
    let answer = Capabilities {
        flags: Some(flags::ESP | flags::MAPPED),
        ..answer_with(Some(100))
    };
    assert!(bucket.on_answer(&p, START, nonce(7), &answer));
    let told = Answer {
        largest: 100,
        mapped: true,
        mapped_v6: false,
    };
    let known = bucket.look_up(&p, START, || nonce(8));
    assert_eq!(known, Known::Answer(told, None));
    bucket.invalidate(&peer(2));
    assert_eq!(bucket.answer_of(&p, START), Some(told));
    bucket.invalidate(&p);
    assert_eq!(bucket.answer_of(&p, START), None);
    let known = bucket.look_up(&p, START, || nonce(9));
    assert_eq!(known, Known::Query(nonce(9)));
    // Invalidation does not affect a query in flight.
    bucket.invalidate(&p);
    assert!(bucket.on_answer(&p, START, nonce(9), &answer));
}

#[test]
fn a_peer_is_queried_once_and_its_answer_is_valid_for_a_minute() {
    let mut bucket = Bucket::default();
    let p = peer(1);
    assert_eq!(
        bucket.look_up(&p, START, || nonce(7)),
        Known::Query(nonce(7))
    );
    assert_eq!(bucket.look_up(&p, START + 1, || nonce(8)), Known::Nothing);
    assert_eq!(bucket.largest(&p, START + 1), None);
    assert!(bucket.on_answer(&p, START + 2, nonce(7), &answer_with(Some(1_494))));
    assert_eq!(
        bucket.look_up(&p, START + 3, || nonce(8)),
        Known::Answer(LARGE, None)
    );
    let end = START + 2 + ANSWER_LIFETIME;
    assert_eq!(bucket.largest(&p, end - 1), Some(1_494));
    assert_eq!(bucket.largest(&p, end), None);
    assert_eq!(bucket.look_up(&p, end, || nonce(9)), Known::Query(nonce(9)));
}

#[test]
fn a_peer_in_use_is_queried_again_before_its_answer_expires() {
    let mut bucket = Bucket::default();
    let p = peer(1);
    bucket.look_up(&p, START, || nonce(7));
    assert!(bucket.on_answer(&p, START, nonce(7), &answer_with(Some(1_494))));
    let old = START + REFRESH_AFTER;
    let mut look_up = |now, number| bucket.look_up(&p, now, || nonce(number));
    assert_eq!(look_up(old - 1, 8), Known::Answer(LARGE, None));
    assert_eq!(look_up(old, 8), Known::Answer(LARGE, Some(nonce(8))));
    assert_eq!(look_up(old + 1, 9), Known::Answer(LARGE, None));
    // A silent peer is queried again after a pause. Its last answer stays valid until the answer
    // expires.
    let again = old + QUERY_INTERVAL + SILENCE_BACKOFF;
    assert_eq!(look_up(again - 1, 9), Known::Answer(LARGE, None));
    assert_eq!(look_up(again, 9), Known::Answer(LARGE, Some(nonce(9))));
    assert!(!bucket.on_answer(&p, again, nonce(8), &answer_with(None)));
    let mut silent = bucket;
    assert_eq!(
        silent.look_up(&p, START + ANSWER_LIFETIME, || nonce(9)),
        Known::Query(nonce(9))
    );
    assert!(bucket.on_answer(&p, again, nonce(9), &answer_with(Some(100))));
    assert_eq!(bucket.largest(&p, again + ANSWER_LIFETIME - 1), Some(100));
    // Invalidation removes the answer; the pending query remains.
    bucket.look_up(&p, again + REFRESH_AFTER, || nonce(10));
    bucket.invalidate(&p);
    let known = bucket.look_up(&p, again + REFRESH_AFTER, || nonce(11));
    assert_eq!(known, Known::Nothing);
}

#[test]
fn only_the_queried_peer_answers_once_by_its_device_with_the_nonce() {
    let mut bucket = Bucket::default();
    let p = peer(1);
    assert!(!bucket.on_answer(&p, START, nonce(7), &answer_with(Some(100))));
    bucket.look_up(&p, START, || nonce(7));
    let elsewhere = Peer { ifindex: 4, ..p };
    assert!(!bucket.on_answer(&p, START, nonce(8), &answer_with(Some(100))));
    assert!(!bucket.on_answer(&peer(2), START, nonce(7), &answer_with(Some(100))));
    assert!(!bucket.on_answer(&elsewhere, START, nonce(7), &answer_with(Some(100))));
    assert_eq!(bucket.largest(&p, START), None);
    assert!(bucket.on_answer(&p, START, nonce(7), &answer_with(Some(100))));
    assert!(!bucket.on_answer(&p, START, nonce(7), &answer_with(Some(200))));
    assert_eq!(bucket.largest(&p, START), Some(100));
}

#[test]
fn a_silent_peer_is_queried_again_after_a_while() {
    let mut bucket = Bucket::default();
    let p = peer(1);
    bucket.look_up(&p, START, || nonce(7));
    let end = START + QUERY_INTERVAL + SILENCE_BACKOFF;
    assert_eq!(bucket.look_up(&p, end - 1, || nonce(8)), Known::Nothing);
    // A late answer is accepted, but not after the next query.
    let mut late = bucket;
    assert!(late.on_answer(&p, end - 1, nonce(7), &answer_with(Some(100))));
    assert!(!bucket.on_answer(&p, end, nonce(7), &answer_with(Some(100))));
    assert_eq!(bucket.look_up(&p, end, || nonce(8)), Known::Query(nonce(8)));
    assert!(!bucket.on_answer(&p, end, nonce(7), &answer_with(Some(100))));
    assert!(bucket.on_answer(&p, end, nonce(8), &answer_with(None)));
    assert_eq!(bucket.largest(&p, end), Some(u16::MAX));
}

#[test]
fn a_peer_without_an_entry_is_not_queried() {
    let mut bucket = Bucket::default();
    for number in 0..WAYS as u8 {
        let known = bucket.look_up(&peer(number), START, || nonce(7));
        assert_eq!(known, Known::Query(nonce(7)));
    }
    assert_eq!(
        bucket.look_up(&peer(99), START + 1, || nonce(7)),
        Known::Nothing
    );
    // An entry with an answer outlasts the entry of a silent peer.
    assert!(bucket.on_answer(&peer(0), START, nonce(7), &answer_with(Some(100))));
    let later = START + QUERY_INTERVAL;
    let others = 100 + WAYS as u8 - 1;
    for number in 100..others {
        let known = bucket.look_up(&peer(number), later, || nonce(8));
        assert_eq!(known, Known::Query(nonce(8)));
    }
    assert_eq!(bucket.largest(&peer(0), later), Some(100));
    bucket.look_up(&peer(others), later, || nonce(8));
    assert_eq!(bucket.largest(&peer(0), later), None);
}

#[test]
fn peers_of_a_removed_device_are_forgotten() {
    let mut bucket = Bucket::default();
    let elsewhere = Peer {
        ifindex: 4,
        ..peer(1)
    };
    for p in [peer(1), elsewhere] {
        bucket.look_up(&p, START, || nonce(7));
        bucket.on_answer(&p, START, nonce(7), &answer_with(Some(100)));
    }
    bucket.forget(3);
    assert_eq!(bucket.largest(&peer(1), START), None);
    assert_eq!(bucket.largest(&elsewhere, START), Some(100));
}

const MILLISECOND: u64 = 1_000_000;

const PATIENT: Patience = Patience {
    bound: MILLISECOND,
    expects: false,
};

/// Opens a connection at `now`. Returns the end of its wait, and whether the connection causes a
/// query, or `None` if the connection does not wait.
fn wait(bucket: &mut Bucket, now: u64, patience: Patience) -> Option<(u64, bool)> {
    match bucket.await_answer(&peer(1), now, patience, || nonce(7)) {
        Known::Wait(end, query) => Some((end, query.is_some())),
        _ => None,
    }
}

/// Returns the pauses between the beginnings of the first `count` waits for a silent peer.
fn pauses(bucket: &mut Bucket, patience: Patience, count: usize) -> Vec<u64> {
    const STEP: u64 = 100 * MILLISECOND;
    let begins = (0..)
        .map(|step| START + step * STEP)
        .filter(|now| wait(bucket, *now, patience).is_some_and(|(_, query)| query));
    let begins: Vec<u64> = begins.take(count + 1).collect();
    begins.windows(2).map(|two| two[1] - two[0]).collect()
}

#[test]
fn connections_share_a_wait_and_then_rest() {
    let mut bucket = Bucket::default();
    let end = START + MILLISECOND;
    assert_eq!(wait(&mut bucket, START, PATIENT), Some((end, true)));
    assert_eq!(wait(&mut bucket, end - 1, PATIENT), Some((end, false)));
    assert_eq!(wait(&mut bucket, end, PATIENT), None);
    assert_eq!(wait(&mut bucket, START + REST - 1, PATIENT), None);
    // The connection at `START + REST - 1` has repeated the query. A connection that is opened a
    // nanosecond later waits for the answer to this repetition.
    let end = START + REST - 1 + MILLISECOND;
    assert_eq!(wait(&mut bucket, START + REST, PATIENT), Some((end, false)));
    assert_eq!(wait(&mut bucket, end, PATIENT), None);
}

#[test]
fn a_silent_peer_is_awaited_ever_more_rarely() {
    let rests = pauses(&mut Bucket::default(), PATIENT, 6);
    let doubled = [1, 2, 4, 8, 16, 16].map(|times| times * REST);
    let least = rests
        .iter()
        .zip(doubled)
        .all(|(rest, least)| *rest >= least);
    let most = rests
        .iter()
        .zip(doubled)
        .all(|(rest, least)| *rest <= least + 2 * QUERY_INTERVAL);
    assert!(least && most && rests[5] >= REST_MAX, "{rests:?}");
    let expects = Patience {
        expects: true,
        ..PATIENT
    };
    let rests = pauses(&mut Bucket::default(), expects, 8);
    assert!(rests[0] <= 2 * REST_EXPECTED && rests[0] >= REST_EXPECTED);
    assert!(rests.is_sorted() && rests[7] <= REST_EXPECTED_MAX + 2 * QUERY_INTERVAL);
}

#[test]
fn an_excused_peer_is_awaited_again() {
    let mut bucket = Bucket::default();
    assert!(wait(&mut bucket, START, PATIENT).is_some());
    let end = START + MILLISECOND;
    bucket.excuse(&peer(2), end);
    bucket.excuse(&peer(1), end - 1);
    let now = START + QUERY_INTERVAL;
    assert_eq!(wait(&mut bucket, now, PATIENT), None);
    bucket.excuse(&peer(1), end);
    // The next wait begins with a query, so not within the minimum time between two queries.
    assert_eq!(wait(&mut bucket, now - 1, PATIENT), None);
    let end = now + MILLISECOND;
    assert_eq!(wait(&mut bucket, now, PATIENT), Some((end, true)));
    // The pauses double from the beginning again.
    let later = now + REST + QUERY_INTERVAL;
    assert_eq!(wait(&mut bucket, now + REST - 1, PATIENT), None);
    assert!(wait(&mut bucket, later, PATIENT).is_some());
}

#[test]
fn a_peer_that_has_answered_is_expected_to_answer_again() {
    let mut bucket = Bucket::default();
    assert!(wait(&mut bucket, START, PATIENT).is_some());
    assert!(bucket.on_answer(&peer(1), START + 1, nonce(7), &answer_with(Some(1_494))));
    assert_eq!(
        bucket.await_answer(&peer(1), START + 2, PATIENT, || nonce(8)),
        Known::Answer(LARGE, None)
    );
    bucket.invalidate(&peer(1));
    let now = START + QUERY_INTERVAL;
    assert!(wait(&mut bucket, now, PATIENT).is_some());
    assert_eq!(wait(&mut bucket, now + REST_EXPECTED - 1, PATIENT), None);
    let again = wait(&mut bucket, now + REST_EXPECTED, PATIENT);
    assert_eq!(again, Some((now + REST_EXPECTED + MILLISECOND, true)));
}

#[test]
fn a_wait_uses_the_query_of_a_datagram() {
    let mut bucket = Bucket::default();
    bucket.look_up(&peer(1), START, || nonce(6));
    let end = START + MILLISECOND;
    assert_eq!(wait(&mut bucket, START + 1, PATIENT), Some((end, false)));
    assert!(bucket.on_answer(&peer(1), START + 2, nonce(6), &answer_with(None)));
    // A connection that is opened later does not wait: the time to wait for the answer has passed,
    // and the query is too recent to be repeated.
    let mut bucket = Bucket::default();
    bucket.look_up(&peer(1), START, || nonce(6));
    assert_eq!(wait(&mut bucket, end, PATIENT), None);
    let now = START + QUERY_INTERVAL;
    assert_eq!(
        wait(&mut bucket, now, PATIENT),
        Some((now + MILLISECOND, true))
    );
}

#[test]
fn without_patience_nothing_waits() {
    let mut bucket = Bucket::default();
    let none = Patience {
        bound: 0,
        expects: true,
    };
    let mut known = |now| bucket.await_answer(&peer(1), now, none, || nonce(7));
    assert_eq!(known(START), Known::Query(nonce(7)));
    assert_eq!(known(START + 1), Known::Nothing);
    // A wait lasts at most for the minimum time between two queries, even if the caller permits a
    // longer wait.
    let mut bucket = Bucket::default();
    let most = Patience {
        bound: u64::MAX,
        expects: true,
    };
    let end = START + QUERY_INTERVAL;
    assert_eq!(wait(&mut bucket, START, most), Some((end, true)));
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(19),
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    /// The cache queries a peer at most once a second, whatever is sent and answered. If the cache
    /// returns a limit, the limit comes from the peer's answer to the last query. This answer is at
    /// most a minute old.
    #[test]
    fn queries_are_rare_and_limits_are_the_peers_own(
        steps in prop::collection::vec((0u8..8, 0u64..700_000_000, any::<u16>(), any::<bool>(), any::<bool>(), 0u64..2_000_000), 1..300),
    ) {
        let mut bucket = Bucket::default();
        let mut now = START;
        let mut asked: HashMap<u8, (u64, [u8; 4])> = HashMap::new();
        let mut told: HashMap<u8, (u64, u16)> = HashMap::new();
        for (count, (number, pause, largest, answers, right, bound)) in steps.into_iter().enumerate() {
            now += pause;
            let p = peer(number);
            let known = if bound > 1_000_000 {
                let patience = Patience {
                    bound,
                    expects: right,
                };
                bucket.await_answer(&p, now, patience, || nonce(count as u32))
            } else {
                bucket.look_up(&p, now, || nonce(count as u32))
            };
            if let Known::Wait(end, _) = known {
                prop_assert!(now < end && end <= now + bound);
            }
            if let Some(nonce) = known.query() {
                if let Some((at, _)) = asked.insert(number, (now, nonce)) {
                    prop_assert!(now - at >= QUERY_INTERVAL);
                }
            }
            if let Known::Answer(Answer { largest: known, .. }, _) = known {
                let (at, value) = told[&number];
                prop_assert!(known == value && now < at + ANSWER_LIFETIME);
            }
            if answers {
                let (_, last) = asked.get(&number).copied().unwrap_or_default();
                let used = if right { last } else { nonce(u32::MAX) };
                if bucket.on_answer(&p, now, used, &answer_with(Some(largest))) {
                    prop_assert!(right);
                    told.insert(number, (now, largest));
                    prop_assert_eq!(bucket.largest(&p, now), Some(largest));
                }
            }
        }
    }
}
