// SPDX-License-Identifier: GPL-2.0

//! Finds the socket behind a descriptor of the running task.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use super::super::{bindings, sock::Sock};
use super::Operations;
use crate::net::errno::prelude::*;
use kernel::ffi::c_int;

/// Calls `f` with the socket of `P` behind `descriptor` of the running task.
///
/// # Errors
///
/// `EBADF` if there is no such descriptor, `ENOTSOCK` if it is no socket's, `EINVAL` if the socket
/// is none of `P`.
pub(crate) fn with_descriptor<P: Operations, R>(
    descriptor: c_int,
    f: impl FnOnce(&Sock<P>) -> R,
) -> Result<R> {
    let mut error = 0;
    // SAFETY: The function looks up a descriptor of the running task, and writes `error`.
    let socket = unsafe { bindings::sockfd_lookup(descriptor, &mut error) };
    if socket.is_null() {
        return Err(Error::from_errno(error));
    }
    // SAFETY: The look-up holds the file, and so the descriptor. With the table of `P`, its `sk` is
    // a socket of `P` as long as the file is held. The reference to the file is given back once `f`
    // has returned.
    unsafe {
        let result = if P::vtable().has((*socket).ops) {
            Ok(f(Sock::from_raw((*socket).sk)))
        } else {
            Err(EINVAL)
        };
        bindings::fput((*socket).file);
        result
    }
}
