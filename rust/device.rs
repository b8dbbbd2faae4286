// SPDX-License-Identifier: GPL-2.0

//! Network devices: lookup, properties, transmission, and notification of changes.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use super::{bindings, namespace::Net, notifier::Notified, rcu, skb::Skb};
use crate::net::errno::prelude::*;
use core::{marker::PhantomData, mem, ptr, ptr::NonNull};
use kernel::{
    ffi::c_int,
    types::{NotThreadSafe, Opaque},
};

/// Length of the Ethernet header, in bytes.
const ETHERNET_HEADER: usize = mem::size_of::<bindings::ethhdr>();

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl Mac {
    /// Returns whether the address is multicast or broadcast.
    #[inline]
    pub(crate) fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns the address in the low 48 bits.
    #[inline]
    pub(crate) fn to_bits(self) -> u64 {
        // Copying into an array of eight bytes makes the compiler copy words instead of single
        // bytes.
        let mut bytes = [0; 8];
        if let Some(low) = bytes.last_chunk_mut() {
            *low = self.0;
        }
        u64::from_be_bytes(bytes)
    }

    /// Returns the address for which [`to_bits`](Self::to_bits) returns `bits`.
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        let bytes = bits.to_be_bytes();
        bytes.last_chunk().copied().map(Mac).unwrap_or_default()
    }
}

/// A network device. It is only borrowed: from an RCU read section in which it was found, or from
/// the kernel for the duration of a call. The module keeps no counted reference, because `ip link
/// del` would have to wait until the reference is dropped. That could take long, for instance if
/// its holder faults on user memory or waits for a lock.
#[repr(transparent)]
pub(crate) struct Device(Opaque<bindings::net_device>);

impl Device {
    /// # Safety
    ///
    /// `dev` must be valid for as long as `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(dev: *mut bindings::net_device) -> &'a Device {
        // SAFETY: The type is transparent over `net_device`. The caller promises that `dev` is
        // valid for `'a`.
        unsafe { &*dev.cast() }
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut bindings::net_device {
        self.0.get()
    }

