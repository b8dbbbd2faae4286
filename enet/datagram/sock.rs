// SPDX-License-Identifier: GPL-2.0

//! The state of an EDP socket, and the rule that selects the socket for a datagram.

use crate::{
    address::{Address, Peer, INTERFACE_ANY},
    counters::Counter,
    device::{interface, DeviceGeneration},
    net::{
        device::Mac,
        once::Once,
        ring::DatagramRing,
        skb::Skb,
        sock::{Locked, Sock},
    },
    ports::Binding,
};
use core::sync::atomic::AtomicBool;

/// The protocol EDP.
pub(crate) struct Edp;

/// Counters of one socket, as `EDP_SO_STATS` reports them.
#[derive(Default)]
pub(crate) struct Stats {
    pub(super) pkt_tx: Counter,
    pub(super) tx_err: Counter,
    pub(super) pkt_rx: Counter,
    pub(crate) pkt_rx_drop: Counter,
}

/// The part of a socket that is accessed without the socket lock.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) binding: Binding,
    pub(crate) peer: Peer,
    pub(crate) stats: Stats,
    /// Whether the socket has an incomplete datagram (`MSG_MORE`).
    pub(super) corked: AtomicBool,
    pub(super) device: DeviceGeneration,
    /// Whether sent datagrams have a checksum (`EDP_SO_CHECKSUM`).
    pub(super) sums: AtomicBool,
    /// Whether this is an EZDP socket: send calls do not copy the payload, which stays in place
    /// until it is sent.
    pub(super) always_in_place: bool,
    /// The ring that receives datagrams, if a program has asked for one.
    pub(super) ring: Once<DatagramRing>,
}

impl Shared {
    /// Returns how well a datagram for `port` from `source` and device `ifindex` matches this
    /// socket. Returns `None` if the datagram is not for this socket, and larger values for more
    /// specific sockets.
    #[inline]
    pub(super) fn fitness(
        &self,
        port: u16,
        ifindex: u32,
        source: Mac,
        source_port: u16,
    ) -> Option<u32> {
        if !self.binding.takes(port, ifindex) {
            return None;
        }
        let named = u32::from(self.binding.ifindex() != 0);
        match self.peer.get() {
            None => Some(named),
            Some(peer) => {
                (peer.mac == source && peer.port == source_port && peer.ifindex == ifindex)
                    .then_some(named.saturating_add(2))
            }
        }
    }
}

/// A locked EDP socket.
pub(super) type LockedEdp<'a> = Locked<'a, Edp>;

/// An incomplete datagram, to which further sends append.
pub(crate) struct Pending {
    pub(super) skb: Skb,
    pub(super) to: Address,
    /// Maximum payload of a datagram in the buffer, in bytes.
    pub(super) room: usize,
}

/// Returns the interface that a socket is tied to; 0 if it is tied to none.
pub(crate) fn tie(sock: &Sock<Edp>) -> u32 {
    let shared = sock.shared();
    let peer = shared.peer.get().map_or(INTERFACE_ANY, |peer| peer.ifindex);
    interface(sock, shared.binding.ifindex(), peer)
}
