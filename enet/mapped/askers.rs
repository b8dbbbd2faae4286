// SPDX-License-Identifier: GPL-2.0

//! Companions of sockets that connect and wait for a host, before ESP's or TCP's SYN is sent: for
//! its answer to a query, or for its Ethernet address.
//!
//! The list holds them, and is searched for each answer and each change of a neighbour. Its length
//! is bounded, so an event wakes a bounded number of calls.

use crate::net::errno::prelude::*;
use crate::{
    net::{
        device::Mac,
        rcu,
        sock::Sock,
        table::{LookupLink, Table, TableGuard},
    },
    stream::sock::{tell, Esp},
};
use core::sync::atomic::{
    fence, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

/// Buckets of the list, as a power of two.
const BITS: u32 = 6;

/// Maximum number of companions in the list.
const MOST: u32 = 1024;

/// The event that a companion waits for. The key does not tell apart hosts with the same address
/// behind several devices, so a companion that is woken looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The answer of the host with this Ethernet address.
    Answer(Mac),
    /// The Ethernet address of the host with this IPv4 address.
    Neighbour([u8; 4]),
}

impl Awaited {
    /// Returns the key, which is not 0.
    fn key(self) -> u64 {
        match self {
            Awaited::Answer(mac) => 1 << 62 | mac.to_bits(),
            Awaited::Neighbour(ip) => 1 << 63 | u64::from(u32::from_be_bytes(ip)),
        }
    }
}

fn hash(key: u64) -> u32 {
    (key >> 32) as u32 ^ key as u32
}

/// The waiting companions of a namespace.
pub(crate) struct Askers {
    sockets: Table<Esp, LookupLink>,
    count: AtomicU32,
}

impl Askers {
    /// Creates an empty list.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Askers {
            sockets: Table::new(BITS)?,
            count: AtomicU32::new(0),
        })
    }

    /// Lists a companion, or changes what it waits for. Look after this whether that has happened.
    /// Returns whether there was a change.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if the list is full.
    pub(super) fn enter(&self, sock: &Sock<Esp>, awaited: Awaited) -> Result<bool> {
        let key = awaited.key();
        let asking = &sock.shared().asking;
        if asking.key() == key {
            return Ok(false);
        }
        let guard = self.sockets.lock();
        self.remove(&guard, sock);
        if self.count.load(Relaxed) >= MOST {
            return Err(ENOBUFS);
        }
        guard.insert(hash(key), sock)?;
        self.count.fetch_add(1, Relaxed);
        asking.set_key(key);
        drop(guard);
        // Pairs with the fence in `wake`: either that sees the companion, or the caller sees the
        // event.
        fence(SeqCst);
        Ok(true)
    }

    /// Removes a companion, if it is listed, and disarms its timer.
    pub(crate) fn leave(&self, sock: &Sock<Esp>) {
        let guard = self.sockets.lock();
        if self.remove(&guard, sock) {
            drop(guard);
            sock.disarm_timer();
        }
    }

    fn remove(&self, guard: &TableGuard<'_, Esp, LookupLink>, sock: &Sock<Esp>) -> bool {
        let asking = &sock.shared().asking;
        if asking.key() == 0 {
            return false;
        }
        asking.set_key(0);
        // The caller has another reference.
        drop(guard.remove(sock));
        self.count.fetch_sub(1, Relaxed);
        true
    }

    /// Ends the wait of a companion whose time is over, and makes its calls look. The companion may
    /// have no call that would leave the list. It enters the list again if there is still something
    /// to wait for.
    pub(crate) fn expire(&self, sock: &Sock<Esp>) {
        self.remove(&self.sockets.lock(), sock);
        tell(sock);
    }

    /// Makes the calls look that wait for what has happened. Callable in any context.
    pub(crate) fn wake(&self, happened: Awaited) {
        fence(SeqCst);
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let key = happened.key();
        let section = rcu::Read::enter();
        self.sockets.find(hash(key), &section, |sock| {
            if sock.shared().asking.key() == key {
                tell(sock);
            }
            false
        });
    }

    /// Makes all waiting calls look, after a device has gone.
    pub(crate) fn wake_all(&self) {
        self.sockets.for_each(tell);
    }
}
