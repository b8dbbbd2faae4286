// SPDX-License-Identifier: GPL-2.0-only

//! What is run: the parameters, and what the programs on both ends of every connection do.

use std::fmt;

use esp::{Config, Nanos};

/// A microsecond.
pub const US: Nanos = 1_000;
/// A millisecond.
pub const MS: Nanos = 1_000_000;

/// Payload of a full packet, in bytes.
pub const MSS: u16 = 10;

/// When a program begins to write a message, by what it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Bytes to be read before the first message.
    pub first: u16,
    /// Bytes to be read before each further one.
    pub each: u16,
}

impl Begin {
    /// As soon as the connection is open.
    pub const OPEN: Self = Self { first: 0, each: 0 };

    /// Bytes to be read before the message with this index.
    pub fn before(self, index: u8) -> u16 {
        self.first + self.each * u16::from(index)
    }
}

/// When a program closes its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Never.
    Never,
    /// When it has written all it has to write.
    Written,
    /// When it has moreover read the end of the other side's stream.
    Ended,
    /// As `Written`, and the socket is closed whole: nobody reads any more.
    Abandoned,
}

/// How a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// All there is, whenever something comes; it sleeps in between if `sleeps`, and polls if not.
    AtOnce {
        /// Whether it sleeps.
        sleeps: bool,
    },
    /// All there is, that long after something came; it does not sleep but has other things to do.
    Late(Nanos),
    /// One packet at a time, that long after something came or it read the last.
    Paced(Nanos),
}

/// What a program does.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its messages, each a send call, in packets of which the last is not full.
    pub messages: Vec<u16>,
    /// When it begins with each.
    pub begin: Begin,
    /// What the write queue holds before a send call sleeps, in packets.
    pub send_room: usize,
    /// How it reads.
    pub reader: Reader,
    /// The receive buffer, in packets.
    pub limit: u32,
    /// When it closes.
    pub close: Close,
}

impl Program {
    /// Reads at once, writes and closes nothing.
    pub const SILENT: Self = Self {
        messages: Vec::new(),
        begin: Begin::OPEN,
        send_room: 64,
        reader: Reader::AtOnce { sleeps: true },
        limit: 1_000,
        close: Close::Never,
    };

    /// Bytes of a message of so many packets.
    pub fn bytes(packets: u16) -> u16 {
        packets * MSS - 3
    }

    /// All bytes that it writes.
    pub fn total(&self) -> u16 {
        self.messages.iter().copied().map(Self::bytes).sum()
    }
}

/// What is made wrong on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// No retransmission request reaches the wire.
    SwallowRequests,
    /// Nobody ever leaves the list of those that wait for their turn.
    NeverServe,
    /// What need not wait any longer stays in the list.
    KeepInList,
    /// What comes is put into the receive queue whatever the engine says.
    DeliverAll,
    /// The packet that follows the one the engine gave out is sent.
    SendNext,
    /// The engine is told that the receive queue has no limit.
    PromiseRoom,
    /// The first request panics.
    PanicAtRequest,
    /// Who waits for the turn is told that it has come, and yet stays in the list.
    GrantAtOnce,
    /// The engine is told a time that is far ahead.
    HastyClock,
    /// No timer of an engine ever expires.
    NoTimers,
    /// When a timer expires, the engine is told an earlier time.
    StoppedClock,
    /// The hosts send SYNs without options.
    TellNothing,
}

