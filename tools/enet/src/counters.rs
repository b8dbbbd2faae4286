// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parses `/proc/net/enet`, and explains its counters.

use anyhow::{Context, Result};
use serde::Serialize;

/// A counter of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// The module's name for the counter.
    pub name: String,
    /// The counter's value, which wraps at 2^64.
    pub value: u64,
    /// The counter's explanation; `None` for a counter unknown to this program.
    pub meaning: Option<&'static str>,
}

/// Parses the counters, one per line.
///
/// # Errors
/// If a line is not a name and a number.
pub fn parse(text: &str) -> Result<Vec<Counter>> {
    text.lines()
        .map(|line| {
            let (name, value) = line
                .split_once(' ')
                .with_context(|| format!("/proc/net/enet: {line:?} is no counter"))?;
            Ok(Counter {
                name: name.to_owned(),
                value: value
                    .trim()
                    .parse()
                    .with_context(|| format!("/proc/net/enet: {line:?}"))?,
                meaning: meaning(name),
            })
        })
        .collect()
}

/// Returns the explanation of the counter `name`.
pub fn meaning(name: &str) -> Option<&'static str> {
    MEANINGS
        .iter()
        .find_map(|(known, meaning)| (*known == name).then_some(*meaning))
}

/// Returns the names of all counters.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    MEANINGS.iter().map(|(name, _)| *name)
}

