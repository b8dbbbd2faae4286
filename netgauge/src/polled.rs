// SPDX-License-Identifier: MIT OR Apache-2.0

//! `netgauge polled`: a dialogue within one thread, which holds both ends of a connection. The
//! thread sends at one end. At the other end, it receives the bytes that the kernel has queued,
//! without waiting. No thread sleeps or is woken, so half a round trip is the cost of a message for
//! a program that polls.

use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use clap::Args;

use crate::cli::DEFAULT_WARMUP;
use crate::host::is_timeout;
use crate::machine::Machine;
use crate::measuring::Measuring;
use crate::netns::within;
use crate::pair::args::PatternArgs;
use crate::pair::{times, Losses, Plan};
use crate::pattern::PatternInfo;
use crate::progress::Progress;
use crate::report::record::Record;
use crate::report::{LeftOut, Measured, Outcome, Report, Row, Run};
use crate::transport::kind::Kind;
use crate::transport::{self, kinds, Context, Role, Transport};
use crate::watch::watched;
use crate::wrong_line::wrong_line;

const EXAMPLES: &str = include_str!("help/polled.txt");

/// The dialogue's name and limits.
const PATTERN: PatternInfo = PatternInfo {
    name: "polled",
    aliases: &[],
    sizes: &[(1, 64 << 10)],
    tests: 100,
    most: 64 << 20,
};

/// Arguments of `polled`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PolledArgs {
    /// Interface of the end that begins; NETNS/INTERFACE for an interface in the network namespace
    /// with the name or path NETNS
    #[arg(value_name = "END")]
    pub first: End,

    /// Interface of the end that answers
    #[arg(value_name = "END")]
    pub second: End,

    /// Options of the measurement and of its report.
    #[command(flatten)]
    pub measuring: Measuring,
}

/// The place of an end: an interface, and the network namespace that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Name or path of the namespace; `None` for the program's own namespace.
    namespace: Option<String>,
    interface: String,
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, interface) = match text.rsplit_once('/') {
            Some((namespace, interface)) => (Some(namespace), interface),
            None => (None, text),
        };
        if interface.is_empty() || namespace.is_some_and(str::is_empty) {
            return Err("write INTERFACE or NETNS/INTERFACE".to_owned());
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            interface: interface.to_owned(),
        })
    }
}

impl End {
    /// Calls `work` in the end's namespace.
    fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        within(self.namespace.as_deref(), work)
    }

    fn machine(&self) -> Result<Machine> {
        self.within(|| Ok(Machine::here(Some(&self.interface))))
    }
}

/// Both ends of a connected pair of sockets.
struct Ends {
    first: Box<dyn Transport>,
    second: Box<dyn Transport>,
    /// If nothing arrives for this long, the dialogue fails.
    patience: Duration,
}

impl PolledArgs {
    /// Measures each transport, and prints the report.
    ///
    /// # Errors
    ///
    /// Fails if the options conflict, or if the report cannot be written.
    pub fn run(&self) -> Result<ExitCode> {
        sockaddr_en::set_family(self.measuring.family);
        let kinds = self.kinds().map_err(wrong_line)?;
        let plan = self.plan();
        let sizes = kinds.len() * plan.sizes.len();
        watched(sizes, self.measuring.format, |progress| {
            self.measure(&kinds, &plan, progress)
        })
    }

