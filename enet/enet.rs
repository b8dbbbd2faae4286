// SPDX-License-Identifier: GPL-2.0

//! PF_ENET: sockets directly on Ethernet.
//!
//! The module registers a socket family with two protocols, EDP (datagrams) and ESP (reliable byte
//! streams and records). The engines in `edp/` and `esp/` make the protocols' decisions, and use no
//! memory or clocks of their own. The files here own buffers, locks, timers and wake-ups, and move
//! the bytes. `rust/` has the unsafe code for that.

// Clippy mistakes types that only mark variance for complex types.
#![allow(clippy::type_complexity)]

use kernel::prelude::*;

#[path = "../edp/src/lib.rs"]
mod edp;
#[path = "../esp/src/lib.rs"]
mod esp;
#[path = "../rust/mod.rs"]
mod net;

mod address;
mod counters;
mod datagram;
mod device;
mod device_events;
mod events;
mod family;
mod mapped;
mod namespaces;
mod parameters;
mod pernet;
mod ports;
mod procfs;
mod skb_cb;
mod statistics;
mod stream;
mod sysctl;
mod uapi;

use crate::net::{
    device::Notifier,
    family::{FamilyRegistration, ProtocolRegistration},
    inet, namespace, offload, packet_type, route,
};

module! {
    type: Enet,
    name: "enet",
    authors: ["The enet authors"],
    description: "PF_ENET: datagrams (EDP) and reliable streams (ESP) straight on Ethernet",
    license: "GPL",
    // The last two aliases load the module when a program opens a mapped socket, which is a socket
    // of `AF_INET` or `AF_INET6` with the protocol `IPPROTO_ENET` (259).
    alias: ["net-pf-28", "net-pf-2-proto-259-type-1", "net-pf-10-proto-259-type-1"],
}

/// The module's registrations, dropped in the order of the fields. First, programs can no longer
/// create sockets. Second, frames are no longer received. Third, the connections that outlived
/// their descriptors end. Last, the protocols are unregistered, which waits for their last socket.
struct Enet {
    _ssocks: Option<inet::AliasRegistration<mapped::Mapped>>,
    _mapped: inet::Registration<mapped::Mapped>,
    _family: FamilyRegistration<family::Enet>,
    _edp_frames: packet_type::Registration<datagram::input::Frames>,
    _esp_frames: packet_type::Registration<stream::input::Frames>,
    _esp_runs: offload::Registration<stream::runs::Runs>,
    _devices: Notifier<device_events::Devices>,
    _neighbours: route::Notifier<device_events::Devices>,
    _files: net::procfs::Registration<procfs::Files>,
    _settings: net::sysctl::Registration<sysctl::Settings>,
    _net_state: namespace::Registration<pernet::NetState>,
    _sysctl: net::sysctl::Root<sysctl::Settings>,
    _edp: ProtocolRegistration<datagram::sock::Edp>,
    _esp: ProtocolRegistration<stream::sock::Esp>,
}

/// Logs why the number of a socket family, which is the value of `parameter`, was refused.
fn refused(parameter: &str, number: u16, error: net::errno::Error) {
    match error {
        net::errno::EEXIST => {
            pr_err!("family {number} is taken; pass {parameter}= another number\n")
        }
        net::errno::ENOBUFS => {
            pr_err!("the kernel has no family {number}; pass {parameter}= less\n")
        }
        _ => {}
    }
}

impl kernel::Module for Enet {
    fn init(module: &'static ThisModule) -> Result<Self> {
        parameters::check()?;
        let (family, edp_type, esp_type) = (
            parameters::family(),
            parameters::edp_type(),
            parameters::esp_type(),
        );
        // Later registrations use earlier ones, so this order is the reverse of the order of the
        // fields.
        let esp = ProtocolRegistration::new(family, module)?;
        let edp = ProtocolRegistration::new(family, module)?;
        let sysctl = net::sysctl::Root::new(module)?;
        let net_state = namespace::Registration::new(module)?;
        let settings = net::sysctl::Registration::new(module)?;
        let files = net::procfs::Registration::new(module)?;
        let neighbours = route::Notifier::register(module)?;
        let devices = Notifier::register(module)?;
        let esp_runs = offload::Registration::new(esp_type, module)?;
        let esp_frames =
            packet_type::Registration::with_gro::<stream::runs::Runs>(esp_type, module)?;
        let edp_frames = packet_type::Registration::new(edp_type, module)?;
        // The last two registrations let programs create sockets, which keep the module loaded.
        // Once the first of the two is done, no step may fail for lack of memory or because of
        // parameters. The family `ssocks` has no sockets before it is opened.
        let mapped = inet::Prepared::new(uapi::IPPROTO_ENET, module)?;
        let ssocks = match parameters::ssocks() {
            None => None,
            Some(number) => {
                let made = inet::AliasRegistration::new(number, &mapped, module);
                Some(made.inspect_err(|error| refused("ssocks", number, *error))?)
            }
        };
        let family = FamilyRegistration::new(family, module)
            .inspect_err(|error| refused("family", family, *error))?;
        let mapped = mapped.register()?;
        if let Some(ssocks) = &ssocks {
            ssocks.open();
        }
        Ok(Enet {
            _ssocks: ssocks,
            _mapped: mapped,
            _family: family,
            _edp_frames: edp_frames,
            _esp_frames: esp_frames,
            _esp_runs: esp_runs,
            _devices: devices,
            _neighbours: neighbours,
            _files: files,
            _settings: settings,
            _net_state: net_state,
            _sysctl: sysctl,
            _edp: edp,
            _esp: esp,
        })
    }
}
