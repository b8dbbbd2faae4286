// SPDX-License-Identifier: GPL-2.0

//! A task owns a device while it waits, and `ip link del` waits for the task.

use crate::net::device::Device;
use kernel::sync::aref::ARef;

fn own(device: &Device) {
    drop::<u32>(device.mtu());
    #[cfg(misuse)]
    drop::<Option<ARef<Device>>>(None); //~ E0277
}
