// SPDX-License-Identifier: GPL-2.0

//! Routes and neighbours of IPv4 and IPv6: the device and Ethernet address for packets to an IP
//! address.
//!
//! A kernel without IPv6, or one that was booted with `ipv6.disable=1`, has no route, neighbour or
//! address of IPv6. The functions then find none.
//!
//! C headers: [`include/net/route.h`](srctree/include/net/route.h),
//! [`include/net/arp.h`](srctree/include/net/arp.h),
//! [`include/net/ip6_route.h`](srctree/include/net/ip6_route.h),
//! [`include/net/ndisc.h`](srctree/include/net/ndisc.h),
//! [`include/net/netevent.h`](srctree/include/net/netevent.h)

use super::{
    bindings,
    device::{Device, Mac},
    notifier::Notified,
    rcu,
    sock::RawSock,
};
use crate::net::errno::prelude::*;
use core::{
    marker::PhantomData,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};
use kernel::ffi::c_int;

/// Length of the longest address of any device, in bytes (`MAX_ADDR_LEN`).
const ADDRESS_MAX: usize = 32;

/// A destination on a local Ethernet.
pub(crate) struct Hop {
    /// Index of the device towards the destination.
    pub(crate) ifindex: u32,
    /// The Ethernet address of the destination.
    pub(crate) mac: Mac,
    /// The local address that the destination would see.
    pub(crate) source: IpAddr,
}

/// The reason why there is no [`Hop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHop {
    /// There is no route, or the route is through a gateway, uses IPsec, is not to a single host,
    /// or is not over Ethernet.
    NotOnLink,
    /// The destination is on the local Ethernet behind device `ifindex`, and would see the local
    /// address `source`. Its Ethernet address is unknown.
    NoNeighbour { ifindex: u32, source: IpAddr },
}

/// Returns an IPv4 address as the word in network byte order that the core's functions take.
fn word(ip: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(ip.octets())
}

/// Returns whether the kernel speaks IPv6.
pub(crate) fn has_ipv6() -> bool {
    // SAFETY: The function reads a variable that is constant after boot.
    unsafe { bindings::has_ipv6() }
}

fn neighbour(device: &Device, ip: IpAddr) -> Option<Mac> {
    if !device.is_ethernet() {
        return None;
    }
    let mut address = [0; ADDRESS_MAX];
    let (device, room) = (device.as_ptr(), address.as_mut_ptr());
    let known = match ip {
        // SAFETY: The device is valid, and its address fits into `address`.
        IpAddr::V4(ip) => unsafe { bindings::neighbour_address(device, word(ip), room) },
        // SAFETY: The device is valid, its address fits into `address`, and the function reads the
        // 16 bytes of an IPv6 address.
        IpAddr::V6(ip) => unsafe {
            bindings::neighbour6_address(device, ip.octets().as_ptr(), room)
        },
    };
    known.then(|| Mac(*address.first_chunk().unwrap_or(&[0; 6])))
}

/// Returns the route that a function of the core returned, or `None` if it returned an error.
fn found<T>(route: *mut T) -> Option<*mut T> {
    // SAFETY: The function only tests the pointer's value.
    let failed = unsafe { bindings::is_err(route.cast()) };
    (!failed).then_some(route)
}

/// A route.
///
/// # Invariants
///
/// The pointer is to a valid route, and the value has a reference to it.
enum Route {
    V4(*mut bindings::rtable),
    V6(*mut bindings::dst_entry),
}

impl Route {
    /// Returns the route through `device` from this host's address `own` to the host with the
    /// address `ip`. May be called in any context.
    fn back(device: &Device, ip: IpAddr, own: IpAddr) -> Option<Self> {
        let device = device.as_ptr();
        match (ip, own) {
            (IpAddr::V4(ip), IpAddr::V4(own)) => {
                // SAFETY: The device is valid. The function returns a route that is ours, or an
                // error.
                found(unsafe { bindings::route_back(device, word(ip), word(own)) }).map(Route::V4)
            }
            // SAFETY: The device is valid, and the function reads the 16 bytes of each address. It
            // returns a route that is ours, or an error.
            (IpAddr::V6(ip), IpAddr::V6(own)) => found(unsafe {
                bindings::route6_back(device, ip.octets().as_ptr(), own.octets().as_ptr())
            })
            .map(Route::V6),
            _ => None,
        }
    }

