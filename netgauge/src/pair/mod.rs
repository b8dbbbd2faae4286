// SPDX-License-Identifier: MIT OR Apache-2.0

//! Patterns between a client and a server: the order of the messages, and the results that a
//! pattern measures.
//!
//! A new pattern needs a file here with a [`PairPattern`], and an entry in
//! [`PATTERNS`](crate::registry::PATTERNS).

mod answering;
pub mod args;
pub(crate) mod bulk;
pub mod client;
pub(crate) mod flood;
pub(crate) mod logp;
#[cfg(test)]
mod lossy_tests;
pub(crate) mod one_one;
pub(crate) mod recovery;
pub(crate) mod set_up;

use std::fmt;
use std::io;
use std::time::Duration;

use anyhow::{anyhow, bail, Context as _, Result};

use crate::control::{Control, Message, PeerGone, Step};
use crate::host::{is_timeout, wait_readable};
use crate::report::{Measured, Row};
use crate::summary::{mbit_per_s, Percent, Summary};
use crate::transport::kind::Kind;
use crate::transport::streams::StreamKind;
use crate::transport::{Context, Transport};
use args::PatternArgs;

/// The code of a pattern, for the client and the server.
pub trait PairPattern: Sync + fmt::Debug {
    /// Checks that the pattern can measure this kind of transport.
    ///
    /// # Errors
    ///
    /// Fails if the pattern cannot measure this kind. The error text then lists the transports that
    /// the pattern can measure.
    fn suits(&self, _kind: &Kind) -> Result<()> {
        Ok(())
    }

    /// Does the client's part: measures, and calls `rows` with each row as soon as the row is
    /// complete.
    ///
    /// # Errors
    ///
    /// Fails if the transport or the peer failed. The error is [`PeerGone`] if the peer is gone.
    fn lead(&self, link: &mut Link<'_>, plan: &Plan, rows: &mut dyn FnMut(Row)) -> Result<()>;

    /// Does the server's part of one step. Returns when the step is done, or when the client sends
    /// another control message.
    ///
    /// # Errors
    ///
    /// Fails if the transport failed, or if the step does not fit this pattern.
    fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()>;
}

/// The sizes, tests and options with which a pattern is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The message sizes in bytes, ascending.
    pub sizes: Vec<u64>,
    /// The number of tests per size.
    pub tests: u32,
    /// The number of warm-up rounds before the tests of each size. Their times do not count.
    pub warmup: u32,
    /// The percentiles of the times to report.
    pub percentiles: Vec<Percent>,
    /// Options that only some patterns have.
    pub args: PatternArgs,
}

impl Plan {
    /// Returns the number of rounds: the warm-up rounds and the tests.
    pub fn rounds(&self) -> u32 {
        self.warmup.saturating_add(self.tests)
    }

    /// Measures all sizes, and calls `rows` with each row as soon as the row is complete.
    pub(crate) fn each_size(
        &self,
        rows: &mut dyn FnMut(Row),
        mut measure: impl FnMut(u64) -> Result<Row>,
    ) -> Result<()> {
        self.sizes.iter().try_for_each(|size| {
            rows(measure(*size)?);
            Ok(())
        })
    }

