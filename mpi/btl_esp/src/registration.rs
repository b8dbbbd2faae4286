// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory, and the handles by which peers name it.

use std::ffi::{c_int, c_void};
use std::ptr;

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
    /// The key of the memory as a region of the kernel; 0 if it is none.
    region: u64,
}

impl Registration {
    /// Reads a peer's handle. Returns `None` for null.
    ///
    /// # Safety
    ///
    /// `handle` must be a bytewise copy of a handle that this component has made, or null. It may
    /// be unaligned.
    pub unsafe fn of_peer(handle: *const mca_btl_base_registration_handle_t) -> Option<Self> {
        // SAFETY: the caller passes a copy of a handle, unless it is null.
        (!handle.is_null()).then(|| unsafe { handle.cast::<Self>().read_unaligned() })
    }

    /// Returns the key of the memory as a region of the peer's kernel, if it is one.
    pub fn region(&self) -> Option<u64> {
        Some(self.region).filter(|region| *region != 0)
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

/// Opens memory to peers, and returns its handle.
///
/// # Safety
///
/// The memory must stay allocated, and no reference to it may be used, until [`deregister`] is
/// called with the handle.
unsafe fn open(base: *mut c_void, size: usize) -> Option<Registration> {
    // SAFETY: the caller leaves the memory to the peers.
    let key = unsafe { driver::open_window(base.cast(), size) }?;
    let base = base.expose_provenance() as u64;
    Some(Registration {
        key,
        base,
        region: 0,
    })
}

fn handle(registration: Option<Registration>) -> *mut mca_btl_base_registration_handle_t {
    registration.map_or(ptr::null_mut(), |registration| {
        Box::into_raw(Box::new(registration)).cast()
    })
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
    if flags & MCA_BTL_REG_FLAG_REMOTE_WRITE == 0 {
        let base = base.expose_provenance() as u64;
        return handle(Some(Registration {
            key: 0,
            base,
            region: 0,
        }));
    }
    // SAFETY: Open MPI registers memory that the program provided for receiving, and deregisters
    // the memory before the program gets it back.
    handle(unsafe { open(base, size) })
}

/// Registers memory for one-sided calls. If peers may access the memory, it is opened to them, and
/// pinned.
pub unsafe extern "C" fn register_window(
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    base: *mut c_void,
    size: usize,
    flags: u32,
) -> *mut mca_btl_base_registration_handle_t {
    if flags & MCA_BTL_REG_FLAG_REMOTE_ATOMIC == 0 {
        // SAFETY: Open MPI has passed these arguments.
        return unsafe { register(module, endpoint, base, size, flags) };
    }
    // SAFETY: Open MPI registers the memory of a window, or its own memory, and deregisters the
    // memory before it is freed. Peers and the program access it by the rules of MPI alone.
    let registration = unsafe { open(base, size) };
    handle(registration.map(|opened| Registration {
        // SAFETY: the memory is that of the window that was opened just now.
        region: unsafe { driver::pin_window(opened.key, base.cast(), size) },
        ..opened
    }))
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
