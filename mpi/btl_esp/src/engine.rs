// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection table of this process, message routing and completion.
//!
//! The engine never calls back. It collects [`Event`]s for Open MPI. The engine's owner handles
//! these events after it has released the engine's lock.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sockaddr_en::Domain;

use crate::calls::Calls;
use crate::card::Card;
use crate::channel::Incoming;
use crate::input::{Blocks, Room};
use crate::link::{Done, Link, Payload, State};
use crate::seen::Seen;
use crate::transport::{Listener, Stream};
use crate::windows::Windows;
use crate::wire::{Kind, Name};

mod channels;
mod greeting;
mod remote;

use channels::Outlet;

/// Number of polls between two checks of the listeners while no connection is being set up.
const LISTEN: u32 = 32;

/// Maximum number of links that one `epoll_wait` reports.
const REPORTED: usize = 64;

/// The engine's fixed settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of links that are polled individually; epoll covers the rest.
    pub polled: usize,
    /// Time limit for setting up a connection.
    pub timeout: Duration,
    /// Number of bytes of a receive buffer.
    pub block: usize,
}

/// A link's number.
pub type LinkId = usize;

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The tag under which Open MPI registered the receiver of the message.
    pub tag: u8,
    /// Offset of the message's bytes in the block.
    pub start: usize,
    /// Number of the message's bytes.
    pub length: usize,
}

/// An event to report to Open MPI.
#[derive(Debug)]
pub enum Event<P> {
    /// Messages arrived on a link.
    Received {
        /// The link that received the messages.
        link: LinkId,
        /// The index of the interface that received the messages.
        module: usize,
        /// The memory that holds the messages. [`Engine::give`] takes it back.
        block: Vec<u8>,
        /// The messages.
        arrivals: Vec<Arrival>,
    },
    /// A reply arrived. It completes a call of this process.
    Answered {
        /// The message that made the call.
        payload: P,
        /// The data of the reply.
        data: Vec<u8>,
    },
    /// A message was sent, or will never be sent.
    Completed {
        /// The message.
        payload: P,
        /// Whether the message was sent.
        sent: bool,
    },
    /// A link broke, but other links to the peer remain.
    Degraded(String),
    /// A peer is no longer reachable.
    Lost {
        /// The peer.
        peer: Name,
        /// The index of the local interface whose link broke last.
        module: usize,
        /// The cause.
        why: String,
    },
}

/// The result of a call that sends a message.
#[derive(Debug)]
pub enum Sent<P> {
    /// The message was sent.
    Done(P),
    /// The message will be sent. An event reports its completion.
    Queued,
    /// The peer is lost.
    Refused(P),
}

#[derive(Debug)]
struct Peer<P> {
    name: Name,
    links: Vec<LinkId>,
    /// The token that the peer expects in a hello.
    token: u64,
    /// Whether [`Engine::introduce`] has created a link for each chosen pair of interfaces.
    introduced: bool,
    /// The number of the next protected frame (a frame that is kept until the peer acknowledges
    /// it).
    next: u64,
    seen: Seen,
    lost: bool,
    outlet: Outlet<P>,
}

/// An accepted connection. The peer's hello, the first message on it, has not arrived yet.
#[derive(Debug)]
struct Caller {
    stream: Stream,
    module: usize,
    bytes: Vec<u8>,
}

/// The links of this process.
#[derive(Debug)]
pub struct Engine<P> {
    name: Name,
    /// The token that callers must know.
    token: u64,
    settings: Settings,
    listeners: Vec<Listener>,
    peers: Vec<Peer<P>>,
    names: HashMap<Name, usize>,
    links: Vec<Link<P>>,
    /// Connected links, the most recently active first.
    ready: Vec<LinkId>,
    /// Links that are being connected.
    opening: Vec<LinkId>,
    /// The links with output that the kernel has not accepted.
    blocked: Vec<LinkId>,
    callers: Vec<Caller>,
    epoll: Epoll,
    blocks: Blocks,
    windows: Windows,
    calls: Calls<P>,
    /// The domain of this process; `None` without channels.
    domain: Option<Domain>,
    /// The kernel's keys of the windows that are pinned, by the windows' keys.
    regions: HashMap<u64, u64>,
    /// The channels that peers have opened.
    incoming: Vec<Incoming>,
    /// The peers to which puts by a channel are not complete.
    putting: Vec<usize>,
    events: Vec<Event<P>>,
    round: u32,
    closing: bool,
}

