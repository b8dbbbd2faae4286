// SPDX-License-Identifier: GPL-2.0

//! The states of a connection, and the reasons why a connection fails.

/// The states of TCP (RFC 9293, 3.3.2), without LISTEN and TIME-WAIT. Only a listener is in LISTEN,
/// and this protocol has no TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The connection is not yet open, or is over.
    Closed,
    /// Our SYN was sent.
    SynSent,
    /// A SYN was received, and our SYN|ACK was sent.
    SynReceived,
    /// Both directions are open.
    Established,
    /// Our FIN is queued or sent; the peer's FIN has not arrived.
    FinWait1,
    /// Our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer's FIN has arrived; we may still send.
    CloseWait,
    /// Both FINs crossed; ours is not acknowledged.
    Closing,
    /// The peer's FIN arrived first; ours is not acknowledged.
    LastAck,
}

/// The reason why a connection ended without two FINs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No socket listens on the port: `ECONNREFUSED`.
    Refused,
    /// The peer gave up the connection: `ECONNRESET`.
    Reset,
    /// The peer is silent: `ETIMEDOUT`.
    TimedOut,
    /// Packets that were sent are too large to retransmit, and the peer does not accept smaller
    /// ones in their place: `EMSGSIZE`.
    TooLarge,
}
