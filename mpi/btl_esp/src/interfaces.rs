// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds the Ethernet interfaces of this host that can be used.

use std::fs;
use std::io;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use sockaddr_en::{interface_index, interface_mac, interface_mtu};

use crate::transport::Interface;

/// The assumed rate, in Mbit/s, of interfaces that report no rate.
const UNKNOWN: u32 = 10_000;

/// Returns the Ethernet interfaces that are up: the interfaces named in `include` or, if `include`
/// is empty, all interfaces except the ones named in `exclude`. Both arguments are comma-separated
/// lists.
///
/// # Errors
///
/// The errors of `getifaddrs(3)`.
pub fn find(include: &str, exclude: &str) -> io::Result<Vec<Interface>> {
    let mut names: Vec<String> = Vec::new();
    for entry in getifaddrs()? {
        let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        let usable =
            entry.flags.contains(up) && !entry.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        if usable && !names.contains(&entry.interface_name) {
            names.push(entry.interface_name);
        }
    }
    let listed = |list: &str, name: &str| list.split(',').any(|word| word.trim() == name);
    names.retain(|name| {
        if include.is_empty() {
            !listed(exclude, name)
        } else {
            listed(include, name)
        }
    });
    // Interfaces that are no Ethernet devices, or no longer exist, are skipped.
    Ok(names
        .iter()
        .filter_map(|name| describe(name).ok())
        .collect())
}

fn describe(name: &str) -> io::Result<Interface> {
    Ok(Interface::Ethernet {
        name: name.to_owned(),
        index: interface_index(name)?,
        mac: interface_mac(name)?,
        mtu: interface_mtu(name)?,
        rate: rate(name).unwrap_or(UNKNOWN),
    })
}

/// Returns the rate that the device reports; `None` if the device reports -1, which means that the
/// rate is unknown.
fn rate(name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    text.trim().parse().ok().filter(|rate| *rate > 0)
}
