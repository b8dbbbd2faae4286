// SPDX-License-Identifier: MIT OR Apache-2.0

//! The dialogue of a coordinator and a participant on the control connection.
//!
//! ```text
//! to member 0                 to each other one           answers
//! Listen                      Listen                      Listening
//! Join                        Join                        Done
//!                             Exchange or Rpc             Ready
//! Exchange or Rpc                                         Ready;  Spans or RpcTimes, ..., Done
//!   ... the same for every further size or pairing ...
//! Leave                       Leave                       Left
//! ```
//!
//! Member 0 of a [mesh](super::mesh) keeps the time. Where there is a server, it is that one, and
//! who only connects to it does not listen.
//!
//! In place of any of them comes `Failed`, or `Broken` where it is known whose fault it was.
//! `Leave` may be said at any time: a participant that is busy stops, and says what it has
//! measured.

use serde::{Deserialize, Serialize};

use super::exchange::Span;
use super::flows::Flows;
use super::rounds::Series;
use crate::group::net::rpc::{RpcSeries, RpcTimes};
use crate::wire::{Endpoint, Place};

/// The next step of a participant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Open a listening socket.
    Listen(Opening),
    /// Be connected with these others.
    Join {
        /// By what.
        opening: Opening,
        /// This member's number.
        number: u16,
        /// The members to connect to, and where.
        connect: Vec<(u16, Endpoint)>,
        /// The members that will connect.
        accept: Vec<u16>,
    },
    /// Do these rounds, each as soon as member 0 says go.
    Exchange {
        /// The rounds.
        series: Series,
        /// Their senders and receivers.
        flows: Flows,
    },
    /// Member 0: answer; member 1: ask; the others: send to member 0 until the last answer.
    Rpc(RpcSeries),
    /// Close the connections.
    Leave,
    /// Say which network namespace this is.
    Identify,
    /// Set ESP's parameters in this network namespace.
    SetParameters(EspParameters),
    /// Set them back to what they were before the first `SetParameters`.
    RestoreParameters,
}

/// The two that `esp-params` varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EspParameters {
    /// Window during bulk transfer, packets.
    pub burst_length: u32,
    /// Packets that make an acknowledgement due, at most `burst_length`.
    pub packets_to_ack: u32,
}

/// How to open a transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Transport's name.
    pub transport: String,
    /// Name of TCP's congestion control; without one, the system's.
    pub congestion: Option<String>,
}

impl Order {
    /// Is it one that goes on until others have done their part, and that a further order
    /// interrupts?
    pub fn takes_time(&self) -> bool {
        matches!(
            self,
            Self::Join { .. } | Self::Exchange { .. } | Self::Rpc(_)
        )
    }
}

/// The outcome of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The socket waits there.
    Listening(Endpoint),
    /// Waits for the go.
    Ready,
    /// The member's next rounds of an exchange, in the order they were done.
    Spans(Vec<Span>),
    /// What the member knows of the questions.
    RpcTimes(RpcTimes),
    /// The order is carried out.
    Done,
    /// Others were lost, or nothing came from some for too long.
    Broken {
        /// Their numbers.
        places: Vec<u16>,
        /// The error.
        reason: String,
    },
    /// The connections are closed.
    Left,
    /// Where the participant is: ESP's parameters are a network namespace's.
    Identity(Place),
}
