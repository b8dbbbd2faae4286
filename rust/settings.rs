// SPDX-License-Identifier: GPL-2.0

//! Options that users set by `setsockopt`; the core stores them and the protocol reads them.
//!
//! The core stores some of these options without the socket lock, so the options are read in single
//! loads. The limits of the buffers are in [`super::limits`].
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    bindings,
    family::SOCK_SEQPACKET,
    skb::Skb,
    sock::{field, Protocol, RawSock, Sock},
};
use core::{
    ptr,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};
use kernel::ffi::{c_int, c_long};

impl RawSock {
    /// Returns whether the socket is of type `SOCK_SEQPACKET`.
    #[inline]
    pub(crate) fn keeps_records(&self) -> bool {
        // SAFETY: The field was written before the socket was shared, and does not change.
        unsafe { u32::from((*self.as_ptr()).sk_type) == SOCK_SEQPACKET }
    }

    /// Returns how long `close` waits because of `SO_LINGER`, in jiffies. Returns `None` if the
    /// option is off. A `close` by an exiting task need not wait: see
    /// [`super::sock::task_is_exiting`].
    pub(crate) fn linger(&self) -> Option<c_long> {
        // SAFETY: The code only reads a flag and a number of a valid socket, which `close` has
        // locked.
        unsafe {
            bindings::sock_flag(self.as_ptr(), bindings::sock_flags_SOCK_LINGER)
                .then(|| (*self.as_ptr()).sk_lingertime as c_long)
        }
    }

    /// Returns `SO_RCVTIMEO` in jiffies, 0 for a call that must not block.
    #[inline]
    pub(crate) fn receive_timeout(&self, nonblocking: bool) -> c_long {
        if nonblocking {
            return 0;
        }
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        unsafe { ptr::read_volatile(field!(self, sk_rcvtimeo)) as c_long }
    }

    /// Returns `SO_SNDTIMEO` in jiffies, 0 for a call that must not block.
    #[inline]
    pub(crate) fn send_timeout(&self, nonblocking: bool) -> c_long {
        if nonblocking {
            return 0;
        }
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        unsafe { ptr::read_volatile(field!(self, sk_sndtimeo)) as c_long }
    }

    /// Returns the number of bytes after which a read returns: all of `len` with `MSG_WAITALL`, or
    /// else `SO_RCVLOWAT`.
    #[inline]
    pub(crate) fn low_water(&self, all: bool, len: usize) -> usize {
        if all {
            return len;
        }
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        let mark = unsafe { ptr::read_volatile(field!(self, sk_rcvlowat)) };
        len.min(mark.max(1) as usize)
    }

    /// Sets `SO_RCVLOWAT`, in bytes.
    pub(crate) fn set_low_water(&self, mark: c_int) {
        // SAFETY: The field is an aligned word in a valid socket, and is written in a single store,
        // as in the core.
        let cell = unsafe { AtomicI32::from_ptr(field!(self, sk_rcvlowat)) };
        cell.store(mark.max(1), Relaxed);
    }

    /// Returns `SO_BINDTODEVICE`: the index of the only device to use, or 0.
    #[inline]
    pub(crate) fn bound_device(&self) -> u32 {
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        unsafe { ptr::read_volatile(field!(self, __sk_common.skc_bound_dev_if)).max(0) as u32 }
    }

    /// Returns `SO_PRIORITY`.
    #[inline]
    pub(crate) fn priority(&self) -> u32 {
        // SAFETY: By the invariant of `RawSock`, the socket is valid for the borrow. Another task
        // may set the field at the same time. It is an aligned word, which is read in a single
        // load, as the core reads it without the lock.
        unsafe { ptr::read_volatile(field!(self, sk_priority)) }
    }

    /// Returns whether the socket may get frames received by device `ifindex` (`SO_BINDTODEVICE`).
    #[inline]
    pub(crate) fn accepts_device(&self, ifindex: u32) -> bool {
        let tie = self.bound_device();
        tie == 0 || tie == ifindex
    }

