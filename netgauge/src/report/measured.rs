// SPDX-License-Identifier: MIT OR Apache-2.0

//! The results of a pattern for one size: times, and other numbers.

use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// A pattern's results for one size. In JSON, the fields of the variant stand directly in the
/// object of the [`Row`](super::Row), not in an object of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Measured {
    /// Pattern one-one.
    HalfRoundTrip {
        /// Half of the time from sending a message to receiving it back, nanoseconds.
        half_rtt_ns: Summary,
    },
    /// Pattern bulk.
    Bulk {
        /// Time of a transfer, nanoseconds.
        total_ns: Summary,
        /// The median time of a transfer, divided by the number of bytes, nanoseconds.
        ns_per_byte: f64,
    },
    /// Pattern logp: the parameters of the P-LogP model.
    LogP {
        /// o_s: time in the call that sends a message, nanoseconds.
        send_overhead_ns: Summary,
        /// o_r: time in a receiving call whose message has already arrived, nanoseconds.
        receive_overhead_ns: Summary,
        /// g: the minimum interval between two successive messages, nanoseconds.
        gap_ns: Summary,
        /// Time from sending a message to receiving the answer of one byte, nanoseconds.
        rtt_ns: Summary,
        /// L: the time of one direction without the gaps, nanoseconds.
        latency_ns: u64,
    },
    /// Pattern flood.
    Flood {
        /// Time in the call that sends a message, nanoseconds.
        send_overhead_ns: Summary,
        /// Number of messages that arrived, per second.
        messages_per_s: f64,
        /// Number of packets that the sender sent per message, if the transport counts them.
        packets_per_message: Option<f64>,
    },
    /// Pattern setup.
    SetUp {
        /// Time of a call that connects, nanoseconds.
        connect_ns: Summary,
        /// Time of a connection from connecting to closing, nanoseconds.
        connection_ns: Summary,
        /// Number of connections opened, used and closed, per second.
        connections_per_s: f64,
    },
    /// Pattern recovery.
    Recovery {
        /// Time from sending a message to receiving the answer, nanoseconds.
        exchange_ns: Summary,
        /// Number of exchanges that took much longer than the median.
        stalls: u32,
        /// The sum of the times by which stalls exceed the median, nanoseconds.
        stalled_ns: u64,
        /// The share of the exchanges that got no answer. It is `None` for streams, which lose no
        /// exchange.
        lost_share: Option<f64>,
        /// Number of packets that the sender retransmitted, if the transport counts them.
        packets_resent: Option<u64>,
    },
}

impl Measured {
    /// Returns the pattern's main times, nanoseconds.
    pub fn times(&self) -> &Summary {
        self.subject().1
    }

    /// Returns the main times, with their heading for people.
    pub(super) fn subject(&self) -> (&'static str, &Summary) {
        match self {
            Self::HalfRoundTrip { half_rtt_ns } => ("half round trip", half_rtt_ns),
            Self::Bulk { total_ns, .. } => ("whole transfer", total_ns),
            Self::LogP {
                send_overhead_ns, ..
            }
            | Self::Flood {
                send_overhead_ns, ..
            } => ("send overhead", send_overhead_ns),
            Self::SetUp { connect_ns, .. } => ("connecting", connect_ns),
            Self::Recovery { exchange_ns, .. } => ("exchange", exchange_ns),
        }
    }

    /// Returns all times of the pattern, with their names in JSON.
    pub(super) fn all_times(&self) -> Vec<(&'static str, &Summary)> {
        match self {
            Self::HalfRoundTrip { half_rtt_ns } => vec![("half_rtt_ns", half_rtt_ns)],
            Self::Bulk { total_ns, .. } => vec![("total_ns", total_ns)],
            Self::LogP {
                send_overhead_ns,
                receive_overhead_ns,
                gap_ns,
                rtt_ns,
                ..
            } => vec![
                ("send_overhead_ns", send_overhead_ns),
                ("receive_overhead_ns", receive_overhead_ns),
                ("gap_ns", gap_ns),
                ("rtt_ns", rtt_ns),
            ],
            Self::Flood {
                send_overhead_ns, ..
            } => vec![("send_overhead_ns", send_overhead_ns)],
            Self::SetUp {
                connect_ns,
                connection_ns,
                ..
            } => vec![("connect_ns", connect_ns), ("connection_ns", connection_ns)],
            Self::Recovery { exchange_ns, .. } => vec![("exchange_ns", exchange_ns)],
        }
    }
}
