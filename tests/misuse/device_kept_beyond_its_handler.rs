// SPDX-License-Identifier: GPL-2.0

//! A handler keeps the device that a frame came by, which may go after the handler's return.

use crate::net::device::Device;

fn keep<T: 'static>(_: T) {}

fn handle(device: &Device) {
    keep(device.index());
    #[cfg(misuse)]
    keep(device); //~ E0521
}
