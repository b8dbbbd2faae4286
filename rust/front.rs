// SPDX-License-Identifier: GPL-2.0

//! The pending error, the error queue and other fields that the core reads on behalf of a
//! descriptor. A companion shares the descriptor of a TCP socket, which is [in front](super::inet)
//! of the companion. For a companion, this file accesses the fields of that TCP socket instead of
//! the companion's own.
//!
//! Only a socket of this module's protocols has a front. The pointer to the front is
//! `sk_user_data`. On other sockets this field has other purposes. On a TCP socket, the field
//! belongs to kernel code, such as `KCM` or a sockmap, that has attached to the socket.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    allocation::{Context, Flags},
    bindings, queue,
    sock::{field, Protocol, RawSock, Sock},
    uapi,
};
use crate::net::errno::prelude::*;
use core::{
    ptr,
    sync::atomic::{
        fence, AtomicI32,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use kernel::ffi::{c_int, c_long};

fn set(cell: &AtomicI32, error: Error) {
    cell.store(-error.to_errno(), Relaxed);
    fence(Release);
}

#[inline]
fn take(cell: &AtomicI32) -> Result {
    match cell.swap(0, Relaxed) {
        0 => Ok(()),
        errno => Err(Error::from_errno(-errno)),
    }
}

impl<P: Protocol> Sock<P> {
    /// If this is a companion, returns the TCP socket whose descriptor it shares (its *front*).
    /// Otherwise, returns this socket. The result is valid as long as this socket, since a
    /// companion holds its front until the companion is destructed.
    #[inline]
    pub(super) fn front(&self) -> *mut bindings::sock {
        // SAFETY: The socket is valid, and the field is read in a single load. Only `super::inet`
        // writes this field in a socket of `P`.
        let front = unsafe { ptr::read_volatile(field!(self, sk_user_data)) };
        if front.is_null() {
            self.as_ptr()
        } else {
            front.cast()
        }
    }

    /// Returns the TCP socket whose descriptor this companion shares, or `None` if this is no
    /// companion.
    pub(super) fn tcp_front(&self) -> Option<&RawSock> {
        let front = self.front();
        if front == self.as_ptr() {
            return None;
        }
        // SAFETY: A companion holds a reference to the socket in front of it until the companion is
        // destructed.
        Some(unsafe { RawSock::from_raw(front) })
    }

    /// Returns how a call on the socket allocates memory (`sk_allocation`). For a companion, the
    /// field of the TCP socket in front applies. Kernel code that uses the descriptor knows only
    /// that socket, and sets the field there.
    #[inline]
    pub(crate) fn task_context(&self) -> Context {
        // SAFETY: The socket is valid, and the field is read in a single load.
        let flags = unsafe { ptr::read_volatile(&raw const (*self.front()).sk_allocation) };
        Context::Task(Flags::of_socket(flags))
    }

    /// Returns the page fragment of the running task. Returns null if kernel code has cleared
    /// `sk_use_task_frag` of the socket in front, because memory reclaim uses that socket. In that
    /// case an outer call of the same task may be using the fragment.
    #[inline]
    pub(super) fn task_pages(&self) -> *mut bindings::page_frag {
        // SAFETY: The socket is valid.
        unsafe { bindings::sk_task_frag(self.front()) }
    }

    /// Returns `SO_RCVTIMEO` in jiffies, 0 for a call that must not block.
    #[inline]
    pub(crate) fn receive_timeout(&self, nonblocking: bool) -> c_long {
        // SAFETY: The socket in front is valid as long as this one, which is borrowed.
        unsafe { RawSock::from_raw(self.front()) }.receive_timeout(nonblocking)
    }

    /// Returns `SO_SNDTIMEO` in jiffies, 0 for a call that must not block.
    #[inline]
    pub(crate) fn send_timeout(&self, nonblocking: bool) -> c_long {
        // SAFETY: The socket in front is valid as long as this one, which is borrowed.
        unsafe { RawSock::from_raw(self.front()) }.send_timeout(nonblocking)
    }

    /// Returns the pending error.
    #[inline]
    fn error_cell(&self) -> &AtomicI32 {
        // SAFETY: The field is an aligned word of a socket that is valid as long as this one.
        unsafe { AtomicI32::from_ptr(ptr::addr_of_mut!((*self.front()).sk_err)) }
    }

    /// Returns whether an error is pending. If the caller read a connection state before this call,
    /// the result includes every error that was set before that state.
    #[inline]
    pub(crate) fn has_error(&self) -> bool {
        fence(Acquire);
        self.error_cell().load(Relaxed) != 0
    }

    /// Returns whether `error` is pending, and does not take it. If the caller read a connection
    /// state before this call, the result includes an error that was set before that state.
    pub(crate) fn is_pending(&self, error: Error) -> bool {
        fence(Acquire);
        self.error_cell().load(Relaxed) == -error.to_errno()
    }

    /// Takes the pending error, if any.
    #[inline]
    pub(crate) fn take_error(&self) -> Result {
        take(self.error_cell())
    }

    /// Stores an error for the next call. The caller must set the error before it sets the failed
    /// connection state. Otherwise a lockless reader of both could see a failed state without an
    /// error.
    pub(crate) fn set_error(&self, error: Error) {
        set(self.error_cell(), error);
    }

    /// Stores an error that only [`take_own_error`](Self::take_own_error) returns. On a companion,
    /// calls on the TCP socket in front of it do not see this error.
    pub(crate) fn set_own_error(&self, error: Error) {
        set(self.own_error_cell(), error);
    }

    /// Takes the error that [`set_own_error`](Self::set_own_error) stored, if any. On a socket that
    /// is not a companion, this is the pending error.
    pub(crate) fn take_own_error(&self) -> Result {
        take(self.own_error_cell())
    }

    fn own_error_cell(&self) -> &AtomicI32 {
        // SAFETY: The field is an aligned word of this socket.
        unsafe { AtomicI32::from_ptr(field!(self, sk_err)) }
    }

    /// Stores an error for the next call and wakes tasks that wait for errors.
    pub(crate) fn report_error(&self, error: Error) {
        self.set_error(error);
        self.wake_error();
    }

    /// Returns whether the error queue has reports. The zero-copy notifications of a companion are
    /// in the queue of the TCP socket in front of it.
    #[inline]
    pub(super) fn has_reports(&self) -> bool {
        // SAFETY: The queues are parts of valid sockets.
        unsafe {
            !queue::is_empty(field!(self, sk_error_queue))
                || !queue::is_empty(ptr::addr_of_mut!((*self.front()).sk_error_queue))
        }
    }

    /// Returns the readiness that errors cause: a pending error, or reports in the error queue.
    #[inline]
    pub(crate) fn error_readiness(&self) -> u32 {
        if self.has_reports() || self.has_error() {
            uapi::EPOLLERR
        } else {
            0
        }
    }

    /// Copies the processor and the device queue of this companion's last packet to the TCP socket
    /// in front of it. Users read them there (`SO_INCOMING_CPU`, `SO_INCOMING_NAPI_ID`).
    pub(super) fn show_arrival(&self) {
        // SAFETY: Both sockets are valid. The function makes single loads and stores, like the
        // core.
        unsafe { bindings::sk_show_arrival(self.front(), self.as_ptr()) };
    }

    /// Returns `SO_PEEK_OFF`: where `MSG_PEEK` starts reading, in bytes from the head of the queue.
    /// Returns `None` if the option is off.
    #[inline]
    pub(crate) fn peek_offset(&self) -> Option<u32> {
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        let offset = unsafe { ptr::read_volatile(&raw const (*self.front()).sk_peek_off) };
        offset.try_into().ok()
    }

    /// Moves `SO_PEEK_OFF`, if it is on. After a peek of `n` bytes it moves forward by `n`. After
    /// `n` bytes were received from the head, it moves back by `n`.
    #[inline]
    pub(crate) fn move_peek_offset(&self, peeked: bool, n: usize) {
        let sk = self.front();
        // SAFETY: The socket is valid. The field is read in a single load, as the core reads it.
        if unsafe { ptr::read_volatile(&raw const (*sk).sk_peek_off) } < 0 {
            return;
        }
        let n = c_int::try_from(n).unwrap_or(c_int::MAX);
        let back = if peeked { -n } else { n };
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The function does nothing if
        // `SO_PEEK_OFF` is off.
        unsafe { bindings::sk_peek_offset_bwd(sk, back) };
    }
}