    /// Returns whether `SO_REUSEADDR` is set.
    pub(crate) fn shares_address(&self) -> bool {
        // SAFETY: The function only reads a flag of a valid socket, as the core does without the
        // lock.
        unsafe { bindings::sk_reuse(self.as_ptr()) }
    }

    /// Returns whether a reader asked for the timestamps of packets (`SO_TIMESTAMP` and the like).
    #[inline]
    pub(crate) fn wants_times(&self) -> bool {
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        let times = unsafe { ptr::read_volatile(field!(self, sk_tsflags)) };
        times != 0 || self.has_flag(bindings::sock_flags_SOCK_RCVTSTAMP)
    }

    /// Returns whether queueing disciplines need this socket as the owner of its frames. They need
    /// it to report frames that are too late (`SO_TXTIME`), or to pace frames
    /// (`SO_MAX_PACING_RATE`). Frames with timestamps need an owner, too, but this function does
    /// not consider timestamps.
    #[inline]
    pub(crate) fn owns_frames(&self) -> bool {
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        let pacing = unsafe { ptr::read_volatile(field!(self, sk_pacing_status)) };
        pacing != 0 || self.has_flag(bindings::sock_flags_SOCK_TXTIME)
    }

    /// Returns whether a filter is attached (`SO_ATTACH_FILTER` and the like).
    pub(super) fn has_filter(&self) -> bool {
        // SAFETY: The pointer is read in a single load, and is not dereferenced.
        unsafe { !ptr::read_volatile(field!(self, sk_filter)).is_null() }
    }

    /// Copies the socket-level options that users have set on `other`, in single loads and stores.
    ///
    /// # Safety
    ///
    /// No one else writes this socket's flags: it is locked, or no one else has a reference.
    unsafe fn copy_options(&self, other: &RawSock) {
        const FLAGS: [bindings::sock_flags; 10] = [
            bindings::sock_flags_SOCK_LINGER,
            bindings::sock_flags_SOCK_KEEPOPEN,
            bindings::sock_flags_SOCK_URGINLINE,
            bindings::sock_flags_SOCK_LOCALROUTE,
            bindings::sock_flags_SOCK_RCVTSTAMP,
            bindings::sock_flags_SOCK_RCVTSTAMPNS,
            bindings::sock_flags_SOCK_TSTAMP_NEW,
            bindings::sock_flags_SOCK_SELECT_ERR_QUEUE,
            bindings::sock_flags_SOCK_ZEROCOPY,
            bindings::sock_flags_SOCK_TXTIME,
        ];
        macro_rules! copy {
            ($($field:ident)+) => {
                // SAFETY: The pointers are to the same field of two valid sockets. The field is a
                // number, which the core also reads and writes at any time.
                $(unsafe {
                    ptr::write_volatile(field!(self, $field), ptr::read_volatile(field!(other, $field)));
                })+
            };
        }
        if other.numbers_stamps() && !self.numbers_stamps() {
            self.restart_stamps();
        }
        copy! {
            sk_rcvtimeo sk_sndtimeo sk_lingertime sk_priority sk_mark sk_ll_usec sk_bind_phc sk_tsflags
            sk_max_pacing_rate sk_pacing_status sk_clockid
        }
        // SAFETY: The pointers are to the same field of two valid sockets. The field is a number,
        // which the core also reads and writes at any time.
        unsafe {
            let device = ptr::read_volatile(field!(other, __sk_common.skc_bound_dev_if));
            ptr::write_volatile(field!(self, __sk_common.skc_bound_dev_if), device);
        }
        // SAFETY: The function copies two bits, which share their byte with no other field. Both
        // sockets are valid, and by the caller's promise no one else writes the byte in this
        // socket.
        unsafe { bindings::sk_inherit_txtime(self.as_ptr(), other.as_ptr()) };
        for flag in FLAGS {
            // SAFETY: By the caller's promise, no one else writes the flags.
            unsafe { bindings::sock_valbool_flag(self.as_ptr(), flag, other.has_flag(flag)) };
        }
        // SAFETY: `other` is valid, and the field is read in a single load. Only limits that a user
        // has set are copied.
        let locks = unsafe { ptr::read_volatile(field!(other, sk_userlocks)) };
        let limits = locks & (bindings::SOCK_SNDBUF_LOCK | bindings::SOCK_RCVBUF_LOCK) as u8;
        if limits & bindings::SOCK_SNDBUF_LOCK as u8 != 0 {
            copy!(sk_sndbuf);
        }
        if limits & bindings::SOCK_RCVBUF_LOCK as u8 != 0 {
            copy!(sk_rcvbuf);
        }
        // SAFETY: By the caller's promise, this socket is locked, or no one else has a reference to
        // it.
        unsafe {
            let own = field!(self, sk_userlocks);
            let others = *own & !((bindings::SOCK_SNDBUF_LOCK | bindings::SOCK_RCVBUF_LOCK) as u8);
            *own = others | limits;
        }
    }

