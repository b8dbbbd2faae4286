// SPDX-License-Identifier: GPL-2.0

//! Hash tables of sockets that grow and shrink with what is in them, searched under RCU.
//!
//! The kernel's `rhashtable`: its hash has a secret seed, so that nobody on the wire can choose
//! keys that meet in one bucket, and each bucket has a lock of its own. Sockets are freed after a
//! grace period (`SOCK_RCU_FREE`), so what a search finds is valid for the read section without a
//! reference. A socket must be out of its map before its last reference goes.
//!
//! C header: [`include/linux/rhashtable.h`](srctree/include/linux/rhashtable.h)

use super::{
    bindings, rcu,
    sock::{Protocol, Sock, SockRef},
};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::{offset_of, size_of, MaybeUninit},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};
use kernel::alloc::flags::__GFP_ZERO;

/// After how many sockets a walk through all of them lets go of its read section.
const SECTION: u32 = 256;

/// What a socket is found by.
pub(crate) type Key = [u32; 4];

/// A socket's place in a map; every socket has one.
#[repr(C)]
pub(super) struct Entry {
    head: UnsafeCell<bindings::rhash_head>,
    key: [AtomicU32; 4],
    /// The socket is in a map. Changed by whoever has the socket locked.
    present: AtomicBool,
}

impl Entry {
    pub(super) const fn new() -> Self {
        Entry {
            head: UnsafeCell::new(bindings::rhash_head {
                next: core::ptr::null_mut(),
            }),
            key: [const { AtomicU32::new(0) }; 4],
            present: AtomicBool::new(false),
        }
    }
}

/// A hash table of sockets of protocol `P`, each with a key of its own.
pub(crate) struct Map<P: Protocol> {
    /// In a box, for the kernel keeps pointers to it.
    table: KBox<UnsafeCell<bindings::rhashtable>>,
    _sockets: PhantomData<fn() -> P>,
}

// SAFETY: The kernel's functions lock what they change.
unsafe impl<P: Protocol> Send for Map<P> {}
// SAFETY: As above.
unsafe impl<P: Protocol> Sync for Map<P> {}

