// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests the engine: two or more engines in one process exchange messages over the loopback device.

use super::*;
use crate::transport::Interface;
use crate::wire::Target;

mod remote;

impl Payload for Vec<u8> {
    fn parts(&self) -> [&[u8]; 2] {
        let (first, second) = self.split_at(self.len() / 3);
        [first, second]
    }
}

const SETTINGS: Settings = Settings {
    polled: 8,
    timeout: Duration::from_secs(10),
    block: 1 << 16,
};

type Test = Engine<Vec<u8>>;

const TOKEN: u64 = 77;

fn engine(rank: u32, interfaces: usize, settings: Settings) -> (Test, Vec<Card>) {
    let listeners: Vec<_> = (0..interfaces)
        .map(|_| Listener::open(Interface::Loopback, settings.timeout).unwrap())
        .collect();
    let cards = listeners.iter().map(Listener::card).collect();
    let name = Name { job: 1, rank };
    (
        Engine::new(name, TOKEN, listeners, settings).unwrap(),
        cards,
    )
}

fn introduce(engine: &mut Test, peer: u32, cards: &[Card]) {
    let pairs = cards.iter().enumerate().map(|(i, card)| (i, i, *card));
    engine.introduce(
        Name { job: 1, rank: peer },
        TOKEN,
        &pairs.collect::<Vec<_>>(),
    );
}

fn pair(interfaces: usize) -> (Test, Test) {
    let (mut a, of_a) = engine(0, interfaces, SETTINGS);
    let (mut b, of_b) = engine(1, interfaces, SETTINGS);
    introduce(&mut a, 1, &of_b);
    introduce(&mut b, 0, &of_a);
    (a, b)
}

/// The events of an engine.
#[derive(Default)]
struct Told {
    messages: Vec<(u8, Vec<u8>)>,
    replies: Vec<Vec<u8>>,
    sent: usize,
    unsent: usize,
    degraded: usize,
    lost: usize,
}

impl Told {
    fn listen(&mut self, engine: &mut Test) {
        engine.poll();
        for event in engine.take_events() {
            match event {
                Event::Received {
                    block, arrivals, ..
                } => {
                    for Arrival { tag, start, length } in arrivals {
                        self.messages
                            .push((tag, block[start..start + length].to_vec()));
                    }
                    engine.give(block);
                }
                // The reply to a write has no data.
                Event::Answered { data, .. } if data.is_empty() => self.sent += 1,
                Event::Answered { data, .. } => self.replies.push(data),
                Event::Completed { sent: true, .. } => self.sent += 1,
                Event::Completed { sent: false, .. } => self.unsent += 1,
                Event::Degraded(_) => self.degraded += 1,
                Event::Lost { .. } => self.lost += 1,
            }
        }
    }
}

fn send(engine: &mut Test, told: &mut Told, module: usize, peer: u32, tag: u8, bytes: Vec<u8>) {
    let link = engine.endpoint(Name { job: 1, rank: peer }, module);
    count(engine.send(link.unwrap(), tag, bytes), told);
}

fn count(sent: Sent<Vec<u8>>, told: &mut Told) {
    match sent {
        Sent::Done(_) => told.sent += 1,
        Sent::Queued => {}
        Sent::Refused(_) => told.unsent += 1,
    }
}

/// Lets the engine's peers write into `memory`. Returns the memory's key.
fn open(engine: &mut Test, memory: &mut [u8]) -> u64 {
    // SAFETY: the tests use the memory only when its window is closed or the engine does not run.
    unsafe { engine.windows().open(memory.as_mut_ptr(), memory.len()) }.unwrap()
}

/// Puts `bytes` into memory of rank 1.
fn put(engine: &mut Test, told: &mut Told, module: usize, key: u64, offset: usize, bytes: &[u8]) {
    let target = Target {
        key,
        offset: offset as u64,
        length: bytes.len() as u64,
    };
    let payload = [&target.encode(), bytes].concat();
    let link = engine.endpoint(Name { job: 1, rank: 1 }, module).unwrap();
    count(engine.put(link, payload), told);
}

#[track_caller]
fn until(mut round: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !round() {
        assert!(Instant::now() < end, "it takes too long");
    }
}

fn message(number: usize) -> Vec<u8> {
    let length = [0, 1, 17, 300, 5000, 40_000][number % 6];
    (0..length).map(|byte| (byte + number) as u8).collect()
}

