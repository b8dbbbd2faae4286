// SPDX-License-Identifier: GPL-2.0

//! The control group of a socket: that of the task that made it, or of the socket that it was made
//! for; and the one that its memory is charged to.
//!
//! C headers: [`include/linux/cgroup.h`](srctree/include/linux/cgroup.h),
//! [`include/linux/slab.h`](srctree/include/linux/slab.h) (`kmem_cache_charge`)

use super::{bindings, sock::RawSock};
use kernel::ffi::c_int;

impl RawSock {
    /// Whether the socket is of the control group with number `id`, or of one inside it.
    pub(crate) fn is_in_group(&self, id: u64) -> bool {
        (0..c_int::MAX)
            // SAFETY: The socket is valid and has its control group, whose numbers are not zero.
            .map(|level| unsafe { bindings::sk_group_at(self.as_ptr(), level) })
            .take_while(|group| *group != 0)
            .any(|group| group == id)
    }

    /// Makes a new socket one of the control group of `other`, as the child of a listener is,
    /// whichever task makes it.
    ///
    /// # Safety
    ///
    /// Nobody else has this socket.
    pub(super) unsafe fn join_group(&self, other: &RawSock) {
        // SAFETY: Both sockets are valid and have a control group, which `other` keeps until its
        // end. Of the new socket nobody else reads it.
        unsafe { bindings::sk_join_group(self.as_ptr(), other.as_ptr()) };
    }

    /// Whether programs are attached to the socket's control group that look at the packets or
    /// calls of IP.
    pub(super) fn is_filtered_by_group(&self) -> bool {
        // SAFETY: The socket is valid and has its control group.
        unsafe { bindings::cgroup_filters_inet(self.as_ptr()) }
    }

    /// Charges the memory of a listener's child, which a softirq made, to the memory cgroup of the
    /// calling task. As with TCP, the task exceeds its limit rather than being refused. May sleep.
    pub(super) fn charge(&self) {
        // SAFETY: A socket is an object of its protocol's cache, and may be charged for at any
        // time; the function does nothing for one that is.
        unsafe { bindings::sk_charge(self.as_ptr()) };
    }
}
