// SPDX-License-Identifier: GPL-2.0

//! The message of a send or receive call: user memory, address, flags.
//!
//! C header: [`include/linux/socket.h`](srctree/include/linux/socket.h)

use super::{
    bindings,
    family::ADDRESS_LEN,
    skb::{Buffer, Skb},
    sock::{Protocol, RawSock, Sock},
    zerocopy::Notice,
};
use crate::net::errno::prelude::*;
use core::{
    marker::PhantomData,
    mem::{self, MaybeUninit},
    ptr, slice,
};
use kernel::ffi::c_int;

/// Length in bytes of the longest copy from or to user memory that goes through an array on the
/// stack. The kernel checks every copy of variable length (`CONFIG_HARDENED_USERCOPY`). For an
/// array on the stack this check is far faster than for an object on the heap, whose slab it has to
/// find.
pub(super) const SHORT: usize = 64;

/// The length of the longest address in a report, an IPv6 address, in bytes.
const ADDRESS: usize = mem::size_of::<bindings::sockaddr_in6>();

/// The data of the control message that delivers a report of the error queue.
#[repr(C)]
struct Report {
    error: bindings::sock_extended_err,
    offender: [u8; ADDRESS],
}

/// The priority, mark and send time of a send call's frames. They come from the call's control
/// messages, or else from the socket's options.
pub(crate) struct Cookie(bindings::sockcm_cookie);

impl Cookie {
    #[inline]
    pub(super) fn as_ptr(&self) -> *const bindings::sockcm_cookie {
        &self.0
    }
}

/// A `struct msghdr` for the duration of one call.
pub(crate) struct Message<'a> {
    raw: *mut bindings::msghdr,
    /// The completion notification of a zero-copy send call, whose bytes stay in the user's pages.
    pub(super) notice: Option<Notice>,
    _call: PhantomData<&'a mut bindings::msghdr>,
}

