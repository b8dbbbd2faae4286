// SPDX-License-Identifier: MIT OR Apache-2.0

//! The module for remote memory, by which Open MPI's one-sided calls access the windows of all
//! processes.
//!
//! It is a module beside those of the interfaces, since Open MPI's one-sided component wants a
//! single module that reaches every process, the own one included, and has reads and atomic
//! operations. Open MPI sends no messages by it, so the protocol for large messages stays what the
//! modules of the interfaces say.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::driver;
use crate::engine::LinkId;
use crate::ffi::{
    mca_btl_base_atomic_op_t_MCA_BTL_ATOMIC_ADD as ADD,
    mca_btl_base_atomic_op_t_MCA_BTL_ATOMIC_AND as AND,
    mca_btl_base_atomic_op_t_MCA_BTL_ATOMIC_OR as OR,
    mca_btl_base_atomic_op_t_MCA_BTL_ATOMIC_SWAP as SWAP,
    mca_btl_base_atomic_op_t_MCA_BTL_ATOMIC_XOR as XOR, *,
};
use crate::fragment::{Completion, Message, Wanted};
use crate::module::{self, accepted, recycle, take};
use crate::registration::{self, Registration};
use crate::windows::{execute_at, Windows};
use crate::wire::{Atomic, Calculation, Target, Width};

/// The operations of the module.
const FLAGS: u32 = MCA_BTL_FLAGS_PUT
    | MCA_BTL_FLAGS_GET
    | MCA_BTL_FLAGS_ATOMIC_OPS
    | MCA_BTL_FLAGS_ATOMIC_FOPS
    | MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION
    // Open MPI 5.0 looks for this bit here instead of in the atomic flags. It says that a process
    // may access its own windows directly, since the module's operations are atomic to those of the
    // processor.
    | MCA_BTL_ATOMIC_SUPPORTS_GLOB;

/// The atomic operations of the module. For others, Open MPI reads, calculates and puts under a
/// lock.
const ATOMIC_FLAGS: u32 = MCA_BTL_ATOMIC_SUPPORTS_ADD
    | MCA_BTL_ATOMIC_SUPPORTS_AND
    | MCA_BTL_ATOMIC_SUPPORTS_OR
    | MCA_BTL_ATOMIC_SUPPORTS_XOR
    | MCA_BTL_ATOMIC_SUPPORTS_SWAP
    | MCA_BTL_ATOMIC_SUPPORTS_CSWAP
    | MCA_BTL_ATOMIC_SUPPORTS_32BIT
    | MCA_BTL_ATOMIC_SUPPORTS_GLOB;

/// Makes `module`, a copy of an interface's module, the module for remote memory.
pub fn fill(module: &mut mca_btl_base_module_t) {
    module.btl_add_procs = Some(add_procs);
    module.btl_register_mem = Some(registration::register_window);
    module.btl_put = Some(put);
    module.btl_get = Some(get);
    module.btl_atomic_op = Some(operate);
    module.btl_atomic_fop = Some(fetch_and_operate);
    module.btl_atomic_cswap = Some(compare_and_swap);
    module.btl_flags = FLAGS;
    module.btl_atomic_flags = ATOMIC_FLAGS;
    module.btl_put_limit = usize::MAX;
    // The reply to a read must fit into a receive buffer.
    module.btl_get_limit = module.btl_max_send_size;
    // Memory of the caller needs no registration.
    module.btl_put_local_registration_threshold = usize::MAX;
    module.btl_get_local_registration_threshold = usize::MAX;
    // This module has no share in messages. Its latency is higher, so that Open MPI prefers the
    // modules of the interfaces where it emulates one-sided calls by messages.
    module.btl_latency += 1;
    module.btl_bandwidth = 0;
    module.btl_rdma_pipeline_send_length = 0;
    module.btl_min_rdma_pipeline_size = 0;
}

unsafe extern "C" fn add_procs(
    _module: *mut mca_btl_base_module_t,
    count: usize,
    procs: *mut *mut opal_proc_t,
    endpoints: *mut *mut mca_btl_base_endpoint_t,
    reachable: *mut opal_bitmap_t,
) -> c_int {
    let find = |peer: module::Peer| match peer {
        module::Peer::Own => Some(driver::own_endpoint()),
        module::Peer::Other(name, fetch) => driver::reach_memory(name, fetch),
    };
    // SAFETY: Open MPI has passed these arguments, as `add` asks.
    unsafe { module::add(count, procs, endpoints, reachable, find) };
    OPAL_SUCCESS
}

/// The place of the memory on which an operation works.
enum Site {
    /// At this address of this process. Open MPI passes no handle for memory that this process has
    /// or shares with the target.
    Here(*mut u8),
    /// In a window of this process.
    Own(Registration),
    /// In a window of the process at the other end of the link.
    Peer(LinkId, Registration),
}