#[test]
fn messages_arrive_in_order_over_one_link() {
    let (mut a, mut b) = pair(1);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    for number in 0..100 {
        send(&mut a, &mut at_a, 0, 1, number as u8, message(number));
    }
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_b.messages.len() == 100 && at_a.sent == 100
    });
    for (number, (tag, bytes)) in at_b.messages.iter().enumerate() {
        assert_eq!((usize::from(*tag), bytes), (number, &message(number)));
    }
}

#[test]
fn both_connect_at_once_and_one_connection_stays() {
    let (mut a, mut b) = pair(1);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    send(&mut a, &mut at_a, 0, 1, 7, vec![1; 9]);
    send(&mut b, &mut at_b, 0, 0, 8, vec![2; 9]);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_a.messages.len() == 1 && at_b.messages.len() == 1
    });
    assert_eq!(at_b.messages, [(7, vec![1; 9])]);
    assert_eq!(at_a.messages, [(8, vec![2; 9])]);
    assert_eq!((a.ready.len(), b.ready.len()), (1, 1));
    assert_eq!((at_a.lost, at_b.lost), (0, 0));
}

#[test]
fn a_peer_that_is_not_known_connects_and_is_answered() {
    let (mut a, of_a) = engine(0, 1, SETTINGS);
    let (mut b, _) = engine(1, 1, SETTINGS);
    introduce(&mut b, 0, &of_a);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    send(&mut b, &mut at_b, 0, 0, 1, vec![5]);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_a.messages.len() == 1
    });
    assert!(!a.knows(b.name()));
    // `a` knows no interface of `b`, so it sends by the link that `b` connected.
    assert!(matches!(a.send(0, 2, vec![6]), Sent::Done(_)));
    until(|| {
        at_b.listen(&mut b);
        at_b.messages.len() == 1
    });
}

/// Cuts the first link of `engine`, which is connected.
fn cut(engine: &mut Test) {
    let cut = std::mem::replace(&mut engine.links[0].state, State::Idle);
    let State::Ready(stream) = cut else {
        panic!("it was connected: {cut:?}")
    };
    stream.cut();
    engine.fail(0, "cut");
}

#[test]
fn a_cut_link_loses_and_repeats_nothing_while_another_one_works() {
    let (mut a, mut b) = pair(2);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    for number in 0..400 {
        send(&mut a, &mut at_a, number % 2, 1, 1, message(number));
        if number % 3 == 0 {
            at_a.listen(&mut a);
            at_b.listen(&mut b);
        }
        if number == 200 {
            until(|| {
                at_a.listen(&mut a);
                matches!(a.links[0].state, State::Ready(_))
            });
            // The cut discards the bytes that the receiver has not read yet.
            cut(&mut b);
        }
    }
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_b.messages.len() >= 400 && at_a.sent == 400
    });
    for _ in 0..100 {
        at_b.listen(&mut b);
    }
    let mut got: Vec<_> = at_b.messages.into_iter().map(|(_, bytes)| bytes).collect();
    let mut expected: Vec<_> = (0..400).map(message).collect();
    got.sort();
    expected.sort();
    assert!(got == expected);
    assert_eq!((at_a.degraded, at_b.degraded), (1, 1));
    assert_eq!((at_a.lost, at_a.unsent, at_b.lost), (0, 0, 0));
}

#[test]
fn puts_write_into_the_window_before_the_next_message_comes() {
    let (mut a, mut b) = pair(1);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    // Some sizes exceed a block, and one exceeds the amount that the loopback device accepts at
    // once.
    let sizes = [0, 1, 3000, 5000, 100_000, 3_000_000, 7];
    let bytes: Vec<u8> = (0..3_200_000usize).map(|byte| (byte % 251) as u8).collect();
    let mut memory = vec![0; bytes.len()];
    let key = open(&mut b, &mut memory);
    let mut offset = 0;
    for (number, size) in sizes.into_iter().enumerate() {
        let data = &bytes[offset..offset + size];
        put(&mut a, &mut at_a, 0, key, offset, data);
        send(&mut a, &mut at_a, 0, 1, number as u8, message(number));
        offset += size;
    }
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_b.messages.len() == sizes.len()
    });
    b.windows().close(key);
    assert!(memory[..offset] == bytes[..offset]);
    assert!(memory[offset..].iter().all(|byte| *byte == 0));
    for (number, (tag, bytes)) in at_b.messages.iter().enumerate() {
        assert_eq!((usize::from(*tag), bytes), (number, &message(number)));
    }
    assert_eq!(at_a.sent, 2 * sizes.len());
}

