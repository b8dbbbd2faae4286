// SPDX-License-Identifier: GPL-2.0

//! Timestamps of sent data (`SO_TIMESTAMPING`). As in TCP, a request for a timestamp is stored in
//! the part that a buffer shares with its clones. The core takes a timestamp before the frame
//! enters the queueing discipline, and the driver takes one when the frame is sent. Both queue a
//! report for the buffer's socket. The protocol reports acknowledgements.
//!
//! C headers: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h) (`SKBTX_*`),
//! [`net/core/skbuff.c`](srctree/net/core/skbuff.c) (`__skb_tstamp_tx`)

use super::{
    bindings::{self, ENET_STAMP_CHOSEN, ENET_STAMP_NUMBERS},
    message::Message,
    skb::{Buffer, Skb},
    sock::{field, Protocol, RawSock, Sock},
};
use crate::net::errno::prelude::*;
use core::{
    mem, ptr,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};
use kernel::ffi::c_int;

/// The flags of all stages of transmission that can have a timestamp.
const STAGES: u32 = bindings::ENET_STAMP_STAGES;

/// The timestamps that a send call requests, by its control messages or else by the socket's
/// option. The default requests none.
#[derive(Clone, Copy, Default)]
pub(crate) struct StampRequest {
    flags: u32,
    /// The number that the call has chosen for the message (`SCM_TS_OPT_ID`).
    chosen: u32,
}

impl StampRequest {
    /// Checks the request for a stream. The numbers of a stream count bytes, so a call cannot
    /// choose a number.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a number chosen by the call (`SCM_TS_OPT_ID`).
    pub(crate) fn of_bytes(self) -> Result<Self> {
        if self.flags & ENET_STAMP_CHOSEN != 0 {
            return Err(EINVAL);
        }
        Ok(self)
    }

    /// Returns whether the call requests neither timestamps nor numbers.
    #[inline]
    pub(crate) fn is_nothing(self) -> bool {
        self.flags == 0
    }

    /// Counts the `bytes` bytes that a call on the stream `sock` has sent. Returns the request for
    /// a timestamp of the last byte, if there is one.
    pub(crate) fn stamp_bytes(self, sock: &RawSock, bytes: u32) -> Option<Stamp> {
        let mut number = 0;
        if self.flags & ENET_STAMP_NUMBERS != 0 {
            number = sock
                .count_stamped(bytes)
                .wrapping_add(bytes)
                .wrapping_sub(1);
        }
        self.stamp(number)
    }

    /// Returns the timestamp requested for a message that a call on `sock` has sent, if any. Counts
    /// the message only if the socket numbers its timestamps and the call has not chosen the
    /// number.
    pub(crate) fn stamp_message(self, sock: &RawSock) -> Option<Stamp> {
        if self.flags & STAGES == 0 {
            return None;
        }
        let number = if self.flags & ENET_STAMP_CHOSEN != 0 {
            self.chosen
        } else if self.flags & ENET_STAMP_NUMBERS != 0 {
            sock.count_stamped(1)
        } else {
            0
        };
        self.stamp(number)
    }

    fn stamp(self, number: u32) -> Option<Stamp> {
        let flags = self.flags & STAGES;
        (flags != 0).then_some(Stamp { flags, number })
    }
}

/// A timestamp requested for a buffer.
pub(crate) struct Stamp {
    flags: u32,
    number: u32,
}

impl Message<'_> {
    /// Returns the timestamps that the send call on `sock` requests.
    ///
    /// # Errors
    ///
    /// The errors of [`cookie`](Self::cookie).
    #[cold]
    #[inline(never)]
    pub(crate) fn stamp_request(&mut self, sock: &RawSock) -> Result<StampRequest> {
        let cookie = self.cookie(sock)?;
        // SAFETY: The pointer comes from a borrowed `Cookie`, hence is valid.
        let (flags, chosen) = unsafe { ((*cookie.as_ptr()).tsflags, (*cookie.as_ptr()).ts_opt_id) };
        Ok(StampRequest {
            flags: flags & (STAGES | ENET_STAMP_NUMBERS | ENET_STAMP_CHOSEN),
            chosen,
        })
    }
}

impl RawSock {
    #[inline]
    fn stamp_flags(&self) -> u32 {
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        unsafe { ptr::read_volatile(field!(self, sk_tsflags)) }
    }

    /// Returns whether the socket's option requests timestamps of sent data, or numbers for them.
    #[inline]
    pub(crate) fn wants_stamps(&self) -> bool {
        self.stamp_flags() & (STAGES | ENET_STAMP_NUMBERS) != 0
    }

    fn stamp_counter(&self) -> &AtomicI32 {
        // SAFETY: The field is an aligned word in a valid socket, and the core also accesses it
        // only atomically.
        unsafe { AtomicI32::from_ptr(field!(self, sk_tskey.counter)) }
    }

    /// Counts `n` further bytes or messages. Returns the previous count.
    fn count_stamped(&self, n: u32) -> u32 {
        self.stamp_counter().fetch_add(n as i32, Relaxed) as u32
    }

    /// Restarts the numbers of the timestamps at zero.
    pub(super) fn restart_stamps(&self) {
        self.stamp_counter().store(0, Relaxed);
    }

    /// Returns whether the socket numbers its timestamps (`SOF_TIMESTAMPING_OPT_ID`).
    pub(super) fn numbers_stamps(&self) -> bool {
        self.stamp_flags() & ENET_STAMP_NUMBERS != 0
    }

