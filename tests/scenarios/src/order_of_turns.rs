// SPDX-License-Identifier: GPL-2.0-only

//! Tests the order in which a receiver's ACK queue lets senders send. A turn is the permission to
//! send. Short messages pass long ones, sockets with a priority come first, and hosts have equal
//! shares.
//!
//! These scenarios run where the guest's clock counts instructions, so that they can check times,
//! too.

use std::sync::atomic::Ordering::Relaxed;

use guest::harness::remark;
use guest::prelude::*;
use guest::switch::Switch;
use guest::transfer::{counted, counters, send_until_enough};

scenarios! {
    guest esp_short_messages_pass_long_ones = short_messages, within(180), needs_icount;
    guest esp_receiver_with_a_priority_has_its_turns_first = priorities, within(180), needs_icount;
    guest esp_host_with_many_connections_has_one_hosts_share = shares_by_host, within(180), needs_icount;
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Options of the switch that `make incast` uses.
const PORTS: &[&str] = &["--rate", "200mbit", "--buffer", "128k"];

/// Receives to the end of a stream, and counts its bytes. Does not compare the bytes, because that
/// would take time of the guest's only processor.
fn drain(socket: &Socket, received: &AtomicUsize) -> Result<()> {
    let mut buffer = vec![0; 64 * KIB];
    loop {
        match socket.receive(&mut buffer, 0)? {
            0 => return Ok(()),
            got => drop(received.fetch_add(got, Relaxed)),
        }
    }
}

/// Sends a stream over each of `pairs` while `measure` runs. `measure` begins once all streams are
/// under way, and gets the number of bytes that each one has received.
fn beside_streams<T>(
    pairs: &[(Socket, Socket)],
    measure: impl FnOnce(&[AtomicUsize]) -> Result<T>,
) -> Result<T> {
    let (received, enough) = (&counters(pairs.len()), &AtomicBool::new(false));
    thread::scope(|scope| {
        for ((client, server), received) in pairs.iter().zip(received) {
            scope.spawn(|| send_until_enough(client, enough));
            scope.spawn(|| {
                if let Err(error) = drain(server, received) {
                    note(&format!("a stream's receiver: {error:#}"));
                }
            });
        }
        let measured = eventually("all streams under way", || {
            Ok(counted(received).iter().all(|count| *count > 256 * KIB))
        })
        .and_then(|()| measure(received));
        enough.store(true, Relaxed);
        measured
    })
}

/// Returns the time that `percent` % of `times` do not exceed.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent).div_ceil(100).saturating_sub(1)]
}

/// Returns the goodput of `bytes` in `time`, as a share of the port's rate.
fn part_of_rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 * 8.0 / 200e6 / time.as_secs_f64()
}

/// Sends `count` questions of `size` bytes each, and receives a byte as the answer to each question
/// before the next one. Returns the time of each exchange.
fn ask((client, server): &(Socket, Socket), size: usize, count: usize) -> Result<Vec<Duration>> {
    let question = vec![7; size];
    thread::scope(|scope| {
        let answers = scope.spawn(|| -> Result<()> {
            let mut question = vec![0; size];
            for _ in 0..count {
                server.receive_exact(&mut question)?;
                server.send_all(&[1])?;
            }
            Ok(())
        });
        let times: Result<Vec<_>> = (0..count)
            .map(|_| {
                let begin = Instant::now();
                client.send_all(&question)?;
                client.receive_exact(&mut [0])?;
                Ok(begin.elapsed())
            })
            .collect();
        joined(answers)??;
        times
    })
}

/// In this test one host sends short questions while sixteen other hosts stream to the same
/// receiver.
fn short_messages() -> Outcome {
    const STREAMS: usize = 16;
    const QUESTIONS: usize = 200;
    let switch = Switch::up(STREAMS as u32 + 2, PORTS)?;
    let [receiver, asker, senders @ ..] = switch.hosts::<18>()?;
    let listener = receiver.esp_listener(820, 64)?;
    let questions = asker.esp_pair_through(receiver, &listener, 820)?;
    let pairs = receiver.esp_pairs_from(senders, &listener, 820)?;
    let mut slowest = Vec::new();
    beside_streams(&pairs, |received| {
        let sum = || counted(received).iter().sum::<usize>();
        for (size, bound) in [(100, 900), (10_000, 2_500)] {
            let (before, begin) = (sum(), Instant::now());
            let mut times = ask(&questions, size, QUESTIONS)?;
            let elapsed = begin.elapsed();
            let (bulk, asked) = (sum() - before, size * QUESTIONS);
            let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
            remark(&format!(
                "{size} bytes beside {STREAMS} streams: {p50:.1?}, 99 % within {p99:.1?}; the streams have {:.3} of \
                 the rate, the questions {:.3}",
                part_of_rate(bulk, elapsed),
                part_of_rate(asked, elapsed),
            ));
            slowest.push((size, p99, Duration::from_micros(bound)));
        }
        Ok(())
    })?;
    switch.ensure_no_drops()?;
    for (size, p99, bound) in slowest {
        ensure!(p99 <= bound, "{size} bytes take {p99:?}");
    }
    drop((questions, pairs, listener));
    switch.down()
}

