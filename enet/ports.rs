// SPDX-License-Identifier: GPL-2.0

//! Allocation of local ports, by the rule that `edp/` defines for both protocols.

use crate::net::errno::prelude::*;
use crate::{
    edp::ports as rule,
    net::{
        bh_lock::BhLock,
        random,
        sock::{Protocol, RawSock, Sock, TcpState},
        table::{Link, Table, TableGuard},
    },
};
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering::Relaxed};
use kernel::bitmap::BitmapVec;

/// Base-2 logarithm of the number of buckets in a table of ports.
const BITS: u32 = 10;

/// Number of search offsets. Destinations whose hashes select the same offset share it, so each of
/// them skips the ports that the others have taken.
const DESTINATIONS: usize = 256;

/// The ports of one protocol in one namespace.
pub(crate) struct Ports<P: Protocol, L: Link> {
    /// The sockets that own a port, hashed by port number.
    pub(crate) sockets: Table<P, L>,
    /// The ports that are taken. They change together with `sockets`. The lock of `sockets` is
    /// taken before this lock.
    taken: BhLock<Taken>,
}

/// The ports that have an owner, on any interface.
struct Taken {
    /// A bit for each port, which is set if the port has an owner.
    bits: BitmapVec,
    /// Ports that only connecting sockets have taken. Further connecting sockets may share these
    /// ports.
    shared: BitmapVec,
    /// The offset that the search for a port has reached, for each destination hash.
    offsets: [u16; DESTINATIONS],
}

impl Taken {
    /// Returns whether a connecting socket can take `port`.
    fn serves(&self, port: u16) -> bool {
        !self.is_taken(port) || self.shared.next_bit(port.into()) == Some(port.into())
    }

    fn is_taken(&self, port: u16) -> bool {
        self.bits.next_bit(port.into()) == Some(port.into())
    }
}

impl<P: Protocol, L: Link> Ports<P, L> {
    /// Returns a table in which all ports are free.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let taken = Taken {
            bits: BitmapVec::new(1 << u16::BITS, GFP_KERNEL_ACCOUNT)?,
            shared: BitmapVec::new(1 << u16::BITS, GFP_KERNEL_ACCOUNT)?,
            offsets: [0; DESTINATIONS],
        };
        Ok(Ports {
            sockets: Table::new(BITS)?,
            taken: BhLock::new(taken, kernel::static_lock_class!())?,
        })
    }
}

/// A socket's local end: a port of one or of all interfaces.
#[derive(Default)]
pub(crate) struct Binding {
    port: AtomicU16,
    ifindex: AtomicU32,
    /// Whether `bind` named the port. A port that `bind` named is kept if the socket is
    /// disconnected.
    explicit: AtomicBool,
    /// Whether the port was released. Until the socket takes another port, its address still shows
    /// the released one.
    released: AtomicBool,
}

impl Binding {
    /// Returns a binding to a port that the socket does not take itself, such as the port of an
    /// accepted connection.
    pub(crate) fn fixed(port: u16, ifindex: u32) -> Self {
        Binding {
            port: AtomicU16::new(port),
            ifindex: AtomicU32::new(ifindex),
            explicit: AtomicBool::new(false),
            released: AtomicBool::new(false),
        }
    }

    /// Stores the socket's new port.
    fn set(&self, port: u16, ifindex: u32, explicit: bool) {
        self.explicit.store(explicit, Relaxed);
        self.released.store(false, Relaxed);
        self.ifindex.store(ifindex, Relaxed);
        self.port.store(port, Relaxed);
    }

    /// Gives the socket a port that a different allocator (TCP's) owns. The socket is locked and in
    /// no table.
    pub(crate) fn fix(&self, port: u16) {
        self.set(port, 0, false);
    }

    /// Returns whether the port was requested by its number.
    pub(crate) fn is_explicit(&self) -> bool {
        self.explicit.load(Relaxed)
    }