    /// Returns the transports to measure.
    fn kinds(&self) -> Result<Vec<&'static Kind>> {
        let (measuring, sockets) = (&self.measuring, &self.measuring.sockets);
        let kinds = measuring.transports()?;
        ensure!(
            sockets.nonblocking.is_none(),
            "no call waits in this dialogue: leave --nonblocking out"
        );
        if !measuring.is_all() {
            kinds::check(sockets, &kinds)?;
            kinds.iter().try_for_each(|kind| suits(kind))?;
        }
        for size in measuring.sizes(&PATTERN) {
            let most = PATTERN.most;
            ensure!(
                size <= most,
                "size {size} is above what polled takes, {most} bytes: lower -s"
            );
        }
        Ok(kinds)
    }

    fn plan(&self) -> Plan {
        Plan {
            sizes: self.measuring.sizes(&PATTERN),
            tests: self.measuring.tests(&PATTERN),
            warmup: self.measuring.warmup.unwrap_or(DEFAULT_WARMUP),
            percentiles: self.measuring.percentiles.clone(),
            args: PatternArgs::default(),
        }
    }

    fn measure(&self, kinds: &[&Kind], plan: &Plan, progress: &dyn Progress) -> Result<Report> {
        let mut record = Record::begin();
        record.add("first end", self.first.machine()?);
        record.add("second end", self.second.machine()?);
        let mut report = Report::new(&self.second.interface, record);
        let sockets = &self.measuring.sockets;
        let run = |kind, outcome, rows| Run::new(kind, sockets, PATTERN.name, outcome, rows);
        for kind in kinds {
            progress.begin(kind.name, PATTERN.name);
            let mut rows = Vec::new();
            let mut ends = match suits(kind).and_then(|()| self.open(kind)) {
                Ok(ends) => ends,
                Err(error) if self.measuring.is_all() => {
                    let left_out = LeftOut::new(kind, Some(PATTERN.name), &error);
                    report.left_out.push(left_out);
                    progress.advance(plan.sizes.len() as u64);
                    continue;
                }
                Err(error) => {
                    report.runs.push(run(kind, Outcome::failed(&error), rows));
                    progress.advance(plan.sizes.len() as u64);
                    continue;
                }
            };
            let mut add = |row| {
                progress.advance(1);
                rows.push(row);
            };
            let result = plan.each_size(&mut add, |size| ends.converse(size, plan));
            let outcome = result.map_or_else(|error| Outcome::failed(&error), |()| Outcome::Ok);
            report.runs.push(run(kind, outcome, rows));
            progress.measured(report.clone());
        }
        Ok(report)
    }

    /// Connects the two ends. The kernel completes a connection before it is accepted, so one
    /// thread can connect and accept.
    fn open(&self, kind: &Kind) -> Result<Ends> {
        let prepare = |role, end: &End| {
            let context = self.context(kind, role, end);
            end.within(|| (kind.prepare)(&context))
        };
        let first = prepare(Role::Leader, &self.first)?;
        let second = prepare(Role::Follower, &self.second)?;
        let (here, there) = (first.endpoint.clone(), second.endpoint.clone());
        let options = kind.options(&self.measuring.sockets);
        let connect = || transport::open(first, &there, None, &options);
        let first = self.first.within(connect)?;
        let second = self
            .second
            .within(|| transport::open(second, &here, None, &options))?;
        let patience = match first.max_datagram() {
            Some(_) => self.measuring.loss_timeout,
            None => self.measuring.give_up,
        };
        Ok(Ends {
            first,
            second,
            patience,
        })
    }

    fn context(&self, kind: &Kind, role: Role, end: &End) -> Context {
        let measuring = &self.measuring;
        Context {
            role,
            local: None,
            peer: None,
            interface: Some(end.interface.clone()),
            ethertype: measuring.ethertype,
            loss_timeout: measuring.loss_timeout,
            give_up: measuring.give_up,
            options: kind.options(&measuring.sockets),
            congestion: None,
        }
    }
}

/// Checks that one thread can hold both ends of a transport of this kind.
fn suits(kind: &Kind) -> Result<()> {
    ensure!(
        kind.polled,
        "one thread cannot hold both ends of {}: choose from {}",
        kind.name,
        kinds::names(|kind| kind.polled)
    );
    Ok(())
}

