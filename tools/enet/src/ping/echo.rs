// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sends echo requests to EDP's port 0, and handles their answers.

use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sockaddr_en::constants::{EDP_ECHO_REPLY, EDP_ECHO_REQUEST};
use sockaddr_en::{Address, Capabilities, EdpSocket};

use super::target::Target;
use crate::interfaces::Interface;
use crate::output;

/// Number of bytes at the start of a request that carry information: its kind and its number. The
/// bytes after them are padding.
pub const LEAST_SIZE: u16 = 5;

/// Maximum number of bytes of a request: EDP's header has 15 bits for the length.
pub const MOST_SIZE: u16 = 0x7fff;

/// Number of bytes of an EDP header, which count towards the MTU.
const HEADER: u32 = 6;

/// Maximum number of unanswered requests that are remembered. It bounds the memory that an endless
/// ping needs.
const MOST_WAITING: u32 = 1 << 16;

/// The time to wait for the host's capabilities, counted from the query. This limit applies once
/// all echoes have arrived.
const TOLD: Duration = Duration::from_millis(100);

/// The time to wait for the host's capabilities if an error message depends on them.
const ASKED_AGAIN: Duration = Duration::from_secs(2);

/// The parameters of a ping.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of requests; 0 to send requests without end.
    pub count: u32,
    /// Interval between requests.
    pub interval: Duration,
    /// Number of bytes of a request.
    pub size: u16,
    /// The time to wait for answers after the last request.
    pub timeout: Duration,
}

/// The results of a ping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of requests that the device accepted for sending.
    pub sent: u32,
    /// Number of requests that the device refused.
    pub refused: u32,
    /// Number of answers and their round-trip times.
    pub times: Times,
    /// Number of answers that were not the first answer to their request.
    pub duplicates: u32,
}

/// Statistics of round-trip times in constant memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    count: u32,
    least: Duration,
    most: Duration,
    sum: Duration,
}

impl Times {
    /// Returns whether no answer has arrived.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn add(&mut self, time: Duration) {
        self.least = if self.is_empty() {
            time
        } else {
            self.least.min(time)
        };
        self.most = self.most.max(time);
        self.sum += time;
        self.count += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = u64::from(self.sent) + u64::from(self.refused);
        let lost = asked.saturating_sub(u64::from(self.times.count));
        let percent = (100 * lost).checked_div(asked).unwrap_or(0);
        write!(f, "{} sent, ", self.sent)?;
        if self.refused > 0 {
            write!(f, "{} refused by this host, ", self.refused)?;
        }
        write!(f, "{} answered", self.times.count)?;
        if self.duplicates > 0 {
            write!(f, ", {} answered twice", self.duplicates)?;
        }
        write!(f, ", {percent}% lost")?;
        if let Some(mean) = self.times.sum.checked_div(self.times.count) {
            let [least, mean, most] = [self.times.least, mean, self.times.most].map(milliseconds);
            write!(f, "; time min/avg/max {least}/{mean}/{most} ms")?;
        }
        Ok(())
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

/// The signals that end the ping. They are blocked and read through a descriptor. Dropping this
/// value unblocks them.
struct Interrupts {
    set: SigSet,
    descriptor: SignalFd,
}

impl Interrupts {
    fn catch() -> Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block().context("blocking signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let descriptor = SignalFd::with_flags(&set, flags).context("signalfd")?;
        Ok(Self { set, descriptor })
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // Pending signals are consumed because they would kill the process once unblocked.
        while matches!(self.descriptor.read_signal(), Ok(Some(_))) {}
        let _ = self.set.thread_unblock();
    }
}

/// A ping of one host.
#[derive(Debug)]
pub struct Echo<'a> {
    socket: &'a EdpSocket,
    target: &'a Target,
    plan: Plan,
    /// The time at which each unanswered request was sent, by request number.
    waiting: HashMap<u32, Instant>,
    tally: Tally,
    query: Query,
}

/// The state of the query for the host's capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Query {
    /// The query was not sent. It is sent after the first echo has arrived, so that all frames sent
    /// to an absent host are echo requests.
    NotSent,
    /// The query was sent with this nonce at this time.
    Sent(u32, Instant),
    /// The query was answered, or could not be sent.
    Done,
}

