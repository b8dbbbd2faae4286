//! The order of turns: short messages pass long ones, sockets with a priority come first, and hosts have equal shares.
//!
//! They run where the guest's clock counts instructions: there time means something, and is judged too.

use std::sync::atomic::Ordering::Relaxed;

use crate::harness::tell;
use crate::prelude::*;
use crate::switch::Switch;

scenarios! {
    guest esp_short_messages_pass_long_ones = short_messages, within(180), counted;
    guest esp_receiver_with_a_priority_has_its_turns_first = priorities, within(180), counted;
    guest esp_host_with_many_connections_has_one_hosts_share = shares_by_host, within(180), counted;
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The switch of `make incast`.
const PORTS: &[&str] = &["--rate", "200mbit", "--buffer", "128k"];

/// Streams without an end until `enough`, and a number of bytes received for each.
fn stream<'scope, 'a: 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    (client, server): &'a (Socket, Socket),
    received: &'a AtomicUsize,
    enough: &'a AtomicBool,
) {
    scope.spawn(move || {
        let message = vec![0x19; 64 * KIB];
        while !enough.load(Relaxed) {
            if let Err(error) = client.send_all(&message) {
                note(&format!("a stream's sender: {error}"));
                break;
            }
        }
        let _ = client.shutdown(libc::SHUT_WR);
    });
    scope.spawn(move || {
        let mut buffer = vec![0; 64 * KIB];
        loop {
            match server.receive(&mut buffer, 0) {
                Ok(0) => break,
                Ok(got) => drop(received.fetch_add(got, Relaxed)),
                Err(error) => {
                    note(&format!("a stream's receiver: {error}"));
                    break;
                }
            }
        }
    });
}

fn counters(count: usize) -> Vec<AtomicUsize> {
    (0..count).map(|_| AtomicUsize::new(0)).collect()
}

fn read(counters: &[AtomicUsize]) -> Vec<usize> {
    counters.iter().map(|count| count.load(Relaxed)).collect()
}

fn await_start(received: &[AtomicUsize]) -> Outcome {
    eventually("all streams under way", || {
        Ok(received.iter().all(|count| count.load(Relaxed) > 256 * KIB))
    })
}

/// The time that this part of `times` does not exceed.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent).div_ceil(100).saturating_sub(1)]
}

/// Questions of `size` bytes one after the other, each answered by a byte: how long they take.
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

/// One host asks while sixteen others stream to the same receiver.
fn short_messages() -> Outcome {
    const STREAMS: usize = 16;
    const QUESTIONS: usize = 200;
    let switch = Switch::up(STREAMS as u32 + 2, PORTS)?;
    let [receiver, asker, senders @ ..] = switch.hosts::<18>()?;
    let listener = receiver.esp_listener(820, 64)?;
    let questions = asker.esp_pair_through(receiver, &listener, 820)?;
    let pairs = receiver.esp_pairs_from(senders, &listener, 820)?;
    let received = counters(STREAMS);
    let enough = AtomicBool::new(false);
    let mut slowest = Vec::new();
    thread::scope(|scope| -> Outcome {
        for (pair, received) in pairs.iter().zip(&received) {
            stream(scope, pair, received, &enough);
        }
        let asked = await_start(&received).and_then(|()| {
            for (size, bound) in [(100, 900), (10_000, 2_500)] {
                let before: usize = read(&received).iter().sum();
                let begin = Instant::now();
                let mut times = ask(&questions, size, QUESTIONS)?;
                let elapsed = begin.elapsed().as_secs_f64();
                let bulk = read(&received).iter().sum::<usize>() - before;
                let rate = |bytes: usize| bytes as f64 * 8.0 / 200e6 / elapsed;
                let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
                tell(&format!(
                    "{size} bytes beside {STREAMS} streams: {p50:.1?}, 99 % within {p99:.1?}; the streams have {:.3} of \
                     the rate, the questions {:.3}",
                    rate(bulk),
                    rate(size * QUESTIONS),
                ));
                slowest.push((size, p99, Duration::from_micros(bound)));
            }
            Ok(())
        });
        enough.store(true, Relaxed);
        asked
    })?;
    switch.ensure_no_drops()?;
    for (size, p99, bound) in slowest {
        ensure!(p99 <= bound, "{size} bytes take {p99:?}");
    }
    drop((questions, pairs, listener));
    switch.down()
}

