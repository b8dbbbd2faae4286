// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions that Open MPI calls for an interface.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::driver;
use crate::engine::LinkId;
use crate::ffi::*;
use crate::fragment::{Completion, Message, Pool, Wanted};
use crate::registration::{self, Registration};
use crate::wire::{Name, TARGET};

/// Maximum size, in bytes, of a message that gets a small fragment. The size includes Open MPI's
/// headers.
const SMALL: usize = 4 << 10;

static SMALL_MESSAGES: Pool = Pool::new();
static LARGE_MESSAGES: Pool = Pool::new();

/// Sets the module's functions.
pub fn fill(module: &mut mca_btl_base_module_t) {
    module.btl_add_procs = Some(add_procs);
    module.btl_del_procs = Some(del_procs);
    module.btl_finalize = Some(finalize);
    module.btl_alloc = Some(alloc);
    module.btl_free = Some(free);
    module.btl_prepare_src = Some(prepare_src);
    module.btl_send = Some(send);
    module.btl_sendi = Some(sendi);
    module.btl_register_mem = Some(registration::register);
    module.btl_deregister_mem = Some(registration::deregister);
    module.btl_registration_handle_size = size_of::<Registration>();
    module.btl_put = Some(put);
    module.btl_dump = Some(mca_btl_base_dump);
    module.btl_register_error = Some(register_error);
}

/// Gives a message back to its pool.
pub fn recycle(message: Message) {
    if message.size() <= SMALL {
        SMALL_MESSAGES.give(message);
    } else {
        LARGE_MESSAGES.give(message);
    }
}

/// Gives a message to `act` with the link of its endpoint. Returns the message if there is no link.
fn by_link(
    endpoint: *mut mca_btl_base_endpoint_t,
    message: Message,
    act: impl FnOnce(LinkId, Message) -> Result<bool, Message>,
) -> Result<bool, Message> {
    match driver::link_of(endpoint) {
        Some(link) => act(link, message),
        None => Err(message),
    }
}

/// Returns the result of an operation that was passed to the engine.
pub fn accepted(result: Result<bool, Message>) -> c_int {
    match result {
        Ok(_) => OPAL_SUCCESS,
        Err(message) => {
            recycle(message);
            OPAL_ERR_UNREACH
        }
    }
}

/// Returns a message with memory for `size` bytes.
pub fn take(
    size: usize,
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    flags: u32,
) -> Message {
    if size <= SMALL {
        SMALL_MESSAGES.take(SMALL, module, endpoint, flags)
    } else {
        // SAFETY: Open MPI passes a module of this component, which lives as long as the process.
        let limits = unsafe { &*module };
        let largest = limits.btl_max_send_size.max(limits.btl_eager_limit);
        LARGE_MESSAGES.take(largest.max(size), module, endpoint, flags)
    }
}

unsafe extern "C" fn add_procs(
    module: *mut mca_btl_base_module_t,
    count: usize,
    procs: *mut *mut opal_proc_t,
    endpoints: *mut *mut mca_btl_base_endpoint_t,
    reachable: *mut opal_bitmap_t,
) -> c_int {
    let Some(number) = driver::number(module) else {
        return OPAL_ERR_NOT_AVAILABLE;
    };
    let find = |peer: Peer| match peer {
        Peer::Own => None,
        Peer::Other(name, fetch) => driver::reach(name, number, fetch),
    };
    // SAFETY: Open MPI has passed these arguments, as `add` asks.
    unsafe { add(count, procs, endpoints, reachable, find) };
    OPAL_SUCCESS
}

/// A process for which Open MPI wants an endpoint.
pub enum Peer<'a> {
    /// This process.
    Own,
    /// The process of this name. The function fetches its encoded cards.
    Other(Name, &'a dyn Fn() -> Vec<u8>),
}

/// Stores the endpoints that `find` returns for processes.
///
/// # Safety
///
/// `procs` and `endpoints` must be arrays of `count` elements, the elements of `procs` processes
/// that live during the call, and `reachable` a bitmap of `count` bits or null.
pub unsafe fn add(
    count: usize,
    procs: *mut *mut opal_proc_t,
    endpoints: *mut *mut mca_btl_base_endpoint_t,
    reachable: *mut opal_bitmap_t,
    find: impl Fn(Peer) -> Option<*mut mca_btl_base_endpoint_t>,
) {
    // SAFETY: `opal_proc_local_get` takes no arguments.
    let own = unsafe { opal_proc_local_get() };
    for place in 0..count {
        // SAFETY: the caller passes arrays of `count` elements.
        let (proc, endpoint) = unsafe { (*procs.add(place), endpoints.add(place)) };
        let found = if proc == own {
            find(Peer::Own)
        } else {
            // SAFETY: the caller passes processes that live during the call.
            let peer = unsafe { (*proc).proc_name };
            let name = Name {
                job: peer.jobid,
                rank: peer.vpid,
            };
            find(Peer::Other(name, &|| fetch(&peer)))
        };
        if let Some(found) = found {
            // SAFETY: `endpoint` points to an element of the caller's array.
            unsafe { *endpoint = found };
            if !reachable.is_null() {
                // SAFETY: the caller passes a bitmap of `count` bits, or null.
                unsafe { opal_bitmap_set_bit(reachable, place as c_int) };
            }
        }
    }
}

