// SPDX-License-Identifier: GPL-2.0

//! Handlers of received frames.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use super::{
    bindings,
    device::Device,
    listed::Listed,
    rcu,
    skb::Skb,
    softirq::Softirq,
};
use crate::net::errno::prelude::*;
use core::marker::PhantomData;
use kernel::ffi::c_int;

/// The receiver of the frames of one Ethernet type.
pub(crate) trait Handler: 'static {
    /// Takes a frame that came by `device`, of whatever namespace. Its data starts behind the Ethernet
    /// header.
    fn receive(skb: Skb, device: &Device, section: &rcu::Read, softirq: Softirq<'_>);
}

/// The registration of a [`Handler`], ended when dropped.
pub(crate) struct Registration<H: Handler> {
    block: Listed<bindings::packet_type>,
    _handler: PhantomData<fn() -> H>,
}

impl<H: Handler> Registration<H> {
    /// Starts taking the frames of `ethertype`, host order.
    pub(crate) fn new(ethertype: u16, _module: &'static ThisModule) -> Result<Self> {
        // SAFETY: All zeroes is a packet type on no list, for any device.
        let mut block: bindings::packet_type = unsafe { core::mem::zeroed() };
        block.type_ = ethertype.to_be();
        block.func = Some(Self::call);
        let block = Listed::new(block)?;
        // SAFETY: The block stays where it is until `drop` has taken it off.
        unsafe { bindings::dev_add_pack(block.as_ptr()) };
        Ok(Registration {
            block,
            _handler: PhantomData,
        })
    }

    /// # Safety
    ///
    /// Called by the core in a softirq and a read section, with a buffer to give away and the device
    /// that it came by.
    unsafe extern "C" fn call(
        skb: *mut bindings::sk_buff,
        dev: *mut bindings::net_device,
        _block: *mut bindings::packet_type,
        _original: *mut bindings::net_device,
    ) -> c_int {
        // SAFETY: The core passes a reference to a buffer, perhaps shared with other handlers;
        // `skb_receive` exchanges it for one that nobody else changes, or frees it. It also clears
        // the time to leave: when a sender on this machine wanted that is not when it came.
        let skb = unsafe { Skb::from_raw(bindings::skb_receive(skb)) };
        if let Some(skb) = skb {
            // SAFETY: The core calls handlers in a read section, with bottom halves disabled.
            let (section, softirq) = unsafe { (rcu::Read::within(), Softirq::assume()) };
            // SAFETY: The device is valid while the handler runs.
            H::receive(skb, unsafe { Device::from_raw(dev) }, &section, softirq);
        }
        0
    }
}

impl<H: Handler> Drop for Registration<H> {
    fn drop(&mut self) {
        // SAFETY: Added by `new`; waits until no CPU runs the handler any more.
        unsafe { bindings::dev_remove_pack(self.block.as_ptr()) };
    }
}