/// Four streams; the receiver's socket of one of them has a priority, which gives it three turns of four.
fn priorities() -> Outcome {
    let switch = Switch::up(5, PORTS)?;
    let [receiver, senders @ ..] = switch.hosts::<5>()?;
    let listener = receiver.esp_listener(821, 64)?;
    let pairs = receiver.esp_pairs_from(senders, &listener, 821)?;
    let preferred = &pairs[0].1;
    let set = |priority| preferred.set_so(libc::SO_PRIORITY, priority);
    let received = counters(pairs.len());
    let enough = AtomicBool::new(false);
    let mut shares = Vec::new();
    thread::scope(|scope| -> Outcome {
        for (pair, received) in pairs.iter().zip(&received) {
            stream(scope, pair, received, &enough);
        }
        let measured = await_start(&received).and_then(|()| {
            for priority in [0, 6, 7] {
                set(priority).with_context(|| format!("priority {priority}"))?;
                let before = read(&received);
                let done = |since: &[usize]| -> Vec<usize> {
                    let now = read(&received);
                    now.iter()
                        .zip(since)
                        .map(|(now, then)| now - then)
                        .collect()
                };
                eventually("some megabytes", || {
                    Ok(done(&before).iter().sum::<usize>() > 8 * MIB)
                })?;
                let bytes = done(&before);
                let share = bytes[0] as f64 / bytes.iter().sum::<usize>() as f64;
                tell(&format!(
                    "priority {priority}: {share:.3} of what four streams receive, {bytes:?} bytes"
                ));
                shares.push((priority, share));
            }
            Ok(())
        });
        enough.store(true, Relaxed);
        measured
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

/// 32 connections of one host, each of which announces the next message when the last one is answered, and one stream
/// of another host.
fn shares_by_host() -> Outcome {
    const ANNOUNCERS: usize = 32;
    const MESSAGE: usize = 30_000;
    let switch = Switch::up(3, PORTS)?;
    let [receiver, other, announcer] = switch.hosts()?;
    let listener = receiver.esp_listener(822, 64)?;
    let bulk = other.esp_pair_through(receiver, &listener, 822)?;
    let pairs = (0..ANNOUNCERS)
        .map(|_| announcer.esp_pair_through(receiver, &listener, 822))
        .collect::<Result<Vec<_>>>()?;
    let received = counters(1);
    let announced = counters(ANNOUNCERS);
    let enough = AtomicBool::new(false);
    let (stream_share, all) = thread::scope(|scope| {
        for (pair, announced) in pairs.iter().zip(&announced) {
            let enough = &enough;
            scope.spawn(move || {
                while !enough.load(Relaxed) {
                    match ask(pair, MESSAGE, 1) {
                        Ok(_) => drop(announced.fetch_add(MESSAGE, Relaxed)),
                        Err(error) => {
                            note(&format!("an announcer: {error:#}"));
                            break;
                        }
                    }
                }
            });
        }
        stream(scope, &bulk, &received[0], &enough);
        let measured = await_start(&received).and_then(|()| {
            eventually("every announcer answered", || {
                Ok(read(&announced).iter().all(|bytes| *bytes > 0))
            })?;
            let sums = || -> [usize; 2] { [read(&received)[0], read(&announced).iter().sum()] };
            let (before, begin) = (sums(), Instant::now());
            eventually("some megabytes", || Ok(sums()[0] - before[0] > 8 * MIB))?;
            let now = sums();
            let [stream, others] = [now[0] - before[0], now[1] - before[1]];
            let all = (stream + others) as f64;
            Ok((
                stream as f64 / all,
                all * 8.0 / 200e6 / begin.elapsed().as_secs_f64(),
            ))
        });
        enough.store(true, Relaxed);
        measured
    })?;
    tell(&format!(
        "beside {ANNOUNCERS} connections of one host a stream of another one has {stream_share:.3} of what arrives, \
         which is {all:.3} of the rate"
    ));
    switch.ensure_no_drops()?;
    ensure!(
        (0.45..=0.55).contains(&stream_share),
        "a stream has {stream_share:.3} of what arrives, not its host's half"
    );
    drop((bulk, pairs, listener));
    switch.down()
}
