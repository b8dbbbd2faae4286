// SPDX-License-Identifier: GPL-2.0

//! A device is used after the end of the read section in which it was found.

use crate::net::device::Device;
use crate::net::namespace::Net;
use crate::net::rcu;

fn leave_too_early(net: &Net) {
    let section = rcu::Read::enter();
    let device = Device::find(net, 1, &section);
    #[cfg(misuse)]
    drop(section); //~ E0505
    drop::<Option<u32>>(device.map(Device::mtu));
}
