// SPDX-License-Identifier: GPL-2.0-only

//! Makes drivers poll (NAPI) without GRO, so that the core passes all packets of a poll to the
//! protocol as one list.

use std::os::fd::OwnedFd;

use crate::bpf;
use crate::prelude::*;

/// Makes the host's device poll without GRO, until the returned link is dropped.
///
/// # Errors
/// If the device cannot do it.
pub fn without_gro(host: &Host) -> Result<OwnedFd> {
    host.namespace
        .run("ethtool", &["-K", DEVICE, "gro", "off"])?;
    Ok(host.namespace.within(|| bpf::pass_by_xdp(host.ifindex))??)
}

/// Works like [`without_gro`], but a kernel thread polls the device, and all packets since the
/// thread's last poll form one list.
///
/// # Errors
/// If the device cannot do it.
pub fn in_a_thread(host: &Host) -> Result<OwnedFd> {
    let polled = without_gro(host)?;
    thread_polls(host)?;
    Ok(polled)
}

/// Moves a driver's NAPI polling to a thread from now on.
///
/// # Errors
/// If the device cannot do it.
pub fn thread_polls(host: &Host) -> Result<()> {
    host.namespace.within_sys(|sys| {
        let threaded = sys.join("class/net").join(DEVICE).join("threaded");
        fs::write(&threaded, "1").context("threaded polling")
    })
}
