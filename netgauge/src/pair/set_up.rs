// SPDX-License-Identifier: MIT OR Apache-2.0

//! A pattern that measures the cost of connections, which are opened one after the other. Each
//! connection carries a message and its answer. The leader then closes the connection, and its TCP
//! port stays in TIME_WAIT.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd as _;
use std::time::Instant;

use anyhow::{bail, ensure, Context as _, Result};

use super::{Link, PairPattern, Plan, Streams};
use crate::control::{Message, Step};
use crate::host::wait_readable;
use crate::report::{Measured, Row};
use crate::transport::kind::Kind;
use crate::transport::kinds::stream_names;
use crate::transport::streams::{StreamListener, StreamSocket};

/// The pattern `setup`, described above.
#[derive(Debug)]
pub(crate) struct SetUp;

impl PairPattern for SetUp {
    fn suits(&self, kind: &Kind) -> Result<()> {
        ensure!(
            kind.streams.is_some(),
            "setup opens connections of {}, not of {}",
            stream_names(),
            kind.name
        );
        Ok(())
    }

    fn lead(&self, link: &mut Link<'_>, plan: &Plan, rows: &mut dyn FnMut(Row)) -> Result<()> {
        let streams = streams_of(link)?;
        plan.each_size(rows, |size| lead_size(link, &streams, size, plan))
    }

    fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()> {
        let streams = streams_of(link)?;
        let listener = streams.kind.listen(&streams.context)?;
        link.control
            .send(&Message::Endpoint(listener.endpoint.clone()))?;
        let mut message = vec![0; step.size as usize];
        for _ in 0..step.rounds {
            let fds = [listener.as_fd(), link.control_fd()];
            match wait_readable(fds, Some(streams.context.give_up))? {
                [true, _] => serve(&listener, &mut message)?,
                // The leader has sent a control message.
                [false, true] => return Ok(()),
                [false, false] => bail!(
                    "the peer did not connect within {} s",
                    streams.context.give_up.as_secs()
                ),
            }
        }
        Ok(())
    }
}

fn streams_of(link: &Link<'_>) -> Result<Streams> {
    link.streams
        .clone()
        .context("this transport has no connections to set up")
}

