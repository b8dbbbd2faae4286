// SPDX-License-Identifier: GPL-2.0

//! Softirq context as a value, which makes "only with bottom halves disabled" a type.
//!
//! C header: [`include/linux/bottom_half.h`](srctree/include/linux/bottom_half.h)

use super::bindings;
use core::marker::PhantomData;
use kernel::types::NotThreadSafe;

/// Evidence that the code runs in a softirq, or has disabled bottom halves. So no softirq can
/// interrupt the code and then wait for one of its locks.
///
/// The evidence does not exclude other softirqs on this processor. On PREEMPT_RT, softirqs run in
/// tasks, and a softirq of another task may preempt the code. So even data of a single processor
/// needs a lock or an atomic instruction if several softirqs change it.
#[derive(Clone, Copy)]
pub(crate) struct Softirq<'a>(PhantomData<&'a ()>, NotThreadSafe);

impl Softirq<'_> {
    /// Returns the evidence, for code that the kernel calls in this context.
    ///
    /// # Safety
    ///
    /// Bottom halves are disabled, or a softirq runs, for as long as the value exists.
    #[inline]
    pub(super) unsafe fn assume<'a>() -> Softirq<'a> {
        Softirq(PhantomData, NotThreadSafe)
    }
}

/// Runs `f` with bottom halves disabled.
#[inline]
pub(crate) fn disabled<R>(f: impl FnOnce(Softirq<'_>) -> R) -> R {
    // SAFETY: Bottom halves are enabled again below, in the same context. Such pairs may nest.
    unsafe { bindings::local_bh_disable() };
    // SAFETY: The token cannot leave `f`, which is called for any lifetime.
    let result = f(unsafe { Softirq::assume() });
    // SAFETY: This pairs with `local_bh_disable` above.
    unsafe { bindings::local_bh_enable() };
    result
}