impl<P: Protocol> Map<P> {
    /// An empty map.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let zeroed = KBox::<UnsafeCell<bindings::rhashtable>>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: Plain data, valid as zeroes for the kernel to initialize.
        let table = unsafe { zeroed.assume_init() };
        let entry = offset_of!(Sock<P>, entry);
        // SAFETY: The memory stays where it is until `drop`; the offsets are those of a key of
        // that size and of a link, in every socket that is ever inserted.
        to_result(unsafe {
            bindings::rhashtable_init_sized(
                table.get(),
                size_of::<Key>() as u16,
                (entry + offset_of!(Entry, key)) as u16,
                (entry + offset_of!(Entry, head)) as u16,
            )
        })?;
        Ok(Map {
            table,
            _sockets: PhantomData,
        })
    }

    /// The socket with that key.
    #[inline]
    pub(crate) fn find<'a>(&self, key: &Key, _section: &'a rcu::Read) -> Option<&'a Sock<P>> {
        // SAFETY: The table is initialized and its keys have the size that the helper assumes; the
        // caller is in a read section. What is found was inserted as a `Sock<P>`, and is freed
        // after the section.
        unsafe {
            bindings::rhashtable_lookup_16(self.table.get(), key.as_ptr().cast())
                .cast::<Sock<P>>()
                .as_ref()
        }
    }

    /// Puts a socket in under `key`. The caller has it locked, and it is in no map.
    ///
    /// # Errors
    ///
    /// `EEXIST` if another has that key, `ENOMEM`.
    pub(crate) fn insert(&self, key: &Key, sock: &Sock<P>) -> Result {
        let entry = &sock.entry;
        let held = sock.try_hold().ok_or(EINVAL)?;
        if entry.present.swap(true, Relaxed) {
            return Err(EINVAL);
        }
        // A search that came across the socket in its last place may still compare the key: who
        // locks what was found looks at the peer again.
        for (word, value) in entry.key.iter().zip(key) {
            word.store(*value, Relaxed);
        }
        // SAFETY: The table is initialized; the link is that of a valid socket that is in no
        // table, as `present` said, and which leaves it before it is freed.
        let result =
            to_result(unsafe { bindings::rhashtable_insert(self.table.get(), entry.head.get()) });
        if result.is_ok() {
            // The map's reference, until `remove`.
            core::mem::forget(held);
        }
        result.map_err(|error| {
            entry.present.store(false, Relaxed);
            // The rest are the ways in which a table fails to grow.
            if error == EEXIST {
                error
            } else {
                ENOMEM
            }
        })
    }

    /// Takes a socket out, if it is in. The caller has it locked, and it is in no other map.
    pub(crate) fn remove(&self, sock: &Sock<P>) {
        let entry = &sock.entry;
        if entry.present.swap(false, Relaxed) {
            // SAFETY: The table is initialized and the socket is in it, under the key it has, since
            // `present` was set; the reference is the one that `insert` took.
            unsafe {
                bindings::rhashtable_remove(self.table.get(), entry.head.get());
                drop(SockRef::<P>::from_raw(sock.as_ptr()));
            }
        }
    }

    /// Calls `f` for every socket, in process context, in read sections of some hundred sockets. One
    /// that comes or goes meanwhile may be left out, and if the map grows meanwhile some may be shown
    /// twice.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Sock<P>)) {
        let mut left = SECTION;
        self.walk(
            |sock| {
                f(sock);
                left = left.checked_sub(1).unwrap_or(SECTION);
                (left == 0).then_some(())
            },
            |()| (),
        );
    }

    /// Calls `f` with a reference to every socket that `chosen` picks, in process context, outside
    /// of any read section: it may sleep, and take the socket out. Tells whether there was any.
    pub(crate) fn for_each_held(
        &self,
        chosen: impl Fn(&Sock<P>) -> bool,
        mut f: impl FnMut(SockRef<P>),
    ) -> bool {
        let mut any = false;
        self.walk(
            |sock| if chosen(sock) { sock.try_hold() } else { None },
            |held| {
                any = true;
                f(held);
            },
        );
        any
    }

    /// Calls `look` for every socket in a read section, and `act`, outside of it, with what that
    /// returned.
    fn walk<T>(&self, mut look: impl FnMut(&Sock<P>) -> Option<T>, mut act: impl FnMut(T)) {
        let mut iter = MaybeUninit::<bindings::rhashtable_iter>::uninit();
        let iter = iter.as_mut_ptr();
        // SAFETY: The table is initialized, and the caller is in process context. The iterator is
        // initialized by entering, stays where it is, and leaves the table before it goes; starting
        // and stopping alternate. What `next` returns is null at the end, an error when the table
        // was resized, which is no reason to stop, or a socket that the read section keeps.
        unsafe {
            bindings::rhashtable_walk_enter(self.table.get(), iter);
            bindings::rhashtable_walk_start(iter);
            loop {
                let found = bindings::rhashtable_walk_next(iter);
                if found.is_null() {
                    break;
                }
                if bindings::is_err(found) {
                    continue;
                }
                if let Some(result) = look(&*found.cast::<Sock<P>>()) {
                    bindings::rhashtable_walk_stop(iter);
                    act(result);
                    bindings::rhashtable_walk_start(iter);
                }
            }
            bindings::rhashtable_walk_stop(iter);
            bindings::rhashtable_walk_exit(iter);
        }
    }
}

impl<P: Protocol> Drop for Map<P> {
    fn drop(&mut self) {
        // SAFETY: Initialized in `new`, in process context. The sockets were taken out before the
        // core waited for all read sections, so whoever looked, or took one out, has come to his end.
        unsafe { bindings::rhashtable_destroy(self.table.get()) };
    }
}