impl Ends {
    /// Measures messages of one size.
    fn converse(&mut self, size: u64, plan: &Plan) -> Result<Row> {
        let [mut message, mut there, mut here] = [(); 3].map(|()| vec![0; size as usize]);
        let mut half_round_trips = times(plan.tests);
        let mut losses = Losses::new(plan.tests);
        let (mut tag, mut round) = (0u8, 0);
        while round < plan.rounds() {
            tag = tag.wrapping_add(1);
            message.fill(tag);
            let start = Instant::now();
            let result = self.round_trip(&message, &mut there, &mut here);
            let elapsed = start.elapsed();
            match result {
                Ok(()) => losses.arrived(),
                Err(error) if is_timeout(&error) && self.first.max_datagram().is_some() => {
                    losses.lost()?;
                    continue;
                }
                Err(error) if is_timeout(&error) => {
                    return Err(error).context("nothing came for too long: is the link up?");
                }
                Err(error) => return Err(error.into()),
            }
            if round >= plan.warmup {
                half_round_trips.push(elapsed.as_nanos() as u64 / 2);
            }
            round += 1;
        }
        let half_rtt_ns = plan.summary(half_round_trips)?;
        let median = half_rtt_ns.median;
        let measured = Measured::HalfRoundTrip { half_rtt_ns };
        Ok(plan.row(size, losses.total, median, measured))
    }

    fn round_trip(&mut self, message: &[u8], there: &mut [u8], here: &mut [u8]) -> io::Result<()> {
        let (first, second) = (self.first.as_mut(), self.second.as_mut());
        carry(first, second, message, there, self.patience)?;
        carry(second, first, there, here, self.patience)
    }
}

/// Carries `message` from one end to the other, into `arrived`, which has the same length. Bytes of
/// the message that do not fit into the sockets' buffers are sent after the receiving end has made
/// room there. Fails with `WouldBlock` if nothing arrives for `patience`.
fn carry(
    from: &mut dyn Transport,
    to: &mut dyn Transport,
    message: &[u8],
    arrived: &mut [u8],
    patience: Duration,
) -> io::Result<()> {
    let (mut sent, mut filled) = (0, 0);
    let mut deadline = None;
    while filled < message.len() {
        if sent < message.len() {
            sent += unless_blocked(from.try_send(&message[sent..]))?.unwrap_or(0);
        }
        match unless_blocked(to.try_recv(&mut arrived[filled..]))? {
            // Each message repeats one byte value, and successive messages have different values.
            // So a datagram with another value is a late part of an earlier message.
            Some(length) if length > 0 && arrived[filled] == message[0] => {
                filled += length;
                deadline = None;
            }
            Some(_) if to.max_datagram().is_none() => {
                let text = "other bytes arrived than were sent";
                return Err(io::Error::new(ErrorKind::InvalidData, text));
            }
            Some(_) => {}
            None => {
                let now = Instant::now();
                if now > *deadline.get_or_insert(now + patience) {
                    return Err(ErrorKind::WouldBlock.into());
                }
            }
        }
    }
    Ok(())
}