    /// Returns whether the route leads to a single host on a local network, without a gateway or
    /// IPsec.
    fn is_on_link(&self) -> bool {
        match self {
            // SAFETY: By the invariant, the route is valid.
            Route::V4(route) => unsafe { bindings::rt_is_on_link(*route) },
            // SAFETY: By the invariant, the route is valid, and it is one of IPv6.
            Route::V6(route) => unsafe { bindings::rt6_is_on_link(*route) },
        }
    }

    /// Returns the route's device, valid for the read section. A route does not hold its device.
    /// When the device is removed, the core replaces the device in the route with one that is not
    /// Ethernet (`dst_dev_put`).
    fn device<'a>(&self, _section: &'a rcu::Read) -> &'a Device {
        // SAFETY: By the invariant, the route is valid. The pointer is loaded once, in the read
        // section. A device is freed only after the end of every read section that may have found
        // it through a route.
        unsafe {
            Device::from_raw(match self {
                Route::V4(route) => bindings::rt_dev_rcu(*route),
                Route::V6(route) => bindings::dst_dev_rcu(*route),
            })
        }
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        match self {
            // SAFETY: By the invariant, the value has a reference, which the function drops.
            Route::V4(route) => unsafe { bindings::rt_put(*route) },
            // SAFETY: By the invariant, the value has a reference, which the function drops.
            Route::V6(route) => unsafe { bindings::dst_put(*route) },
        }
    }
}

/// Returns whether two conditions hold. First, on `device`, the neighbour with address `ip` has the
/// Ethernet address `mac`. Second, packets to `ip` from this host's address `own` would leave by
/// `device` without a gateway. The neighbour table alone does not show the second condition: the
/// core adds the sender of every solicitation or request to the table, even if the sender's address
/// is of another network.
pub(crate) fn is_neighbour(device: &Device, ip: IpAddr, own: IpAddr, mac: Mac) -> bool {
    neighbour(device, ip) == Some(mac)
        && Route::back(device, ip, own).is_some_and(|r| r.is_on_link())
}

/// Resolves the Ethernet address of the host with address `ip` on `device`, unless the address is
/// known. Must be called in process context.
pub(crate) fn resolve(device: &Device, ip: IpAddr) {
    match ip {
        // SAFETY: The device is valid. The function uses the table's entry in a read section of its
        // own, and takes the locks of the entry and of the device's queue. The calling task holds
        // none of these locks.
        IpAddr::V4(ip) => unsafe {
            bindings::neighbour_resolve(device.as_ptr(), word(ip));
        },
        // SAFETY: The device is valid, and the function reads the 16 bytes of the address. It uses
        // the table's entry in a read section of its own, and takes the locks of the entry and of
        // the device's queue. The calling task holds none of these locks.
        IpAddr::V6(ip) => unsafe {
            bindings::neighbour6_resolve(device.as_ptr(), ip.octets().as_ptr());
        },
    }
}

/// Sends a solicitation from `source` to the neighbour with IPv6 address `ip` on `device`, and to
/// no one else. The neighbour learns the Ethernet address of `source` from it. The core's own
/// solicitations come from the link-local address, unless a packet waits for the answer. As in the
/// core, nothing is sent unless `source` is an address of `device` that is known to be unique. Does
/// nothing for IPv4, whose requests come from an address of the destination's network. Must be
/// called in process context.
pub(crate) fn introduce(device: &Device, ip: IpAddr, source: IpAddr) {
    if let (IpAddr::V6(ip), IpAddr::V6(source)) = (ip, source) {
        // SAFETY: The device is valid, and the function reads the 16 bytes of each address. It
        // sends as IPv6 does: it makes a route, runs netfilter's hooks, and takes the locks of the
        // neighbour table and of the device's queue. The calling task holds none of these locks.
        unsafe {
            bindings::neighbour6_solicit(
                device.as_ptr(),
                ip.octets().as_ptr(),
                source.octets().as_ptr(),
            );
        }
    }
}

