// SPDX-License-Identifier: GPL-2.0

//! What each network namespace has of its own: ports, connections, counters, settings.

use crate::net::errno::prelude::*;
use crate::{
    counters::Counter,
    edp_socket::Edp,
    esp_socket::{self, Esp},
    esp_turns::Lanes,
    net::{
        map::Map,
        namespace::{Net, Operations, PerNet},
        sysctl::Directory,
        table::{LookupLink, PortLink, Table},
        trace::DropReason,
    },
    ports::Ports,
    sysctl::Settings,
};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// Buckets of the table of listeners, as a power of two.
const LISTENER_BITS: u32 = 8;

/// Frames that reached no socket, by the reason.
#[derive(Default)]
pub(crate) struct Refused {
    /// Sent to a group, to another host, or by a group.
    pub(crate) not_ours: Counter,
    /// Too short for the header or for the length it states.
    pub(crate) malformed: Counter,
    /// For a port where no socket waits.
    pub(crate) no_socket: Counter,
    /// No memory.
    pub(crate) no_memory: Counter,
}

impl Refused {
    /// Counts a frame, if `reason` is one of those that keep it from every socket.
    pub(crate) fn count(&self, reason: DropReason) {
        match reason {
            DropReason::NotOurs => self.not_ours.count(),
            DropReason::Malformed => self.malformed.count(),
            DropReason::NoSocket => self.no_socket.count(),
            DropReason::NoMemory => self.no_memory.count(),
            _ => {}
        }
    }
}

/// A namespace's share.
pub(crate) struct Space {
    /// What `/proc/sys/esp` has set.
    pub(crate) sysctl: Directory<Settings>,
    /// EDP sockets by local port; also where datagrams look for theirs.
    pub(crate) edp_ports: Ports<Edp, LookupLink>,
    /// ESP sockets that own their local port.
    pub(crate) esp_ports: Ports<Esp, PortLink>,
    /// ESP sockets with a peer.
    pub(crate) esp_connections: Map<Esp>,
    /// ESP sockets that listen, by local port.
    pub(crate) esp_listeners: Table<Esp, LookupLink>,
    /// The order of acknowledgements, by device.
    pub(crate) esp_lanes: Lanes,
    /// How often a device has changed.
    pub(crate) device_changes: AtomicU32,
    /// What connections hold whose descriptors are closed, bytes.
    pub(crate) esp_orphaned: AtomicUsize,
    pub(crate) edp_refused: Refused,
    pub(crate) esp_refused: Refused,
    /// Echo requests answered.
    pub(crate) edp_echoed: Counter,
}

static OPERATIONS: Operations<Space> = Operations::new();

impl PerNet for Space {
    fn operations() -> &'static Operations<Self> {
        &OPERATIONS
    }

    fn new(net: &Net) -> Result<Self> {
        let settings = Settings::new()?;
        Ok(Space {
            edp_ports: Ports::new()?,
            esp_ports: Ports::new()?,
            esp_connections: Map::new()?,
            esp_listeners: Table::new(LISTENER_BITS)?,
            esp_lanes: Lanes::new(settings.live())?,
            device_changes: AtomicU32::new(0),
            esp_orphaned: AtomicUsize::new(0),
            edp_refused: Refused::default(),
            esp_refused: Refused::default(),
            edp_echoed: Counter::new(),
            sysctl: Directory::new(net, settings)?,
        })
    }

    fn end(&self) {
        // At module exit connections may be left whose descriptors are closed and whose peers have
        // not yet said goodbye.
        esp_socket::end_all(self);
    }
}