impl Site {
    /// Returns the place that `handle` and `address` name at the process of `endpoint`.
    ///
    /// # Safety
    ///
    /// `handle` must be a bytewise copy of a handle that this component has made, or null.
    unsafe fn new(
        endpoint: *mut mca_btl_base_endpoint_t,
        handle: *mut mca_btl_base_registration_handle_t,
        address: u64,
    ) -> Self {
        // SAFETY: the caller passes a copy of a handle, or null.
        let registration = unsafe { Registration::of_peer(handle) };
        match (registration, driver::link_of(endpoint)) {
            (None, _) => Site::Here(ptr::with_exposed_provenance_mut(address as usize)),
            (Some(registration), None) => Site::Own(registration),
            (Some(registration), Some(link)) => Site::Peer(link, registration),
        }
    }
}

/// Returns a message without data for an operation.
fn message(module: *mut mca_btl_base_module_t, endpoint: *mut mca_btl_base_endpoint_t) -> Message {
    take(0, module, endpoint, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)
}

/// Completes an operation on memory of this process; `data` is what the operation has read.
fn complete(mut message: Message, data: Option<&[u8]>) -> c_int {
    let Some(data) = data else {
        recycle(message);
        return OPAL_ERR_NOT_AVAILABLE;
    };
    message.store(data);
    if let Some(message) = message.finish(OPAL_SUCCESS) {
        recycle(message);
    }
    OPAL_SUCCESS
}

/// Writes into memory that a process has registered.
unsafe extern "C" fn put(
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    address: *mut c_void,
    remote_address: u64,
    handle: *mut mca_btl_base_registration_handle_t,
    remote_handle: *mut mca_btl_base_registration_handle_t,
    size: usize,
    _flags: c_int,
    _order: c_int,
    callback: mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    // SAFETY: Open MPI passes a bytewise copy of the handle of a process, or null.
    let site = unsafe { Site::new(endpoint, remote_handle, remote_address) };
    let completion = Completion {
        callback,
        address,
        wanted: Wanted::Nothing,
        handle,
        context,
        data,
    };
    let mut message = message(module, endpoint);
    message.set_write(size, completion);
    match site {
        Site::Here(place) => {
            // SAFETY: Open MPI passes two addresses of `size` bytes of this process.
            unsafe { ptr::copy(address.cast(), place, size) };
            complete(message, Some(&[]))
        }
        Site::Own(registration) => {
            let target = registration.target(remote_address, size);
            let write = |windows: &mut Windows| {
                // SAFETY: Open MPI passes the address of `size` bytes, as many as the target has.
                unsafe { windows.write(&target, address.cast()) }
            };
            complete(message, driver::with_windows(write).map(|()| &[][..]))
        }
        Site::Peer(link, registration) => {
            let target = registration.target(remote_address, size);
            accepted(match registration.region() {
                Some(region) => driver::put_to_region(link, region, &target, message),
                None => driver::write(link, &target, message),
            })
        }
    }
}

/// Reads memory that a process has registered.
unsafe extern "C" fn get(
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    address: *mut c_void,
    remote_address: u64,
    handle: *mut mca_btl_base_registration_handle_t,
    remote_handle: *mut mca_btl_base_registration_handle_t,
    size: usize,
    _flags: c_int,
    _order: c_int,
    callback: mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    // SAFETY: Open MPI passes a bytewise copy of the handle of a process, or null.
    let site = unsafe { Site::new(endpoint, remote_handle, remote_address) };
    let completion = Completion {
        callback,
        address,
        wanted: Wanted::Bytes,
        handle,
        context,
        data,
    };
    let mut message = message(module, endpoint);
    message.set_call(completion);
    match site {
        Site::Here(place) => {
            // SAFETY: Open MPI passes two addresses of `size` bytes of this process.
            unsafe { ptr::copy(place, address.cast(), size) };
            // The bytes are in their place.
            complete(message, Some(&[]))
        }
        Site::Own(registration) => {
            let target = registration.target(remote_address, size);
            let mut bytes = Vec::new();
            let read = driver::with_windows(|windows| windows.read(&target, &mut bytes));
            complete(message, read.map(|()| &bytes[..]))
        }
        Site::Peer(link, registration) => {
            let target = registration.target(remote_address, size);
            accepted(driver::read(link, &target, message))
        }
    }
}

