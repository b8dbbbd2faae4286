// SPDX-License-Identifier: MIT OR Apache-2.0

//! A worker: a participant that carries a coordinator's orders out.

mod parameters;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};

use crate::control::{Control, Message};
use crate::group::net::exchange::Exchange;
use crate::group::net::flows::Flows;
use crate::group::net::links::{Link, Lost, Member};
use crate::group::net::orders::{Answer, EspParameters, Opening, Order};
use crate::group::net::rounds::{End, Series};
use crate::group::net::rpc::{self, RpcSeries, RpcTimes};
use crate::host::wait_readable;
use crate::transport::kinds::{find, stream_kind};
use crate::transport::streams::{StreamKind, StreamListener};
use crate::transport::Context;
use crate::wire::{Endpoint, Place};
use parameters::Parameters;

/// The number of results (spans or times) in one message to the coordinator. Such a message is far
/// shorter than the longest line that the connection accepts.
const SPANS_PER_MESSAGE: usize = 256;

/// The state of a participant, with its sockets.
enum Role {
    None,
    Listening(StreamListener),
    Member(Member),
}

/// A participant's side of a measurement.
pub struct Worker {
    /// The options that the worker was started with.
    options: Context,
    role: Role,
    parameters: Option<Parameters>,
}

impl Worker {
    /// Returns a worker that has no order yet.
    pub fn new(options: Context) -> Self {
        Self {
            options,
            role: Role::None,
            parameters: None,
        }
    }

    /// Carries an order out and sends the result to the coordinator.
    ///
    /// # Errors
    ///
    /// Fails if the connection to the coordinator has ended.
    pub fn handle(&mut self, order: Order, control: &mut Control) -> Result<()> {
        let said = match self.carry_out(order, control) {
            Ok(None) => return Ok(()),
            Ok(Some(answer)) => Message::Answer(answer),
            Err(error) => {
                // Closing the sockets makes the other members notice the failure.
                self.role = Role::None;
                match error.downcast::<Lost>() {
                    Ok(Lost { members, reason }) => Message::Answer(Answer::Broken {
                        places: members,
                        reason,
                    }),
                    Err(error) => Message::Failed(format!("{error:#}")),
                }
            }
        };
        control.send(&said)
    }

    /// Carries an order out. Returns the last answer to the order, or `None` if the coordinator has
    /// interrupted the order.
    fn carry_out(&mut self, order: Order, control: &mut Control) -> Result<Option<Answer>> {
        // The coordinator's next order interrupts an order that takes time: the control connection
        // becomes readable. An order that was read together with this one does not make it
        // readable, so this check looks for such data.
        if order.takes_time() && control.has_read_ahead() {
            return Ok(None);
        }
        Ok(Some(match order {
            Order::Listen(opening) => {
                let listener = streams(&opening)?.listen(&self.context(opening))?;
                let endpoint = listener.endpoint.clone();
                self.role = Role::Listening(listener);
                Answer::Listening(endpoint)
            }
            Order::Join {
                opening,
                number,
                connect,
                accept,
            } => return self.join(opening, number, connect, &accept, control),
            Order::Exchange { series, flows } => return self.exchange(series, &flows, control),
            Order::Rpc(series) => return self.call(series, control),
            Order::Leave => {
                self.role = Role::None;
                Answer::Left
            }
            Order::Identify => Answer::Identity(Place::here()?),
            Order::SetParameters(values) => {
                self.set_parameters(values)?;
                Answer::Done
            }
            Order::RestoreParameters => {
                self.parameters.take().map_or(Ok(()), Parameters::restore)?;
                Answer::Done
            }
        }))
    }

    /// Does rounds of messages. Returns `None` if the coordinator has interrupted them.
    fn exchange(
        &mut self,
        series: Series,
        flows: &Flows,
        control: &mut Control,
    ) -> Result<Option<Answer>> {
        let (member, give_up) = self.member(series)?;
        let exchange = Exchange::new(member, control.as_fd(), series, flows, give_up)?;
        control.send(&Message::Answer(Answer::Ready))?;
        let mut spans = Vec::new();
        let end = exchange.run(|span| spans.push(span));
        tell(control, &spans, Answer::Spans)?;
        ended(end)
    }

    /// Runs this member's part of the calls. The member makes the calls, replies to them, or sends
    /// a stream. Returns `None` if the coordinator has interrupted the calls.
    fn call(&mut self, series: RpcSeries, control: &mut Control) -> Result<Option<Answer>> {
        let (member, give_up) = self.member(series.series)?;
        control.send(&Message::Answer(Answer::Ready))?;
        let mut times = RpcTimes::default();
        let end = rpc::run(member, control.as_fd(), series, give_up, &mut times);
        let calls = std::mem::take(&mut times.times_ns);
        tell(control, &calls, |times_ns| {
            Answer::RpcTimes(RpcTimes {
                times_ns,
                ..RpcTimes::default()
            })
        })?;
        control.send(&Message::Answer(Answer::RpcTimes(times)))?;
        ended(end)
    }

