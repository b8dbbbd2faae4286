// SPDX-License-Identifier: GPL-2.0

//! The part of the module that each network namespace has: ports, connections, counters, settings.

use crate::net::errno::prelude::*;
use crate::{
    ack_queue::AckQueues,
    counters::Counter,
    edp_sock::Edp,
    esp_sock::Esp,
    net::{
        limits::Limits,
        map::Map,
        namespace::Net,
        random::Secret,
        sysctl::Directory,
        table::{LookupLink, PortLink, Table},
        trace::DropReason,
    },
    ports::Ports,
    sysctl::Settings,
};
use core::sync::atomic::AtomicU32;

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
    /// Counts a frame, if `reason` keeps it from every socket.
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
    /// The settings of `/proc/sys/esp`.
    pub(crate) sysctl: Directory<Settings>,
    /// EDP sockets by local port; also where datagrams look for theirs.
    pub(crate) edp_ports: Ports<Edp, LookupLink>,
    /// ESP sockets that own their local port.
    pub(crate) esp_ports: Ports<Esp, PortLink>,
    /// Where the ports for a destination begin.
    pub(crate) port_secret: Secret,
    /// The maker of SYN cookies.
    pub(crate) cookie_secret: Secret,
    /// ESP sockets with a peer.
    pub(crate) esp_connections: Map<Esp>,
    /// ESP sockets that listen, by local port.
    pub(crate) esp_listeners: Table<Esp, LookupLink>,
    /// The ACK queues, by device.
    pub(crate) esp_queues: AckQueues<Esp>,
    /// How often a device has changed.
    pub(crate) device_changes: AtomicU32,
    pub(crate) edp_refused: Refused,
    pub(crate) esp_refused: Refused,
    /// Probes sent by ESP connections.
    pub(crate) esp_probes: Counter,
    /// SYNs answered by cookies.
    pub(crate) esp_cookies_sent: Counter,
    /// Connections made of answers to cookies.
    pub(crate) esp_cookies_taken: Counter,
    /// Echo requests answered.
    pub(crate) edp_echoed: Counter,
}

impl Space {
    /// The share of a new namespace.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn make(net: &Net) -> Result<Self> {
        let settings = Settings::new(Limits::of_new_socket::<Esp>)?;
        Ok(Space {
            edp_ports: Ports::new()?,
            esp_ports: Ports::new()?,
            port_secret: Secret::new(),
            cookie_secret: Secret::new(),
            esp_connections: Map::new()?,
            esp_listeners: Table::new(LISTENER_BITS)?,
            esp_queues: AckQueues::new(settings.live())?,
            device_changes: AtomicU32::new(0),
            edp_refused: Refused::default(),
            esp_refused: Refused::default(),
            esp_probes: Counter::new(),
            esp_cookies_sent: Counter::new(),
            esp_cookies_taken: Counter::new(),
            edp_echoed: Counter::new(),
            sysctl: Directory::new(net, settings)?,
        })
    }
}
