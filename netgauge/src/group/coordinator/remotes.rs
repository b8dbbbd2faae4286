// SPDX-License-Identifier: MIT OR Apache-2.0

//! The participants, on the coordinator's side. The coordinator starts or reaches the participants,
//! and listens to all of them at once.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use super::args::Options;
use super::location::Location;
use super::start::{start, start_remote, Process};
use crate::control::{reach, Control, Message};
use crate::group::net::orders::{Answer, Order};
use crate::host::Interface;
use crate::machine::Machine;
use crate::report::record::Record;
use crate::signals::Signals;

/// The time to wait for the reports of other participants after a participant has reported a
/// failure.
const OTHER_FAILURES_TIMEOUT: Duration = Duration::from_secs(1);

/// The time that participants may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A participant, with its connection.
struct Remote {
    name: String,
    location: Location,
    control: Control,
    /// The process, if the coordinator has started it.
    process: Option<Process>,
    /// The reason why the participant counts as gone, if it does.
    gone: Option<String>,
}

/// A participant's message.
enum Heard {
    Answer(Answer),
    Failed(String),
    Gone(String),
}

/// All participants. Dropping the group ends the participants, and waits for them.
pub struct Group {
    remotes: Vec<Remote>,
    signals: Signals,
    /// The time to wait while no participant answers.
    patience: Duration,
}

impl Group {
    /// Starts or reaches all participants.
    ///
    /// # Errors
    ///
    /// Fails if a participant cannot be started or reached. Fails with
    /// [`Interrupted`](crate::signals::Interrupted) if the user interrupts the call.
    pub fn gather(locations: &[Location], options: &Options, signals: Signals) -> Result<Self> {
        let mut group = Self {
            remotes: Vec::new(),
            signals,
            // A participant needs up to `give_up` to notice a lack of progress, so the coordinator
            // waits longer.
            patience: options.measuring.give_up * 3,
        };
        let mut interface = options.interface.clone();
        for location in locations {
            let name = location.to_string();
            let (mut control, process) = match location {
                Location::Server { host, port } => {
                    let control = reach(host, *port, options.wait, options.measuring.give_up)?;
                    if interface.is_none() {
                        // If no interface is named, the processes on this host use the one that
                        // leads to this server.
                        let local = control.addresses()?.0.ip();
                        interface = Interface::by_ip(local).ok().map(|found| found.name);
                    }
                    (control, None)
                }
                Location::Ssh(host) => {
                    let (control, process) = start_remote(host, options)?;
                    (control, Some(process))
                }
                Location::Namespace(_) | Location::Here => {
                    let (control, process) = start(location, interface.as_deref(), options)?;
                    (control, Some(process))
                }
            };
            if process.is_some() {
                // The process is greeted at once, because a greeted process exits cleanly even if
                // the coordinator gives up. If the process has ended already, `greet` reports that
                // later, so the error is ignored here.
                let _ = control.hello();
            }
            group.remotes.push(Remote {
                name,
                location: location.clone(),
                control,
                process,
                gone: None,
            });
            group.signals.check()?;
        }
        // All processes are started before the coordinator waits for the first one.
        for (who, location) in locations.iter().enumerate() {
            if group.remotes[who].process.is_some() {
                group.greet(who, patience(location, options))?;
            }
        }
        Ok(group)
    }

    /// Waits for the greeting of a process that was started.
    fn greet(&mut self, who: usize, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        let left = || deadline.saturating_duration_since(Instant::now());
        while self.wait(&[who], Some(left()))?.is_none() {
            if left().is_zero() {
                bail!(unanswered(&self.remotes[who].location, patience));
            }
        }
        let remote = &mut self.remotes[who];
        let Err(error) = remote.control.greeted() else {
            return Ok(());
        };
        let gone = error.downcast_ref::<crate::control::PeerGone>().is_some();
        remote.gone = Some(error.to_string());
        let process = remote.process.as_mut().filter(|_| gone);
        match process.and_then(|process| process.end(&remote.location)) {
            Some(reason) => bail!("{}: {reason}", remote.name),
            None => Err(error),
        }
    }

    /// Returns whether the user has interrupted the run.
    pub fn was_interrupted(&self) -> bool {
        self.signals.came()
    }

    /// Returns the name of participant `who`.
    pub fn name(&self, who: usize) -> &str {
        &self.remotes[who].name
    }

