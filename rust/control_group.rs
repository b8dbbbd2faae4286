// SPDX-License-Identifier: GPL-2.0

//! The control group of a socket, and the memory cgroup to which the socket is charged. A socket
//! takes its control group from its creator, which is a task or a listener. A companion, which
//! shares the descriptor of a TCP socket, takes the control group of that TCP socket instead.
//!
//! C headers: [`include/linux/cgroup.h`](srctree/include/linux/cgroup.h),
//! [`include/linux/slab.h`](srctree/include/linux/slab.h) (`kmem_cache_charge`)

use super::{bindings, sock::RawSock};
use kernel::ffi::c_int;

impl RawSock {
    /// Returns whether the socket is in the control group with number `id`, or in a descendant of
    /// it.
    pub(crate) fn is_in_group(&self, id: u64) -> bool {
        (0..c_int::MAX)
            // SAFETY: By the invariant of `RawSock`, the socket is valid and has a control group.
            // For a level deeper than the group itself, the function returns 0, which is no group's
            // number.
            .map(|level| unsafe { bindings::sk_group_at(self.as_ptr(), level) })
            .take_while(|group| *group != 0)
            .any(|group| group == id)
    }

    /// Moves a new socket from the creating task's control group into the control group of `other`.
    /// A listener's child also gets the control group of its listener.
    ///
    /// # Safety
    ///
    /// No one else has a reference to this socket.
    pub(super) unsafe fn join_group(&self, other: &RawSock) {
        // SAFETY: Both sockets are valid and have a control group. `other` keeps its group for as
        // long as it exists. No one else reads the new socket's group.
        unsafe { bindings::sk_join_group(self.as_ptr(), other.as_ptr()) };
    }

    /// Returns whether BPF programs that see IP packets, or calls on IP sockets, are attached to
    /// the socket's control group.
    pub(super) fn is_filtered_by_group(&self) -> bool {
        // SAFETY: By the invariant of `RawSock`, the socket is valid and has a control group.
        unsafe { bindings::cgroup_filters_inet(self.as_ptr()) }
    }

    /// Charges the memory of a listener's child, which a softirq created, to the memory cgroup of
    /// the calling task. As in TCP, the charge may exceed the limit and does not fail. May sleep.
    pub(super) fn charge(&self) {
        // SAFETY: A socket is an object of its protocol's slab cache, which may be charged at any
        // time. The function does nothing for an object that is already charged.
        unsafe { bindings::sk_charge(self.as_ptr()) };
    }
}
