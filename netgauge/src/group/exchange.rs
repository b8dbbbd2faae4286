// SPDX-License-Identifier: MIT OR Apache-2.0

//! The traffic of meshes: members send to each other at once, in rounds, without blocking.
//!
//! Member 0 keeps the time. It begins a round with one byte to every other member, and each then
//! sends its messages, a piece at a time to whoever has room, while it reads from whoever has
//! something. Who has got and sent all says so to member 0 with one byte. When the last has, the
//! round is over: it was measured by one clock. Member 0 sends and receives like the others.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use serde::{Deserialize, Serialize};

use super::rounds::{is_harmless, message, pattern, End, Series};
use crate::transport::streams::StreamSocket;

/// The member that keeps the time.
pub const CLOCK: u16 = 0;

/// Member 0's byte that begins a round.
const GO: u8 = b'G';
/// A member's byte that it has got and sent everything.
const DONE: u8 = b'D';
/// A member's byte that it is not done, but gets on.
const GOING: u8 = b'S';

/// The most read from or written to one member before the next has its turn, bytes.
pub(super) const PIECE: usize = 64 * 1024;

/// The epoll token of the control connection.
pub(super) const CONTROL: u64 = u64::MAX;

/// A member's view of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// From the first go to the last member's word, nanoseconds; member 0's alone is of interest.
    pub round_ns: u64,
    /// From this member's go until it had got everything, nanoseconds; 0 if it got nothing.
    pub received_ns: u64,
}

/// Others were lost, or nothing came from some for too long.
#[derive(Debug)]
pub struct Lost {
    /// Their numbers.
    pub members: Vec<u16>,
    /// The event.
    pub reason: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (members {:?})", self.reason, self.members)
    }
}

impl std::error::Error for Lost {}

/// A connection with another member.
pub struct Link {
    /// The other one's number.
    pub peer: u16,
    /// The connection; it does not block.
    pub socket: Box<dyn StreamSocket>,
}

impl Link {
    /// The error that says that the other one is to blame.
    pub(super) fn lost(&self, reason: &str) -> Lost {
        Lost {
            members: vec![self.peer],
            reason: reason.to_owned(),
        }
    }

    /// Reads a piece; nothing if none has come.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Lost> {
        match self.socket.read(buffer) {
            Ok(0) => Err(self.lost("the connection ended")),
            Err(error) if is_harmless(&error) => Ok(0),
            read => read.map_err(|error| self.lost(&format!("receiving: {error}"))),
        }
    }

    /// Sends one byte, for which there always is room: the one before has been answered.
    pub(super) fn tell(&mut self, byte: u8) -> Result<(), Lost> {
        let told = self.socket.write_all(&[byte]);
        told.map_err(|error| self.lost(&format!("sending it a byte: {error}")))
    }

    /// Are both ends of a piece what the other one's message has at this offset?
    pub(super) fn check(&self, offset: u64, piece: &[u8]) -> Result<(), Lost> {
        let last = piece.len().saturating_sub(1);
        for place in [0, last] {
            let offset = offset + place as u64;
            if piece.get(place) != Some(&pattern(self.peer, offset)) {
                let reason = format!("byte {offset} of its message is not what was sent");
                return Err(self.lost(&reason));
            }
        }
        Ok(())
    }
}

/// A member and its connections, among them one with member 0; member 0 has one with everybody.
pub struct Member {
    /// Its number.
    pub number: u16,
    /// Its connections.
    pub links: Vec<Link>,
}

/// The transfer that is under way on a link in one round.
#[derive(Clone, Debug, Default)]
struct State {
    /// Does the other one send a message here?
    receives: bool,
    /// Is a message sent there?
    sends: bool,
    /// Bytes of its message that have come.
    received: u64,
    /// Bytes of the message there that have been written.
    sent: u64,
    /// Bytes before the message.
    before: Option<u8>,
    /// Bytes after it.
    after: Option<u8>,
    /// Member 0: has the other one said that it is done?
    done: bool,
    /// Is epoll to tell when there is room to write?
    wants_room: bool,
}

