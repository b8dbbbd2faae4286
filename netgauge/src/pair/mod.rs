// SPDX-License-Identifier: MIT OR Apache-2.0

//! Patterns of a client and a server: in what order messages go, and what is measured of it.
//!
//! A new one is a file here with a [`PairPattern`], and its entry in
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

/// The work of a client and a server.
pub trait PairPattern: Sync + fmt::Debug {
    /// Can it measure this kind of transport?
    ///
    /// # Errors
    ///
    /// It says why not, and which it can.
    fn suits(&self, _kind: &Kind) -> Result<()> {
        Ok(())
    }

    /// The client's part: measures, and hands each row over as soon as it is known.
    ///
    /// # Errors
    ///
    /// The transport or the peer failed; [`PeerGone`] if the peer is no more.
    fn lead(&self, link: &mut Link<'_>, plan: &Plan, rows: &mut dyn FnMut(Row)) -> Result<()>;

    /// The server's part of one step. Returns when the step is done, or the client has something
    /// else to say on the control connection.
    ///
    /// # Errors
    ///
    /// The transport failed, or the step is none of this pattern's.
    fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()>;
}

/// The measurement that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Sizes in bytes, ascending.
    pub sizes: Vec<u64>,
    /// Tests per size.
    pub tests: u32,
    /// Rounds before the tests of each size, not counted.
    pub warmup: u32,
    /// Which percentiles of the times are wanted.
    pub percentiles: Vec<Percent>,
    /// Options of single patterns.
    pub args: PatternArgs,
}

impl Plan {
    /// The tests, and the rounds before them.
    pub fn rounds(&self) -> u32 {
        self.warmup.saturating_add(self.tests)
    }

    /// Measures all sizes, and hands each row over as soon as it is known.
    fn each_size(
        &self,
        rows: &mut dyn FnMut(Row),
        mut measure: impl FnMut(u64) -> Result<Row>,
    ) -> Result<()> {
        self.sizes.iter().try_for_each(|size| {
            rows(measure(*size)?);
            Ok(())
        })
    }

    /// Does `exchange` with a new tag until it has succeeded as often as planned; its last argument
    /// tells whether the time counts.
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

    /// The row of one size with its throughput by a time, nanoseconds.
    fn row(&self, size: u64, lost: u32, ns: u64, measured: Measured) -> Row {
        Row {
            size,
            tests: self.tests,
            lost,
            mbit_per_s: mbit_per_s(size, ns),
            measured,
        }
    }

    /// Sums up times that were measured by this plan, nanoseconds.
    ///
    /// # Errors
    ///
    /// There are none.
    pub fn summary(&self, times: Vec<u64>) -> Result<Summary> {
        Summary::with(times, &self.percentiles).context("a plan without tests")
    }
}

/// Times for which room is reserved before the clock runs.
const RESERVED: u32 = 1 << 20;

/// Room for the times of so many tests, so that none is moved between two of them; of a very large
/// number as they come, since nobody may have that much memory.
fn times(tests: u32) -> Vec<u64> {
    Vec::with_capacity(tests.min(RESERVED) as usize)
}

/// The needs of patterns that open connections of their own.
#[derive(Clone, Debug)]
pub struct Streams {
    /// How to open them.
    pub kind: &'static dyn StreamKind,
    /// The transport's knowledge for it.
    pub context: Context,
}

impl Streams {
    /// Those of `kind`; `None` if it is no stream transport.
    pub fn of(kind: &'static Kind, context: &Context) -> Option<Self> {
        kind.streams.map(|kind| Self {
            kind,
            context: context.of_others(),
        })
    }
}

/// How long to wait for the peer's word on a failure that this side saw first.
const LAST_WORD: Duration = Duration::from_secs(1);

