// SPDX-License-Identifier: MIT OR Apache-2.0

//! Outgoing messages. Open MPI and the engine pass the messages' descriptors to each other. Pools
//! keep the memory of finished messages for reuse.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Mutex;

use crate::ffi::{
    mca_btl_base_descriptor_t, mca_btl_base_descriptor_t_class, mca_btl_base_endpoint_t,
    mca_btl_base_module_t, mca_btl_base_rdma_completion_fn_t, mca_btl_base_registration_handle_t,
    mca_btl_base_segment_t, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP, MCA_BTL_DES_SEND_ALWAYS_CALLBACK,
    MCA_BTL_NO_ORDER,
};
use crate::link::Payload;
use crate::wire::{Target, Width};

/// Maximum number of free fragments of one size that are kept for reuse.
const KEPT: usize = 256;

/// Maximum number of segments of a fragment: Open MPI's header with or without data, then data in
/// the program's memory.
const SEGMENTS: usize = 2;

/// A descriptor with its memory. Open MPI sees only the descriptor, which comes first.
#[repr(C)]
struct Fragment {
    descriptor: mca_btl_base_descriptor_t,
    segments: [mca_btl_base_segment_t; SEGMENTS],
    module: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    /// If the message is a put, a read or an atomic operation: the callback for its completion.
    completion: Option<Completion>,
    /// The memory, in units of eight bytes, so that headers are aligned.
    memory: Box<[u64]>,
}

/// The data that a reply brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// There is none, or Open MPI does not want it.
    Nothing,
    /// The bytes of the peer's memory.
    Bytes,
    /// The old value of a number of this width.
    Number(Width),
}

/// The callback for the completion of a put, a read or an atomic operation, with its arguments.
#[derive(Debug)]
pub struct Completion {
    /// The function of Open MPI to call.
    pub callback: mca_btl_base_rdma_completion_fn_t,
    /// The address of the data, or the place for the data of the reply.
    pub address: *mut c_void,
    /// The data of the reply that goes to `address`.
    pub wanted: Wanted,
    /// The registration of the data.
    pub handle: *mut mca_btl_base_registration_handle_t,
    /// A pointer of Open MPI's that is passed to the function unchanged.
    pub context: *mut c_void,
    /// A second pointer of Open MPI's that is passed to the function unchanged.
    pub data: *mut c_void,
}

/// A handle that owns a fragment exclusively.
#[derive(Debug)]
pub struct Message(NonNull<Fragment>);

// SAFETY: a message is the only handle of its fragment, and neither Open MPI nor this crate ties
// fragments to threads.
unsafe impl Send for Message {}

/// Free fragments of one size.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Vec<Message>>,
}

impl Pool {
    /// Returns an empty pool.
    pub const fn new() -> Self {
        Self {
            free: Mutex::new(Vec::new()),
        }
    }

    /// Returns a message with memory for `size` bytes. The first segment is empty and at the start
    /// of the memory.
    pub fn take(
        &self,
        size: usize,
        module: *mut mca_btl_base_module_t,
        endpoint: *mut mca_btl_base_endpoint_t,
        flags: u32,
    ) -> Message {
        let found = self.free.lock().expect("panics abort").pop();
        let mut message = match found {
            Some(message) if message.size() >= size => message,
            Some(small) => {
                small.destroy();
                Message::new(size)
            }
            None => Message::new(size),
        };
        let fragment = message.fragment_mut();
        let start = fragment.memory.as_mut_ptr();
        fragment.segments[0].seg_addr.pval = start.cast();
        fragment.segments[0].seg_len = 0;
        fragment.descriptor.des_segments = fragment.segments.as_mut_ptr();
        fragment.descriptor.des_segment_count = 1;
        fragment.descriptor.des_cbfunc = None;
        fragment.descriptor.des_flags = flags;
        fragment.descriptor.order = MCA_BTL_NO_ORDER as u8;
        fragment.module = module;
        fragment.endpoint = endpoint;
        fragment.completion = None;
        message
    }

    /// Gives a message back to the pool.
    pub fn give(&self, message: Message) {
        let mut free = self.free.lock().expect("panics abort");
        if free.len() < KEPT {
            free.push(message);
        } else {
            message.destroy();
        }
    }
}

