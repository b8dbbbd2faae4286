// SPDX-License-Identifier: GPL-2.0

//! What differs between the kernels that the module is built for.
//!
//! No other file asks which kernel this is. Kbuild sets `enet_kernel_7_3` from Linux 7.3 on.

use super::bindings;

/// A timer's callback returns this to leave the timer as it is.
#[cfg(enet_kernel_7_3)]
pub(super) const HRTIMER_NORESTART: bindings::hrtimer_restart =
    bindings::hrtimer_restart::HRTIMER_NORESTART;
/// A timer's callback returns this to leave the timer as it is.
#[cfg(not(enet_kernel_7_3))]
pub(super) const HRTIMER_NORESTART: bindings::hrtimer_restart =
    bindings::hrtimer_restart_HRTIMER_NORESTART;
