// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many small messages in one direction, without waiting. They show the cost of sending a message
//! when the next message is always ready (Treydte 2007, 6.6.1 and figure 21).
//!
//! Each sending call is timed, including its wait for room. The follower counts the messages and
//! sends its tally: over a stream, after the last message; with datagrams, on request.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::{Link, Losses, PairPattern, Plan};
use crate::control::Step;
use crate::report::{Measured, Row};
use crate::sizes::human;
use crate::summary::mbit_per_s;
use crate::transport::Transport;

/// The maximum number of bytes that the follower reads from a stream with one call. If one message
/// is longer, the maximum is the length of that message.
const BLOCK: usize = 64 * 1024;

/// The pattern `flood`, described above.
#[derive(Debug)]
pub(crate) struct Flood;

impl PairPattern for Flood {
    fn lead(&self, link: &mut Link<'_>, plan: &Plan, rows: &mut dyn FnMut(Row)) -> Result<()> {
        // A request for the tally is filled with the complement of the flood's tag. So only half of
        // the byte values can be tags of floods.
        let mut tags = (1..=u8::MAX / 2).cycle();
        for &size in &plan.sizes {
            if let Some(most) = link.transport.max_datagram() {
                ensure!(
                    size <= most as u64,
                    "a message of {} is more than a datagram, which has {most} bytes at most: \
                     lower -s",
                    human(size)
                );
            }
            let mut flood = |count| {
                let tag = tags.next().unwrap_or(1);
                run(link, plan, size, count, tag)
            };
            if plan.warmup > 0 {
                flood(plan.warmup)?;
            }
            rows(flood(plan.tests)?);
        }
        Ok(())
    }

    fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()> {
        match link.is_reliable() {
            true => follow_stream(link, step),
            false => follow_datagrams(link, step),
        }
    }
}

/// Sends `count` messages, each filled with `tag`, and gets the follower's tally.
fn run(link: &mut Link<'_>, plan: &Plan, size: u64, count: u32, tag: u8) -> Result<Row> {
    link.begin(Step {
        tag,
        ..Step::of(size, count)
    })?;
    let message = vec![tag; size as usize];
    let mut times = super::times(count);
    let mut unsent = Losses::new(count);
    let before = link.transport.packets()?;
    let start = Instant::now();
    let mut last = start;
    for _ in 0..count {
        let sent = match plan.args.eor {
            true => link.transport.send_record(&message),
            false => link.transport.send(&message),
        };
        // A message counts as lost if there was no room for it within the time limit.
        unsent.judge(link, sent)?;
        // One reading of the clock ends a message's time and begins the time of the next message.
        // So each time includes the cost of one reading.
        let now = Instant::now();
        times.push(now.duration_since(last).as_nanos() as u64);
        last = now;
    }
    let tally = match link.is_reliable() {
        true => receive_tally(link.transport, tag).map_err(|error| link.explain(error))?,
        false => ask_for_tally(link, &vec![!tag; size as usize], tag)?,
    };
    // Over a stream, the follower sends the tally when it has read the last message, so the
    // leader's time ends when the tally arrives. With datagrams, the tally comes on request, some
    // time after the flood. So the leader's time ends with the last sending call; if the follower's
    // time is longer, that time counts instead.
    let elapsed = match link.is_reliable() {
        true => start.elapsed(),
        false => last.duration_since(start).max(tally.time),
    };
    let packets = before.zip(link.transport.packets()?);
    let packets = packets.map(|(before, after)| after.since(before).sent);
    let nanos = elapsed.as_nanos() as u64;
    let came = u64::from(tally.came.min(count));
    Ok(Row {
        size,
        tests: count,
        lost: count - tally.came.min(count),
        mbit_per_s: mbit_per_s(size * came, nanos),
        measured: Measured::Flood {
            send_overhead_ns: plan.summary(times)?,
            messages_per_s: came as f64 * 1e9 / nanos.max(1) as f64,
            packets_per_message: packets.map(|packets| packets as f64 / f64::from(count)),
        },
    })
}

