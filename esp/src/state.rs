// SPDX-License-Identifier: GPL-2.0

//! A connection's states, and how it fails.

/// The states of TCP (RFC 9293, 3.3.2) without LISTEN, which is the listener's,
/// and without TIME-WAIT, which this protocol does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not yet opened, or over.
    Closed,
    /// SYN sent.
    SynSent,
    /// SYN received and SYN|ACK sent.
    SynReceived,
    /// Both directions open.
    Established,
    /// Our FIN is queued or sent, the other side's has not come.
    FinWait1,
    /// Our FIN is acknowledged, the other side still sends.
    FinWait2,
    /// The other side's FIN has come, we still send.
    CloseWait,
    /// Both FINs crossed; ours is not acknowledged.
    Closing,
    /// The other side's FIN came first; ours is not acknowledged.
    LastAck,
}

/// Why a connection ended other than by two FINs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No socket listens there: `ECONNREFUSED`.
    Refused,
    /// The other side gave up the connection: `ECONNRESET`.
    Reset,
    /// The other side is silent: `ETIMEDOUT`.
    TimedOut,
    /// Packets that have left are too large to leave again, and the other side does not take
    /// smaller ones in their place: `EMSGSIZE`.
    TooLarge,
}