/// Returns the peer's encoded cards; empty if the peer does not use this component.
fn fetch(peer: &opal_process_name_t) -> Vec<u8> {
    let mut data: *mut c_void = ptr::null_mut();
    let mut length = 0;
    // SAFETY: the component is static. The call stores the address and the number of bytes that it
    // allocated with malloc(3). After the call, this process owns these bytes.
    let result = unsafe {
        let component = &raw const crate::component::mca_btl_esp_component.btl_version;
        enet_modex_receive(component, peer, &mut data, &mut length)
    };
    if result != OPAL_SUCCESS || data.is_null() {
        return Vec::new();
    }
    // SAFETY: the call succeeded, so there are `length` bytes, and nothing else refers to them.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec();
    // SAFETY: this process owns the bytes, and they are not used again.
    unsafe { libc::free(data) };
    bytes
}

/// Does nothing: the connections stay open until the end, because other communicators may use them.
unsafe extern "C" fn del_procs(
    _module: *mut mca_btl_base_module_t,
    _count: usize,
    _procs: *mut *mut opal_proc_t,
    _endpoints: *mut *mut mca_btl_base_endpoint_t,
) -> c_int {
    OPAL_SUCCESS
}

/// Closes the connections of all modules at the first call. The modules stay allocated, because
/// they are few and callbacks refer to them.
unsafe extern "C" fn finalize(_module: *mut mca_btl_base_module_t) -> c_int {
    driver::close();
    OPAL_SUCCESS
}

unsafe extern "C" fn register_error(
    _module: *mut mca_btl_base_module_t,
    callback: mca_btl_base_module_error_cb_fn_t,
) -> c_int {
    driver::set_error_callback(callback);
    OPAL_SUCCESS
}

unsafe extern "C" fn alloc(
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    _order: u8,
    size: usize,
    flags: u32,
) -> *mut mca_btl_base_descriptor_t {
    let mut message = take(size, module, endpoint, flags);
    message.set_length(size);
    message.into_descriptor()
}

unsafe extern "C" fn free(
    _module: *mut mca_btl_base_module_t,
    descriptor: *mut mca_btl_base_descriptor_t,
) -> c_int {
    // SAFETY: Open MPI passes a descriptor of this component, and does not use the descriptor
    // again.
    recycle(unsafe { Message::from_descriptor(descriptor) });
    OPAL_SUCCESS
}

/// Packs the data that `convertor` describes into `space`. If `space` is `None`, finds the data in
/// the program's memory instead. Returns the address and the length of the data.
///
/// # Safety
///
/// `convertor` must be prepared for sending, and no other thread may use it during the call.
unsafe fn pack(
    convertor: *mut opal_convertor_t,
    space: Option<&mut [u8]>,
    length: usize,
) -> Option<(*mut c_void, usize)> {
    let mut packed = length;
    let mut count = 1;
    let mut vector = iovec {
        iov_base: space.map_or(ptr::null_mut(), |space| {
            assert!(space.len() >= length, "no room to pack into");
            space.as_mut_ptr().cast()
        }),
        iov_len: length,
    };
    // SAFETY: the caller prepared the convertor and does not share it. `vector` is a single
    // element. It points to room for `length` bytes, or it is null and the convertor stores the
    // address of its bytes there.
    let result = unsafe { opal_convertor_pack(convertor, &mut vector, &mut count, &mut packed) };
    (result >= 0).then_some((vector.iov_base, packed))
}

