// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory, and the handles by which peers name it.

use std::ffi::{c_int, c_void};

use crate::driver;
use crate::ffi::*;
use crate::wire::Target;

/// The handle of memory that peers may access. Open MPI copies the handle to the peers byte by
/// byte.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// The key that peers need to access the memory; 0 if they do not access it.
    key: u64,
    /// Address of the memory in the process that registered it.
    base: u64,
}

impl Registration {
    /// Reads a peer's handle.
    ///
    /// # Safety
    ///
    /// `handle` must be a bytewise copy of a handle that this component has made. It may be
    /// unaligned.
    pub unsafe fn of_peer(handle: *const mca_btl_base_registration_handle_t) -> Self {
        // SAFETY: the caller passes a copy of a handle.
        unsafe { handle.cast::<Self>().read_unaligned() }
    }

    /// Returns the target for `length` bytes from `address` on, which is an address in the process
    /// that registered the memory.
    pub fn target(&self, address: u64, length: usize) -> Target {
        Target {
            key: self.key,
            offset: address.wrapping_sub(self.base),
            length: length as u64,
        }
    }
}

/// Registers memory. If peers may access the memory, it is opened to them. Other memory needs no
/// preparation.
pub unsafe extern "C" fn register(
    _module: *mut mca_btl_base_module_t,
    _endpoint: *mut mca_btl_base_endpoint_t,
    base: *mut c_void,
    size: usize,
    flags: u32,
) -> *mut mca_btl_base_registration_handle_t {
    let mut key = 0;
    if flags & MCA_BTL_REG_FLAG_REMOTE_WRITE != 0 {
        // SAFETY: Open MPI registers memory that the program provided for receiving or as a window,
        // and deregisters the memory before the program gets it back.
        match unsafe { driver::open_window(base.cast(), size) } {
            Some(opened) => key = opened,
            None => return std::ptr::null_mut(),
        }
    }
    let base = base.expose_provenance() as u64;
    Box::into_raw(Box::new(Registration { key, base })).cast()
}

/// Ends the registration of memory.
pub unsafe extern "C" fn deregister(
    _module: *mut mca_btl_base_module_t,
    handle: *mut mca_btl_base_registration_handle_t,
) -> c_int {
    if !handle.is_null() {
        // SAFETY: `register` made the handle from a box, and Open MPI returns it once.
        let registration = unsafe { Box::from_raw(handle.cast::<Registration>()) };
        driver::close_window(registration.key);
    }
    OPAL_SUCCESS
}
