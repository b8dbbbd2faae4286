// SPDX-License-Identifier: MIT OR Apache-2.0

//! The participants as their coordinator sees them: how it gets them, and hears them all at once.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sched::{setns, CloneFlags};
use signal_hook::consts::{SIGINT, SIGTERM};
use sockaddr_en::Family;

use super::orders::{Answer, Order};
use crate::client::reach;
use crate::control::{Control, Message};
use crate::host::{wait_readable, Interface};
use crate::server::{converse, ServerOptions};

/// Where `ip netns` keeps the names of network namespaces.
const NAMESPACES: &str = "/run/netns";

/// How long the others may take to say what they know of a failure that one has seen.
const LAST_WORD: Duration = Duration::from_secs(1);

/// How long participants may take to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Who is to take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A `netgauge --server` on another host, or another port.
    Server {
        /// Its name or address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A process in the network namespace of this name or path.
    Namespace(String),
    /// A process on this host, in this network namespace.
    Here,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Server { host, port } => write!(f, "{host}:{port}"),
            Self::Namespace(name) => f.write_str(name),
            Self::Here => f.write_str("this host"),
        }
    }
}

/// What participants that the coordinator starts are told, and how long to wait for the others.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Interface; in a namespace, `eth0` without one.
    pub interface: Option<String>,
    /// Family number of PF_ENET.
    pub family: Family,
    /// How long traffic may stand still before it is given up.
    pub give_up: Duration,
    /// How long to wait for a server that is not up yet.
    pub wait: Duration,
}

/// The user has ended the run with a signal.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Turns SIGINT and SIGTERM into something that can be waited for.
struct Signals(UnixStream);

impl Signals {
    fn catch() -> Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        let impatient = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second one ends the process at once.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&impatient))?;
            signal_hook::flag::register(signal, Arc::clone(&impatient))?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self(reader))
    }
}

/// One participant.
struct Participant {
    name: String,
    control: Control,
    /// Where the coordinator has started it.
    process: Option<Child>,
    /// How it was noticed that it is no more.
    gone: Option<String>,
}

/// What a participant said.
enum Heard {
    Answer(Answer),
    Failed(String),
    Gone(String),
}

/// All participants. When this is dropped they are told to end, and waited for.
pub struct Group {
    participants: Vec<Participant>,
    signals: Signals,
    /// How long none of those who are waited for may answer.
    patience: Duration,
}

impl Group {
    /// Starts or reaches all of them.
    ///
    /// # Errors
    ///
    /// One cannot be started or reached.
    pub fn gather(places: &[Place], options: &GroupOptions) -> Result<Self> {
        let mut group = Self {
            participants: Vec::new(),
            signals: Signals::catch()?,
            // A participant that fails for lack of progress needs its own time to notice.
            patience: options.give_up * 3,
        };
        let mut interface = options.interface.clone();
        for place in places {
            let name = place.to_string();
            let (control, process) = match place {
                Place::Server { host, port } => {
                    let control = reach(host, *port, options.wait, options.give_up)?;
                    if interface.is_none() {
                        // A process here that is to talk to that server goes by the same way.
                        let local = control.addresses()?.0.ip();
                        interface = Interface::by_ip(local).ok().map(|found| found.name);
                    }
                    (control, None)
                }
                Place::Namespace(namespace) => {
                    let interface = options.interface.as_deref().unwrap_or("eth0");
                    start(&name, Some(namespace), Some(interface), options)?
                }
                Place::Here => start(&name, None, interface.as_deref(), options)?,
            };
            group.participants.push(Participant {
                name,
                control,
                process,
                gone: None,
            });
            let newest = &mut group.participants.last_mut().context("none")?.control;
            if process_was_started(place) {
                newest.greet()?;
            }
            group.check_signals()?;
        }
        Ok(group)
    }

    /// The name of participant `who`.
    pub fn name(&self, who: usize) -> &str {
        &self.participants[who].name
    }

    /// The names of all, in order.
    pub fn names(&self) -> Vec<String> {
        let names = self.participants.iter().map(|one| one.name.clone());
        names.collect()
    }

    /// Is participant `who` still there, as far as is known?
    pub fn is_there(&self, who: usize) -> bool {
        self.participants[who].gone.is_none()
    }

    /// Says who is no more, if anybody is.
    pub fn gone(&self) -> Option<String> {
        let gone: Vec<_> = self.participants.iter().filter_map(gone_text).collect();
        (!gone.is_empty()).then(|| gone.join("; "))
    }

    /// Tells participant `who` what to do.
    ///
    /// # Errors
    ///
    /// It is gone.
    pub fn order(&mut self, who: usize, order: Order) -> Result<()> {
        let participant = &mut self.participants[who];
        if participant.control.send(&Message::Order(order)).is_err() {
            let reason = "it ended the connection".to_owned();
            participant.gone.get_or_insert(reason);
        }
        match gone_text(participant) {
            Some(gone) => bail!(gone),
            None => Ok(()),
        }
    }

