// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's neighbour table: which Ethernet address an IP address has (`rtnetlink(7)`).

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    bind, recv, send, setsockopt, socket, sockopt, AddressFamily, MsgFlags, NetlinkAddr, SockFlag,
    SockProtocol, SockType,
};
use nix::sys::time::TimeVal;
use sockaddr_en::MacAddr;

/// Bytes of a message's header, `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of a neighbour behind it, `struct ndmsg`.
const NEIGHBOUR: usize = 12;
/// Bytes of an attribute's header, `struct rtattr`.
const ATTRIBUTE: usize = 4;

/// An entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// IP address.
    pub ip: IpAddr,
    /// Number of the interface.
    pub ifindex: u32,
    /// Ethernet address, once it is known.
    pub mac: Option<MacAddr>,
    state: u16,
    flags: u8,
}

impl Neighbour {
    /// The Ethernet address, if the kernel would send to it.
    pub fn usable(&self) -> Option<MacAddr> {
        const VALID: u16 = libc::NUD_REACHABLE
            | libc::NUD_STALE
            | libc::NUD_DELAY
            | libc::NUD_PROBE
            | libc::NUD_PERMANENT;
        self.mac
            .filter(|mac| self.state & VALID != 0 && !mac.is_unspecified())
    }

    /// The host has answered lately.
    pub fn confirmed(&self) -> bool {
        self.state & libc::NUD_REACHABLE != 0
    }

    /// The kernel asked, and nobody answered.
    pub fn failed(&self) -> bool {
        self.state & libc::NUD_FAILED != 0
    }

    /// The kernel asks the host when it doubts the entry; an administrator's entries it does not doubt.
    pub fn is_doubted(&self) -> bool {
        const DOUBTED: u16 =
            libc::NUD_REACHABLE | libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE;
        self.state & DOUBTED != 0 && self.flags == 0
    }
}

/// The entry of `ip` on interface `ifindex`, or on any.
///
/// # Errors
/// When the table cannot be read.
pub fn find(ip: IpAddr, ifindex: Option<u32>) -> Result<Option<Neighbour>> {
    let fits = |index| ifindex.is_none_or(|wanted| wanted == index);
    Ok(list()?
        .into_iter()
        .find(|entry| entry.ip == ip && fits(entry.ifindex)))
}

/// All entries.
///
/// # Errors
/// When the table cannot be read.
pub fn list() -> Result<Vec<Neighbour>> {
    let dump = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;
    let link = open()?;
    let request = message(libc::RTM_GETNEIGH, dump, 0, 0, 0, &[]);
    send(link.as_raw_fd(), &request, MsgFlags::empty()).context("asking for neighbours")?;
    let mut neighbours = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = recv(link.as_raw_fd(), &mut buffer, MsgFlags::empty())
            .context("reading the neighbour table")?;
        if parse(&buffer[..length], &mut neighbours)? {
            return Ok(neighbours);
        }
    }
}

/// Has the kernel ask the host of `neighbour` now, instead of some seconds after the next packet. It needs `CAP_NET_ADMIN`.
///
/// # Errors
/// When the kernel refuses it.
pub fn probe(neighbour: &Neighbour) -> Result<()> {
    let address = match neighbour.ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_REPLACE | libc::NLM_F_ACK;
    let request = message(
        libc::RTM_NEWNEIGH,
        flags,
        family(neighbour.ip),
        neighbour.ifindex,
        libc::NUD_PROBE,
        &address,
    );
    let link = open()?;
    send(link.as_raw_fd(), &request, MsgFlags::empty()).context("asking for a probe")?;
    let mut buffer = [0; 4096];
    let length = recv(link.as_raw_fd(), &mut buffer, MsgFlags::empty()).context("the answer")?;
    parse(&buffer[..length], &mut Vec::new()).map(drop)
}

fn open() -> Result<OwnedFd> {
    let link = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )
    .context("opening a netlink socket")?;
    bind(link.as_raw_fd(), &NetlinkAddr::new(0, 0)).context("binding a netlink socket")?;
    // The kernel answers at once; should it not, this program must not hang.
    setsockopt(&link, sockopt::ReceiveTimeout, &TimeVal::new(5, 0)).context("SO_RCVTIMEO")?;
    Ok(link)
}

fn family(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// A message about a neighbour, with its IP address if there is one.
fn message(kind: u16, flags: i32, family: u8, ifindex: u32, state: u16, ip: &[u8]) -> Vec<u8> {
    let attribute = if ip.is_empty() {
        0
    } else {
        ATTRIBUTE + ip.len()
    };
    let mut bytes = Vec::new();
    bytes.extend(((HEADER + NEIGHBOUR + attribute) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags as u16).to_ne_bytes());
    // Sequence number and sender: the socket is used once, so an answer needs none.
    bytes.extend([0; 8]);
    bytes.extend([family, 0, 0, 0]);
    bytes.extend(ifindex.to_ne_bytes());
    bytes.extend(state.to_ne_bytes());
    bytes.extend([0, 0]);
    if !ip.is_empty() {
        bytes.extend((attribute as u16).to_ne_bytes());
        bytes.extend(libc::NDA_DST.to_ne_bytes());
        bytes.extend(ip);
    }
    bytes
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let half = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(half))
}

