// SPDX-License-Identifier: GPL-2.0

//! The memory limits of a socket's buffers: the core's defaults, its bounds, and the limits of each
//! socket.
//!
//! All sizes are in bytes, overhead included, as `SO_SNDBUF` and `SO_RCVBUF` report them.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    bindings,
    family::Operations,
    sock::{field, RawSock},
};
use crate::net::errno::prelude::*;
use core::ptr;
use kernel::ffi::c_int;

/// The limits of a socket's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) send: u32,
    pub(crate) receive: u32,
}

impl Limits {
    /// The smallest limits that the core accepts. One packet of the usual Ethernet size, with its
    /// overhead, fits into the receive buffer, and two such packets fit into the send buffer.
    pub(crate) const MIN: Limits = Limits {
        send: bindings::ENET_SOCK_MIN_SNDBUF,
        receive: bindings::ENET_SOCK_MIN_RCVBUF,
    };

    /// Returns the largest limits that users may set: `net.core.wmem_max` and `net.core.rmem_max`.
    /// The values of the initial namespace apply to all namespaces.
    pub(crate) fn max() -> Self {
        // SAFETY: The variables are the core's and always exist. They are read in single loads, as
        // in the core.
        unsafe {
            Limits {
                send: ptr::read_volatile(ptr::addr_of!(bindings::sysctl_wmem_max)),
                receive: ptr::read_volatile(ptr::addr_of!(bindings::sysctl_rmem_max)),
            }
        }
    }

    /// Returns the limits that the core gives a new socket now: `net.core.wmem_default` and
    /// `net.core.rmem_default`. Must be called in process context.
    ///
    /// The core does not export these limits, so they are read from a temporary socket of `P`.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`, `ENODEV` if the protocol is not registered.
    pub(crate) fn of_new_socket<P: Operations>() -> Result<Self> {
        // SAFETY: `sk` is a kernel socket without a descriptor, in the initial namespace, which
        // always exists. Only the two limits are read before `sk_free` frees it. The protocol's own
        // fields, which follow the `struct sock`, are not initialised. The core's destructor does
        // not access them.
        unsafe {
            let sk = P::vtable().alloc(ptr::addr_of_mut!(bindings::init_net), true)?;
            bindings::sock_init_data(ptr::null_mut(), sk);
            let limits = Limits {
                send: (*sk).sk_sndbuf.max(0) as u32,
                receive: (*sk).sk_rcvbuf.max(0) as u32,
            };
            bindings::sk_free(sk);
            Ok(limits)
        }
    }
}

/// Returns the memory that the kernel manages on this machine, in bytes.
pub(crate) fn memory_size() -> usize {
    // SAFETY: The function only reads a counter of the core.
    unsafe { bindings::memory_size() }
}

impl RawSock {
    /// Returns the limit of the receive buffer in bytes (`SO_RCVBUF`).
    #[inline]
    pub(crate) fn receive_limit(&self) -> u32 {
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        unsafe { ptr::read_volatile(field!(self, sk_rcvbuf)).max(0) as u32 }
    }

    /// Returns whether a user has set the limit of the receive buffer (`SO_RCVBUF`).
    #[inline]
    pub(crate) fn has_fixed_receive_limit(&self) -> bool {
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        let fixed = unsafe { ptr::read_volatile(field!(self, sk_userlocks)) };
        u32::from(fixed) & bindings::SOCK_RCVBUF_LOCK != 0
    }

    /// Returns the limit of the send buffer in bytes (`SO_SNDBUF`).
    #[inline]
    pub(crate) fn send_limit(&self) -> u32 {
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        unsafe { ptr::read_volatile(field!(self, sk_sndbuf)).max(0) as u32 }
    }

    /// Sets the limits of the buffers. A limit stays unchanged if the argument is `None`, or if a
    /// user has set the limit (`SO_SNDBUF`, `SO_RCVBUF`). A child inherits such a limit from its
    /// listener.
    pub(crate) fn set_limits(&self, send: Option<u32>, receive: Option<u32>) {
        let sk = self.as_ptr();
        let size = |bytes: u32| c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: The fields are aligned words of a valid socket. They are read and written in
        // single accesses, as in the core.
        unsafe {
            let fixed = u32::from((*sk).sk_userlocks);
            if let Some(bytes) = send.filter(|_| fixed & bindings::SOCK_SNDBUF_LOCK == 0) {
                ptr::write_volatile(ptr::addr_of_mut!((*sk).sk_sndbuf), size(bytes));
            }
            if let Some(bytes) = receive.filter(|_| fixed & bindings::SOCK_RCVBUF_LOCK == 0) {
                ptr::write_volatile(ptr::addr_of_mut!((*sk).sk_rcvbuf), size(bytes));
            }
        }
    }
}