    /// Gives this new TCP socket the options that a child of `listener` inherits.
    ///
    /// # Safety
    ///
    /// Both are TCP sockets, and no one else has a reference to this one.
    pub(super) unsafe fn inherit_options(&self, listener: &RawSock) {
        // SAFETY: By the caller's promise, both are TCP sockets, and no one else has a reference to
        // this one.
        unsafe {
            self.copy_options(listener);
            bindings::tcp_inherit(self.as_ptr(), listener.as_ptr());
            bindings::sk_inherit_times(self.as_ptr(), listener.as_ptr());
            bindings::sk_inherit_busy_poll(self.as_ptr(), listener.as_ptr());
            self.join_group(listener);
        }
    }

    /// Returns whether the socket's filter (`SO_ATTACH_FILTER`) and the security modules accept
    /// `skb`. A filter may truncate `skb`, but keeps its first `header` bytes.
    #[inline]
    pub(crate) fn filter(&self, skb: &mut Skb, header: usize) -> bool {
        // SAFETY: The socket and the buffer are valid. A filter may trim the buffer, which is
        // borrowed exclusively.
        unsafe { bindings::sk_filter(self.as_ptr(), skb.as_ptr(), header as u32) }
    }
}

impl<P: Protocol> Sock<P> {
    /// Copies the options of `front`, the TCP socket whose descriptor this companion shares.
    /// Returns `SO_RCVLOWAT` if the option has changed, so that the protocol can apply it.
    ///
    /// Wakes writers if the send buffer has become larger. The core already woke writers when it
    /// raised `SO_SNDBUF` of `front`. But since then a writer may have run, found the limit of this
    /// socket unchanged, and gone back to sleep.
    pub(super) fn adopt_options(&self, front: &RawSock) -> Option<c_int> {
        let mut guard = self.lock();
        let before = self.send_limit();
        // SAFETY: The lock is held.
        unsafe {
            self.copy_options(front);
            // The flag is set unconditionally, because it only permits `SIGIO`. The core sends the
            // signal to the owners that the descriptor lists.
            bindings::sock_set_flag(self.as_ptr(), bindings::sock_flags_SOCK_FASYNC);
            bindings::sk_inherit_busy_poll(self.as_ptr(), front.as_ptr());
            // The queueing discipline reads the rate from `sk_pacing_rate`. TCP computes this rate
            // with each acknowledgement, up to `SO_MAX_PACING_RATE`. This protocol computes no
            // rate, so the limit is the rate.
            let limit = ptr::read_volatile(field!(front, sk_max_pacing_rate));
            ptr::write_volatile(field!(self, sk_pacing_rate), limit);
        }
        if self.send_limit() > before {
            guard.locked().wake_writers();
        }
        // SAFETY: Both sockets are valid, and the fields are read in single loads.
        let (mark, own) = unsafe {
            (
                ptr::read_volatile(field!(front, sk_rcvlowat)),
                ptr::read_volatile(field!(self, sk_rcvlowat)),
            )
        };
        (mark != own).then_some(mark)
    }
}
