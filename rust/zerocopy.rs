// SPDX-License-Identifier: GPL-2.0

//! Zero-copy send calls. Buffers refer to the user's pages. A *notice* (completion notification)
//! tells the program when the kernel no longer needs these pages. With `MSG_ZEROCOPY` the notice is
//! a report in the error queue, as in TCP and UDP, but `io_uring` (`IORING_OP_SEND_ZC`) passes its
//! own notice.
//!
//! The send call holds a reference to its notice, and so does each buffer that refers to the user's
//! pages. Dropping the last reference completes the notice.
//!
//! C headers: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h) (`struct ubuf_info`),
//! [`net/core/skbuff.c`](srctree/net/core/skbuff.c) (`msg_zerocopy_realloc`)

use super::{
    bindings,
    message::Message,
    skb::{Buffer, Skb},
    sock::{Datagram, Protocol, RawSock, Sock},
};
use crate::net::errno::prelude::*;
use core::{
    ptr::{self, NonNull},
    sync::atomic::Ordering::Relaxed,
};
use kernel::ffi::c_int;

const MSG_ZEROCOPY: c_int = bindings::MSG_ZEROCOPY as c_int;
const MSG_SPLICE_PAGES: c_int = bindings::MSG_SPLICE_PAGES as c_int;
const SOCK_STREAM: u32 = bindings::sock_type_SOCK_STREAM;

/// The notice of a running send call.
///
/// # Invariants
///
/// `raw` is valid as long as the call runs. Either this value holds a reference to the notice
/// (`own`), or the code that made the call holds one.
pub(super) struct Notice {
    raw: NonNull<bindings::ubuf_info>,
    /// Whether this value holds a reference.
    own: bool,
}

impl Notice {
    /// Ends the call's use of the notice. If the call failed, a notice that this value owns is
    /// never reported, and the next call gets the notice's number.
    fn end(self, sent: bool) {
        if self.own && sent {
            // SAFETY: By the invariant, this value holds a reference, which the function drops.
            unsafe { bindings::notice_put(self.raw.as_ptr()) };
            core::mem::forget(self);
        }
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        if self.own {
            // SAFETY: By the invariant, this value holds a reference, which the function drops.
            unsafe { bindings::notice_abort(self.raw.as_ptr()) };
        }
    }
}

/// The identity of the notice that a buffer refers to, if any.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoticeId(*const bindings::ubuf_info);

impl RawSock {
    /// Returns whether `MSG_ZEROCOPY` has an effect (`SO_ZEROCOPY`).
    #[inline]
    pub(crate) fn sends_in_place(&self) -> bool {
        self.has_flag(bindings::sock_flags_SOCK_ZEROCOPY)
    }
}

impl<P: Protocol> Sock<P> {
    /// Sets whether `MSG_ZEROCOPY` has an effect. The protocol must do this itself, since the core
    /// rejects `SO_ZEROCOPY` for families that it does not know.
    pub(crate) fn set_sends_in_place(&self, on: bool) {
        let _guard = self.lock();
        // SAFETY: The lock, which guards the socket's flags, is held.
        unsafe {
            bindings::sock_valbool_flag(self.as_ptr(), bindings::sock_flags_SOCK_ZEROCOPY, on);
        }
    }
}

