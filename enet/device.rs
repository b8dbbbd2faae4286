// SPDX-License-Identifier: GPL-2.0

//! The device that a socket is tied to, and whether it is usable.

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

/// Checks that `device` can send frames.
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

/// Checks that a socket can be bound to interface `ifindex`; 0 stands for any. If the socket joins
/// its table in the same read section, the removal of the device finds the socket there.
///
/// # Errors
///
/// `ENODEV` if the device does not exist, and the errors of [`usable`].
pub(crate) fn bindable(net: &Net, ifindex: u32, section: &rcu::Read) -> Result {
    match ifindex {
        INTERFACE_ANY => Ok(()),
        _ => usable(Device::find(net, ifindex, section).ok_or(ENODEV)?),
    }
}

/// Returns the interface to send through. This is `requested` or, if `requested` is 0, the
/// interface to which the socket is tied.
///
/// # Errors
///
/// `EINVAL` if the socket is tied to an interface other than `requested`, `ENODEV` if `requested`
/// is 0 and the socket is tied to none.
pub(crate) fn choose_interface(sock: &RawSock, bound: u32, requested: u32) -> Result<u32> {
    let mut chosen = requested;
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

/// Checks that a socket's device still exists. `ifindex` is the device to which the socket is tied.
/// Succeeds for `ifindex` 0, which stands for no device.
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

/// Returns the MTU of the device to which a socket is tied. No read section is open on return, so
/// the caller may wait for the socket's lock or for user memory.
///
/// # Errors
///
/// `ENODEV`.
pub(crate) fn mtu(net: &Net, ifindex: u32) -> Result<u32> {
    let section = rcu::Read::enter();
    let device = Device::find(net, ifindex, &section).ok_or(ENODEV)?;
    Ok(device.mtu())
}

/// The number of devices that were removed from any namespace; wraps.
static DEPARTURES: AtomicU32 = AtomicU32::new(0);

/// Counts a device that was removed from its namespace.
pub(crate) fn note_departure() {
    DEPARTURES.fetch_add(1, Release);
}

/// Evidence that a socket's device exists. It consists of the device's index, and of the value of
/// `DEPARTURES` when a search last found the device.
#[derive(Default)]
pub(crate) struct DeviceGeneration(AtomicU64);

impl DeviceGeneration {
    /// Checks like [`present`], but without a search if no device has been removed since the last
    /// search.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    #[inline]
    pub(crate) fn check(&self, net: &Net, ifindex: u32) -> Result {
        // `DEPARTURES` is read before the search, so that a removal during the search is noticed.
        let departures = DEPARTURES.load(Acquire);
        let known = u64::from(departures) << 32 | u64::from(ifindex);
        if self.0.load(Relaxed) != known {
            present(net, ifindex)?;
            self.0.store(known, Relaxed);
        }
        Ok(())
    }
}

/// Returns the interface that a socket is tied to by `bind`, by `SO_BINDTODEVICE` or by its peer; 0
/// if it is tied to none.
pub(crate) fn interface(sock: &RawSock, bound: u32, peer: u32) -> u32 {
    [bound, sock.bound_device(), peer]
        .into_iter()
        .find(|ifindex| *ifindex != 0)
        .unwrap_or(0)
}

/// Returns a socket's own address, with the MAC address of the interface that the socket is bound
/// to or connected through. The MAC address is zero if that interface does not exist.
pub(crate) fn local(net: &Net, port: u16, ifindex: u32) -> Address {
    let section = rcu::Read::enter();
    let mac = Device::find(net, ifindex, &section)
        .filter(|device| device.is_ethernet())
        .map_or(Mac::default(), Device::address);
    Address { port, ifindex, mac }
}
