// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests the access to memory of a peer's process.

use super::*;
use crate::wire::{Atomic, Calculation, Width, DETACH};

const ADD: Atomic = Atomic {
    calculation: Calculation::Add,
    width: Width::Eight,
    key: 0,
    offset: 0,
    operand: 1,
    expected: 0,
};

fn target(key: u64, offset: u64, length: u64) -> Target {
    Target {
        key,
        offset,
        length,
    }
}

/// Sends a request to rank 1.
fn request(
    engine: &mut Test,
    told: &mut Told,
    module: usize,
    how: impl FnOnce(&mut Test, LinkId) -> Sent<Vec<u8>>,
) {
    let link = engine.endpoint(Name { job: 1, rank: 1 }, module).unwrap();
    count(how(engine, link), told);
}

/// Returns aligned memory, of which `open` opens the bytes.
fn numbers(engine: &mut Test, memory: &mut [u64]) -> u64 {
    let length = size_of_val(memory);
    // SAFETY: the tests use the memory only when its window is closed or the engine does not run.
    unsafe { engine.windows().open(memory.as_mut_ptr().cast(), length) }.unwrap()
}

#[test]
fn writes_reads_and_atomic_operations_complete_by_a_reply() {
    let (mut a, mut b) = pair(1);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    let mut memory = [5, 0, 0];
    let key = numbers(&mut b, &mut memory);
    request(&mut a, &mut at_a, 0, |a, link| {
        a.write(link, &target(key, 8, 9), vec![1; 9])
    });
    request(&mut a, &mut at_a, 0, |a, link| {
        a.read(link, &target(key, 7, 4), Vec::new())
    });
    request(&mut a, &mut at_a, 0, |a, link| {
        a.execute(link, &Atomic { key, ..ADD }, Vec::new())
    });
    // The messages have left, but the peer's process has not replied.
    for _ in 0..100 {
        at_a.listen(&mut a);
    }
    assert_eq!((at_a.sent, at_a.replies.len()), (0, 0));
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_a.sent == 1 && at_a.replies.len() == 2
    });
    assert_eq!(
        at_a.replies,
        [vec![0, 1, 1, 1], 5u64.to_le_bytes().to_vec()]
    );
    b.windows().close(key);
    assert_eq!(memory, [6, u64::from_le_bytes([1; 8]), 1]);
    assert_eq!((at_a.lost, at_b.lost), (0, 0));
}

#[test]
fn without_channels_the_peers_process_writes_what_is_put_to_a_region() {
    let (mut a, mut b) = pair(1);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    let mut memory = [0; 10];
    let key = open(&mut b, &mut memory);
    for _ in 0..2 {
        request(&mut a, &mut at_a, 0, |a, link| {
            a.put_to_region(link, 5, &target(key, 2, 7), vec![1; 7])
        });
    }
    // The peer's process has no channels to close.
    a.request(0, Kind::Detach, vec![0; DETACH], None);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_a.sent == 2
    });
    b.windows().close(key);
    assert_eq!(memory, [0, 0, 1, 1, 1, 1, 1, 1, 1, 0]);
    assert_eq!((at_a.lost, at_b.lost), (0, 0));
}

#[test]
fn large_writes_and_reads_arrive_whole() {
    let (mut a, mut b) = pair(1);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    let bytes: Vec<u8> = (0..3_000_000usize).map(|byte| (byte % 251) as u8).collect();
    let mut memory = vec![0; bytes.len()];
    let key = open(&mut b, &mut memory);
    let most = 60_000;
    for (number, part) in bytes.chunks(most).enumerate() {
        let target = target(key, (number * most) as u64, part.len() as u64);
        request(&mut a, &mut at_a, 0, |a, link| {
            a.write(link, &target, part.to_vec())
        });
        request(&mut a, &mut at_a, 0, |a, link| {
            a.read(link, &target, Vec::new())
        });
    }
    let count = bytes.len() / most;
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_a.sent == count && at_a.replies.len() == count
    });
    b.windows().close(key);
    assert!(memory == bytes);
    assert!(at_a.replies.concat() == bytes);
}

