// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of all patterns between two hosts over datagrams, some of which are lost in both
//! directions.

use std::cell::Cell;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

use nix::sys::socket::MsgFlags;

use super::args::PatternArgs;
use super::{Link, Plan};
use crate::control::{Control, Message};
use crate::registry::{find, pair_patterns, Pattern};
use crate::report::Row;
use crate::summary::tests::percents;
use crate::transport::datagram::{DatagramSocket, Datagrams};
use crate::transport::Transport;

const MAX_DATAGRAM: usize = 100;

/// A socket that drops one of every `period` datagrams that are sent through it.
struct Lossy {
    socket: UnixDatagram,
    period: u32,
    sent: Cell<u32>,
}

impl DatagramSocket for Lossy {
    fn send(&self, datagram: &[u8], flags: MsgFlags) -> io::Result<usize> {
        self.sent.set(self.sent.get() + 1);
        if self.sent.get() % self.period == 0 {
            return Ok(datagram.len());
        }
        DatagramSocket::send(&self.socket, datagram, flags)
    }
}

as_fd!([] Lossy, socket);

fn transport(socket: UnixDatagram, period: u32, timeout: Duration) -> Datagrams<Lossy> {
    let socket = Lossy {
        socket,
        period,
        sent: Cell::new(0),
    };
    Datagrams::new(socket, MAX_DATAGRAM, timeout).unwrap()
}

pub(super) fn controls() -> (Control, Control) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (two, _) = listener.accept().unwrap();
    let patience = Some(Duration::from_secs(60));
    (
        Control::new(one, patience).unwrap(),
        Control::new(two, patience).unwrap(),
    )
}

/// Does the follower's part of all steps, until the leader ends the control connection.
fn follow(pattern: &Pattern, mut transport: Datagrams<Lossy>, mut control: Control) {
    while let Some(message) = control.receive_or_end().unwrap() {
        let Message::Step(step) = message else {
            panic!("{message:?}")
        };
        transport.discard_pending().unwrap();
        control.send(&Message::Ready).unwrap();
        let mut link = Link {
            transport: &mut transport,
            control: &mut control,
            streams: None,
        };
        pattern.follow(&mut link, &step).unwrap();
    }
}

/// Measures over a pair of sockets and returns the rows. `periods` has two numbers, for the leader
/// and for the follower. A side with number n drops one of every n datagrams that it sends.
fn measure(
    pattern: &'static Pattern,
    sizes: &[u64],
    periods: [u32; 2],
    timeout: Duration,
) -> Vec<Row> {
    let (one, two) = UnixDatagram::pair().unwrap();
    let (mut control, other) = controls();
    // `look_around` is the follower's time limit, and `timeout` is the leader's. Outside of tests,
    // the follower's limit is fixed, and a user may choose a shorter or a longer one for the
    // leader. The period `u32::MAX` means that no datagram is dropped. If neither side drops any,
    // both limits are the same long time, so that a busy host causes no loss.
    let look_around = match periods {
        [u32::MAX, u32::MAX] => timeout,
        _ => Duration::from_millis(60),
    };
    let follower = thread::spawn(move || {
        follow(pattern, transport(two, periods[1], look_around), other);
    });
    let mut transport = transport(one, periods[0], timeout);
    let plan = Plan {
        sizes: sizes.to_vec(),
        tests: 20,
        warmup: 1,
        percentiles: percents().to_vec(),
        args: PatternArgs::default(),
    };
    let mut rows = Vec::new();
    let mut link = Link {
        transport: &mut transport,
        control: &mut control,
        streams: None,
    };
    pattern
        .pair()
        .unwrap()
        .lead(&mut link, &plan, &mut |row| rows.push(row))
        .unwrap();
    drop(control);
    follower.join().unwrap();
    rows
}

/// Returns the patterns that can measure datagrams.
fn patterns() -> impl Iterator<Item = &'static Pattern> {
    let udp = crate::transport::kinds::find("udp").unwrap();
    let suits = |pattern: &&Pattern| pattern.pair().unwrap().suits(udp).is_ok();
    pair_patterns().filter(suits)
}

/// Returns the losses to test a pattern with. Each entry has a size, and the two periods at which
/// the leader and the follower drop a datagram. A message of the second size is several datagrams,
/// so a loss is more likely than with the first size.
fn losses_for(pattern: &str) -> Vec<(u64, [u32; 2])> {
    match pattern {
        // Each message of a flood is a single datagram, so one size is enough.
        "flood" => vec![(1, [9, 7])],
        // The periods are long enough that some trains arrive completely.
        "logp" => vec![(1, [67, 7]), (350, [131, 37])],
        _ => vec![(1, [9, 7]), (350, [31, 37])],
    }
}

#[test]
fn lost_datagrams_are_counted() {
    for pattern in patterns() {
        for (size, periods) in losses_for(pattern.info.name) {
            // On a busy host, a train of messages (logp) takes longer than 30 ms, so logp is tested
            // only with 200 ms.
            let timeouts: &[u64] = if pattern.info.name == "logp" {
                &[200]
            } else {
                &[30, 200]
            };
            for timeout in timeouts {
                let timeout = Duration::from_millis(*timeout);
                let rows = measure(pattern, &[size], periods, timeout);
                assert_eq!((rows.len(), rows[0].size, rows[0].tests), (1, size, 20));
                assert!(rows[0].lost > 0, "{}: {rows:?}", pattern.info.name);
            }
        }
    }
}

#[test]
fn without_loss_none_is_counted() {
    for pattern in patterns() {
        let sizes: &[u64] = match pattern.info.name {
            "flood" => &[1, 100],
            // In pattern bulk, the largest size fills several windows, and ends with a shorter
            // datagram.
            _ => &[1, 350, 12_345],
        };
        let patience = Duration::from_secs(60);
        let rows = measure(pattern, sizes, [u32::MAX; 2], patience);
        assert!(
            rows.iter().all(|row| row.lost == 0),
            "{}: {rows:?}",
            pattern.info.name
        );
    }
}

#[test]
fn an_answer_that_finds_no_room_is_lost_and_no_failure() {
    let (one, _two) = UnixDatagram::pair().unwrap();
    let (mut control, _other) = controls();
    let mut transport = transport(one, u32::MAX, Duration::from_millis(20));
    while transport.send(&[1]).is_ok() {}
    let mut link = Link {
        transport: &mut transport,
        control: &mut control,
        streams: None,
    };
    link.reply(&[1]).unwrap();
}

#[test]
fn a_flood_counts_exactly_what_was_dropped() {
    // The leader sends one warm-up message and a request for the tally, then 20 messages. Every
    // ninth datagram is dropped, which hits the 7th and the 16th of the 20 messages.
    let flood = find("flood").unwrap();
    let rows = measure(flood, &[1], [9, u32::MAX], Duration::from_secs(60));
    assert_eq!(rows[0].lost, 2, "{rows:?}");
}