/// Serves one connection on the follower's side.
fn serve(listener: &StreamListener, message: &mut [u8]) -> Result<()> {
    let mut stream = listener.accept()?;
    stream.read_exact(message)?;
    stream.write_all(message)?;
    // The leader closes the connection first, so this call waits for the end of the connection.
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => bail!("more came over a connection than was to come"),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn lead_size(link: &mut Link<'_>, streams: &Streams, size: u64, plan: &Plan) -> Result<Row> {
    let rounds = plan.rounds();
    link.begin(Step::of(size, rounds))?;
    let endpoint = match link.control.answer()? {
        Message::Endpoint(endpoint) => endpoint,
        other => bail!("the peer answered {other:?} to a step"),
    };
    let connect = streams.kind.way_to(&streams.context, &endpoint)?;
    let mut message = vec![0; size as usize];
    let (mut connects, mut connections) = (Vec::new(), Vec::new());
    let mut start = Instant::now();
    for round in 0..rounds {
        if round == plan.warmup {
            start = Instant::now();
        }
        let begin = Instant::now();
        let stream = connect().map_err(|error| explain(link, error))?;
        let connected = begin.elapsed();
        message.fill(round as u8);
        converse(stream, &mut message).map_err(|error| link.explain(error))?;
        let closed = begin.elapsed();
        if round >= plan.warmup {
            connects.push(connected.as_nanos() as u64);
            connections.push(closed.as_nanos() as u64);
        }
    }
    let per_connection = start.elapsed().as_nanos() as u64 / u64::from(plan.tests.max(1));
    let measured = Measured::SetUp {
        connect_ns: plan.summary(connects)?,
        connection_ns: plan.summary(connections)?,
        connections_per_s: 1e9 / per_connection.max(1) as f64,
    };
    Ok(plan.row(size, 0, per_connection, measured))
}

/// Returns the error of a connection that could not be opened.
fn explain(link: &mut Link<'_>, error: anyhow::Error) -> anyhow::Error {
    let cause = error.downcast_ref::<io::Error>();
    match cause.and_then(io::Error::raw_os_error) {
        // The peer is not asked for a reason, because it knows nothing of this host's ports.
        Some(libc::EADDRNOTAVAIL) => error.context(
            "no local port is left, as those of closed connections rest for a minute: lower -c, \
             or wait",
        ),
        _ => link.told_or(error),
    }
}

/// Sends the message, receives it back, and closes the connection.
fn converse(mut stream: Box<dyn StreamSocket>, message: &mut [u8]) -> io::Result<()> {
    let first = message[0];
    stream.write_all(message)?;
    stream.read_exact(message)?;
    if message.iter().any(|byte| *byte != first) {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "a connection carried other bytes than were sent",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::args::PatternArgs;
    use super::super::lossy_tests::controls;
    use super::*;
    use crate::control::Control;
    use crate::transport::datagram::Datagrams;
    use crate::transport::kinds::find;
    use crate::transport::streams::{Connect, StreamKind};
    use crate::transport::Context;
    use crate::wire::Endpoint;
    use std::os::unix::net::UnixDatagram;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    fn streams(kind: &'static dyn StreamKind) -> Streams {
        let context = crate::transport::tests::streams();
        Streams { kind, context }
    }

    /// Calls `what` with a link whose transport is not used. Returns the result of `what`.
    fn with_link<T>(
        control: &mut Control,
        kind: &'static dyn StreamKind,
        what: impl FnOnce(&mut Link<'_>) -> T,
    ) -> T {
        let (unused, _other) = UnixDatagram::pair().unwrap();
        let mut transport = Datagrams::new(unused, 1, Duration::from_secs(60)).unwrap();
        what(&mut Link {
            transport: &mut transport,
            control,
            streams: Some(streams(kind)),
        })
    }

    fn plan(sizes: &[u64], tests: u32) -> Plan {
        Plan {
            sizes: sizes.to_vec(),
            tests,
            warmup: 0,
            percentiles: Vec::new(),
            args: PatternArgs::default(),
        }
    }

    /// TCP as a kind of stream. The function replaces TCP's own [`StreamKind::way_to`].
    #[derive(Debug)]
    struct Tcp(fn(&Context, &Endpoint) -> Result<Connect>);

    fn tcp() -> &'static dyn StreamKind {
        find("tcp").unwrap().streams.unwrap()
    }

    impl StreamKind for Tcp {
        fn listen(&self, context: &Context) -> Result<StreamListener> {
            tcp().listen(context)
        }

        fn way_to(&self, context: &Context, to: &Endpoint) -> Result<Connect> {
            self.0(context, to)
        }
    }

    #[test]
    fn the_way_is_found_before_the_first_connection_is_timed() {
        static FOUND: AtomicU32 = AtomicU32::new(0);
        static COUNTING: Tcp = Tcp(|context, server| {
            FOUND.fetch_add(1, Ordering::Relaxed);
            tcp().way_to(context, server)
        });
        let (mut leader, mut follower) = controls();
        let follower = thread::spawn(move || {
            while let Some(Message::Step(step)) = follower.receive_or_end().unwrap() {
                follower.send(&Message::Ready).unwrap();
                with_link(&mut follower, &COUNTING, |link| {
                    SetUp.follow(link, &step).unwrap();
                });
            }
        });
        let mut rows = Vec::new();
        with_link(&mut leader, &COUNTING, |link| {
            let plan = plan(&[1, 1000], 5);
            SetUp.lead(link, &plan, &mut |row| rows.push(row)).unwrap();
        });
        drop(leader);
        follower.join().unwrap();
        assert_eq!(rows.len(), 2);
        // Each of the two sizes has one listener. The listener's address is resolved once, for any
        // number of connections.
        assert_eq!(FOUND.load(Ordering::Relaxed), 2);
    }

    /// Returns the leader's error if connecting through `kind` fails. If `said` is given, the
    /// follower has sent `Failed` with this text.
    fn failure(kind: &'static dyn StreamKind, said: Option<&str>) -> String {
        let (mut leader, mut follower) = controls();
        follower.send(&Message::Ready).unwrap();
        let nowhere = Message::Endpoint(Endpoint::default());
        follower.send(&nowhere).unwrap();
        if let Some(said) = said {
            follower.send(&Message::Failed(said.to_owned())).unwrap();
        }
        let error = with_link(&mut leader, kind, |link| {
            SetUp.lead(link, &plan(&[1], 1), &mut |_| ()).unwrap_err()
        });
        format!("{error:#}")
    }

    #[test]
    fn a_failed_connect_has_its_reason() {
        static REFUSED: Tcp = Tcp(|_, _| {
            Ok(Box::new(|| {
                Err(io::Error::from(ErrorKind::ConnectionRefused)).context("connecting")
            }))
        });
        static NO_PORT: Tcp = Tcp(|_, _| {
            Ok(Box::new(|| {
                Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)).context("connecting")
            }))
        });
        let error = failure(&REFUSED, Some("the listener is gone"));
        assert!(error.contains("the listener is gone"), "{error}");
        let error = failure(&NO_PORT, None);
        assert!(error.contains("lower -c"), "{error}");
        assert!(error.contains("connecting"), "{error}");
    }
}