#[test]
fn a_put_into_memory_that_is_not_open_ends_the_connection() {
    let (mut a, mut b) = pair(1);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    let mut memory = [0; 16];
    let key = open(&mut b, &mut memory);
    put(&mut a, &mut at_a, 0, key, 8, &[1; 9]);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_b.lost == 1 && at_a.lost == 1
    });
    assert_eq!(memory, [0; 16]);
}

#[test]
fn a_put_that_came_by_another_link_is_not_written_again() {
    let (mut a, mut b) = pair(2);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    let data = vec![7; 4_000_000];
    let mut memory = vec![0; data.len()];
    let key = open(&mut b, &mut memory);
    put(&mut a, &mut at_a, 0, key, 0, &data);
    // The first link carries part of the put. Then the link breaks for the sender, but not yet for
    // the receiver.
    until(|| {
        at_a.listen(&mut a);
        b.poll();
        !b.links.is_empty() && b.links[0].is_amid_put()
    });
    b.ready.clear();
    a.fail(0, "cut");
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_a.sent == 1
    });
    b.windows().close(key);
    assert!(memory == data);
    // The receiver drops the rest of the first link's data, and reports the broken link only when
    // the stream ends.
    memory.fill(0);
    b.ready.push(0);
    until(|| {
        at_b.listen(&mut b);
        at_b.degraded == 1
    });
    assert!(memory.iter().all(|byte| *byte == 0));
    assert_eq!((at_a.lost, at_b.lost), (0, 0));
}

#[test]
fn the_last_link_of_a_peer_that_dies_is_reported_once() {
    let (mut a, mut b) = pair(2);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    for module in 0..2 {
        send(&mut a, &mut at_a, module, 1, 1, vec![1]);
    }
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_b.messages.len() == 2
    });
    drop(b);
    until(|| {
        at_a.listen(&mut a);
        at_a.lost == 1
    });
    send(&mut a, &mut at_a, 0, 1, 1, vec![1]);
    assert_eq!((at_a.lost, at_a.unsent), (1, 1));
}

#[test]
fn a_farewell_is_no_failure() {
    let (mut a, mut b) = pair(1);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    send(&mut a, &mut at_a, 0, 1, 1, vec![1]);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_b.messages.len() == 1
    });
    a.close(Duration::from_millis(20));
    until(|| {
        at_b.listen(&mut b);
        b.ready.is_empty()
    });
    assert_eq!((at_b.lost, at_b.unsent), (0, 0));
}

#[test]
fn many_peers_are_asked_by_epoll() {
    let settings = Settings {
        polled: 2,
        ..SETTINGS
    };
    let (mut hub, of_hub) = engine(100, 1, settings);
    let mut at_hub = Told::default();
    let mut peers: Vec<_> = (0..10).map(|rank| engine(rank, 1, settings).0).collect();
    let mut told: Vec<_> = (0..10).map(|_| Told::default()).collect();
    for (peer, told) in peers.iter_mut().zip(&mut told) {
        introduce(peer, 100, &of_hub);
        for number in 0..12 {
            send(peer, told, 0, 100, number as u8, message(number));
        }
    }
    until(|| {
        at_hub.listen(&mut hub);
        for (peer, told) in peers.iter_mut().zip(&mut told) {
            told.listen(peer);
        }
        at_hub.messages.len() == 120
    });
    assert_eq!(hub.ready.len(), 10);
}

#[test]
fn a_process_that_computes_is_waited_for_and_one_that_dies_is_not() {
    let settings = Settings {
        timeout: Duration::from_millis(50),
        ..SETTINGS
    };
    let (mut a, _) = engine(0, 1, settings);
    let (b, of_b) = engine(1, 1, settings);
    introduce(&mut a, 1, &of_b);
    let mut at_a = Told::default();
    send(&mut a, &mut at_a, 0, 1, 1, vec![1]);
    let start = Instant::now();
    until(|| {
        at_a.listen(&mut a);
        start.elapsed() > Duration::from_millis(200)
    });
    assert_eq!(at_a.lost, 0);
    drop(b);
    until(|| {
        at_a.listen(&mut a);
        at_a.lost == 1
    });
    assert_eq!(at_a.unsent, 1);
}

