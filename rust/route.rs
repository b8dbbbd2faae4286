// SPDX-License-Identifier: GPL-2.0

//! IPv4 routes and neighbours: the device and Ethernet address for packets to an IPv4 address.
//!
//! C headers: [`include/net/route.h`](srctree/include/net/route.h),
//! [`include/net/arp.h`](srctree/include/net/arp.h),
//! [`include/net/netevent.h`](srctree/include/net/netevent.h)

use super::{
    bindings,
    device::{Device, Mac},
    notifier::Notified,
    rcu,
    sock::RawSock,
};
use crate::net::errno::prelude::*;
use core::marker::PhantomData;
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
    pub(crate) source: [u8; 4],
}

/// The reason why there is no [`Hop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHop {
    /// There is no route, or the route is through a gateway, uses IPsec, is not to a single host,
    /// or is not over Ethernet.
    NotOnLink,
    /// The destination is on the local Ethernet behind device `ifindex`, and would see the local
    /// address `source`. Its Ethernet address is unknown.
    NoNeighbour { ifindex: u32, source: [u8; 4] },
}

fn neighbour(device: &Device, ip: [u8; 4]) -> Option<Mac> {
    if !device.is_ethernet() {
        return None;
    }
    let mut address = [0; ADDRESS_MAX];
    // SAFETY: The device is valid, and its address fits into `address`.
    let known = unsafe {
        bindings::neighbour_address(
            device.as_ptr(),
            u32::from_ne_bytes(ip),
            address.as_mut_ptr(),
        )
    };
    known.then(|| Mac(*address.first_chunk().unwrap_or(&[0; 6])))
}

/// Returns the device of a route, valid for the read section. A route does not hold its device.
/// When the device is removed, the core replaces the device in the route with one that is not
/// Ethernet (`dst_dev_put`).
///
/// # Safety
///
/// `route` is a valid route.
unsafe fn device_of(route: *mut bindings::rtable, _section: &rcu::Read) -> &Device {
    // SAFETY: By the caller's promise, `route` is valid. The pointer is loaded once, in the read
    // section. A device is freed only after the end of every read section that may have found it
    // through a route.
    unsafe { Device::from_raw(bindings::rt_dev_rcu(route)) }
}

/// Returns whether the host with IPv4 address `ip` is the neighbour with Ethernet address `mac` on
/// `device`.
pub(crate) fn is_neighbour(device: &Device, ip: [u8; 4], mac: Mac) -> bool {
    neighbour(device, ip) == Some(mac)
}

/// Resolves the Ethernet address of the host with IPv4 address `ip` on `device`, unless the address
/// is known. Must be called in process context.
pub(crate) fn resolve(device: &Device, ip: [u8; 4]) {
    // SAFETY: The device is valid. The function uses the table's entry in a read section of its
    // own, and takes the locks of the entry and of the device's queue. The calling task holds none
    // of these locks.
    unsafe { bindings::neighbour_resolve(device.as_ptr(), u32::from_ne_bytes(ip)) };
}

/// Returns whether the Ethernet address of the host with IPv4 address `ip` on `device` is being
/// resolved.
pub(crate) fn is_resolving(device: &Device, ip: [u8; 4]) -> bool {
    // SAFETY: The device is valid. The function reads an entry in a single load, in a read section.
    unsafe { bindings::neighbour_is_resolving(device.as_ptr(), u32::from_ne_bytes(ip)) }
}

/// A listener for changes of IPv4 neighbours.
pub(crate) trait Listener: 'static {
    /// Called after the neighbour entry for the address `ip` on `device` has changed. Must not
    /// sleep.
    fn neighbour_event(device: &Device, ip: [u8; 4]);
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
            let mut ip = 0;
            // SAFETY: The object of this event is a neighbour, which the caller holds during the
            // call. The neighbour holds its device, and `ip` has room for an IPv4 address.
            unsafe {
                let device = bindings::arp_neighbour(object.cast(), &mut ip);
                if !device.is_null() {
                    L::neighbour_event(Device::from_raw(device), ip.to_ne_bytes());
                }
            }
        }
        bindings::NOTIFY_DONE as c_int
    }
}

/// Returns whether `ip` is an address of this host, for packets received by `device`.
pub(crate) fn is_own(device: &Device, ip: [u8; 4]) -> bool {
    // SAFETY: The device is valid. The function may be called in any context.
    unsafe { bindings::inet_is_own(device.as_ptr(), u32::from_ne_bytes(ip)) }
}

impl RawSock {
    /// Returns the destination of packets that the socket would send from `from` (zeroes for any
    /// local address) to port `port` of `to`.
    ///
    /// # Errors
    ///
    /// [`NoHop`] if the destination is not on a local Ethernet, or if its Ethernet address is
    /// unknown.
    pub(crate) fn next_hop(&self, from: [u8; 4], to: [u8; 4], port: u16) -> Result<Hop, NoHop> {
        let mut source = u32::from_ne_bytes(from);
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The function reads only
        // generic fields of it, and returns a route that is ours, or an error.
        let route = unsafe {
            bindings::route_output(
                self.as_ptr(),
                &mut source,
                u32::from_ne_bytes(to),
                port.to_be(),
            )
        };
        // SAFETY: The function only tests the pointer's value.
        if unsafe { bindings::is_err(route.cast()) } {
            return Err(NoHop::NotOnLink);
        }
        let section = rcu::Read::enter();
        // SAFETY: The route is ours until it is given back below.
        let hop = if unsafe { bindings::rt_is_on_link(route) } {
            // SAFETY: The route is ours until it is given back below.
            let device = unsafe { device_of(route, &section) };
            match neighbour(device, to) {
                Some(mac) => Ok((device.index(), mac)),
                None if device.is_ethernet() => Err(NoHop::NoNeighbour {
                    ifindex: device.index(),
                    source: source.to_ne_bytes(),
                }),
                None => Err(NoHop::NotOnLink),
            }
        } else {
            Err(NoHop::NotOnLink)
        };
        drop(section);
        // SAFETY: The function drops the reference to the route that `route_output` has returned.
        unsafe { bindings::rt_put(route) };
        hop.map(|(ifindex, mac)| Hop {
            ifindex,
            mac,
            source: source.to_ne_bytes(),
        })
    }
}
