// SPDX-License-Identifier: MIT OR Apache-2.0

//! One measurement among members of a mesh: they connect, send messages in rounds, and leave.

use std::time::Duration;

use anyhow::{bail, Context as _, Result};

use super::exchange::{Span, CLOCK};
use super::orders::{Answer, Opening, Order};
use super::participants::Group;
use super::questions::{Asked, Questioning};
use super::rounds::{Round, Series};
use super::signals::is_interrupted;

/// How long members may take to say what they have measured when the user ends the run.
const LAST_ROUNDS: Duration = Duration::from_secs(5);

/// The connections of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Each with member 0.
    Star,
    /// Each with every other one.
    Full,
}

/// Senders and receivers of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flows {
    /// Member 0 to every other one.
    Scatter,
    /// Each to every other one.
    All,
    /// Each to its partner, by number; one may have none.
    Pairs(Vec<Option<u16>>),
}

impl Flows {
    /// To whom `member` of so many sends.
    fn to(&self, member: u16, members: u16) -> Vec<u16> {
        match self {
            Self::Scatter if member == CLOCK => (1..members).collect(),
            Self::Scatter => Vec::new(),
            Self::All => (0..members).filter(|other| *other != member).collect(),
            Self::Pairs(partners) => partner(partners, member).into_iter().collect(),
        }
    }

    /// From whom it gets something.
    fn from(&self, member: u16, members: u16) -> Vec<u16> {
        match self {
            Self::Scatter if member == CLOCK => Vec::new(),
            Self::Scatter => vec![CLOCK],
            Self::All | Self::Pairs(_) => self.to(member, members),
        }
    }
}

fn partner(partners: &[Option<u16>], member: u16) -> Option<u16> {
    partners.get(usize::from(member)).copied().flatten()
}

/// One round as all saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshRound {
    /// From the first go to the last member's word, by member 0's clock, nanoseconds.
    pub ns: u64,
    /// By member: from its go until it had everything, nanoseconds; 0 where it got nothing.
    pub received_ns: Vec<u64>,
}

/// Members who exchange messages. When it fails or has done what it is for, they have to
/// [`leave`](Self::leave) before the next one.
pub struct Mesh<'a> {
    group: &'a mut Group,
    /// By number.
    members: Vec<usize>,
}

impl<'a> Mesh<'a> {
    /// A mesh of these participants; the first keeps the time.
    pub fn new(group: &'a mut Group, members: Vec<usize>) -> Self {
        Self { group, members }
    }

    /// How many there are beside member 0.
    pub fn clients(&self) -> usize {
        self.members.len().saturating_sub(1)
    }

    /// How many there are.
    fn count(&self) -> Result<u16> {
        u16::try_from(self.members.len()).context("too many members")
    }