/// The follower's report on a flood.
struct Tally {
    /// Number of messages that arrived.
    came: u32,
    /// The time from the arrival of the first datagram to the arrival of the last one.
    time: Duration,
}

impl Tally {
    const LENGTH: usize = 1 + 4 + 8;

    /// Returns the tally as a message. The tally's first byte is the flood's tag, as in each
    /// message of the flood.
    fn to_bytes(&self, tag: u8) -> [u8; Self::LENGTH] {
        let mut bytes = [tag; Self::LENGTH];
        bytes[1..5].copy_from_slice(&self.came.to_be_bytes());
        bytes[5..].copy_from_slice(&(self.time.as_nanos() as u64).to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let [_, a, b, c, d, time @ ..] = *bytes;
        Self {
            came: u32::from_be_bytes([a, b, c, d]),
            time: Duration::from_nanos(u64::from_be_bytes(time)),
        }
    }
}

/// Waits for the tally of flood `tag`, and discards the tallies of earlier floods.
fn receive_tally(transport: &mut dyn Transport, tag: u8) -> io::Result<Tally> {
    let mut bytes = [0; Tally::LENGTH];
    while bytes[0] != tag {
        transport.recv(&mut bytes)?;
    }
    Ok(Tally::from_bytes(&bytes))
}

/// Requests the tally again and again until an answer comes. A request is lost if the follower has
/// no room for it.
fn ask_for_tally(link: &mut Link<'_>, question: &[u8], tag: u8) -> Result<Tally> {
    let mut losses = Losses::new(0);
    loop {
        let asked = link.transport.send(question);
        let mut tally = None;
        let heard = asked.and_then(|()| {
            tally = Some(receive_tally(link.transport, tag)?);
            Ok(())
        });
        losses.judge(link, heard)?;
        if let Some(tally) = tally {
            return Ok(tally);
        }
    }
}

/// Reads the whole flood, several messages with one call.
fn follow_stream(link: &mut Link<'_>, step: &Step) -> Result<()> {
    let mut left = step.size * u64::from(step.rounds);
    let block = (BLOCK as u64 / step.size).max(1) * step.size;
    let mut buffer = vec![0; block as usize];
    while left > 0 {
        let length = left.min(block) as usize;
        link.transport.recv(&mut buffer[..length])?;
        left -= length as u64;
    }
    let tally = Tally {
        came: step.rounds,
        time: Duration::ZERO,
    };
    Ok(link.transport.send(&tally.to_bytes(step.tag))?)
}

/// Counts datagrams and answers requests, until the leader sends a control message.
fn follow_datagrams(link: &mut Link<'_>, step: &Step) -> Result<()> {
    let mut message = vec![0; step.size as usize];
    let (mut came, mut asked) = (0, false);
    let (mut first, mut last) = (None, None);
    loop {
        // The control connection is polled only after the tally was requested, because polling
        // during the flood would slow down the receiver.
        if asked && link.wait_for_control()? {
            return Ok(());
        }
        if !link.receive(&mut message)? {
            return Ok(());
        }
        if message[0] == step.tag {
            let now = Instant::now();
            first.get_or_insert(now);
            last = Some(now);
            came += 1;
        } else if message[0] == !step.tag {
            let time = first.zip(last).map(|(first, last)| last - first);
            let tally = Tally {
                came,
                time: time.unwrap_or_default(),
            };
            link.reply(&tally.to_bytes(step.tag))?;
            asked = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_survives_its_way() {
        let tally = Tally {
            came: 0x0102_0304,
            time: Duration::from_nanos(0x0102_0304_0506_0708),
        };
        let bytes = tally.to_bytes(9);
        assert_eq!(bytes[..6], [9, 1, 2, 3, 4, 1]);
        let back = Tally::from_bytes(&bytes);
        assert_eq!((back.came, back.time), (tally.came, tally.time));
    }
}
