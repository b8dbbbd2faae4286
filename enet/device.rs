// SPDX-License-Identifier: GPL-2.0

//! Which device a socket is tied to, and whether that can be used.

use crate::net::errno::prelude::*;
use crate::{
    address::{Address, INTERFACE_ANY},
    net::{
        device::{Device, Mac},
        namespace::Net,
        rcu,
        sock::RawSock,
    },
};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Checks that frames can leave by `device`.
///
/// # Errors
///
/// `ENODEV` if it is not an Ethernet device, `ENETDOWN` if it is down.
pub(crate) fn usable(device: &Device) -> Result {
    if !device.is_ethernet() {
        return Err(ENODEV);
    }
    if !device.is_up() {
        return Err(ENETDOWN);
    }
    Ok(())
}

/// Checks that a socket can be bound to interface `ifindex`, any if that is 0. If the socket joins
/// its table in the same read section, a device that goes does not miss it.
///
/// # Errors
///
/// `ENODEV` if it is not there, and those of [`usable`].
pub(crate) fn bindable(net: &Net, ifindex: u32, section: &rcu::Read) -> Result {
    match ifindex {
        INTERFACE_ANY => Ok(()),
        _ => usable(Device::find(net, ifindex, section).ok_or(ENODEV)?),
    }
}

/// The interface `asked` for, unless the socket is tied to another.
///
/// # Errors
///
/// `EINVAL` if it is, `ENODEV` if there is neither.
pub(crate) fn outgoing(sock: &RawSock, bound: u32, asked: u32) -> Result<u32> {
    let mut chosen = asked;
    for tie in [bound, sock.bound_device()] {
        if tie != 0 {
            if chosen != 0 && chosen != tie {
                return Err(EINVAL);
            }
            chosen = tie;
        }
    }
    if chosen == 0 {
        return Err(ENODEV);
    }
    Ok(chosen)
}

/// Checks that the device which a socket is tied to is still there: without one, `ifindex` 0,
/// nothing can be amiss.
///
/// # Errors
///
/// `ENODEV`.
pub(crate) fn present(net: &Net, ifindex: u32) -> Result {
    if ifindex == INTERFACE_ANY {
        return Ok(());
    }
    let section = rcu::Read::enter();
    Device::find(net, ifindex, &section)
        .filter(|device| device.is_ethernet())
        .map(drop)
        .ok_or(ENODEV)
}

/// The MTU of the device that a socket is tied to. Nothing of the device is held when this returns:
/// the caller may wait for the socket's lock, or for user memory.
///
/// # Errors
///
/// `ENODEV`.
pub(crate) fn mtu(net: &Net, ifindex: u32) -> Result<u32> {
    let section = rcu::Read::enter();
    let device = Device::find(net, ifindex, &section).ok_or(ENODEV)?;
    Ok(device.mtu())
}

/// How often a device has gone from any namespace; wraps.
static DEPARTURES: AtomicU32 = AtomicU32::new(0);

/// A device has gone from its namespace.
pub(crate) fn note_departure() {
    DEPARTURES.fetch_add(1, Release);
}

/// A socket's proof that the device it is tied to is there: the device's index, and how many had
/// gone when it was last found.
#[derive(Default)]
pub(crate) struct DeviceGeneration(AtomicU64);

impl DeviceGeneration {
    /// As [`present`], without a search if no device has gone since the last one.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    #[inline]
    pub(crate) fn check(&self, net: &Net, ifindex: u32) -> Result {
        // Read before the search: one that goes during it is not missed.
        let departures = DEPARTURES.load(Acquire);
        let known = u64::from(departures) << 32 | u64::from(ifindex);
        if self.0.load(Relaxed) != known {
            present(net, ifindex)?;
            self.0.store(known, Relaxed);
        }
        Ok(())
    }
}

/// The interface that a socket is tied to, by `bind`, by `SO_BINDTODEVICE` or by its peer: 0 if to
/// none.
pub(crate) fn interface(sock: &RawSock, bound: u32, peer: u32) -> u32 {
    [bound, sock.bound_device(), peer]
        .into_iter()
        .find(|ifindex| *ifindex != 0)
        .unwrap_or(0)
}

/// A socket's own end: the address of the interface that it is bound or connected by, if that is
/// there, else none.
pub(crate) fn local(net: &Net, port: u16, ifindex: u32) -> Address {
    let section = rcu::Read::enter();
    let mac = Device::find(net, ifindex, &section)
        .filter(|device| device.is_ethernet())
        .map_or(Mac::default(), Device::address);
    Address { port, ifindex, mac }
}
