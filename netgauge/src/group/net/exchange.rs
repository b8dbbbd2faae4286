// SPDX-License-Identifier: MIT OR Apache-2.0

//! The traffic of meshes: members send to each other at once, in rounds, without blocking.
//!
//! Member 0 keeps the time. It begins a round with one byte to every other member, and each then
//! sends its messages, a piece at a time to whoever has room, while it reads from whoever has
//! something. Who has got and sent all says so to member 0 with one byte, unless all goes to
//! member 0, which sees it. When the last has, the round is over: it was measured by one clock.
//! Member 0 sends and receives like the others.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use nix::sys::epoll::{EpollFlags, EpollTimeout};
use serde::{Deserialize, Serialize};

use super::flows::Flows;
use super::links::{Link, Lost, Member, Watch, CLOCK, PIECE};
use super::rounds::{message, End, Series};
use crate::summary::jain;

/// Member 0's byte that begins a round.
const GO: u8 = b'G';
/// A member's byte that it has got and sent everything.
const DONE: u8 = b'D';
/// A member's byte that it is not done, but gets on.
const GOING: u8 = b'S';

/// Bytes that a sender of many to one sends before it lets others begin: enough packets that some
/// still wait for ESP's or TCP's window when the rest is written, which then joins them and needs
/// no announcement of its own.
const FIRST_PIECE: usize = 16 * 1024;

/// A member's view of one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// From the first go to the last member's word, nanoseconds; member 0's alone is of interest.
    pub round_ns: u64,
    /// From this member's go until it had got everything, nanoseconds; 0 if it got nothing.
    pub received_ns: u64,
    /// Member 0, where all send to it: Jain's index of what had come from each other one when the
    /// first one's message was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
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
    /// Member 0: has the other one said that it is done? Others: have they said so to member 0?
    done: bool,
    /// Is epoll to tell when there is room to write?
    wants_room: bool,
}

/// A member's part of rounds.
pub struct Exchange<'a> {
    number: u16,
    /// All send to member 0, and to nobody else.
    gathers: bool,
    links: &'a mut [Link],
    states: Vec<State>,
    /// The states at the beginning of a round.
    fresh: Vec<State>,
    watch: Watch,
    message: Vec<u8>,
    buffer: Vec<u8>,
    series: Series,
    give_up: Duration,
    /// When this member began to send.
    started: Option<Instant>,
    /// How long after that it had got everything.
    got_all: Option<Duration>,
    /// How equal the shares were when it had got the first message.
    fairness: Option<f64>,
    /// When member 0 heard of this member last.
    last_word: Instant,
}