    /// Listens to `whom` until `take` has said of each that it has been told all. Who takes too long
    /// counts as gone.
    ///
    /// # Errors
    ///
    /// One of them has failed or is gone; the text names it. [`Interrupted`] by the user.
    pub fn listen(
        &mut self,
        whom: &[usize],
        take: impl FnMut(usize, Answer) -> Result<bool>,
    ) -> Result<()> {
        self.listen_within(whom, Some(self.patience), take)
    }

    /// As [`listen`](Self::listen), for as long as it takes: while rounds go on it is their server
    /// that knows whether anything moves.
    ///
    /// # Errors
    ///
    /// As [`listen`](Self::listen).
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
        let mut deadline = patience.map(|patience| Instant::now() + patience);
        let mut waiting = whom.to_vec();
        while !waiting.is_empty() {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            let Some((who, heard)) = self.hear(&waiting, left)? else {
                if left.is_some_and(|left| left.is_zero()) {
                    self.give_up(&waiting);
                    bail!(self.gone().unwrap_or_default());
                }
                continue;
            };
            deadline = patience.map(|patience| Instant::now() + patience);
            let first = match heard {
                Heard::Answer(Answer::Broken { clients, reason }) => {
                    self.blame(whom, &clients, &reason)
                }
                Heard::Answer(answer) => {
                    if take(who, answer)? {
                        waiting.retain(|other| *other != who);
                    }
                    continue;
                }
                Heard::Failed(text) => format!("{}: {text}", self.name(who)),
                Heard::Gone(reason) => reason,
            };
            return Err(self.failure(whom, who, first, &mut take));
        }
        Ok(())
    }

    /// Has all of `whom` answer `wanted` to the last order, whatever they said before.
    ///
    /// # Errors
    ///
    /// [`Interrupted`] by the user. Who fails or takes longer than `patience` counts as gone.
    pub fn settle(&mut self, whom: &[usize], wanted: &Answer, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        let mut waiting = whom.to_vec();
        waiting.retain(|who| self.participants[*who].gone.is_none());
        while !waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.hear(&waiting, Some(left))? {
                Some((who, Heard::Answer(answer))) if answer == *wanted => {
                    waiting.retain(|other| *other != who);
                }
                Some((who, Heard::Gone(_))) => waiting.retain(|other| *other != who),
                Some(_) => {}
                None if left.is_zero() => {
                    self.give_up(&waiting);
                    return Ok(());
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Waits no longer for these.
    fn give_up(&mut self, silent: &[usize]) {
        for who in silent {
            let reason = "it does not answer".to_owned();
            self.participants[*who].gone.get_or_insert(reason);
        }
    }

    /// What it means that the server has lost these clients; `whom` is the server and then they.
    fn blame(&self, whom: &[usize], clients: &[u16], reason: &str) -> String {
        let names: Vec<_> = clients
            .iter()
            .filter_map(|client| whom.get(usize::from(*client) + 1))
            .map(|who| self.name(*who))
            .collect();
        match names[..] {
            [] => reason.to_owned(),
            _ => format!("from {}: {reason}", names.join(", ")),
        }
    }

    /// The error for a failure that `who` told of, `first`. If it came about because somebody died,
    /// that one's connection ends too, and is what counts. Meanwhile the first of `whom`, which is
    /// the server, may still have something to say of what it did before.
    fn failure(
        &mut self,
        whom: &[usize],
        who: usize,
        first: String,
        take: &mut dyn FnMut(usize, Answer) -> Result<bool>,
    ) -> anyhow::Error {
        let deadline = Instant::now() + LAST_WORD;
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

    /// Waits until one of `whom` says something; `None` after `timeout`.
    fn hear(
        &mut self,
        whom: &[usize],
        timeout: Option<Duration>,
    ) -> Result<Option<(usize, Heard)>> {
        let Some(who) = self.wait(whom, timeout)? else {
            return Ok(None);
        };
        let participant = &mut self.participants[who];
        let heard = match participant.control.receive() {
            Ok(Message::Answer(answer)) => Heard::Answer(answer),
            Ok(Message::Failed(text)) => Heard::Failed(text),
            Ok(other) => bail!("{} said {other:?} out of turn", participant.name),
            Err(error) => {
                let reason = match error.downcast_ref::<crate::control::PeerGone>() {
                    Some(gone) => gone.reason.clone(),
                    None => format!("{error:#}"),
                };
                let reason = match &mut participant.process {
                    Some(process) => end_of(process).unwrap_or(reason),
                    None => reason,
                };
                participant.gone = Some(reason.clone());
                Heard::Gone(reason)
            }
        };
        Ok(Some((who, heard)))
    }

    /// Waits until one of `whom` can be read from.
    fn wait(&self, whom: &[usize], timeout: Option<Duration>) -> Result<Option<usize>> {
        let control = |who: &usize| &self.participants[*who].control;
        if let Some(who) = whom.iter().find(|who| control(who).has_read_ahead()) {
            return Ok(Some(*who));
        }
        let timeout = timeout.map_or(PollTimeout::NONE, |timeout| {
            // Rounded up, so that what is left of a deadline is not spent in turns of no time.
            let timeout = timeout.saturating_add(Duration::from_micros(999));
            PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX)
        });
        let mut descriptors = vec![PollFd::new(self.signals.0.as_fd(), PollFlags::POLLIN)];
        descriptors.extend(
            whom.iter()
                .map(|who| PollFd::new(control(who).as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut descriptors, timeout) {
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for the participants"),
        }
        self.check_signals()?;
        let mut ready = descriptors[1..].iter().zip(whom);
        Ok(ready
            .find(|(descriptor, _)| descriptor.any().unwrap_or(false))
            .map(|(_, who)| *who))
    }

    fn check_signals(&self) -> Result<()> {
        let [signal] = wait_readable([self.signals.0.as_fd()], Some(Duration::ZERO))?;
        ensure!(!signal, Interrupted);
        Ok(())
    }
}

fn process_was_started(place: &Place) -> bool {
    !matches!(place, Place::Server { .. })
}

fn gone_text(participant: &Participant) -> Option<String> {
    let reason = participant.gone.as_ref()?;
    Some(format!(
        "participant {} is gone: {reason}",
        participant.name
    ))
}

/// How a process ended, if it was not by itself.
fn end_of(process: &mut Child) -> Option<String> {
    // Its connection has ended, and nothing keeps it any longer.
    let status = process.wait().ok()?;
    match (status.signal(), status.code()) {
        (Some(signal), _) => Some(format!("it was killed by signal {signal}")),
        (_, Some(code)) if code != 0 => Some(format!("it ended with status {code}")),
        _ => None,
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for participant in &self.participants {
            participant.control.end();
        }
        // What a participant has to restore it restores before its connection ends.
        let deadline = Instant::now() + FAREWELL;
        for participant in &mut self.participants {
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = participant.gone.is_some() || has_ended(&mut participant.control, left);
            if let Some(process) = &mut participant.process {
                if !ended {
                    // One that has ended meanwhile cannot be killed, and need not be.
                    let _ = process.kill();
                }
                let _ = process.wait();
            }
        }
    }
}

/// Waits for the end of a connection, whatever else is still said on it.
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

/// Starts this program as a participant.
fn start(
    name: &str,
    namespace: Option<&str>,
    interface: Option<&str>,
    options: &GroupOptions,
) -> Result<(Control, Option<Child>)> {
    let (ours, theirs) = UnixStream::pair()?;
    // The program as it was started, also where its file has been replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    match namespace {
        Some(namespace) => command.arg(format!("--participant={namespace}")),
        None => command.arg("--participant"),
    };
    if let Some(interface) = interface {
        command.args(["--interface", interface]);
    }
    let process = command
        .args(["--family", &options.family.number().to_string()])
        .args(["--give-up", &options.give_up.as_secs().to_string()])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("starting a process for {name}"))?;
    let control = Control::local_pair(ours, name, None)?;
    Ok((control, Some(process)))
}

/// What a process that `start` has started does: its control connection is its standard input.
///
/// # Errors
///
/// The namespace cannot be entered, or the session ended early.
pub fn participate(namespace: Option<&str>, options: &ServerOptions) -> Result<()> {
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let mut control = Control::local_pair(UnixStream::from(stdin), "coordinator", None)?;
    if let Some(name) = namespace {
        if let Err(error) = enter(name) {
            return control.send(&Message::Failed(format!("{error:#}")));
        }
    }
    converse(control, options)
}

/// Enters a network namespace.
fn enter(name: &str) -> Result<()> {
    let path = match name.contains('/') {
        true => name.to_owned(),
        false => format!("{NAMESPACES}/{name}"),
    };
    let file = File::open(&path)
        .with_context(|| format!("{path}: `ip netns list` lists the namespaces there are"))?;
    setns(file, CloneFlags::CLONE_NEWNET)
        .with_context(|| format!("entering network namespace {name}, which is root's to do"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participants_are_named_as_they_were_given() {
        let server = |host: &str| Place::Server {
            host: host.to_owned(),
            port: 2805,
        };
        assert_eq!(server("10.0.0.2").to_string(), "10.0.0.2:2805");
        assert_eq!(server("fd00::1").to_string(), "[fd00::1]:2805");
        assert_eq!(Place::Namespace("h7".to_owned()).to_string(), "h7");
    }

    #[test]
    fn an_absent_namespace_says_what_to_do() {
        let error = format!("{:#}", enter("absent-namespace").unwrap_err());
        assert!(error.contains("/run/netns/absent-namespace"), "{error}");
        assert!(error.contains("ip netns list"), "{error}");
    }
}
