// SPDX-License-Identifier: MIT OR Apache-2.0

//! The traffic of pattern loaded-latency: one client calls the server while others send streams.
//!
//! The server starts each stream with one byte. When data has arrived from all streams, the server
//! begins to count their bytes, and starts the caller. A request is a message, and its reply is one
//! byte. With the last reply, the server also sends one byte on each stream, which ends the stream.
//! A stream consists of blocks. The first byte of each block tells whether the block is the last
//! one.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use serde::{Deserialize, Serialize};

use super::links::{Link, Member, Watch, CLOCK, PIECE};
use super::rounds::{message, pattern, End, Series};
use crate::host::{is_timeout, wait_readable};
use crate::summary::{Percent, Summary};
use crate::transport::streams::StreamSocket;

/// The number of the client that calls the server.
const CALLER: u16 = 1;

/// The byte with which the server starts the calls, or a stream.
const GO: u8 = b'G';
/// The byte with which the server answers a request.
const REPLY: u8 = b'A';
/// The byte with which the server ends a stream.
const ENOUGH: u8 = b'E';

/// The size of one block of a stream, bytes.
const BLOCK: u64 = 64 << 10;
/// The first byte of a block that is not the last one. Bytes of messages are always smaller.
const MORE: u8 = 0xfe;
/// The first byte of the last block.
const LAST: u8 = 0xff;

/// A stream counts as started when this many of its bytes have arrived.
const UNDER_WAY: u64 = 8 * BLOCK;

/// The clients that send streams while the caller calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Load {
    /// No client sends a stream.
    None,
    /// All clients except the caller send streams.
    Streams,
}

/// A series of remote calls whose requests all have the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcSeries {
    /// The number and the size of the requests.
    pub series: Series,
    /// The load on the server during the calls.
    pub load: Load,
    /// The time from a reply to the next call, milliseconds.
    pub pause_ms: u32,
}

/// The results of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcTimes {
    /// In the caller's results, the times that its calls took, nanoseconds.
    pub times_ns: Vec<u64>,
    /// In the server's results, the number of bytes that arrived from all streams during the calls.
    pub bytes: u64,
    /// In the server's results, the duration of all calls together, nanoseconds.
    pub ns: u64,
    /// In the server's results, the longest time for which one of the streams delivered no data
    /// during the calls, nanoseconds.
    pub longest_pause_ns: u64,
}

/// Statistics of the times that calls took, without streams and while streams load the server,
/// nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RpcFigures {
    /// The median of the times without streams.
    pub alone_median_ns: u64,
    /// The 99th percentile of the times without streams.
    pub alone_p99_ns: u64,
    /// The median of the times with streams.
    pub median_ns: u64,
    /// The 90th percentile of the times with streams.
    pub p90_ns: u64,
    /// The 99th percentile of the times with streams.
    pub p99_ns: u64,
    /// The maximum of the times with streams.
    pub max_ns: u64,
    /// The median with streams, divided by the median without streams.
    pub median_slowdown: f64,
    /// The 99th percentile with streams, divided by the median without streams.
    pub p99_slowdown: f64,
    /// The longest time for which one of the streams delivered no data, nanoseconds.
    pub longest_pause_ns: u64,
}

impl RpcFigures {
    /// Summarises the times of calls without streams (`alone`) and with streams (`loaded`). Adds
    /// the streams' longest pause. Returns `None` if one of the two lists is empty.
    pub fn of(alone: &[u64], loaded: &[u64], longest_pause_ns: u64) -> Option<Self> {
        let percents: [Percent; 2] = ["90".parse().ok()?, "99".parse().ok()?];
        let sum_up = |times: &[u64]| Summary::with(times.to_vec(), &percents);
        let (alone, loaded) = (sum_up(alone)?, sum_up(loaded)?);
        let of = |summary: &Summary, percent| summary.percentiles.get(&percent).copied();
        let slowdown = |ns: u64| ns as f64 / alone.median.max(1) as f64;
        let p99 = of(&loaded, percents[1])?;
        Some(Self {
            alone_median_ns: alone.median,
            alone_p99_ns: of(&alone, percents[1])?,
            median_ns: loaded.median,
            p90_ns: of(&loaded, percents[0])?,
            p99_ns: p99,
            max_ns: loaded.max,
            median_slowdown: slowdown(loaded.median),
            p99_slowdown: slowdown(p99),
            longest_pause_ns,
        })
    }
}