    /// Turns on numbered timestamps (`SOF_TIMESTAMPING_OPT_ID`) on a TCP socket whose companion has
    /// the connection, before the core handles the option. The core itself rejects a change of this
    /// flag on a socket without a TCP connection. Returns the former flags, which the caller
    /// [restores](Self::undo_stamp_numbers) if the core rejects the other new flags. Returns `None`
    /// if nothing changes.
    pub(super) fn begin_stamp_numbers(&self) -> Option<u32> {
        // SAFETY: This runs in process context. The core also writes the flags under this lock.
        unsafe { bindings::lock_sock_nested(self.as_ptr(), 0) };
        let before = self.stamp_flags();
        let begins = before & ENET_STAMP_NUMBERS == 0;
        if begins {
            self.restart_stamps();
            self.store_stamp_flags(before | ENET_STAMP_NUMBERS);
        }
        // SAFETY: This function has locked the socket above.
        unsafe { bindings::release_sock(self.as_ptr()) };
        begins.then_some(before)
    }

    /// Undoes [`begin_stamp_numbers`](Self::begin_stamp_numbers).
    pub(super) fn undo_stamp_numbers(&self, before: u32) {
        // SAFETY: This runs in process context. The core also writes the flags under this lock.
        unsafe { bindings::lock_sock_nested(self.as_ptr(), 0) };
        if self.stamp_flags() == before | ENET_STAMP_NUMBERS {
            self.store_stamp_flags(before);
        }
        // SAFETY: This function has locked the socket above.
        unsafe { bindings::release_sock(self.as_ptr()) };
    }

    fn store_stamp_flags(&self, flags: u32) {
        // SAFETY: The field is an aligned word in a valid socket, and is written in a single store,
        // as in the core.
        unsafe { ptr::write_volatile(field!(self, sk_tsflags), flags) };
    }
}

impl<P: Protocol> Sock<P> {
    /// Returns the form of the control message that delivers a report: its level, its type, and the
    /// length of the address behind the error. The reports of a companion have the level and type
    /// that belong to the family of its TCP socket, and room for an address of this family.
    pub(super) fn report_kind(&self, level: c_int, kind: c_int) -> (c_int, c_int, usize) {
        const AF_INET6: u16 = bindings::AF_INET6 as u16;
        let Some(front) = self.tcp_front() else {
            return (level, kind, 0);
        };
        let (level, kind, address) = match front.family() {
            AF_INET6 => (
                bindings::SOL_IPV6,
                bindings::IPV6_RECVERR,
                mem::size_of::<bindings::sockaddr_in6>(),
            ),
            _ => (
                bindings::SOL_IP,
                bindings::IP_RECVERR,
                mem::size_of::<bindings::sockaddr_in>(),
            ),
        };
        (level as c_int, kind as c_int, address)
    }
}

impl Buffer {
    /// Requests `stamp` for this buffer, which is kept until it is acknowledged. The buffer that is
    /// sent is a clone of this one, or gets the request by [`copy_stamp`](Self::copy_stamp).
    pub(crate) fn request_stamp(&mut self, stamp: &Stamp) {
        // SAFETY: The buffer is borrowed exclusively. Holders of clones may read the shared fields
        // at any time, in single loads. The helper does not write to the buffer's `skb::Words`.
        unsafe { bindings::skb_request_stamp(self.as_ptr(), stamp.flags, stamp.number) };
    }

    /// Returns whether a timestamp is requested.
    pub(crate) fn is_stamped(&self) -> bool {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid and borrowed.
        unsafe { bindings::skb_is_stamped(self.as_ptr()) }
    }

    /// Copies this buffer's request for a timestamp to `to`, which is sent with the last byte of
    /// this buffer.
    pub(crate) fn copy_stamp(&self, to: &mut Buffer) {
        // SAFETY: Both buffers are valid, and `to` is borrowed exclusively.
        unsafe { bindings::skb_copy_stamp(to.as_ptr(), self.as_ptr()) };
    }

    /// Moves this buffer's request for a timestamp to `to`, which now has the last byte.
    pub(crate) fn move_stamp(&mut self, to: &mut Buffer) {
        // SAFETY: Both buffers are borrowed exclusively.
        unsafe { bindings::skb_move_stamp(to.as_ptr(), self.as_ptr()) };
    }

    /// Reports that the peer has acknowledged the buffer, if such a report was requested.
    pub(crate) fn report_acknowledged<P: Protocol>(&self, sock: &Sock<P>) {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid, and so is the borrowed socket.
        unsafe { bindings::skb_report_acked(self.as_ptr(), sock.as_ptr()) };
    }
}

impl Skb {
    /// Makes `sock` the owner of the frame until the frame has been sent or is received on this
    /// host. The owner gets the reports on the frame, such as timestamps. Does nothing if the last
    /// reference to `sock` is gone, or while the module is being unloaded. Call this before
    /// `set_class`.
    ///
    /// The owner is never the socket in front of a companion. The owner's flags decide whether a
    /// report contains the frame, and are read when the report is queued. If the owner were TCP's
    /// socket, TCP's functions would read IP header fields in the frame.
    pub(crate) fn set_owner<P: Protocol>(&mut self, sock: &Sock<P>) {
        if let Some(held) = sock.try_hold().filter(|held| P::vtable().pin(held)) {
            // SAFETY: The buffer is ours. The held socket may own further buffers, and is freed
            // only after the buffers that it owns. Until then it is pinned, so the module stays
            // loaded.
            unsafe { bindings::skb_set_owner_w(self.as_ptr(), held.as_ptr()) };
        }
    }
}
