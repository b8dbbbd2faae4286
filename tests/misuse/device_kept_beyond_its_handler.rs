// SPDX-License-Identifier: GPL-2.0

//! A handler keeps a frame's receiving device, which may be freed after the handler returns.

use crate::net::device::Device;

fn keep<T: 'static>(_: T) {}

fn handle(device: &Device) {
    keep(device.index());
    #[cfg(misuse)]
    keep(device); //~ E0521
}