/// A connected pair: the transport, and the control connection beside it.
pub struct Link<'a> {
    /// The measurement.
    pub transport: &'a mut dyn Transport,
    /// The connection to agree by.
    pub control: &'a mut Control,
    /// The way to further connections, if this is a stream transport.
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

    /// Does the transport lose nothing?
    fn is_reliable(&self) -> bool {
        self.transport.max_datagram().is_none()
    }

    /// Does an error say that something got lost, or found no room?
    fn is_loss(&self, error: &io::Error) -> bool {
        is_timeout(error) && !self.is_reliable()
    }

    /// Receives the follower's next message; `false` if the leader has something else to say.
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

    /// Sends an answer of the follower's. Where datagrams find no room in time it is lost like any
    /// other, and the leader counts it.
    fn reply(&mut self, answer: &[u8]) -> io::Result<()> {
        match self.transport.send(answer) {
            Err(error) if self.is_loss(&error) => Ok(()),
            result => result,
        }
    }

    /// Waits until there is data, or a word on the control connection: `true` for the latter.
    fn wait_for_control(&self) -> Result<bool> {
        if self.control.is_ready(Duration::ZERO)? {
            return Ok(true);
        }
        let [data, control] = wait_readable([self.transport.as_fd(), self.control_fd()], None)?;
        Ok(control && !data)
    }

    fn control_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&*self.control)
    }

    /// The error of a failed call on the transport, with the peer's word on it if there is one.
    fn explain(&mut self, error: io::Error) -> anyhow::Error {
        let seen = match is_timeout(&error) {
            true => anyhow!("nothing came for too long: is the link up?"),
            false => error.into(),
        };
        self.told_or(seen)
    }

    /// The peer's word on a failure, or what this side has seen of it.
    fn told_or(&mut self, seen: anyhow::Error) -> anyhow::Error {
        if !self.control.is_ready(LAST_WORD).unwrap_or(false) {
            return seen;
        }
        match self.control.answer() {
            Err(told) => told,
            Ok(other) => seen.context(format!("the peer said {other:?}")),
        }
    }

    /// The meaning of a lost message: an error once the peer is known to have failed.
    fn check_peer(&mut self) -> Result<()> {
        if !self.control.is_ready(Duration::ZERO)? {
            return Ok(());
        }
        let said = self.control.answer()?;
        bail!("the peer said {said:?} in the middle of a step")
    }
}

/// The unit of loss: the part that is repeated as a whole.
#[derive(Clone, Copy)]
enum Lost {
    /// A message, or its answer.
    Message,
    /// One of several messages that are answered together.
    Train,
    /// A part of a large message.
    Transfer,
}

/// Counts what got lost, and says when to give up.
struct Losses {
    what: Lost,
    total: u32,
    in_a_row: u32,
    limit: u32,
}

impl Losses {
    /// So many losses one after the other are no accident.
    const IN_A_ROW: u32 = 5;

    /// For messages.
    fn new(tests: u32) -> Self {
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

    /// Did it succeed? What got lost is counted.
    fn judge(&mut self, link: &mut Link<'_>, result: io::Result<()>) -> Result<bool> {
        match result {
            Ok(()) => self.in_a_row = 0,
            Err(error) if link.is_loss(&error) => {
                self.count(link)?;
                return Ok(false);
            }
            Err(error) => return Err(link.explain(error)),
        }
        Ok(true)
    }

    fn count(&mut self, link: &mut Link<'_>) -> Result<()> {
        self.total += 1;
        self.in_a_row += 1;
        link.check_peer()?;
        match self.hopeless() {
            Some(reason) => bail!(reason),
            None => Ok(()),
        }
    }

    /// Why it is no use to go on, if it is not.
    fn hopeless(&self) -> Option<String> {
        let (total, in_a_row) = (self.total, self.in_a_row);
        // Of what goes in parts, most may have come.
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

/// Did the run end because the peer is no more?
pub fn is_peer_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<PeerGone>().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_too_often_is_called_by_its_name() {
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
    fn no_number_of_tests_takes_all_memory_beforehand() {
        assert!(times(100).capacity() >= 100);
        // All that this could ask for would be 32 GiB.
        assert!(times(u32::MAX).capacity() < 1 << 24);
    }
}
