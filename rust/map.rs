// SPDX-License-Identifier: GPL-2.0

//! Hash tables of sockets. The tables grow and shrink with their contents, and are searched under
//! RCU.
//!
//! A map wraps the kernel's `rhashtable`. The hash has a secret seed, so no remote host can choose
//! keys that collide in one bucket. Each bucket has its own lock. A map holds a reference to each
//! of its sockets. Sockets are freed after a grace period (`SOCK_RCU_FREE`), so a socket that a
//! search finds is valid for the read section without a reference. If a socket moves to another
//! chain during a search, it may lead the search there. The search then starts over, as in
//! [`table`](super::table).
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

/// The number of sockets after which a walk lets other tasks run.
const SOCKETS_AT_ONCE: u32 = 256;

/// The helpers in `helpers.c` assume keys of 16 bytes.
const _: () = assert!(size_of::<Key>() == 16);

/// The part of a socket that links it into a map. Every socket has this part, even while it is in
/// no map.
#[repr(C)]
pub(super) struct Entry {
    head: UnsafeCell<bindings::rhash_head>,
    /// The key of the socket in its map. Changed only while `member` is null.
    key: [AtomicU32; 4],
    /// The table of the socket's map, or null. Written with the socket locked, or when the map is
    /// dropped.
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
/// The table's entries belong exactly to the sockets whose `member` is this table. The map holds
/// one reference to each of these sockets.
pub(crate) struct Map<P: Protocol> {
    /// The table is in a box, since the kernel keeps pointers to it.
    table: KBox<UnsafeCell<bindings::rhashtable>>,
    _sockets: PhantomData<SockRef<P>>,
}

// SAFETY: The kernel's functions take the locks that their changes need.
unsafe impl<P: Protocol> Send for Map<P> {}
// SAFETY: The kernel's functions take the locks that their changes need.
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
        // SAFETY: All-zero bytes are a valid value, which the kernel initialises below.
        let table = unsafe { zeroed.assume_init() };
        let entry = offset_of!(Sock<P>, entry);
        // SAFETY: The memory does not move until `drop`. In every inserted socket, one of the two
        // offsets leads to a key, which has the size that the helper states. The other offset leads
        // to a link.
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
        // SAFETY: The table is initialized, and its keys have the size that the helper assumes. The
        // read section lasts for `'a`. The object found was inserted as a `Sock<P>`, and is freed
        // only after the section.
        unsafe {
            bindings::rhashtable_lookup_key(self.table.get(), key.as_ptr().cast())
                .cast::<Sock<P>>()
                .as_ref()
        }
    }

    /// Inserts a socket under `key`. The map holds it until [`Self::remove`].
    ///
    /// Another processor may make a change and then [walk](Self::for_each_held) through the map.
    /// Either the walk visits this socket, or the caller's reads after this call see the change.
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
        // A search that found the socket under its previous key may compare the key only now. So
        // code that locks a socket which a search found must check the peer again.
        for (word, value) in entry.key.iter().zip(key) {
            word.store(*value, Relaxed);
        }
        let (table, link) = (self.table.get(), entry.head.get());
        // SAFETY: The table is initialized. `link` is part of a valid socket that was in no table,
        // and since `member` is set, no one else inserts it.
        match to_result(unsafe { bindings::rhashtable_insert(table, link) }) {
            Ok(()) => {
                // The map keeps this reference.
                forget(held);
                // Pairs with the fence of `for_each_held`. Without both fences, each processor
                // could read the other's data before its own store is visible there. Then both
                // would miss the other's change.
                fence(SeqCst);
                Ok(())
            }
            Err(error) => {
                entry.member.store(ptr::null_mut(), Release);
                // Any error except `EEXIST` means that the table could not grow.
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
        // SAFETY: The table is initialized, and the socket is in it under its current key. The
        // socket is locked, so no one else inserts or removes it. The `SockRef` takes over the
        // map's reference.
        let held = unsafe {
            bindings::rhashtable_remove(self.table.get(), entry.head.get());
            SockRef::<P>::from_raw(sock.as_ptr())
        };
        entry.member.store(ptr::null_mut(), Release);
        drop(held);
    }

    /// Calls `f` in a read section for every socket from `from` on, until `f` fails. `from` is then
    /// the position of the socket for which `f` failed. A socket that is inserted or removed during
    /// the walk may be left out. If the map grows or shrinks, other sockets may be left out or
    /// visited twice. Call this in process context, because it lets other tasks run in between.
    ///
    /// # Errors
    ///
    /// The errors of `f`.
    pub(crate) fn walk<E>(
        &self,
        from: &mut Walk,
        mut f: impl FnMut(&Sock<P>) -> Result<(), E>,
    ) -> Result<(), E> {
        // `from` is a position in one table, so the walk begins only when no sockets are moving to
        // another table.
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

    /// Calls `f` with a reference to every socket that `chosen` selects. `f` runs in process
    /// context and outside any read section, so it may sleep and may remove the socket. Returns
    /// whether `chosen` has selected any socket. Lets other tasks run in between.
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

    /// Calls `look` in a read section for every socket from `from` on, and calls `act` outside of
    /// the section with each value that `look` returned. `from` moves past each socket for which
    /// `look` returned `None`.
    fn visit<T>(
        &self,
        from: &mut Walk,
        mut look: impl FnMut(&Sock<P>) -> Option<T>,
        mut act: impl FnMut(T) -> ControlFlow<()>,
    ) {
        let mut visited = 0_u32;
        let mut iter = MaybeUninit::<bindings::rhashtable_iter>::uninit();
        let iter = iter.as_mut_ptr();
        // SAFETY: The table is initialized. `rhashtable_walk_enter` initialises the iterator, which
        // does not move until `rhashtable_walk_exit`. The calls that start and stop the walk
        // alternate. `rhashtable_walk_seek` accepts any position. `rhashtable_walk_next` returns a
        // socket, which the read section keeps, or null at the end. If the table was resized, it
        // returns an error, and the walk continues.
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
        // SAFETY: `new` has initialised the table, and no one else uses it any more. The objects
        // left in it are sockets of `P`.
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
    // SAFETY: The socket is valid, since the map holds a reference to it. The `SockRef` takes over
    // this reference.
    let held = unsafe { SockRef::<P>::from_raw(sock.cast()) };
    held.entry.member.store(ptr::null_mut(), Release);
}
