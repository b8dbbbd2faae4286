// SPDX-License-Identifier: GPL-2.0

//! Taking local ports, by the rule that `edp/` states for both protocols.

use crate::net::errno::prelude::*;
use crate::{
    edp::ports as rule,
    net::{
        bh_lock::BhLock,
        random,
        sock::{Protocol, RawSock, Sock, TcpState},
        table::{Link, Table},
    },
};
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering::Relaxed};
use kernel::bitmap::BitmapVec;

/// Buckets of a table of ports, as a power of two.
const BITS: u32 = 10;

/// The ports of one protocol in one namespace.
pub(crate) struct Ports<P: Protocol, L: Link> {
    /// The sockets that own one, in the bucket of its number.
    pub(crate) sockets: Table<P, L>,
    /// A leaf below the table's lock, with which it changes.
    taken: BhLock<Taken>,
}

/// Which ports have an owner, on whatever interface.
struct Taken {
    /// A bit for each.
    bits: BitmapVec,
    /// Where the search for a free one starts.
    rover: u16,
}

impl<P: Protocol, L: Link> Ports<P, L> {
    /// All of them free.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let taken = Taken {
            bits: BitmapVec::new(1 << u16::BITS, GFP_KERNEL)?,
            rover: rule::DYNAMIC.start() | random::u16(),
        };
        Ok(Ports {
            sockets: Table::new(BITS)?,
            taken: BhLock::new(taken, kernel::static_lock_class!())?,
        })
    }
}

/// A socket's local end: a port of one interface or of all.
#[derive(Default)]
pub(crate) struct Binding {
    port: AtomicU16,
    ifindex: AtomicU32,
    /// `bind` named the port: it stays when the socket is disconnected.
    asked_for: AtomicBool,
    /// The port was given back: it is only shown until the socket takes another one.
    lapsed: AtomicBool,
}

impl Binding {
    /// A binding that is a fact already, as an accepted connection's.
    pub(crate) fn fixed(port: u16, ifindex: u32) -> Self {
        Binding {
            port: AtomicU16::new(port),
            ifindex: AtomicU32::new(ifindex),
            asked_for: AtomicBool::new(false),
            lapsed: AtomicBool::new(false),
        }
    }

    /// Whether the port was asked for by its number.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.asked_for.load(Relaxed)
    }

    /// Whether the socket has the port that it shows.
    pub(crate) fn is_taken(&self) -> bool {
        self.port() != 0 && !self.lapsed.load(Relaxed)
    }

    /// The port was given back, and the socket is in no table.
    pub(crate) fn lapse(&self) {
        self.lapsed.store(true, Relaxed);
    }

    /// Forgets a port that was given back; the socket is in no table.
    pub(crate) fn clear(&self) {
        self.port.store(0, Relaxed);
        self.ifindex.store(0, Relaxed);
    }

    /// The local port, 0 before the socket has had one.
    #[inline]
    pub(crate) fn port(&self) -> u16 {
        self.port.load(Relaxed)
    }

    /// The interface bound to, 0 for all.
    #[inline]
    pub(crate) fn ifindex(&self) -> u32 {
        self.ifindex.load(Relaxed)
    }

    /// What the socket `sock`, whose binding this is, claims of its port.
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

    /// Whether a frame for `port` that came by device `ifindex` is for this binding.
    #[inline]
    pub(crate) fn takes(&self, port: u16, ifindex: u32) -> bool {
        let own = self.ifindex();
        self.port() == port && (own == 0 || own == ifindex)
    }
}

/// Takes `port`, or one that is free on every interface if it is 0, on interface `ifindex` (0: all)
/// for a socket that has none. `binding` is that socket's; `of` finds a socket's.
///
/// # Errors
///
/// `EADDRINUSE` if the port is taken, or none is free; `EINVAL` if the socket has one.
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
    let asked_for = port != 0;
    let port = if asked_for {
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
        let free = rule::pick(taken.rover, next_free).ok_or(EADDRINUSE)?;
        taken.rover = free.wrapping_add(1);
        free
    };
    guard.insert(port.into(), sock)?;
    taken.bits.set_bit(port.into());
    binding.asked_for.store(asked_for, Relaxed);
    binding.lapsed.store(false, Relaxed);
    binding.ifindex.store(ifindex, Relaxed);
    binding.port.store(port, Relaxed);
    Ok(())
}

/// Makes a socket that has a port a listener, by `listen`, unless another one has the port for
/// itself. Sockets that share a port have each other's consent to be bound, not to listen.
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

/// Whether the calling task may bind to `port`, by the namespace's rule for TCP and UDP
/// (`net.ipv4.ip_unprivileged_port_start`).
///
/// # Errors
///
/// `EACCES` if it may not.
pub(crate) fn allowed(sock: &RawSock, port: u16) -> Result {
    if port == 0 || sock.may_bind(port) {
        Ok(())
    } else {
        Err(EACCES)
    }
}

/// Gives the socket's port back, if it has taken one.
pub(crate) fn give_back<P: Protocol, L: Link>(
    ports: &Ports<P, L>,
    sock: &Sock<P>,
    binding: &Binding,
    of: impl Fn(&Sock<P>) -> &Binding,
) {
    let guard = ports.sockets.lock();
    let port = binding.port();
    let held = guard.remove(sock);
    if held.is_some() && !guard.any(port.into(), |other| of(other).port() == port) {
        ports.taken.lock().bits.clear_bit(port.into());
    }
}
