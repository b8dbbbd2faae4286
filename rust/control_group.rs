// SPDX-License-Identifier: GPL-2.0

//! The control group of a socket: that of the task that made it.
//!
//! C header: [`include/linux/cgroup.h`](srctree/include/linux/cgroup.h)

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

    /// Whether programs are attached to the socket's control group that look at the packets or calls of IP.
    pub(crate) fn is_filtered_by_group(&self) -> bool {
        // SAFETY: The socket is valid and has its control group.
        unsafe { bindings::cgroup_filters_inet(self.as_ptr()) }
    }
}