/// Runs a member: the server (member 0), the caller, or a client that sends a stream. After an
/// interruption, `times` has the results of the calls that were complete before the interruption.
///
/// # Errors
///
/// Fails with [`Lost`](super::links::Lost) if a client failed, or if nothing arrived for `give_up`.
/// Also fails if a system call fails, or if the server sent an unexpected byte.
pub fn run(
    member: &mut Member,
    control: BorrowedFd<'_>,
    series: RpcSeries,
    give_up: Duration,
    times: &mut RpcTimes,
) -> Result<End> {
    let number = member.number;
    match &mut member.links[..] {
        [link @ Link { peer: CLOCK, .. }] => {
            link.socket.set_nonblocking(false)?;
            match (number, series.load) {
                (CALLER, _) => questions(link, control, series, &mut times.times_ns),
                (_, Load::Streams) => stream(link, control, number),
                (_, Load::None) => Ok(End::Complete),
            }
        }
        links => serve(links, control, series, give_up, times),
    }
}

/// Runs the caller: makes the remote calls one after the other.
fn questions(
    link: &mut Link,
    control: BorrowedFd<'_>,
    series: RpcSeries,
    times: &mut Vec<u64>,
) -> Result<End> {
    let request = message(CALLER, series.series.size);
    let pause = Duration::from_millis(series.pause_ms.into());
    let socket = link.socket.as_mut();
    if expect(socket, control, GO)? == End::Interrupted {
        return Ok(End::Interrupted);
    }
    for number in 0..series.series.rounds {
        if number > 0 && !pause.is_zero() {
            let [interrupted] = wait_readable([control], Some(pause))?;
            if interrupted {
                return Ok(End::Interrupted);
            }
        }
        let start = Instant::now();
        write(socket, &request, "asking")?;
        if expect(socket, control, REPLY)? == End::Interrupted {
            return Ok(End::Interrupted);
        }
        times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(End::Complete)
}

/// Runs a client that sends a stream.
fn stream(link: &mut Link, control: BorrowedFd<'_>, number: u16) -> Result<End> {
    let mut block = message(number, BLOCK);
    let socket = link.socket.as_mut();
    if expect(socket, control, GO)? == End::Interrupted {
        return Ok(End::Interrupted);
    }
    loop {
        let [word, interrupted] = wait_readable([socket.as_fd(), control], Some(Duration::ZERO))?;
        if interrupted {
            return Ok(End::Interrupted);
        }
        if word && expect(socket, control, ENOUGH)? == End::Interrupted {
            return Ok(End::Interrupted);
        }
        block[0] = if word { LAST } else { MORE };
        write(socket, &block, "sending")?;
        if word {
            return Ok(End::Complete);
        }
    }
}

/// Waits until `byte` arrives from the server, or until the coordinator sends something.
fn expect(socket: &mut dyn StreamSocket, control: BorrowedFd<'_>, byte: u8) -> Result<End> {
    let [data, _] = wait_readable([socket.as_fd(), control], None)?;
    if !data {
        return Ok(End::Interrupted);
    }
    let mut got = [0];
    let read = socket.read_exact(&mut got);
    read.map_err(|error| explain(error, "waiting for the server's byte"))?;
    let [got] = got;
    ensure!(
        got == byte,
        "the server sent byte {got:#04x}, not {byte:#04x}"
    );
    Ok(End::Complete)
}

/// Writes all of `data`.
fn write(socket: &mut dyn StreamSocket, data: &[u8], doing: &str) -> Result<()> {
    let written = socket.write_all(data);
    written.map_err(|error| explain(error, doing))
}

fn explain(error: io::Error, doing: &str) -> anyhow::Error {
    let text = match error.kind() {
        _ if is_timeout(&error) => format!("{doing}: no progress for too long, is the link up?"),
        ErrorKind::UnexpectedEof => format!("{doing}: the server ended the connection"),
        _ => doing.to_owned(),
    };
    anyhow::Error::new(error).context(text)
}

/// The data that is to arrive from a client.
#[derive(Clone, Copy, Debug)]
enum Incoming {
    /// No data, because this client sends none.
    Silent,
    /// An incomplete request, with the number of its bytes that have arrived.
    Request(u64),
    /// The number of bytes of a stream that have arrived so far, and whether the current block is
    /// the stream's last.
    Stream(u64, bool),
    /// A stream that has ended.
    Over,
}

struct Server<'a> {
    clients: &'a mut [Link],
    /// The data that is to arrive from each client, by the client's index.
    incoming: Vec<Incoming>,
    buffer: Vec<u8>,
    size: u64,
    /// The number of calls that have no reply yet.
    left: u32,
    /// The number of bytes that have arrived from all streams so far.
    streamed: u64,
    /// The time at which the caller was started, and the number of bytes that the streams had
    /// delivered by then.
    begun: Option<(Instant, u64)>,
    /// For each client: the time at which its last data arrived. If no data has arrived since the
    /// calls began, the value is the time at which the calls began.
    heard: Vec<Instant>,
}

