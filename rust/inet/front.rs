// SPDX-License-Identifier: GPL-2.0

//! Operations on the TCP socket whose descriptor a companion shares. They return that socket's own
//! address, give it a port, and sleep on its wait queue. They read its state under its lock, so
//! that their memory accesses are ordered with those of other calls.
//!
//! C header: [`include/net/inet_sock.h`](srctree/include/net/inet_sock.h)

use super::*;
use crate::net::{
    sock::TcpState,
    wait::{self, Waiter},
};

/// Returns the local end of a TCP socket. An unbound address is unspecified, and an unbound port is
/// 0.
///
/// # Safety
///
/// The socket is TCP's.
unsafe fn own_end(sock: &RawSock) -> InternetEnd {
    let mut end = InternetEnd::default();
    // SAFETY: The socket is TCP's, hence of an Internet family. The function makes single loads.
    // `address` has room for 16 bytes.
    end.port = unsafe { bindings::inet_own_end(sock.as_ptr(), end.address.as_mut_ptr()) };
    end
}

impl<P: Operations> Sock<P> {
    /// Returns the address and port on which the TCP socket in front of this companion listens.
    /// Returns `None` if that socket does not listen, or if this is no companion.
    ///
    /// TCP's listener can end without a call of this module: by `ss -K`, or by a `shutdown` that
    /// began before there was a companion. So this is called for each packet that needs a listener.
    pub(crate) fn front_listens_at(&self) -> Option<InternetEnd> {
        let front = self.tcp_front()?;
        if front.tcp_state() != TcpState::Listen as u8 {
            return None;
        }
        // SAFETY: The socket in front of a companion is TCP's.
        Some(unsafe { own_end(front) })
    }

    /// Returns whether kernel code has replaced the callbacks of the TCP socket in front of this
    /// companion, as the NFS server does with its listener, and the initiator of iSCSI with its
    /// connection. Such code serves that socket alone: a companion calls only its own callbacks,
    /// except for one of a [`Bell`]. To call those of the socket in front, it would need the lock
    /// of that socket, because kernel code detaches under this lock.
    pub(super) fn has_callbacks_in_front(&self) -> bool {
        self.tcp_front().is_some_and(|front| {
            // SAFETY: Both sockets are valid, and the function makes single loads. The callback of
            // a companion is always the core's.
            !unsafe { bindings::sk_has_same_data_ready(front.as_ptr(), self.as_ptr()) }
        })
    }
}

impl<M: Streams> StreamCall<'_, M> {
    /// Returns the local end of TCP's socket. An unbound address is unspecified, and an unbound
    /// port is 0.
    pub(crate) fn own_end(&self) -> InternetEnd {
        // SAFETY: A descriptor's socket is TCP's.
        unsafe { own_end(self.sock()) }
    }

    /// Locks TCP's socket, and returns its state. The lock orders memory both ways: the caller sees
    /// what earlier holders of the lock have stored, and later holders see what the caller stored
    /// before this call.
    pub(crate) fn ordered_state(&self) -> u8 {
        self.locked(|_| self.sock().tcp_state())
    }

    /// Calls `change` with TCP's socket locked.
    fn locked<T>(&self, change: impl FnOnce(*mut bindings::sock) -> T) -> T {
        let sk = self.sock().as_ptr();
        // SAFETY: The socket is valid. The call may sleep and has not locked the socket.
        unsafe { bindings::lock_sock_nested(sk, 0) };
        let result = change(sk);
        // SAFETY: This call has locked the socket above.
        unsafe { bindings::release_sock(sk) };
        result
    }

    /// Binds TCP's socket to a free port, as TCP's `connect` does. Returns `false` if no port is
    /// free, or if the socket has a port or a connection.
    pub(crate) fn take_port(&self) -> bool {
        // SAFETY: The socket is TCP's, and is locked.
        self.locked(|sk| unsafe { bindings::tcp_take_port(sk) })
    }

    /// Releases the port that [`Self::take_port`] has bound, unless TCP's socket has a connection.
    pub(crate) fn release_port(&self) {
        // SAFETY: The socket is TCP's, and is locked.
        self.locked(|sk| unsafe { bindings::tcp_release_port(sk) });
    }

    /// Binds TCP's socket to `device`, as TCP does if the peer's address is a link-local one. The
    /// socket stays bound after the connection has ended. Returns false if the socket is bound to
    /// another device.
    pub(crate) fn bind_to_device(&self, device: u32) -> bool {
        self.locked(|sk| {
            // SAFETY: The socket is valid, and is locked. The core reads the field in single loads.
            unsafe {
                let bound = &raw mut (*sk).__sk_common.skc_bound_dev_if;
                let before = ptr::read_volatile(bound);
                let is_free = before == 0 || before == device as c_int;
                if is_free {
                    ptr::write_volatile(bound, device as c_int);
                }
                is_free
            }
        })
    }

    /// Copies the priority of the kernel's own socket to its companion. Kernel code sets the field,
    /// and no option. A program's option is copied when it is set.
    #[inline]
    pub(super) fn follow_priority(&self, companion: &Companion<M>) {
        if self.is_kernels() {
            let (companion, priority) = (companion.sock(), self.sock().priority());
            // SAFETY: The companion is valid, and the core reads the field in single loads.
            unsafe { ptr::write_volatile(field!(companion, sk_priority), priority) };
        }
    }

    /// Leaves the descriptor like one whose attempt to connect has failed in TCP: the next
    /// `connect` reports `error`, and the one after that begins a new attempt. Wakes the tasks that
    /// wait for errors. If TCP's socket has a connection, only stores the error.
    pub(crate) fn fail_to_connect(&self, error: Error) {
        self.locked(|sk| {
            // SAFETY: The call holds the descriptor, and its socket is locked, as it is when TCP
            // changes these fields. The core reads them in single loads.
            unsafe {
                ptr::write_volatile(&raw mut (*sk).sk_err, -error.to_errno());
                if self.sock().tcp_state() == TcpState::Close as u8 && self.is_unconnected() {
                    ptr::write_volatile(&raw mut (*sk).sk_shutdown, uapi::SHUTDOWN_MASK);
                    let state = &raw mut (*self.socket).state;
                    ptr::write_volatile(state, bindings::socket_state_SS_CONNECTING);
                }
            }
        });
        self.sock().wake_error();
    }

    /// Sleeps until `ready` returns true or `timeout` (in jiffies) has elapsed.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::wait_exclusive`].
    pub(crate) fn wait(&self, timeout: &mut c_long, ready: impl FnMut() -> bool) -> Result {
        // SAFETY: The call holds the descriptor that the socket belongs to.
        unsafe { wait::wait_on(self.sock(), Waiter::Shared, timeout, ready) }
    }

    /// Sleeps until `ready` returns true or `timeout` (in jiffies) has elapsed. The call is a
    /// [`Waiter::Exclusive`].
    ///
    /// # Errors
    ///
    /// `EAGAIN` after the timeout, `ERESTARTSYS` or `EINTR` after a signal, `EPIPE` if another call
    /// has disconnected TCP's socket.
    pub(crate) fn wait_exclusive(
        &self,
        timeout: &mut c_long,
        ready: impl FnMut() -> bool,
    ) -> Result {
        // SAFETY: The call holds the descriptor that the socket belongs to.
        unsafe { wait::wait_on(self.sock(), Waiter::Exclusive, timeout, ready) }
    }
}
