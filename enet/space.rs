// SPDX-License-Identifier: GPL-2.0

//! What each network namespace has of its own: ports, connections, counters, files.

use crate::net::errno::prelude::*;
use crate::{
    counters::Counter,
    edp_socket::Edp,
    esp_socket::{self, Esp},
    net::{
        namespace::{Net, Operations, PerNet},
        procfs::File,
        table::{LookupLink, PortLink, Table},
    },
    procfs,
};

/// Buckets of the tables of ports, as a power of two.
const PORT_BITS: u32 = 8;
/// Buckets of the table of connections, as a power of two.
const CONNECTION_BITS: u32 = 12;

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

/// A namespace's share.
pub(crate) struct Space {
    // Files first: they show the tables.
    _files: Files,
    /// EDP sockets by local port; also where datagrams look for theirs.
    pub(crate) edp_ports: Table<Edp, LookupLink>,
    /// ESP sockets that own their local port.
    pub(crate) esp_ports: Table<Esp, PortLink>,
    /// ESP sockets with a peer.
    pub(crate) esp_connections: Table<Esp, LookupLink>,
    /// ESP sockets that listen, by local port.
    pub(crate) esp_listeners: Table<Esp, LookupLink>,
    pub(crate) edp_refused: Refused,
    pub(crate) esp_refused: Refused,
    /// Echo requests answered.
    pub(crate) edp_echoed: Counter,
}

struct Files {
    _edp: File<procfs::EdpFile>,
    _esp: File<procfs::EspFile>,
    _enet: File<procfs::EnetFile>,
}

static OPERATIONS: Operations<Space> = Operations::new();

impl PerNet for Space {
    fn operations() -> &'static Operations<Self> {
        &OPERATIONS
    }

    fn new(net: &Net) -> Result<Self> {
        Ok(Space {
            edp_ports: Table::new(PORT_BITS)?,
            esp_ports: Table::new(PORT_BITS)?,
            esp_connections: Table::new(CONNECTION_BITS)?,
            esp_listeners: Table::new(PORT_BITS)?,
            edp_refused: Refused::default(),
            esp_refused: Refused::default(),
            edp_echoed: Counter::new(),
            _files: Files {
                _edp: File::new(net)?,
                _esp: File::new(net)?,
                _enet: File::new(net)?,
            },
        })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // At module exit connections may be left whose descriptors are closed and whose peers have
        // not yet said goodbye.
        esp_socket::end_all(self);
    }
}
