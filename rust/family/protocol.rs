// SPDX-License-Identifier: GPL-2.0

//! Registers a protocol, and decides which of its sockets hold the module.
//!
//! A descriptor holds the module. A socket outlives its descriptor by an RCU grace period, and for
//! as long as something else refers to the socket. Frames that the socket owns refer to the socket
//! until a device or a queueing discipline frees them. So do notices of zero-copy sends. These
//! references may last for any time, so module exit must not wait for them. Otherwise `rmmod` would
//! hang, with the module half unregistered, and could not be killed. Instead the socket holds the
//! module until its memory is freed, and `rmmod` fails with `EBUSY`.
//!
//! The core drops the socket's reference to the module (`sk_prot_free`) in its own code, since the
//! module's code may be unloaded right after. The core finds the owner through `sk_prot_creator`,
//! the table that created the socket. So when a socket begins to hold the module, [`Vtable::pin`]
//! replaces the table in `sk_prot_creator`.
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
    /// Allocates a socket that the core serves through these tables.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the protocol is not registered, `ENOBUFS` if there is no memory.
    ///
    /// # Safety
    ///
    /// `net` is a valid namespace. If `kern` is set, the socket does not hold the namespace, so the
    /// namespace must outlive the socket.
    pub(in crate::net) unsafe fn alloc(
        &self,
        net: *mut bindings::net,
        kern: bool,
    ) -> Result<*mut bindings::sock> {
        if !self.registered.load(Ordering::Acquire) {
            return Err(ENODEV);
        }
        // SAFETY: The tables were written before they were registered, and do not change any more.
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

    /// Adds `change`, 1 or -1, to the count of the protocol's sockets whose memory is not freed.
    pub(in crate::net) fn count(&self, change: isize) {
        if change > 0 {
            self.allocated.fetch_add(1, Ordering::Relaxed);
        } else {
            self.allocated.fetch_sub(1, Ordering::Release);
        }
    }

    /// Adds `change`, 1 or -1, to the count of the protocol's sockets in `/proc/net/protocols`.
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

    /// Makes `sock` hold the module until the socket's memory is freed, unless it already does.
    /// Call this before creating a reference that module exit cannot end, such as the reference of
    /// a frame in a device's queue. Returns `false` if the module is being unloaded; such a
    /// reference must not be created then.
    #[inline]
    pub(in crate::net) fn pin(&self, sock: &Sock<P>) -> bool {
        if !P::OUTLIVES_DESCRIPTOR {
            // Each socket of `P` holds the module from the start.
            return true;
        }
        // SAFETY: The field is an aligned pointer in a valid socket. The core reads it for the name
        // of the descriptor's file, and after the last reference to the socket is gone. Only this
        // function changes it while the socket has references.
        let creator = unsafe { AtomicPtr::from_ptr(field!(sock, sk_prot_creator)) };
        creator.load(Ordering::Relaxed) == self.pinning.get() || self.take_pin(creator)
    }

    #[cold]
    fn take_pin(&self, creator: &AtomicPtr<bindings::proto>) -> bool {
        // SAFETY: `owner` was written before `registered` was set, hence before there was a socket.
        let module = unsafe { (*self.pinning.get()).owner };
        // SAFETY: This code belongs to the module, which is not freed while it runs.
        if !unsafe { bindings::try_module_get(module) } {
            return false;
        }
        let (from, to) = (self.proto.get(), self.pinning.get());
        let first = creator.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err() {
            // Another processor was faster, and its reference to the module belongs to the socket.
            // SAFETY: The function drops the reference that `try_module_get` has just taken.
            unsafe { bindings::module_put(module) };
        }
        true
    }
}

/// A registered protocol. Dropping it waits for the protocol's last socket and unregisters it.
pub(crate) struct ProtocolRegistration<P: Operations>(PhantomData<fn() -> P>);

impl<P: Operations> ProtocolRegistration<P> {
    /// Registers the protocol for sockets of `family`, once.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the protocol is or was registered; `ENOMEM`.
    pub(crate) fn new(family: u16, module: &'static ThisModule) -> Result<Self> {
        let vtable = P::vtable();
        if vtable.taken.swap(true, Ordering::Relaxed) {
            return Err(EEXIST);
        }
        let owner = module.as_ptr().cast();
        // SAFETY: This is the only registration there ever is, and no one reads the tables before
        // `registered` is set. The core finds the table `pinning` only through sockets. From this
        // table, the core reads the name, the owner and the slab cache. The name and the slab cache
        // are the same as in `proto`.
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
        // No descriptor is left, and sockets without a descriptor have been ended. A socket with
        // other references would hold the module, so the module could not exit. So only sockets
        // that wait for a grace period can remain.
        loop {
            rcu::barrier();
            if vtable.allocated.load(Ordering::Acquire) == 0 {
                break;
            }
            // SAFETY: Module exit runs in process context.
            unsafe { bindings::schedule_timeout_uninterruptible(1) };
        }
        // The last socket may have decremented `allocated` in an RCU callback that has yet to free
        // the socket.
        rcu::barrier();
        // SAFETY: `new` has registered the table, and no socket is left.
        unsafe { bindings::proto_unregister(vtable.proto.get()) };
    }
}