/// Returns whether the Ethernet address of the host with address `ip` on `device` is being
/// resolved.
pub(crate) fn is_resolving(device: &Device, ip: IpAddr) -> bool {
    let device = device.as_ptr();
    match ip {
        // SAFETY: The device is valid. The function reads the entry's state in a single load, in a
        // read section.
        IpAddr::V4(ip) => unsafe { bindings::neighbour_is_resolving(device, word(ip)) },
        // SAFETY: The device is valid, and the function reads the 16 bytes of the address. It reads
        // the entry's state in a single load, in a read section.
        IpAddr::V6(ip) => unsafe {
            bindings::neighbour6_is_resolving(device, ip.octets().as_ptr())
        },
    }
}

/// A listener for changes of neighbours.
pub(crate) trait Listener: 'static {
    /// Called after the neighbour entry for the address `ip` on `device` has changed. Must not
    /// sleep.
    fn neighbour_event(device: &Device, ip: IpAddr);
}

/// The registration of a [`Listener`]. Dropping it unregisters the listener.
pub(crate) struct Notifier<L: Listener> {
    _block: Notified,
    _listener: PhantomData<fn() -> L>,
}

impl<L: Listener> Notifier<L> {
    /// Registers the listener.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn register(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: Both functions belong to the chain of network events, and `call` is a callback
        // for that chain. Unregistering may sleep, and so may module exit, which drops this value.
        let block = unsafe {
            Notified::new(
                Self::call,
                bindings::register_netevent_notifier,
                bindings::unregister_netevent_notifier,
            )?
        };
        Ok(Notifier {
            _block: block,
            _listener: PhantomData,
        })
    }

    /// # Safety
    ///
    /// Called by the chain of network events, with the object of the event.
    unsafe extern "C" fn call(
        _block: *mut bindings::notifier_block,
        event: kernel::ffi::c_ulong,
        object: *mut kernel::ffi::c_void,
    ) -> c_int {
        const NEIGHBOUR: u64 = bindings::netevent_notif_type_NETEVENT_NEIGH_UPDATE as u64;
        if event as u64 == NEIGHBOUR {
            let (mut ip, mut ip6) = (0, [0; 16]);
            // SAFETY: The object of this event is a neighbour, which the caller holds during the
            // call. The neighbour holds its device, `ip` has room for an IPv4 address, and `ip6`
            // for an IPv6 address.
            unsafe {
                let device = bindings::arp_neighbour(object.cast(), &mut ip);
                if !device.is_null() {
                    let ip = Ipv4Addr::from(ip.to_ne_bytes());
                    L::neighbour_event(Device::from_raw(device), ip.into());
                } else {
                    let device = bindings::nd_neighbour(object.cast(), ip6.as_mut_ptr());
                    if !device.is_null() {
                        L::neighbour_event(Device::from_raw(device), Ipv6Addr::from(ip6).into());
                    }
                }
            }
        }
        bindings::NOTIFY_DONE as c_int
    }
}

/// Returns whether `ip` is an address of this host, for packets received by `device`.
pub(crate) fn is_own(device: &Device, ip: IpAddr) -> bool {
    match ip {
        // SAFETY: The device is valid. The function may be called in any context.
        IpAddr::V4(ip) => unsafe { bindings::inet_is_own(device.as_ptr(), word(ip)) },
        IpAddr::V6(ip) => is_own6(device, ip, false),
    }
}

/// Returns whether packets that `device` receives may come from `ip`: not from an address of this
/// host, unless `accept_local` of the device is set. IP also takes such packets if its rules lead
/// the answers through `device` (`fib_validate_source`).
pub(crate) fn may_come_from(device: &Device, ip: IpAddr) -> bool {
    // SAFETY: The device is valid. The function may be called in any context.
    !is_own(device, ip) || ip.is_ipv4() && unsafe { bindings::accepts_local(device.as_ptr()) }
}