    /// Returns the device with index `ifindex` in `net`, valid for the read section.
    #[inline]
    pub(crate) fn find<'a>(net: &Net, ifindex: u32, _section: &'a rcu::Read) -> Option<&'a Device> {
        // SAFETY: The caller is in an RCU read section, and the result is valid within it.
        unsafe {
            let dev = bindings::dev_get_by_index_rcu(net.as_ptr(), ifindex as c_int);
            NonNull::new(dev).map(|dev| Device::from_raw(dev.as_ptr()))
        }
    }

    /// Returns whether the device's namespace lists a device with the same index. This may be this
    /// device, or a different device that got the index after this device was unlisted.
    fn is_index_listed(&self) -> bool {
        let section = rcu::Read::enter();
        Device::find(self.net(), self.index(), &section).is_some()
    }

    /// Returns the device's index in its namespace.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        // SAFETY: The device is valid. The index changes only when the device moves to another
        // namespace.
        unsafe { (*self.as_ptr()).ifindex as u32 }
    }

    /// Returns the namespace that the device is in.
    #[inline]
    pub(crate) fn net(&self) -> &Net {
        // SAFETY: The device is valid, and the field is read in a single load, since the device may
        // move to another namespace at any time. A namespace exists until an RCU grace period after
        // its last device has left. The device is borrowed from a read section or from a kernel
        // call. During a read section, that grace period does not end. During a kernel call, the
        // device does not move.
        unsafe { Net::from_raw(ptr::read_volatile(&raw const (*self.as_ptr()).nd_net.net)) }
    }

    /// Returns the largest payload of a frame, in bytes.
    #[inline]
    pub(crate) fn mtu(&self) -> u32 {
        // SAFETY: The device is valid.
        unsafe { ptr::read_volatile(ptr::addr_of!((*self.as_ptr()).mtu)) }
    }

    /// Returns whether an administrator has set the device up (`IFF_UP`).
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        // SAFETY: The device is valid. The field is read in a single load, as the core reads it.
        let flags = unsafe { ptr::read_volatile(ptr::addr_of!((*self.as_ptr()).flags)) };
        flags & bindings::net_device_flags_IFF_UP != 0
    }

    /// Returns whether the device sends Ethernet frames.
    #[inline]
    pub(crate) fn is_ethernet(&self) -> bool {
        // SAFETY: The device is valid. The type may change, for example when a bond gets its first
        // port.
        unsafe { u32::from((*self.as_ptr()).type_) == bindings::ARPHRD_ETHER }
    }

    /// Returns the device's Ethernet address.
    #[inline]
    pub(crate) fn address(&self) -> Mac {
        // SAFETY: An Ethernet device's `dev_addr` has at least six bytes. If the address changes at
        // the same time, the result may mix old and new bytes, as for every reader in the stack.
        Mac(unsafe { ptr::read((*self.as_ptr()).dev_addr.cast()) })
    }

    /// Returns whether the device belongs to a device on a bus, such as PCI or virtio. Pure
    /// software devices do not.
    pub(crate) fn has_parent(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { bindings::dev_has_parent(self.as_ptr()) }
    }

    /// Returns the number of bytes that a frame for this device needs in front of its payload.
    #[inline]
    pub(crate) fn headroom(&self) -> usize {
        // SAFETY: The device is valid.
        unsafe { bindings::ll_reserved_space(self.as_ptr()) as usize }
    }

    /// Returns the maximum number of packets in one buffer that the device accepts
    /// (`gso_max_segs`). Each packet fills one frame. If the device cannot segment the buffer, the
    /// core does, as in TCP.
    #[inline]
    pub(crate) fn most_packets(&self) -> u16 {
        // SAFETY: The device is valid. The field is read in a single load, as the core reads it.
        unsafe { ptr::read_volatile(ptr::addr_of!((*self.as_ptr()).gso_max_segs)) }
    }

    /// Returns the length of the device's own header, in bytes.
    #[inline]
    fn header_len(&self) -> usize {
        // SAFETY: The device is valid. The length may change when a device below this one changes.
        unsafe { ptr::read_volatile(ptr::addr_of!((*self.as_ptr()).hard_header_len)).into() }
    }

    /// Returns whether the device's frames begin with just an Ethernet header, as written by
    /// `eth_header`.
    #[inline]
    fn has_plain_header(&self) -> bool {
        // SAFETY: The device is valid, and its table of functions is valid as long as the device.
        let create = unsafe {
            (*self.as_ptr())
                .header_ops
                .as_ref()
                .and_then(|ops| ops.create)
        };
        create.is_some_and(|create| create as usize == bindings::eth_header as usize)
    }

    /// Sends `skb` as the payload of one frame. Frames to the device's own address are received by
    /// the same device without leaving the host, since no switch would return them.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is no longer Ethernet, `ENETDOWN` if it is down. `ENOBUFS` if its
    /// queueing discipline dropped the frame, or if there is no memory for the header.
    #[inline]
    pub(crate) fn send(&self, skb: Skb, ethertype: u16, to: Mac) -> Result {
        self.send_as(skb, ethertype, None, to)
    }

    /// Works like [`Self::send`], but uses the source address `from`, if given, instead of the
    /// device's own address.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::send`].
    #[inline]
    pub(crate) fn send_as(
        &self,
        mut skb: Skb,
        ethertype: u16,
        from: Option<Mac>,
        to: Mac,
    ) -> Result {
        if !self.is_ethernet() {
            return Err(ENODEV);
        }
        // The device, or one below it, may need more headroom than when the buffer was allocated.
        let room = self.header_len();
        if skb.headroom() < room && !skb.make_headroom(self.headroom()) {
            return Err(ENOBUFS);
        }
        let own = self.address();
        let inside = to == own;
        // SAFETY: The buffer is ours. The device is valid during the call, and a queue that keeps
        // the buffer for longer is flushed before the device is freed.
        unsafe { bindings::skb_leave_by(skb.as_ptr(), self.as_ptr(), ethertype.to_be()) };
        let plain = room >= ETHERNET_HEADER && skb.headroom() >= room && self.has_plain_header();
        if plain {
            let mut header = [0; ETHERNET_HEADER];
            let source = from.unwrap_or(own);
            for (field, bytes) in [(0, &to.0), (6, &source.0)] {
                if let Some(field) = header.get_mut(field..field + 6) {
                    field.copy_from_slice(bytes);
                }
            }
            if let Some(last) = header.last_chunk_mut() {
                *last = ethertype.to_be_bytes();
            }
            // SAFETY: The headroom has room for `header`, by the condition above, and no one else
            // uses it.
            unsafe { skb.prepend(&header) };
        } else {
            // SAFETY: The buffer has headroom for the device's header.
            unsafe { self.create_header(&mut skb, ethertype, from, to, inside)? };
        }
        if inside {
            return self.loop_back(skb);
        }
        // SAFETY: The function takes over the buffer. It requires that hard interrupts are enabled,
        // and they are. Bottom halves may be enabled or disabled.
        match unsafe { bindings::__dev_queue_xmit(skb.into_raw(), ptr::null_mut()) } {
            // 0 (NET_XMIT_SUCCESS): the frame was sent. 2 (NET_XMIT_CN): it was sent, with a
            // congestion warning.
            0 | 2 => Ok(()),
            code if code < 0 => Err(Error::from_errno(code)),
            _ => Err(ENOBUFS),
        }
    }

    /// Adds a header to a frame: just an Ethernet header if the frame stays `inside` this host, or
    /// else the header that the device creates.
    ///
    /// # Safety
    ///
    /// The buffer has headroom for either header.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if the device creates no header.
    unsafe fn create_header(
        &self,
        skb: &mut Skb,
        ethertype: u16,
        from: Option<Mac>,
        to: Mac,
        inside: bool,
    ) -> Result {
        let len = skb.len() as u32;
        let raw = skb.as_ptr();
        let from = from.as_ref().map_or(ptr::null(), |mac| mac.0.as_ptr());
        // SAFETY: By the caller's promise, the buffer has room for the header, and it is borrowed
        // exclusively. `to` points to six bytes, and `from` is null or points to six bytes.
        let written = unsafe {
            let to = to.0.as_ptr().cast();
            let from = from.cast();
            if inside {
                // A frame that stays in this host gets no additions of the device for the wire,
                // such as a VLAN tag.
                bindings::eth_header(raw, self.as_ptr(), ethertype, to, from, len)
            } else {
                bindings::dev_hard_header(raw, self.as_ptr(), ethertype, to, from, len)
            }
        };
        if written < 0 {
            return Err(ENOBUFS);
        }
        Ok(())
    }

    /// Passes a complete frame to the receive path, as if the device had received it.
    fn loop_back(&self, skb: Skb) -> Result {
        let raw = skb.into_raw();
        // SAFETY: The buffer is ours, and `netif_rx` takes it over. Before that, the buffer is
        // prepared like a frame from a driver: transmit timestamps are taken, the protocol is set,
        // and the sending socket is removed, since a receiver will hold the buffer. The frame
        // starts with the Ethernet header that `eth_type_trans` reads.
        let verdict = unsafe {
            if !bindings::netif_running(self.as_ptr()) {
                bindings::kfree_skb(raw);
                return Err(ENETDOWN);
            }
            bindings::skb_stamp_inside(raw);
            bindings::skb_orphan(raw);
            // So far `tstamp` holds the requested send time, if any. A receiver would take this
            // time for the time of receipt.
            bindings::skb_clear_tstamp(raw);
            bindings::skb_set_protocol(raw, bindings::eth_type_trans(raw, self.as_ptr()));
            bindings::netif_rx(raw)
        };
        if verdict == 0 {
            Ok(())
        } else {
            Err(ENOBUFS)
        }
    }
}