impl Message<'_> {
    /// # Safety
    ///
    /// `raw` is the message of the running call, which lasts for `'a`.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *mut bindings::msghdr) -> Self {
        Message {
            raw,
            notice: None,
            _call: PhantomData,
        }
    }

    #[inline]
    pub(super) fn raw(&self) -> *mut bindings::msghdr {
        self.raw
    }

    #[inline]
    pub(super) fn iter(&mut self) -> *mut bindings::iov_iter {
        // SAFETY: The message is valid. The code only computes an address.
        unsafe { ptr::addr_of_mut!((*self.raw).msg_iter) }
    }

    /// Returns the address passed to a send call, or `None` if no address was passed. The address
    /// may be empty.
    #[inline]
    pub(crate) fn name(&self) -> Option<&[u8]> {
        // SAFETY: The core has copied `msg_namelen` bytes of address into kernel memory.
        unsafe {
            let name = (*self.raw).msg_name;
            let len = (*self.raw).msg_namelen;
            (!name.is_null()).then(|| slice::from_raw_parts(name.cast(), len.max(0) as usize))
        }
    }

    /// Reports `address` to a receive call that asked for one.
    #[inline]
    pub(crate) fn set_name(&mut self, address: &[u8; ADDRESS_LEN]) {
        // SAFETY: A non-null `msg_name` has room for a `sockaddr_storage`, more than any address
        // of this family.
        unsafe {
            if !(*self.raw).msg_name.is_null() {
                ptr::copy_nonoverlapping(
                    address.as_ptr(),
                    (*self.raw).msg_name.cast(),
                    address.len(),
                );
                (*self.raw).msg_namelen = address.len() as c_int;
            }
        }
    }

    /// Returns the `MSG_*` flags of the call.
    #[inline]
    pub(crate) fn flags(&self) -> c_int {
        // SAFETY: The message is valid.
        unsafe { (*self.raw).msg_flags as c_int }
    }

    /// Adds flags: `MSG_MORE` in a send call, or the flags that a receive call returns.
    #[inline]
    pub(crate) fn add_flags(&mut self, flags: c_int) {
        // SAFETY: The message is valid and ours for the call.
        unsafe { (*self.raw).msg_flags |= flags as u32 };
    }

    /// Reports how many bytes are left to read, if the caller asks for that, as `io_uring` does.
    #[inline]
    pub(crate) fn report_left(&mut self, left: u32) {
        // SAFETY: The message is valid and ours for the call.
        unsafe {
            if (*self.raw).msg_get_inq() {
                (*self.raw).msg_inq = c_int::try_from(left).unwrap_or(c_int::MAX);
            }
        }
    }

    /// Returns whether the bytes have no user address: in a call of kernel code, in a splice, or in
    /// a registered buffer of `io_uring`.
    #[inline]
    pub(super) fn is_of_kernel(&self) -> bool {
        // SAFETY: The message is valid.
        let kind = unsafe { (*self.raw).msg_iter.iter_type };
        u32::from(kind) > bindings::iter_type_ITER_IOVEC
    }

    /// Returns whether a send call has control messages.
    #[inline]
    pub(crate) fn has_control(&self) -> bool {
        // SAFETY: The message is valid.
        unsafe { (*self.raw).msg_controllen > 0 }
    }

    /// Returns the cookie of a send call on `sock`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for control messages that are malformed or, at the socket level, unknown; `EPERM`
    /// for control messages that the task may not use.
    #[inline]
    pub(crate) fn cookie(&mut self, sock: &RawSock) -> Result<Cookie> {
        // SAFETY: All-zero bytes are a valid value of the type, which consists of integers.
        let mut cookie: bindings::sockcm_cookie = unsafe { core::mem::zeroed() };
        // SAFETY: The socket, the message and the cookie are valid for the call. The core has
        // copied the control messages into kernel memory and checks their lengths.
        unsafe {
            bindings::sockcm_init(&mut cookie, sock.as_ptr());
            if self.has_control() {
                to_result(bindings::sock_cmsg_send(
                    sock.as_ptr(),
                    self.raw,
                    &mut cookie,
                ))?;
            }
        }
        Ok(Cookie(cookie))
    }

    /// Copies `len` bytes of `skb`, from offset `offset`, to the user.
    ///
    /// # Errors
    ///
    /// `EFAULT` if not all `len` bytes could be written, or if the buffer has fewer.
    #[inline]
    pub(crate) fn put(&mut self, skb: &Buffer, offset: usize, len: usize) -> Result {
        let bytes = offset
            .checked_add(len)
            .filter(|_| len <= SHORT)
            .and_then(|end| skb.head().get(offset..end));
        if let Some(bytes) = bytes {
            return self.put_short(bytes);
        }
        let (offset, len) = skb.span(offset, len).ok_or(EFAULT)?;
        // SAFETY: The buffer and the message are valid, and the span lies in the buffer's data. The
        // function checks the bounds of the user's memory.
        to_result(unsafe {
            bindings::skb_copy_datagram_iter(skb.as_ptr(), offset, self.iter(), len)
        })
    }

    /// Copies at most [`SHORT`] bytes to the user.
    #[inline]
    fn put_short(&mut self, bytes: &[u8]) -> Result {
        let mut copy = MaybeUninit::<[u8; SHORT]>::uninit();
        let copy: *mut u8 = copy.as_mut_ptr().cast();
        let len = bytes.len().min(SHORT);
        // SAFETY: `copy` has room for `len` bytes, which are initialised before `copy_to_iter_full`
        // reads them. The function checks the bounds of the user's memory, and leaves the message
        // as it was when it fails.
        let whole = unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), copy, len);
            bindings::copy_to_iter_full(copy.cast(), len, self.iter())
        };
        if whole {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// Delivers the report at the head of the socket's error queue (`MSG_ERRQUEUE`). The user gets
    /// at most `len` bytes of the reported packet. A control message of type `kind` and level
    /// `level` contains the error. Returns the number of bytes delivered.
    ///
    /// The packet's headers are not parsed. The reports of a companion, which shares a TCP socket's
    /// descriptor, have the form of TCP's reports: the address of the host that caused the error
    /// follows the error. No host causes a companion's reports, so this address is all zeroes.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there is no report, `EFAULT` if the packet could not be written.
    #[cold]
    pub(crate) fn put_report<P: Protocol>(
        &mut self,
        sock: &Sock<P>,
        len: usize,
        level: c_int,
        kind: c_int,
    ) -> Result<usize> {
        let (level, kind, address) = sock.report_kind(level, kind);
        // SAFETY: The socket is valid, and the queue has a lock of its own. The function returns
        // null or a buffer that is then ours.
        let report = unsafe { Skb::from_raw(bindings::sock_dequeue_err_skb(sock.as_ptr())) };
        let report = report.ok_or(EAGAIN)?;
        let copied = report.len().min(len);
        self.put(&report, 0, copied)?;
        // SAFETY: A buffer of an error queue has the error in its control block. The message
        // belongs to the running call. `record` has `size` bytes, since `offender` has room for the
        // address.
        unsafe {
            let record = Report {
                error: ptr::read(bindings::skb_report(report.as_ptr())),
                offender: [0; ADDRESS],
            };
            let size = mem::size_of_val(&record.error).saturating_add(address.min(ADDRESS));
            if copied < report.len() {
                (*self.raw).msg_flags |= bindings::MSG_TRUNC;
            }
            bindings::sock_recv_timestamp(self.raw, sock.as_ptr(), report.as_ptr());
            bindings::put_cmsg(
                self.raw,
                level,
                kind,
                size as c_int,
                ptr::from_ref(&record).cast_mut().cast(),
            );
            (*self.raw).msg_flags |= bindings::MSG_ERRQUEUE;
        }
        Ok(copied)
    }

    /// Delivers `value` as a control message `kind` of `level`.
    #[cold]
    pub(crate) fn put_u32(&mut self, level: c_int, kind: c_int, mut value: u32) {
        // SAFETY: The running call owns the message, and the length is the length of `value`.
        unsafe {
            bindings::put_cmsg(
                self.raw,
                level,
                kind,
                mem::size_of_val(&value) as c_int,
                (&raw mut value).cast(),
            );
        }
    }

    /// Delivers the timestamp of `skb`, if the user asked for it.
    pub(crate) fn put_times(&mut self, sock: &RawSock, skb: &Buffer) {
        // SAFETY: The message, the socket and the buffer are valid for the call.
        unsafe { bindings::__sock_recv_timestamp(self.raw, sock.as_ptr(), skb.as_ptr()) };
    }

    /// Delivers the metadata of `skb` if the user asked for it: the timestamp, and the number of
    /// drops before `skb`.
    #[inline]
    pub(crate) fn put_control(&mut self, sock: &RawSock, skb: &Buffer) {
        // SAFETY: The message, the socket and the buffer are valid for the call.
        unsafe { bindings::sock_recv_cmsgs(self.raw, sock.as_ptr(), skb.as_ptr()) };
    }
}