#[test]
fn a_stranger_without_the_token_takes_no_ranks_place() {
    let (mut a, of_a) = engine(0, 1, SETTINGS);
    let (mut b, of_b) = engine(1, 1, SETTINGS);
    let (mut stranger, _) = engine(1, 1, SETTINGS);
    introduce(&mut a, 1, &of_b);
    introduce(&mut b, 0, &of_a);
    let pairs = [(0, 0, of_a[0])];
    stranger.introduce(Name { job: 1, rank: 0 }, TOKEN + 1, &pairs);
    let (mut at_a, mut at_b, mut at_stranger) = (Told::default(), Told::default(), Told::default());
    send(&mut stranger, &mut at_stranger, 0, 0, 1, vec![1]);
    until(|| {
        at_a.listen(&mut a);
        at_stranger.listen(&mut stranger);
        at_stranger.lost == 1 || matches!(stranger.links[0].state, State::Awaiting)
    });
    send(&mut b, &mut at_b, 0, 0, 2, vec![2]);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        !at_a.messages.is_empty()
    });
    assert_eq!(at_a.messages, [(2, vec![2])]);
    assert_eq!((at_a.lost, at_b.lost, a.callers.len()), (0, 0, 0));
}

#[test]
fn callers_that_say_nothing_keep_nobody_out() {
    let (mut a, of_a) = engine(0, 1, SETTINGS);
    let (mut b, _) = engine(1, 1, SETTINGS);
    introduce(&mut b, 0, &of_a);
    let silent: Vec<_> = (0..50)
        .map(|_| b.listeners[0].connect(&of_a[0]).unwrap())
        .collect();
    until(|| {
        a.poll();
        a.callers.len() == silent.len()
    });
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    send(&mut b, &mut at_b, 0, 0, 1, vec![1]);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_a.messages.len() == 1
    });
}

#[test]
fn send_now_takes_only_what_leaves_at_once() {
    let (mut a, mut b) = pair(2);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    let now = |a: &mut Test, number: usize| a.send_now(0, number as u8, vec![number as u8; 9_000]);
    assert!(matches!(now(&mut a, 0), Sent::Refused(_)), "not connected");
    send(&mut a, &mut at_a, 0, 1, 0, vec![0]);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_b.messages.len() == 1
    });
    // The receiver does not read, so the kernel or the link soon takes no more.
    let mut taken = 1;
    while !matches!(now(&mut a, taken % 100), Sent::Refused(_)) {
        taken += 1;
        assert!(taken < 10_000, "the messages are kept without a bound");
    }
    assert!(taken > 1);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_b.messages.len() == taken
    });
    for (number, (tag, _)) in at_b.messages.iter().enumerate() {
        assert_eq!(usize::from(*tag), number % 100);
    }
    // The number of the refused message was used again: the next one arrives, too.
    until(|| {
        at_a.listen(&mut a);
        at_a.sent == taken
    });
    assert!(!matches!(now(&mut a, 7), Sent::Refused(_)));
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_b.messages.len() == taken + 1
    });
}

#[test]
fn the_cause_of_a_loss_is_told_before_the_messages_that_it_costs() {
    let (mut a, _) = engine(0, 1, SETTINGS);
    let (b, of_b) = engine(1, 1, SETTINGS);
    introduce(&mut a, 1, &of_b);
    a.send(0, 1, vec![1]);
    drop(b);
    until(|| {
        a.poll();
        a.has_events()
    });
    let events = a.take_events();
    assert!(
        matches!(
            events[..],
            [Event::Lost { .. }, Event::Completed { sent: false, .. }]
        ),
        "{events:?}"
    );
}

#[test]
fn a_link_that_one_end_has_given_up_is_given_up_by_the_other() {
    let (mut a, mut b) = pair(2);
    let (mut at_a, mut at_b) = (Told::default(), Told::default());
    a.fail(0, "cut");
    send(&mut b, &mut at_b, 0, 0, 1, vec![1]);
    until(|| {
        at_a.listen(&mut a);
        at_b.listen(&mut b);
        at_a.messages.len() == 1
    });
    assert_eq!((at_b.degraded, at_b.lost, at_a.lost), (1, 0, 0));
}
