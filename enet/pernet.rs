// SPDX-License-Identifier: GPL-2.0

//! The module's state in each network namespace: ports, connections, counters, settings.

use crate::net::errno::prelude::*;
use crate::{
    datagram::{peers::Peers, sock::Edp},
    mapped::{askers::Askers, carriers::Connections, fallback::Refusals, policy::Rules},
    net::{
        limits::Limits,
        map::Map,
        random::Secret,
        table::{LookupLink, PortLink, Table},
    },
    ports::Ports,
    statistics::Statistics,
    stream::{ack_queue::AckQueues, marks::Marks, sock::Esp},
    sysctl::Settings,
};
use core::sync::atomic::AtomicU32;
use kernel::sync::Arc;

/// Base-2 logarithm of the number of buckets in the table of listeners.
const LISTENER_BITS: u32 = 8;

/// The state of a namespace.
pub(crate) struct NetState {
    /// The settings of `/proc/sys/esp`.
    pub(crate) sysctl: Arc<Settings>,
    /// EDP sockets by local port. Received datagrams are looked up here.
    pub(crate) edp_ports: Ports<Edp, LookupLink>,
    /// Capabilities that other hosts reported.
    pub(crate) edp_peers: Peers,
    /// ESP sockets that own a local port.
    pub(crate) esp_ports: Ports<Esp, PortLink>,
    /// Key of the hash that selects, for each destination, the local port to try first.
    pub(crate) port_secret: Secret,
    /// Key of the SYN cookies.
    pub(crate) cookie_secret: Secret,
    /// Short marks of the SYN cookies whose connections have opened, so that no cookie creates a
    /// second one.
    pub(crate) cookie_marks: Marks,
    /// ESP sockets with a peer.
    pub(crate) esp_connections: Map<Esp>,
    /// ESP sockets that listen, by local port.
    pub(crate) esp_listeners: Table<Esp, LookupLink>,
    /// ESP sockets that listen as companions of TCP listeners, by port.
    pub(crate) mapped_listeners: Table<Esp, LookupLink>,
    /// Destinations that refused a mapped connection over ESP.
    pub(crate) mapped_refusals: Refusals,
    /// The rules that decide with which peers mapped sockets may use ESP.
    pub(crate) mapped_rules: Rules,
    /// Mapped sockets that wait for a host's answer or Ethernet address before they connect.
    pub(crate) mapped_askers: Askers,
    /// The connections of mapped sockets, with the protocol that carries each.
    pub(crate) mapped_connections: Connections,
    /// The ACK queues, by device.
    pub(crate) esp_queues: AckQueues<Esp>,
    /// The number of changes of devices so far; wraps.
    pub(crate) device_changes: AtomicU32,
    /// Counters of events.
    pub(crate) statistics: Arc<Statistics>,
}

impl NetState {
    /// Creates the state of a new namespace.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn make() -> Result<Self> {
        let settings = Arc::new(
            Settings::new(Limits::of_new_socket::<Esp>)?,
            GFP_KERNEL_ACCOUNT,
        )?;
        let statistics = Arc::new(Statistics::new()?, GFP_KERNEL_ACCOUNT)?;
        Ok(NetState {
            edp_ports: Ports::new()?,
            edp_peers: Peers::new()?,
            esp_ports: Ports::new()?,
            port_secret: Secret::new(),
            cookie_secret: Secret::new(),
            cookie_marks: Marks::new()?,
            esp_connections: Map::new()?,
            esp_listeners: Table::new(LISTENER_BITS)?,
            mapped_listeners: Table::new(LISTENER_BITS)?,
            mapped_refusals: Refusals::new()?,
            mapped_rules: Rules::new()?,
            mapped_askers: Askers::new()?,
            mapped_connections: Connections::new()?,
            esp_queues: AckQueues::new(settings.live(), statistics.clone())?,
            device_changes: AtomicU32::new(0),
            statistics,
            sysctl: settings,
        })
    }
}