/// Sends a request that the peer must refuse. The number is the key of 24 bytes of memory.
type Wrong = fn(&mut Test, LinkId, u64) -> Sent<Vec<u8>>;

#[test]
fn a_request_for_memory_that_is_not_open_ends_the_connection() {
    let wrong: [Wrong; 6] = [
        |a, link, key| a.read(link, &target(key + 1, 0, 1), Vec::new()),
        |a, link, key| a.read(link, &target(key, 8, 17), Vec::new()),
        |a, link, key| a.read(link, &target(key, 0, u64::MAX), Vec::new()),
        |a, link, key| a.write(link, &target(key, 24, 1), vec![1]),
        |a, link, key| {
            a.execute(
                link,
                &Atomic {
                    key: key ^ 1,
                    ..ADD
                },
                Vec::new(),
            )
        },
        |a, link, key| {
            let offset = 4;
            a.execute(link, &Atomic { key, offset, ..ADD }, Vec::new())
        },
    ];
    for wrong in wrong {
        let (mut a, mut b) = pair(1);
        let (mut at_a, mut at_b) = (Told::default(), Told::default());
        let mut memory = [0; 3];
        let key = numbers(&mut b, &mut memory);
        request(&mut a, &mut at_a, 0, |a, link| wrong(a, link, key));
        until(|| {
            at_a.listen(&mut a);
            at_b.listen(&mut b);
            at_b.lost == 1 && at_a.lost == 1
        });
        assert_eq!((at_a.sent, at_a.unsent, at_a.replies.len()), (0, 1, 0));
        b.windows().close(key);
        assert_eq!(memory, [0; 3]);
    }
}

#[test]
fn a_reply_to_no_call_ends_the_connection() {
    let (mut a, mut b) = pair(1);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    send(&mut a, &mut at_a, 0, 1, 1, vec![1]);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_b.messages.len() == 1
    });
    b.reply(0, 7, vec![0; 8]).unwrap();
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_a.lost == 1 && at_b.lost == 1
    });
}

#[test]
fn no_operation_is_executed_twice_if_a_link_is_cut() {
    let (mut a, mut b) = pair(2);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    let mut memory = [0];
    let key = numbers(&mut b, &mut memory);
    let rounds = 400;
    for number in 0..rounds {
        request(&mut a, &mut at_a, number % 2, |a, link| {
            a.execute(link, &Atomic { key, ..ADD }, Vec::new())
        });
        if number % 3 == 0 {
            at_a.listen(&mut a);
            at_b.listen(&mut b);
        }
        if number == rounds / 2 {
            until(|| {
                at_a.listen(&mut a);
                at_b.listen(&mut b);
                matches!(a.links[0].state, State::Ready(_)) && !at_a.replies.is_empty()
            });
            // The cut discards the requests that were not received, and replies in flight.
            cut(&mut b);
        }
    }
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_a.replies.len() == rounds
    });
    b.windows().close(key);
    assert_eq!(memory, [rounds as u64]);
    let mut olds: Vec<_> = at_a
        .replies
        .iter()
        .map(|old| u64::from_le_bytes(old[..].try_into().unwrap()))
        .collect();
    olds.sort_unstable();
    assert_eq!(olds, (0..rounds as u64).collect::<Vec<_>>());
    assert_eq!(
        (at_a.degraded, at_b.degraded, at_a.lost, at_a.unsent),
        (1, 1, 0, 0)
    );
}

#[test]
fn calls_to_a_lost_peer_fail() {
    let (mut a, b) = pair(1);
    let mut at_a = Told::default();
    request(&mut a, &mut at_a, 0, |a, link| {
        a.read(link, &target(1, 0, 1), Vec::new())
    });
    request(&mut a, &mut at_a, 0, |a, link| {
        a.write(link, &target(1, 0, 1), vec![1])
    });
    drop(b);
    until(|| {
        at_a.listen(&mut a);
        at_a.unsent == 2
    });
    assert_eq!((at_a.lost, at_a.sent), (1, 0));
}
