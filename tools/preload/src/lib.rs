// SPDX-License-Identifier: MIT OR Apache-2.0

//! A library for `LD_PRELOAD`: its `socket()` creates mapped sockets when a program asks for TCP
//! streams. `socket()` only replaces the protocol number, so the program gets ordinary descriptors
//! of the kernel.

#![deny(clippy::print_stderr, clippy::print_stdout)]

use libc::c_int;
use sockaddr_en::constants::IPPROTO_ENET;

/// Returns the protocol number to pass to the kernel.
fn mapped(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let kind = kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    let of_tcp = matches!(protocol, 0 | libc::IPPROTO_TCP | libc::IPPROTO_MPTCP);
    match family {
        libc::AF_INET | libc::AF_INET6 if kind == libc::SOCK_STREAM && of_tcp => IPPROTO_ENET,
        _ => protocol,
    }
}

/// `socket(2)`.
// SAFETY: the symbol replaces the C library's function of the same name and type.
#[no_mangle]
pub extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let ask = |protocol: c_int| {
        // SAFETY: the call passes only numbers. Like the C library's `socket`, it sets errno.
        unsafe { libc::syscall(libc::SYS_socket, family, kind, protocol) as c_int }
    };
    let wanted = mapped(family, kind, protocol);
    let result = ask(wanted);
    // Without the module, fall back to the protocol that the program asked for.
    if result < 0 && wanted != protocol {
        return ask(protocol);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_tcp_are_mapped() {
        const KIND: c_int = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        assert_eq!(mapped(libc::AF_INET, KIND, 0), IPPROTO_ENET);
        assert_eq!(
            mapped(libc::AF_INET6, KIND, libc::IPPROTO_TCP),
            IPPROTO_ENET
        );
        assert_eq!(mapped(libc::AF_INET, libc::SOCK_DGRAM, 0), 0);
        assert_eq!(mapped(libc::AF_UNIX, KIND, 0), 0);
        assert_eq!(
            mapped(libc::AF_INET, KIND, libc::IPPROTO_SCTP),
            libc::IPPROTO_SCTP
        );
    }
}
