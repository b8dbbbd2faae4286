// SPDX-License-Identifier: GPL-2.0

//! The flags for allocating memory, which depend on the context.
//!
//! C header: [`include/linux/gfp.h`](srctree/include/linux/gfp.h)

use super::bindings;

/// The flags with which a call on a socket allocates memory (`sk_allocation`): see `task_context`
/// in `front.rs`.
#[derive(Clone, Copy)]
pub(crate) struct Flags(bindings::gfp_t);

impl Flags {
    #[inline]
    pub(super) const fn of_socket(flags: bindings::gfp_t) -> Self {
        Flags(flags | bindings::ENET_GFP_ACCOUNT)
    }

    /// Returns whether these are the default flags. Other kernel code that uses the socket may have
    /// changed them.
    pub(super) const fn is_default(self) -> bool {
        self.0 == bindings::ENET_GFP_TASK
    }
}

/// The context in which memory is allocated.
#[derive(Clone, Copy)]
pub(crate) enum Context {
    /// A call on a socket. Its flags state whether it may sleep. The memory is charged to the
    /// memory cgroup of the calling task.
    Task(Flags),
    /// A softirq, or code with bottom halves disabled or a lock held.
    Softirq,
}

impl Context {
    #[inline]
    pub(super) const fn gfp(self) -> bindings::gfp_t {
        match self {
            Context::Task(flags) => flags.0,
            Context::Softirq => bindings::ENET_GFP_ATOMIC,
        }
    }
}