impl Message {
    fn new(size: usize) -> Self {
        let memory = vec![0; size.div_ceil(size_of::<u64>())].into_boxed_slice();
        // SAFETY: a descriptor and segments are plain C data, for which all-zero bytes are a valid
        // value: null pointers, no callback, zero counts.
        let (mut descriptor, segments): (mca_btl_base_descriptor_t, _) =
            unsafe { std::mem::zeroed() };
        let object = &mut descriptor.super_.super_.super_;
        object.obj_class = &raw mut mca_btl_base_descriptor_t_class;
        object.obj_reference_count = 1;
        let fragment = Box::new(Fragment {
            descriptor,
            segments,
            module: ptr::null_mut(),
            endpoint: ptr::null_mut(),
            completion: None,
            memory,
        });
        Self(NonNull::from(Box::leak(fragment)))
    }

    fn destroy(self) {
        // SAFETY: `new` leaked the box, and this was its only handle.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }

    fn fragment(&self) -> &Fragment {
        // SAFETY: the fragment lives until `destroy`, which takes the message. Open MPI changes the
        // fragment only while it has the descriptor, and no `Message` exists during that time.
        unsafe { self.0.as_ref() }
    }

    fn fragment_mut(&mut self) -> &mut Fragment {
        // SAFETY: the fragment lives until `destroy`, and the message is borrowed for as long as
        // the reference lives.
        unsafe { self.0.as_mut() }
    }

    /// Returns the size of the message's memory in bytes.
    pub fn size(&self) -> usize {
        size_of_val(&*self.fragment().memory)
    }

    /// Returns the message's memory.
    pub fn memory(&mut self) -> &mut [u8] {
        let memory = &mut self.fragment_mut().memory;
        let length = size_of_val(&**memory);
        // SAFETY: the slice covers the initialised memory of the box, and borrows it. Every bit
        // pattern that is written to the slice is a valid `u64`.
        unsafe { slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), length) }
    }

    /// Sets how many bytes of the message's memory are sent.
    pub fn set_length(&mut self, length: usize) {
        assert!(length <= self.size(), "longer than its memory");
        self.fragment_mut().segments[0].seg_len = length as u64;
    }

    /// Adds a segment in the program's memory, which Open MPI keeps unchanged until the message
    /// completes.
    pub fn set_outside(&mut self, start: *mut c_void, length: usize) {
        let fragment = self.fragment_mut();
        fragment.segments[1].seg_addr.pval = start;
        fragment.segments[1].seg_len = length as u64;
        fragment.descriptor.des_segment_count = 2;
    }

    /// Makes the message a put into `target`. The data of the put is in the program's memory, which
    /// Open MPI keeps unchanged until the completion callback.
    pub fn set_put(&mut self, target: &Target, completion: Completion) {
        let bytes = target.encode();
        self.memory()[..bytes.len()].copy_from_slice(&bytes);
        self.set_length(bytes.len());
        self.set_outside(completion.address, target.length as usize);
        self.fragment_mut().completion = Some(completion);
    }

    /// Makes the message a write of `length` bytes, whose target is not a part of the message.
    pub fn set_write(&mut self, length: usize, completion: Completion) {
        self.set_outside(completion.address, length);
        self.set_call(completion);
    }

    /// Makes the message a call without data: a read or an atomic operation.
    pub fn set_call(&mut self, completion: Completion) {
        self.fragment_mut().completion = Some(completion);
    }

    /// Stores the data of a reply where Open MPI wants it. The reply to a read has as many bytes as
    /// Open MPI asked for, and the reply to an atomic operation has eight.
    pub fn store(&mut self, data: &[u8]) {
        let Some(completion) = &self.fragment().completion else {
            return;
        };
        let number = |data: &[u8]| {
            data.first_chunk()
                .map_or(0, |data| u64::from_le_bytes(*data))
        };
        let place = completion.address.cast::<u8>();
        let put = |data: &[u8]| {
            // SAFETY: Open MPI passed the address of as many bytes as it asked for, and uses them
            // only after the completion callback.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), place, data.len()) }
        };
        match completion.wanted {
            Wanted::Nothing => {}
            Wanted::Bytes => put(data),
            Wanted::Number(Width::Four) => put(&(number(data) as u32).to_ne_bytes()),
            Wanted::Number(Width::Eight) => put(&number(data).to_ne_bytes()),
        }
    }

    /// Passes the message to Open MPI.
    pub fn into_descriptor(self) -> *mut mca_btl_base_descriptor_t {
        self.0.as_ptr().cast()
    }

    /// Takes the message back from Open MPI.
    ///
    /// # Safety
    ///
    /// `descriptor` must come from [`Message::into_descriptor`], and Open MPI must not use the
    /// descriptor until it is handed out again.
    pub unsafe fn from_descriptor(descriptor: *mut mca_btl_base_descriptor_t) -> Self {
        Self(NonNull::new(descriptor.cast()).expect("Open MPI hands out descriptors of its own"))
    }

    /// Returns whether Open MPI wants a callback even if the message is sent at once.
    pub fn wants_callback(&self) -> bool {
        self.fragment().descriptor.des_flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK != 0
    }

    /// Sets or clears the flag with which Open MPI asks for a callback even if the message is sent
    /// at once.
    pub fn set_callback(&mut self, wanted: bool) {
        let flags = &mut self.fragment_mut().descriptor.des_flags;
        if wanted {
            *flags |= MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
        } else {
            *flags &= !MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
        }
    }

    /// Sets the module and the endpoint through which the message is sent. The completion callback
    /// gets both as arguments.
    pub fn set_way(
        &mut self,
        module: *mut mca_btl_base_module_t,
        endpoint: *mut mca_btl_base_endpoint_t,
    ) {
        let fragment = self.fragment_mut();
        fragment.module = module;
        fragment.endpoint = endpoint;
    }

    /// Calls the completion callback, if Open MPI wants it. Returns the message if this component
    /// may reuse it; otherwise Open MPI frees it.
    pub fn finish(mut self, status: i32) -> Option<Self> {
        let completion = self.fragment_mut().completion.take();
        let fragment = self.fragment();
        let flags = fragment.descriptor.des_flags;
        let callback = fragment.descriptor.des_cbfunc;
        let (module, endpoint) = (fragment.module, fragment.endpoint);
        if let Some(completion) = completion {
            if let Some(callback) = completion.callback {
                let (address, handle) = (completion.address, completion.handle);
                // SAFETY: Open MPI passed the callback with these arguments. `module` and
                // `endpoint` belong to the operation.
                unsafe {
                    let (context, data) = (completion.context, completion.data);
                    callback(module, endpoint, address, handle, context, data, status);
                }
            }
            return Some(self);
        }
        let owned = flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP != 0;
        let descriptor = self.into_descriptor();
        if let Some(callback) = callback.filter(|_| flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK != 0) {
            // SAFETY: Open MPI set the callback for this descriptor, and the message was sent by
            // `module` and `endpoint`.
            unsafe { callback(module, endpoint, descriptor, status) };
        }
        // SAFETY: `owned` means that Open MPI leaves the descriptor to this component, and that the
        // callback does not free it.
        owned.then(|| unsafe { Self::from_descriptor(descriptor) })
    }
}

impl Payload for Message {
    fn parts(&self) -> [&[u8]; 2] {
        let descriptor = &self.fragment().descriptor;
        let count = descriptor.des_segment_count;
        assert!(count <= SEGMENTS, "more segments than were made");
        let mut parts: [&[u8]; SEGMENTS] = [&[]; SEGMENTS];
        for (number, part) in parts.iter_mut().enumerate().take(count) {
            // SAFETY: `des_segments` points to the fragment's segments or, if Open MPI replaced
            // them, to as many segments as the descriptor's count says.
            let segment = unsafe { &*descriptor.des_segments.add(number) };
            let length = segment.seg_len as usize;
            if length > 0 {
                // SAFETY: a segment's bytes are in the fragment's memory or in the program's
                // memory, which stays readable and unchanged until the message is finished. Both
                // outlive this borrow of the message.
                *part = unsafe { slice::from_raw_parts(segment.seg_addr.pval.cast(), length) };
            }
        }
        parts
    }
}
