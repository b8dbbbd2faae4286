// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages between a coordinator and a participant on the control connection.
//!
//! ```text
//! to member 0                 to each other member        answers
//! Listen                      Listen                      Listening
//! Join                        Join                        Done
//!                             Exchange or Rpc             Ready
//! Exchange or Rpc                                         Ready;  Spans or RpcTimes, ..., Done
//!   ... the same for every further size or pairing ...
//! Leave                       Leave                       Left
//! ```
//!
//! Member 0 of a [mesh](crate::group::coordinator::mesh) keeps the time. If the pattern has a
//! server, the server is member 0. Members that only connect to member 0 do not listen.
//!
//! A participant may answer any order with `Failed`, or with `Broken` where it knows which member
//! failed. The coordinator may send `Leave` at any time. A busy participant then stops, and reports
//! its results so far.

use serde::{Deserialize, Serialize};

use super::exchange::Span;
use super::flows::Flows;
use super::rounds::Series;
use crate::group::net::rpc::{RpcSeries, RpcTimes};
use crate::wire::{Endpoint, Place};

/// The coordinator's next order for a participant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Open a listening socket.
    Listen(Opening),
    /// Connect with the members of `connect`, and wait for those of `accept`.
    Join {
        /// The transport.
        opening: Opening,
        /// This member's number.
        number: u16,
        /// The members to which this member connects, each with the address of its socket.
        connect: Vec<(u16, Endpoint)>,
        /// The members that connect to this member.
        accept: Vec<u16>,
    },
    /// Do the rounds of `series`; each round begins when member 0 starts it.
    Exchange {
        /// The rounds.
        series: Series,
        /// The senders and receivers of the rounds.
        flows: Flows,
    },
    /// Member 0: reply to calls; member 1: call; the others: send to member 0 until the last reply.
    Rpc(RpcSeries),
    /// Close the connections.
    Leave,
    /// Report the network namespace that the participant is in.
    Identify,
    /// Set ESP's parameters in this network namespace.
    SetParameters(EspParameters),
    /// Restore the values that the parameters had before the first `SetParameters`.
    RestoreParameters,
}

/// The two parameters that `esp-params` varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EspParameters {
    /// The window during bulk transfer, packets.
    pub burst_length: u32,
    /// The number of packets that make an acknowledgement due. It is at most `burst_length`.
    pub packets_to_ack: u32,
}

/// The transport that members open, and its congestion control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Transport's name.
    pub transport: String,
    /// Name of TCP's congestion control; without a name, the system's default.
    pub congestion: Option<String>,
}

impl Order {
    /// Returns whether the order makes the participant wait for other members. The coordinator's
    /// next order interrupts such an order.
    pub fn takes_time(&self) -> bool {
        matches!(
            self,
            Self::Join { .. } | Self::Exchange { .. } | Self::Rpc(_)
        )
    }
}

/// A participant's answer to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The address of the listening socket.
    Listening(Endpoint),
    /// The member is ready for the rounds, which member 0 starts.
    Ready,
    /// The times of successive rounds of an exchange. A long exchange is reported in several of
    /// these answers.
    Spans(Vec<Span>),
    /// The times of the member's remote calls.
    RpcTimes(RpcTimes),
    /// The order is carried out.
    Done,
    /// Other members have failed, or have sent nothing for too long.
    Broken {
        /// The numbers of the members that have failed, or have sent nothing for too long.
        places: Vec<u16>,
        /// The error, as text for the user.
        reason: String,
    },
    /// The connections are closed.
    Left,
    /// The participant's network namespace, which ESP's parameters belong to.
    Identity(Place),
}
