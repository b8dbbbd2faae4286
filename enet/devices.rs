// SPDX-License-Identifier: GPL-2.0

//! Which device a socket uses, and what happens to sockets when it changes.

use crate::net::errno::prelude::*;
use crate::{
    address::{Address, INTERFACE_ANY},
    edp_socket, esp_devices, esp_socket,
    net::{
        device::{Device, Event, Listener, Mac},
        namespace::{Net, PerNet},
        rcu,
        sock::RawSock,
    },
    space::Space,
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

/// Checks that a socket can be bound to interface `ifindex`, any if that is 0. The caller keeps the
/// read section until the socket is in its table: then a device that goes does not miss it.
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

/// How often a device has gone from any namespace; wraps.
static DEPARTURES: AtomicU32 = AtomicU32::new(0);

/// What a socket knows of the device it is tied to: that it was there, and how many had gone by then.
#[derive(Default)]
pub(crate) struct Presence(AtomicU64);

impl Presence {
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
pub(crate) fn tie(sock: &RawSock, bound: u32, peer: u32) -> u32 {
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

/// Hears of devices.
pub(crate) struct Devices;

impl Listener for Devices {
    fn device_event(event: Event, device: &Device) {
        let space = Space::of(device.net());
        let ifindex = device.index();
        // A device that is only down may come up again: a connection goes on if it does soon
        // enough, and datagrams are refused meanwhile.
        esp_devices::tell(space, ifindex);
        if event != Event::Gone {
            return;
        }
        DEPARTURES.fetch_add(1, Release);
        space.esp_lanes.forget(ifindex);
        let section = rcu::Read::enter();
        space.esp_listeners.for_each(&section, |sock| {
            if esp_socket::interface(sock) == ifindex {
                sock.report_error(ENETDOWN);
                // Those in `accept`, which the error alone does not wake.
                sock.state_change();
            }
        });
        space.edp_ports.sockets.for_each(&section, |sock| {
            if edp_socket::interface(sock) == ifindex {
                sock.report_error(ENETDOWN);
            }
        });
    }
}