impl<P: Payload> Engine<P> {
    /// Creates an engine for the process `name`, which accepts the connections of peers that know
    /// `token` from `listeners`.
    ///
    /// # Errors
    ///
    /// The errors of `epoll_create(2)`.
    pub fn new(
        name: Name,
        token: u64,
        listeners: Vec<Listener>,
        settings: Settings,
    ) -> io::Result<Self> {
        Ok(Self {
            name,
            token,
            settings,
            listeners,
            peers: Vec::new(),
            names: HashMap::new(),
            links: Vec::new(),
            ready: Vec::new(),
            opening: Vec::new(),
            blocked: Vec::new(),
            callers: Vec::new(),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            blocks: Blocks::new(settings.block),
            windows: Windows::default(),
            calls: Calls::default(),
            domain: None,
            regions: HashMap::new(),
            incoming: Vec::new(),
            putting: Vec::new(),
            events: Vec::new(),
            round: 0,
            closing: false,
        })
    }

    /// Returns the name of this process.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Returns whether the interfaces of `peer` are known.
    pub fn knows(&self, peer: Name) -> bool {
        self.names
            .get(&peer)
            .is_some_and(|peer| self.peers[*peer].introduced)
    }

    /// Creates links to `peer`, which expects `token` in a hello. Each of `pairs` has three
    /// members: the number of a local interface, the number of an interface of the peer, and the
    /// card of the latter interface. The links that the peer has already connected are kept.
    pub fn introduce(&mut self, peer: Name, token: u64, pairs: &[(usize, usize, Card)]) {
        let peer = self.peer(peer);
        self.peers[peer].token = token;
        for (module, remote, card) in pairs {
            let link = self.link(peer, *module, *remote);
            self.links[link].card = Some(*card);
        }
        self.peers[peer].introduced = true;
    }

    /// Returns the link to `peer` for messages that are sent through the local interface `module`;
    /// `None` if this interface does not reach the peer.
    pub fn endpoint(&self, peer: Name, module: usize) -> Option<LinkId> {
        let peer = &self.peers[*self.names.get(&peer)?];
        let mut links = peer.links.iter().copied();
        links.find(|link| self.links[*link].module == module && self.links[*link].card.is_some())
    }

    fn peer(&mut self, name: Name) -> usize {
        *self.names.entry(name).or_insert_with(|| {
            self.peers.push(Peer {
                name,
                links: Vec::new(),
                token: 0,
                introduced: false,
                next: 0,
                seen: Seen::default(),
                lost: false,
                outlet: Outlet::Unused,
            });
            self.peers.len() - 1
        })
    }

    fn link(&mut self, peer: usize, module: usize, remote: usize) -> LinkId {
        let links = &mut self.links;
        let found = self.peers[peer]
            .links
            .iter()
            .copied()
            .find(|link| (links[*link].module, links[*link].remote) == (module, remote));
        found.unwrap_or_else(|| {
            links.push(Link::new(peer, module, remote, None));
            self.peers[peer].links.push(links.len() - 1);
            links.len() - 1
        })
    }

    /// Returns a usable link to the peer of `link`, other than `link`; `None` if there is no such
    /// link.
    fn substitute(&self, link: LinkId) -> Option<LinkId> {
        let usable = |other: &LinkId| *other != link && self.can_carry(*other);
        let others = &self.peers[self.links[link].peer].links;
        others.iter().copied().find(usable)
    }

    /// Returns whether a link is connected or may still become connected.
    fn can_carry(&self, link: LinkId) -> bool {
        let link = &self.links[link];
        match link.state {
            State::Failed => false,
            State::Idle => link.card.is_some(),
            _ => true,
        }
    }

    /// Returns the memory that is open to peers.
    pub fn windows(&mut self) -> &mut Windows {
        &mut self.windows
    }

    /// Sends a message by `link` or, if that link is broken, by another link to the same peer.
    pub fn send(&mut self, link: LinkId, tag: u8, payload: P) -> Sent<P> {
        self.transmit(link, Kind::Send, tag, payload)
    }

    /// Writes into memory of the peer. `payload` begins with the [target](crate::wire::Target).
    pub fn put(&mut self, link: LinkId, payload: P) -> Sent<P> {
        self.transmit(link, Kind::Put, 0, payload)
    }

    fn transmit(&mut self, link: LinkId, kind: Kind, tag: u8, payload: P) -> Sent<P> {
        let Some(link) = self.usable(link) else {
            return Sent::Refused(payload);
        };
        let first = !self.links[link].has_output();
        self.push(link, kind, tag, payload);
        self.start(link, first)
    }

