// SPDX-License-Identifier: GPL-2.0

//! Registers a protocol, and decides which of its sockets hold the module.
//!
//! A descriptor holds the module. A socket outlives its descriptor by a grace period, and for as
//! long as others refer to it: frames that it owns, until a device or a queueing discipline frees
//! them, and notices of zero-copy sends. Such a reference has no time limit, so module exit must
//! not wait for it: `rmmod` would hang, half unregistered and unkillable. Instead the socket holds
//! the module until its memory is freed, and `rmmod` fails with `EBUSY`.
//!
//! The core drops that reference (`sk_prot_free`) in its own code: the module's code may be gone
//! right after. The core finds the owner in the table that created the socket, so a socket that
//! begins to hold the module gets another such table.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h) (`struct proto`)

use super::{
    super::{
        bindings, rcu,
        sock::{field, Sock},
    },
    Operations, Protocol, RawSock, Vtable,
};
use crate::net::errno::prelude::*;
use core::{
    marker::PhantomData,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};
use kernel::ffi::c_int;

impl<P: Protocol> Vtable<P> {
    /// Allocates a socket, and the tables behind it, for the core's functions.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the protocol is not registered, `ENOBUFS` without memory.
    ///
    /// # Safety
    ///
    /// `net` is a valid namespace; a socket created for the kernel (`kern`) does not hold it.
    pub(in crate::net) unsafe fn alloc(
        &self,
        net: *mut bindings::net,
        kern: bool,
    ) -> Result<*mut bindings::sock> {
        if !self.registered.load(Ordering::Acquire) {
            return Err(ENODEV);
        }
        // SAFETY: The tables were written before they were registered, and stay as they are.
        let sk = unsafe {
            bindings::sk_alloc(
                net,
                (*self.ops.get()).family,
                bindings::ENET_GFP_TASK,
                self.proto.get(),
                kern.into(),
            )
        };
        if sk.is_null() {
            return Err(ENOBUFS);
        }
        Ok(sk)
    }

    /// Counts sockets whose memory is in use.
    pub(in crate::net) fn count(&self, change: isize) {
        if change > 0 {
            self.live.fetch_add(1, Ordering::Relaxed);
        } else {
            self.live.fetch_sub(1, Ordering::Release);
        }
    }

    /// Counts a socket in `/proc/net/protocols`.
    pub(in crate::net) fn count_in_use(&self, sock: &RawSock, change: c_int) {
        // SAFETY: The protocol is registered as long as it has sockets.
        unsafe {
            bindings::sock_prot_inuse_add(
                bindings::sock_net(sock.as_ptr()),
                self.proto.get(),
                change,
            )
        };
    }

    /// Makes `sock` hold the module until its memory is freed, if it does not yet. Call this before
    /// anything refers to the socket that module exit cannot end. Returns `false` if the module is
    /// being unloaded: then nothing may refer to it.
    #[inline]
    pub(in crate::net) fn pin(&self, sock: &Sock<P>) -> bool {
        if !P::OUTLIVES_DESCRIPTOR {
            // Each socket holds it from the start.
            return true;
        }
        // SAFETY: An aligned pointer in a valid socket. The core reads it for the descriptor's
        // name, and when the socket has no reference any more; others write it here only.
        let creator = unsafe { AtomicPtr::from_ptr(field!(sock, sk_prot_creator)) };
        creator.load(Ordering::Relaxed) == self.pinning.get() || self.take_pin(creator)
    }

    #[cold]
    fn take_pin(&self, creator: &AtomicPtr<bindings::proto>) -> bool {
        // SAFETY: Written before the protocol was registered, hence before there was a socket.
        let module = unsafe { (*self.pinning.get()).owner };
        // SAFETY: This code belongs to the module, which is not freed while it runs.
        if !unsafe { bindings::try_module_get(module) } {
            return false;
        }
        let (from, to) = (self.proto.get(), self.pinning.get());
        let first = creator.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err() {
            // Another processor was faster, and its reference is the socket's.
            // SAFETY: Gives back the reference that was just taken.
            unsafe { bindings::module_put(module) };
        }
        true
    }
}

/// A registered protocol; dropping it waits for its last socket.
pub(crate) struct ProtocolRegistration<P: Operations>(PhantomData<fn() -> P>);

impl<P: Operations> ProtocolRegistration<P> {
    /// Registers the protocol for sockets of `family`, once.
    ///
    /// # Errors
    ///
    /// `EEXIST` if it is, or was, registered; `ENOMEM`.
    pub(crate) fn new(family: u16, module: &'static ThisModule) -> Result<Self> {
        let vtable = P::vtable();
        if vtable.taken.swap(true, Ordering::Relaxed) {
            return Err(EEXIST);
        }
        let owner = module.as_ptr().cast();
        // SAFETY: This is the only registration there ever is, and no one looks at the tables
        // before `registered` is set. The core knows the second table of a protocol by sockets
        // alone, of which it reads the name, the owner, and where their memory comes from, which is
        // the same.
        unsafe {
            for ops in [vtable.ops.get(), vtable.record_ops.get()] {
                (*ops).family = c_int::from(family);
                (*ops).owner = owner;
            }
            if !P::OUTLIVES_DESCRIPTOR {
                (*vtable.proto.get()).owner = owner;
            }
            to_result(bindings::proto_register(vtable.proto.get(), 1))?;
            ptr::copy_nonoverlapping(vtable.proto.get(), vtable.pinning.get(), 1);
            (*vtable.pinning.get()).owner = owner;
        }
        vtable.registered.store(true, Ordering::Release);
        Ok(ProtocolRegistration(PhantomData))
    }
}

impl<P: Operations> Drop for ProtocolRegistration<P> {
    fn drop(&mut self) {
        let vtable = P::vtable();
        vtable.registered.store(false, Ordering::Release);
        // No descriptor is left, and sockets without one have been ended. Only sockets that wait
        // for a grace period can remain: those with other references hold the module.
        loop {
            rcu::barrier();
            if vtable.live.load(Ordering::Acquire) == 0 {
                break;
            }
            // SAFETY: Process context, in module exit.
            unsafe { bindings::schedule_timeout_uninterruptible(1) };
        }
        // The last socket may have been counted out in its callback, which frees it right after.
        rcu::barrier();
        // SAFETY: Registered by `new`, and no socket is left.
        unsafe { bindings::proto_unregister(vtable.proto.get()) };
    }
}