/// Runs the server.
fn serve(
    clients: &mut [Link],
    control: BorrowedFd<'_>,
    series: RpcSeries,
    give_up: Duration,
    times: &mut RpcTimes,
) -> Result<End> {
    let watch = Watch::new(control, clients)?;
    let incoming = clients
        .iter()
        .map(|client| match (client.peer, series.load) {
            (CALLER, _) => Incoming::Request(0),
            (_, Load::Streams) => Incoming::Stream(0, false),
            (_, Load::None) => Incoming::Silent,
        });
    let mut server = Server {
        incoming: incoming.collect(),
        clients,
        buffer: vec![0; PIECE],
        size: series.series.size,
        left: series.series.rounds,
        streamed: 0,
        begun: None,
        heard: Vec::new(),
    };
    server.tell_streams(GO)?;
    server.begin_in_time()?;
    server.run(watch, give_up, times)
}

impl Server<'_> {
    fn run(&mut self, mut watch: Watch, give_up: Duration, times: &mut RpcTimes) -> Result<End> {
        while !self.is_over() {
            let Some(ready) = watch.wait(give_up)? else {
                return Ok(End::Interrupted);
            };
            ensure!(ready > 0, "nothing came for {} s", give_up.as_secs_f32());
            for number in 0..ready {
                self.read(watch.ready(number).0, times)?;
            }
            self.begin_in_time()?;
        }
        Ok(End::Complete)
    }

    fn is_over(&self) -> bool {
        let over = |incoming: &Incoming| !matches!(incoming, Incoming::Stream(..));
        self.left == 0 && self.incoming.iter().all(over)
    }

    /// Starts the caller, unless it was started already, or a stream has not delivered enough data
    /// yet.
    fn begin_in_time(&mut self) -> Result<()> {
        let waits = |incoming: &Incoming| matches!(incoming, Incoming::Stream(bytes, _) if *bytes < UNDER_WAY);
        if self.begun.is_some() || self.incoming.iter().any(waits) {
            return Ok(());
        }
        let now = Instant::now();
        self.begun = Some((now, self.streamed));
        self.heard = vec![now; self.clients.len()];
        self.tell_all(GO, |incoming| matches!(incoming, Incoming::Request(_)))
    }

    fn tell_streams(&mut self, byte: u8) -> Result<()> {
        self.tell_all(byte, |incoming| matches!(incoming, Incoming::Stream(..)))
    }

    fn tell_all(&mut self, byte: u8, whom: fn(&Incoming) -> bool) -> Result<()> {
        for (client, incoming) in self.clients.iter_mut().zip(&self.incoming) {
            if whom(incoming) {
                client.tell(byte)?;
            }
        }
        Ok(())
    }

    /// Reads a piece from a client.
    fn read(&mut self, client: usize, times: &mut RpcTimes) -> Result<()> {
        let read = self.clients[client].read(&mut self.buffer)?;
        if read == 0 {
            return Ok(());
        }
        match self.incoming[client] {
            Incoming::Request(before) => self.take_request(client, before, read, times),
            Incoming::Stream(before, last) => {
                if self.left > 0 {
                    self.note_pause(client, times);
                }
                self.take_stream(client, (before, last), read)
            }
            Incoming::Silent | Incoming::Over => {
                bail!(self.clients[client].lost("it sends out of turn"))
            }
        }
    }

    /// Records a stream's pause, which ends now: either data of the stream has arrived, or the
    /// calls are over.
    fn note_pause(&mut self, client: usize, times: &mut RpcTimes) {
        if let Some(heard) = self.heard.get_mut(client) {
            let now = Instant::now();
            let pause = u64::try_from((now - *heard).as_nanos()).unwrap_or(u64::MAX);
            times.longest_pause_ns = times.longest_pause_ns.max(pause);
            *heard = now;
        }
    }

    fn take_request(
        &mut self,
        client: usize,
        before: u64,
        read: usize,
        times: &mut RpcTimes,
    ) -> Result<()> {
        let after = before + read as u64;
        let caller = &self.clients[client];
        ensure!(
            after <= self.size && self.left > 0,
            caller.lost("it asks something else")
        );
        caller.check(before, &self.buffer[..read])?;
        self.incoming[client] = Incoming::Request(after % self.size);
        if after < self.size {
            return Ok(());
        }
        self.left -= 1;
        self.clients[client].tell(REPLY)?;
        if self.left == 0 {
            let (start, before) = self.begun.context("a question before the go")?;
            times.ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            times.bytes = self.streamed - before;
            for client in 0..self.clients.len() {
                if matches!(self.incoming[client], Incoming::Stream(..)) {
                    self.note_pause(client, times);
                }
            }
            self.tell_streams(ENOUGH)?;
        }
        Ok(())
    }

    fn take_stream(
        &mut self,
        client: usize,
        (before, mut last): (u64, bool),
        read: usize,
    ) -> Result<()> {
        let after = before + read as u64;
        let first = before.next_multiple_of(BLOCK);
        if first < after {
            // A piece is not longer than a block, so only one block begins in the piece.
            let mark = self.buffer[(first - before) as usize];
            ensure!(
                [MORE, LAST].contains(&mark) && !last,
                self.clients[client].lost("a block begins with something else")
            );
            last = mark == LAST;
        }
        let offset = (after - 1) % BLOCK;
        let byte = self.buffer[read - 1];
        if offset > 0 && byte != pattern(self.clients[client].peer, offset) {
            let reason = format!("byte {} of its stream is not what was sent", after - 1);
            bail!(self.clients[client].lost(&reason));
        }
        self.streamed += read as u64;
        self.incoming[client] = match last && after % BLOCK == 0 {
            true => Incoming::Over,
            false => Incoming::Stream(after, last),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::thread;

    const GIVE_UP: Duration = Duration::from_secs(10);

    /// Returns the members of the server and of its clients, connected.
    fn members(clients: u16) -> (Member, Vec<Member>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = |peer, socket: TcpStream| Link {
            peer,
            socket: Box::new(socket),
        };
        let (mut links, mut others) = (Vec::new(), Vec::new());
        for number in 1..=clients {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            server.set_nonblocking(true).unwrap();
            links.push(link(number, server));
            others.push(Member {
                number,
                links: vec![link(CLOCK, client)],
            });
        }
        (Member { number: 0, links }, others)
    }

    #[test]
    fn calls_are_answered_under_load_and_alone_on_the_same_connections() {
        let (mut server, mut clients) = members(3);
        let (control, _coordinator) = UnixStream::pair().unwrap();
        for (size, rounds, load, pause_ms) in [
            (100, 7, Load::None, 0),
            (100_000, 5, Load::Streams, 0),
            (1, 3, Load::Streams, 1),
            (1, 2, Load::None, 0),
        ] {
            let series = RpcSeries {
                series: Series { size, rounds },
                load,
                pause_ms,
            };
            let mut all = thread::scope(|scope| {
                let others: Vec<_> = clients
                    .iter_mut()
                    .map(|member| {
                        let control = control.as_fd();
                        scope.spawn(move || {
                            let mut times = RpcTimes::default();
                            let end = run(member, control, series, GIVE_UP, &mut times);
                            assert_eq!(end.unwrap(), End::Complete);
                            times
                        })
                    })
                    .collect();
                let mut times = RpcTimes::default();
                let end = run(&mut server, control.as_fd(), series, GIVE_UP, &mut times);
                assert_eq!(end.unwrap(), End::Complete);
                let others = others.into_iter().map(|other| other.join().unwrap());
                [times].into_iter().chain(others).collect::<Vec<_>>()
            });
            let caller = all.remove(1);
            assert_eq!(caller.times_ns.len(), rounds as usize);
            assert!(caller.times_ns.iter().all(|ns| *ns > 0 && *ns <= all[0].ns));
            assert!(all.iter().all(|times| times.times_ns.is_empty()));
            assert!(load == Load::Streams || all[0].bytes == 0);
            let pause = all[0].longest_pause_ns;
            assert_eq!(load == Load::Streams, pause > 0);
            assert!(pause <= all[0].ns);
            let pauses = u64::from(pause_ms) * u64::from(rounds - 1);
            assert!(all[0].ns >= pauses * 1_000_000);
        }
    }

    #[test]
    fn a_slowdown_is_by_the_median_without_streams() {
        let alone: Vec<u64> = (1..=199).collect();
        let loaded: Vec<u64> = (1..=100).map(|ns| ns * 10).collect();
        let figures = RpcFigures::of(&alone, &loaded, 7).unwrap();
        assert_eq!((figures.alone_median_ns, figures.median_ns), (100, 505));
        assert_eq!(
            (figures.p90_ns, figures.p99_ns, figures.max_ns),
            (900, 990, 1000)
        );
        assert_eq!((figures.median_slowdown, figures.p99_slowdown), (5.05, 9.9));
        assert_eq!(figures.longest_pause_ns, 7);
        assert_eq!(RpcFigures::of(&[], &loaded, 7), None);
    }

    #[test]
    fn control_data_interrupts_all_members() {
        let (mut server, mut clients) = members(2);
        let (control, mut coordinator) = UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut coordinator, b"x").unwrap();
        let series = RpcSeries {
            series: Series {
                size: 1,
                rounds: u32::MAX,
            },
            load: Load::Streams,
            pause_ms: 0,
        };
        for member in [&mut server].into_iter().chain(&mut clients) {
            let mut times = RpcTimes::default();
            // For the second client, the byte that starts its stream has arrived from the server.
            // So only the coordinator's message keeps this client from sending a stream.
            let end = run(member, control.as_fd(), series, GIVE_UP, &mut times).unwrap();
            assert_eq!(end, End::Interrupted);
        }
    }
}
