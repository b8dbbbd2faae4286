// SPDX-License-Identifier: MIT OR Apache-2.0

//! Looks up the interfaces of this network namespace, finds out whether they can send, and reads
//! their frame counters.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use nix::ifaddrs::{getifaddrs, InterfaceAddress};
use nix::net::if_::InterfaceFlags;
use sockaddr_en::MacAddr;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Number.
    pub index: u32,
    /// Ethernet address; `None` if the interface is not an Ethernet device.
    pub mac: Option<MacAddr>,
    /// Whether the interface is administratively up.
    pub up: bool,
    /// Whether the interface has a carrier.
    pub carrier: bool,
}

/// A reason why an interface cannot send EDP frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No interface has the name.
    Absent(String),
    /// The interface has no Ethernet header.
    NotEthernet(String),
    /// The interface is administratively down.
    Down(String),
    /// The interface is up but has no carrier.
    NoCarrier(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(name) => write!(
                f,
                "there is no interface {name} in this network namespace: `ip link` lists those there are"
            ),
            Self::NotEthernet(name) => write!(
                f,
                "{name} is not an Ethernet device, and EDP needs one: `ip link` lists them as link/ether"
            ),
            Self::Down(name) => {
                write!(f, "{name} is down: set it up with `ip link set {name} up`")
            }
            Self::NoCarrier(name) => write!(
                f,
                "{name} is up but has no carrier: check its cable and the port of the switch; of a virtual device, \
                 whether the other end is up"
            ),
        }
    }
}

impl Interface {
    /// Returns the interface that `text` names: by its name, by an alternative name, or by its
    /// number.
    ///
    /// # Errors
    /// If the interfaces cannot be listed.
    pub fn named(text: &str) -> Result<Option<Self>> {
        number_of(text)?.map_or(Ok(None), Self::numbered)
    }

    /// Returns the interface with number `index`.
    ///
    /// # Errors
    /// The errors of [`Interface::named`].
    pub fn numbered(index: u32) -> Result<Option<Self>> {
        Ok(all()?.into_iter().find(|one| one.index == index))
    }

    /// Returns the interface whose subnet contains `ip`. This works even if the interface is down:
    /// it then has no route, but keeps its address.
    ///
    /// # Errors
    /// The errors of [`Interface::named`].
    pub fn beside(ip: IpAddr) -> Result<Option<Self>> {
        // The kernel removes the IPv6 addresses of an interface that goes down, so no IPv6 address
        // can match.
        let IpAddr::V4(ip) = ip else { return Ok(None) };
        let owner = list()?.find(|entry| {
            let own = entry.address.as_ref().and_then(|own| own.as_sockaddr_in());
            let mask = entry
                .netmask
                .as_ref()
                .and_then(|mask| mask.as_sockaddr_in());
            own.zip(mask).is_some_and(|(own, mask)| {
                let network = |ip: Ipv4Addr| ip.to_bits() & mask.ip().to_bits();
                network(ip) == network(own.ip())
            })
        });
        let owner = owner.map(|entry| entry.interface_name);
        Ok(all()?
            .into_iter()
            .find(|one| owner.as_ref() == Some(&one.name)))
    }

    /// Returns the name that the interface has now, or its last known name if it is gone.
    pub fn present_name(&self) -> String {
        sockaddr_en::interface_name(self.index).unwrap_or_else(|_| self.name.clone())
    }

    /// Returns the reason why the interface cannot send; `None` if it can.
    pub fn fault(&self) -> Option<Fault> {
        let name = self.name.clone();
        if self.mac.is_none() {
            Some(Fault::NotEthernet(name))
        } else if !self.up {
            Some(Fault::Down(name))
        } else if !self.carrier {
            Some(Fault::NoCarrier(name))
        } else {
            None
        }
    }

    fn from_entry(entry: &InterfaceAddress) -> Option<Self> {
        let link = entry.address.as_ref()?.as_link_addr()?;
        let ethernet = link.hatype() == libc::ARPHRD_ETHER;
        Some(Self {
            name: entry.interface_name.clone(),
            index: u32::try_from(link.ifindex()).ok()?,
            mac: link.addr().filter(|_| ethernet).map(MacAddr),
            up: entry.flags.contains(InterfaceFlags::IFF_UP),
            carrier: entry.flags.contains(InterfaceFlags::IFF_LOWER_UP),
        })
    }
}