    /// Calls `exchange`, each time with a new tag, until it has succeeded as often as planned. The
    /// last argument of `exchange` is false in warm-up rounds, whose times do not count.
    fn run(
        &self,
        link: &mut Link<'_>,
        losses: &mut Losses,
        mut exchange: impl FnMut(&mut Link<'_>, u8, bool) -> io::Result<()>,
    ) -> Result<()> {
        let (mut tag, mut round) = (0u8, 0);
        while round < self.rounds() {
            tag = tag.wrapping_add(1);
            let result = exchange(link, tag, round >= self.warmup);
            round += u32::from(losses.judge(link, result)?);
        }
        Ok(())
    }

    /// Returns the row of one size, with the throughput of `size` bytes in `ns` nanoseconds.
    pub(crate) fn row(&self, size: u64, lost: u32, ns: u64, measured: Measured) -> Row {
        Row {
            size,
            tests: self.tests,
            lost,
            mbit_per_s: mbit_per_s(size, ns),
            measured,
        }
    }

    /// Summarises measured times, in nanoseconds, with the percentiles of this plan.
    ///
    /// # Errors
    ///
    /// Fails if there are no times.
    pub fn summary(&self, times: Vec<u64>) -> Result<Summary> {
        Summary::with(times, &self.percentiles).context("a plan without tests")
    }
}

/// Before a measurement, memory is reserved for the times of at most this number of tests.
const RESERVED: u32 = 1 << 20;

/// Returns a vector for the times of `tests` tests. Memory is reserved for up to [`RESERVED`]
/// times, so that the vector does not move between two tests. With more times, the vector grows,
/// because memory for all planned times may not exist.
pub(crate) fn times(tests: u32) -> Vec<u64> {
    Vec::with_capacity(tests.min(RESERVED) as usize)
}

/// The kind, addresses and options of connections that a pattern opens itself.
#[derive(Clone, Debug)]
pub struct Streams {
    /// How to open connections.
    pub kind: &'static dyn StreamKind,
    /// Options and addresses of the connections' sockets.
    pub context: Context,
}

impl Streams {
    /// Returns how a pattern opens connections of `kind`. Returns `None` if `kind` is not a stream
    /// transport.
    pub fn of(kind: &'static Kind, context: &Context) -> Option<Self> {
        kind.streams.map(|kind| Self {
            kind,
            context: context.of_others(),
        })
    }
}

/// The time to wait for the peer's message about a failure that this side saw first.
const PEER_MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connected pair: the transport, and the control connection.
pub struct Link<'a> {
    /// The transport to measure.
    pub transport: &'a mut dyn Transport,
    /// The control connection.
    pub control: &'a mut Control,
    /// How to open further connections, if the transport is a stream transport.
    pub streams: Option<Streams>,
}

impl Link<'_> {
    /// Announces a step and waits until the peer is ready for it.
    fn begin(&mut self, step: Step) -> Result<()> {
        self.control.send(&Message::Step(step))?;
        match self.control.answer()? {
            Message::Ready => {}
            other => bail!("the peer answered {other:?} to a step"),
        }
        Ok(self.transport.discard_pending()?)
    }

    /// Returns whether the transport is lossless.
    fn is_reliable(&self) -> bool {
        self.transport.max_datagram().is_none()
    }

    /// Returns whether `error` means that a datagram was lost, or that there was no room for it.
    fn is_loss(&self, error: &io::Error) -> bool {
        is_timeout(error) && !self.is_reliable()
    }

    /// Receives the next message of the leader. Returns `false` if the leader has sent a control
    /// message instead.
    fn receive(&mut self, message: &mut [u8]) -> io::Result<bool> {
        loop {
            match self.transport.recv(message) {
                Err(error) if self.is_loss(&error) => {
                    if self.control.is_ready(Duration::ZERO)? {
                        return Ok(false);
                    }
                }
                result => return result.map(|()| true),
            }
        }
    }

    /// Sends an answer of the follower. If there is no room in time, the answer is lost, which the
    /// leader counts like any other loss.
    fn reply(&mut self, answer: &[u8]) -> io::Result<()> {
        match self.transport.send(answer) {
            Err(error) if self.is_loss(&error) => Ok(()),
            result => result,
        }
    }

    /// Waits for data or a control message. Returns `true` for a control message, and `false` if
    /// data arrived before it.
    fn wait_for_control(&mut self) -> Result<bool> {
        if self.control.is_ready(Duration::ZERO)? {
            return Ok(true);
        }
        // poll(2) reports a completion like data. A receive call would then wait for data of which
        // none comes, for ever if calls have no timeouts.
        self.transport.settle()?;
        let [data, control] = wait_readable([self.transport.as_fd(), self.control_fd()], None)?;
        Ok(control && !data)
    }

    fn control_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&*self.control)
    }

    /// Returns the error for a failed call on the transport. If the peer has sent a message about
    /// the failure, returns that message instead.
    fn explain(&mut self, error: io::Error) -> anyhow::Error {
        let seen = match is_timeout(&error) {
            true => anyhow!("nothing came for too long: is the link up?"),
            false => error.into(),
        };
        self.told_or(seen)
    }

    /// Returns the peer's message about a failure if there is one, and otherwise `seen`, this
    /// side's error.
    fn told_or(&mut self, seen: anyhow::Error) -> anyhow::Error {
        if !self.control.is_ready(PEER_MESSAGE_TIMEOUT).unwrap_or(false) {
            return seen;
        }
        match self.control.answer() {
            Err(told) => told,
            Ok(other) => seen.context(format!("the peer said {other:?}")),
        }
    }

    /// Fails if the peer has failed. Called after a message was lost.
    fn check_peer(&mut self) -> Result<()> {
        if !self.control.is_ready(Duration::ZERO)? {
            return Ok(());
        }
        let said = self.control.answer()?;
        bail!("the peer said {said:?} in the middle of a step")
    }
}

