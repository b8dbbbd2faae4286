// SPDX-License-Identifier: GPL-2.0

//! Hash tables of sockets that grow and shrink with their contents, searched under RCU.
//!
//! A wrapper of the kernel's `rhashtable`: its hash has a secret seed, so no remote host can choose
//! keys that collide in one bucket, and each bucket has its own lock. A map holds a reference to
//! each of its sockets. Sockets are freed after a grace period (`SOCK_RCU_FREE`), so a socket that
//! a search finds is valid for the read section without a reference. As in [`table`](super::table),
//! a search that a moving socket carries onto another chain starts over.
//!
//! C header: [`include/linux/rhashtable.h`](srctree/include/linux/rhashtable.h)

use super::{
    bindings, rcu,
    sock::{Locked, Protocol, Sock, SockRef},
    table::Walk,
};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::{forget, offset_of, size_of, MaybeUninit},
    ops::ControlFlow,
    ptr,
    sync::atomic::{
        fence, AtomicPtr, AtomicU32,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};
use kernel::{alloc::flags::__GFP_ZERO, ffi::c_void};

/// The key that a socket is found by.
pub(crate) type Key = [u32; 4];

/// A walk lets other tasks run after this many sockets.
const SOCKETS_AT_ONCE: u32 = 256;

/// The helpers assume 16 bytes.
const _: () = assert!(size_of::<Key>() == 16);

/// A socket's place in a map; every socket has one.
#[repr(C)]
pub(super) struct Entry {
    head: UnsafeCell<bindings::rhash_head>,
    /// Changed only while `member` is null.
    key: [AtomicU32; 4],
    /// The table of the map that the socket is in, or null. Written with the socket locked, or when
    /// that map is dropped.
    member: AtomicPtr<bindings::rhashtable>,
}

