// SPDX-License-Identifier: GPL-2.0

//! The counters of a namespace, shown in `/proc/net/enet`.

use crate::net::errno::prelude::*;
use crate::net::{percpu::PerCpu, trace::DropReason};

macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A counter of a namespace. The names are part of the user interface.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Statistic {
            $($(#[$doc])* $name,)*
        }

        /// The names of the counters, in the order of the values.
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

statistics! {
    /// `connect` sent a SYN.
    EspActiveOpens,
    /// A listener's child became ready for `accept`.
    EspPassiveOpens,
    /// Packets that reached a socket.
    EspInPkts,
    /// Packets that connections sent, including retransmissions.
    EspOutPkts,
    /// Packets retransmitted: data, SYNs and FINs.
    EspRetransPkts,
    /// Packets that the device refused.
    EspOutErrors,
    /// Retransmission requests received.
    EspInRequests,
    /// Retransmission requests sent.
    EspOutRequests,
    /// Probes sent.
    EspOutProbes,
    /// Resets received for a connection.
    EspInResets,
    /// Resets sent.
    EspOutResets,
    /// Connections that ended because the peer did not answer.
    EspTimeouts,
    /// SYNs answered with cookies.
    EspOutCookies,
    /// Connections created from answers to cookies.
    EspInCookies,
    /// Puts whose bytes are all in their place.
    EspInPuts,
    /// Connections that ended because a message of the peer's was malformed, or a put was for no
    /// memory of the program's.
    EspInMessagesRefused,
    /// Acknowledgements that had to wait for their turn in the ACK queue.
    EspAckQueueWaited,
    /// Turns in the ACK queue that ended because the sender with the turn sent nothing.
    EspAckQueueOverrun,
    /// Dropped: sent to a group or to a different host, or with a group as the source.
    EspInNotOurs,
    /// Dropped: too short for the header, or for the length that the header states.
    EspInMalformed,
    /// Dropped: for a port without a socket.
    EspInNoSocket,
    /// Dropped: no memory.
    EspInNoMemory,
    /// Dropped: refused by the socket's filter.
    EspInFilter,
    /// Dropped: the receive buffer is full.
    EspInReceiveBuffer,
    /// Dropped: the backlog of the task that owns the socket is full.
    EspInBacklog,
    /// Dropped: the accept queue is full.
    EspInListenQueue,
    /// Dropped: the flags exclude each other.
    EspInBadFlags,
    /// Dropped: received before.
    EspInDuplicate,
    /// Dropped: out of order, because earlier packets are missing.
    EspInOutOfSequence,
    /// Dropped: beyond every window that this end has opened.
    EspInBeyondWindow,
    /// Dropped: acknowledges a packet that was never sent.
    EspInBadAck,
    /// Dropped: not valid in the connection's present state.
    EspInBadState,
    /// Dropped: the checksum is wrong or missing.
    EspInCsumErrors,
    /// Datagrams queued for a socket.
    EdpInDatagrams,
    /// Datagrams sent.
    EdpOutDatagrams,
    /// Datagrams that the device refused.
    EdpOutErrors,
    /// Echo requests answered.
    EdpInEcho,
    /// Queries answered.
    EdpInQueries,
    /// Queries beyond the rate limit of answers.
    EdpInQueriesRefused,
    /// Queries that the module sent.
    EdpOutQueries,
    /// Answers received to queries that the module sent.
    EdpInAnswers,
    /// Dropped: sent to a group or to a different host, or with a group as the source.
    EdpInNotOurs,
    /// Dropped: too short for the header, or for the length that the header states.
    EdpInMalformed,
    /// Dropped: for a port without a socket.
    EdpInNoSocket,
    /// Dropped: no memory.
    EdpInNoMemory,
    /// Dropped: refused by the socket's filter.
    EdpInFilter,
    /// Dropped: the receive buffer is full.
    EdpInReceiveBuffer,
    /// Dropped: the checksum is wrong.
    EdpInCsumErrors,
    /// Mapped sockets' connections over ESP that this host opened.
    MappedActiveOpens,
    /// Mapped sockets' connections over ESP that this host accepted.
    MappedPassiveOpens,
    /// Connection attempts of mapped sockets that waited for a host's answer to a query, or for its
    /// Ethernet address.
    MappedWaits,
    /// SYNs of mapped connections whose source address is not the sender's, or whose destination
    /// address is not this host's.
    MappedInForeign,
    /// SYNs of mapped connections that `/proc/net/enet_policy` forbids.
    MappedInPolicy,
    /// Attempts to connect that were passed to TCP because `mapped` is 0.
    MappedTcpSetting,
    /// Attempts passed to TCP because `/proc/net/enet_policy` forbids ESP.
    MappedTcpPolicy,
    /// Attempts passed to TCP because the socket cannot use the destination address over ESP.
    MappedTcpAddress,
    /// Attempts passed to TCP because the socket has an option that only TCP supports, has listened
    /// before, or is read by kernel code.
    MappedTcpOption,
    /// Attempts passed to TCP because BPF programs of the control group inspect packets or calls of
    /// IP.
    MappedTcpGroup,
    /// Attempts passed to TCP because the destination is not on the local Ethernet.
    MappedTcpRoute,
    /// Attempts passed to TCP because the neighbour's Ethernet address was not known.
    MappedTcpNeighbour,
    /// Attempts passed to TCP because it was not known whether the peer speaks ESP.
    MappedTcpUnknown,
    /// Attempts passed to TCP because the peer does not accept mapped connections.
    MappedTcpPeer,
    /// Attempts passed to TCP because the peer refused, now or a short time ago.
    MappedTcpRefused,
    /// Attempts passed to TCP because the peer did not answer.
    MappedTcpSilent,
    /// Attempts passed to TCP because of a local error: no memory, no port, no device.
    MappedTcpError,
}

/// Returns the counter of ESP frames dropped for `reason`.
fn esp_drop(reason: DropReason) -> Statistic {
    match reason {
        DropReason::NotOurs => Statistic::EspInNotOurs,
        DropReason::Malformed => Statistic::EspInMalformed,
        DropReason::NoSocket => Statistic::EspInNoSocket,
        DropReason::NoMemory => Statistic::EspInNoMemory,
        DropReason::Filter => Statistic::EspInFilter,
        DropReason::ReceiveBuffer => Statistic::EspInReceiveBuffer,
        DropReason::Backlog => Statistic::EspInBacklog,
        DropReason::ListenQueue => Statistic::EspInListenQueue,
        DropReason::BadFlags => Statistic::EspInBadFlags,
        DropReason::Duplicate => Statistic::EspInDuplicate,
        DropReason::OutOfSequence => Statistic::EspInOutOfSequence,
        DropReason::BeyondWindow => Statistic::EspInBeyondWindow,
        DropReason::BadAck => Statistic::EspInBadAck,
        DropReason::BadState => Statistic::EspInBadState,
        DropReason::Checksum => Statistic::EspInCsumErrors,
    }
}

/// Returns the counter of EDP frames dropped for `reason`, if EDP has that reason.
fn edp_drop(reason: DropReason) -> Option<Statistic> {
    Some(match reason {
        DropReason::NotOurs => Statistic::EdpInNotOurs,
        DropReason::Malformed => Statistic::EdpInMalformed,
        DropReason::NoSocket => Statistic::EdpInNoSocket,
        DropReason::NoMemory => Statistic::EdpInNoMemory,
        DropReason::Filter => Statistic::EdpInFilter,
        DropReason::ReceiveBuffer => Statistic::EdpInReceiveBuffer,
        DropReason::Checksum => Statistic::EdpInCsumErrors,
        _ => return None,
    })
}

/// The counters of a namespace. Each processor has its own copy, so that counting is cheap for
/// every packet.
pub(crate) struct Statistics(PerCpu<{ NAMES.len() }>);

impl Statistics {
    /// Creates counters at zero.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Statistics(PerCpu::new()?))
    }

    /// Increments a counter.
    #[inline]
    pub(crate) fn count(&self, which: Statistic) {
        self.add(which, 1);
    }

    /// Adds `n` to a counter.
    #[inline]
    pub(crate) fn add(&self, which: Statistic, n: u32) {
        self.0.add(which as usize, n as usize);
    }

    /// Counts a dropped ESP frame.
    pub(crate) fn count_esp_drop(&self, reason: DropReason) {
        self.count(esp_drop(reason));
    }

    /// Counts a dropped EDP frame.
    pub(crate) fn count_edp_drop(&self, reason: DropReason) {
        if let Some(which) = edp_drop(reason) {
            self.count(which);
        }
    }

    /// Returns all names with their values, in the order of [`Statistic`].
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let values = (0..).map(|index| self.0.sum(index) as u64);
        NAMES.iter().copied().zip(values)
    }
}
