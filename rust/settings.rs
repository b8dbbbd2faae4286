// SPDX-License-Identifier: GPL-2.0

//! Options that users set by `setsockopt`, which the core stores and the protocol reads.
//!
//! The core stores some of it without the socket's lock, so it is read in single loads. The buffers'
//! limits are in [`super::limits`].
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    bindings,
    skb::Skb,
    sock::{field, RawSock},
};
use core::{
    ptr,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};
use kernel::ffi::{c_int, c_long};

impl RawSock {
    /// The time `SO_LINGER` asks close to wait, in jiffies; `None` if it is off. A descriptor that is
    /// closed because its process ends need not wait, see [`super::sock::task_is_exiting`].
    pub(crate) fn linger(&self) -> Option<c_long> {
        // SAFETY: Reads a flag and a number of a valid socket, which `close` has locked.
        unsafe {
            bindings::sock_flag(self.as_ptr(), bindings::sock_flags_SOCK_LINGER)
                .then(|| (*self.as_ptr()).sk_lingertime as c_long)
        }
    }

    /// `SO_RCVTIMEO` in jiffies, 0 for a call that must not block.
    #[inline]
    pub(crate) fn receive_timeout(&self, nonblocking: bool) -> c_long {
        if nonblocking {
            return 0;
        }
        // SAFETY: A single load, as the core does it.
        unsafe { ptr::read_volatile(field!(self, sk_rcvtimeo)) as c_long }
    }

    /// `SO_SNDTIMEO` in jiffies, 0 for a call that must not block.
    #[inline]
    pub(crate) fn send_timeout(&self, nonblocking: bool) -> c_long {
        if nonblocking {
            return 0;
        }
        // SAFETY: A single load, as the core does it.
        unsafe { ptr::read_volatile(field!(self, sk_sndtimeo)) as c_long }
    }

    /// Bytes that make a read return: all of `len` with `MSG_WAITALL`, else `SO_RCVLOWAT`.
    #[inline]
    pub(crate) fn low_water(&self, all: bool, len: usize) -> usize {
        if all {
            return len;
        }
        // SAFETY: A single load, as the core does it.
        let mark = unsafe { ptr::read_volatile(field!(self, sk_rcvlowat)) };
        len.min(mark.max(1) as usize)
    }

    /// Sets `SO_RCVLOWAT`, bytes.
    pub(crate) fn set_low_water(&self, mark: c_int) {
        // SAFETY: An aligned word in a valid socket, written in one store as the core does it.
        let cell = unsafe { AtomicI32::from_ptr(field!(self, sk_rcvlowat)) };
        cell.store(mark.max(1), Relaxed);
    }

    /// `SO_PEEK_OFF`: where a look at the queue starts, bytes from its head.
    #[inline]
    pub(crate) fn peek_offset(&self) -> usize {
        // SAFETY: A single load, as the core does it; negative is off.
        unsafe { ptr::read_volatile(field!(self, sk_peek_off)).max(0) as usize }
    }

    /// Moves `SO_PEEK_OFF`, if it is on: forward by the `n` bytes that a look returned, or back by
    /// those that were taken from the head.
    #[inline]
    pub(crate) fn move_peek_offset(&self, peeked: bool, n: usize) {
        // SAFETY: As in `peek_offset`.
        if unsafe { ptr::read_volatile(field!(self, sk_peek_off)) } < 0 {
            return;
        }
        let n = c_int::try_from(n).unwrap_or(c_int::MAX);
        let back = if peeked { -n } else { n };
        // SAFETY: The socket is valid; the function does nothing when the offset is off.
        unsafe { bindings::sk_peek_offset_bwd(self.as_ptr(), back) };
    }

    /// `SO_BINDTODEVICE`: the index of the only device to use, or 0.
    #[inline]
    pub(crate) fn bound_device(&self) -> u32 {
        // SAFETY: A single load, as the core does it.
        unsafe { ptr::read_volatile(field!(self, __sk_common.skc_bound_dev_if)).max(0) as u32 }
    }

    /// `SO_PRIORITY`.
    #[inline]
    pub(crate) fn priority(&self) -> u32 {
        // SAFETY: The socket is valid for the borrow. Another task may set the field meanwhile: it is an aligned
        // word, which is read by a single load, as the core reads it without the lock.
        unsafe { ptr::read_volatile(field!(self, sk_priority)) }
    }

    /// Whether the socket may get frames that came by device `ifindex` (`SO_BINDTODEVICE`).
    #[inline]
    pub(crate) fn hears(&self, ifindex: u32) -> bool {
        let tie = self.bound_device();
        tie == 0 || tie == ifindex
    }

    /// `SO_REUSEADDR`.
    pub(crate) fn shares_address(&self) -> bool {
        // SAFETY: Reads a flag of a valid socket, as the core does without the lock.
        unsafe { bindings::sk_reuse(self.as_ptr()) }
    }

    /// Whether a reader asked to learn when packets came (`SO_TIMESTAMP` and its like).
    #[inline]
    pub(crate) fn wants_times(&self) -> bool {
        // SAFETY: A single load, as the core does it.
        let times = unsafe { ptr::read_volatile(field!(self, sk_tsflags)) };
        times != 0 || self.has_flag(bindings::sock_flags_SOCK_RCVTSTAMP)
    }

    /// Whether queueing disciplines look at the socket of its frames: to report what leaves too late
    /// (`SO_TXTIME`), or to keep to its rate (`SO_MAX_PACING_RATE`).
    #[inline]
    pub(crate) fn owns_frames(&self) -> bool {
        // SAFETY: A single load, as the core does it.
        let pacing = unsafe { ptr::read_volatile(field!(self, sk_pacing_status)) };
        pacing != 0 || self.has_flag(bindings::sock_flags_SOCK_TXTIME)
    }

    /// Whether the socket's filter (`SO_ATTACH_FILTER`) and the security modules let `skb` in. A
    /// filter may cut it, but not into its first `header` bytes.
    #[inline]
    pub(crate) fn filter(&self, skb: &mut Skb, header: usize) -> bool {
        // SAFETY: Both are valid; a filter may trim the buffer, which is ours.
        unsafe { bindings::sk_filter(self.as_ptr(), skb.as_ptr(), header as u32) }
    }
}
