// SPDX-License-Identifier: GPL-2.0

//! A list of the companions whose sockets are connecting but have sent no SYN yet. (A companion is
//! the ESP socket that shares the descriptor of a TCP socket.) Each companion waits for a host's
//! answer to a query, or for a host's Ethernet address.
//!
//! The list is searched for each answer and each change of a neighbour. The length of the list is
//! bounded, so an event wakes a bounded number of calls.

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
use core::{
    net::IpAddr,
    sync::atomic::{
        fence, AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
};

/// Base-2 logarithm of the number of buckets in the list.
const BITS: u32 = 6;

/// Maximum number of sockets in the list.
const MOST: u32 = 1024;

/// The event that a socket waits for before it sends a SYN. The list finds sockets by a key of the
/// event. Different hosts can have the same key, because the key lacks the device and shortens IPv6
/// addresses. So a call that is woken must check whether the event concerns its host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The answer of the host with this Ethernet address.
    Answer(Mac),
    /// The Ethernet address of the host with this IP address.
    Neighbour(IpAddr),
}

impl Awaited {
    /// Returns the key, which is not 0.
    fn key(self) -> u64 {
        match self {
            Awaited::Answer(mac) => 1 << 62 | mac.to_bits(),
            Awaited::Neighbour(IpAddr::V4(ip)) => 1 << 63 | u64::from(ip.to_bits()),
            Awaited::Neighbour(IpAddr::V6(ip)) => {
                let bits = ip.to_bits();
                3 << 62 | (bits >> 64) as u64 ^ bits as u64
            }
        }
    }
}

fn hash(key: u64) -> u32 {
    (key >> 32) as u32 ^ key as u32
}

/// The sockets of a namespace that wait before they send a SYN.
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

    /// Lists `sock`, or changes the event that it waits for. Returns whether the list has changed.
    /// If so, the caller must then check whether the event has already occurred.
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
        // Pairs with the fence in `wake`: either `wake` sees the socket in the list, or the caller
        // sees the event.
        fence(SeqCst);
        Ok(true)
    }

    /// Removes `sock`, if it is listed, and disarms its timer.
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
        // This drops the list's reference. The caller has another one.
        drop(guard.remove(sock));
        self.count.fetch_sub(1, Relaxed);
        true
    }

    /// Removes a socket whose wait has timed out, and wakes its calls. Otherwise a socket on which
    /// no call runs would stay in the list. A call that must wait further lists the socket again.
    pub(crate) fn expire(&self, sock: &Sock<Esp>) {
        self.remove(&self.sockets.lock(), sock);
        tell(sock);
    }

    /// Wakes the calls that wait for the event `happened`. Callable in any context.
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

    /// Wakes all calls that wait, because a device was removed.
    pub(crate) fn wake_all(&self) {
        self.sockets.for_each(tell);
    }
}
