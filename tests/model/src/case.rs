// SPDX-License-Identifier: GPL-2.0-only

//! A case that the model checker explores: the parameters of the hosts, and the behaviour of the
//! programs at both ends of every connection.

use std::fmt;

use esp::{Config, Nanos};

/// A microsecond, in nanoseconds.
pub const US: Nanos = 1_000;
/// A millisecond, in nanoseconds.
pub const MS: Nanos = 1_000_000;

/// Payload of a full packet, in bytes.
pub const MSS: u16 = 10;

/// The condition on which a program begins each message: it has read a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Number of bytes that the program reads before it sends its first message.
    pub first: u16,
    /// Number of bytes that the program reads before it sends each later message.
    pub each: u16,
}

impl Begin {
    /// A condition that holds as soon as the connection is open.
    pub const OPEN: Self = Self { first: 0, each: 0 };

    /// Returns the number of bytes to read before the message with this index.
    pub fn before(self, index: u8) -> u16 {
        self.first + self.each * u16::from(index)
    }
}

/// The condition on which a program closes its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The program never closes its end.
    Never,
    /// The program closes when it has written everything.
    Written,
    /// The program closes when it has written everything and read the end of the peer's stream.
    Ended,
    /// Like `Written`, but the program calls close(2), and no longer reads.
    Abandoned,
}

/// The way in which a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The program reads everything that is queued, whenever data arrives. Between reads it sleeps
    /// if `sleeps` is set, and polls otherwise.
    AtOnce {
        /// Whether the program sleeps between reads.
        sleeps: bool,
    },
    /// The program reads everything that is queued, this many nanoseconds after data arrived.
    /// Between reads it does not sleep but is busy.
    Late(Nanos),
    /// The program reads one packet at a time, this many nanoseconds after data arrived or after
    /// the last read.
    Paced(Nanos),
}

/// The behaviour of a program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The number of packets of each message. A message is a send call; its last packet is not
    /// full.
    pub messages: Vec<u16>,
    /// The condition for the program to begin each message.
    pub begin: Begin,
    /// Capacity of the write queue in packets. A send call sleeps while the queue is full.
    pub send_room: usize,
    /// The way in which the program reads.
    pub reader: Reader,
    /// The size of the receive buffer in packets.
    pub limit: u32,
    /// The condition on which the program closes its end.
    pub close: Close,
}

impl Program {
    /// A program that reads at once, and neither writes nor closes.
    pub const SILENT: Self = Self {
        messages: Vec::new(),
        begin: Begin::OPEN,
        send_room: 64,
        reader: Reader::AtOnce { sleeps: true },
        limit: 1_000,
        close: Close::Never,
    };

    /// Returns the number of bytes of a message of `packets` packets.
    pub fn bytes(packets: u16) -> u16 {
        packets * MSS - 3
    }

    /// Returns the number of bytes of all messages.
    pub fn total(&self) -> u16 {
        self.messages.iter().copied().map(Self::bytes).sum()
    }
}

/// A deliberate error, which the checker must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Retransmission requests are not sent.
    SwallowRequests,
    /// Connections that wait to acknowledge wait forever, because the host never gives them their
    /// turn.
    NeverServe,
    /// Connections that need not wait any longer stay in the ACK queue's list.
    KeepInList,
    /// Every arriving packet is put into the receive queue, whatever the engine decides.
    DeliverAll,
    /// The host replaces the payload of a data packet by the payload of the next packet in the
    /// write queue.
    SendNext,
    /// The host reports to the engine that the receive queue has no limit.
    PromiseRoom,
    /// The host panics when it first sends a retransmission request.
    PanicAtRequest,
    /// The host gives a waiting connection its turn at once, but leaves the connection in the list.
    GrantAtOnce,
    /// The host passes the engine a time that is far ahead of the clock.
    HastyClock,
    /// Timers of the engine never expire.
    NoTimers,
    /// When a timer expires, the engine is given an earlier time.
    StoppedClock,
    /// The hosts send SYNs without options.
    SendNoOptions,
}

/// A case: one receiver host, and one sender host for each pair of programs.
#[derive(Clone, Debug)]
pub struct Case {
    /// The parameters of the receiver host and of the senders.
    pub configs: [Config; 2],
    /// A change of the parameters during the connections. The time is in nanoseconds after the
    /// start. The first new [`Config`] is for the receiver host, and the second one is for the
    /// senders.
    pub later: Option<(Nanos, [Config; 2])>,
    /// The programs of the receiver's end and the sender's end of each connection.
    pub programs: Vec<[Program; 2]>,
    /// Whether the hosts report their windows to each other when a connection is opened.
    pub reports_windows: bool,
    /// Whether the connections carry records; each message is one record.
    pub records: bool,
    /// Whether the receiver's ACK queue treats all senders as connections of one host.
    pub together: bool,
    /// The priority of the receiver's first socket.
    pub priority: u32,
    /// Whether the run starts with open connections, rather than with their SYNs.
    pub open: bool,
    /// Whether the receiver's host does not listen, but opens the connections at the same time as
    /// the senders.
    pub crossed: bool,
    /// The one-way time of a packet through the switch without queueing, in nanoseconds.
    pub latency: Nanos,
    /// The maximum duration of a run, in nanoseconds of simulated time. If a host dies, the other
    /// hosts must be done within this time.
    pub bound: Nanos,
    /// A deliberate error, if any.
    pub sabotage: Option<Sabotage>,
}

