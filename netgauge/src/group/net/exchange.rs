// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rounds of messages among the members of a mesh, over non-blocking sockets.
//!
//! Member 0 keeps the time. It begins a round with one byte to every other member. Each member then
//! sends its messages, a piece at a time to each link with room, and reads from each link with
//! data. A member that has received and sent everything reports this to member 0 with one byte. If
//! all messages go to member 0, no report is needed. The round ends when the last member is done,
//! so one clock measures the round. Member 0 sends and receives like the others.

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

/// The byte by which member 0 tells another member that the round begins.
const GO: u8 = b'G';
/// The byte by which a member tells member 0 that it has received and sent everything.
const DONE: u8 = b'D';
/// The byte by which a member tells member 0 that it makes progress, but is not done.
const GOING: u8 = b'S';

/// If all send to member 0: the number of bytes that a sender writes before it yields the
/// processor. When the sender writes the rest of the message, some of these bytes are still queued
/// behind ESP's or TCP's window. The rest joins that queue. If the queue were empty, ESP would have
/// to announce the rest to the receiver separately.
const FIRST_PIECE: usize = 16 * 1024;

/// The results of one round, as one member measured them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The duration of the round, nanoseconds. Only member 0's value is used.
    pub round_ns: u64,
    /// The time from this member's start until it had received everything, nanoseconds; 0 if it
    /// receives nothing.
    pub received_ns: u64,
    /// Jain's index of fairness, which compares how many bytes had arrived from each member when
    /// the message of the fastest member was complete. Only member 0 has this value, and only if
    /// all members send to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
}

/// The state of a link's transfer in the current round.
#[derive(Clone, Debug, Default)]
struct State {
    /// Whether the peer sends a message to this member.
    receives: bool,
    /// Whether this member sends a message to the peer.
    sends: bool,
    /// The number of bytes of the peer's message that were received.
    received: u64,
    /// The number of bytes of this member's message that were written.
    sent: u64,
    /// A byte to write before the message.
    before: Option<u8>,
    /// A byte to write after the message.
    after: Option<u8>,
    /// At member 0: whether the peer has reported that it is done. At other members, on the link
    /// with member 0: whether this member has reported that it is done.
    done: bool,
    /// Whether epoll watches the link for room to write.
    wants_room: bool,
}

/// A member that takes part in rounds.
pub struct Exchange<'a> {
    number: u16,
    /// Whether all members send to member 0, and to no other member.
    gathers: bool,
    links: &'a mut [Link],
    states: Vec<State>,
    /// The value of `states` at the beginning of each round.
    fresh: Vec<State>,
    watch: Watch,
    message: Vec<u8>,
    buffer: Vec<u8>,
    series: Series,
    give_up: Duration,
    /// The time at which this member began to send.
    started: Option<Instant>,
    /// The time from `started` until this member had received everything.
    got_all: Option<Duration>,
    /// Jain's index of fairness, which compares how many bytes had arrived from each member when
    /// the message of the fastest member was complete.
    fairness: Option<f64>,
    /// The time at which this member most recently reported progress to member 0. Before the first
    /// report of a round, the time at which this member began to send.
    last_word: Instant,
}

impl<'a> Exchange<'a> {
    /// Prepares rounds of one size. Data from the coordinator on `control` interrupts the rounds.
    ///
    /// # Errors
    ///
    /// Fails if a system call fails.
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

    /// Runs the rounds, each as soon as member 0 begins it. Calls `on_span` with the result of each
    /// complete round.
    ///
    /// # Errors
    ///
    /// Fails with [`Lost`] if another member failed, or made no progress for `give_up`. Otherwise
    /// fails with the error of a system call.
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