impl<'a> Echo<'a> {
    /// Prepares to ping `target` through `socket`.
    pub fn new(socket: &'a EdpSocket, target: &'a Target, plan: Plan) -> Self {
        Self {
            socket,
            target,
            plan,
            waiting: HashMap::new(),
            tally: Tally::default(),
            query: Query::NotSent,
        }
    }

    /// Sends requests and prints each answer, until all requests are done, a signal arrives, or the
    /// device or the output fails. Returns the results so far, and the error if there was one.
    pub fn run(mut self) -> (Tally, Option<anyhow::Error>) {
        let error = self.exchange().err();
        (self.tally, error)
    }

    fn exchange(&mut self) -> Result<()> {
        let name = &self.target.interface.name;
        let most = sockaddr_en::interface_mtu(name)
            .with_context(|| format!("the MTU of {name}"))?
            .saturating_sub(HEADER);
        if u32::from(self.plan.size) > most {
            bail!("a request of {} bytes does not fit into a frame of {name}, which carries {most} bytes of EDP: use --size {most} or less", self.plan.size);
        }
        self.socket.set_nonblocking(true)?;
        let interrupts = Interrupts::catch()?;
        let mut number = 0;
        let mut next = Instant::now();
        loop {
            let more = self.plan.count == 0 || number < self.plan.count;
            let now = Instant::now();
            if more && now >= next {
                number += 1;
                self.ask(number)?;
                next = now + self.plan.interval;
                continue;
            }
            let end = match self.query {
                _ if more => next,
                Query::Sent(_, sent) if self.waiting.is_empty() => sent + TOLD,
                _ => next - self.plan.interval + self.plan.timeout,
            };
            let asks = matches!(self.query, Query::Sent(..));
            if !more && (self.waiting.is_empty() && !asks || now >= end) {
                return Ok(());
            }
            if await_either(self.socket, &interrupts.descriptor, end - now)? {
                return Ok(());
            }
            self.listen()?;
        }
    }

