// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ping-pong between one and one: a message goes and comes back. Half of that time is what one
//! way takes.

use std::time::Instant;

use anyhow::Result;

use super::answering::{answer_messages, await_answer};
use super::{Link, Losses, Plan, Two};
use crate::control::Step;
use crate::report::{Measured, Row};
use crate::summary::mbit_per_s;

/// The pattern.
#[derive(Debug)]
pub(super) struct OneOne;

impl Two for OneOne {
    fn lead(&self, link: &mut Link<'_>, plan: &Plan, rows: &mut dyn FnMut(Row)) -> Result<()> {
        plan.each_size(rows, |size| lead_size(link, size, plan))
    }

    fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()> {
        let size = step.size as usize;
        answer_messages(link, step.rounds, (size, 1), size)
    }
}

fn lead_size(link: &mut Link<'_>, size: u64, plan: &Plan) -> Result<Row> {
    let rounds = plan.rounds();
    link.begin(Step::of(size, rounds))?;
    let mut message = vec![0; size as usize];
    let mut half_round_trips = super::times(plan.tests);
    let mut losses = Losses::new(plan.tests);
    let mut tag = 0u8;
    let mut round = 0;
    while round < rounds {
        tag = tag.wrapping_add(1);
        message.fill(tag);
        let start = Instant::now();
        let sent = link.transport.send(&message);
        let result = sent.and_then(|()| await_answer(link.transport, tag, &mut message));
        let elapsed = start.elapsed();
        if losses.judge(link, result)? {
            if round >= plan.warmup {
                half_round_trips.push(elapsed.as_nanos() as u64 / 2);
            }
            round += 1;
        }
    }
    let half_rtt_ns = plan.summary(half_round_trips)?;
    Ok(Row {
        size,
        tests: plan.tests,
        lost: losses.total,
        mbit_per_s: mbit_per_s(size, half_rtt_ns.median),
        measured: Measured::HalfRoundTrip { half_rtt_ns },
    })
}
