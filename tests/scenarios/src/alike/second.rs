//! A second wire between the hosts of a lab.

use super::Family;
use crate::address::internet;
use crate::alike::prelude::*;
use crate::socket::interface_index;

/// The second device's name on both hosts.
pub const SECOND: &str = "eth1";

/// Both hosts' second devices.
#[derive(Clone, Copy, Debug)]
pub struct SecondWire<'a> {
    side: Side<'a>,
    /// Index of `a`'s.
    pub a: u32,
    /// Index of `b`'s.
    pub b: u32,
}

impl<'a> SecondWire<'a> {
    /// Lays it, unless the other side of the comparison has.
    ///
    /// # Errors
    /// When the devices cannot be made.
    pub fn of(side: &Side<'a>) -> Result<Self> {
        let (a, b) = (&side.lab.a.namespace, &side.lab.b.namespace);
        let index = |host: &Host| host.namespace.within(|| interface_index(SECOND));
        if index(&side.lab.a)?.is_err() {
            a.ip(&format!(
                "link add {SECOND} address 02:00:00:00:00:11 type veth peer name {SECOND} address 02:00:00:00:00:12 \
                 netns {}\nlink set {SECOND} up\naddress add 10.0.1.1/24 dev {SECOND}\n",
                b.path()
            ))?;
            b.ip(&format!(
                "link set {SECOND} up\naddress add 10.0.1.2/24 dev {SECOND}\n"
            ))?;
            for namespace in [a, b] {
                eventually("the second wire's carrier", || {
                    let state = namespace.run("ip", &["link", "show", SECOND])?;
                    Ok(state.contains("state UP"))
                })?;
            }
        }
        Ok(Self {
            side: *side,
            a: index(&side.lab.a)??,
            b: index(&side.lab.b)??,
        })
    }

    fn enet(port: u16, ifindex: u32, mac: [u8; 6]) -> Vec<u8> {
        Address { port, ifindex, mac }.to_bytes().to_vec()
    }

    /// `port` of `b`'s second address, to bind to.
    pub fn here_b(&self, port: u16) -> Vec<u8> {
        match self.side.family {
            Family::Inet | Family::Mapped => internet([10, 0, 1, 2], port),
            Family::Enet => Self::enet(port, self.b, [0; 6]),
        }
    }

    /// `port` of `b`'s second address as `a` addresses it.
    pub fn far(&self, port: u16) -> Vec<u8> {
        match self.side.family {
            Family::Inet | Family::Mapped => internet([10, 0, 1, 2], port),
            Family::Enet => Self::enet(port, self.a, [2, 0, 0, 0, 0, 0x12]),
        }
    }
}