    fn ask(&mut self, number: u32) -> Result<()> {
        let request = request(number, self.plan.size);
        let to = Address::new(self.target.mac, self.target.interface.index, 0);
        let now = Instant::now();
        match self.socket.send_to(&request, to) {
            Ok(_) => {
                self.tally.sent += 1;
                self.waiting.insert(number, now);
                // The request that was sent `MOST_WAITING` requests ago is not expected to be
                // answered any more.
                self.waiting.remove(&number.wrapping_sub(MOST_WAITING));
                Ok(())
            }
            Err(error) if is_refusal(&error) => {
                self.tally.refused += 1;
                Ok(())
            }
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Handles all answers in the socket's queue.
    fn listen(&mut self) -> Result<()> {
        let mut buffer = vec![0; usize::from(u16::MAX)];
        loop {
            let (length, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(self.explain(error)),
            };
            if from.mac != self.target.mac || from.port != 0 {
                continue;
            }
            let Some(number) = answered(&buffer[..length]) else {
                self.show(&buffer[..length])?;
                continue;
            };
            match self.waiting.remove(&number) {
                Some(sent) => self.note(number, length, sent.elapsed())?,
                None => self.tally.duplicates += 1,
            }
        }
    }

    fn note(&mut self, number: u32, length: usize, time: Duration) -> Result<()> {
        self.tally.times.add(time);
        self.query();
        output::print(&format!(
            "{length} bytes from {}: number {number}, time {} ms\n",
            self.target,
            milliseconds(time)
        ))
    }

    /// Sends the query for the host's capabilities, unless it was sent before. An older module does
    /// not answer the query.
    fn query(&mut self) {
        if self.query != Query::NotSent {
            return;
        }
        let nonce = RandomState::new().hash_one(Instant::now()) as u32;
        let to = Address::new(self.target.mac, self.target.interface.index, 0);
        let sent = self.socket.send_to(&Capabilities::query(nonce), to);
        self.query = match sent {
            Ok(_) => Query::Sent(nonce, Instant::now()),
            Err(_) => Query::Done,
        };
    }

    /// Prints the host's capabilities if `datagram` is the answer to the query.
    fn show(&mut self, datagram: &[u8]) -> Result<()> {
        let Query::Sent(nonce, _) = self.query else {
            return Ok(());
        };
        let Some(told) = Capabilities::from_answer(datagram, nonce) else {
            return Ok(());
        };
        self.query = Query::Done;
        output::print(&format!("peer: {told}\n"))
    }

    /// Explains an error of the socket. Most often the device has changed since the ping began.
    fn explain(&self, error: io::Error) -> anyhow::Error {
        let interface = &self.target.interface;
        if error.raw_os_error() == Some(libc::EMSGSIZE) {
            return too_long(self.target, self.plan.size)
                .unwrap_or_else(|| anyhow!(error).context(format!("asking {}", self.target)));
        }
        // The interface is looked up by its number, because it may have another name by now.
        let found = Interface::numbered(interface.index);
        match found.map(|found| found.map(|interface| interface.fault())) {
            Ok(Some(Some(fault))) => anyhow!("{fault}"),
            Ok(None) => anyhow!("{} has been removed", interface.name),
            _ => anyhow!(error).context(format!("asking {}", self.target)),
        }
    }
}

/// Returns an error if `target` reports that it accepts less than `size` bytes. Larger frames are
/// dropped on the way, or this host's kernel refuses them once the kernel knows the limit.
pub fn too_long(target: &Target, size: u16) -> Option<anyhow::Error> {
    let to = Address::new(target.mac, target.interface.index, 0);
    let told = Capabilities::of(to, ASKED_AGAIN).ok()?;
    let largest = told.largest_datagram.filter(|largest| *largest < size)?;
    Some(anyhow!(
        "{target} takes no request of {size} bytes: it takes {largest} at most, since its MTU is smaller; use --size {largest} or less"
    ))
}

/// Returns whether the device's queue or a filter refused the frame. The next frame may pass.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Waits until the socket has a datagram, a signal arrives, or `time` has passed. Returns true if a
/// signal arrived.
fn await_either(socket: &EdpSocket, signals: &SignalFd, time: Duration) -> Result<bool> {
    let mut entries =
        [socket.as_fd(), signals.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    // The time is rounded up. Otherwise the loop would poll without pause during the last fraction
    // of a millisecond.
    let time = time + Duration::from_micros(999);
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
    match poll(&mut entries, timeout) {
        Ok(_) => Ok(entries[1].any().unwrap_or(false)),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error).context("poll"),
    }
}

/// Returns request `number`: its kind, its number, and padding.
fn request(number: u32, size: u16) -> Vec<u8> {
    let mut bytes = vec![EDP_ECHO_REQUEST];
    bytes.extend(number.to_be_bytes());
    bytes.extend((bytes.len()..usize::from(size)).map(|place| place as u8));
    bytes
}

/// Returns the number of the request to which `bytes` are the answer.
fn answered(bytes: &[u8]) -> Option<u32> {
    let (kind, rest) = bytes.split_first()?;
    let number = rest.get(..4)?.try_into().ok()?;
    (*kind == EDP_ECHO_REPLY).then_some(u32::from_be_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_their_size_and_number() {
        for size in [LEAST_SIZE, 56, 1494] {
            let mut bytes = request(0x0102_0304, size);
            assert_eq!(bytes.len(), usize::from(size));
            assert_eq!(answered(&bytes), None);
            bytes[0] = EDP_ECHO_REPLY;
            assert_eq!(answered(&bytes), Some(0x0102_0304));
        }
        assert_eq!(answered(&[]), None);
        assert_eq!(answered(&[EDP_ECHO_REPLY, 0, 0, 0]), None);
    }

    #[test]
    fn the_summary_has_what_happened() {
        let ms = Duration::from_millis;
        let mut tally = Tally {
            sent: 4,
            ..Tally::default()
        };
        for time in [2, 1, 6] {
            tally.times.add(ms(time));
        }
        assert_eq!(
            tally.to_string(),
            "4 sent, 3 answered, 25% lost; time min/avg/max 1.000/3.000/6.000 ms"
        );
        let refused = Tally {
            refused: 2,
            ..Tally::default()
        };
        assert_eq!(
            refused.to_string(),
            "0 sent, 2 refused by this host, 0 answered, 100% lost"
        );
        assert_eq!(Tally::default().to_string(), "0 sent, 0 answered, 0% lost");
    }
}
