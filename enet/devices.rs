// SPDX-License-Identifier: GPL-2.0

//! What happens to sockets when their device goes.

use crate::net::errno::prelude::*;
use crate::{
    esp_connection, esp_socket,
    net::{
        device::{Device, Event, Listener},
        namespace::PerNet,
        rcu,
    },
    space::Space,
};

/// Hears of devices.
pub(crate) struct Devices;

impl Listener for Devices {
    fn device_event(event: Event, device: &Device) {
        let space = Space::of(device.net());
        let ifindex = device.index();
        // A device that is only down may come up again: calls that need it answer `ENETDOWN`
        // meanwhile, and a connection goes on if it comes back soon enough.
        if event == Event::Gone {
            esp_socket::end_where(
                space,
                |sock| sock.shared().peer().ifindex == ifindex,
                |sock, stream| esp_connection::fail(sock, stream, ENETDOWN),
            );
            let section = rcu::Read::enter();
            space.edp_ports.for_each(&section, |sock| {
                let shared = sock.shared();
                let peer = shared.peer.get().map_or(0, |peer| peer.ifindex);
                if ifindex == shared.binding.ifindex() || ifindex == peer {
                    sock.report_error(ENETDOWN);
                }
            });
        }
    }
}
