// SPDX-License-Identifier: GPL-2.0

//! Registers functions in the kernel's notifier chains.
//!
//! C header: [`include/linux/notifier.h`](srctree/include/linux/notifier.h)

use super::{bindings, listed::Listed};
use crate::net::errno::prelude::*;
use core::mem;
use kernel::ffi::{c_int, c_ulong, c_void};

/// A kernel function that adds a block to a chain, or removes a block from it.
type Change = unsafe extern "C" fn(*mut bindings::notifier_block) -> c_int;

/// A function that a notifier chain calls.
type Callback = unsafe extern "C" fn(*mut bindings::notifier_block, c_ulong, *mut c_void) -> c_int;

/// A block in a chain. Dropping this value removes the block from the chain.
pub(super) struct Notified {
    block: Listed<bindings::notifier_block>,
    unregister: Change,
}

impl Notified {
    /// Adds a block with the function `call` to the chain of `register`.
    ///
    /// # Safety
    ///
    /// `register` adds a block to a chain that may call `call`, or fails and leaves the block in no
    /// chain. `unregister` removes a block from the same chain, waits for running calls, and may be
    /// called where the value is dropped.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or the error of `register`.
    pub(super) unsafe fn new(call: Callback, register: Change, unregister: Change) -> Result<Self> {
        // SAFETY: All-zero bytes are a valid value: a notifier block in no chain.
        let mut block: bindings::notifier_block = unsafe { mem::zeroed() };
        block.notifier_call = Some(call);
        let block = Listed::new(block)?;
        // SAFETY: The block does not move until `drop` has removed it from the chain. By the
        // caller's promise, the function adds it to a chain that may call `call`.
        to_result(unsafe { register(block.as_ptr()) })?;
        Ok(Notified { block, unregister })
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        // SAFETY: `new` has added the block to the chain that this function removes blocks from. By
        // the promise to `new`, the function may be called here.
        unsafe { (self.unregister)(self.block.as_ptr()) };
    }
}