/// Returns the result of a call that does not wait; `None` if the call would have had to wait.
fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::command::Command;
    use crate::progress::Quiet;
    use clap::Parser as _;

    fn parse(line: &str) -> Result<PolledArgs, clap::Error> {
        let line = format!("netgauge polled {line}");
        Cli::try_parse_from(line.split_whitespace()).map(|cli| match cli.command {
            Some(Command::Polled(args)) => *args,
            other => panic!("{other:?}"),
        })
    }

    fn measured(line: &str) -> Report {
        let args = parse(line).unwrap();
        let kinds = args.kinds().unwrap();
        args.measure(&kinds, &args.plan(), &Quiet).unwrap()
    }

    #[test]
    fn an_end_is_an_interface_here_or_in_a_namespace() {
        let end = |text: &str| text.parse::<End>();
        for (text, namespace, interface) in [
            ("eth0", None, "eth0"),
            ("a/veth0", Some("a"), "veth0"),
            ("/proc/7/ns/net/veth0", Some("/proc/7/ns/net"), "veth0"),
        ] {
            let namespace = namespace.map(str::to_owned);
            let interface = interface.to_owned();
            let expected = End {
                namespace,
                interface,
            };
            assert_eq!(end(text), Ok(expected), "{text}");
        }
        for text in ["", "a/", "/veth0"] {
            assert!(end(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_thread_answers_itself() {
        // The largest size is more than the sockets' buffers can hold.
        let report = measured("lo lo -m tcp,udp,unix -s 1,4K,100K,8M -c 5 --warmup 1");
        assert!(report.is_complete(), "{report:?}");
        for run in &report.runs {
            let sizes: Vec<_> = run.rows.iter().map(|row| row.size).collect();
            assert_eq!(sizes, [1, 4 << 10, 100 << 10, 8 << 20]);
            for row in &run.rows {
                let Measured::HalfRoundTrip { half_rtt_ns } = &row.measured else {
                    panic!("{row:?}");
                };
                assert!(half_rtt_ns.min > 0 && row.tests == 5 && row.lost == 0);
            }
        }
    }

    #[test]
    fn what_does_not_work_is_left_out_or_fails() {
        let report = measured("lo lo -m all -s 1 -c 1");
        assert!(report.is_complete(), "{report:?}");
        let out = report.left_out.iter().find(|out| out.transport == "tipc");
        let out = out.unwrap();
        assert!(out.reason.contains("choose from tcp, udp"), "{out:?}");
        let report = measured("lo absent0 -m tcp -s 1 -c 1");
        assert!(
            report.errors()[0].contains("no interface `absent0`"),
            "{report:?}"
        );
    }

    #[test]
    fn a_stale_datagram_is_no_part_of_a_message() {
        use crate::transport::datagram::{DatagramSocket, Datagrams};
        use std::os::unix::net::UnixDatagram;

        let (one, two) = UnixDatagram::pair().unwrap();
        let stray = one.try_clone().unwrap();
        let patience = Duration::from_millis(20);
        let [mut one, mut two] = [one, two].map(|end| Datagrams::new(end, 4, patience).unwrap());
        DatagramSocket::send(&stray, &[1; 4], nix::sys::socket::MsgFlags::empty()).unwrap();
        let mut arrived = [0; 10];
        carry(&mut one, &mut two, &[2; 10], &mut arrived, patience).unwrap();
        assert_eq!(arrived, [2; 10]);
        // The message was received above, and no other one is in flight, so there is nothing to
        // receive.
        let mut ends = Ends {
            first: Box::new(one),
            second: Box::new(two),
            patience,
        };
        let byte = ends.second.try_recv(&mut [0]).unwrap_err();
        assert!(is_timeout(&byte));
    }

    #[test]
    fn a_loss_is_a_timeout() {
        use crate::transport::datagram::Datagrams;
        use std::os::unix::net::UnixDatagram;

        let patience = Duration::from_millis(5);
        let (one, _elsewhere) = UnixDatagram::pair().unwrap();
        let (_there, two) = UnixDatagram::pair().unwrap();
        let [first, second] = [one, two].map(|end| {
            let datagrams = Datagrams::new(end, 4, patience).unwrap();
            Box::new(datagrams) as Box<dyn Transport>
        });
        let mut ends = Ends {
            first,
            second,
            patience,
        };
        let plan = parse("lo lo -s 1 -c 1").unwrap().plan();
        let error = ends.converse(1, &plan).unwrap_err();
        assert!(error.to_string().contains("no answer to 5"), "{error}");
    }

    #[test]
    fn mistakes_are_answered_with_what_to_write() {
        for line in ["lo", "lo lo lo", "lo / -m tcp", "lo lo -c 0"] {
            assert!(parse(line).is_err(), "{line}");
        }
        let refused = |line| parse(line).unwrap().kinds().unwrap_err().to_string();
        for (line, text) in [
            ("lo lo -m tipc", "both ends of tipc"),
            ("lo lo -N both", "--nonblocking"),
            ("lo lo -s 65M", "lower -s"),
            ("lo lo -m unix --busy-poll 1", "--busy-poll means nothing"),
        ] {
            assert!(refused(line).contains(text), "{line}");
        }
    }
}
