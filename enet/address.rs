// SPDX-License-Identifier: GPL-2.0

//! Addresses of the module's sockets: `struct sockaddr_en`, which has 16 bytes. The family and the
//! interface are in host byte order, the port is in network byte order.

use crate::net::errno::prelude::*;
use crate::{
    net::{
        device::{Device, Mac},
        family::ADDRESS_LEN,
        skb::Buffer,
    },
    parameters,
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The interface index that stands for every interface (`ENET_INTERFACE_ANY`).
pub(crate) const INTERFACE_ANY: u32 = 0;

/// The address of one end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Address {
    pub(crate) port: u16,
    pub(crate) ifindex: u32,
    pub(crate) mac: Mac,
}

impl Address {
    /// Returns whether the address that a program passed to `connect` has the family `AF_UNSPEC`.
    /// Such a `connect` dissolves the association.
    pub(crate) fn is_unspecified(bytes: &[u8]) -> bool {
        const AF_UNSPEC: [u8; 2] = [0; 2];
        bytes.first_chunk() == Some(&AF_UNSPEC)
    }

    /// Parses an address that a program passed.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the address is too short or not an Ethernet address, `EAFNOSUPPORT` if its
    /// family is not the module's.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let raw: &[u8; ADDRESS_LEN] = bytes.first_chunk().ok_or(EINVAL)?;
        let [f0, f1, p0, p1, i0, i1, i2, i3, len, a, b, c, d, e, f, _] = *raw;
        if u16::from_ne_bytes([f0, f1]) != parameters::family() {
            return Err(EAFNOSUPPORT);
        }
        // Programs written for the first version of the C header leave the length zero, so 0 is
        // valid, too.
        if len != 0 && len != 6 {
            return Err(EINVAL);
        }
        Ok(Address {
            port: u16::from_be_bytes([p0, p1]),
            ifindex: u32::from_ne_bytes([i0, i1, i2, i3]),
            mac: Mac([a, b, c, d, e, f]),
        })
    }

    /// Returns the address as `struct sockaddr_en`, the form that programs receive.
    pub(crate) fn emit(&self) -> [u8; ADDRESS_LEN] {
        let [f0, f1] = parameters::family().to_ne_bytes();
        let [p0, p1] = self.port.to_be_bytes();
        let [i0, i1, i2, i3] = self.ifindex.to_ne_bytes();
        let [a, b, c, d, e, f] = self.mac.0;
        [f0, f1, p0, p1, i0, i1, i2, i3, 6, a, b, c, d, e, f, 0]
    }
}

/// A socket's peer, which is read without the socket's lock. MAC address and port are read
/// together, so a send that races with `connect` uses the old peer or the new one, never a mixture.
#[derive(Default)]
pub(crate) struct Peer {
    /// Ethernet address in the upper 48 bits, port in the lower 16; 0 if there is no peer.
    address: AtomicU64,
    ifindex: AtomicU32,
}

impl Peer {
    fn bits(peer: &Address) -> u64 {
        peer.mac.to_bits() << 16 | u64::from(peer.port)
    }

    pub(crate) fn set(&self, peer: &Address) {
        self.ifindex.store(peer.ifindex, Relaxed);
        self.address.store(Self::bits(peer), Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.address.store(0, Relaxed);
        self.ifindex.store(0, Relaxed);
    }

    /// Returns the peer, if there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<Address> {
        Some(self.last()).filter(|peer| Self::bits(peer) != 0)
    }

    /// Returns the stored address without checking that there is a peer.
    #[inline]
    pub(crate) fn last(&self) -> Address {
        let bits = self.address.load(Relaxed);
        Address {
            port: bits as u16,
            mac: Mac::from_bits(bits >> 16),
            ifindex: self.ifindex.load(Relaxed),
        }
    }

    /// Returns whether the socket's peer is `peer`.
    #[inline]
    pub(crate) fn is(&self, peer: &Address) -> bool {
        self.address.load(Relaxed) == Self::bits(peer) && self.ifindex.load(Relaxed) == peer.ifindex
    }
}

/// Returns the source address of a frame that is sent to this host alone. Returns `None` for a
/// frame to a group or to a different host, and if the source is a group.
#[inline]
pub(crate) fn sender(skb: &Buffer, device: &Device) -> Option<Mac> {
    if !device.is_ethernet() || !skb.is_for_this_host() {
        return None;
    }
    skb.source().filter(|source| !source.is_group())
}
