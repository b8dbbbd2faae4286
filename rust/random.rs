// SPDX-License-Identifier: GPL-2.0

//! Random numbers.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use super::bindings;
use core::{mem::size_of, mem::MaybeUninit};

/// Returns a number that no one outside the kernel can guess.
pub(crate) fn u16() -> u16 {
    // SAFETY: The function may be called in any context.
    unsafe { bindings::get_random_u16() }
}

/// Returns a number that no one outside the kernel can guess.
pub(crate) fn u32() -> u32 {
    // SAFETY: The function may be called in any context.
    unsafe { bindings::get_random_u32() }
}

/// Returns a number that no one outside the kernel can guess.
pub(crate) fn u64() -> u64 {
    // SAFETY: The function may be called in any context.
    unsafe { bindings::get_random_u64() }
}

/// A secret of this machine, for hashes that no one outside the kernel can predict.
pub(crate) struct Secret(bindings::siphash_key_t);

impl Secret {
    /// Creates a new secret.
    pub(crate) fn new() -> Self {
        let mut key = MaybeUninit::<bindings::siphash_key_t>::uninit();
        // SAFETY: The function fills all bytes of the key, and every bit pattern is a valid value.
        unsafe {
            bindings::get_random_bytes(
                key.as_mut_ptr().cast(),
                size_of::<bindings::siphash_key_t>(),
            );
            Secret(key.assume_init())
        }
    }

    /// Returns the SipHash of `words`.
    pub(crate) fn hash(&self, words: [u64; 3]) -> u64 {
        let [first, second, third] = words;
        // SAFETY: The key is valid. The function only reads it.
        unsafe { bindings::siphash_3u64(first, second, third, &self.0) }
    }
}
