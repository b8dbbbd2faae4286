// SPDX-License-Identifier: GPL-2.0

//! Functions in the table of TCP's socket (`sk_prot`) while a companion serves the descriptor's
//! calls: the kernel calls these, or compares them with TCP's, without using the descriptor's
//! table.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h) (`struct proto`)

use super::{tables::served, *};

/// `ioctl` of TCP's socket, by which `io_uring` asks for the number of queued bytes: those of the
/// companion, if that serves the calls.
///
/// # Safety
///
/// Called by the core, with the socket of a descriptor of this module that it holds for the call,
/// and memory for an integer.
pub(super) unsafe extern "C" fn answer<M: Streams>(
    sk: *mut bindings::sock,
    command: c_int,
    argument: *mut c_int,
) -> c_int {
    // SAFETY: A single load. The socket keeps its descriptor until that goes.
    let socket = unsafe { ptr::read_volatile(&raw const (*sk).sk_socket) };
    if !socket.is_null() {
        // SAFETY: The caller's promise: a call that runs on the descriptor.
        let call = unsafe { StreamCall::<M>::new(socket) };
        if let (Backend::Companion, Some(companion)) = served(&call) {
            // SAFETY: The caller's promise.
            return answer_by(&companion.sock, command, |value| unsafe {
                *argument = value;
            });
        }
    }
    // SAFETY: The socket is TCP's, of the family whose table this is; the rest is the core's own.
    unsafe {
        let tcp = M::tables().of((*sk).__sk_common.skc_family).tcp_proto();
        match (*tcp).ioctl {
            Some(ioctl) => ioctl(sk, command, argument),
            None => EOPNOTSUPP.to_errno(),
        }
    }
}

/// `recvmsg` of TCP's socket, for its remaining caller: `inet_recvmsg` with `MSG_ERRQUEUE`. As it
/// is not TCP's own function, `io_uring` does not use the socket's queue as that of the connection:
/// `IORING_OP_RECV_ZC` fails with `EPROTONOSUPPORT`, as on any socket without TCP.
///
/// # Safety
///
/// Called by the core, with a TCP socket whose table this is, and that call's message.
pub(super) unsafe extern "C" fn receive<M: Streams>(
    sk: *mut bindings::sock,
    message: *mut bindings::msghdr,
    len: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: The socket is TCP's, of the family whose table this is; the rest is the core's own.
    unsafe {
        let tcp = M::tables().of((*sk).__sk_common.skc_family).tcp_proto();
        match (*tcp).recvmsg {
            Some(receive) => receive(sk, message, len, flags),
            None => EOPNOTSUPP.to_errno(),
        }
    }
}