    /// Returns whether the socket owns the port that `port` returns.
    pub(crate) fn is_taken(&self) -> bool {
        self.port() != 0 && !self.released.load(Relaxed)
    }

    /// Marks the port as released. The socket is in no table.
    pub(crate) fn mark_released(&self) {
        self.released.store(true, Relaxed);
    }

    /// Forgets a released port. The socket is in no table, and the table of ports is locked.
    fn clear(&self) {
        self.port.store(0, Relaxed);
        self.ifindex.store(0, Relaxed);
    }

    /// Returns the local port; 0 if the socket has never had one.
    #[inline]
    pub(crate) fn port(&self) -> u16 {
        self.port.load(Relaxed)
    }

    /// Returns the interface that the socket is bound to; 0 for all.
    #[inline]
    pub(crate) fn ifindex(&self) -> u32 {
        self.ifindex.load(Relaxed)
    }

    /// Returns the claim of `sock` to its port; `self` is the binding of `sock`.
    fn claim(&self, sock: &RawSock) -> rule::Claim {
        rule::Claim {
            ifindex: match self.ifindex() {
                0 => sock.bound_device(),
                ifindex => ifindex,
            },
            shares: sock.shares_address(),
            listens: sock.tcp_state() == TcpState::Listen as u8,
        }
    }

    /// Returns whether a frame for `port` from device `ifindex` matches this binding.
    #[inline]
    pub(crate) fn takes(&self, port: u16, ifindex: u32) -> bool {
        let own = self.ifindex();
        self.port() == port && (own == 0 || own == ifindex)
    }
}

/// Takes `port` on interface `ifindex` (0 for all) for a socket that has no port. If `port` is 0,
/// takes a port that is free on every interface. `binding` is the binding of this socket; `of`
/// returns the binding of any socket that it is given.
///
/// # Errors
///
/// `EADDRINUSE` if `port` is taken or no port is free, `EINVAL` if the socket has a port.
pub(crate) fn take<P: Protocol, L: Link>(
    ports: &Ports<P, L>,
    sock: &Sock<P>,
    binding: &Binding,
    of: impl Fn(&Sock<P>) -> &Binding,
    port: u16,
    ifindex: u32,
) -> Result {
    let guard = ports.sockets.lock();
    let mut taken = ports.taken.lock();
    if binding.is_taken() {
        return Err(EINVAL);
    }
    let explicit = port != 0;
    let port = if explicit {
        let own = Binding::fixed(port, ifindex).claim(sock);
        let conflict = guard.any(port.into(), |other| {
            let holder = of(other);
            holder.port() == port && rule::conflicts(holder.claim(other), own)
        });
        if conflict {
            return Err(EADDRINUSE);
        }
        port
    } else {
        let next_free = |from: u16| {
            let found = taken.bits.next_zero_bit(from.into())?;
            u16::try_from(found).ok()
        };
        rule::pick(random::u16(), next_free).ok_or(EADDRINUSE)?
    };
    guard.insert(port.into(), sock)?;
    taken.bits.set_bit(port.into());
    taken.shared.clear_bit(port.into());
    binding.set(port, ifindex, explicit);
    Ok(())
}