    /// Returns `link` or, if it is broken, another link to the same peer.
    fn usable(&self, link: LinkId) -> Option<LinkId> {
        if self.can_carry(link) {
            Some(link)
        } else {
            self.substitute(link)
        }
    }

    /// Sends the frame that was queued last, if it is the `first` one and the link is connected.
    fn start(&mut self, link: LinkId, first: bool) -> Sent<P> {
        if !first || !matches!(self.links[link].state, State::Ready(_)) {
            self.open(link);
            return Sent::Queued;
        }
        self.send_first(link)
    }

    /// Queues a message or a put.
    fn push(&mut self, link: LinkId, kind: Kind, tag: u8, payload: P) {
        let number = self.number(link);
        self.links[link].push(kind, tag, payload, number);
    }

    /// Returns the number of the next frame on `link`. If another link could take over, the frame
    /// is protected and has a number.
    fn number(&mut self, link: LinkId) -> Option<u64> {
        self.substitute(link)?;
        let peer = &mut self.peers[self.links[link].peer];
        peer.next += 1;
        Some(peer.next - 1)
    }

    /// Sends a message by `link` if the kernel accepts a part of it at once. Otherwise the message
    /// is refused, and its number is used again.
    pub fn send_now(&mut self, link: LinkId, tag: u8, payload: P) -> Sent<P> {
        if !self.links[link].is_free() {
            return Sent::Refused(payload);
        }
        let peer = self.links[link].peer;
        let next = self.peers[peer].next;
        self.push(link, Kind::Send, tag, payload);
        let sent = self.send_first(link);
        if let Some(payload) = self.links[link].take_back() {
            self.peers[peer].next = next;
            return Sent::Refused(payload);
        }
        sent
    }

    /// Sends the only message that is queued on a connected link.
    fn send_first(&mut self, link: LinkId) -> Sent<P> {
        let mut done = Vec::new();
        if let Err(error) = self.links[link].flush(&mut done) {
            self.fail(link, &error.to_string());
        } else if self.links[link].has_output() {
            self.block(link);
        }
        match done.pop() {
            Some(Done {
                payload,
                call: None,
            }) => Sent::Done(payload),
            done => {
                self.complete(done, true);
                Sent::Queued
            }
        }
    }

    fn block(&mut self, link: LinkId) {
        if !self.blocked.contains(&link) {
            self.blocked.push(link);
        }
    }

    fn flush(&mut self, link: LinkId) {
        let mut done = Vec::new();
        let result = self.links[link].flush(&mut done);
        self.complete(done, true);
        match result {
            Err(error) => self.fail(link, &error.to_string()),
            Ok(()) if self.links[link].is_blocked() => self.block(link),
            Ok(()) => {}
        }
    }

    /// Reports messages with which a link has finished, unless they belong to calls that wait for
    /// a reply.
    fn complete(&mut self, done: impl IntoIterator<Item = Done<P>>, sent: bool) {
        for Done { payload, call } in done {
            let payload = match call {
                Some(call) if sent => self.calls.finished(call, payload),
                Some(call) => {
                    self.calls.forget(call);
                    Some(payload)
                }
                None => Some(payload),
            };
            self.report(payload, sent);
        }
    }

    /// Reports messages that are complete.
    fn report(&mut self, payloads: impl IntoIterator<Item = P>, sent: bool) {
        let payloads = payloads.into_iter();
        self.events
            .extend(payloads.map(|payload| Event::Completed { payload, sent }));
    }

    /// Starts to connect a link, if the link is idle.
    fn open(&mut self, link: LinkId) {
        if !matches!(self.links[link].state, State::Idle) {
            return;
        }
        let Some(card) = self.links[link].card else {
            return self.fail(link, "its address is not known");
        };
        match self.listeners[self.links[link].module].connect(&card) {
            Ok(stream) => {
                self.links[link].state = State::Connecting(stream, Instant::now());
                self.keep_opening(link);
            }
            Err(error) if lacks_resources(&error) => self.keep_opening(link),
            Err(error) => self.fail(link, &error.to_string()),
        }
    }

    fn keep_opening(&mut self, link: LinkId) {
        if !self.opening.contains(&link) {
            self.opening.push(link);
        }
    }

