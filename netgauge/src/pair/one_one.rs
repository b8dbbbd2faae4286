// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ping-pong of a client and a server: the server sends each message back. Half of the round trip
//! is the time of one direction.

use std::time::Instant;

use anyhow::Result;

use super::answering::{answer_messages, await_answer};
use super::{Link, Losses, PairPattern, Plan};
use crate::control::Step;
use crate::report::{Measured, Row};

/// The pattern `one-one`, described above.
#[derive(Debug)]
pub(crate) struct OneOne;

impl PairPattern for OneOne {
    fn lead(&self, link: &mut Link<'_>, plan: &Plan, rows: &mut dyn FnMut(Row)) -> Result<()> {
        plan.each_size(rows, |size| lead_size(link, size, plan))
    }

    fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()> {
        let size = step.size as usize;
        answer_messages(link, step.rounds, (size, 1), size)
    }
}

fn lead_size(link: &mut Link<'_>, size: u64, plan: &Plan) -> Result<Row> {
    link.begin(Step::of(size, plan.rounds()))?;
    let mut message = vec![0; size as usize];
    let mut half_round_trips = super::times(plan.tests);
    let mut losses = Losses::new(plan.tests);
    plan.run(link, &mut losses, |link, tag, counts| {
        message.fill(tag);
        let start = Instant::now();
        link.transport.send(&message)?;
        await_answer(link.transport, tag, &mut message)?;
        let elapsed = start.elapsed();
        if counts {
            half_round_trips.push(elapsed.as_nanos() as u64 / 2);
        }
        Ok(())
    })?;
    let half_rtt_ns = plan.summary(half_round_trips)?;
    let median = half_rtt_ns.median;
    let measured = Measured::HalfRoundTrip { half_rtt_ns };
    Ok(plan.row(size, losses.total, median, measured))
}
