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

/// A network namespace. A reference is valid while its lender holds the namespace.
#[repr(transparent)]
pub(crate) struct Net(Opaque<bindings::net>);

impl Net {
    /// # Safety
    ///
    /// `net` must be valid for as long as `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(net: *mut bindings::net) -> &'a Net {
        // SAFETY: Transparent over `net`; the rest is the caller's promise.
        unsafe { &*net.cast() }
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut bindings::net {
        self.0.get()
    }
}

/// The block that the kernel keeps while the registration lasts, filled in by
/// [`Registration::new`].
pub(crate) struct Operations<T: PerNet> {
    /// There is, or was, a registration, which alone writes the rest.
    taken: AtomicBool,
    ops: UnsafeCell<bindings::pernet_operations>,
    id: UnsafeCell<kernel::ffi::c_uint>,
    _state: PhantomData<T>,
}

// SAFETY: Written only by the one registration, before anyone reads `id`.
unsafe impl<T: PerNet> Sync for Operations<T> {}

impl<T: PerNet> Operations<T> {
    /// Not registered yet.
    pub(crate) const fn new() -> Self {
        Operations {
            taken: AtomicBool::new(false),
            // SAFETY: All zeroes is an empty set of operations.
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
/// Nothing asks for the state of a namespace ([`PerNet::of`]) once the registration has ended:
/// sockets, packet handlers, listeners for devices and files that do so are gone before, or are
/// ended by [`PerNet::end`].
pub(crate) unsafe trait PerNet: Sync + Sized + 'static {
    /// Where the registration lives.
    fn operations() -> &'static Operations<Self>;

    /// Makes the state of a new namespace.
    fn new(net: &Net) -> Result<Self>;

    /// Ends what still uses the state, when the namespace or the module ends. Before the state is
    /// dropped, every read section that has begun by then is over: packets and timers that were
    /// under way, too.
    fn end(&self) {}

    /// The state of `net`.
    #[inline]
    fn of(net: &Net) -> &Self {
        // SAFETY: While anyone holds a reference to a namespace that sockets or devices can be in,
        // the state made by `init` is there: it ends in `exit`, when nothing is left in it, or with
        // the registration, after which the implementation promises not to ask.
        unsafe {
            let id = *Self::operations().id.get();
            &*bindings::net_generic(net.as_ptr(), id).cast::<Self>()
        }
    }

    /// As [`Self::of`], in a read section that was entered anyway.
    #[inline]
    fn of_within<'a>(net: &'a Net, _section: &rcu::Read) -> &'a Self {
        // SAFETY: As in `of`; the read section keeps the table in which the state is found.
        unsafe {
            let id = *Self::operations().id.get();
            &*bindings::net_generic_rcu(net.as_ptr(), id).cast::<Self>()
        }
    }
}

/// The registration of per-namespace state, ended when dropped.
pub(crate) struct Registration<T: PerNet>(PhantomData<T>);

impl<T: PerNet> Registration<T> {
    /// Makes the state of every namespace there is, and of those to come, once.
    ///
    /// # Errors
    ///
    /// `EEXIST` if that was done before; those of [`PerNet::new`].
    pub(crate) fn new(_module: &'static ThisModule) -> Result<Self> {
        // The core's memory is aligned for a word of 64 bits everywhere, and for no more.
        const { assert!(mem::align_of::<T>() <= mem::align_of::<u64>()) };
        let operations = T::operations();
        if operations.taken.swap(true, Relaxed) {
            return Err(EEXIST);
        }
        // SAFETY: This is the only registration there ever is, so nobody else looks at the block.
        unsafe {
            let ops = &mut *operations.ops.get();
            ops.init = Some(Self::init);
            ops.pre_exit = Some(Self::pre_exit);
            ops.exit = Some(Self::exit);
            // The field is declared const, for its readers; the core writes it once.
            ptr::write(ptr::addr_of_mut!(ops.id).cast(), operations.id.get());
            ptr::write(ptr::addr_of_mut!(ops.size).cast(), mem::size_of::<T>());
            to_result(bindings::register_pernet_subsys(ops))?;
        }
        Ok(Registration(PhantomData))
    }

    /// # Safety
    ///
    /// Called by the core, once for a namespace, with room of `size` bytes for `id` in it.
    unsafe extern "C" fn init(net: *mut bindings::net) -> c_int {
        // SAFETY: The core passes a valid namespace.
        match T::new(unsafe { Net::from_raw(net) }) {
            Ok(state) => {
                // SAFETY: The core has allocated `size` bytes for us in this namespace, aligned as
                // `kmalloc` aligns.
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
    /// Called by the core, once for a namespace that `init` succeeded for, when it or the module
    /// ends: before `exit`, and before it waits for all read sections.
    unsafe extern "C" fn pre_exit(net: *mut bindings::net) {
        // SAFETY: The core passes a valid namespace, whose state `exit` has not dropped yet.
        T::of(unsafe { Net::from_raw(net) }).end();
    }

    /// # Safety
    ///
    /// Called by the core, once for a namespace that `init` succeeded for, when it or the module
    /// ends.
    unsafe extern "C" fn exit(net: *mut bindings::net) {
        // SAFETY: `init` made the state, and the core calls `exit` once, when no socket with a
        // descriptor and no device is left in the namespace, or none that packets of this module
        // come by. The last users without one were ended by `pre_exit`, after which the core has
        // waited for the read sections in which a timer or a packet may still have looked at the
        // state.
        unsafe {
            let id = *T::operations().id.get();
            ptr::drop_in_place(bindings::net_generic(net, id).cast::<T>());
        }
    }
}

impl<T: PerNet> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`.
        unsafe { bindings::unregister_pernet_subsys(T::operations().ops.get()) };
    }
}
