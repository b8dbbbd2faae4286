// SPDX-License-Identifier: MIT OR Apache-2.0

//! The parameters of the P-LogP model: send overhead o_s(s), receive overhead o_r(s), gap g(s) and
//! latency L (Treydte 2007, 6.3.4).
//!
//! All times are by the leader's clock (6.3.2). Overheads are times of single calls on an idle link
//! (6.3.5, 6.6.1), as in Kielmann, Bal and Verstoep (2000), whom Treydte follows:
//!
//! * The leader sends a message of s bytes, and receives a byte. The time of the sending call is
//!   o_s(s), the whole time is RTT(s).
//! * The leader sends a byte, and receives a message of s bytes. Before the receiving call it waits
//!   longer than any round trip so far, so that the message has arrived. The time of the call is
//!   o_r(s).
//! * The leader sends a train of n messages of s bytes, and receives a byte, in the time RTT_n(s).
//!   Each message after the first adds a gap: g(s) = (RTT_n(s) - RTT(s)) / (n - 1).
//! * One direction takes L + g: RTT(s) = (L + g(s)) + (L + g(1)), so
//!   L = (RTT(s) - g(s) - g(1)) / 2. In this model, L begins with the sending call.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::answering::{answer_messages, await_answer, exchange};
use super::{Link, Losses, Lost, PairPattern, Plan};
use crate::control::Step;
use crate::report::{Measured, Row};
use crate::summary::Summary;

/// Number of messages in a train.
const TRAIN: u32 = 16;
/// A train of more than two messages has at most this many datagrams.
const TRAIN_DATAGRAMS: usize = 64;
/// The value of `Step::chunk` if the follower sends the long message.
const BACKWARD: u32 = 0;

/// The pattern `logp`, described above.
#[derive(Debug)]
pub(crate) struct LogP;

impl PairPattern for LogP {
    fn lead(&self, link: &mut Link<'_>, plan: &Plan, rows: &mut dyn FnMut(Row)) -> Result<()> {
        let mut losses = Losses::new(plan.tests);
        let least = Way::measure(link, 1, plan, &mut losses)?;
        plan.each_size(rows, |size| lead_size(link, size, plan, &least))
    }

    fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()> {
        ensure!(
            step.chunk <= TRAIN,
            "no step of logp: {} messages",
            step.chunk
        );
        let size = step.size as usize;
        match step.chunk {
            BACKWARD => answer_messages(link, step.rounds, (1, 1), size),
            count => answer_messages(link, step.rounds, (size, count), 1),
        }
    }
}

fn lead_size(link: &mut Link<'_>, size: u64, plan: &Plan, least: &Way) -> Result<Row> {
    let mut losses = Losses::new(plan.tests);
    let way = Way::measure(link, size, plan, &mut losses)?;
    let receive_overhead_ns = receive_overhead(link, size, plan, way.longest, &mut losses)?;
    let gaps = way.gap.median.saturating_add(least.gap.median);
    let gap = way.gap.median;
    let measured = Measured::LogP {
        send_overhead_ns: way.send_overhead,
        receive_overhead_ns,
        latency_ns: way.round_trip.median.saturating_sub(gaps) / 2,
        gap_ns: way.gap,
        rtt_ns: way.round_trip,
    };
    Ok(plan.row(size, losses.total, gap, measured))
}

/// The times of messages of one size from the leader to the follower.
struct Way {
    send_overhead: Summary,
    round_trip: Summary,
    gap: Summary,
    /// The longest round trip, including warm-up.
    longest: Duration,
}

impl Way {
    fn measure(link: &mut Link<'_>, size: u64, plan: &Plan, losses: &mut Losses) -> Result<Self> {
        let (mut sends, mut round_trips) = (Vec::new(), Vec::new());
        let mut longest = Duration::ZERO;
        let mut message = vec![0; size as usize];
        begin(link, plan, (size, 1), losses)?;
        plan.run(link, losses, |link, tag, counts| {
            message.fill(tag);
            let start = Instant::now();
            link.transport.send(&message)?;
            let sent = start.elapsed();
            await_answer(link.transport, tag, &mut [!tag])?;
            let all = start.elapsed();
            longest = longest.max(all);
            if counts {
                sends.push(sent.as_nanos() as u64);
                round_trips.push(all.as_nanos() as u64);
            }
            Ok(())
        })?;
        let round_trip = plan.summary(round_trips)?;

        let mut gaps = Vec::new();
        let count = train_length(link, size);
        begin(link, plan, (size, count), losses)?;
        plan.run(link, losses, |link, tag, counts| {
            message.fill(tag);
            let start = Instant::now();
            exchange(link.transport, &message, count, &mut [!tag])?;
            let all = start.elapsed().as_nanos() as u64;
            if counts {
                gaps.push(all.saturating_sub(round_trip.median) / u64::from(count - 1));
            }
            Ok(())
        })?;
        Ok(Self {
            send_overhead: plan.summary(sends)?,
            round_trip,
            gap: plan.summary(gaps)?,
            longest,
        })
    }
}

/// Returns the number of messages in a train: [`TRAIN`], or fewer if they would be more than
/// [`TRAIN_DATAGRAMS`] datagrams, but at least two.
fn train_length(link: &Link<'_>, size: u64) -> u32 {
    let Some(most) = link.transport.max_datagram() else {
        return TRAIN;
    };
    let datagrams = (size as usize).div_ceil(most).max(1);
    ((TRAIN_DATAGRAMS / datagrams) as u32).clamp(2, TRAIN)
}

/// Measures a receiving call whose message has already arrived.
fn receive_overhead(
    link: &mut Link<'_>,
    size: u64,
    plan: &Plan,
    longest: Duration,
    losses: &mut Losses,
) -> Result<Summary> {
    let mut times = Vec::new();
    let mut message = vec![0; size as usize];
    begin(link, plan, (size, BACKWARD), losses)?;
    plan.run(link, losses, |link, tag, counts| {
        message.fill(!tag);
        link.transport.send(&[tag])?;
        thread::sleep(longest * 2);
        let start = Instant::now();
        await_answer(link.transport, tag, &mut message)?;
        if counts {
            times.push(start.elapsed().as_nanos() as u64);
        }
        Ok(())
    })?;
    plan.summary(times)
}

/// Begins a step of exchanges with these values of [`Step`].
fn begin(
    link: &mut Link<'_>,
    plan: &Plan,
    (size, chunk): (u64, u32),
    losses: &mut Losses,
) -> Result<()> {
    losses.what = match chunk {
        BACKWARD | 1 => Lost::Message,
        _ => Lost::Train,
    };
    link.begin(Step {
        chunk,
        ..Step::of(size, plan.rounds())
    })
}