/// Holds the lock of the device configuration (RTNL). While the lock is held, no device is added or
/// removed. [Listeners](Listener) are called with the lock held.
pub(crate) struct Configuration(NotThreadSafe);

impl Configuration {
    /// Takes the lock; may sleep. The lock's holder must not take it again, so listeners must not
    /// call this. The caller must not hold a lock that nests inside RTNL, such as a socket lock.
    pub(crate) fn lock() -> Self {
        // SAFETY: The function locks a mutex of the core.
        unsafe { bindings::rtnl_lock() };
        Configuration(NotThreadSafe)
    }

    /// Asks the driver of the device with index `ifindex` in `net` for the link speed in Mbit/s.
    /// Returns `None` if there is no such device, or its driver does not know the speed.
    pub(crate) fn link_speed(&self, net: &Net, ifindex: u32) -> Option<u32> {
        // SAFETY: `self` holds RTNL, so the device is not removed. The helper takes the device's
        // own lock, if it has one. A task never waits for RTNL while it holds the device's own
        // lock.
        let speed = unsafe { bindings::dev_link_speed(net.as_ptr(), ifindex as c_int) };
        (speed != 0).then_some(speed)
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        // SAFETY: `lock` locked the mutex in this very task, since the value cannot be sent to
        // another task.
        unsafe { bindings::rtnl_unlock() };
    }
}