/// Works like [`is_own`] for IPv6. If `strict` is set, only addresses of `device` itself count.
fn is_own6(device: &Device, ip: Ipv6Addr, strict: bool) -> bool {
    // SAFETY: The device is valid, and the function reads the 16 bytes of the address. It may be
    // called in any context.
    unsafe { bindings::inet6_is_own(device.as_ptr(), ip.octets().as_ptr(), strict) }
}

impl RawSock {
    /// Returns the route from `from` to port `port` of `to`, and the source address of packets on
    /// it.
    fn route(&self, from: Ipv4Addr, to: Ipv4Addr, port: u16) -> Option<(Route, Ipv4Addr)> {
        let mut source = word(from);
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The function reads fields of
        // Internet sockets only if it is one. It returns a route that is ours, or an error.
        let route =
            unsafe { bindings::route_output(self.as_ptr(), &mut source, word(to), port.to_be()) };
        found(route).map(|route| (Route::V4(route), Ipv4Addr::from(source.to_ne_bytes())))
    }

    /// Works like [`Self::route`] for IPv6. `scope` is the device of a link-local destination, or 0
    /// for the device that the socket is bound to.
    fn route6(
        &self,
        from: Ipv6Addr,
        to: Ipv6Addr,
        scope: u32,
        port: u16,
    ) -> Option<(Route, Ipv6Addr)> {
        let mut source = from.octets();
        let scope = c_int::try_from(scope).ok()?;
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The function reads the fields
        // of IPv6 only of a socket of that family. It reads and writes the 16 bytes of the
        // addresses. It returns a route that is ours, or an error.
        let route = unsafe {
            bindings::route6_output(
                self.as_ptr(),
                source.as_mut_ptr(),
                to.octets().as_ptr(),
                scope,
                port.to_be(),
            )
        };
        found(route).map(|route| (Route::V6(route), Ipv6Addr::from(source)))
    }

    /// Returns the destination of packets that the socket would send from `from` (unspecified for
    /// any local address) to port `port` of `to`. `scope` is the device of a link-local
    /// destination, or 0 for the device that the socket is bound to.
    ///
    /// # Errors
    ///
    /// [`NoHop`] if the destination is not on a local Ethernet, or if its Ethernet address is
    /// unknown.
    pub(crate) fn next_hop(
        &self,
        from: IpAddr,
        to: IpAddr,
        scope: u32,
        port: u16,
    ) -> Result<Hop, NoHop> {
        let found = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => self
                .route(from, to, port)
                .map(|(route, source)| (route, IpAddr::from(source))),
            (IpAddr::V6(from), IpAddr::V6(to)) => self
                .route6(from, to, scope, port)
                .map(|(route, source)| (route, IpAddr::from(source))),
            _ => None,
        };
        let (route, source) = found.ok_or(NoHop::NotOnLink)?;
        if !route.is_on_link() {
            return Err(NoHop::NotOnLink);
        }
        let section = rcu::Read::enter();
        let device = route.device(&section);
        // The source must be an address of this device. A transparent proxy may bind to the address
        // of another host: the IPv4 look-up fails for such a source, but the IPv6 look-up succeeds.
        // An address of another device of this host does not do either. The host does not answer
        // IPv6 solicitations for it on this device, so the destination could not learn the Ethernet
        // address.
        if matches!(source, IpAddr::V6(source) if !is_own6(device, source, true)) {
            return Err(NoHop::NotOnLink);
        }
        let ifindex = device.index();
        match neighbour(device, to) {
            Some(mac) => Ok(Hop {
                ifindex,
                mac,
                source,
            }),
            None if device.is_ethernet() => Err(NoHop::NoNeighbour { ifindex, source }),
            None => Err(NoHop::NotOnLink),
        }
    }
}