    /// Sets ESP's parameters. The first call also saves the previous values, so that they can be
    /// restored.
    fn set_parameters(&mut self, values: EspParameters) -> Result<()> {
        let parameters = match &mut self.parameters {
            Some(parameters) => parameters,
            none => none.insert(Parameters::save()?),
        };
        parameters.set(values)
    }

    fn context(&self, opening: Opening) -> Context {
        Context {
            congestion: opening.congestion,
            ..self.options.clone()
        }
    }

    /// Returns the member for the rounds of `series`, and the longest time for which its traffic
    /// may make no progress.
    fn member(&mut self, series: Series) -> Result<(&mut Member, Duration)> {
        series.check()?;
        let Role::Member(member) = &mut self.role else {
            bail!("not a member of a mesh");
        };
        Ok((member, self.options.give_up))
    }

    /// Becomes a member that is connected with others. Returns `None` if the coordinator has sent
    /// something in the meantime.
    fn join(
        &mut self,
        opening: Opening,
        number: u16,
        connect: Vec<(u16, Endpoint)>,
        accept: &[u16],
        control: &Control,
    ) -> Result<Option<Answer>> {
        // An order without other members is refused. Its rounds would never wait for a message, and
        // their number has no limit, so the worker might be busy for very long.
        ensure!(
            !connect.is_empty() || !accept.is_empty(),
            "nobody to be connected with"
        );
        let mut links = self.connect_to(opening, number, connect)?;
        let Some(more) = self.accept(accept, control)? else {
            return Ok(None);
        };
        links.extend(more);
        self.role = Role::Member(Member { number, links });
        Ok(Some(Answer::Done))
    }

    /// Connects to other members.
    fn connect_to(
        &self,
        opening: Opening,
        number: u16,
        places: Vec<(u16, Endpoint)>,
    ) -> Result<Vec<Link>> {
        let streams = streams(&opening)?;
        let context = self.context(opening);
        places
            .into_iter()
            .map(|(peer, place)| {
                let mut socket = streams.way_to(&context, &place)?()?;
                socket.write_all(&number.to_be_bytes())?;
                socket.set_nonblocking(true)?;
                Ok(Link { peer, socket })
            })
            .collect()
    }

    /// Waits until the members `wanted` have connected. Returns `None` if the coordinator has sent
    /// something in the meantime.
    fn accept(&self, wanted: &[u16], control: &Control) -> Result<Option<Vec<Link>>> {
        let mut links: Vec<Option<Link>> = wanted.iter().map(|_| None).collect();
        if wanted.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let Role::Listening(listener) = &self.role else {
            bail!("not listening");
        };
        let mut deadline = Instant::now() + self.options.give_up;
        while links.iter().any(Option::is_none) {
            let left = deadline.saturating_duration_since(Instant::now());
            match wait_readable([listener.as_fd(), control.as_fd()], Some(left))? {
                [_, true] => return Ok(None),
                [true, _] => {}
                [false, false] => {
                    let absent = wanted.iter().zip(&links).filter(|(_, link)| link.is_none());
                    bail!(Lost {
                        members: absent.map(|(number, _)| *number).collect(),
                        reason: "did not connect".to_owned(),
                    })
                }
            }
            let mut socket = listener.accept().context("accepting a connection")?;
            let mut number = [0; 2];
            // A connection from another program is closed; the expected members may still come.
            if socket.read_exact(&mut number).is_err() {
                continue;
            }
            let peer = u16::from_be_bytes(number);
            let place = wanted.iter().position(|number| *number == peer);
            if let Some(place @ None) = place.and_then(|index| links.get_mut(index)) {
                socket.set_nonblocking(true)?;
                *place = Some(Link { peer, socket });
                deadline = Instant::now() + self.options.give_up;
            }
        }
        Ok(Some(links.into_iter().flatten().collect()))
    }
}

/// Sends the results to the coordinator. Must be called after the rounds, because messages to the
/// coordinator would disturb the rounds.
fn tell<T: Clone>(control: &mut Control, all: &[T], answer: fn(Vec<T>) -> Answer) -> Result<()> {
    for some in all.chunks(SPANS_PER_MESSAGE) {
        control.send(&Message::Answer(answer(some.to_vec())))?;
    }
    Ok(())
}

/// Returns the last answer to an order for rounds, or `None` if the order was interrupted.
fn ended(end: Result<End>) -> Result<Option<Answer>> {
    Ok(match end? {
        End::Complete => Some(Answer::Done),
        End::Interrupted => None,
    })
}

