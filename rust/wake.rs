// SPDX-License-Identifier: GPL-2.0

//! Waking and signalling those who wait for something about a socket: in a call, in `poll`, or for
//! `SIGIO`. How a call sleeps is in [`super::wait`].
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{bindings, sock::RawSock, uapi};
use kernel::ffi::c_int;

impl RawSock {
    /// Wakes whoever waits for the error that was stored.
    pub(crate) fn wake_error(&self) {
        // SAFETY: The socket is valid; its callbacks are the core's.
        unsafe { bindings::sk_error_report(self.as_ptr()) };
    }

    /// Wakes readers.
    #[inline]
    pub(crate) fn data_ready(&self) {
        // SAFETY: The callback was set by `sock_init_data` and takes its own socket.
        unsafe {
            if let Some(ready) = (*self.as_ptr()).sk_data_ready {
                ready(self.as_ptr());
            }
        }
    }

    /// Wakes everyone, after a change of state.
    pub(crate) fn state_change(&self) {
        // SAFETY: As in `data_ready`.
        unsafe {
            if let Some(change) = (*self.as_ptr()).sk_state_change {
                change(self.as_ptr());
            }
        }
    }

    /// Tells `SIGIO` owners that the peer has ended its half of the stream.
    pub(crate) fn signal_end(&self) {
        let both = self.shutdown() == uapi::SHUTDOWN_MASK;
        let band = if both {
            bindings::POLL_HUP
        } else {
            bindings::POLL_IN
        };
        // SAFETY: The socket is valid.
        unsafe {
            bindings::sk_wake_async(
                self.as_ptr(),
                bindings::SOCK_WAKE_WAITD as c_int,
                band as c_int,
            )
        };
    }

    /// Tells `SIGIO` owners that the connection they asked for is there.
    pub(crate) fn signal_connected(&self) {
        // SAFETY: The socket is valid.
        unsafe {
            bindings::sk_wake_async(
                self.as_ptr(),
                bindings::SOCK_WAKE_IO as c_int,
                bindings::POLL_OUT as c_int,
            )
        };
    }

    /// Spares the socket's `SIGIO` owner the news of data while a task sleeps for it.
    #[inline]
    pub(crate) fn hush_data_signals(&self, hush: bool) {
        // The core's functions find out too, but there are two calls with each message.
        if !self.has_flag(bindings::sock_flags_SOCK_FASYNC) {
            return;
        }
        let bit = bindings::socket_flags_SOCKWQ_ASYNC_WAITDATA as c_int;
        // SAFETY: The socket has a caller, hence its descriptor and its wait queue.
        unsafe {
            if hush {
                bindings::sk_set_bit(self.as_ptr(), bit);
            } else {
                bindings::sk_clear_bit(self.as_ptr(), bit);
            }
        }
    }

    /// Sends `SIGPIPE` to the calling task.
    pub(crate) fn broken_pipe(&self) {
        // SAFETY: Process context, in a send call.
        unsafe { bindings::send_sigpipe() };
    }

    /// Has frames that leave free nobody's wait: the protocol itself wakes writers.
    pub(crate) fn wakes_writers_itself(&self) {
        // SAFETY: Sets a flag of a valid socket that nobody else uses yet.
        unsafe {
            bindings::sock_set_flag(self.as_ptr(), bindings::sock_flags_SOCK_USE_WRITE_QUEUE)
        };
    }

    /// Asks to be told (`EPOLLOUT`, `SIGIO`) when the send buffer has room again. Whoever looks for
    /// room after that sees what [`Self::wake_writers`] saw, or is woken by it.
    #[inline]
    pub(crate) fn want_write_space(&self) {
        // SAFETY: The socket is valid and, having a caller, has its descriptor and its wait queue.
        unsafe {
            bindings::sk_set_bit(
                self.as_ptr(),
                bindings::socket_flags_SOCKWQ_ASYNC_NOSPACE as c_int,
            );
            bindings::sk_set_nospace(self.as_ptr());
        }
    }

    /// Asks the same for a task that is about to sleep until then and needs no signal.
    #[inline]
    pub(crate) fn await_write_space(&self) {
        // SAFETY: As in `want_write_space`.
        unsafe {
            bindings::sk_clear_bit(
                self.as_ptr(),
                bindings::socket_flags_SOCKWQ_ASYNC_NOSPACE as c_int,
            );
            bindings::sk_set_nospace(self.as_ptr());
        }
    }

    /// Wakes writers, if any asked for room; the caller has the socket locked.
    #[inline]
    pub(crate) fn wake_writers(&self) {
        // SAFETY: The lock is held, so `sk_socket` stays; the helpers look whether it is there.
        unsafe {
            if bindings::sk_test_clear_nospace(self.as_ptr()) {
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
}