/// Returns the number of the interface that `text` names. Digits alone are taken as the number,
/// even if no interface has it, as in the text of addresses.
///
/// # Errors
/// If the interfaces cannot be searched.
pub fn number_of(text: &str) -> Result<Option<u32>> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text.parse().ok());
    }
    match sockaddr_en::interface_index(text) {
        Ok(index) => Ok(Some(index)),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("looking up interface {text}")),
    }
}

fn list() -> Result<impl Iterator<Item = InterfaceAddress>> {
    getifaddrs().context("listing the interfaces")
}

fn all() -> Result<Vec<Interface>> {
    Ok(list()?
        .filter_map(|entry| Interface::from_entry(&entry))
        .collect())
}

/// Frame counters of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Number of frames received.
    pub received: u64,
    /// Number of frames sent.
    pub sent: u64,
}

impl Frames {
    /// Reads the counters of interface `name`. Returns `None` if they cannot be read. That is no
    /// error, because the counters only help to explain missing answers.
    ///
    /// The counters come from `/proc/net`, which always shows this network namespace. `/sys` may
    /// show a different one.
    pub fn of(name: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/net/dev").ok()?, name)
    }

    /// Parses `/proc/net/dev`: eight columns for received data, starting with bytes and frames,
    /// then eight for sent data.
    fn parse(text: &str, name: &str) -> Option<Self> {
        let columns = text.lines().find_map(|line| {
            let (found, columns) = line.rsplit_once(':')?;
            (found.trim() == name).then_some(columns)
        })?;
        let column = |number: usize| columns.split_whitespace().nth(number)?.parse().ok();
        Some(Self {
            received: column(1)?,
            sent: column(9)?,
        })
    }

    /// Returns how many frames were counted since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            received: self.received.saturating_sub(earlier.received),
            sent: self.sent.saturating_sub(earlier.sent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_not_ethernet() {
        let lo = Interface::named("lo").unwrap().unwrap();
        assert_eq!(lo.fault(), Some(Fault::NotEthernet("lo".to_owned())));
        assert_eq!(Interface::numbered(lo.index).unwrap(), Some(lo));
        assert_eq!(Interface::named("absent0").unwrap(), None);
        let lo = Interface::named("lo").unwrap();
        let number = lo.as_ref().unwrap().index.to_string();
        assert_eq!(Interface::named(&number).unwrap(), lo);
        for absent in ["", "4294967295", "4294967296", "+1"] {
            assert_eq!(Interface::named(absent).unwrap(), None, "{absent}");
        }
    }

    #[test]
    fn the_first_fault_is_told() {
        let good = Interface {
            name: "eth0".to_owned(),
            index: 2,
            mac: Some(MacAddr([2, 0, 0, 0, 0, 1])),
            up: true,
            carrier: true,
        };
        assert_eq!(good.fault(), None);
        let pulled = Interface {
            carrier: false,
            ..good.clone()
        };
        assert_eq!(pulled.fault(), Some(Fault::NoCarrier("eth0".to_owned())));
        let down = Interface {
            up: false,
            ..pulled
        };
        let told = down.fault().unwrap().to_string();
        assert!(told.contains("ip link set eth0 up"), "{told}");
    }

    #[test]
    fn frames_are_counted() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       1       2    0    0    0     0          0         0        3       4    0    0    0     0       0          0
eth0:1:   10000      11    0    0    0     0          0         0    13000      14    0    0    0     0       0          0
";
        let frames = |received, sent| Some(Frames { received, sent });
        assert_eq!(Frames::parse(text, "lo"), frames(2, 4));
        assert_eq!(Frames::parse(text, "eth0:1"), frames(11, 14));
        assert_eq!(Frames::parse(text, "eth0"), None);
        let later = Frames {
            received: 15,
            sent: 15,
        };
        let earlier = Frames::parse(text, "eth0:1").unwrap();
        assert_eq!(Some(later.since(earlier)), frames(4, 1));
    }
}
