// SPDX-License-Identifier: GPL-2.0

//! A sleeping task holds a reference to a device, so that `ip link del` blocks on the task.

use crate::net::device::Device;
use kernel::sync::aref::ARef;

fn own(device: &Device) {
    drop::<u32>(device.mtu());
    #[cfg(misuse)]
    drop::<Option<ARef<Device>>>(None); //~ E0277
}