/// Converts Open MPI's operation; `None` for an operation that this component does not have.
fn calculation(operation: mca_btl_base_atomic_op_t, flags: c_int) -> Option<Calculation> {
    if flags as u32 & MCA_BTL_ATOMIC_FLAG_FLOAT != 0 {
        return None;
    }
    match operation {
        ADD => Some(Calculation::Add),
        AND => Some(Calculation::And),
        OR => Some(Calculation::Or),
        XOR => Some(Calculation::Xor),
        SWAP => Some(Calculation::Swap),
        _ => None,
    }
}

/// The operands of an atomic operation.
struct Operands {
    calculation: Calculation,
    operand: u64,
    expected: u64,
}

/// Executes an atomic operation, and stores the old value at the address of `completion` unless
/// that is null.
///
/// # Safety
///
/// `site` must be the place of a number, with the address `remote_address`.
unsafe fn execute(
    (module, endpoint): (*mut mca_btl_base_module_t, *mut mca_btl_base_endpoint_t),
    (site, remote_address): (Site, u64),
    operands: &Operands,
    flags: c_int,
    mut completion: Completion,
) -> c_int {
    let width = if flags as u32 & MCA_BTL_ATOMIC_FLAG_32BIT != 0 {
        Width::Four
    } else {
        Width::Eight
    };
    if !completion.address.is_null() {
        completion.wanted = Wanted::Number(width);
    }
    let mut message = message(module, endpoint);
    message.set_call(completion);
    let atomic = |key, offset| Atomic {
        calculation: operands.calculation,
        width,
        key,
        offset,
        operand: operands.operand,
        expected: operands.expected,
    };
    let in_window = |registration: Registration| {
        let Target { key, offset, .. } = registration.target(remote_address, width as usize);
        atomic(key, offset)
    };
    let old = match site {
        // SAFETY: the caller passes the address of a number, which all processes change by atomic
        // operations.
        Site::Here(place) => unsafe { execute_at(place, &atomic(0, 0)) },
        Site::Own(registration) => {
            driver::with_windows(|windows| windows.execute(&in_window(registration)))
        }
        Site::Peer(link, registration) => {
            return accepted(driver::execute(link, &in_window(registration), message));
        }
    };
    let old = old.map(u64::to_le_bytes);
    complete(message, old.as_ref().map(|old| &old[..]))
}

unsafe extern "C" fn operate(
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    remote_address: u64,
    remote_handle: *mut mca_btl_base_registration_handle_t,
    operation: mca_btl_base_atomic_op_t,
    operand: u64,
    flags: c_int,
    order: c_int,
    callback: mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    // SAFETY: Open MPI has passed the arguments. Null stands for no place for the old value.
    unsafe {
        fetch_and_operate(
            module,
            endpoint,
            ptr::null_mut(),
            remote_address,
            ptr::null_mut(),
            remote_handle,
            operation,
            operand,
            flags,
            order,
            callback,
            context,
            data,
        )
    }
}

unsafe extern "C" fn fetch_and_operate(
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    address: *mut c_void,
    remote_address: u64,
    handle: *mut mca_btl_base_registration_handle_t,
    remote_handle: *mut mca_btl_base_registration_handle_t,
    operation: mca_btl_base_atomic_op_t,
    operand: u64,
    flags: c_int,
    _order: c_int,
    callback: mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let Some(calculation) = calculation(operation, flags) else {
        // This error makes Open MPI read, calculate and put.
        return OPAL_ERR_NOT_SUPPORTED;
    };
    // SAFETY: Open MPI passes a bytewise copy of the handle of a process, or null.
    let site = unsafe { Site::new(endpoint, remote_handle, remote_address) };
    let operands = Operands {
        calculation,
        operand,
        expected: 0,
    };
    let completion = Completion {
        callback,
        address,
        wanted: Wanted::Nothing,
        handle,
        context,
        data,
    };
    let remote = (site, remote_address);
    // SAFETY: Open MPI passes the place of a number.
    unsafe { execute((module, endpoint), remote, &operands, flags, completion) }
}

unsafe extern "C" fn compare_and_swap(
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    address: *mut c_void,
    remote_address: u64,
    handle: *mut mca_btl_base_registration_handle_t,
    remote_handle: *mut mca_btl_base_registration_handle_t,
    compare: u64,
    value: u64,
    flags: c_int,
    _order: c_int,
    callback: mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    // SAFETY: Open MPI passes a bytewise copy of the handle of a process, or null.
    let site = unsafe { Site::new(endpoint, remote_handle, remote_address) };
    let operands = Operands {
        calculation: Calculation::CompareSwap,
        operand: value,
        expected: compare,
    };
    let completion = Completion {
        callback,
        address,
        wanted: Wanted::Nothing,
        handle,
        context,
        data,
    };
    let remote = (site, remote_address);
    // SAFETY: Open MPI passes the place of a number.
    unsafe { execute((module, endpoint), remote, &operands, flags, completion) }
}
