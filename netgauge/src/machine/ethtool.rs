// SPDX-License-Identifier: MIT OR Apache-2.0

//! Facts about a network device, from the requests of `ethtool(8)` that need no privileges.
//!
//! The requests use `ioctl`, because sysfs shows the devices of the network namespace that mounted
//! it, and not the devices of the caller's namespace.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

/// The numbers of ethtool's requests, from `linux/ethtool.h`.
const GET_DRIVER: u32 = 0x03;
const GET_LINK: u32 = 0x4c;
const GET_TSO: u32 = 0x1e;
const GET_GSO: u32 = 0x23;
const GET_GRO: u32 = 0x2b;

/// The speed that a link reports if its speed is unknown.
const SPEED_UNKNOWN: u32 = u32::MAX;

/// The largest number of words in a link's three sets of modes. The number of words per set is a
/// signed byte, so it is at most 127.
const MOST_WORDS: usize = 3 * 127;

/// A structure that holds a request and then the kernel's answer.
///
/// # Safety
///
/// The type is plain C data, and every bit pattern is a valid value of it. It begins with the
/// request's number, and the kernel answers that request with at most as many bytes as the type
/// has.
unsafe trait Question {}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct Driver {
    question: u32,
    name: [u8; 32],
    others: [u8; 160],
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    question: u32,
    value: u32,
}

/// `struct ethtool_link_settings`, with the sets of modes that follow it.
#[repr(C)]
struct Link {
    question: u32,
    speed: u32,
    others: [u8; 7],
    /// Number of words of each of the three sets of modes. If the kernel has a different number, it
    /// answers with its own number, negated.
    words: i8,
    more: [u8; 4],
    reserved: [u32; 7],
    modes: [u32; MOST_WORDS],
}

// SAFETY: `Driver` has only integers, and begins with the request's number. It has 196 bytes, like
// the kernel's structure.
unsafe impl Question for Driver {}
// SAFETY: `Value` has two integers, and begins with the request's number. It has 8 bytes, like the
// kernel's structure.
unsafe impl Question for Value {}
// SAFETY: `Link` has only integers, and begins with the request's number. After the 48 bytes of its
// structure, the kernel writes three times as many words as `words` says. That is at most 3 times
// 127, and `modes` has room for them.
unsafe impl Question for Link {}

/// Sends a request for the device called `name`.
fn ask<Q: Question>(name: &str, question: &mut Q) -> io::Result<()> {
    // SAFETY: `ifreq` is plain C data, and all-zero bytes are a valid value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // A name that passes this check leaves the last byte of `ifr_name` zero, which terminates the
    // name.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    // Any socket of the network namespace can send the request.
    let socket = UnixDatagram::unbound()?;
    // SAFETY: The descriptor is open. The kernel reads the name in `request`, which is terminated,
    // and reads and writes `question` through the pointer in `request`. `question` is borrowed for
    // the call, and by the promise of `Question` it is as large as the answer.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the name of the device's driver, if it is known.
pub(super) fn driver(name: &str) -> Option<String> {
    let mut driver = Driver {
        question: GET_DRIVER,
        name: [0; 32],
        others: [0; 160],
    };
    ask(name, &mut driver).ok()?;
    let text = driver.name.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned()).filter(|text| !text.is_empty())
}

/// Returns the link's speed, Mbit/s, if it is known.
pub(super) fn speed(name: &str) -> Option<u32> {
    let mut link = Link {
        question: GET_LINK,
        speed: 0,
        others: [0; 7],
        words: 0,
        more: [0; 4],
        reserved: [0; 7],
        modes: [0; MOST_WORDS],
    };
    // The first answer has the number of words to request.
    ask(name, &mut link).ok()?;
    if link.words < 0 {
        link.words = link.words.checked_neg()?;
        link.question = GET_LINK;
        ask(name, &mut link).ok()?;
    }
    Some(link.speed).filter(|speed| ![0, SPEED_UNKNOWN].contains(speed))
}

/// Returns the names of the offloads that are on. Only offloads that change the size of packets are
/// considered.
pub(super) fn offloads(name: &str) -> Option<Vec<String>> {
    let is_on = |question| {
        let mut value = Value { question, value: 0 };
        ask(name, &mut value).ok().map(|()| value.value != 0)
    };
    let answers = [("tso", GET_TSO), ("gso", GET_GSO), ("gro", GET_GRO)]
        .map(|(offload, question)| (offload, is_on(question)));
    if answers.iter().all(|(_, on)| on.is_none()) {
        return None;
    }
    let on = answers.iter().filter(|(_, on)| *on == Some(true));
    Some(on.map(|(offload, _)| (*offload).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_as_large_as_the_kernels() {
        assert_eq!(size_of::<Driver>(), 196);
        assert_eq!(size_of::<Value>(), 8);
        assert_eq!(size_of::<Link>(), 48 + 4 * MOST_WORDS);
        assert_eq!(std::mem::offset_of!(Link, words), 15);
    }

    #[test]
    fn loopback_answers_what_it_can() {
        // Loopback has no link settings, but it has offloads like other devices.
        assert_eq!(speed("lo"), None);
        assert!(offloads("lo").is_some());
    }

    #[test]
    fn an_absent_device_answers_nothing() {
        for name in ["absent0", "a-name-that-is-longer-than-any-device-has", ""] {
            assert_eq!(driver(name), None);
            assert_eq!(speed(name), None);
            assert_eq!(offloads(name), None);
        }
    }
}
