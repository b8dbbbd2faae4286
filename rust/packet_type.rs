// SPDX-License-Identifier: GPL-2.0

//! Handlers of received frames.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use super::{
    bindings, device::Device, listed::Listed, offload::Packets, rcu, rx_list, skb::Skb,
    softirq::Softirq, trace::DropReason,
};
use crate::net::errno::prelude::*;
use core::marker::PhantomData;
use kernel::ffi::c_int;

/// Receives the frames of one Ethernet type.
pub(crate) trait Handler: 'static {
    /// Handles a frame that came through `device`. The device may be in any namespace. The data of
    /// `skb` start after the Ethernet header. The device keeps its namespace and index during the
    /// read section.
    fn receive(skb: Skb, device: &Device, section: &rcu::Read, softirq: Softirq<'_>);
}

/// A function that the core calls with a list of buffers.
type ListFunction = unsafe extern "C" fn(
    *mut bindings::list_head,
    *mut bindings::packet_type,
    *mut bindings::net_device,
);

/// The registration of a [`Handler`]. Dropping it unregisters the handler.
pub(crate) struct Registration<H: Handler> {
    block: Listed<bindings::packet_type>,
    _handler: PhantomData<fn() -> H>,
}

impl<H: Handler> Registration<H> {
    /// Registers the handler for frames of `ethertype`, which is in host order.
    pub(crate) fn new(ethertype: u16, module: &'static ThisModule) -> Result<Self> {
        Self::with_list(ethertype, None, module)
    }

    /// Works like [`Self::new`], but for a protocol whose packets are [merged](rx_list) if several
    /// arrive at once.
    pub(crate) fn with_gro<P: Packets>(
        ethertype: u16,
        module: &'static ThisModule,
    ) -> Result<Self> {
        Self::with_list(ethertype, Some(Self::call_list::<P>), module)
    }

    fn with_list(
        ethertype: u16,
        list: Option<ListFunction>,
        _module: &'static ThisModule,
    ) -> Result<Self> {
        // SAFETY: All-zero bytes are a valid value: a packet type on no list, for any device.
        let mut block: bindings::packet_type = unsafe { core::mem::zeroed() };
        block.type_ = ethertype.to_be();
        block.func = Some(Self::call);
        block.list_func = list;
        let block = Listed::new(block)?;
        // SAFETY: The block does not move until `drop` has removed it from the core's list.
        unsafe { bindings::dev_add_pack(block.as_ptr()) };
        Ok(Registration {
            block,
            _handler: PhantomData,
        })
    }

    /// # Safety
    ///
    /// Called by the core in a softirq and a read section. The core gives the buffer away, and
    /// passes the device through which the buffer came.
    unsafe extern "C" fn call(
        skb: *mut bindings::sk_buff,
        dev: *mut bindings::net_device,
        _block: *mut bindings::packet_type,
        _original: *mut bindings::net_device,
    ) -> c_int {
        // SAFETY: The core passes a reference to a valid buffer.
        if let Some(skb) = unsafe { own(skb) } {
            // SAFETY: The core calls handlers with a device that is valid during the call.
            unsafe { Self::receive(skb, dev) };
        }
        0
    }

    /// # Safety
    ///
    /// The requirements of [`Self::call`] hold, with a list of buffers that the core gives away.
    unsafe extern "C" fn call_list<P: Packets>(
        list: *mut bindings::list_head,
        _block: *mut bindings::packet_type,
        _original: *mut bindings::net_device,
    ) {
        // SAFETY: By the caller's promise, the list is ours. Each buffer in the list names the
        // device that it came through.
        unsafe {
            let take = |skb: Skb| {
                let device = bindings::skb_device(skb.as_ptr());
                Self::receive(skb, device);
            };
            let alone = bindings::list_is_single(list);
            let next = || loop {
                let raw = bindings::list_next(list);
                if raw.is_null() {
                    return None;
                }
                // If there was no memory for a private copy, `own` has freed the buffer, and the
                // next one follows.
                if let Some(skb) = own(raw) {
                    return Some(skb);
                }
            };
            if alone {
                next().into_iter().for_each(take);
            } else {
                rx_list::join::<P>(next, take);
            }
        }
    }

    /// # Safety
    ///
    /// Called in a softirq and a read section, with a device that is valid for the call.
    unsafe fn receive(skb: Skb, dev: *mut bindings::net_device) {
        // SAFETY: The core calls handlers in a read section, with bottom halves disabled.
        let (section, softirq) = unsafe { (rcu::Read::within(), Softirq::assume()) };
        // SAFETY: By the caller's promise, the device is valid for the call.
        let device = unsafe { Device::from_raw(dev) };
        // To move a device to another namespace, the core sets the device down and waits for read
        // sections. Then it changes the device's namespace and index, one after the other. A frame
        // that arrives after the device was set down belongs to neither namespace.
        if device.is_up() {
            H::receive(skb, device, &section, softirq);
        } else {
            skb.refuse(None, DropReason::NotOurs);
        }
    }
}

/// Exchanges a received buffer, which other handlers may share, for a private one. Returns `None`
/// if there is no memory. If a sender on this host has set a send time, the time is cleared, since
/// it is not the time of receipt.
///
/// # Safety
///
/// `skb` is a valid buffer, of which one reference is given away.
unsafe fn own(skb: *mut bindings::sk_buff) -> Option<Skb> {
    // SAFETY: By the caller's promise, `skb` is valid. The function takes over one reference to it.
    unsafe { Skb::from_raw(bindings::skb_receive(skb)) }
}

impl<H: Handler> Drop for Registration<H> {
    fn drop(&mut self) {
        // SAFETY: `with_list` has added the block. The function waits until no CPU runs the handler
        // any more.
        unsafe { bindings::dev_remove_pack(self.block.as_ptr()) };
    }
}