/// The unit that is repeated as a whole after a loss.
#[derive(Clone, Copy)]
enum Lost {
    /// A message, or its answer.
    Message,
    /// A train of messages that are answered together.
    Train,
    /// A large message that is several datagrams.
    Transfer,
}

/// A counter of losses, which decides when to end the run.
pub(crate) struct Losses {
    what: Lost,
    /// The number of losses so far.
    pub(crate) total: u32,
    in_a_row: u32,
    limit: u32,
}

impl Losses {
    /// The number of successive losses that ends the run.
    const IN_A_ROW: u32 = 5;

    /// Returns a counter of lost messages, for a step of `tests` tests.
    pub(crate) fn new(tests: u32) -> Self {
        Self::of(Lost::Message, tests)
    }

    fn of(what: Lost, tests: u32) -> Self {
        Self {
            what,
            total: 0,
            in_a_row: 0,
            limit: tests.saturating_add(20),
        }
    }

    /// Returns whether the exchange with this result succeeded. If the exchange was lost, counts
    /// the loss and returns `false`.
    fn judge(&mut self, link: &mut Link<'_>, result: io::Result<()>) -> Result<bool> {
        match result {
            Ok(()) => self.arrived(),
            Err(error) if link.is_loss(&error) => {
                self.count(link)?;
                return Ok(false);
            }
            Err(error) => return Err(link.explain(error)),
        }
        Ok(true)
    }

    fn count(&mut self, link: &mut Link<'_>) -> Result<()> {
        link.check_peer()?;
        self.lost()
    }

    /// Records that an exchange succeeded, which ends a series of losses.
    pub(crate) fn arrived(&mut self) {
        self.in_a_row = 0;
    }

    /// Counts a loss. Fails if so much was lost that the run cannot go on.
    pub(crate) fn lost(&mut self) -> Result<()> {
        self.total += 1;
        self.in_a_row += 1;
        match self.hopeless() {
            Some(reason) => bail!(reason),
            None => Ok(()),
        }
    }

    /// Returns the reason to end the run, if there is one.
    fn hopeless(&self) -> Option<String> {
        let (total, in_a_row) = (self.total, self.in_a_row);
        // A train or transfer counts as lost even if only a small part of it was lost. So the error
        // suggests a smaller size.
        let parts = match self.what {
            Lost::Message => None,
            Lost::Train => Some("trains of messages"),
            Lost::Transfer => Some("transfers"),
        };
        Some(match parts {
            None if in_a_row >= Self::IN_A_ROW => {
                format!("no answer to {in_a_row} messages in a row: is the link up on both hosts?")
            }
            Some(parts) if in_a_row >= Self::IN_A_ROW => {
                format!("{in_a_row} {parts} in a row lost something: lower -s, or the link is down")
            }
            _ if total < self.limit => return None,
            None => format!("{total} messages got lost: the link is too lossy to measure"),
            Some(parts) => format!(
                "{total} {parts} lost something: lower -s, or the link is too lossy to measure"
            ),
        })
    }
}

/// Returns whether the run ended because the peer is gone.
pub fn is_peer_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<PeerGone>().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_losses_name_the_lost_unit() {
        for (what, in_a_row, in_all) in [
            (
                Lost::Message,
                "no answer to 5 messages",
                "25 messages got lost",
            ),
            (
                Lost::Train,
                "5 trains of messages in a row lost something: lower -s",
                "25 trains of messages lost something: lower -s",
            ),
            (
                Lost::Transfer,
                "5 transfers in a row lost something: lower -s",
                "25 transfers lost something: lower -s",
            ),
        ] {
            let mut losses = Losses::of(what, 5);
            assert_eq!(losses.hopeless(), None);
            losses.total = 24;
            losses.in_a_row = 4;
            assert_eq!(losses.hopeless(), None);
            losses.in_a_row = 5;
            assert!(losses.hopeless().unwrap().contains(in_a_row));
            losses.in_a_row = 0;
            losses.total = 25;
            assert!(losses.hopeless().unwrap().contains(in_all));
        }
    }

    #[test]
    fn memory_is_reserved_for_a_limited_number_of_times() {
        assert!(times(100).capacity() >= 100);
        // Memory for the times of `u32::MAX` tests would be 32 GiB, so only a part of it is
        // reserved.
        assert!(times(u32::MAX).capacity() < 1 << 24);
    }
}