/// Adds the neighbours in `messages`; true after the last message of the answer.
fn parse(mut messages: &[u8], neighbours: &mut Vec<Neighbour>) -> Result<bool> {
    while !messages.is_empty() {
        let length = word(messages, 0).context("a netlink message is cut off")? as usize;
        let kind = half(messages, 4).context("a netlink message is cut off")?;
        let body = messages
            .get(HEADER..length)
            .context("a netlink message has a wrong length")?;
        match i32::from(kind) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => match word(body, 0).map(|error| error as i32) {
                Some(0) => return Ok(true),
                Some(error) => bail!(Errno::from_raw(-error)),
                None => bail!("a netlink error is cut off"),
            },
            _ if kind == libc::RTM_NEWNEIGH => neighbours.extend(neighbour(body)),
            _ => {}
        }
        messages = messages.get(align(length)..).unwrap_or_default();
    }
    Ok(false)
}

/// The entry in a message's body; none if it is not of an IP address, as those of bridges.
fn neighbour(body: &[u8]) -> Option<Neighbour> {
    let ifindex = word(body, 4)?;
    let state = half(body, 8)?;
    let flags = *body.get(10)?;
    let mut attributes = body.get(NEIGHBOUR..)?;
    let (mut ip, mut mac) = (None, None);
    while let (Some(length), Some(kind)) = (half(attributes, 0), half(attributes, 2)) {
        let value = attributes.get(ATTRIBUTE..usize::from(length))?;
        match kind {
            libc::NDA_DST => ip = address(i32::from(body[0]), value),
            libc::NDA_LLADDR => mac = <[u8; 6]>::try_from(value).ok().map(MacAddr),
            _ => {}
        }
        attributes = attributes
            .get(align(usize::from(length))..)
            .unwrap_or_default();
    }
    Some(Neighbour {
        ip: ip?,
        ifindex,
        mac,
        state,
        flags,
    })
}

fn address(family: i32, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        libc::AF_INET => Some(<[u8; 4]>::try_from(bytes).ok()?.into()),
        libc::AF_INET6 => Some(<[u8; 16]>::try_from(bytes).ok()?.into()),
        _ => None,
    }
}

/// Messages and attributes begin at multiples of four.
fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    /// A message as the kernel sends it.
    fn entry(state: u16, with_mac: bool) -> Vec<u8> {
        let mut bytes = message(
            libc::RTM_NEWNEIGH,
            0,
            libc::AF_INET as u8,
            7,
            state,
            &[10, 0, 0, 2],
        );
        if with_mac {
            bytes.extend(10u16.to_ne_bytes());
            bytes.extend(libc::NDA_LLADDR.to_ne_bytes());
            bytes.extend(MAC.0);
            bytes.extend([0, 0]);
        }
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    fn end(kind: i32, error: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(20u32.to_ne_bytes());
        bytes.extend((kind as u16).to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(error.to_ne_bytes());
        bytes
    }

    #[test]
    fn entries_are_parsed() {
        let mut bytes = entry(libc::NUD_REACHABLE, true);
        bytes.extend(entry(libc::NUD_FAILED, false));
        let mut found = Vec::new();
        assert!(!parse(&bytes, &mut found).unwrap());
        assert!(parse(&end(libc::NLMSG_DONE, 0), &mut found).unwrap());
        let [good, failed] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(good.ip, IpAddr::from([10, 0, 0, 2]));
        assert_eq!((good.ifindex, good.usable()), (7, Some(MAC)));
        assert!(good.confirmed() && good.is_doubted());
        assert_eq!(failed.usable(), None);
        assert!(failed.failed() && !failed.is_doubted());
    }

    #[test]
    fn errors_and_nonsense_are_refused() {
        let parse = |bytes: &[u8]| parse(bytes, &mut Vec::new());
        let error = parse(&end(libc::NLMSG_ERROR, -libc::EPERM)).unwrap_err();
        assert!(error.to_string().contains("EPERM"), "{error}");
        assert!(parse(&end(libc::NLMSG_ERROR, 0)).unwrap());
        assert!(parse(&[1, 2, 3]).is_err());
        // Lengths of less than a header, and of more than there is.
        for length in [0u32, 4, 1000] {
            let mut bytes = entry(0, true);
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(parse(&bytes).is_err(), "{length}");
        }
        // An attribute of length 0 must not be parsed forever.
        let mut bytes = entry(0, false);
        bytes[28] = 0;
        assert!(!parse(&bytes).unwrap());
    }

    #[test]
    fn the_systems_table_can_be_read() {
        list().unwrap();
    }
}