/// Returns the functions by which the transport in `opening` listens and connects.
fn streams(opening: &Opening) -> Result<&'static dyn StreamKind> {
    let kind = find(&opening.transport)?;
    let streams = stream_kind(kind)?;
    ensure!(
        opening.congestion.is_none() || kind.congestion,
        "{} has no congestion control to choose",
        kind.name
    );
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A worker under test, with both ends of its control connection.
    struct Pair {
        worker: Worker,
        control: Control,
        coordinator: Control,
    }

    impl Pair {
        fn new() -> Self {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let control = |stream| Control::local_pair(stream, "other", Some(PATIENCE)).unwrap();
            Self {
                worker: Worker::new(Context {
                    // No worker should wait for a connection in these tests. A worker that wrongly
                    // does so fails after this short time.
                    give_up: Duration::from_millis(50),
                    ..crate::transport::tests::streams()
                }),
                control: control(ours),
                coordinator: control(theirs),
            }
        }

        /// Sends these orders in one write. Returns all messages that answer them.
        fn say(&mut self, orders: &[Order]) -> Vec<Message> {
            let mut lines = Vec::new();
            for order in orders {
                serde_json::to_writer(&mut lines, &Message::Order(order.clone())).unwrap();
                lines.push(b'\n');
            }
            let channel = self.coordinator.as_fd().try_clone_to_owned().unwrap();
            UnixStream::from(channel).write_all(&lines).unwrap();
            for _ in orders {
                let Message::Order(order) = self.control.receive().unwrap() else {
                    unreachable!()
                };
                self.worker.handle(order, &mut self.control).unwrap();
            }
            let mut answers = Vec::new();
            while self.coordinator.is_ready(Duration::ZERO).unwrap() {
                answers.push(self.coordinator.receive().unwrap());
            }
            answers
        }
    }

    fn by_tcp() -> Opening {
        Opening {
            transport: "tcp".to_owned(),
            congestion: None,
        }
    }

    /// Returns the address of `listener`.
    fn place(listener: &TcpListener) -> Endpoint {
        let address = listener.local_addr().unwrap();
        Endpoint {
            port: address.port(),
            ip: Some(address.ip()),
            ..Endpoint::default()
        }
    }

    fn join(connect: Vec<(u16, Endpoint)>, accept: Vec<u16>) -> Order {
        Order::Join {
            opening: by_tcp(),
            number: 1,
            connect,
            accept,
        }
    }

    #[test]
    fn leave_in_the_same_segment_interrupts_at_once() {
        let left = [Message::Answer(Answer::Left)];
        let series = Series { size: 1, rounds: 1 };

        let mut server = Pair::new();
        let listening = server.say(&[Order::Listen(by_tcp())]);
        assert!(
            matches!(listening[..], [Message::Answer(Answer::Listening(_))]),
            "{listening:?}"
        );
        let accept = join(Vec::new(), vec![0]);
        assert_eq!(server.say(&[accept, Order::Leave]), left);

        // The peer closes the connection below. So a client that wrongly waits for the peer fails,
        // instead of hanging.
        let peer = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = Pair::new();
        let connected = client.say(&[join(vec![(0, place(&peer))], Vec::new())]);
        assert_eq!(connected, [Message::Answer(Answer::Done)]);
        drop(peer.accept().unwrap());
        let gather = Order::Exchange {
            series,
            flows: Flows::Gather,
        };
        assert_eq!(client.say(&[gather, Order::Leave]), left);
    }

    #[test]
    fn sizes_beyond_memory_are_refused() {
        let peer = TcpListener::bind("127.0.0.1:0").unwrap();
        for size in [0, u64::MAX] {
            let series = Series {
                size,
                rounds: u32::MAX,
            };
            for order in [Flows::Gather, Flows::All].map(|flows| Order::Exchange { series, flows })
            {
                let mut pair = Pair::new();
                let answers = pair.say(&[join(vec![(0, place(&peer))], Vec::new())]);
                assert!(matches!(answers[..], [Message::Answer(_)]), "{answers:?}");
                let answers = pair.say(&[order]);
                let [Message::Failed(text)] = &answers[..] else {
                    panic!("{answers:?}")
                };
                assert!(text.contains("no size"), "{text}");
            }
        }
        let answers = Pair::new().say(&[join(Vec::new(), Vec::new())]);
        let [Message::Failed(text)] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert!(text.contains("nobody"), "{text}");
    }

    #[test]
    fn only_tcp_has_a_congestion_control_to_choose() {
        let opening = |transport: &str, congestion: Option<&str>| Opening {
            transport: transport.to_owned(),
            congestion: congestion.map(str::to_owned),
        };
        assert!(streams(&opening("tcp", Some("reno"))).is_ok());
        assert!(streams(&opening("esp", None)).is_ok());
        let error = streams(&opening("esp", Some("reno"))).unwrap_err();
        assert!(
            error.to_string().contains("no congestion control"),
            "{error}"
        );
    }
}
