// SPDX-License-Identifier: GPL-2.0-only

//! Sends datagrams and answers them; a datagram or its answer may be lost.

use std::sync::atomic::Ordering::Relaxed;

use fastrand::Rng;

use crate::traffic::Ledger;
use guest::lab::EDP_MAX;
use guest::prelude::*;

/// The largest number of datagrams in flight at a time. All of them fit into a receive buffer, so
/// that only the link can lose a datagram.
const BATCH: u64 = 16;

/// How long to wait for an answer; an answer that comes later is read by the next call.
const ANSWER: Duration = Duration::from_millis(200);

/// The interval at which the threads check whether to stop.
const MOMENT: Duration = Duration::from_millis(50);

/// Sends every datagram back with its bytes inverted, until `stop` is set.
///
/// # Errors
/// If a call fails.
pub fn echo(socket: &Socket, stop: &AtomicBool, ledger: &Ledger) -> Result<()> {
    let mut bytes = [0; EDP_MAX];
    while !stop.load(Relaxed) {
        if socket.poll(libc::POLLIN, MOMENT)? == 0 {
            continue;
        }
        let (length, from) = socket
            .receive_from(&mut bytes, libc::MSG_DONTWAIT)
            .context("receiving a datagram")?;
        for byte in &mut bytes[..length] {
            *byte = !*byte;
        }
        socket
            .send_to_bytes(&bytes[..length], 0, &from)
            .context("answering a datagram")?;
        ledger.datagrams.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// A client of [`echo`].
#[derive(Debug)]
pub struct Caller<'a> {
    socket: &'a Socket,
    seed: u64,
    next: u64,
}

impl<'a> Caller<'a> {
    /// Makes a client from a socket that is connected to the server's socket.
    pub fn new(socket: &'a Socket, seed: u64) -> Self {
        Self {
            socket,
            seed,
            next: 0,
        }
    }

    /// Makes the datagram with this number. The datagram begins with the number, which also
    /// determines the datagram's length and other bytes.
    fn datagram(&self, number: u64) -> Vec<u8> {
        let mut rng = Rng::with_seed(self.seed ^ number);
        let mut bytes = vec![0; rng.usize(8..=EDP_MAX)];
        rng.fill(&mut bytes);
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    /// Sends some datagrams and waits for their answers.
    ///
    /// # Errors
    /// If a call fails, or an answer does not match a datagram that was sent.
    pub fn call(&mut self, rng: &mut Rng, ledger: &Ledger) -> Result<()> {
        let count = rng.u64(1..=BATCH);
        for _ in 0..count {
            let datagram = self.datagram(self.next);
            self.socket
                .send(&datagram, 0)
                .with_context(|| format!("sending datagram {}", self.next))?;
            self.next += 1;
        }
        let mut bytes = [0; EDP_MAX];
        for _ in 0..count {
            if self.socket.poll(libc::POLLIN, ANSWER)? == 0 {
                break;
            }
            let length = self
                .socket
                .receive(&mut bytes, libc::MSG_DONTWAIT)
                .context("receiving an answer")?;
            self.check(&mut bytes[..length])?;
            ledger.datagrams.fetch_add(1, Relaxed);
            ledger.bytes.fetch_add(2 * length as u64, Relaxed);
        }
        Ok(())
    }

    fn check(&self, answer: &mut [u8]) -> Result<()> {
        for byte in answer.iter_mut() {
            *byte = !*byte;
        }
        let number = answer
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .with_context(|| format!("an answer of {} bytes", answer.len()))?;
        ensure!(
            number < self.next,
            "an answer to datagram {number}, which was never sent"
        );
        ensure!(
            *answer == *self.datagram(number),
            "the answer to datagram {number} is wrong"
        );
        Ok(())
    }

    /// Returns the number of datagrams that were sent.
    pub fn sent(&self) -> u64 {
        self.next
    }
}