    /// Returns the names of all participants, in order.
    pub fn names(&self) -> Vec<String> {
        let names = self.remotes.iter().map(|one| one.name.clone());
        names.collect()
    }

    /// Returns the record of a run that begins now.
    pub fn record(&self) -> Record {
        let mut record = Record::begin();
        record.add("coordinator", Machine::here(None));
        for remote in &self.remotes {
            if let Some(machine) = remote.control.peer_machine() {
                record.add(&remote.name, machine.clone());
            }
        }
        record
    }

    /// Returns `false` if participant `who` counts as gone.
    pub fn is_there(&self, who: usize) -> bool {
        self.remotes[who].gone.is_none()
    }

    /// Returns the names of the participants that are gone, with the reasons, as text for an error.
    /// Returns `None` if no participant is gone.
    pub fn gone(&self) -> Option<String> {
        let gone: Vec<_> = self.remotes.iter().filter_map(gone_text).collect();
        (!gone.is_empty()).then(|| gone.join("; "))
    }

    /// Sends participant `who` an order.
    ///
    /// # Errors
    ///
    /// Fails if the participant is gone.
    pub fn order(&mut self, who: usize, order: Order) -> Result<()> {
        let remote = &mut self.remotes[who];
        if remote.control.send(&Message::Order(order)).is_err() {
            let reason = "it ended the connection".to_owned();
            remote.gone.get_or_insert(reason);
        }
        match gone_text(remote) {
            Some(gone) => bail!(gone),
            None => Ok(()),
        }
    }

    /// Makes all participants in `whom` carry out an order, to which each must answer `wanted`.
    ///
    /// # Errors
    ///
    /// Fails like [`listen`](Self::listen).
    pub fn all_do(&mut self, whom: &[usize], order: &Order, wanted: &Answer) -> Result<()> {
        for who in whom {
            self.order(*who, order.clone())?;
        }
        self.all_say(whom, wanted, &format!("{order:?}"))
    }

    /// Waits until all participants in `whom` have answered `wanted` to an order. Error messages
    /// call this order `told`.
    ///
    /// # Errors
    ///
    /// Fails like [`listen`](Self::listen).
    pub fn all_say(&mut self, whom: &[usize], wanted: &Answer, told: &str) -> Result<()> {
        self.listen(whom, |_, answer| match answer {
            answer if answer == *wanted => Ok(true),
            other => bail!("a participant answered {other:?} to {told}"),
        })
    }

    /// Listens to `whom` until `take` has returned `true` for each. A participant that takes too
    /// long counts as gone.
    ///
    /// # Errors
    ///
    /// Fails if a participant has failed or is gone. The error text names that participant. Fails
    /// with [`Interrupted`](crate::signals::Interrupted) if the user interrupts the run.
    pub fn listen(
        &mut self,
        whom: &[usize],
        take: impl FnMut(usize, Answer) -> Result<bool>,
    ) -> Result<()> {
        self.listen_within(whom, Some(self.patience), take)
    }

    /// Listens like [`listen`](Self::listen), but without a time limit, because during rounds the
    /// members themselves notice a lack of progress.
    ///
    /// # Errors
    ///
    /// Fails like [`listen`](Self::listen).
    pub fn listen_to_rounds(
        &mut self,
        whom: &[usize],
        take: impl FnMut(usize, Answer) -> Result<bool>,
    ) -> Result<()> {
        self.listen_within(whom, None, take)
    }

    fn listen_within(
        &mut self,
        whom: &[usize],
        patience: Option<Duration>,
        mut take: impl FnMut(usize, Answer) -> Result<bool>,
    ) -> Result<()> {
        let all = self.attend(whom.to_vec(), (patience, true), |group, who, heard| {
            let first = match heard {
                Heard::Answer(Answer::Broken { places, reason }) => {
                    group.blame(whom, &places, &reason)
                }
                Heard::Answer(answer) => return take(who, answer),
                Heard::Failed(text) => format!("{}: {text}", group.name(who)),
                Heard::Gone(reason) => reason,
            };
            Err(group.failure(whom, who, first, &mut take))
        })?;
        match all {
            true => Ok(()),
            false => bail!(self.gone().unwrap_or_default()),
        }
    }

