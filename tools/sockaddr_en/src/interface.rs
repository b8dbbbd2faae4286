// SPDX-License-Identifier: MIT OR Apache-2.0

//! Looks up network interfaces by name and number (`netdevice(7)`).

use std::ffi::{CStr, CString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::constants::ETH_ALEN;
use crate::MacAddr;

/// `ALTIFNAMSIZ` of `linux/netdevice.h`: one more than the bytes of the longest alternative name of
/// an interface.
pub(crate) const ALTERNATIVE_SIZE: usize = 128;

/// Receive timeout. The kernel answers at once, so the timeout only keeps a program from hanging.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the number of the interface called `name`, which may be one of its alternative names
/// (`ip link property add altname`).
///
/// # Errors
///
/// `ENODEV` if this network namespace has no interface of that name.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let c_name = c_name(name)?;
    // The request of `if_nametoindex` has no room for a longer name.
    if name.len() >= libc::IF_NAMESIZE {
        return alternative_index(name);
    }
    // SAFETY: `c_name` is a NUL-terminated string that outlives the call. The call only reads it.
    match unsafe { libc::if_nametoindex(c_name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Asks `rtnetlink(7)` for the number of the interface with the alternative name `name`.
fn alternative_index(name: &str) -> io::Result<u32> {
    /// Bytes of `struct nlmsghdr`, of `struct ifinfomsg` and of `struct rtattr`.
    const HEADER: usize = 16;
    const BODY: usize = 16;
    const ATTRIBUTE: usize = 4;
    /// `IFLA_ALT_IFNAME` of `linux/if_link.h`.
    const IFLA_ALT_IFNAME: u16 = 53;
    let absent = || io::Error::from_raw_os_error(libc::ENODEV);
    if name.len() >= ALTERNATIVE_SIZE {
        return Err(absent());
    }
    let attribute = ATTRIBUTE + name.len() + 1;
    let mut ask = vec![0; HEADER + BODY];
    ask.extend((attribute as u16).to_ne_bytes());
    ask.extend(IFLA_ALT_IFNAME.to_ne_bytes());
    ask.extend(name.as_bytes());
    // The name ends with NUL, and messages are aligned to four bytes.
    ask.resize(HEADER + BODY + attribute.next_multiple_of(4), 0);
    let length = ask.len() as u32;
    ask[0..4].copy_from_slice(&length.to_ne_bytes());
    ask[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    ask[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());

    let domain = Domain::from(libc::AF_NETLINK);
    let mut socket = Socket::new(domain, Type::RAW, Some(Protocol::from(libc::NETLINK_ROUTE)))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(&ask)?;
    // Only the start of the answer is needed. The kernel cuts off what does not fit into the
    // buffer.
    let mut answer = [0; 4096];
    let length = socket.read(&mut answer)?;
    let answer = &answer[..length];
    let word = |place: usize| answer.get(place..)?.first_chunk::<4>();
    let kind = answer.get(4..6);
    let first = word(HEADER).ok_or(io::ErrorKind::InvalidData)?;
    if kind == Some(&(libc::NLMSG_ERROR as u16).to_ne_bytes()) {
        return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(*first)));
    }
    // `ifi_index` is the second word of `struct ifinfomsg`.
    let index = word(HEADER + 4).filter(|_| kind == Some(&libc::RTM_NEWLINK.to_ne_bytes()));
    index
        .map(|index| u32::from_ne_bytes(*index))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the name of interface number `index`.
///
/// # Errors
///
/// `ENXIO` if this network namespace has no interface of that number.
pub fn interface_name(index: u32) -> io::Result<String> {
    let mut buffer = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has IF_NAMESIZE bytes, and the call writes at most that many.
    let name = unsafe { libc::if_indextoname(index, buffer.as_mut_ptr().cast()) };
    if name.is_null() {
        return Err(io::Error::last_os_error());
    }
    let name = CStr::from_bytes_until_nul(&buffer)
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(name.to_string_lossy().into_owned())
}

/// Returns the Ethernet address of the interface called `name`.
///
/// # Errors
///
/// `ENODEV` if there is no such interface; `Unsupported` if it is not an Ethernet device.
pub fn interface_mac(name: &str) -> io::Result<MacAddr> {
    let answer = device_request(name, libc::SIOCGIFHWADDR)?;
    // SAFETY: SIOCGIFHWADDR succeeded, so the kernel filled `ifru_hwaddr`. The union was zeroed
    // before, so all its bytes are initialised.
    let hardware = unsafe { answer.ifr_ifru.ifru_hwaddr };
    if hardware.sa_family != libc::ARPHRD_ETHER {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{name} is not an Ethernet interface"),
        ));
    }
    let mut octets = [0; ETH_ALEN];
    for (octet, byte) in octets.iter_mut().zip(hardware.sa_data) {
        *octet = byte.to_ne_bytes()[0];
    }
    Ok(MacAddr(octets))
}

/// Returns the MTU of the interface called `name`: the payload of its largest frame, in bytes.
///
/// # Errors
///
/// `ENODEV` if there is no such interface.
pub fn interface_mtu(name: &str) -> io::Result<u32> {
    let answer = device_request(name, libc::SIOCGIFMTU)?;
    // SAFETY: SIOCGIFMTU succeeded, so the kernel filled `ifru_mtu`. The union was zeroed before,
    // so all its bytes are initialised.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sends a device request about the interface called `name`.
fn device_request(name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
    if name.len() >= libc::IF_NAMESIZE {
        return device_request(&interface_name(interface_index(name)?)?, request);
    }
    let c_name = c_name(name)?;
    // SAFETY: `ifreq` is plain C data, and all-zero bytes are a valid value.
    let mut ask: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in ask.ifr_name.iter_mut().zip(c_name.to_bytes()) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let socket = any_socket()?;
    // SAFETY: the descriptor is open. The request reads the name in `ask`, which is NUL-terminated,
    // and writes only into `ask`.
    if unsafe { libc::ioctl(socket.as_raw_fd(), request, &mut ask) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ask)
}

/// Opens a socket for device requests. A socket of any family will do, and every kernel has
/// `AF_UNIX`.
fn any_socket() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was opened just now and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_name(name: &str) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_by_name_and_number() {
        let index = interface_index("lo").unwrap();
        assert_eq!(interface_name(index).unwrap(), "lo");
        assert!(interface_mtu("lo").unwrap() >= 1500);
        assert_eq!(
            interface_mac("lo").unwrap_err().kind(),
            io::ErrorKind::Unsupported
        );
    }

    #[test]
    fn absent_interfaces() {
        let absent = "absent0";
        assert_eq!(
            interface_index(absent).unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
        assert_eq!(
            interface_mac(absent).unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
        assert_eq!(
            interface_mtu(absent).unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
        assert_eq!(
            interface_mac("a-name-longer-than-any")
                .unwrap_err()
                .raw_os_error(),
            Some(libc::ENODEV)
        );
        assert_eq!(
            interface_index(&"l".repeat(ALTERNATIVE_SIZE))
                .unwrap_err()
                .raw_os_error(),
            Some(libc::ENODEV)
        );
        assert_eq!(
            interface_index("l\0o").unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
        assert_eq!(
            interface_name(u32::MAX).unwrap_err().raw_os_error(),
            Some(libc::ENXIO)
        );
    }
}
