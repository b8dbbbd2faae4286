// SPDX-License-Identifier: GPL-2.0-only

//! The faults that a run must not show.

use std::fmt;

use esp::{Failure, Nanos};

/// A broken property, with its evidence. A run stops when a property is broken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Data in a receive queue is not the data that is next in the stream.
    Misplaced(String),
    /// The engine panicked.
    Panic(String),
    /// A receive queue holds more packets than [`most_queued`](crate::case::Case::most_queued)
    /// allows.
    Overfull {
        /// Number of packets in the queue.
        queued: usize,
        /// The maximum number of packets.
        most: usize,
    },
    /// The ACK queue, its list and the connections contradict each other.
    AckQueue(String),
    /// An acknowledgement opened the window of a connection that waits for its turn.
    OutOfTurn,
    /// A packet was retransmitted or requested although nothing had gone wrong and the hosts have
    /// the same parameters.
    Needless,
    /// A connection failed although both ends are alive.
    Failed(Failure),
    /// A timer that has just run is due again at once.
    Spins,
    /// No event is left, and the run has not reached its end.
    Deadlock,
    /// The run has not reached its end within this time, in nanoseconds.
    Overtime(Nanos),
}

/// The names of the properties, one per kind of [`Fault`].
pub const PROPERTIES: [&str; 10] = [
    "bytes arrive once, in order, unaltered",
    "no panic",
    "receive queues stay bounded",
    "ACK queue, list and connections agree",
    "no window opens out of turn",
    "nothing is sent again unless something went wrong",
    "no connection fails",
    "no timer spins",
    "no deadlock",
    "every run ends in bounded time",
];

impl Fault {
    /// Returns the broken property.
    pub fn property(&self) -> &'static str {
        let index = match self {
            Self::Misplaced(_) => 0,
            Self::Panic(_) => 1,
            Self::Overfull { .. } => 2,
            Self::AckQueue(_) => 3,
            Self::OutOfTurn => 4,
            Self::Needless => 5,
            Self::Failed(_) => 6,
            Self::Spins => 7,
            Self::Deadlock => 8,
            Self::Overtime(_) => 9,
        };
        PROPERTIES[index]
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misplaced(what) | Self::Panic(what) | Self::AckQueue(what) => f.write_str(what),
            Self::Overfull { queued, most } => {
                write!(
                    f,
                    "{queued} packets in a receive queue, at most {most} are allowed"
                )
            }
            Self::OutOfTurn => {
                f.write_str("a window opens while the connection waits for its turn")
            }
            Self::Needless => f.write_str("a resend, a request or a probe though nothing was lost"),
            Self::Failed(failure) => write!(f, "a connection failed: {failure:?}"),
            Self::Spins => f.write_str("a timer that was run is due again at once"),
            Self::Deadlock => f.write_str("nothing will happen any more, and this is not the end"),
            Self::Overtime(bound) => {
                write!(f, "not at its end after {} ms", bound / 1_000_000)
            }
        }
    }
}
