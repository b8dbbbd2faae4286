// SPDX-License-Identifier: GPL-2.0

//! Network namespaces, and a module's state in each of them.
//!
//! C headers: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h),
//! [`include/net/netns/generic.h`](srctree/include/net/netns/generic.h)

use super::{bindings, rcu};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem, ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use kernel::{ffi::c_int, types::Opaque};

/// A network namespace. A reference is valid as long as the object it was borrowed from holds the
/// namespace.
#[repr(transparent)]
pub(crate) struct Net(Opaque<bindings::net>);

impl Net {
    /// # Safety
    ///
    /// `net` must be valid for as long as `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(net: *mut bindings::net) -> &'a Net {
        // SAFETY: The type is transparent over `net`. The caller promises that `net` is valid for
        // `'a`.
        unsafe { &*net.cast() }
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut bindings::net {
        self.0.get()
    }
}

/// The functions that the kernel calls for each namespace, filled in by [`Registration::new`]. The
/// kernel keeps this structure while the registration lasts.
pub(crate) struct Operations<T: PerNet> {
    /// Whether a registration has begun. Only the first registration writes the other fields.
    taken: AtomicBool,
    ops: UnsafeCell<bindings::pernet_operations>,
    id: UnsafeCell<kernel::ffi::c_uint>,
    _state: PhantomData<T>,
}

// SAFETY: Only the one registration writes the fields, before any code reads `id`.
unsafe impl<T: PerNet> Sync for Operations<T> {}

impl<T: PerNet> Operations<T> {
    /// Creates an unregistered set of operations.
    pub(crate) const fn new() -> Self {
        Operations {
            taken: AtomicBool::new(false),
            // SAFETY: All-zero bytes are a valid value: a set without operations.
            ops: UnsafeCell::new(unsafe { mem::zeroed() }),
            id: UnsafeCell::new(0),
            _state: PhantomData,
        }
    }
}

/// A module's state in each namespace.
///
/// # Safety
///
/// No code asks for the state of a namespace ([`PerNet::of`]) after the registration has ended. All
/// sockets, packet handlers, device listeners and files that ask for it are gone by then, or
/// [`PerNet::end`] ends them.
pub(crate) unsafe trait PerNet: Sync + Sized + 'static {
    /// Returns the static structure with which the state is registered.
    fn operations() -> &'static Operations<Self>;

    /// Creates the state of a new namespace.
    fn new(net: &Net) -> Result<Self>;

    /// Ends all uses of the state, when the namespace or the module ends. The state is dropped only
    /// after the end of every RCU read section that began before this call returned. So packets and
    /// timers in progress may still use the state.
    fn end(&self) {}

    /// Returns the state of `net`.
    #[inline]
    fn of(net: &Net) -> &Self {
        // SAFETY: `init` made the state. `exit` drops it when no socket or device is left in the
        // namespace, so nothing can ask for it any more, or when the registration ends. The
        // implementation promises not to call `of` after that.
        unsafe {
            let id = *Self::operations().id.get();
            &*bindings::net_generic(net.as_ptr(), id).cast::<Self>()
        }
    }

    /// Works like [`Self::of`], but uses the RCU read section that the caller is already in.
    #[inline]
    fn of_within<'a>(net: &'a Net, _section: &rcu::Read) -> &'a Self {
        // SAFETY: The state exists for the reasons given in `of`. The read section keeps the table
        // that holds the pointer to the state.
        unsafe {
            let id = *Self::operations().id.get();
            &*bindings::net_generic_rcu(net.as_ptr(), id).cast::<Self>()
        }
    }
}

/// The registration of per-namespace state. Dropping it removes the state from every namespace.
pub(crate) struct Registration<T: PerNet>(PhantomData<T>);

impl<T: PerNet> Registration<T> {
    /// Creates the state of every existing and future namespace. May be called once.
    ///
    /// # Errors
    ///
    /// `EEXIST` on a second call, and the errors of [`PerNet::new`].
    pub(crate) fn new(_module: &'static ThisModule) -> Result<Self> {
        // The core allocates memory that is aligned for 64-bit words on every architecture, but not
        // for larger types.
        const { assert!(mem::align_of::<T>() <= mem::align_of::<u64>()) };
        let operations = T::operations();
        if operations.taken.swap(true, Relaxed) {
            return Err(EEXIST);
        }
        // SAFETY: This is the only registration there ever is, so no one else accesses `ops`.
        unsafe {
            let ops = &mut *operations.ops.get();
            ops.init = Some(Self::init);
            ops.pre_exit = Some(Self::pre_exit);
            ops.exit = Some(Self::exit);
            // C declares these fields const for their readers, so they are written through casts.
            // The core writes the number that `id` points to once.
            ptr::write(ptr::addr_of_mut!(ops.id).cast(), operations.id.get());
            ptr::write(ptr::addr_of_mut!(ops.size).cast(), mem::size_of::<T>());
            to_result(bindings::register_pernet_subsys(ops))?;
        }
        Ok(Registration(PhantomData))
    }

    /// # Safety
    ///
    /// Called by the core, once for each namespace, in which it has allocated `size` bytes for
    /// `id`.
    unsafe extern "C" fn init(net: *mut bindings::net) -> c_int {
        // SAFETY: The core passes a valid namespace.
        match T::new(unsafe { Net::from_raw(net) }) {
            Ok(state) => {
                // SAFETY: The core has allocated `size` bytes for `id` in this namespace, aligned
                // by `kmalloc`.
                unsafe {
                    let id = *T::operations().id.get();
                    ptr::write(bindings::net_generic(net, id).cast::<T>(), state);
                }
                0
            }
            Err(e) => e.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by the core when the namespace or the module ends, once for each namespace for which
    /// `init` succeeded. The core then waits for all read sections, and calls `exit` after that.
    unsafe extern "C" fn pre_exit(net: *mut bindings::net) {
        // SAFETY: The core passes a valid namespace, whose state `exit` has not dropped yet.
        T::of(unsafe { Net::from_raw(net) }).end();
    }

    /// # Safety
    ///
    /// Called by the core when the namespace or the module ends, once for each namespace for which
    /// `init` succeeded.
    unsafe extern "C" fn exit(net: *mut bindings::net) {
        // SAFETY: `init` made the state, and the core calls `exit` once. By then the namespace has
        // no socket with a descriptor. It has no device either or, if the module ends, no device
        // that delivers packets to the module. `pre_exit` ended the sockets without a descriptor. A
        // timer or a packet may have used the state in a read section, and the core has since
        // waited for all read sections.
        unsafe {
            let id = *T::operations().id.get();
            ptr::drop_in_place(bindings::net_generic(net, id).cast::<T>());
        }
    }
}

impl<T: PerNet> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: `new` has registered `ops`.
        unsafe { bindings::unregister_pernet_subsys(T::operations().ops.get()) };
    }
}