/// In this test there are four streams, and one of them ends at a socket with a priority. The
/// priority gives this stream three of every four turns.
fn priorities() -> Outcome {
    let switch = Switch::up(5, PORTS)?;
    let [receiver, senders @ ..] = switch.hosts::<5>()?;
    let listener = receiver.esp_listener(821, 64)?;
    let pairs = receiver.esp_pairs_from(senders, &listener, 821)?;
    let preferred = &pairs[0].1;
    let mut shares = Vec::new();
    beside_streams(&pairs, |received| {
        for priority in [0, 6, 7] {
            preferred
                .set_so(libc::SO_PRIORITY, priority)
                .with_context(|| format!("priority {priority}"))?;
            let before = counted(received);
            let mut bytes = Vec::new();
            eventually("some megabytes", || {
                let pairs = before.iter().zip(counted(received));
                bytes = pairs.map(|(before, now)| now - before).collect();
                Ok(bytes.iter().sum::<usize>() > 8 * MIB)
            })?;
            let share = bytes[0] as f64 / bytes.iter().sum::<usize>() as f64;
            remark(&format!(
                "priority {priority}: {share:.3} of what four streams receive, {bytes:?} bytes"
            ));
            shares.push((priority, share));
        }
        Ok(())
    })?;
    switch.ensure_no_drops()?;
    for (priority, share) in shares {
        let fair = if priority == 0 { 0.25 } else { 0.75 };
        ensure!(
            (0.9 * fair..=1.1 * fair).contains(&share),
            "{share:.3} of all with priority {priority}, not {fair}"
        );
    }
    drop((pairs, listener));
    switch.down()
}

/// While `measure` runs, sends questions of `size` bytes over each of `pairs`, each after the
/// answer to the previous one. Each question begins with an announcement, for which the receiver
/// must give a turn. `measure` begins once each pair has had an answer, and gets each pair's number
/// of answered bytes.
fn beside_announcers<T>(
    pairs: &[(Socket, Socket)],
    size: usize,
    measure: impl FnOnce(&[AtomicUsize]) -> Result<T>,
) -> Result<T> {
    let (announced, enough) = (&counters(pairs.len()), &AtomicBool::new(false));
    thread::scope(|scope| {
        for (pair, announced) in pairs.iter().zip(announced) {
            scope.spawn(|| {
                while !enough.load(Relaxed) {
                    if let Err(error) = ask(pair, size, 1) {
                        note(&format!("an announcer: {error:#}"));
                        break;
                    }
                    announced.fetch_add(size, Relaxed);
                }
            });
        }
        let measured = eventually("every announcer answered", || {
            Ok(counted(announced).iter().all(|bytes| *bytes > 0))
        })
        .and_then(|()| measure(announced));
        enough.store(true, Relaxed);
        measured
    })
}

/// In this test one host has 32 connections to the receiver, and another host has a single stream.
fn shares_by_host() -> Outcome {
    const ANNOUNCERS: usize = 32;
    let switch = Switch::up(3, PORTS)?;
    let [receiver, other, announcer] = switch.hosts()?;
    let listener = receiver.esp_listener(822, 64)?;
    let bulk = [other.esp_pair_through(receiver, &listener, 822)?];
    let hosts = std::iter::repeat_n(announcer, ANNOUNCERS);
    let pairs = receiver.esp_pairs_from(hosts, &listener, 822)?;
    let (stream, others, time) = beside_streams(&bulk, |received| {
        beside_announcers(&pairs, 30_000, |announced| {
            let now = || [received, announced].map(|bytes| counted(bytes).iter().sum::<usize>());
            let (before, begin) = (now(), Instant::now());
            eventually("some megabytes", || Ok(now()[0] - before[0] > 8 * MIB))?;
            let [stream, others] = now();
            Ok((stream - before[0], others - before[1], begin.elapsed()))
        })
    })?;
    let share = stream as f64 / (stream + others) as f64;
    remark(&format!(
        "beside {ANNOUNCERS} connections of one host a stream of another one has {share:.3} of what arrives, which is \
         {:.3} of the rate",
        part_of_rate(stream + others, time)
    ));
    switch.ensure_no_drops()?;
    ensure!(
        (0.45..=0.55).contains(&share),
        "a stream has {share:.3} of what arrives, not its host's half"
    );
    drop((bulk, pairs, listener));
    switch.down()
}
