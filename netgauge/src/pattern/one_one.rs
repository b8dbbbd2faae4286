// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ping-pong between one and one: a message goes and comes back. Half of that time is what one
//! way takes.

use std::io;
use std::time::Instant;

use anyhow::Result;

use super::{Link, Losses, Plan, Two};
use crate::control::Step;
use crate::host::is_timeout;
use crate::report::{Measured, Row};
use crate::summary::mbit_per_s;
use crate::transport::Transport;

/// The pattern.
#[derive(Debug)]
pub(super) struct OneOne;

impl Two for OneOne {
    fn lead(&self, link: &mut Link<'_>, plan: &Plan, rows: &mut dyn FnMut(Row)) -> Result<()> {
        for &size in &plan.sizes {
            rows(lead_size(link, size, plan)?);
        }
        Ok(())
    }

    fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()> {
        let mut message = vec![0; step.size as usize];
        let mut answered = 0;
        loop {
            if answered >= step.rounds {
                // An answer may have got lost, and its message come again.
                if link.is_reliable() || link.wait_for_control()? {
                    return Ok(());
                }
            }
            match link.transport.recv(&mut message) {
                Ok(()) => {
                    link.reply(&message)?;
                    answered += 1;
                }
                Err(error) if is_timeout(&error) && !link.is_reliable() => {
                    if link.control.is_ready(std::time::Duration::ZERO)? {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn lead_size(link: &mut Link<'_>, size: u64, plan: &Plan) -> Result<Row> {
    let rounds = plan.warmup.saturating_add(plan.tests);
    link.begin(Step {
        size,
        chunk: 0,
        rounds,
        tag: 0,
    })?;
    let mut message = vec![0; size as usize];
    let mut half_round_trips = super::times(plan.tests);
    let mut losses = Losses::new(plan.tests);
    let mut tag = 0u8;
    let mut round = 0;
    while round < rounds {
        tag = tag.wrapping_add(1);
        message.fill(tag);
        let start = Instant::now();
        let result = exchange(link.transport, &mut message, tag);
        let elapsed = start.elapsed();
        match result {
            Ok(()) => {
                if round >= plan.warmup {
                    half_round_trips.push(elapsed.as_nanos() as u64 / 2);
                }
                round += 1;
                losses.success();
            }
            Err(error) if is_timeout(&error) && !link.is_reliable() => losses.count(link)?,
            Err(error) => return Err(link.explain(error)),
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

/// Sends the message and waits for the same to come back, passing over late ones.
fn exchange(transport: &mut dyn Transport, message: &mut [u8], tag: u8) -> io::Result<()> {
    transport.send(message)?;
    loop {
        transport.recv(message)?;
        if message.first() == Some(&tag) {
            return Ok(());
        }
    }
}