/// Does these rounds, each as soon as member 0 says go; `to` and `from` are who gets a message and
/// who sends one. `on_span` is given every round that was completed.
///
/// # Errors
///
/// [`Lost`] where another member is to blame or `give_up` passed without progress; otherwise what
/// the system says.
pub fn exchange(
    member: &mut Member,
    control: BorrowedFd<'_>,
    series: Series,
    (to, from): (&[u16], &[u16]),
    give_up: Duration,
    mut on_span: impl FnMut(Span),
) -> Result<End> {
    let epoll = watch(control, &member.links)?;
    let fresh = member.links.iter().map(|link| State {
        receives: from.contains(&link.peer),
        sends: to.contains(&link.peer),
        ..State::default()
    });
    let fresh: Vec<_> = fresh.collect();
    let mut traffic = Traffic {
        number: member.number,
        links: &mut member.links,
        states: fresh.clone(),
        epoll,
        message: message(member.number, series.size),
        buffer: vec![0; PIECE],
        size: series.size,
        give_up,
        started: None,
        got_all: None,
        last_word: Instant::now(),
    };
    for _ in 0..series.rounds {
        traffic.states.clone_from(&fresh);
        match traffic.round()? {
            Some(span) => on_span(span),
            None => return Ok(End::Interrupted),
        }
    }
    Ok(End::Complete)
}

/// Has an epoll look at the control connection, and at the links by their places.
pub(super) fn watch(control: BorrowedFd<'_>, links: &[Link]) -> Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("making an epoll")?;
    let readable = |token| EpollEvent::new(EpollFlags::EPOLLIN, token);
    epoll.add(control, readable(CONTROL))?;
    for (token, link) in (0..).zip(links) {
        epoll.add(link.socket.as_fd(), readable(token))?;
    }
    Ok(epoll)
}

/// Waits for what an epoll looks at: how many events there are, none after the time.
pub(super) fn wait(
    epoll: &Epoll,
    events: &mut [EpollEvent],
    patience: impl TryInto<EpollTimeout>,
) -> Result<usize> {
    let patience = patience.try_into().unwrap_or(EpollTimeout::MAX);
    loop {
        match epoll.wait(events, patience) {
            Err(Errno::EINTR) => {}
            ready => return ready.context("waiting for the others"),
        }
    }
}

struct Traffic<'a> {
    number: u16,
    links: &'a mut [Link],
    states: Vec<State>,
    epoll: Epoll,
    message: Vec<u8>,
    buffer: Vec<u8>,
    size: u64,
    give_up: Duration,
    /// When this member began to send.
    started: Option<Instant>,
    /// How long after that it had got everything.
    got_all: Option<Duration>,
    /// When member 0 heard of this member last.
    last_word: Instant,
}

