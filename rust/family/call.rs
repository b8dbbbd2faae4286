// SPDX-License-Identifier: GPL-2.0

//! A running call on a descriptor, and the descriptor's state.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use super::super::{
    bindings,
    sock::{Locked, Protocol, Sock, SockRef},
};
use crate::net::errno::prelude::*;
use core::{
    marker::PhantomData,
    ops::Deref,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

/// The state of a descriptor (`socket->state`). A socket call changes the state, but a packet does
/// not. The core shows the state to users.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum SocketState {
    Unconnected,
    Connecting,
    Connected,
    Disconnecting,
}

impl SocketState {
    fn to_core(self) -> bindings::socket_state {
        match self {
            SocketState::Unconnected => bindings::socket_state_SS_UNCONNECTED,
            SocketState::Connecting => bindings::socket_state_SS_CONNECTING,
            SocketState::Connected => bindings::socket_state_SS_CONNECTED,
            SocketState::Disconnecting => bindings::socket_state_SS_DISCONNECTING,
        }
    }
}

/// Returns the state of a descriptor.
///
/// # Safety
///
/// `socket` is valid for as long as `'a`.
unsafe fn state_cell<'a>(socket: *mut bindings::socket) -> &'a AtomicU32 {
    // SAFETY: The field is an aligned word in a valid descriptor, and this module accesses it only
    // through this function.
    unsafe { AtomicU32::from_ptr(ptr::addr_of_mut!((*socket).state).cast()) }
}

/// A running call on a descriptor of protocol `P`. The call holds the descriptor, and so the socket
/// and the wait queue.
pub(crate) struct Call<'a, P: Protocol> {
    sock: &'a Sock<P>,
    socket: *mut bindings::socket,
}

impl<'a, P: Protocol> Call<'a, P> {
    /// # Safety
    ///
    /// `socket` is a valid `struct socket` that is held for as long as `'a`, and its `sk` is a
    /// socket of `P`.
    #[inline]
    pub(super) unsafe fn new(socket: *mut bindings::socket) -> Self {
        Call {
            // SAFETY: By the caller's promise, `socket` is held and has a socket of `P`.
            sock: unsafe { Sock::from_raw((*socket).sk) },
            socket,
        }
    }

    /// Creates a call on a companion, which is a socket that shares the descriptor of a TCP socket.
    ///
    /// # Safety
    ///
    /// The descriptor is held for as long as `'a`, and `sock` uses the descriptor's wait queue
    /// during that time.
    #[inline]
    pub(in crate::net) unsafe fn of(sock: &'a Sock<P>, socket: *mut bindings::socket) -> Self {
        Call { sock, socket }
    }

    /// Returns the socket.
    #[inline]
    pub(crate) fn sock(&self) -> &'a Sock<P> {
        self.sock
    }

    /// Takes a reference to the socket.
    pub(crate) fn hold(&self) -> SockRef<P> {
        // SAFETY: The descriptor holds the socket, so its reference count is not zero. The new
        // reference is ours.
        unsafe {
            bindings::sock_hold(self.sock.as_ptr());
            SockRef::from_raw(self.sock.as_ptr())
        }
    }

    /// Sets the descriptor's state.
    pub(crate) fn set_state(&self, state: SocketState) {
        // SAFETY: The call holds the descriptor.
        unsafe { state_cell(self.socket) }.store(state.to_core(), Ordering::Relaxed);
    }

    /// Returns the descriptor's state.
    pub(crate) fn state(&self) -> SocketState {
        // SAFETY: The call holds the descriptor.
        match unsafe { state_cell(self.socket) }.load(Ordering::Relaxed) {
            bindings::socket_state_SS_UNCONNECTED => SocketState::Unconnected,
            bindings::socket_state_SS_CONNECTING => SocketState::Connecting,
            bindings::socket_state_SS_CONNECTED => SocketState::Connected,
            _ => SocketState::Disconnecting,
        }
    }
}

impl<P: Protocol> Deref for Call<'_, P> {
    type Target = Sock<P>;

    #[inline]
    fn deref(&self) -> &Sock<P> {
        self.sock
    }
}

/// The last call on a descriptor, `release`. Dropping this value detaches the socket. After that
/// only the protocol may still hold the socket.
pub(crate) struct Closing<'a, P: Protocol>(Call<'a, P>);

impl<'a, P: Protocol> Closing<'a, P> {
    /// Creates the last call on a companion (see [`Call::of`]).
    ///
    /// # Safety
    ///
    /// The requirements of [`Call::of`] hold, and this is the descriptor's last call.
    pub(in crate::net) unsafe fn of(sock: &'a Sock<P>, socket: *mut bindings::socket) -> Self {
        // SAFETY: By the caller's promise, the requirements of `Call::of` hold.
        Closing(unsafe { Call::of(sock, socket) })
    }

    /// # Safety
    ///
    /// The requirements of [`Call::new`] hold, and this is the descriptor's last call.
    pub(super) unsafe fn new(socket: *mut bindings::socket) -> Self {
        // SAFETY: By the caller's promise, the requirements of `Call::new` hold.
        Closing(unsafe { Call::new(socket) })
    }
}

impl<'a, P: Protocol> Deref for Closing<'a, P> {
    type Target = Call<'a, P>;

    fn deref(&self) -> &Call<'a, P> {
        &self.0
    }
}

impl<P: Protocol> Drop for Closing<'_, P> {
    fn drop(&mut self) {
        // SAFETY: By the invariant of `RawSock`, the socket is valid. This is the last call on its
        // descriptor.
        unsafe { bindings::sock_orphan(self.0.sock.as_ptr()) };
    }
}

/// The new `struct socket` that the core passes to `accept`. Its `sk` is not set yet.
pub(crate) struct NewDescriptor<'a>(*mut bindings::socket, PhantomData<&'a mut bindings::socket>);

impl NewDescriptor<'_> {
    /// # Safety
    ///
    /// `socket` is a valid `struct socket` whose `sk` is not set yet. No one else uses it as long
    /// as this value exists.
    pub(super) unsafe fn new(socket: *mut bindings::socket) -> Self {
        NewDescriptor(socket, PhantomData)
    }

    /// Makes `child` the descriptor's socket and marks the descriptor as connected. The descriptor
    /// takes a reference to the child.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the child has, or has had, a descriptor.
    pub(crate) fn graft<P: Protocol>(self, child: &mut Locked<'_, P>) -> Result {
        let child = child.sock();
        // SAFETY: The child is locked, so no other call grafts it at the same time, and a child
        // gets a descriptor only here. The `sk` of the descriptor is not set yet. The descriptor's
        // `release` drops the reference that `sock_hold` takes.
        unsafe {
            if !(*child.as_ptr()).sk_socket.is_null() || child.is_dead() {
                return Err(EINVAL);
            }
            bindings::sock_hold(child.as_ptr());
            bindings::sock_graft(child.as_ptr(), self.0);
            child.charge();
            if !child.keeps_records() {
                bindings::socket_support_zc(self.0);
            }
            state_cell(self.0).store(SocketState::Connected.to_core(), Ordering::Relaxed);
        }
        Ok(())
    }
}