impl Entry {
    pub(super) const fn new() -> Self {
        Entry {
            head: UnsafeCell::new(bindings::rhash_head {
                next: ptr::null_mut(),
            }),
            key: [const { AtomicU32::new(0) }; 4],
            member: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// A hash table of sockets of protocol `P`, each with a key of its own.
///
/// # Invariants
///
/// The entries in the table are those of sockets whose `member` is this table; the map holds one
/// reference to each.
pub(crate) struct Map<P: Protocol> {
    /// In a box, as the kernel keeps pointers to it.
    table: KBox<UnsafeCell<bindings::rhashtable>>,
    _sockets: PhantomData<SockRef<P>>,
}

// SAFETY: The kernel's functions lock what they change.
unsafe impl<P: Protocol> Send for Map<P> {}
// SAFETY: The kernel's functions lock what they change.
unsafe impl<P: Protocol> Sync for Map<P> {}

impl<P: Protocol> Map<P> {
    /// Creates an empty map.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let zeroed =
            KBox::<UnsafeCell<bindings::rhashtable>>::new_uninit(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
        // SAFETY: Plain data, valid as zeroes for the kernel to initialize.
        let table = unsafe { zeroed.assume_init() };
        let entry = offset_of!(Sock<P>, entry);
        // SAFETY: The memory stays where it is until `drop`; the offsets are those of a key of
        // the size that the helper states and of a link, in every socket that is ever inserted.
        to_result(unsafe {
            bindings::rhashtable_init_keys(
                table.get(),
                (entry + offset_of!(Entry, key)) as u16,
                (entry + offset_of!(Entry, head)) as u16,
            )
        })?;
        Ok(Map {
            table,
            _sockets: PhantomData,
        })
    }

    /// Returns the socket with this key.
    #[inline]
    pub(crate) fn find<'a>(&self, key: &Key, _section: &'a rcu::Read) -> Option<&'a Sock<P>> {
        // SAFETY: The table is initialized and its keys have the size that the helper assumes; the
        // read section lasts. What is found was inserted as a `Sock<P>`, and is freed after the
        // section.
        unsafe {
            bindings::rhashtable_lookup_key(self.table.get(), key.as_ptr().cast())
                .cast::<Sock<P>>()
                .as_ref()
        }
    }

    /// Inserts a socket under `key`. The map holds it until [`Self::remove`].
    ///
    /// Another processor may make a change and then [walk](Self::for_each_held) through the map.
    /// Then either the walk visits this socket, or the caller sees that change in everything it
    /// reads after this call.
    ///
    /// # Errors
    ///
    /// `EEXIST` if another socket has that key, `EINVAL` if the socket is in a map, `ENOMEM`.
    pub(crate) fn insert(&self, key: &Key, locked: &Locked<'_, P>) -> Result {
        let sock = locked.sock();
        let entry = &sock.entry;
        let held = sock.try_hold().ok_or(EINVAL)?;
        entry
            .member
            .compare_exchange(ptr::null_mut(), self.table.get(), Acquire, Relaxed)
            .map_err(|_| EINVAL)?;
        // A search that met the socket in its last place may still compare the key, so code that
        // locks the socket it found checks the peer again.
        for (word, value) in entry.key.iter().zip(key) {
            word.store(*value, Relaxed);
        }
        let (table, link) = (self.table.get(), entry.head.get());
        // SAFETY: The table is initialized; the link is that of a valid socket that was in no
        // table, and `member` keeps others from using it from now on.
        match to_result(unsafe { bindings::rhashtable_insert(table, link) }) {
            Ok(()) => {
                // The map's reference.
                forget(held);
                // Pairs with the fence of `for_each_held`. Without both, each side could read the
                // other's data before its own store is visible to the other.
                fence(SeqCst);
                Ok(())
            }
            Err(error) => {
                entry.member.store(ptr::null_mut(), Release);
                // The other errors are failures of the table to grow.
                Err(if error == EEXIST { error } else { ENOMEM })
            }
        }
    }

    /// Removes a socket, if it is in this map.
    pub(crate) fn remove(&self, locked: &Locked<'_, P>) {
        let sock = locked.sock();
        let entry = &sock.entry;
        if entry.member.load(Relaxed) != self.table.get() {
            return;
        }
        // SAFETY: The table is initialized. The socket is in it, under the key that it has: no one
        // else inserts or removes it, since it is locked. The reference is the map's.
        let held = unsafe {
            bindings::rhashtable_remove(self.table.get(), entry.head.get());
            SockRef::<P>::from_raw(sock.as_ptr())
        };
        entry.member.store(ptr::null_mut(), Release);
        drop(held);
    }

    /// Calls `f` in a read section for every socket from `from` on, until it fails. `from` is then
    /// the socket that it failed for. A socket that comes or goes during the walk may be left out;
    /// if the map grows or shrinks, others may be left out or visited twice. Process context: lets
    /// other tasks run in between.
    ///
    /// # Errors
    ///
    /// The errors of `f`.
    pub(crate) fn walk<E>(
        &self,
        from: &mut Walk,
        mut f: impl FnMut(&Sock<P>) -> Result<(), E>,
    ) -> Result<(), E> {
        // `from` is a position in one table: while sockets move to another table, this waits.
        // SAFETY: The table is initialized, and the task may sleep.
        unsafe { bindings::rhashtable_settle(self.table.get()) };
        let mut result = Ok(());
        self.visit(
            from,
            |sock| f(sock).err(),
            |error| {
                result = Err(error);
                ControlFlow::Break(())
            },
        );
        result
    }

    /// Calls `f` in process context with a reference to every socket that `chosen` selects, outside
    /// any read section: `f` may sleep, and remove the socket. Returns whether there was any. Lets
    /// other tasks run in between.
    pub(crate) fn for_each_held(
        &self,
        chosen: impl Fn(&Sock<P>) -> bool,
        mut f: impl FnMut(SockRef<P>),
    ) -> bool {
        let mut any = false;
        // Pairs with the fence of `insert`.
        fence(SeqCst);
        self.visit(
            &mut Walk::default(),
            |sock| if chosen(sock) { sock.try_hold() } else { None },
            |held| {
                any = true;
                f(held);
                ControlFlow::Continue(())
            },
        );
        any
    }

    /// Calls `look` for every socket from `from` on, in a read section, and `act`, outside of it,
    /// with the result. `from` moves past each socket for which `look` returned `None`.
    fn visit<T>(
        &self,
        from: &mut Walk,
        mut look: impl FnMut(&Sock<P>) -> Option<T>,
        mut act: impl FnMut(T) -> ControlFlow<()>,
    ) {
        let mut visited = 0_u32;
        let mut iter = MaybeUninit::<bindings::rhashtable_iter>::uninit();
        let iter = iter.as_mut_ptr();
        // SAFETY: The table is initialized. The iterator is initialized by entering, stays where it
        // is, and leaves the table before it goes; starting and stopping alternate, and any number
        // will do as a place to go on from. What `next` returns is null at the end, an error when
        // the table was resized, which is no reason to stop, or a socket that the read section
        // keeps.
        unsafe {
            bindings::rhashtable_walk_enter(self.table.get(), iter);
            bindings::rhashtable_walk_start(iter);
            bindings::rhashtable_walk_seek(iter, from.bucket, from.visited);
            loop {
                let found = bindings::rhashtable_walk_next(iter);
                if found.is_null() {
                    break;
                }
                if bindings::is_err(found) {
                    continue;
                }
                match look(&*found.cast::<Sock<P>>()) {
                    Some(result) => {
                        bindings::rhashtable_walk_stop(iter);
                        let flow = act(result);
                        bindings::rhashtable_walk_start(iter);
                        if flow.is_break() {
                            break;
                        }
                    }
                    None => {
                        from.bucket = bindings::rhashtable_walk_slot(iter);
                        from.visited = bindings::rhashtable_walk_skip(iter);
                        visited = visited.wrapping_add(1);
                        if visited % SOCKETS_AT_ONCE == 0 {
                            bindings::rhashtable_walk_stop(iter);
                            rcu::reschedule();
                            bindings::rhashtable_walk_start(iter);
                        }
                    }
                }
            }
            bindings::rhashtable_walk_stop(iter);
            bindings::rhashtable_walk_exit(iter);
        }
    }
}

impl<P: Protocol> Drop for Map<P> {
    fn drop(&mut self) {
        // SAFETY: Initialized in `new`; no one else uses it any more. What is left in it are
        // sockets of `P`.
        unsafe {
            bindings::rhashtable_free_and_destroy(
                self.table.get(),
                Some(release::<P>),
                ptr::null_mut(),
            );
        }
    }
}

/// Ends the membership of a socket when its map is dropped.
///
/// # Safety
///
/// Called for each socket of `P` in the map's table, which is not searched any more.
unsafe extern "C" fn release<P: Protocol>(sock: *mut c_void, _map: *mut c_void) {
    // SAFETY: The map's reference keeps the socket, and is given back once.
    let held = unsafe { SockRef::<P>::from_raw(sock.cast()) };
    held.entry.member.store(ptr::null_mut(), Release);
}
