// SPDX-License-Identifier: GPL-2.0

//! Taking local ports, by the rule that `edp/` states for both protocols.

use crate::net::errno::prelude::*;
use crate::{
    edp::ports as rule,
    net::{
        sock::{Protocol, Sock},
        table::{Link, Table},
    },
};
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

/// Where the search for a free port starts.
static ROVER: AtomicU16 = AtomicU16::new(0);

/// A socket's local end: a port of one interface or of all.
#[derive(Default)]
pub(crate) struct Binding {
    port: AtomicU16,
    ifindex: AtomicU32,
}

impl Binding {
    /// A binding that is a fact already, as an accepted connection's.
    pub(crate) fn fixed(port: u16, ifindex: u32) -> Self {
        Binding {
            port: AtomicU16::new(port),
            ifindex: AtomicU32::new(ifindex),
        }
    }

    /// The local port, 0 before the socket has one.
    #[inline]
    pub(crate) fn port(&self) -> u16 {
        self.port.load(Relaxed)
    }

    /// The interface bound to, 0 for all.
    #[inline]
    pub(crate) fn ifindex(&self) -> u32 {
        self.ifindex.load(Relaxed)
    }

    /// Whether a frame for `port` that came by device `ifindex` is for this binding.
    #[inline]
    pub(crate) fn takes(&self, port: u16, ifindex: u32) -> bool {
        let own = self.ifindex();
        self.port() == port && (own == 0 || own == ifindex)
    }
}

/// Takes `port`, or a free one if it is 0, on interface `ifindex` (0: all) for a socket that has
/// none. `binding` is that socket's; `of` finds a socket's.
///
/// # Errors
///
/// `EADDRINUSE` if the port is taken, or none is free.
pub(crate) fn take<P: Protocol, L: Link>(
    table: &Table<P, L>,
    sock: &Sock<P>,
    binding: &Binding,
    of: impl Fn(&Sock<P>) -> &Binding,
    port: u16,
    ifindex: u32,
) -> Result {
    let guard = table.lock();
    if binding.port() != 0 {
        return Err(EINVAL);
    }
    let taken = |port: u16| {
        guard.any(port.into(), |other| {
            let other = of(other);
            other.port() == port && rule::conflicts(other.ifindex(), ifindex)
        })
    };
    let port = if port != 0 {
        if taken(port) {
            return Err(EADDRINUSE);
        }
        port
    } else {
        let rover = ROVER.load(Relaxed);
        let free = rule::pick(
            table.len(),
            rover,
            |bucket| table.load(bucket as u32),
            taken,
        )
        .ok_or(EADDRINUSE)?;
        ROVER.store(free.wrapping_add(1), Relaxed);
        free
    };
    binding.ifindex.store(ifindex, Relaxed);
    binding.port.store(port, Relaxed);
    guard.insert(port.into(), sock);
    Ok(())
}

/// Gives the socket's port back, if it has taken one from `table`.
pub(crate) fn give_back<P: Protocol, L: Link>(
    table: &Table<P, L>,
    sock: &Sock<P>,
    binding: &Binding,
) {
    table.lock().remove(binding.port().into(), sock);
}
