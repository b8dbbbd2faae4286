// SPDX-License-Identifier: MIT OR Apache-2.0

//! One measurement among members of a mesh: they connect, exchange messages in rounds, and leave.

use std::time::Duration;

use anyhow::{bail, Context as _, Result};

use super::exchange::{Span, CLOCK};
use super::meeting::{dismiss, LAST_ROUNDS};
use super::orders::{Answer, Opening, Order};
use super::participants::Group;
use super::rounds::Series;
use super::signals::is_interrupted;

/// Who is connected with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Each with member 0.
    Star,
    /// Each with every other one.
    Full,
}

/// Who sends to whom in a round.
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

    /// The members, with their numbers.
    fn numbered(&self) -> Vec<(u16, usize)> {
        (0..).zip(self.members.iter().copied()).collect()
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
        let numbered = self.numbered();
        let listeners: Vec<usize> = numbered
            .iter()
            .filter(|(number, _)| !peers(*number).1.is_empty())
            .map(|(_, who)| *who)
            .collect();
        for who in &listeners {
            self.group.order(*who, Order::Listen(opening.clone()))?;
        }
        let mut endpoints = vec![None; self.members.len()];
        let numbers = self.members.clone();
        self.group.listen(&listeners, |who, answer| match answer {
            Answer::Listening(place) => {
                let number = numbers.iter().position(|member| *member == who);
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
        self.group.listen(&self.members, |_, answer| match answer {
            Answer::Joined => Ok(true),
            other => bail!("a participant answered {other:?} to Join"),
        })
    }

    /// Has them do rounds of one size. Those that were done are given even if then one fails.
    pub fn exchange(&mut self, series: Series, flows: &Flows) -> (Vec<MeshRound>, Result<()>) {
        let mut spans = vec![Vec::new(); self.members.len()];
        let mut result = self.do_exchange(series, flows, &mut spans);
        if result.as_ref().is_err_and(is_interrupted) {
            let numbers = self.members.clone();
            let late = dismiss(self.group, &self.members, LAST_ROUNDS, |who, answer| {
                let number = numbers.iter().position(|member| *member == who);
                if let (Some(number), Answer::Spans(more)) = (number, answer) {
                    spans[number].extend(more);
                }
            });
            result = result.and(late);
        }
        (rounds(&spans), result)
    }

    fn do_exchange(
        &mut self,
        series: Series,
        flows: &Flows,
        spans: &mut [Vec<Span>],
    ) -> Result<()> {
        let count = self.count()?;
        let order = |number: u16| Order::Exchange {
            series,
            to: flows.to(number, count),
            from: flows.from(number, count),
        };
        let (clock, others) = self.members.split_first().context("nobody takes part")?;
        let (clock, others) = (*clock, others.to_vec());
        for (number, who) in (1..).zip(&others) {
            self.group.order(*who, order(number))?;
        }
        self.group.listen(&others, |_, answer| match answer {
            Answer::Ready => Ok(true),
            other => bail!("a member answered {other:?} to Exchange"),
        })?;
        self.group.order(clock, order(CLOCK))?;
        let numbers = self.members.clone();
        self.group
            .listen_to_rounds(&self.members, |who, answer| match answer {
                Answer::Ready if who == clock => Ok(false),
                Answer::Spans(more) => {
                    let number = numbers.iter().position(|member| *member == who);
                    spans[number.context("a stranger measured")?].extend(more);
                    Ok(false)
                }
                Answer::Exchanged => Ok(true),
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