impl<'a> Exchange<'a> {
    /// Gets ready for rounds of one size. A word of the coordinator on `control` will end them.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn new(
        member: &'a mut Member,
        control: BorrowedFd<'_>,
        series: Series,
        flows: &Flows,
        give_up: Duration,
    ) -> Result<Self> {
        let number = member.number;
        let fresh = member.links.iter().map(|link| State {
            receives: flows.lead(link.peer, number),
            sends: flows.lead(number, link.peer),
            ..State::default()
        });
        let fresh: Vec<_> = fresh.collect();
        let gathers = *flows == Flows::Gather;
        Ok(Self {
            number,
            gathers,
            watch: Watch::new(control, &member.links)?,
            links: &mut member.links,
            message: match fresh.iter().any(|state| state.sends) {
                true => message(number, series.size),
                false => Vec::new(),
            },
            states: fresh.clone(),
            fresh,
            buffer: vec![0; PIECE],
            series,
            give_up,
            started: None,
            got_all: None,
            fairness: None,
            last_word: Instant::now(),
        })
    }

    /// Does the rounds, each as soon as member 0 says go. `on_span` is given every round that was
    /// completed.
    ///
    /// # Errors
    ///
    /// [`Lost`] where another member is to blame or the time to give up passed without progress;
    /// otherwise what the system says.
    pub fn run(mut self, mut on_span: impl FnMut(Span)) -> Result<End> {
        for _ in 0..self.series.rounds {
            self.states.clone_from(&self.fresh);
            match self.round()? {
                Some(span) => on_span(span),
                None => return Ok(End::Interrupted),
            }
        }
        Ok(End::Complete)
    }

    /// One round; `None` if the coordinator has something to say.
    fn round(&mut self) -> Result<Option<Span>> {
        (self.started, self.got_all, self.fairness) = (None, None, None);
        if self.number == CLOCK {
            self.begin()?;
        }
        while !self.is_over() {
            let patience = self.patience();
            let Some(ready) = self.watch.wait(patience)? else {
                return Ok(None);
            };
            if ready == 0 {
                bail!(self.silence());
            }
            for number in 0..ready {
                let (link, events) = self.watch.ready(number);
                // An end or an error is found by reading.
                if events != EpollFlags::EPOLLOUT {
                    self.read(link)?;
                }
                if events.contains(EpollFlags::EPOLLOUT) {
                    self.write(link)?;
                }
            }
            self.report()?;
        }
        let elapsed = self.started.map(|started| started.elapsed());
        Ok(Some(Span {
            round_ns: nanoseconds(elapsed),
            received_ns: nanoseconds(self.got_all),
            fairness: self.fairness,
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
            self.write(link)?;
        }
        // What others sent may have come before the go.
        self.note_all();
        Ok(())
    }

    /// Is there something to be written to a link?
    fn is_unsent(&self, link: usize) -> bool {
        let state = &self.states[link];
        state.before.is_some()
            || (state.sends && state.sent < self.series.size)
            || state.after.is_some()
    }

    /// Is a message from there still to come?
    fn is_awaited(&self, link: usize) -> bool {
        let state = &self.states[link];
        state.receives && state.received < self.series.size
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
            CLOCK => self.gathers || self.states.iter().all(|state| state.done),
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
            self.watch.want_room(link, &self.links[link], wanted)?;
            self.states[link].wants_room = wanted;
        }
        Ok(())
    }

    /// Writes what there is room for, at most one piece of a message.
    fn write(&mut self, link: usize) -> Result<()> {
        let begun = self.started.is_some();
        let state = &mut self.states[link];
        let unsent = state.sends && begun && state.sent < self.series.size;
        let first = unsent && state.sent == 0;
        let word;
        let data = if let Some(byte) = state.before {
            word = [byte];
            &word[..]
        } else if unsent {
            let rest = &self.message[state.sent as usize..];
            let most = match (self.gathers, first) {
                (true, true) => FIRST_PIECE,
                // There is nobody else whose turn it could be.
                (true, false) => rest.len(),
                (false, _) => PIECE,
            };
            &rest[..rest.len().min(most)]
        } else if let Some(byte) = state.after {
            word = [byte];
            &word[..]
        } else {
            return self.want_room(link, false);
        };
        let written = self.links[link].write(data)?;
        if written == 0 {
            return self.want_room(link, true);
        }
        if state.before.is_some() {
            state.before = None;
        } else if unsent {
            state.sent += written as u64;
        } else {
            state.after = None;
        }
        let more = self.is_unsent(link) && begun;
        if self.gathers && first && more {
            // Where senders share a processor, each would otherwise copy its whole message before
            // the next can begin, and the first be done before the last has begun.
            thread::yield_now();
        }
        self.want_room(link, more)
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
                bail!(self.links[link].lost("it began a round without a go"));
            }
            begin = 1;
            self.begin()?;
        }
        let state = &self.states[link];
        let awaited = if state.receives {
            (self.series.size - state.received) as usize
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
        if self.gathers && *received == self.series.size && self.fairness.is_none() {
            self.fairness = Some(jain(&self.arrived()));
        }
        self.note_all();
        Ok(())
    }

    /// Takes a member's word to member 0.
    fn hear(&mut self, link: usize, word: u8) -> Result<()> {
        let is_told = self.number == CLOCK && !self.gathers;
        let state = &mut self.states[link];
        match word {
            DONE if is_told && !state.done => state.done = true,
            GOING if is_told && !state.done => {}
            _ => bail!(self.links[link].lost("more came than one message")),
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
            if self.gathers {
                return Ok(());
            }
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
        let reason = match self.any(Self::is_unsent) {
            true => "no progress",
            false => "no progress: nothing came",
        };
        Lost {
            members,
            reason: format!("{reason} for {} s", self.give_up.as_secs_f32()),
        }
    }

    /// Bytes that have come from each other one, with those that wait in the sockets to be read.
    fn arrived(&self) -> Vec<u64> {
        let links = self.links.iter().zip(&self.states);
        let arrived = links.map(|(link, state)| state.received + unread(link).unwrap_or(0));
        arrived.map(|bytes| bytes.min(self.series.size)).collect()
    }
}

