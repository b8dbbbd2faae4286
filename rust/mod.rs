// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of the networking core's sockets, packets, devices and namespaces.
//!
//! The kernel crate does not cover sockets yet, and its bindings declare `sock`, `net_device` and
//! `net` without a size. The types here use separate bindings that bindgen makes from the same
//! headers. Pointers are cast where they meet the kernel crate's.
//!
//! C headers: [`include/net/sock.h`](srctree/include/net/sock.h),
//! [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h),
//! [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

#[allow(
    clippy::all,
    clippy::as_ptr_cast_mut,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]
mod bindings {
    use kernel::ffi;

    type __kernel_size_t = usize;
    type __kernel_ssize_t = isize;
    type __kernel_ptrdiff_t = isize;

    include!(env!("ENET_BINDINGS"));
    include!(env!("ENET_HELPERS"));
}

pub(crate) mod allocation;
pub(crate) mod bh_lock;
pub(crate) mod checksum;
pub(crate) mod compat;
mod control_group;
pub(crate) mod datagram;
pub(crate) mod device;
pub(crate) mod errno;
pub(crate) mod family;
mod front;
pub(crate) mod gro;
mod gso;
pub(crate) mod inet;
pub(crate) mod limits;
mod listed;
mod locked;
pub(crate) mod map;
mod masks;
pub(crate) mod message;
pub(crate) mod namespace;
mod notifier;
pub(crate) mod offload;
pub(crate) mod once;
pub(crate) mod options;
pub(crate) mod owned_timer;
pub(crate) mod packet_type;
pub(crate) mod page_ring;
pub(crate) mod pages;
pub(crate) mod parameter;
pub(crate) mod percpu;
pub(crate) mod procfs;
pub(crate) mod queue;
pub(crate) mod random;
pub(crate) mod rcu;
pub(crate) mod region;
pub(crate) mod ring;
pub(crate) mod route;
mod rx_list;
pub(crate) mod seq_queue;
mod settings;
pub(crate) mod skb;
pub(crate) mod skb_pool;
pub(crate) mod sock;
pub(crate) mod sock_list;
pub(crate) mod softirq;
pub(crate) mod splice;
pub(crate) mod stamps;
pub(crate) mod sysctl;
pub(crate) mod table;
pub(crate) mod timer;
pub(crate) mod trace;
pub(crate) mod wait;
mod wake;
mod zerocopy;

/// Constants of the socket interface, under their names in the kernel's headers.
pub(crate) mod uapi {
    use super::bindings;
    use kernel::ffi::c_int;

    pub(crate) const MSG_OOB: c_int = bindings::MSG_OOB as c_int;
    pub(crate) const MSG_PEEK: c_int = bindings::MSG_PEEK as c_int;
    pub(crate) const MSG_TRUNC: c_int = bindings::MSG_TRUNC as c_int;
    pub(crate) const MSG_EOR: c_int = bindings::MSG_EOR as c_int;
    pub(crate) const MSG_DONTWAIT: c_int = bindings::MSG_DONTWAIT as c_int;
    pub(crate) const MSG_WAITALL: c_int = bindings::MSG_WAITALL as c_int;
    pub(crate) const MSG_NOSIGNAL: c_int = bindings::MSG_NOSIGNAL as c_int;
    pub(crate) const MSG_MORE: c_int = bindings::MSG_MORE as c_int;
    pub(crate) const MSG_ZEROCOPY: c_int = bindings::MSG_ZEROCOPY as c_int;
    pub(crate) const MSG_ERRQUEUE: c_int = bindings::MSG_ERRQUEUE as c_int;

    pub(crate) const RCV_SHUTDOWN: u8 = bindings::RCV_SHUTDOWN as u8;
    pub(crate) const SEND_SHUTDOWN: u8 = bindings::SEND_SHUTDOWN as u8;
    pub(crate) const SHUTDOWN_MASK: u8 = bindings::SHUTDOWN_MASK as u8;

    pub(crate) const SIOCINQ: u32 = bindings::FIONREAD;
    pub(crate) const SIOCOUTQ: u32 = bindings::TIOCOUTQ;
    pub(crate) const SIOCOUTQNSD: u32 = bindings::SIOCOUTQNSD;
    pub(crate) const SIOCATMARK: u32 = bindings::SIOCATMARK;

    pub(crate) const EPOLLIN: u32 = 0x001;
    pub(crate) const EPOLLPRI: u32 = 0x002;
    pub(crate) const EPOLLOUT: u32 = 0x004;
    pub(crate) const EPOLLERR: u32 = 0x008;
    pub(crate) const EPOLLHUP: u32 = 0x010;
    pub(crate) const EPOLLRDNORM: u32 = 0x040;
    pub(crate) const EPOLLWRNORM: u32 = 0x100;
    pub(crate) const EPOLLWRBAND: u32 = 0x200;
    pub(crate) const EPOLLRDHUP: u32 = 0x2000;
}
