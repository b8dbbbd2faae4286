// SPDX-License-Identifier: MIT OR Apache-2.0

//! A mesh is the group of participants (members) in one measurement. The members connect, send
//! messages in rounds, and leave.

use std::time::Duration;

use anyhow::{bail, Context as _, Result};

use super::remotes::Group;
use crate::group::net::exchange::Span;
use crate::group::net::flows::Flows;
use crate::group::net::links::CLOCK;
use crate::group::net::orders::{Answer, Opening, Order};
use crate::group::net::rounds::Series;
use crate::group::net::rpc::{RpcSeries, RpcTimes};
use crate::signals::is_interrupted;

/// After the user has interrupted the run, members have this time to report their results.
const LAST_ROUNDS: Duration = Duration::from_secs(5);

/// Which members of a mesh are connected with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Each member is connected with member 0.
    Star,
    /// Each member is connected with every other member.
    Full,
}

/// The reports of all members on one round.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshRound {
    /// The duration of the round by member 0's clock, nanoseconds.
    pub ns: u64,
    /// For each member: the time from the member's start until it had received everything,
    /// nanoseconds; 0 if it received nothing. If all send to member 0, the list has only member 0's
    /// time.
    pub received_ns: Vec<u64>,
    /// If all send to member 0: Jain's index of fairness, which compares how many bytes had arrived
    /// from each member when the message of the fastest member was complete.
    pub fairness: Option<f64>,
}

/// Members that exchange messages. After a failure, or when they are done, they have to
/// [`leave`](Self::leave) before the next mesh is made.
pub struct Mesh<'a> {
    group: &'a mut Group,
    /// The participants' indices, by member number.
    members: Vec<usize>,
}

impl<'a> Mesh<'a> {
    /// Makes a mesh of the participants `members`. The first of them is member 0, which keeps the
    /// time.
    pub fn new(group: &'a mut Group, members: Vec<usize>) -> Self {
        Self { group, members }
    }

    /// Returns the number of members, not counting member 0.
    pub fn clients(&self) -> usize {
        self.members.len().saturating_sub(1)
    }

    /// Returns the number of members.
    fn count(&self) -> Result<u16> {
        u16::try_from(self.members.len()).context("too many members")
    }

    /// Makes the members connect with each other.
    ///
    /// # Errors
    ///
    /// Fails if a member could not connect, or is gone. The error text names that member.
    pub fn open(&mut self, opening: &Opening, shape: Shape) -> Result<()> {
        let count = self.count()?;
        // If two members have to be connected, the one with the higher number connects to the
        // other.
        let peers = |number: u16| match shape {
            Shape::Star if number != CLOCK => (vec![CLOCK], Vec::new()),
            Shape::Star | Shape::Full => (
                (0..number).collect(),
                (number + 1..count).collect::<Vec<_>>(),
            ),
        };
        let numbered: Vec<(u16, usize)> = (0..).zip(self.members.iter().copied()).collect();
        let listens = |(number, _): &&(u16, usize)| !peers(*number).1.is_empty();
        let listeners = numbered.iter().filter(listens).map(|(_, who)| *who);
        let listeners: Vec<usize> = listeners.collect();
        for who in &listeners {
            self.group.order(*who, Order::Listen(opening.clone()))?;
        }
        let mut endpoints = vec![None; self.members.len()];
        self.group.listen(&listeners, |who, answer| match answer {
            Answer::Listening(place) => {
                let number = self.members.iter().position(|member| *member == who);
                endpoints[number.context("a stranger listens")?] = Some(place);
                Ok(true)
            }
            other => bail!("a participant answered {other:?} to Listen"),
        })?;
        for (number, who) in numbered {
            let (to, accept) = peers(number);
            let connect = to
                .into_iter()
                .map(|peer| {
                    let place = endpoints[usize::from(peer)].clone();
                    Ok((peer, place.context("a member listens nowhere")?))
                })
                .collect::<Result<_>>()?;
            let order = Order::Join {
                opening: opening.clone(),
                number,
                connect,
                accept,
            };
            self.group.order(who, order)?;
        }
        self.group.all_say(&self.members, &Answer::Done, "Join")
    }