    /// Has the members connect with each other.
    ///
    /// # Errors
    ///
    /// One of them could not, or is gone; the text names it.
    pub fn open(&mut self, opening: &Opening, shape: Shape) -> Result<()> {
        let count = self.count()?;
        // Of two that are connected, the one with the higher number has connected.
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

    /// Has the others send to member 0 in rounds of one size. Those that were done are given even if
    /// then one fails.
    pub fn gather(&mut self, series: Series) -> (Vec<Round>, Result<()>) {
        let mut rounds = Vec::new();
        let result = self.series(&|_, _| Order::Gather(series), &mut |_, answer| {
            if let Answer::Rounds(more) = answer {
                rounds.extend(more);
            }
        });
        (rounds, result)
    }

    /// Has them send to each other, as [`gather`](Self::gather).
    pub fn exchange(&mut self, series: Series, flows: &Flows) -> (Vec<MeshRound>, Result<()>) {
        let mut spans = vec![Vec::new(); self.members.len()];
        let order = |number, count| Order::Exchange {
            series,
            to: flows.to(number, count),
            from: flows.from(number, count),
        };
        let result = self.series(&order, &mut |number, answer| {
            if let Answer::Spans(more) = answer {
                spans[number].extend(more);
            }
        });
        (rounds(&spans), result)
    }

    /// Has member 1 ask member 0, as [`gather`](Self::gather): what the two have measured.
    pub fn ask(&mut self, what: Questioning) -> (Asked, Result<()>) {
        let mut all = Asked::default();
        let order = |_, _| Order::Ask(what);
        let result = self.series(&order, &mut |_, answer| {
            if let Answer::Asked(more) = answer {
                all.times_ns.extend(more.times_ns);
                all.bytes += more.bytes;
                all.ns += more.ns;
                all.longest_pause_ns = all.longest_pause_ns.max(more.longest_pause_ns);
            }
        });
        (all, result)
    }

    /// Gives each its order, by its number and how many there are; `take` is given what they have
    /// measured, and who.
    fn series(
        &mut self,
        order: &dyn Fn(u16, u16) -> Order,
        take: &mut dyn FnMut(usize, Answer),
    ) -> Result<()> {
        let result = self.do_series(order, take);
        if !result.as_ref().is_err_and(is_interrupted) {
            return result;
        }
        let number = |who| self.members.iter().position(|member| *member == who);
        let late = dismiss(self.group, &self.members, LAST_ROUNDS, |who, answer| {
            if let Some(number) = number(who) {
                take(number, answer);
            }
        });
        result.and(late)
    }

    fn do_series(
        &mut self,
        order: &dyn Fn(u16, u16) -> Order,
        take: &mut dyn FnMut(usize, Answer),
    ) -> Result<()> {
        let count = self.count()?;
        let (&clock, others) = self.members.split_first().context("nobody takes part")?;
        for (number, who) in (1..).zip(others) {
            self.group.order(*who, order(number, count))?;
        }
        self.group.all_say(others, &Answer::Ready, "its order")?;
        self.group.order(clock, order(CLOCK, count))?;
        let number = |who| self.members.iter().position(|member| *member == who);
        self.group
            .listen_to_rounds(&self.members, |who, answer| match answer {
                Answer::Ready if who == clock => Ok(false),
                Answer::Rounds(_) | Answer::Spans(_) | Answer::Asked(_) => {
                    take(number(who).context("a stranger measured")?, answer);
                    Ok(false)
                }
                Answer::Done => Ok(true),
                other => bail!("a member said {other:?} in the middle of rounds"),
            })
    }

    /// Has all close their connections. Who does not answer within `patience` counts as gone.
    ///
    /// # Errors
    ///
    /// [`Interrupted`](super::signals::Interrupted) by the user.
    pub fn leave(self, patience: Duration) -> Result<()> {
        dismiss(self.group, &self.members, patience, |_, _| ())
    }
}

/// Has `members` close their connections, whatever they are at; `take` is given what they still
/// have to say. Who does not answer within `patience` counts as gone.
fn dismiss(
    group: &mut Group,
    members: &[usize],
    patience: Duration,
    take: impl FnMut(usize, Answer),
) -> Result<()> {
    for who in members {
        // One that is gone has left already.
        let _ = group.order(*who, Order::Leave);
    }
    group.settle(members, &Answer::Left, patience, take)
}

/// The rounds of which every member has told.
fn rounds(spans: &[Vec<Span>]) -> Vec<MeshRound> {
    let count = spans.iter().map(Vec::len).min().unwrap_or(0);
    (0..count)
        .map(|round| MeshRound {
            ns: spans[0][round].round_ns,
            received_ns: spans.iter().map(|own| own[round].received_ns).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_sends_another_gets() {
        let pairs = Flows::Pairs(vec![Some(2), None, Some(0), Some(4), Some(3)]);
        for (flows, total) in [(Flows::Scatter, 4), (Flows::All, 20), (pairs, 4)] {
            let mut sent: Vec<_> = (0..5)
                .flat_map(|from| flows.to(from, 5).into_iter().map(move |to| (from, to)))
                .collect();
            let mut got: Vec<_> = (0..5)
                .flat_map(|to| flows.from(to, 5).into_iter().map(move |from| (from, to)))
                .collect();
            sent.sort_unstable();
            got.sort_unstable();
            assert_eq!(sent, got);
            assert_eq!(sent.len(), total);
            assert!(sent.iter().all(|(from, to)| from != to));
        }
    }

    #[test]
    fn a_round_counts_when_all_have_told_of_it() {
        let span = |round_ns, received_ns| Span {
            round_ns,
            received_ns,
        };
        let spans = [vec![span(9, 0), span(8, 0)], vec![span(1, 5)]];
        let expected = MeshRound {
            ns: 9,
            received_ns: vec![0, 5],
        };
        assert_eq!(rounds(&spans), [expected]);
    }
}
