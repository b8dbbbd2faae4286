// SPDX-License-Identifier: GPL-2.0

//! Wakes tasks that wait on a socket, in a call or in `poll`, and sends `SIGIO`. Sleeping is in
//! [`super::wait`].
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    bindings,
    family::Call,
    sock::{Protocol, RawSock},
    uapi,
};
use core::ptr;
use kernel::ffi::{c_int, c_uint};

impl RawSock {
    /// Wakes tasks that wait for an error.
    pub(crate) fn wake_error(&self) {
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The function calls a callback
        // that the core, or other kernel code, has set.
        unsafe { bindings::sk_error_report(self.as_ptr()) };
    }

    /// Wakes readers.
    #[inline]
    pub(crate) fn data_ready(&self) {
        // SAFETY: `sock_init_data` or other kernel code has set the callback, which takes the
        // socket as argument. The callback is read in a single load, as the core reads it, since
        // other kernel code may replace it.
        unsafe {
            if let Some(ready) = ptr::read_volatile(&raw const (*self.as_ptr()).sk_data_ready) {
                ready(self.as_ptr());
            }
        }
    }

    /// Wakes all waiters, after a change of state.
    pub(crate) fn state_change(&self) {
        // SAFETY: `sock_init_data` or other kernel code has set the callback, which takes the
        // socket as argument. The callback is read in a single load, as the core reads it, since
        // other kernel code may replace it.
        unsafe {
            if let Some(change) = ptr::read_volatile(&raw const (*self.as_ptr()).sk_state_change) {
                change(self.as_ptr());
            }
        }
    }

    /// Signals `SIGIO` owners that the peer has ended its half of the stream.
    pub(crate) fn signal_end(&self) {
        let both = self.shutdown() == uapi::SHUTDOWN_MASK;
        let band = if both {
            bindings::POLL_HUP
        } else {
            bindings::POLL_IN
        };
        self.signal(bindings::SOCK_WAKE_WAITD, band);
    }

    /// Signals `SIGIO` owners that the requested connection is established.
    pub(crate) fn signal_connected(&self) {
        self.signal(bindings::SOCK_WAKE_IO, bindings::POLL_OUT);
    }

    /// Signals an error to `SIGIO` owners only. Waiting tasks are woken separately.
    pub(crate) fn signal_error(&self) {
        self.signal(bindings::SOCK_WAKE_IO, bindings::POLL_ERR);
    }

    fn signal(&self, how: c_uint, band: c_uint) {
        // SAFETY: By the invariant of `RawSock`, the socket is valid.
        unsafe { bindings::sk_wake_async(self.as_ptr(), how as c_int, band as c_int) };
    }

    /// Sends `SIGPIPE` to the calling task.
    pub(crate) fn broken_pipe(&self) {
        // SAFETY: A send call, in process context, calls this.
        unsafe { bindings::send_sigpipe() };
    }

    /// Wakes writers and signals `SIGIO` owners, since the send buffer has room.
    pub(super) fn signal_write_space(&self) {
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The helpers check whether it
        // has a wait queue.
        unsafe {
            bindings::sk_wake(
                self.as_ptr(),
                uapi::EPOLLOUT | uapi::EPOLLWRNORM | uapi::EPOLLWRBAND,
            );
            bindings::sk_wake_async(
                self.as_ptr(),
                bindings::SOCK_WAKE_SPACE as c_int,
                bindings::POLL_OUT as c_int,
            );
        }
    }
}

impl<P: Protocol> Call<'_, P> {
    /// Sets whether to suppress the `SIGIO` that announces data, as is done while a task sleeps in
    /// `recv`.
    #[inline]
    pub(crate) fn suppress_data_signals(&self, suppress: bool) {
        // The core's functions test `SOCK_FASYNC`, too. Testing it here saves two calls for each
        // message.
        if !self.has_flag(bindings::sock_flags_SOCK_FASYNC) {
            return;
        }
        let bit = bindings::socket_flags_SOCKWQ_ASYNC_WAITDATA as c_int;
        // SAFETY: A running call holds the descriptor, and so its wait queue.
        unsafe {
            if suppress {
                bindings::sk_set_bit(self.as_ptr(), bit);
            } else {
                bindings::sk_clear_bit(self.as_ptr(), bit);
            }
        }
    }

    /// Requests a wake-up (`EPOLLOUT`, `SIGIO`) when the send buffer has room again. The caller
    /// must check for room once more after this call. Then either that check sees the room, or the
    /// wake-up follows.
    #[inline]
    pub(crate) fn want_write_space(&self) {
        // SAFETY: A running call holds the descriptor, and so its wait queue.
        unsafe {
            bindings::sk_set_bit(
                self.as_ptr(),
                bindings::socket_flags_SOCKWQ_ASYNC_NOSPACE as c_int,
            );
            bindings::sk_set_nospace(self.as_ptr());
        }
    }

    /// Works like [`want_write_space`](Self::want_write_space), but for a task that is about to
    /// sleep and needs no signal.
    #[inline]
    pub(crate) fn await_write_space(&self) {
        // SAFETY: A running call holds the descriptor, and so its wait queue.
        unsafe {
            bindings::sk_clear_bit(
                self.as_ptr(),
                bindings::socket_flags_SOCKWQ_ASYNC_NOSPACE as c_int,
            );
            bindings::sk_set_nospace(self.as_ptr());
        }
    }
}
