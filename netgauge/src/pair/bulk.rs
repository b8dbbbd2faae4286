// SPDX-License-Identifier: MIT OR Apache-2.0

//! A long stream in one direction, which measures the cost of a byte.
//!
//! Streams are written in blocks, of 64 KiB by default. Datagrams are as large as possible. At most
//! [`WINDOW`] datagrams are unconfirmed, so that the receiver's buffer does not overflow. The
//! measured time runs from the first write to the receiver's confirmation of the last byte.

use std::io;
use std::time::Instant;

use anyhow::{ensure, Result};

use super::args::MOST_BLOCK;
use super::{Link, Losses, Lost, PairPattern, Plan};
use crate::control::Step;
use crate::report::{Measured, Row};
use crate::transport::Transport;

/// Length of one write to a stream, in bytes, if option `--block` is not given. It is also the
/// upper limit of a datagram.
const BLOCK: usize = 64 * 1024;
/// Number of datagrams that the receiver confirms together, with one byte.
const CREDIT: u64 = 16;
/// Number of datagrams that may be unconfirmed.
const WINDOW: u64 = 2 * CREDIT;

/// The pattern `bulk`, described above.
#[derive(Debug)]
pub(crate) struct Bulk;

impl PairPattern for Bulk {
    fn lead(&self, link: &mut Link<'_>, plan: &Plan, rows: &mut dyn FnMut(Row)) -> Result<()> {
        plan.each_size(rows, |size| lead_size(link, size, plan))
    }

    fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()> {
        let chunk = step.chunk as usize;
        ensure!(
            (1..=MOST_BLOCK).contains(&chunk),
            "no block size for bulk: {chunk}"
        );
        let transfer = Transfer {
            size: step.size,
            chunk,
            tag: step.tag,
        };
        let mut buffer = vec![0; chunk];
        for _ in 0..step.rounds {
            // `false` means that the sender has abandoned this transfer and has sent a control
            // message.
            if !transfer.receive(link, &mut buffer)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn lead_size(link: &mut Link<'_>, size: u64, plan: &Plan) -> Result<Row> {
    let block = plan.args.block.map_or(BLOCK, |block| block as usize);
    let chunk = match link.transport.max_datagram() {
        Some(most) => most.min(BLOCK),
        None => block,
    };
    let rounds = plan.warmup.min(1).saturating_add(plan.tests);
    let mut times = super::times(plan.tests);
    let mut losses = Losses::of(Lost::Transfer, plan.tests);
    let mut tag = 0u8;
    let mut round = 0;
    while round < rounds {
        tag = tag.wrapping_add(1);
        // Each transfer is a step of its own, so that a transfer that lost a datagram can be
        // repeated as a new step.
        link.begin(Step {
            size,
            chunk: chunk as u32,
            rounds: 1,
            tag,
        })?;
        let transfer = Transfer { size, chunk, tag };
        let block = vec![tag; chunk];
        let start = Instant::now();
        let result = transfer.send(link.transport, &block);
        let elapsed = start.elapsed();
        if losses.judge(link, result)? {
            if round >= plan.warmup.min(1) {
                times.push(elapsed.as_nanos() as u64);
            }
            round += 1;
        }
    }
    let total_ns = plan.summary(times)?;
    let ns_per_byte = total_ns.median as f64 / size as f64;
    let median = total_ns.median;
    let measured = Measured::Bulk {
        total_ns,
        ns_per_byte,
    };
    Ok(plan.row(size, losses.total, median, measured))
}

/// A stream, split into messages of `chunk` bytes. The last message may be shorter.
struct Transfer {
    size: u64,
    chunk: usize,
    /// The value of each byte of the stream, and of its confirmations.
    tag: u8,
}

impl Transfer {
    fn send(&self, transport: &mut dyn Transport, block: &[u8]) -> io::Result<()> {
        let window = transport.max_datagram().map(|_| WINDOW);
        let (mut left, mut sent, mut confirmed) = (self.size, 0u64, 0u64);
        while left > 0 {
            let length = left.min(self.chunk as u64) as usize;
            transport.send(&block[..length])?;
            left -= length as u64;
            sent += 1;
            if window.is_some_and(|window| sent - confirmed >= window) {
                self.await_confirmation(transport)?;
                confirmed += CREDIT;
            }
        }
        if window.is_some() {
            for _ in confirmed / CREDIT..sent / CREDIT {
                self.await_confirmation(transport)?;
            }
        }
        self.await_confirmation(transport)
    }

    fn await_confirmation(&self, transport: &mut dyn Transport) -> io::Result<()> {
        let mut confirmation = [!self.tag];
        while confirmation != [self.tag] {
            transport.recv(&mut confirmation)?;
        }
        Ok(())
    }

    /// Receives and confirms the transfer. Returns `false` if the sender has abandoned it.
    fn receive(&self, link: &mut Link<'_>, buffer: &mut [u8]) -> io::Result<bool> {
        let reliable = link.is_reliable();
        let (mut left, mut received) = (self.size, 0u64);
        while left > 0 {
            let length = left.min(self.chunk as u64) as usize;
            if !link.receive(&mut buffer[..length])? {
                return Ok(false);
            }
            // A datagram with a different tag is late: it belongs to an abandoned transfer.
            if buffer[0] != self.tag {
                continue;
            }
            left -= length as u64;
            received += 1;
            if !reliable && received % CREDIT == 0 {
                link.reply(&[self.tag])?;
            }
        }
        link.reply(&[self.tag])?;
        Ok(true)
    }
}