/// A change of a device that sockets react to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The device has been removed, has left its namespace, or is no longer an Ethernet device.
    Gone,
    /// The device's MTU has changed.
    Resized,
    /// The device's address may have changed.
    Readdressed,
    /// The device has gone up or down, or the state of its link has changed.
    Linked,
}

/// A listener for changes of devices.
pub(crate) trait Listener: 'static {
    /// Called with the device configuration locked; may sleep.
    fn device_event(event: Event, device: &Device);
}

/// The registration of a [`Listener`]. Dropping it unregisters the listener.
pub(crate) struct Notifier<L: Listener> {
    _block: Notified,
    _listener: PhantomData<fn() -> L>,
}

impl<L: Listener> Notifier<L> {
    /// Registers the listener.
    pub(crate) fn register(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: Both functions belong to the chain of device notifiers, and `call` is a callback
        // for that chain. Unregistering may sleep, and so may module exit, which drops this value.
        let block = unsafe {
            Notified::new(
                Self::call,
                bindings::register_netdevice_notifier,
                bindings::unregister_netdevice_notifier,
            )?
        };
        Ok(Notifier {
            _block: block,
            _listener: PhantomData,
        })
    }

    /// # Safety
    ///
    /// Called by the chain of device notifiers, with the information of an event.
    unsafe extern "C" fn call(
        _block: *mut bindings::notifier_block,
        event: kernel::ffi::c_ulong,
        info: *mut kernel::ffi::c_void,
    ) -> c_int {
        const CHANGE_ADDRESS: u64 = bindings::netdev_cmd_NETDEV_CHANGEADDR as u64;
        const CHANGE_MTU: u64 = bindings::netdev_cmd_NETDEV_CHANGEMTU as u64;
        const POST_TYPE_CHANGE: u64 = bindings::netdev_cmd_NETDEV_POST_TYPE_CHANGE as u64;
        const CHANGE: u64 = bindings::netdev_cmd_NETDEV_CHANGE as u64;
        const UP: u64 = bindings::netdev_cmd_NETDEV_UP as u64;
        const DOWN: u64 = bindings::netdev_cmd_NETDEV_DOWN as u64;
        const UNREGISTER: u64 = bindings::netdev_cmd_NETDEV_UNREGISTER as u64;
        // SAFETY: The chain passes a `netdev_notifier_info` of a device that is valid during the
        // call.
        let device = unsafe { Device::from_raw(bindings::notifier_dev(info.cast())) };
        match event as u64 {
            CHANGE_ADDRESS => L::device_event(Event::Readdressed, device),
            CHANGE_MTU => L::device_event(Event::Resized, device),
            CHANGE | UP | DOWN => L::device_event(Event::Linked, device),
            POST_TYPE_CHANGE if !device.is_ethernet() => L::device_event(Event::Gone, device),
            // The check ignores two kinds of reports. When a listener unregisters, the core reports
            // UNREGISTER to it for every device, although the devices stay listed. While a removed
            // device still has references, the core repeats its report every second, and by then
            // another device may have the index. The first report of a removal passes: the device
            // configuration is still locked, so no other device can have the index.
            UNREGISTER if !device.is_index_listed() => L::device_event(Event::Gone, device),
            _ => {}
        }
        bindings::NOTIFY_DONE as c_int
    }
}
