// SPDX-License-Identifier: MIT OR Apache-2.0

//! One measurement: clients connect to a server, do rounds, and leave.

use std::time::Duration;

use anyhow::{bail, Context as _, Result};

use super::orders::{Answer, Opening, Order};
use super::participants::Group;
use super::rounds::{Round, Series};
use super::signals::is_interrupted;

/// How long members may take to say what they have measured when the user ends the run.
pub(super) const LAST_ROUNDS: Duration = Duration::from_secs(5);

/// One server and its clients. When it fails or has done what it is for, they have to
/// [`leave`](Self::leave) before the next one.
pub struct Meeting<'a> {
    group: &'a mut Group,
    /// The server and then the clients, in the order of their numbers.
    members: Vec<usize>,
}

impl<'a> Meeting<'a> {
    /// A meeting of participant `server` with participants `clients`.
    pub fn new(group: &'a mut Group, server: usize, clients: &[usize]) -> Self {
        let members = [&[server], clients].concat();
        Self { group, members }
    }

    fn server(&self) -> usize {
        self.members[0]
    }

    /// The clients, with their numbers.
    fn clients(&self) -> Vec<(u16, usize)> {
        (0..).zip(self.members[1..].iter().copied()).collect()
    }

    /// Has the clients connect to the server.
    ///
    /// # Errors
    ///
    /// One of them could not, or is gone; the text names it.
    pub fn open(&mut self, opening: &Opening) -> Result<()> {
        let server = self.server();
        self.group.order(server, Order::Listen(opening.clone()))?;
        let mut endpoint = None;
        self.group.listen(&[server], |_, answer| match answer {
            Answer::Listening(place) => {
                endpoint = Some(place);
                Ok(true)
            }
            other => bail!("the server answered {other:?} to Listen"),
        })?;
        let endpoint = endpoint.context("the server listens nowhere")?;
        let clients = self.clients();
        self.group.order(
            server,
            Order::Accept {
                clients: u16::try_from(clients.len())?,
            },
        )?;
        for (number, who) in clients {
            let order = Order::Connect {
                opening: opening.clone(),
                server: endpoint.clone(),
                number,
            };
            self.group.order(who, order)?;
        }
        self.group
            .listen(&self.members, |who, answer| match answer {
                Answer::Accepted if who == server => Ok(true),
                Answer::Connected if who != server => Ok(true),
                other => bail!("a participant answered {other:?} to Connect"),
            })
    }

    /// Has them do rounds of one size. Those that were done are given even if then one fails.
    pub fn series(&mut self, series: Series) -> (Vec<Round>, Result<()>) {
        let mut rounds = Vec::new();
        let mut result = self.do_series(series, &mut rounds);
        if result.as_ref().is_err_and(is_interrupted) {
            let late = dismiss(self.group, &self.members, LAST_ROUNDS, |_, answer| {
                if let Answer::Rounds(more) = answer {
                    rounds.extend(more);
                }
            });
            result = result.and(late);
        }
        (rounds, result)
    }

    fn do_series(&mut self, series: Series, rounds: &mut Vec<Round>) -> Result<()> {
        let server = self.server();
        let clients = self.members[1..].to_vec();
        for who in &clients {
            self.group.order(*who, Order::Send(series))?;
        }
        self.group.listen(&clients, |_, answer| match answer {
            Answer::Ready => Ok(true),
            other => bail!("a client answered {other:?} to Send"),
        })?;
        self.group.order(server, Order::Receive(series))?;
        self.group
            .listen_to_rounds(&self.members, |who, answer| match answer {
                Answer::Rounds(more) if who == server => {
                    rounds.extend(more);
                    Ok(false)
                }
                Answer::Received if who == server => Ok(true),
                Answer::Sent if who != server => Ok(true),
                other => bail!("a participant said {other:?} in the middle of rounds"),
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
///
/// # Errors
///
/// [`Interrupted`](super::signals::Interrupted) by the user.
pub(super) fn dismiss(
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