    /// Runs one round. Returns `None` if the coordinator has sent something.
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
                // Reads the link also if its connection has ended or failed, because the read call
                // then reports the end or the failure.
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
        // Member 0 sends each member the byte that starts the round, and only then sends data. The
        // sockets always have room for that byte.
        if self.number == CLOCK {
            for link in 0..self.links.len() {
                self.states[link].before = Some(GO);
                self.write(link)?;
            }
        }
        for link in 0..self.links.len() {
            self.write(link)?;
        }
        // Other members may have sent all their data before this member was started, so this member
        // may already have received everything.
        self.note_all();
        Ok(())
    }

    /// Returns whether a link has something left to write.
    fn is_unsent(&self, link: usize) -> bool {
        let state = &self.states[link];
        state.before.is_some()
            || (state.sends && state.sent < self.series.size)
            || state.after.is_some()
    }

    /// Returns whether the link's peer sends a message that has not arrived completely.
    fn is_awaited(&self, link: usize) -> bool {
        let state = &self.states[link];
        state.receives && state.received < self.series.size
    }

    fn any(&self, what: impl Fn(&Self, usize) -> bool) -> bool {
        (0..self.links.len()).any(|link| what(self, link))
    }

    /// Returns whether this member has received and sent everything.
    fn has_all(&self) -> bool {
        self.started.is_some() && !self.any(Self::is_awaited) && !self.any(Self::is_unsent)
    }

    fn is_over(&self) -> bool {
        // A member sets `done` when it queues its report to member 0. `has_all` is false until the
        // report is written, so the round is not over before that.
        let said = match self.number {
            CLOCK => self.gathers || self.states.iter().all(|state| state.done),
            _ => self.states.iter().any(|state| state.done),
        };
        said && self.has_all()
    }

    /// Records the time when everything has arrived.
    fn note_all(&mut self) {
        let receives = self.states.iter().any(|state| state.receives);
        if receives && self.got_all.is_none() && !self.any(Self::is_awaited) {
            self.got_all = self.started.map(|started| started.elapsed());
        }
    }

    /// Sets whether epoll reports room to write on a link.
    fn want_room(&mut self, link: usize, wanted: bool) -> Result<()> {
        if self.states[link].wants_room != wanted {
            self.watch.want_room(link, &self.links[link], wanted)?;
            self.states[link].wants_room = wanted;
        }
        Ok(())
    }

    /// Writes as much as there is room for, at most one piece of a message.
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
                // A sender has only one link if all send to member 0, so a long write keeps no
                // other link waiting.
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
            // Several senders may share a processor. Without this call, each of them would copy its
            // whole message before the next sender begins.
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

    /// Processes a piece of the peer's message: the bytes of the buffer from `begin` to `end`.
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

    /// Processes `word`, a byte that is neither part of a message nor [`GO`]. It can only be a
    /// report to member 0; any other byte is an error.
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

    /// Tells member 0 that this member is done or makes progress. Called after an event has woken
    /// this member.
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
        // While a message to member 0 is unsent, no report is needed, because the message's data
        // shows progress.
        if !self.is_unsent(clock) && self.last_word.elapsed() > self.give_up / 4 {
            self.last_word = Instant::now();
            if !self.states[clock].done {
                self.states[clock].after = Some(GOING);
                return self.write(clock);
            }
        }
        Ok(())
    }

    /// Returns the time limit of a wait for events. If member 0 waits only for reports, it waits
    /// longer than the other members. So a member that receives no data has time to report which
    /// member is silent.
    fn patience(&self) -> EpollTimeout {
        let mine = self.any(Self::is_awaited) || self.any(Self::is_unsent);
        let patience = match (self.started, self.number) {
            (None, _) => return EpollTimeout::NONE,
            (_, CLOCK) if !mine => self.give_up * 2,
            _ => self.give_up,
        };
        EpollTimeout::try_from(patience).unwrap_or(EpollTimeout::MAX)
    }

    /// Returns the error for a wait that took too long. It names the members that made no progress.
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

    /// Returns how many bytes have arrived from each peer, including the unread bytes in the link's
    /// socket.
    fn arrived(&self) -> Vec<u64> {
        let links = self.links.iter().zip(&self.states);
        let arrived = links.map(|(link, state)| state.received + unread(link).unwrap_or(0));
        arrived.map(|bytes| bytes.min(self.series.size)).collect()
    }
}

nix::ioctl_read_bad!(
    /// Calls `ioctl(2)` with `FIONREAD`, which stores the number of readable bytes.
    fionread,
    libc::FIONREAD,
    libc::c_int
);

/// Returns the number of bytes that can be read from a link without waiting; `None` if the kernel
/// does not report the number.
fn unread(link: &Link) -> Option<u64> {
    let mut bytes = 0;
    // SAFETY: The call writes one `int` to `bytes`, which outlives the call, and keeps no pointer
    // to `bytes`. The descriptor is open while `link` is borrowed.
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

    /// Returns `count` members, each of which is connected with every other member.
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

    /// Runs a member's rounds without an interruption. Returns its spans, or its error.
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

    /// Runs the rounds of all members in threads. Returns each member's outcome.
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
                            // Closes the connections, as a participant does, so that the others
                            // notice the end.
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
    fn messages_of_any_size_arrive_in_all_flows() {
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
    fn unread_bytes_count_as_arrived() {
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

    /// Returns the error of member 1, in a mesh of two, if member 0 writes `bytes` and nothing
    /// more.
    fn after(bytes: &[u8], size: u64, give_up: Duration) -> Lost {
        let mut members = members(2);
        let mut clock = members.remove(0);
        clock.links[0].socket.write_all(bytes).unwrap();
        let series = Series { size, rounds: 1 };
        let (end, _) = exchange(&mut members[0], series, &Flows::Scatter, give_up);
        end.unwrap_err().downcast().unwrap()
    }

    #[test]
    fn wrong_bytes_and_too_many_are_noticed() {
        let wrong = [GO, pattern(1, 0)];
        assert!(after(&wrong, 2, GIVE_UP)
            .reason
            .contains("not what was sent"));
        assert!(after(b"x", 2, GIVE_UP).reason.contains("without a go"));
        let more = [GO, pattern(0, 0), pattern(0, 1), b'?'];
        assert!(after(&more, 2, GIVE_UP).reason.contains("more came"));
    }

    #[test]
    fn a_silent_member_is_named() {
        let lost = after(&[GO], 2, Duration::from_millis(50));
        assert_eq!(lost.members, [CLOCK]);
        assert!(lost.reason.contains("no progress"), "{lost}");
    }

    /// Returns member 0's error in a round of two clients. Each of them should send 100,000 bytes,
    /// but the function `clients` acts in their place.
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
            // The clients wait for more data until the server's connections end.
            members.clear();
            end.unwrap_err().downcast().unwrap()
        })
    }

    /// Sends a client's messages until the server ends the connection.
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
            // This time limit (`give_up`) is long enough to serve the other client even on a busy
            // machine.
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
                // The error is ignored, because the server may end the connection before all is
                // sent.
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
    fn control_data_interrupts_a_round() {
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