nix::ioctl_read_bad!(
    /// Asks for the number of bytes that can be read.
    fionread,
    libc::FIONREAD,
    libc::c_int
);

/// Bytes that can be read from a link without waiting, if that is known.
fn unread(link: &Link) -> Option<u64> {
    let mut bytes = 0;
    // SAFETY: the call writes one int through its argument, which is a live one, and keeps no
    // pointer to it; the descriptor is open as long as it is borrowed.
    unsafe { fionread(link.socket.as_fd().as_raw_fd(), &mut bytes) }.ok()?;
    u64::try_from(bytes).ok()
}

fn nanoseconds(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| time.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::rounds::pattern;
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

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

    /// A member's part, while nobody interrupts it.
    fn exchange(
        member: &mut Member,
        series: Series,
        flows: &Flows,
        give_up: Duration,
    ) -> (Result<End>, Vec<Span>) {
        let (control, _coordinator) = UnixStream::pair().unwrap();
        let mut spans = Vec::new();
        let exchange = Exchange::new(member, control.as_fd(), series, flows, give_up).unwrap();
        (exchange.run(|span| spans.push(span)), spans)
    }

    /// Each member's outcome.
    fn exchange_all(
        members: &mut [Member],
        series: Series,
        flows: &Flows,
    ) -> Vec<(Result<End>, Vec<Span>)> {
        thread::scope(|scope| {
            let threads: Vec<_> = members
                .iter_mut()
                .map(|member| {
                    scope.spawn(move || {
                        let outcome = exchange(member, series, flows, GIVE_UP);
                        if outcome.0.is_err() {
                            // As a participant does: the others hear of it.
                            member.links.clear();
                        }
                        outcome
                    })
                })
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_get_everything_of_all_whatever_the_size_and_whoever_sends() {
        let pairs = Flows::Pairs(vec![None, Some(3), None, Some(1)]);
        let mut members = members(4);
        for size in [1, 1000, 1 << 20] {
            for flows in [&Flows::All, &Flows::Scatter, &Flows::Gather, &pairs] {
                let series = Series { size, rounds: 3 };
                let ended = exchange_all(&mut members, series, flows);
                for (number, (end, spans)) in (0..).zip(ended) {
                    assert_eq!(end.unwrap(), End::Complete);
                    assert_eq!(spans.len(), 3);
                    let receives = (0..4).any(|other| flows.lead(other, number));
                    for span in spans {
                        assert!(span.round_ns > 0 && span.received_ns <= span.round_ns);
                        assert!(receives || span.received_ns == 0, "{number}: {span:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn rounds_are_done_by_all_and_timed() {
        let mut members = members(4);
        for size in [1, 1000, 1 << 20] {
            let series = Series { size, rounds: 4 };
            let mut ended = exchange_all(&mut members, series, &Flows::Gather);
            let (end, rounds) = ended.remove(0);
            assert_eq!(end.unwrap(), End::Complete);
            assert_eq!(rounds.len(), 4);
            for round in rounds {
                assert!(round.received_ns > 0);
                let fairness = round.fairness.unwrap();
                assert!((1.0 / 3.0..=1.0).contains(&fairness), "{round:?}");
            }
            for (end, _) in ended {
                assert_eq!(end.unwrap(), End::Complete);
            }
        }
    }

    #[test]
    fn what_waits_unread_counts_as_arrived() {
        let mut members = members(2);
        let mut sender = members.remove(1).links.remove(0);
        let receiver = &members[0].links[0];
        assert_eq!(unread(receiver), Some(0));
        sender.socket.write_all(b"12345").unwrap();
        crate::host::wait_readable([receiver.socket.as_fd()], None).unwrap();
        assert_eq!(unread(receiver), Some(5));
    }

    #[test]
    fn a_member_that_ends_is_named_by_the_others() {
        let mut members = members(3);
        members[2].links.clear();
        let two = &mut members[..2];
        let series = Series {
            size: 1 << 20,
            rounds: 1,
        };
        let ended = exchange_all(two, series, &Flows::All);
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
        let series = Series { size, rounds: 1 };
        let (end, _) = exchange(&mut members[0], series, &Flows::Scatter, give_up);
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

    /// Member 0's error in a round in which two clients are to send 100,000 bytes each, and do this
    /// instead.
    fn broken_by(clients: impl FnOnce(Vec<Member>) + Send, give_up: Duration) -> Lost {
        let mut members = members(3);
        let others = members.split_off(1);
        let series = Series {
            size: 100_000,
            rounds: 1,
        };
        thread::scope(|scope| {
            scope.spawn(|| clients(others));
            let (end, _) = exchange(&mut members[0], series, &Flows::Gather, give_up);
            // The clients wait for more until they hear that there is none.
            members.clear();
            end.unwrap_err().downcast().unwrap()
        })
    }

    /// A client's messages until the server ends the connection.
    fn good_client(mut member: Member) {
        let series = Series {
            size: 100_000,
            rounds: u32::MAX,
        };
        let (end, _) = exchange(&mut member, series, &Flows::Gather, GIVE_UP);
        end.unwrap_err();
    }

    #[test]
    fn a_client_that_ends_is_named() {
        let broken = broken_by(
            |mut clients| {
                let mut ending = clients.remove(1).links.remove(0).socket;
                ending.set_nonblocking(false).unwrap();
                ending.read_exact(&mut [0]).unwrap();
                drop(ending);
                good_client(clients.remove(0));
            },
            GIVE_UP,
        );
        assert_eq!(broken.members, [2]);
        assert!(broken.reason.contains("ended"), "{broken}");
    }

    #[test]
    fn silent_clients_are_named() {
        let broken = broken_by(
            |mut clients| {
                let silent = clients.remove(0);
                good_client(clients.remove(0));
                drop(silent);
            },
            // Enough for the other one to be served on a busy machine.
            Duration::from_secs(5),
        );
        assert_eq!(broken.members, [1]);
        assert!(broken.reason.contains("nothing came"), "{broken}");
    }

    #[test]
    fn a_wrong_byte_and_a_byte_too_many_are_noticed() {
        let with = |number: u16, length: u64| {
            move |mut clients: Vec<Member>| {
                let message: Vec<u8> = (0..length).map(|at| pattern(number, at)).collect();
                let mut socket = clients[0].links.remove(0).socket;
                socket.set_nonblocking(false).unwrap();
                // The server may have ended the connection before all of it is sent.
                let _ = socket.write_all(&message);
                let mut rest = Vec::new();
                let _ = socket.read_to_end(&mut rest);
            }
        };
        let broken = broken_by(with(2, 100_000), GIVE_UP);
        assert_eq!(broken.members, [1]);
        assert!(broken.reason.contains("not what was sent"), "{broken}");
        let broken = broken_by(with(1, 200_000), GIVE_UP);
        assert!(broken.reason.contains("more came"), "{broken}");
    }

    #[test]
    fn a_word_on_the_control_connection_interrupts() {
        for (number, flows) in [(0, Flows::All), (1, Flows::All), (0, Flows::Gather)] {
            let mut members = members(2);
            let (control, coordinator) = UnixStream::pair().unwrap();
            coordinator.shutdown(Shutdown::Write).unwrap();
            let series = Series { size: 1, rounds: 1 };
            let control = control.as_fd();
            let exchange = Exchange::new(&mut members[number], control, series, &flows, GIVE_UP);
            let end = exchange.unwrap().run(|_| ());
            assert_eq!(end.unwrap(), End::Interrupted);
        }
    }
}