/// One receiver host, and a sender host for each pair of programs.
#[derive(Clone, Debug)]
pub struct Case {
    /// The parameters of the receiver host and of the senders.
    pub configs: [Config; 2],
    /// What these are changed to while the connections last, and how long after the beginning, in
    /// nanoseconds.
    pub later: Option<(Nanos, [Config; 2])>,
    /// What the receiver's end and the sender's end of each connection do.
    pub programs: Vec<[Program; 2]>,
    /// The hosts tell their windows when a connection is opened.
    pub told: bool,
    /// The connections have records: each message is one.
    pub records: bool,
    /// To the receiver's ACK queue all senders are connections of one host.
    pub together: bool,
    /// The priority of the receiver's first socket.
    pub priority: u32,
    /// The run begins with all connections open, and not with their SYNs.
    pub open: bool,
    /// The receiver's host does not listen, but opens the connections as well, at the same time.
    pub crossed: bool,
    /// The time of a packet through the switch, one way and without queueing, in nanoseconds.
    pub latency: Nanos,
    /// The longest that a run may take, in nanoseconds of its time; if a host dies, for what the
    /// others have to do.
    pub bound: Nanos,
    /// What is made wrong on purpose.
    pub sabotage: Option<Sabotage>,
}

impl Case {
    /// The parameters of a host, before or after they change.
    pub fn config(&self, host: u8, changed: bool) -> Config {
        let configs = match self.later {
            Some((_, later)) if changed => later,
            _ => self.configs,
        };
        configs[usize::from(host > 0)]
    }

    /// Whether the hosts must neither drop a packet nor ask for one in vain while nothing goes
    /// wrong.
    ///
    /// A receiver makes room for a burst of its own. One that was told a larger one takes it if its
    /// queue has room for all that is ever sent; one that was told nothing does not know when the
    /// sender stops.
    pub fn is_smooth(&self) -> bool {
        let known = self.configs[0] == self.configs[1] || (self.told && self.all_fits());
        known && self.later.is_none()
    }

    fn all_fits(&self) -> bool {
        let fits = |reads: &Program, writes: &Program| {
            writes.messages.iter().map(|n| u32::from(*n)).sum::<u32>() < reads.limit
        };
        let mut pairs = self.programs.iter();
        pairs.all(|[one, other]| fits(one, other) && fits(other, one))
    }

    /// The most packets that may be in the receive queue of a host's endpoint.
    ///
    /// An acknowledgement leaves when the queue can take a burst or at most a quarter of it is in
    /// use: so its limit, or a quarter of it and a burst, whichever is more. A burst that has
    /// become larger meanwhile was not counted when the acknowledgement left: then the limit and
    /// the burst.
    pub fn most_queued(&self, host: u8, endpoint: u8) -> usize {
        let bursts =
            [false, true].map(|changed| usize::from(self.config(host, changed).burst_length_max));
        let burst = bursts[0].max(bursts[1]);
        let limit = self.program(host, endpoint).limit as usize;
        let most = match self.later {
            Some(_) => limit + burst,
            None => limit.max(limit / 4 + burst),
        };
        // A record that arrives has room of its own, and the window behind its last packet is open
        // when that comes.
        match self.peer(host, endpoint).messages.iter().max() {
            Some(longest) if self.records => most + usize::from(*longest),
            _ => most,
        }
    }

    /// The program of a host's endpoint. Host 0 is the receiver, with one endpoint per sender.
    pub fn program(&self, host: u8, endpoint: u8) -> &Program {
        match host {
            0 => &self.programs[usize::from(endpoint)][0],
            n => &self.programs[usize::from(n) - 1][1],
        }
    }

    /// The host at the other end of a host's endpoint, as its ACK queue knows it.
    pub fn peer_host(&self, host: u8, endpoint: u8) -> u8 {
        if host > 0 || self.together {
            0
        } else {
            endpoint + 1
        }
    }

    /// The program at the other end.
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
                    "{host}: burst_length {} packets_to_ack {} initial_ack_burst_length {} round_trip_time {} selective {}",
                    config.burst_length, config.packets_to_ack, config.initial_ack_burst_length, config.round_trip_time, config.selective,
                )?;
            }
        }
        writeln!(
            f,
            "{} us through the switch, windows {}, {}connections {}",
            self.latency / US,
            if self.told { "told" } else { "not told" },
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