impl Traffic<'_> {
    /// One round; `None` if the coordinator has something to say.
    fn round(&mut self) -> Result<Option<Span>> {
        (self.started, self.got_all) = (None, None);
        if self.number == CLOCK {
            self.begin()?;
        }
        let mut events = vec![EpollEvent::empty(); self.links.len() + 1];
        while !self.is_over() {
            let ready = wait(&self.epoll, &mut events, self.patience())?;
            if ready == 0 {
                return Err(self.silence().into());
            }
            for event in &events[..ready] {
                if event.data() == CONTROL {
                    return Ok(None);
                }
                let link = event.data() as usize;
                // An end or an error is found by reading.
                if event.events() != EpollFlags::EPOLLOUT {
                    self.read(link)?;
                }
                if event.events().contains(EpollFlags::EPOLLOUT) {
                    self.write(link)?;
                }
            }
            self.report()?;
        }
        let elapsed = self.started.map(|started| started.elapsed());
        Ok(Some(Span {
            round_ns: nanoseconds(elapsed),
            received_ns: nanoseconds(self.got_all),
        }))
    }

    /// Begins to send.
    fn begin(&mut self) -> Result<()> {
        self.started = Some(Instant::now());
        self.last_word = Instant::now();
        // Everybody is told first: room for one byte there always is.
        if self.number == CLOCK {
            for link in 0..self.links.len() {
                self.states[link].before = Some(GO);
                self.write(link)?;
            }
        }
        for link in 0..self.links.len() {
            self.want_room(link, self.is_unsent(link))?;
        }
        // What others sent may have come before the go.
        self.note_all();
        Ok(())
    }

    /// Is there something to be written to a link?
    fn is_unsent(&self, link: usize) -> bool {
        let state = &self.states[link];
        state.before.is_some() || (state.sends && state.sent < self.size) || state.after.is_some()
    }

    /// Is a message from there still to come?
    fn is_awaited(&self, link: usize) -> bool {
        let state = &self.states[link];
        state.receives && state.received < self.size
    }

    fn any(&self, what: impl Fn(&Self, usize) -> bool) -> bool {
        (0..self.links.len()).any(|link| what(self, link))
    }

    /// Has this member got and sent all?
    fn has_all(&self) -> bool {
        self.started.is_some() && !self.any(Self::is_awaited) && !self.any(Self::is_unsent)
    }

    fn is_over(&self) -> bool {
        // Which includes the byte that says so to member 0, once it is to be written.
        let said = match self.number {
            CLOCK => self.states.iter().all(|state| state.done),
            _ => self.states.iter().any(|state| state.done),
        };
        said && self.has_all()
    }

    /// Notes when everything has come.
    fn note_all(&mut self) {
        let receives = self.states.iter().any(|state| state.receives);
        if receives && self.got_all.is_none() && !self.any(Self::is_awaited) {
            self.got_all = self.started.map(|started| started.elapsed());
        }
    }

    /// Has epoll tell of room on a link, or no longer.
    fn want_room(&mut self, link: usize, wanted: bool) -> Result<()> {
        if self.states[link].wants_room != wanted {
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, wanted);
            let mut event = EpollEvent::new(flags, link as u64);
            self.epoll
                .modify(self.links[link].socket.as_fd(), &mut event)?;
            self.states[link].wants_room = wanted;
        }
        Ok(())
    }

    /// Writes what there is room for, at most one piece of a message.
    fn write(&mut self, link: usize) -> Result<()> {
        let begun = self.started.is_some();
        let state = &mut self.states[link];
        let unsent = state.sends && begun && state.sent < self.size;
        let (word, piece);
        let data = if let Some(byte) = state.before {
            word = [byte];
            &word[..]
        } else if unsent {
            piece = &self.message[state.sent as usize..];
            &piece[..piece.len().min(PIECE)]
        } else if let Some(byte) = state.after {
            word = [byte];
            &word[..]
        } else {
            return self.want_room(link, false);
        };
        let written = match self.links[link].socket.write(data) {
            Ok(0) => return Err(self.links[link].lost("it takes nothing").into()),
            Ok(written) => written,
            Err(error) if is_harmless(&error) => return self.want_room(link, true),
            Err(error) => return Err(self.links[link].lost(&format!("sending: {error}")).into()),
        };
        if state.before.is_some() {
            state.before = None;
        } else if unsent {
            state.sent += written as u64;
        } else {
            state.after = None;
        }
        self.want_room(link, self.is_unsent(link) && begun)
    }

    /// Reads a piece from a link.
    fn read(&mut self, link: usize) -> Result<()> {
        let read = self.links[link].read(&mut self.buffer)?;
        if read == 0 {
            return Ok(());
        }
        let mut begin = 0;
        if self.links[link].peer == CLOCK && self.started.is_none() {
            if self.buffer[0] != GO {
                return Err(self.links[link]
                    .lost("it began a round without a go")
                    .into());
            }
            begin = 1;
            self.begin()?;
        }
        let state = &self.states[link];
        let awaited = if state.receives {
            (self.size - state.received) as usize
        } else {
            0
        };
        let end = read.min(begin + awaited);
        if end > begin {
            self.take(link, begin, end)?;
        }
        for index in end..read {
            self.hear(link, self.buffer[index])?;
        }
        Ok(())
    }

    /// Takes what is in the buffer between two places as a piece of the other one's message.
    fn take(&mut self, link: usize, begin: usize, end: usize) -> Result<()> {
        let received = &mut self.states[link].received;
        self.links[link].check(*received, &self.buffer[begin..end])?;
        *received += (end - begin) as u64;
        self.note_all();
        Ok(())
    }

    /// Takes a member's word to member 0.
    fn hear(&mut self, link: usize, word: u8) -> Result<()> {
        let state = &mut self.states[link];
        match word {
            DONE if self.number == CLOCK && !state.done => state.done = true,
            GOING if self.number == CLOCK && !state.done => {}
            _ => return Err(self.links[link].lost("more came than one message").into()),
        }
        Ok(())
    }

    /// Says to member 0 that this member is done, or that it gets on; it was woken by something.
    fn report(&mut self) -> Result<()> {
        if self.number == CLOCK || self.started.is_none() {
            return Ok(());
        }
        let Some(clock) = self.links.iter().position(|link| link.peer == CLOCK) else {
            return Ok(());
        };
        if self.has_all() && !self.states[clock].done {
            self.states[clock].done = true;
            self.states[clock].after = Some(DONE);
            return self.write(clock);
        }
        // While its message to member 0 is under way, that is word enough.
        if !self.is_unsent(clock) && self.last_word.elapsed() > self.give_up / 4 {
            self.last_word = Instant::now();
            if !self.states[clock].done {
                self.states[clock].after = Some(GOING);
                return self.write(clock);
            }
        }
        Ok(())
    }

    /// How long nothing may happen. Who is to blame for a pause is best known to those who wait for
    /// it: member 0, when it waits for words only, leaves them time to say so.
    fn patience(&self) -> EpollTimeout {
        let mine = self.any(Self::is_awaited) || self.any(Self::is_unsent);
        let patience = match (self.started, self.number) {
            (None, _) => return EpollTimeout::NONE,
            (_, CLOCK) if !mine => self.give_up * 2,
            _ => self.give_up,
        };
        EpollTimeout::try_from(patience).unwrap_or(EpollTimeout::MAX)
    }

    /// Nothing happened for too long.
    fn silence(&self) -> Lost {
        let of = |what: &dyn Fn(usize) -> bool| -> Vec<u16> {
            let links = (0..self.links.len()).filter(|link| what(*link));
            links.map(|link| self.links[link].peer).collect()
        };
        let mut members = of(&|link| self.is_awaited(link) || self.is_unsent(link));
        if members.is_empty() {
            members = of(&|link| !self.states[link].done);
        }
        Lost {
            members,
            reason: format!("no progress for {} s", self.give_up.as_secs_f32()),
        }
    }
}

