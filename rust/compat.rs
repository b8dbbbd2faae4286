// SPDX-License-Identifier: GPL-2.0

//! The differences between the kernels that the module is built for.
//!
//! No other file depends on the kernel version. Kbuild sets `enet_kernel_7_3` from Linux 7.3 on.

use super::bindings;

/// A timer's callback returns this to leave the timer disarmed.
#[cfg(enet_kernel_7_3)]
pub(super) const HRTIMER_NORESTART: bindings::hrtimer_restart =
    bindings::hrtimer_restart::HRTIMER_NORESTART;
/// A timer's callback returns this to leave the timer disarmed.
#[cfg(not(enet_kernel_7_3))]
pub(super) const HRTIMER_NORESTART: bindings::hrtimer_restart =
    bindings::hrtimer_restart_HRTIMER_NORESTART;
