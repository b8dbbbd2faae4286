// SPDX-License-Identifier: GPL-2.0

//! RCU read sections as values, to which the lifetimes of references can be tied.
//!
//! C header: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h)

use super::bindings;
use kernel::sync::rcu::Guard;

/// Evidence of an RCU read section. Objects found in the section are valid at least until it ends.
pub(crate) struct Read {
    /// `None` if the kernel has entered the section and will leave it.
    _guard: Option<Guard>,
}

impl Read {
    /// Enters a read section, which ends when the value is dropped.
    #[inline]
    pub(crate) fn enter() -> Self {
        Read {
            _guard: Some(Guard::new()),
        }
    }

    /// Returns a read section that the kernel has entered and will leave.
    ///
    /// # Safety
    ///
    /// The kernel's section lasts for as long as the value exists.
    #[inline]
    pub(super) unsafe fn within() -> Self {
        Read { _guard: None }
    }
}

/// Lets other tasks run, if any has waited long enough. Call this in process context, outside any
/// read section.
pub(super) fn reschedule() {
    // SAFETY: The function can sleep. Every caller is in a context in which sleeping is allowed.
    unsafe { bindings::cond_resched() };
}

/// Waits until all read sections that have begun so far have ended. Call this in process context,
/// outside any read section.
pub(crate) fn synchronize() {
    // SAFETY: The function can sleep. Every caller is in a context in which sleeping is allowed.
    unsafe { bindings::synchronize_rcu() };
}

/// Waits until every callback queued with `call_rcu` so far has run.
pub(crate) fn barrier() {
    // SAFETY: The function may sleep. Only module exit calls this, in process context.
    unsafe { bindings::rcu_barrier() };
}