fn nanoseconds(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| time.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::thread;

    const GIVE_UP: Duration = Duration::from_secs(20);

    /// Members, each connected with every other one.
    fn members(count: u16) -> Vec<Member> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut members: Vec<_> = (0..count)
            .map(|number| Member {
                number,
                links: Vec::new(),
            })
            .collect();
        for one in 0..count {
            for other in 0..one {
                let ends = [
                    TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
                    listener.accept().unwrap().0,
                ];
                for (socket, (number, peer)) in ends.into_iter().zip([(one, other), (other, one)]) {
                    socket.set_nonblocking(true).unwrap();
                    let socket = Box::new(socket);
                    members[usize::from(number)]
                        .links
                        .push(Link { peer, socket });
                }
            }
        }
        members
    }

    /// Each member's outcome, where `to` says who sends to whom.
    fn exchange_all(
        members: &mut [Member],
        series: Series,
        to: &(dyn Fn(u16) -> Vec<u16> + Sync),
    ) -> Vec<(Result<End>, Vec<Span>)> {
        let count = members.len() as u16;
        thread::scope(|scope| {
            let threads: Vec<_> = members
                .iter_mut()
                .map(|member| {
                    scope.spawn(move || {
                        let number = member.number;
                        let from: Vec<_> = (0..count)
                            .filter(|other| to(*other).contains(&number))
                            .collect();
                        let (control, _coordinator) = UnixStream::pair().unwrap();
                        let mut spans = Vec::new();
                        let end = exchange(
                            member,
                            control.as_fd(),
                            series,
                            (&to(number), &from),
                            GIVE_UP,
                            |span| spans.push(span),
                        );
                        if end.is_err() {
                            // As a participant does: the others hear of it.
                            member.links.clear();
                        }
                        (end, spans)
                    })
                })
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_get_everything_of_all_whatever_the_size_and_whoever_sends() {
        let all = |number: u16| (0..4).filter(|other| *other != number).collect();
        let scatter = |number: u16| {
            if number == CLOCK {
                vec![1, 2, 3]
            } else {
                vec![]
            }
        };
        let pairs = |number: u16| [vec![], vec![3], vec![], vec![1]][usize::from(number)].clone();
        let mut members = members(4);
        for size in [1, 1000, 1 << 20] {
            for to in [&all as &(dyn Fn(u16) -> Vec<u16> + Sync), &scatter, &pairs] {
                let series = Series { size, rounds: 3 };
                let ended = exchange_all(&mut members, series, to);
                for (number, (end, spans)) in (0..).zip(ended) {
                    assert_eq!(end.unwrap(), End::Complete);
                    assert_eq!(spans.len(), 3);
                    let receives = (0..4).any(|other| to(other).contains(&number));
                    for span in spans {
                        assert!(span.round_ns > 0 && span.received_ns <= span.round_ns);
                        assert!(receives || span.received_ns == 0, "{number}: {span:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_member_that_ends_is_named_by_the_others() {
        let all = |number: u16| (0..3).filter(|other| *other != number).collect();
        let mut members = members(3);
        members[2].links.clear();
        let two = &mut members[..2];
        let series = Series {
            size: 1 << 20,
            rounds: 1,
        };
        let ended = exchange_all(two, series, &all);
        let named: Vec<_> = ended
            .into_iter()
            .map(|(end, _)| end.unwrap_err().downcast::<Lost>().unwrap().members)
            .collect();
        assert!(named.contains(&vec![2]), "{named:?}");
    }

    /// The answer of member 1 of two when member 0 writes this and then nothing more.
    fn after(bytes: &[u8], size: u64, give_up: Duration) -> Lost {
        let mut members = members(2);
        let mut clock = members.remove(0);
        clock.links[0].socket.write_all(bytes).unwrap();
        let (control, _coordinator) = UnixStream::pair().unwrap();
        let series = Series { size, rounds: 1 };
        let peers = [CLOCK];
        let end = exchange(
            &mut members[0],
            control.as_fd(),
            series,
            (&[], &peers),
            give_up,
            |_| (),
        );
        end.unwrap_err().downcast().unwrap()
    }

    #[test]
    fn what_nobody_sent_is_noticed() {
        let wrong = [GO, pattern(1, 0)];
        assert!(after(&wrong, 2, GIVE_UP)
            .reason
            .contains("not what was sent"));
        assert!(after(b"x", 2, GIVE_UP).reason.contains("without a go"));
        let more = [GO, pattern(0, 0), pattern(0, 1), b'?'];
        assert!(after(&more, 2, GIVE_UP).reason.contains("more came"));
    }

    #[test]
    fn silence_names_who_is_waited_for() {
        let lost = after(&[GO], 2, Duration::from_millis(50));
        assert_eq!(lost.members, [CLOCK]);
        assert!(lost.reason.contains("no progress"), "{lost}");
    }

    #[test]
    fn a_word_on_the_control_connection_interrupts() {
        for number in [0, 1] {
            let mut members = members(2);
            let member = &mut members[number];
            let (control, coordinator) = UnixStream::pair().unwrap();
            coordinator.shutdown(Shutdown::Write).unwrap();
            let series = Series { size: 1, rounds: 1 };
            let peers = [1 - number as u16];
            let end = exchange(
                member,
                control.as_fd(),
                series,
                (&peers, &peers),
                GIVE_UP,
                |_| (),
            );
            assert_eq!(end.unwrap(), End::Interrupted);
        }
    }
}