const MEANINGS: &[(&str, &str)] = &[
    (
        "EspActiveOpens",
        "`connect` was called on ESP sockets, and sent a SYN.",
    ),
    (
        "EspPassiveOpens",
        "Connections of ESP listeners became ready for `accept`.",
    ),
    (
        "EspInPkts",
        "ESP packets reached a socket.",
    ),
    (
        "EspOutPkts",
        "ESP packets were sent, retransmissions and empty ones included.",
    ),
    (
        "EspRetransPkts",
        "ESP packets were sent again; frames are lost on the way, or the peer drops them: see its counters.",
    ),
    (
        "EspOutErrors",
        "The device did not take ESP packets; its transmit queue is full, or it is down.",
    ),
    (
        "EspInRequests",
        "Peers asked for packets again that they miss; frames to them are lost.",
    ),
    (
        "EspOutRequests",
        "This host asked for packets again that it misses; frames to it are lost.",
    ),
    (
        "EspOutProbes",
        "ESP connections sent probes, empty packets that ask a silent peer for an answer.",
    ),
    (
        "EspInResets",
        "Peers ended ESP connections by a reset, or refused them.",
    ),
    (
        "EspOutResets",
        "This host ended ESP connections by a reset, or refused them.",
    ),
    (
        "EspTimeouts",
        "ESP connections ended because the peer was silent.",
    ),
    (
        "EspOutCookies",
        "SYNs were answered by cookies, because too many connections were in the making; a flood of SYNs makes it rise.",
    ),
    (
        "EspInCookies",
        "Connections were made from packets that answered a cookie.",
    ),
    (
        "EspInPuts",
        "Puts of peers went to memory of a program.",
    ),
    (
        "EspInMessagesRefused",
        "Channels ended because a message was malformed, or a put was for no memory of the program's; a peer with an old or guessed key makes it rise.",
    ),
    (
        "EspAckQueueWaited",
        "Acknowledgements waited in an ACK queue while another sender had its turn; many senders to this host make it rise.",
    ),
    (
        "EspAckQueueOverrun",
        "An ACK queue did not wait any longer for the current sender, which was silent; frames are lost, or a sender stalls.",
    ),
    (
        "EspInNotOurs",
        "ESP frames were refused: sent to a group or another host, or through a device that is not Ethernet.",
    ),
    (
        "EspInMalformed",
        "ESP frames were refused: shorter than the header or the length in it.",
    ),
    (
        "EspInNoSocket",
        "ESP frames were refused: no socket has the destination port, or the connection has ended.",
    ),
    (
        "EspInNoMemory",
        "ESP frames were dropped: no memory could be allocated, or the protocol's limit is reached.",
    ),
    (
        "EspInFilter",
        "ESP frames were dropped: a socket's filter refused them.",
    ),
    (
        "EspInReceiveBuffer",
        "ESP packets were dropped: the socket's receive buffer is full; its program reads too slowly.",
    ),
    (
        "EspInBacklog",
        "ESP packets were dropped: too many waited while a program's call had the socket locked.",
    ),
    (
        "EspInListenQueue",
        "SYNs and handshakes were dropped: the listener's accept queue is full; its program calls `accept` too rarely.",
    ),
    (
        "EspInBadFlags",
        "ESP packets were dropped: their flags do not go together.",
    ),
    (
        "EspInDuplicate",
        "ESP packets were received twice; acknowledgements are lost or late.",
    ),
    (
        "EspInOutOfSequence",
        "ESP packets came before others that are missing; frames to this host are lost or reordered.",
    ),
    (
        "EspInBeyondWindow",
        "ESP packets were dropped: beyond any window that was opened to the peer.",
    ),
    (
        "EspInBadAck",
        "ESP packets were dropped: they acknowledge what was never sent, or less than before.",
    ),
    (
        "EspInBadState",
        "ESP packets were dropped: not valid in the connection's state.",
    ),
    (
        "EspInCsumErrors",
        "ESP packets were dropped: their checksum is wrong or missing; a card, a switch or memory on the way damages frames.",
    ),
    (
        "EdpInDatagrams",
        "EDP sockets took datagrams.",
    ),
    (
        "EdpOutDatagrams",
        "EDP sockets sent datagrams.",
    ),
    (
        "EdpOutErrors",
        "The device did not take EDP datagrams; its transmit queue is full, or it is down.",
    ),
    (
        "EdpInEcho",
        "Echo requests were answered: `enet ping` of other hosts.",
    ),
    (
        "EdpInQueries",
        "Queries for version, capabilities and limits were answered.",
    ),
    (
        "EdpInQueriesRefused",
        "Such queries were not answered: more than 1024 came at once, or 10,000 in a second.",
    ),
    (
        "EdpOutQueries",
        "This host asked peers for their limits, before it sent them large datagrams.",
    ),
    (
        "EdpInAnswers",
        "Peers answered these queries.",
    ),
    (
        "EdpInNotOurs",
        "EDP frames were refused: sent to a group or another host, or through a device that is not Ethernet.",
    ),
    (
        "EdpInMalformed",
        "EDP frames were refused: shorter than the header or the length in it, or an echo request longer than the MTU.",
    ),
    (
        "EdpInNoSocket",
        "EDP frames were refused: no socket has the destination port.",
    ),
    (
        "EdpInNoMemory",
        "EDP frames were dropped: no memory could be allocated.",
    ),
    (
        "EdpInFilter",
        "EDP frames were dropped: a socket's filter refused them.",
    ),
    (
        "EdpInReceiveBuffer",
        "EDP datagrams were dropped: the socket's receive buffer is full; its program reads too slowly.",
    ),
    (
        "EdpInCsumErrors",
        "EDP frames were dropped: their checksum is wrong; a card, a switch or memory on the way damages frames.",
    ),
    (
        "MappedActiveOpens",
        "Mapped sockets connected, and ESP carries the connection.",
    ),
    (
        "MappedPassiveOpens",
        "Mapped listeners accepted connections that ESP carries.",
    ),
    (
        "MappedWaits",
        "Mapped sockets waited, when they connected, for a host to say whether it takes mapped connections, or for its Ethernet address.",
    ),
    (
        "MappedInForeign",
        "SYNs of mapped connections were refused: their sender is not the neighbour with the IP address that they tell, or they mean another host.",
    ),
    (
        "MappedInPolicy",
        "SYNs of mapped connections were refused: /proc/net/enet_policy forbids ESP with that peer or port.",
    ),
    (
        "MappedTcpSetting",
        "Mapped sockets connected by TCP: `/proc/sys/esp/mapped` is 0.",
    ),
    (
        "MappedTcpPolicy",
        "Mapped sockets connected by TCP: /proc/net/enet_policy forbids ESP with that peer or port.",
    ),
    (
        "MappedTcpAddress",
        "Mapped sockets connected by TCP: the address is one of a group, or link-local without a device.",
    ),
    (
        "MappedTcpOption",
        "Mapped sockets connected by TCP: the socket has a filter or another option that only TCP honours, has listened before, or is read by kernel code.",
    ),
    (
        "MappedTcpGroup",
        "Mapped sockets connected by TCP: BPF programs of the control group look at packets or calls of IP.",
    ),
    (
        "MappedTcpRoute",
        "Mapped sockets connected by TCP: the destination is not on the same Ethernet.",
    ),
    (
        "MappedTcpNeighbour",
        "Mapped sockets connected by TCP: the destination's Ethernet address was not known, nor found while the connection waited.",
    ),
    (
        "MappedTcpUnknown",
        "Mapped sockets connected by TCP: the peer has not answered whether it takes mapped connections.",
    ),
    (
        "MappedTcpPeer",
        "Mapped sockets connected by TCP: the peer takes no mapped connections.",
    ),
    (
        "MappedTcpRefused",
        "Mapped sockets connected by TCP: the peer has no mapped listener on that port, or had none in the last 10 seconds, where TCP had one.",
    ),
    (
        "MappedTcpSilent",
        "Mapped sockets connected by TCP: the peer did not answer ESP's SYN.",
    ),
    (
        "MappedTcpError",
        "Mapped sockets connected by TCP: ESP had no memory, port or device for the connection.",
    ),
];

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const TEXT: &str = "EspAckQueueWaited 7\nEdpInNoSocket 0\nEspInDreams 4294967295\n";

    #[test]
    fn lines_are_counters() {
        let counters = parse(TEXT).unwrap();
        let values: Vec<_> = counters
            .iter()
            .map(|counter| (counter.name.as_str(), counter.value))
            .collect();
        assert_eq!(
            values,
            [
                ("EspAckQueueWaited", 7),
                ("EdpInNoSocket", 0),
                ("EspInDreams", 4_294_967_295)
            ]
        );
        assert!(counters[0].meaning.is_some());
        assert_eq!(counters[2].meaning, None);
        assert!(parse("EspInDreams\n").is_err());
        assert!(parse("EspInDreams many\n").is_err());
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn the_modules_counters_are_known_and_no_others() {
        let source = include_str!("../../../enet/statistics.rs");
        let (_, listed) = source.split_once("\nstatistics! {").unwrap();
        let (listed, _) = listed.split_once("\n}").unwrap();
        let written: Vec<_> = listed
            .lines()
            .filter_map(|line| line.trim().strip_suffix(','))
            .collect();
        let known: Vec<_> = MEANINGS.iter().map(|(name, _)| *name).collect();
        assert_eq!(written, known);
    }
}
