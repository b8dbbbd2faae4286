// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a coordinator and a participant say to each other on the control connection.
//!
//! One server and its clients ([`super::meeting`]):
//!
//! ```text
//! to the server               to each client              answers
//! Listen                                                  Listening
//! Accept                      Connect                     Accepted, Connected
//!                             Send                        Ready
//! Receive                                                 Rounds, ..., Received;  Sent
//!   ... Send and Receive for every further size ...
//! Leave                       Leave                       Left
//! ```
//!
//! Members of a mesh ([`super::mesh`]), of whom member 0 keeps the time:
//!
//! ```text
//! to member 0                 to each other one           answers
//! Listen                      Listen                      Listening
//! Join                        Join                        Joined
//!                             Exchange                    Ready
//! Exchange                                                Ready;  Spans, ..., Exchanged
//!   ... Exchange for every further size or pairing ...
//! Leave                       Leave                       Left
//! ```
//!
//! In place of any of them comes `Failed`, or `Broken` where it is known whose fault it was. `Leave`
//! may be said at any time: a participant that is busy stops, and says what it has measured.

use serde::{Deserialize, Serialize};

use super::exchange::Span;
use super::parameters::EspParameters;
use super::rounds::{Round, Series};
use crate::control::Endpoint;
use crate::transport::Place;

/// What a participant is to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Server or member: open a listening socket.
    Listen(Opening),
    /// Server: wait until so many clients have connected.
    Accept {
        /// How many; they are numbered from 0.
        clients: u16,
    },
    /// Client: connect to the server.
    Connect {
        /// By what.
        opening: Opening,
        /// Where.
        server: Endpoint,
        /// This client's number.
        number: u16,
    },
    /// Client: do these rounds, each as soon as the server says go.
    Send(Series),
    /// Server: do these rounds.
    Receive(Series),
    /// Member: be connected with these others.
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
    /// Member: do these rounds, each as soon as member 0 says go.
    Exchange {
        /// The rounds.
        series: Series,
        /// The members to send to.
        to: Vec<u16>,
        /// The members that send here.
        from: Vec<u16>,
    },
    /// Close the connections.
    Leave,
    /// Say which network namespace this is.
    Identify,
    /// Set ESP's parameters in this network namespace.
    SetParameters(EspParameters),
    /// Set them back to what they were before the first `SetParameters`.
    RestoreParameters,
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
    /// Is it one that goes on until others have done their part, and that a further order interrupts?
    pub fn takes_time(&self) -> bool {
        match self {
            Self::Accept { .. }
            | Self::Send(_)
            | Self::Receive(_)
            | Self::Join { .. }
            | Self::Exchange { .. } => true,
            Self::Listen(_)
            | Self::Connect { .. }
            | Self::Leave
            | Self::Identify
            | Self::SetParameters(_)
            | Self::RestoreParameters => false,
        }
    }
}

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The socket waits there.
    Listening(Endpoint),
    /// Every client has connected.
    Accepted,
    /// Connected to the server.
    Connected,
    /// Connected with all the others.
    Joined,
    /// Waits for the go.
    Ready,
    /// The client's rounds are done.
    Sent,
    /// The server's next rounds, in the order they were done.
    Rounds(Vec<Round>),
    /// The server's rounds are done.
    Received,
    /// The member's next rounds, in the order they were done.
    Spans(Vec<Span>),
    /// The member's rounds are done.
    Exchanged,
    /// Others were lost, or nothing came from some for too long.
    Broken {
        /// Their places: 0 is the server, or member 0.
        places: Vec<u16>,
        /// What happened.
        reason: String,
    },
    /// The connections are closed.
    Left,
    /// Where the participant is: ESP's parameters are a network namespace's.
    Identity(Place),
    /// ESP's parameters are set.
    ParametersSet,
    /// ESP's parameters are what they were.
    ParametersRestored,
}