impl Message<'_> {
    /// Returns whether the send call asks for its bytes to stay in place (`MSG_ZEROCOPY`).
    #[inline]
    pub(crate) fn asks_in_place(&self) -> bool {
        self.flags() & MSG_ZEROCOPY != 0
    }

    /// Returns whether the bytes of a send call on `sock` may stay in place. A call that passes its
    /// own notice does not need the socket's option. Pages from `splice` must not stay in place,
    /// since they do not belong to the program.
    #[inline]
    pub(crate) fn may_stay_in_place(&self, sock: &RawSock) -> bool {
        let may = sock.sends_in_place() || self.lent_notice().is_some();
        may && self.flags() & MSG_SPLICE_PAGES == 0
    }

    /// Attaches a notice (completion notification) to a send call of `len` bytes on `sock`. The
    /// caller has locked `sock`. From now on, buffers refer to the call's pages. Does nothing if
    /// the bytes [may not](Self::may_stay_in_place) stay in place.
    ///
    /// If the bytes are appended to `last`, the call shares the notice of `last` where possible.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if there is no memory, if the user may not pin more pages (`RLIMIT_MEMLOCK`), or
    /// if the socket may not have more notices (`net.core.optmem_max`).
    pub(crate) fn begin_in_place<P: Protocol>(
        &mut self,
        sock: &Sock<P>,
        len: usize,
        last: Option<&Buffer>,
    ) -> Result {
        if !self.may_stay_in_place(sock) {
            return Ok(());
        }
        if let Some(raw) = self.lent_notice() {
            // INVARIANT: The caller that passes a notice in `msg_ubuf` holds a reference until the
            // call ends.
            self.notice = Some(Notice { raw, own: false });
            return Ok(());
        }
        // SAFETY: The message belongs to a running call, in a task. A companion holds a reference
        // to the socket in front of it, and reports its notices there. `last` is valid. A notice is
        // shared only if it belongs to the locked socket, and not to a socket in front. Buffers
        // with the locked socket's notice are reached only under that socket's lock.
        let raw = unsafe {
            let front = sock.front();
            let own = front == sock.as_ptr();
            // The notice refers to the socket as long as any buffer refers to the notice. So the
            // socket must hold the module.
            if own && !P::vtable().pin(sock) {
                return Err(ENOBUFS);
            }
            let last = last.filter(|_| own);
            let shared = last.map_or(ptr::null_mut(), |last| {
                bindings::skb_notice_of(last.as_ptr(), front)
            });
            bindings::msg_zerocopy_realloc(front, len, shared, false)
        };
        // INVARIANT: The reference is ours.
        let raw = NonNull::new(raw).ok_or(ENOBUFS)?;
        self.notice = Some(Notice { raw, own: true });
        Ok(())
    }

    /// Returns whether the bytes stay in place.
    #[inline]
    pub(crate) fn is_in_place(&self) -> bool {
        self.notice.is_some()
    }

    /// Makes the notice report that bytes were copied in spite of `MSG_ZEROCOPY`
    /// (`SO_EE_CODE_ZEROCOPY_COPIED`).
    #[inline]
    pub(crate) fn note_copy(&self) {
        if self.notice.is_some() {
            self.tell_copy();
        }
    }

    /// Does the work of [`note_copy`](Self::note_copy) if there is a notice.
    #[cold]
    #[inline(never)]
    fn tell_copy(&self) {
        if let Some(notice) = &self.notice {
            // SAFETY: By the invariant of `Notice`, the pointer is valid.
            unsafe { bindings::notice_copied(notice.raw.as_ptr()) };
        }
    }

    /// Ends the call's use of the notice that [`begin_in_place`](Self::begin_in_place) attached.
    /// The socket is still locked. Discards the notice unless the call has `sent` something.
    #[inline]
    pub(crate) fn end_in_place(&mut self, sent: bool) {
        if let Some(notice) = self.notice.take() {
            notice.end(sent);
        }
    }

    /// Returns the notice that the caller of a zero-copy send passes with the message, if any.
    fn lent_notice(&self) -> Option<NonNull<bindings::ubuf_info>> {
        if !self.asks_in_place() {
            return None;
        }
        // SAFETY: The message is valid.
        NonNull::new(unsafe { (*self.raw()).msg_ubuf })
    }
}

impl Buffer {
    /// Returns whether the buffer has one of `flags` (`SKBFL_*`).
    #[inline]
    fn has_page_flag(&self, flags: u32) -> bool {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid and borrowed.
        u32::from(unsafe { (*self.shared()).flags }) & flags != 0
    }

    /// Returns the notice that the buffer refers to, or null.
    #[inline]
    fn notice(&self) -> *mut bindings::ubuf_info {
        if !self.has_page_flag(bindings::SKBFL_ZEROCOPY_ENABLE) {
            return ptr::null_mut();
        }
        // SAFETY: By the invariant of `Buffer`, the buffer is valid.
        unsafe { bindings::skb_notice(self.as_ptr()) }
    }

    /// Returns the identity of the notice that the buffer refers to, if any. A buffer refers to one
    /// notice at most.
    #[inline]
    pub(crate) fn notice_id(&self) -> NoticeId {
        NoticeId(self.notice())
    }

    /// Makes the buffer refer to the notice of `store`, if `store` has one. Returns `false` if the
    /// buffer already refers to a different notice.
    #[inline]
    pub(super) fn follow_notice(&mut self, store: &Buffer) -> bool {
        let notice = store.notice();
        if notice.is_null() {
            return true;
        }
        let own = self.notice();
        if own.is_null() {
            // SAFETY: The buffer is borrowed exclusively, and the store's reference keeps the
            // notice.
            unsafe { bindings::skb_set_notice(self.as_ptr(), notice) };
        }
        own.is_null() || own == notice
    }