/// Takes a port on all interfaces for a socket that has none and is connecting to the destination
/// with `hash`. Tries the ports in an order that depends on the destination, and takes the first
/// for which `connect` succeeds. Connecting sockets can share a port as long as `connect` finds no
/// connection with the same port and destination.
///
/// # Errors
///
/// `EADDRNOTAVAIL` if no port is available, `EINVAL` if the socket has a port, and the errors of
/// `connect`. If `connect` returns `EEXIST`, the port has a connection with the destination
/// already, and the next port is tried.
pub(crate) fn take_to_connect<P: Protocol, L: Link>(
    ports: &Ports<P, L>,
    sock: &Sock<P>,
    binding: &Binding,
    hash: u64,
    connect: impl Fn(u16) -> Result,
) -> Result {
    let destination = hash as usize % DESTINATIONS;
    let advanced = |taken: &Taken| taken.offsets.get(destination).copied().unwrap_or(0);
    let offset = ((hash >> 48) as u16).wrapping_add(advanced(&ports.taken.lock()));
    for (tried, port) in rule::candidates(offset).enumerate() {
        // The lock is released between ports because many ports may be tried.
        let guard = ports.sockets.lock();
        let mut taken = ports.taken.lock();
        if !taken.serves(port) {
            continue;
        }
        guard.insert(port.into(), sock)?;
        if let Err(error) = connect(port) {
            drop(guard.remove(sock));
            if error == EEXIST {
                continue;
            }
            return Err(error);
        }
        if !taken.is_taken(port) {
            taken.bits.set_bit(port.into());
            taken.shared.set_bit(port.into());
        }
        let next = advanced(&taken).wrapping_add(tried as u16).wrapping_add(1);
        if let Some(offset) = taken.offsets.get_mut(destination) {
            *offset = next;
        }
        binding.set(port, 0, false);
        return Ok(());
    }
    Err(EADDRNOTAVAIL)
}

/// Turns a bound socket into a listener: calls `listen`, unless another socket has a conflicting
/// claim to the port. Bound sockets may agree to share a port; a listener's port is never shared.
///
/// # Errors
///
/// `EADDRINUSE`.
pub(crate) fn listen<P: Protocol, L: Link>(
    ports: &Ports<P, L>,
    sock: &Sock<P>,
    of: impl Fn(&Sock<P>) -> &Binding,
    listen: impl FnOnce(),
) -> Result {
    let guard = ports.sockets.lock();
    let (port, own) = (of(sock).port(), of(sock).claim(sock));
    let taken = guard.any(port.into(), |other| {
        let holder = of(other);
        !core::ptr::eq(other, sock)
            && holder.port() == port
            && rule::conflicts(holder.claim(other), own)
    });
    if taken {
        return Err(EADDRINUSE);
    }
    listen();
    Ok(())
}

/// Checks that the calling task may bind to `port`, by the namespace's rule for TCP and UDP
/// (`net.ipv4.ip_unprivileged_port_start`).
///
/// # Errors
///
/// `EACCES` if the task may not bind to `port`.
pub(crate) fn allowed(sock: &RawSock, port: u16) -> Result {
    if port == 0 || sock.may_bind(port) {
        Ok(())
    } else {
        Err(EACCES)
    }
}

/// Releases the socket's port, if it has one. The binding keeps the port number.
pub(crate) fn give_back<P: Protocol, L: Link>(
    ports: &Ports<P, L>,
    sock: &Sock<P>,
    binding: &Binding,
    of: impl Fn(&Sock<P>) -> &Binding,
) {
    release(ports, &ports.sockets.lock(), sock, binding, of);
}

/// Releases the socket's port, if it has one, and lets the socket take another port. The table
/// stays locked for both steps. Otherwise the socket could take a port between the two steps, and
/// would then be in the table without a port.
pub(crate) fn forget<P: Protocol, L: Link>(
    ports: &Ports<P, L>,
    sock: &Sock<P>,
    binding: &Binding,
    of: impl Fn(&Sock<P>) -> &Binding,
) {
    let guard = ports.sockets.lock();
    release(ports, &guard, sock, binding, of);
    binding.clear();
}

fn release<P: Protocol, L: Link>(
    ports: &Ports<P, L>,
    guard: &TableGuard<'_, P, L>,
    sock: &Sock<P>,
    binding: &Binding,
    of: impl Fn(&Sock<P>) -> &Binding,
) {
    let port = binding.port();
    let held = guard.remove(sock);
    if held.is_some() && !guard.any(port.into(), |other| of(other).port() == port) {
        let mut taken = ports.taken.lock();
        taken.bits.clear_bit(port.into());
        taken.shared.clear_bit(port.into());
    }
}
