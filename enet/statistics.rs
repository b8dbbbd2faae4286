// SPDX-License-Identifier: GPL-2.0

//! The counters of a namespace, as `/proc/net/enet` shows them.

use crate::net::errno::prelude::*;
use crate::net::{percpu::PerCpu, trace::DropReason};

macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A counter of a namespace. The names are the users'.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Statistic {
            $($(#[$doc])* $name,)*
        }

        /// The names, in the order of the values.
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
    /// Packets that connections sent, again or not.
    EspOutPkts,
    /// Of these, data, SYN and FIN that left before.
    EspRetransPkts,
    /// Packets that the device did not take.
    EspOutErrors,
    /// Retransmission requests that came.
    EspInRequests,
    /// Retransmission requests that left.
    EspOutRequests,
    /// Probes that left.
    EspOutProbes,
    /// Resets that came for a connection.
    EspInResets,
    /// Resets that left.
    EspOutResets,
    /// Connections that ended because the peer was silent.
    EspTimeouts,
    /// SYNs answered by cookies.
    EspOutCookies,
    /// Connections made of answers to cookies.
    EspInCookies,
    /// Acknowledgements that had to wait for their turn.
    EspAckQueueWaited,
    /// Times that a turn was taken from a silent holder.
    EspAckQueueOverrun,
    /// Sent to a group, to another host, or by a group.
    EspInNotOurs,
    /// Too short for the header or for the length it states.
    EspInMalformed,
    /// For a port where no socket waits.
    EspInNoSocket,
    /// No memory.
    EspInNoMemory,
    /// Refused by the socket's filter.
    EspInFilter,
    /// The receive buffer is full.
    EspInReceiveBuffer,
    /// Too much waits for the task that owns the socket.
    EspInBacklog,
    /// The accept queue is full.
    EspInListenQueue,
    /// Flags that do not go together.
    EspInBadFlags,
    /// Received before.
    EspInDuplicate,
    /// Packets before it are missing.
    EspInOutOfSequence,
    /// Beyond any window that was opened.
    EspInBeyondWindow,
    /// Acknowledges what was never sent.
    EspInBadAck,
    /// Does not belong to the connection as it now is.
    EspInBadState,
    /// The sum is wrong, or missing.
    EspInCsumErrors,
    /// Datagrams that a socket has taken.
    EdpInDatagrams,
    /// Datagrams that left.
    EdpOutDatagrams,
    /// Datagrams that the device did not take.
    EdpOutErrors,
    /// Echo requests answered.
    EdpInEcho,
    /// Queries answered.
    EdpInQueries,
    /// Queries beyond the rate at which they are answered.
    EdpInQueriesRefused,
    /// Queries that the module sent.
    EdpOutQueries,
    /// Answers to these.
    EdpInAnswers,
    /// Sent to a group, to another host, or by a group.
    EdpInNotOurs,
    /// Too short for the header or for the length it states.
    EdpInMalformed,
    /// For a port where no socket waits.
    EdpInNoSocket,
    /// No memory.
    EdpInNoMemory,
    /// Refused by the socket's filter.
    EdpInFilter,
    /// The receive buffer is full.
    EdpInReceiveBuffer,
    /// The sum is wrong.
    EdpInCsumErrors,
    /// Connections of mapped sockets that ESP carries, opened here.
    MappedActiveOpens,
    /// The same, accepted here.
    MappedPassiveOpens,
    /// SYNs of mapped connections that came from another host than they said, or for another one.
    MappedInForeign,
    /// SYNs of mapped connections that `/proc/net/enet_policy` forbids.
    MappedInPolicy,
    /// Attempts to connect that went to TCP: `mapped` is 0.
    MappedTcpSetting,
    /// Because `/proc/net/enet_policy` forbids it.
    MappedTcpPolicy,
    /// Because the address is not one of IPv4.
    MappedTcpAddress,
    /// Because the socket wants what only TCP does.
    MappedTcpOption,
    /// Because programs attached to the control group look at IP.
    MappedTcpGroup,
    /// Because the destination is not on the own Ethernet.
    MappedTcpRoute,
    /// Because the neighbour's Ethernet address was not known.
    MappedTcpNeighbour,
    /// Because it was not known whether the peer speaks ESP.
    MappedTcpUnknown,
    /// Because the peer does not take mapped connections.
    MappedTcpPeer,
    /// Because the peer refused, now or a short time ago.
    MappedTcpRefused,
    /// Because the peer did not answer.
    MappedTcpSilent,
    /// Because of an error here: no memory, no port, no device.
    MappedTcpError,
}

/// The counter of ESP frames that are dropped for `reason`.
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

/// The counter of EDP frames that are dropped for `reason`, if EDP has it.
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

/// The counters of a namespace. Each processor has its own, so that every packet can be counted.
pub(crate) struct Statistics(PerCpu<{ NAMES.len() }>);

impl Statistics {
    /// Zeroes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Statistics(PerCpu::new()?))
    }

    /// Counts one.
    #[inline]
    pub(crate) fn count(&self, which: Statistic) {
        self.add(which, 1);
    }

    /// Counts `n`.
    #[inline]
    pub(crate) fn add(&self, which: Statistic, n: u32) {
        self.0.add(which as usize, n as usize);
    }

    /// Counts an ESP frame that is dropped.
    pub(crate) fn count_esp_drop(&self, reason: DropReason) {
        self.count(esp_drop(reason));
    }

    /// Counts an EDP frame that is dropped.
    pub(crate) fn count_edp_drop(&self, reason: DropReason) {
        if let Some(which) = edp_drop(reason) {
            self.count(which);
        }
    }

    /// All names with their values, in the order of [`Statistic`].
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let values = (0..).map(|index| self.0.sum(index) as u64);
        NAMES.iter().copied().zip(values)
    }
}
