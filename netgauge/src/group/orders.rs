// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a coordinator and a participant say to each other on the control connection.
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
//! In place of any of them comes `Failed`, or `Broken` where it is known whose fault it was. `Leave`
//! may be said at any time: a participant that is busy stops.

use serde::{Deserialize, Serialize};

use super::parameters::EspParameters;
use super::rounds::{Round, Series};
use crate::control::Endpoint;

/// What a participant is to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Server: open a listening socket.
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

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The server's socket waits there.
    Listening(Endpoint),
    /// Every client has connected.
    Accepted,
    /// Connected to the server.
    Connected,
    /// The client waits for the server's go.
    Ready,
    /// The client's rounds are done.
    Sent,
    /// The server's next rounds, in the order they were done.
    Rounds(Vec<Round>),
    /// The server's rounds are done.
    Received,
    /// The server lost a client, or got nothing from some for too long.
    Broken {
        /// Their numbers.
        clients: Vec<u16>,
        /// What happened.
        reason: String,
    },
    /// The connections are closed.
    Left,
    /// The network namespace: equal for two participants exactly if theirs are the same.
    Identity(String),
    /// ESP's parameters are set.
    ParametersSet,
    /// ESP's parameters are what they were.
    ParametersRestored,
}
