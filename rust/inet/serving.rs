// SPDX-License-Identifier: GPL-2.0

//! The functions that the table of TCP's socket (`sk_prot`) has while a companion serves the
//! descriptor's calls. The kernel calls these functions, or compares them with TCP's, without using
//! the descriptor's table.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h) (`struct proto`)

use super::{calls::served, *};

/// Serves `ioctl` on TCP's socket. `io_uring` uses this call to ask for the number of queued bytes.
/// If the companion serves the descriptor's calls, this stores the companion's number in
/// `argument`; otherwise TCP's own function answers.
///
/// # Safety
///
/// Called by the core with the socket of a descriptor of this module, and with memory for an
/// integer at `argument`. The core holds the descriptor for the call.
pub(super) unsafe extern "C" fn answer<M: Streams>(
    sk: *mut bindings::sock,
    command: c_int,
    argument: *mut c_int,
) -> c_int {
    // SAFETY: The field is read in a single load. The socket keeps its descriptor until the
    // descriptor is released.
    let socket = unsafe { ptr::read_volatile(&raw const (*sk).sk_socket) };
    if !socket.is_null() {
        // SAFETY: By the caller's promise, the core holds the descriptor for the call.
        let call = unsafe { StreamCall::<M>::new(socket) };
        if let (Backend::Companion, Some(companion)) = served(&call) {
            // SAFETY: By the caller's promise, there is memory for an integer at `argument`.
            return answer_by(&companion.sock, command, |value| unsafe {
                *argument = value;
            });
        }
    }
    // SAFETY: The socket is TCP's, and of the family that the table is for. The core passed the
    // other arguments.
    unsafe {
        let tcp = M::tables().of((*sk).__sk_common.skc_family).tcp_proto();
        match (*tcp).ioctl {
            Some(ioctl) => ioctl(sk, command, argument),
            None => EOPNOTSUPP.to_errno(),
        }
    }
}

/// Serves `recvmsg` on TCP's socket. The only caller is `inet_recvmsg` with `MSG_ERRQUEUE`, since
/// the companion serves all other receive calls. Since this is not TCP's own function, `io_uring`
/// does not receive from the queue of TCP's socket. So `IORING_OP_RECV_ZC` fails with
/// `EPROTONOSUPPORT`, as on any socket of another protocol.
///
/// # Safety
///
/// Called by the core, in a call on a TCP socket that has this function in its table, with the
/// call's message.
pub(super) unsafe extern "C" fn receive<M: Streams>(
    sk: *mut bindings::sock,
    message: *mut bindings::msghdr,
    len: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: The socket is TCP's, and of the family that the table is for. The core passed the
    // other arguments.
    unsafe {
        let tcp = M::tables().of((*sk).__sk_common.skc_family).tcp_proto();
        match (*tcp).recvmsg {
            Some(receive) => receive(sk, message, len, flags),
            None => EOPNOTSUPP.to_errno(),
        }
    }
}
