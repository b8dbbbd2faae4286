// SPDX-License-Identifier: GPL-2.0-only

//! Makes a second wire between the hosts of a lab.

use std::net::Ipv4Addr;

use super::Family;
use crate::prelude::*;
use guest::socket::interface_index;

/// The name of the second device on both hosts.
pub const SECOND: &str = "eth1";

/// The second devices of both hosts.
#[derive(Clone, Copy, Debug)]
pub struct SecondWire<'a> {
    side: Side<'a>,
    /// Interface index on host `a`.
    pub a: u32,
    /// Interface index on host `b`.
    pub b: u32,
}

impl<'a> SecondWire<'a> {
    /// Creates the wire, unless the first side of the comparison has already created it.
    ///
    /// # Errors
    /// If the devices cannot be created.
    pub fn of(side: &Side<'a>) -> Result<Self> {
        let (a, b) = (&side.lab.a, &side.lab.b);
        let index = |host: &Host| host.namespace.within(|| interface_index(SECOND));
        if index(a)?.is_err() {
            let end = |last| (SECOND, Some([2, 0, 0, 0, 0, last]));
            a.namespace.add_veth(end(0x11), (end(0x12), &b.namespace))?;
            for (host, last) in [(a, 1), (b, 2)] {
                let index = index(host)??;
                host.namespace.set_up(index)?;
                let address = Ipv4Addr::new(10, 0, 1, last);
                host.namespace.add_address(index, address, 24)?;
                (host.namespace).ip(&format!(
                    "address add fd00:0:0:1::{last}/64 dev {SECOND} nodad\n"
                ))?;
            }
            for host in [a, b] {
                host.namespace.await_carrier(index(host)??)?;
            }
        }
        Ok(Self {
            side: *side,
            a: index(a)??,
            b: index(b)??,
        })
    }

    fn enet(port: u16, ifindex: u32, mac: [u8; 6]) -> Vec<u8> {
        Address { port, ifindex, mac }.to_bytes().to_vec()
    }

    /// Returns the address of `port` at `b`'s second device, for binding.
    pub fn here_b(&self, port: u16) -> Vec<u8> {
        match self.side.family {
            Family::Inet | Family::Mapped => self.side.internet(1, 2, port),
            Family::Enet => Self::enet(port, self.b, [0; 6]),
        }
    }

    /// Returns the address of `port` at `b`'s second device, as `a` sees it.
    pub fn far(&self, port: u16) -> Vec<u8> {
        match self.side.family {
            Family::Inet | Family::Mapped => self.side.internet(1, 2, port),
            Family::Enet => Self::enet(port, self.a, [2, 0, 0, 0, 0, 0x12]),
        }
    }
}
