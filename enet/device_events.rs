// SPDX-License-Identifier: GPL-2.0

//! Informs sockets of changes of a device, and of changes in the neighbour tables.

use crate::{
    datagram::sock,
    device::note_departure,
    mapped::askers::Awaited,
    net::{
        device::{Device, Event, Listener},
        errno::ENETDOWN,
        namespace::PerNet,
        route,
    },
    pernet::NetState,
    stream::{device, sock::tie},
};
use core::net::IpAddr;

/// The listener for events of devices and of neighbours.
pub(crate) struct Devices;

impl Listener for Devices {
    fn device_event(event: Event, device: &Device) {
        let net_state = NetState::of(device.net());
        let ifindex = device.index();
        if event == Event::Linked {
            net_state.esp_queues.forget_speed(ifindex);
            return;
        }
        // A device that is down, but not gone, may come up again. A connection continues if the
        // device comes up in time. While the device is down, sends of datagrams fail.
        device::tell(net_state, ifindex);
        if event != Event::Gone {
            return;
        }
        note_departure();
        net_state.esp_queues.forget(ifindex);
        net_state.edp_peers.forget(ifindex);
        net_state.mapped_askers.wake_all();
        // The loops below miss no socket, because the device was unlisted a grace period ago. A
        // socket that joins its table now cannot find the device any more.
        net_state.esp_listeners.for_each(|sock| {
            if tie(sock) == ifindex {
                sock.report_error(ENETDOWN);
                // The error alone does not wake calls in `accept`.
                sock.state_change();
            }
        });
        net_state.edp_ports.sockets.for_each(|sock| {
            if sock::tie(sock) == ifindex {
                sock.report_error(ENETDOWN);
            }
        });
    }
}

impl route::Listener for Devices {
    fn neighbour_event(device: &Device, ip: IpAddr) {
        let askers = &NetState::of(device.net()).mapped_askers;
        askers.wake(Awaited::Neighbour(ip));
    }
}