    /// Makes the buffer hold a reference to each of its pages, since `io_uring` lends some pages
    /// without a reference. Further pages may be added afterwards.
    #[inline]
    pub(super) fn hold_pages(&mut self) {
        if self.has_page_flag(bindings::SKBFL_MANAGED_FRAG_REFS) {
            // SAFETY: The buffer is borrowed exclusively.
            unsafe { bindings::skb_zcopy_downgrade_managed(self.as_ptr()) };
        }
    }

    /// Appends at most `len` bytes of a message [in place](Message::is_in_place), by reference to
    /// the user's pages, like [`append`](Self::append). The caller has checked that no clone shares
    /// the buffer.
    pub(super) fn append_in_place(
        &mut self,
        sock: &RawSock,
        msg: &mut Message<'_>,
        len: usize,
    ) -> Result<usize> {
        let Some(notice) = msg.notice.as_ref().map(|notice| notice.raw) else {
            return Ok(0);
        };
        let queued = sock.write_queued().load(Relaxed);
        // SAFETY: All pointers are valid, the buffer is borrowed exclusively, and no clone shares
        // it. The function charges the memory to `sock` only if `sock` is a stream, so the type is
        // checked first. On failure the function leaves the buffer's data unchanged.
        let taken = unsafe {
            if u32::from((*sock.as_ptr()).sk_type) != SOCK_STREAM {
                return Err(EOPNOTSUPP);
            }
            bindings::skb_zerocopy_iter_stream(
                sock.as_ptr(),
                self.as_ptr(),
                msg.raw(),
                c_int::try_from(len).unwrap_or(c_int::MAX),
                notice.as_ptr(),
                ptr::null_mut(),
            )
        };
        // Undoes the change of `sk_wmem_queued` by `skb_zerocopy_iter_stream`, because the caller
        // charges the memory of this buffer like the memory of every other buffer.
        sock.write_queued().store(queued, Relaxed);
        // `FULL`: the buffer cannot refer to more pages. `OTHER`: the buffer refers to a different
        // notice.
        const FULL: c_int = -(bindings::EMSGSIZE as c_int);
        const OTHER: c_int = -(bindings::EEXIST as c_int);
        match taken {
            FULL | OTHER => Ok(0),
            taken => usize::try_from(taken).map_err(|_| Error::from_errno(taken)),
        }
    }
}

impl<P: Protocol<Kind = Datagram>> Sock<P> {
    /// Appends `len` bytes of a message [in place](Message::is_in_place) to `skb`, by reference to
    /// the user's pages. The pages are charged to the socket.
    ///
    /// # Errors
    ///
    /// `EFAULT` for memory that is not the user's. `EMSGSIZE` if the bytes lie in more pages than a
    /// buffer can refer to, or if the buffer is not charged to the socket. After an error the
    /// message is unchanged, and the buffer can only be freed.
    pub(crate) fn put_in_place(&self, skb: &mut Skb, msg: &mut Message<'_>, len: usize) -> Result {
        let Some(notice) = msg.notice.as_ref().map(|notice| notice.raw) else {
            return Err(EMSGSIZE);
        };
        let before = skb.len();
        // SAFETY: All pointers are valid, and the buffer is ours. The buffer is charged to this
        // socket, so the function may charge the pages to the socket, too. On failure
        // `iov_iter_revert` returns the `taken` bytes to the message.
        unsafe {
            if !ptr::eq(skb.owner(), self.as_ptr()) || skb.is_cloned() {
                return Err(EMSGSIZE);
            }
            bindings::skb_set_notice(skb.as_ptr(), notice.as_ptr());
            let code = bindings::__zerocopy_sg_from_iter(
                msg.raw(),
                self.as_ptr(),
                skb.as_ptr(),
                msg.iter(),
                len,
                ptr::null_mut(),
            );
            let taken = skb.len().wrapping_sub(before);
            if code == 0 && taken == len {
                return Ok(());
            }
            bindings::iov_iter_revert(msg.iter(), taken);
            Err(if code == 0 {
                EFAULT
            } else {
                Error::from_errno(code)
            })
        }
    }
}
