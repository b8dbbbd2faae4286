// SPDX-License-Identifier: GPL-2.0

//! The pipe of a `splice` call, to which a protocol adds references to its received pages.
//!
//! C headers: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h) (`skb_splice_bits`),
//! [`include/linux/pipe_fs_i.h`](srctree/include/linux/pipe_fs_i.h)

use super::{
    bindings,
    skb::Buffer,
    sock::{Protocol, Sock},
};
use crate::net::errno::prelude::*;
use core::marker::PhantomData;
use kernel::ffi::{c_int, c_uint};

/// A pipe that the calling task has locked, for the duration of the call.
pub(crate) struct Pipe<'a> {
    raw: *mut bindings::pipe_inode_info,
    flags: c_uint,
    _call: PhantomData<&'a mut bindings::pipe_inode_info>,
}

impl Pipe<'_> {
    /// # Safety
    ///
    /// `raw` is the locked pipe of the running `splice` call, which lasts for `'a`.
    pub(super) unsafe fn from_raw(raw: *mut bindings::pipe_inode_info, flags: c_uint) -> Self {
        Pipe {
            raw,
            flags,
            _call: PhantomData,
        }
    }

    /// Moves at most `len` bytes of the stream's next received buffer, from `offset` on, into the
    /// pipe. Bytes in pages are moved by reference, and other bytes are copied. Returns the number
    /// of bytes moved.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the pipe is full, `EPIPE` if it has no reader. `EFAULT` if the buffer has fewer
    /// bytes. `EOPNOTSUPP` on a socket that must not use the task's pages.
    pub(crate) fn put<P: Protocol>(
        &mut self,
        sock: &Sock<P>,
        skb: &Buffer,
        offset: usize,
        len: usize,
    ) -> Result<usize> {
        skb.span(offset, len).ok_or(EFAULT)?;
        if sock.task_pages().is_null() {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: By the invariant of `Buffer`, the buffer is valid, and the span lies in its data.
        // The function only reads the data and takes references to pages. The pipe belongs to the
        // call. Copies go to the task's page fragment, which only calls of this task use.
        let put = unsafe {
            bindings::skb_splice_bits(
                skb.as_ptr(),
                sock.as_ptr(),
                offset as c_uint,
                self.raw,
                len as c_uint,
                self.flags,
            )
        };
        usize::try_from(put).map_err(|_| Error::from_errno(put as c_int))
    }
}