    /// Makes a link ready to carry frames.
    fn establish(&mut self, link: LinkId, stream: Stream) {
        self.links[link].reset();
        let event = EpollEvent::new(EpollFlags::EPOLLIN, link as u64);
        let added = self.epoll.add(stream.as_fd(), event);
        self.links[link].state = State::Ready(stream);
        self.opening.retain(|other| *other != link);
        self.ready.insert(0, link);
        match added {
            Ok(()) => self.flush(link),
            Err(error) => self.fail(link, &error.to_string()),
        }
    }

    fn detach(&mut self, link: LinkId, state: State) {
        // The assignment drops the stream. This closes the descriptor, which removes it from the
        // epoll set.
        self.links[link].state = state;
        self.ready.retain(|other| *other != link);
        self.opening.retain(|other| *other != link);
        self.blocked.retain(|other| *other != link);
    }

    /// Handles a broken link. Another link then carries the frames that the peer may lack. If there
    /// is no other link, or if such a frame was not kept, the peer is lost.
    fn fail(&mut self, link: LinkId, why: &str) {
        if matches!(self.links[link].state, State::Failed) {
            return;
        }
        self.detach(link, State::Failed);
        let peer = self.links[link].peer;
        let name = self.peers[peer].name;
        let module = self.links[link].module;
        let interface = self.listeners[module].interface().name().to_owned();
        if self.closing {
            return self.abandon(link);
        }
        let other = self.substitute(link);
        if let Some(other) = other.filter(|_| self.links[link].is_recoverable()) {
            let (from, to) = two(&mut self.links, link, other);
            from.hand_over(to);
            let second = self.listeners[self.links[other].module].interface().name();
            self.events.push(Event::Degraded(format!(
                "the connection to {name} by {interface} broke ({why}); {second} carries on"
            )));
            self.open(other);
            return self.flush(other);
        }
        // The cause comes first, since Open MPI ends the job when a message was not sent.
        if !self.peers[peer].lost {
            self.peers[peer].lost = true;
            self.events.push(Event::Lost {
                peer: name,
                module,
                why: format!("{name} cannot be reached by {interface} any more: {why}"),
            });
        }
        self.abandon(link);
    }

    /// Reports that the messages of `link`, and the calls to its peer, were not sent.
    fn abandon(&mut self, link: LinkId) {
        let payloads = self.links[link].abandon();
        self.complete(payloads, false);
        self.abandon_channel(self.links[link].peer);
        let calls = self.calls.abandon(self.links[link].peer);
        self.report(calls, false);
    }

    /// Sends and receives once. Returns true if bytes were received. In that case, more bytes may
    /// have arrived in the meantime.
    pub fn poll(&mut self) -> bool {
        self.round = self.round.wrapping_add(1);
        // Many callers are strangers that do not say hello. They must not delay each message.
        let callers = 1..=self.settings.polled;
        let in_progress = !self.opening.is_empty() || callers.contains(&self.callers.len());
        if in_progress || self.round % LISTEN == 0 {
            self.accept();
            self.greet();
            self.advance();
            self.accept_channels();
        }
        if !self.putting.is_empty() {
            self.advance_channels();
        }
        let (asked, mut progress) = self.ask_blocked();
        if self.ready.len() <= self.settings.polled {
            for place in 0..self.ready.len() {
                // If a link has failed during this loop, the list has become shorter.
                let Some(link) = self.ready.get(place).copied() else {
                    break;
                };
                if asked.contains(&link) {
                    continue;
                }
                if self.receive(link) {
                    progress = true;
                    if place > 0 && self.ready.get(place) == Some(&link) {
                        self.ready[..=place].rotate_right(1);
                    }
                }
            }
        } else {
            let mut reported = [EpollEvent::empty(); REPORTED];
            // This call fails only if a signal interrupts it.
            let count = self
                .epoll
                .wait(&mut reported, EpollTimeout::ZERO)
                .unwrap_or(0);
            for event in &reported[..count] {
                progress |= self.receive(event.data() as LinkId);
            }
        }
        progress
    }

    /// Checks each blocked link with one `poll(2)`, then sends and receives as far as possible. One
    /// `poll(2)` costs less than a send and a receive that fail. Returns two values: the links that
    /// were checked, and whether bytes were received.
    fn ask_blocked(&mut self) -> (Vec<LinkId>, bool) {
        let mut progress = false;
        let asked = std::mem::take(&mut self.blocked);
        for link in asked.iter().copied() {
            let (input, output) = self.links[link].readiness();
            if output {
                self.flush(link);
            } else {
                self.block(link);
            }
            if input {
                progress |= self.receive(link);
            }
        }
        (asked, progress)
    }

