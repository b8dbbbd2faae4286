// SPDX-License-Identifier: GPL-2.0-only

//! Drivers that poll (NAPI), and whose packets the core does not join: it gives the protocol all
//! that came as one list.

use std::os::fd::OwnedFd;

use crate::bpf;
use crate::prelude::*;

/// Gives the host's device such a driver, until what is returned is dropped.
///
/// # Errors
/// When the device cannot do it.
pub fn without_gro(host: &Host) -> Result<OwnedFd> {
    host.namespace
        .run("ethtool", &["-K", DEVICE, "gro", "off"])?;
    Ok(host.namespace.within(|| bpf::pass_by_xdp(host.ifindex))??)
}

/// As [`without_gro`], and a thread of its own polls: what has come meanwhile is one list.
///
/// # Errors
/// When the device cannot do it.
pub fn in_a_thread(host: &Host) -> Result<OwnedFd> {
    let polled = without_gro(host)?;
    thread_polls(host)?;
    Ok(polled)
}

/// A driver with NAPI polls in a thread of its own from now on.
///
/// # Errors
/// When the device cannot do it.
pub fn thread_polls(host: &Host) -> Result<()> {
    host.namespace.within_sys(|sys| {
        let threaded = sys.join("class/net").join(DEVICE).join("threaded");
        fs::write(&threaded, "1").context("threaded polling")
    })
}