    /// Listens to `waiting` until `take` has returned `true` for each. Returns `false` if the wait
    /// is longer than `patience`; the remaining participants then count as gone. If `anew` is set,
    /// `patience` is the limit for each message, not for the whole wait.
    fn attend(
        &mut self,
        mut waiting: Vec<usize>,
        (patience, anew): (Option<Duration>, bool),
        mut take: impl FnMut(&mut Self, usize, Heard) -> Result<bool>,
    ) -> Result<bool> {
        let later = || patience.map(|patience| Instant::now() + patience);
        let mut deadline = later();
        while !waiting.is_empty() {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            match self.hear(&waiting, left)? {
                Some((who, heard)) => {
                    deadline = if anew { later() } else { deadline };
                    if take(self, who, heard)? {
                        waiting.retain(|other| *other != who);
                    }
                }
                None if left.is_some_and(|left| left.is_zero()) => {
                    for who in waiting {
                        let reason = "it does not answer".to_owned();
                        self.remotes[who].gone.get_or_insert(reason);
                    }
                    return Ok(false);
                }
                None => {}
            }
        }
        Ok(true)
    }

    /// Waits until all of `whom` answer `wanted` to their most recent order. Passes their other
    /// answers to `take`.
    ///
    /// # Errors
    ///
    /// Fails with [`Interrupted`](crate::signals::Interrupted) if the user interrupts the run. A
    /// participant that fails or takes longer than `patience` counts as gone, which is not an error
    /// here.
    pub fn settle(
        &mut self,
        whom: &[usize],
        wanted: &Answer,
        patience: Duration,
        mut take: impl FnMut(usize, Answer),
    ) -> Result<()> {
        let there = whom.iter().copied().filter(|who| self.is_there(*who));
        self.attend(there.collect(), (Some(patience), false), |_, who, heard| {
            match heard {
                Heard::Answer(answer) if answer != *wanted => take(who, answer),
                Heard::Failed(_) => {}
                Heard::Answer(_) | Heard::Gone(_) => return Ok(true),
            }
            Ok(false)
        })
        .map(|_| ())
    }

    /// Returns the error for a participant that lost other members. `places` are the lost members'
    /// indices in `whom`.
    fn blame(&self, whom: &[usize], places: &[u16], reason: &str) -> String {
        let names: Vec<_> = places
            .iter()
            .filter_map(|place| whom.get(usize::from(*place)))
            .map(|who| self.name(*who))
            .collect();
        match names[..] {
            [] => reason.to_owned(),
            _ => format!("from {}: {reason}", names.join(", ")),
        }
    }

