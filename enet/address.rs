// SPDX-License-Identifier: GPL-2.0

//! `struct sockaddr_en`: 16 bytes, family and interface in host order, port in network order.

use crate::net::errno::prelude::*;
use crate::{net::device::Mac, net::family::ADDRESS_LEN, parameters};

/// `ENET_INTERFACE_ANY`: receive on every interface.
pub(crate) const INTERFACE_ANY: u32 = 0;

/// One end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Address {
    pub(crate) port: u16,
    pub(crate) ifindex: u32,
    pub(crate) mac: Mac,
}

impl Address {
    /// Reads what a program passed.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is too short or its address is not an Ethernet one, `EAFNOSUPPORT` if it is
    /// of another family.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let raw: &[u8; ADDRESS_LEN] = bytes.first_chunk().ok_or(EINVAL)?;
        let [f0, f1, p0, p1, i0, i1, i2, i3, len, a, b, c, d, e, f, _] = *raw;
        if u16::from_ne_bytes([f0, f1]) != parameters::family() {
            return Err(EAFNOSUPPORT);
        }
        // Programs of the time leave the length zero.
        if len != 0 && len != 6 {
            return Err(EINVAL);
        }
        Ok(Address {
            port: u16::from_be_bytes([p0, p1]),
            ifindex: u32::from_ne_bytes([i0, i1, i2, i3]),
            mac: Mac([a, b, c, d, e, f]),
        })
    }

    /// The form that programs get.
    pub(crate) fn emit(&self) -> [u8; ADDRESS_LEN] {
        let [f0, f1] = parameters::family().to_ne_bytes();
        let [p0, p1] = self.port.to_be_bytes();
        let [i0, i1, i2, i3] = self.ifindex.to_ne_bytes();
        let [a, b, c, d, e, f] = self.mac.0;
        [f0, f1, p0, p1, i0, i1, i2, i3, 6, a, b, c, d, e, f, 0]
    }
}