unsafe extern "C" fn prepare_src(
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    convertor: *mut opal_convertor_t,
    _order: u8,
    reserve: usize,
    size: *mut usize,
    flags: u32,
) -> *mut mca_btl_base_descriptor_t {
    // SAFETY: Open MPI passes a module of this component and a pointer to the size.
    let (largest, wanted) = unsafe { ((*module).btl_max_send_size, *size) };
    let wanted = wanted.min(largest.saturating_sub(reserve));
    // SAFETY: Open MPI passes a convertor that is prepared for sending.
    let needs_buffers = unsafe { enet_needs_buffers(convertor) } != 0;
    let copied = if needs_buffers { wanted } else { 0 };
    let mut message = take(reserve + copied, module, endpoint, flags);
    let packed = if needs_buffers {
        let space = &mut message.memory()[reserve..];
        // SAFETY: Open MPI prepared the convertor, and only this thread uses it during the call.
        unsafe { pack(convertor, Some(space), wanted) }
    } else {
        // SAFETY: Open MPI prepared the convertor, and only this thread uses it during the call.
        unsafe { pack(convertor, None, wanted) }
    };
    let Some((place, packed)) = packed else {
        recycle(message);
        return ptr::null_mut();
    };
    if needs_buffers {
        message.set_length(reserve + packed);
    } else {
        message.set_length(reserve);
        message.set_outside(place, packed);
    }
    // SAFETY: Open MPI passes a pointer to the size.
    unsafe { *size = packed };
    message.into_descriptor()
}

unsafe extern "C" fn send(
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    descriptor: *mut mca_btl_base_descriptor_t,
    tag: mca_btl_base_tag_t,
) -> c_int {
    // SAFETY: Open MPI sends descriptors of this component, and does not touch them until they
    // complete.
    let mut message = unsafe { Message::from_descriptor(descriptor) };
    message.set_way(module, endpoint);
    match by_link(endpoint, message, |link, message| {
        driver::send(link, tag, message)
    }) {
        Ok(left) => c_int::from(left),
        Err(message) => {
            // The message was not sent, so the descriptor stays with Open MPI.
            message.into_descriptor();
            OPAL_ERR_UNREACH
        }
    }
}

/// Writes into memory that a peer has registered.
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
    // SAFETY: Open MPI passes a bytewise copy of the peer's handle.
    let Some(remote) = (unsafe { Registration::of_peer(remote_handle) }) else {
        return OPAL_ERR_NOT_AVAILABLE;
    };
    let target = remote.target(remote_address, size);
    let flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
    let mut message = take(TARGET, module, endpoint, flags);
    let completion = Completion {
        callback,
        address,
        wanted: Wanted::Nothing,
        handle,
        context,
        data,
    };
    message.set_put(&target, completion);
    accepted(by_link(endpoint, message, driver::put))
}

/// Sends copies of a header and of data, so that the caller may change the originals as soon as the
/// call returns. If the message would have to wait, allocates a descriptor for it instead. Open MPI
/// then sends it by [`send`] and waits for its completion, which lets the component make progress.
unsafe extern "C" fn sendi(
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    convertor: *mut opal_convertor_t,
    header: *mut c_void,
    header_size: usize,
    payload_size: usize,
    order: u8,
    flags: u32,
    tag: mca_btl_base_tag_t,
    descriptor: *mut *mut mca_btl_base_descriptor_t,
) -> c_int {
    if !descriptor.is_null() {
        // SAFETY: `descriptor` points to a variable of Open MPI, which reads it if the message
        // could not be sent.
        unsafe { *descriptor = ptr::null_mut() };
    }
    let own = (flags | MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) & !MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    let size = header_size + payload_size;
    let mut message = take(size, module, endpoint, own);
    let memory = message.memory();
    // SAFETY: Open MPI passes `header_size` bytes of header, and the message's memory has room for
    // them.
    unsafe { ptr::copy_nonoverlapping(header.cast(), memory.as_mut_ptr(), header_size) };
    let mut packed = 0;
    if payload_size > 0 {
        let space = Some(&mut memory[header_size..]);
        // SAFETY: Open MPI passes a convertor that is prepared for sending if there is a payload.
        match unsafe { pack(convertor, space, payload_size) } {
            Some((_, length)) => packed = length,
            None => {
                recycle(message);
                return OPAL_ERR_OUT_OF_RESOURCE;
            }
        }
    }
    message.set_length(header_size + packed);
    match by_link(endpoint, message, |link, message| {
        driver::send_now(link, tag, message)
    }) {
        Ok(_) => OPAL_SUCCESS,
        Err(message) => {
            recycle(message);
            if !descriptor.is_null() {
                // SAFETY: `alloc` gets the arguments that Open MPI has passed. `descriptor` points
                // to a variable of Open MPI's.
                unsafe { *descriptor = alloc(module, endpoint, order, size, flags) };
            }
            OPAL_ERR_OUT_OF_RESOURCE
        }
    }
}