    /// Returns the error for a failure that `who` has reported with the text `first`. If another
    /// participant has died, `who` may have failed only because of that. So this call waits a while
    /// for messages of the other participants. If the connection of one of them ends, the error
    /// names that participant, and `first` is dropped.
    ///
    /// The first of `whom` is the server. Results that the server sends during this wait go to
    /// `take`.
    fn failure(
        &mut self,
        whom: &[usize],
        who: usize,
        first: String,
        take: &mut dyn FnMut(usize, Answer) -> Result<bool>,
    ) -> anyhow::Error {
        let deadline = Instant::now() + OTHER_FAILURES_TIMEOUT;
        let mut others = whom.to_vec();
        others.retain(|other| *other != who);
        while self.gone().is_none() || others.first() == whom.first() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.hear(&others, Some(left)) {
                Ok(Some((other, Heard::Answer(Answer::Broken { .. }) | Heard::Failed(_)))) => {
                    others.retain(|one| *one != other);
                }
                Ok(Some((other, Heard::Gone(_)))) => others.retain(|one| *one != other),
                Ok(Some((other, Heard::Answer(answer)))) => match take(other, answer) {
                    Ok(true) | Err(_) => others.retain(|one| *one != other),
                    Ok(false) => {}
                },
                Ok(None) if left.is_zero() => break,
                Ok(None) => {}
                Err(error) => return error,
            }
        }
        anyhow::anyhow!(self.gone().unwrap_or(first))
    }

    /// Waits until one of `whom` sends a message; `None` after `timeout`.
    fn hear(
        &mut self,
        whom: &[usize],
        timeout: Option<Duration>,
    ) -> Result<Option<(usize, Heard)>> {
        let Some(who) = self.wait(whom, timeout)? else {
            return Ok(None);
        };
        let remote = &mut self.remotes[who];
        let heard = match remote.control.receive() {
            Ok(Message::Answer(answer)) => Heard::Answer(answer),
            Ok(Message::Failed(text)) => Heard::Failed(text),
            Ok(other) => bail!("{} said {other:?} out of turn", remote.name),
            Err(error) => {
                let reason = match error.downcast_ref::<crate::control::PeerGone>() {
                    Some(gone) => gone.reason.clone(),
                    None => format!("{error:#}"),
                };
                let reason = match &mut remote.process {
                    Some(process) => process.end(&remote.location).unwrap_or(reason),
                    None => reason,
                };
                remote.gone = Some(reason.clone());
                Heard::Gone(reason)
            }
        };
        Ok(Some((who, heard)))
    }

    /// Waits until the connection of one of `whom` is readable, and returns that participant.
    /// Returns `None` after `timeout`.
    fn wait(&mut self, whom: &[usize], timeout: Option<Duration>) -> Result<Option<usize>> {
        let remotes = &self.remotes;
        let control = |who: &usize| &remotes[*who].control;
        if let Some(who) = whom.iter().find(|who| control(who).has_read_ahead()) {
            return Ok(Some(*who));
        }
        let timeout = timeout.map_or(PollTimeout::NONE, |timeout| {
            // The timeout is rounded up to a millisecond, the unit of poll(2). If it were rounded
            // down, poll(2) would be called again and again with a timeout of 0 in the last part of
            // a millisecond.
            let timeout = timeout.saturating_add(Duration::from_micros(999));
            PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX)
        });
        let mut descriptors = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        descriptors.extend(
            whom.iter()
                .map(|who| PollFd::new(control(who).as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut descriptors, timeout) {
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for the participants"),
        }
        let mut ready = descriptors[1..].iter().zip(whom);
        let ready = ready
            .find(|(descriptor, _)| descriptor.any().unwrap_or(false))
            .map(|(_, who)| *who);
        self.signals.check()?;
        Ok(ready)
    }
}

/// Returns the time that a started process may take to answer. On another host, it is `--wait`,
/// because only the user knows the network to that host. On this host, where a process is slow only
/// if the host is busy, it is at least `--give-up`.
fn patience(location: &Location, options: &Options) -> Duration {
    match location {
        Location::Ssh(_) => options.wait,
        _ => options.wait.max(options.measuring.give_up),
    }
}

/// Returns the error of a process that does not answer. The error says what the user can do.
fn unanswered(location: &Location, patience: Duration) -> String {
    let seconds = patience.as_secs();
    match location {
        Location::Ssh(host) => format!(
            "{host} does not answer within {seconds} s: does it ask for a password? Wait longer with \
             --wait"
        ),
        other => format!("{other} does not answer within {seconds} s: wait longer with --wait"),
    }
}

fn gone_text(remote: &Remote) -> Option<String> {
    let reason = remote.gone.as_ref()?;
    Some(format!("participant {} is gone: {reason}", remote.name))
}

impl Drop for Group {
    fn drop(&mut self) {
        for remote in &self.remotes {
            remote.control.end();
        }
        // Waits for the connections to end, because each participant restores ESP's parameters
        // before its connection ends.
        let deadline = Instant::now() + END_TIMEOUT;
        for remote in &mut self.remotes {
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = remote.gone.is_some() || has_ended(&mut remote.control, left);
            if let Some(process) = &mut remote.process {
                if !ended {
                    process.kill();
                }
                process.wait();
            }
        }
    }
}

/// Waits until a connection ends, and discards the messages that still arrive. Returns whether the
/// connection ended within `patience`.
fn has_ended(control: &mut Control, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match control.is_ready(left) {
            Ok(true) => {}
            Ok(false) | Err(_) => return false,
        }
        match control.receive_or_end() {
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_host_can_ask_for_a_password() {
        let silent = |location| unanswered(&location, Duration::from_secs(3));
        let said = silent(Location::Ssh("node1".to_owned()));
        assert!(said.starts_with("node1 does not answer within 3 s: does it ask"));
        let said = silent(Location::Namespace("h1".to_owned()));
        assert_eq!(
            said,
            "h1 does not answer within 3 s: wait longer with --wait"
        );
    }
}