    /// Makes the members send to each other in rounds of one size. Returns the completed rounds
    /// even if a later round failed.
    pub fn exchange(&mut self, series: Series, flows: &Flows) -> (Vec<MeshRound>, Result<()>) {
        let mut spans = vec![Vec::new(); self.members.len()];
        let order = Order::Exchange {
            series,
            flows: flows.clone(),
        };
        let result = self.series(&order, |number, answer| {
            if let Answer::Spans(more) = answer {
                spans[number].extend(more);
            }
        });
        // If all send to member 0, only member 0 measures the rounds, so only its results are used.
        let told = match flows {
            Flows::Gather => &spans[..1],
            _ => &spans[..],
        };
        (rounds(told), result)
    }

    /// Makes member 1 send its remote calls to member 0. Returns the results of both members. If a
    /// call fails, returns the results of the calls before the failure.
    pub fn call(&mut self, series: RpcSeries) -> (RpcTimes, Result<()>) {
        let mut all = RpcTimes::default();
        let result = self.series(&Order::Rpc(series), |_, answer| {
            if let Answer::RpcTimes(more) = answer {
                all.times_ns.extend(more.times_ns);
                all.bytes += more.bytes;
                all.ns += more.ns;
                all.longest_pause_ns = all.longest_pause_ns.max(more.longest_pause_ns);
            }
        });
        (all, result)
    }

    /// Sends `order` to each member. For each result that a member sends, calls `take` with the
    /// member's number and the result.
    fn series(&mut self, order: &Order, mut take: impl FnMut(usize, Answer)) -> Result<()> {
        let members = &self.members;
        let number = |who| members.iter().position(|member| *member == who);
        let result = do_series(self.group, members, order, |who, answer| {
            take(number(who).context("a stranger measured")?, answer);
            Ok(())
        });
        if !result.as_ref().is_err_and(is_interrupted) {
            return result;
        }
        let late = dismiss(self.group, members, LAST_ROUNDS, |who, answer| {
            if let Some(number) = number(who) {
                take(number, answer);
            }
        });
        result.and(late)
    }

    /// Makes all members close their connections. A member that does not answer within `patience`
    /// counts as gone.
    ///
    /// # Errors
    ///
    /// Fails with [`Interrupted`](crate::signals::Interrupted) if the user interrupts the run.
    pub fn leave(self, patience: Duration) -> Result<()> {
        dismiss(self.group, &self.members, patience, |_, _| ())
    }
}

/// Makes `members` carry out an order. The first member gets the order when all others are ready.
fn do_series(
    group: &mut Group,
    members: &[usize],
    order: &Order,
    mut take: impl FnMut(usize, Answer) -> Result<()>,
) -> Result<()> {
    let (&clock, others) = members.split_first().context("nobody takes part")?;
    group.all_do(others, order, &Answer::Ready)?;
    group.order(clock, order.clone())?;
    group.listen_to_rounds(members, |who, answer| match answer {
        Answer::Ready if who == clock => Ok(false),
        Answer::Spans(_) | Answer::RpcTimes(_) => take(who, answer).map(|()| false),
        Answer::Done => Ok(true),
        other => bail!("a member said {other:?} in the middle of rounds"),
    })
}

/// Makes `members` stop and close their connections. Calls `take` with each result that a member
/// sends before it stops. A member that does not answer within `patience` counts as gone.
fn dismiss(
    group: &mut Group,
    members: &[usize],
    patience: Duration,
    take: impl FnMut(usize, Answer),
) -> Result<()> {
    for who in members {
        // The error is ignored, because this call fails only for a member that is gone. The
        // connections of such a member are closed already.
        let _ = group.order(*who, Order::Leave);
    }
    group.settle(members, &Answer::Left, patience, take)
}

/// Returns the rounds that all members have reported.
fn rounds(spans: &[Vec<Span>]) -> Vec<MeshRound> {
    let count = spans.iter().map(Vec::len).min().unwrap_or(0);
    (0..count)
        .map(|round| MeshRound {
            ns: spans[0][round].round_ns,
            received_ns: spans.iter().map(|own| own[round].received_ns).collect(),
            fairness: spans[0][round].fairness,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_counts_when_all_members_have_reported_it() {
        let span = |round_ns, received_ns| Span {
            round_ns,
            received_ns,
            fairness: None,
        };
        let spans = [vec![span(9, 0), span(8, 0)], vec![span(1, 5)]];
        let expected = MeshRound {
            ns: 9,
            received_ns: vec![0, 5],
            fairness: None,
        };
        assert_eq!(rounds(&spans), [expected]);
    }
}