impl Case {
    /// Returns the parameters of a host, before or after they change.
    pub fn config(&self, host: u8, changed: bool) -> Config {
        let configs = match self.later {
            Some((_, later)) if changed => later,
            _ => self.configs,
        };
        configs[usize::from(host > 0)]
    }

    /// Returns whether a run without faults must drop no packet and send no needless request.
    ///
    /// A receiver only ensures that its receive queue has room for a burst of its own length. If
    /// the peer's bursts are longer, they surely fit only if the queue has room for all data. The
    /// receiver knows the length of the peer's bursts only if the peer has reported it.
    pub fn is_smooth(&self) -> bool {
        let known = self.configs[0] == self.configs[1] || (self.reports_windows && self.all_fits());
        known && self.later.is_none()
    }

    fn all_fits(&self) -> bool {
        let fits = |reads: &Program, writes: &Program| {
            writes.messages.iter().map(|n| u32::from(*n)).sum::<u32>() < reads.limit
        };
        let mut pairs = self.programs.iter();
        pairs.all(|[one, other]| fits(one, other) && fits(other, one))
    }

    /// Returns the maximum number of packets in the receive queue of a host's endpoint.
    ///
    /// An acknowledgement is sent when the queue has room for a burst, or when at most a quarter of
    /// the queue is used. The maximum is therefore the queue's limit, or a quarter of the limit
    /// plus a burst, whichever is more. If the burst grows after the acknowledgement was sent, the
    /// maximum is the limit plus the burst.
    pub fn most_queued(&self, host: u8, endpoint: u8) -> usize {
        let bursts =
            [false, true].map(|changed| usize::from(self.config(host, changed).burst_length_max));
        let burst = bursts[0].max(bursts[1]);
        let limit = self.program(host, endpoint).limit as usize;
        let most = match self.later {
            Some(_) => limit + burst,
            None => limit.max(limit / 4 + burst),
        };
        // While a record arrives, the receiver keeps its window open even without room. So the
        // packets of a record are queued in addition to `most`.
        match self.peer(host, endpoint).messages.iter().max() {
            Some(longest) if self.records => most + usize::from(*longest),
            _ => most,
        }
    }

    /// Returns the program of a host's endpoint. Host 0 is the receiver, with one endpoint per
    /// sender.
    pub fn program(&self, host: u8, endpoint: u8) -> &Program {
        match host {
            0 => &self.programs[usize::from(endpoint)][0],
            n => &self.programs[usize::from(n) - 1][1],
        }
    }

    /// Returns the number by which the ACK queue knows the host at the other end of a connection.
    /// If `together` is set, all senders have the same number.
    pub fn peer_host(&self, host: u8, endpoint: u8) -> u8 {
        if host > 0 || self.together {
            0
        } else {
            endpoint + 1
        }
    }

    /// Returns the program at the other end of a host's endpoint.
    pub fn peer(&self, host: u8, endpoint: u8) -> &Program {
        match host {
            0 => &self.programs[usize::from(endpoint)][1],
            n => &self.programs[usize::from(n) - 1][0],
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let later = self.later.map(|(_, configs)| configs);
        for configs in [Some(self.configs), later].into_iter().flatten() {
            for (config, host) in configs.iter().zip(["receiver", "senders"]) {
                writeln!(
                    f,
                    "{host}: burst_length {} packets_to_ack {} initial_ack_burst_length {} round_trip_time {} selective {:?}",
                    config.burst_length, config.packets_to_ack, config.initial_ack_burst_length, config.round_trip_time, config.selective,
                )?;
            }
        }
        writeln!(
            f,
            "{} us through the switch, windows {}, {}connections {}",
            self.latency / US,
            if self.reports_windows {
                "told"
            } else {
                "not told"
            },
            if self.together { "one host's " } else { "" },
            if self.open { "open" } else { "to be opened" },
        )?;
        for (i, [receiver, sender]) in self.programs.iter().enumerate() {
            for (name, program) in [("its receiver", receiver), ("sender", sender)] {
                writeln!(
                    f,
                    "  {name} {}: writes {:?} packets after {}+{} bytes through a queue of {}, reads {:?} from one \
                     of {}, closes {:?}",
                    i + 1,
                    program.messages,
                    program.begin.first,
                    program.begin.each,
                    program.send_room,
                    program.reader,
                    program.limit,
                    program.close,
                )?;
            }
        }
        Ok(())
    }
}