    /// Returns and removes the collected events.
    pub fn take_events(&mut self) -> Vec<Event<P>> {
        std::mem::take(&mut self.events)
    }

    /// Returns whether there are events.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes back the memory of [`Event::Received`].
    pub fn give(&mut self, block: Vec<u8>) {
        self.blocks.give(block);
    }

    /// Receives on one link. Returns true if bytes were received.
    fn receive(&mut self, id: LinkId) -> bool {
        let peer = self.links[id].peer;
        let mut room = Room {
            windows: &mut self.windows,
            seen: &self.peers[peer].seen,
        };
        let received = match self.links[id].receive(&mut self.blocks, &mut room) {
            Ok(received) => received,
            Err(error) => {
                self.fail(id, &error.to_string());
                return true;
            }
        };
        if received.frames.is_empty() && !received.ended {
            self.blocks.give(received.block);
            return received.progress;
        }
        let mut arrivals = Vec::with_capacity(received.frames.len());
        let mut writes = received.writes.into_iter();
        let mut orderly = false;
        for (header, start) in received.frames {
            let link = &mut self.links[id];
            let length = header.length as usize;
            match header.kind {
                Kind::Acknowledgement => {
                    let mut done = Vec::new();
                    let result = link.acknowledged(header.number, &mut done);
                    self.complete(done, true);
                    if let Err(error) = result {
                        self.fail(id, &error.to_string());
                    }
                }
                Kind::End => orderly = true,
                kind => {
                    let mut new = true;
                    if header.protected {
                        link.count_arrival();
                        new = self.peers[peer].seen.insert(header.number);
                    }
                    // The numbers of the writes are in the order of the frames.
                    let write = (kind == Kind::Write).then(|| writes.next()).flatten();
                    if !new {
                        continue;
                    }
                    if kind == Kind::Send {
                        let tag = header.tag;
                        arrivals.push(Arrival { tag, start, length });
                        continue;
                    }
                    let bytes = received.block.get(start..start + length).unwrap_or(&[]);
                    let served = match write {
                        Some(call) => self.reply(id, call, Vec::new()),
                        None => self.serve(id, kind, bytes),
                    };
                    if let Err(error) = served {
                        self.fail(id, &error.to_string());
                    }
                }
            }
        }
        if arrivals.is_empty() {
            self.blocks.give(received.block);
        } else {
            self.events.push(Event::Received {
                link: id,
                module: self.links[id].module,
                block: received.block,
                arrivals,
            });
        }
        if received.ended && !orderly {
            self.fail(id, "the process ended without a farewell");
            return true;
        }
        if self.links[id].acknowledge() {
            self.flush(id);
        }
        if orderly && matches!(self.links[id].state, State::Ready(_)) {
            self.part(id);
        }
        true
    }

    /// Handles a connection that the peer closed cleanly. The link's unsent messages are reported
    /// as not sent.
    fn part(&mut self, link: LinkId) {
        self.detach(link, State::Idle);
        self.abandon(link);
    }

    /// Closes all connections cleanly: sends each peer an end frame and waits for the peer's end
    /// frame, for at most `patience`.
    pub fn close(&mut self, patience: Duration) {
        self.closing = true;
        let end = Instant::now() + patience;
        for link in self.ready.clone() {
            self.links[link].push_control(Kind::End, 0);
            self.flush(link);
        }
        for link in self.ready.clone() {
            if let (false, State::Ready(stream)) =
                (self.links[link].has_output(), &self.links[link].state)
            {
                stream.finish();
            }
        }
        while !self.ready.is_empty() && Instant::now() < end {
            for link in std::mem::take(&mut self.blocked) {
                self.flush(link);
            }
            for link in self.ready.clone() {
                self.receive(link);
            }
            std::thread::yield_now();
        }
        for link in 0..self.links.len() {
            self.detach(link, State::Failed);
            self.abandon(link);
        }
        self.incoming.clear();
    }
}

/// Returns whether a call has failed because the process or the host lacks descriptors or memory.
fn lacks_resources(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

/// Borrows two links at once.
fn two<P>(links: &mut [Link<P>], first: LinkId, second: LinkId) -> (&mut Link<P>, &mut Link<P>) {
    let (low, high) = links.split_at_mut(first.max(second));
    if first < second {
        (&mut low[first], &mut high[0])
    } else {
        (&mut high[0], &mut low[second])
    }
}

#[cfg(test)]
mod tests;
