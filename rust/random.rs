// SPDX-License-Identifier: GPL-2.0

//! Random numbers.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use super::bindings;

/// A number that nobody outside can guess.
pub(crate) fn u16() -> u16 {
    // SAFETY: May be called in any context.
    unsafe { bindings::get_random_u16() }
}
