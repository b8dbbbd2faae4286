// SPDX-License-Identifier: GPL-2.0

//! The functions that serve `splice` and `sendfile`, into and out of a socket.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use super::super::{bindings, splice::Pipe};
use super::{count, of, Call, Operations};
use crate::net::errno::prelude::*;
use kernel::ffi::c_uint;

/// # Safety
///
/// Called by the core, in a `splice` or `sendfile` call on a socket of `P`.
pub(super) unsafe extern "C" fn splice_eof<P: Operations>(socket: *mut bindings::socket) {
    // SAFETY: The call runs on `socket`.
    P::no_more(unsafe { of(socket) });
}

/// # Safety
///
/// Called by the core, in a `splice` call out of a socket of `P`, with the call's own pipe, which
/// the core has locked.
pub(super) unsafe extern "C" fn splice_read<P: Operations>(
    socket: *mut bindings::socket,
    position: *mut bindings::loff_t,
    pipe: *mut bindings::pipe_inode_info,
    len: usize,
    flags: c_uint,
) -> isize {
    // SAFETY: The call runs on `socket`, which has a file during the call.
    unsafe { splice_by(&Call::<P>::new(socket), socket, position, pipe, len, flags) }
}

/// Makes `P` serve a `splice` call on the descriptor `socket`, with the socket of `call`.
///
/// # Safety
///
/// The requirements of [`splice_read`] hold, except that the socket of `call` may be a companion,
/// which shares the descriptor with a TCP socket.
pub(in super::super) unsafe fn splice_by<P: Operations>(
    call: &Call<'_, P>,
    socket: *mut bindings::socket,
    position: *mut bindings::loff_t,
    pipe: *mut bindings::pipe_inode_info,
    len: usize,
    flags: c_uint,
) -> isize {
    // SAFETY: The position and the pipe belong to the call. A descriptor with a running call has a
    // file.
    let (position, nonblocking, mut pipe) = unsafe {
        (
            *position,
            bindings::socket_is_nonblocking(socket),
            Pipe::from_raw(pipe, flags),
        )
    };
    if position != 0 {
        return ESPIPE.to_errno() as isize;
    }
    count(P::splice(call, &mut pipe, len, nonblocking)) as isize
}
