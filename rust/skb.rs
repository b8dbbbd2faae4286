// SPDX-License-Identifier: GPL-2.0

//! Socket buffers: an [`Skb`] is owned, a [`Buffer`] is borrowed.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{
    allocation::Context, bindings, device::Mac, message, sock::RawSock, trace::DropReason,
};
use crate::net::errno::prelude::*;
use core::{
    marker::{PhantomData, PhantomPinned},
    mem,
    ops::{Deref, DerefMut},
    ptr,
    ptr::NonNull,
    slice,
};
use kernel::ffi::c_int;

mod alloc;

/// The processor on which a frame's sender runs. The frame records it (`skb->sender_cpu`). Together
/// with the flow's hash, the processor selects the transmit queue of the device, and of each lower
/// device.
#[derive(Clone, Copy)]
pub(crate) struct Processor(u32);

impl Processor {
    /// Returns the processor that runs the caller.
    #[inline]
    pub(crate) fn current() -> Self {
        // SAFETY: The function only reads the processor's number, which may be outdated as soon as
        // it returns.
        Processor(unsafe { bindings::sender_cpu() })
    }
}

/// The words of the control block (`skb->cb`) that a protocol may use.
///
/// The last word of the block belongs to the socket layer (`struct sock_skb_cb`). In a buffer kept
/// for retransmission, the word after `Words` belongs to [timestamps](super::stamps).
pub(crate) type Words = [u64; 2];

const _: () = assert!(mem::size_of::<Words>() <= 40 && mem::align_of::<Words>() <= 8);

/// A value that a protocol stores with a buffer, in the buffer's control block (`skb->cb`).
///
/// The layer below leaves its own bytes in the block of a received buffer, so `from_words` must
/// accept every bit pattern.
pub(crate) trait Note: Copy {
    /// Returns the words to store.
    fn to_words(self) -> Words;
    /// Returns the value that these words represent.
    fn from_words(words: Words) -> Self;
}

/// The type of `skb->tail` and `skb->end`: on 64-bit machines, an offset from `skb->head`.
type Offset = bindings::sk_buff_data_t;

/// An `sk_buff` borrowed from its owner: an [`Skb`] or a queue.
///
/// The type has no size in Rust, because it only marks the address of a C structure. So `mem::swap`
/// and the like move nothing, and a `&mut Buffer` cannot take a buffer out of its queue.
///
/// # Invariants
///
/// A reference is the address of a valid `sk_buff`, which is not freed during the borrow. A `&mut`
/// is the only access to the `sk_buff`; clones may share the data.
#[repr(C)]
pub(crate) struct Buffer {
    _opaque: [u8; 0],
    /// Makes the type neither `Send`, `Sync` nor `Unpin`.
    _marker: PhantomData<(*mut bindings::sk_buff, PhantomPinned)>,
}

impl Buffer {
    /// # Safety
    ///
    /// `skb` is valid, and no one else changes the `sk_buff`, for as long as `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(skb: *mut bindings::sk_buff) -> &'a Buffer {
        // SAFETY: `Buffer` has no size, and the address is aligned and not null.
        unsafe { &*skb.cast() }
    }

    /// # Safety
    ///
    /// `skb` is valid, and no one else uses the `sk_buff`, for as long as `'a`.
    #[inline]
    pub(super) unsafe fn from_raw_mut<'a>(skb: *mut bindings::sk_buff) -> &'a mut Buffer {
        // SAFETY: `Buffer` has no size, and the address is aligned and not null.
        unsafe { &mut *skb.cast() }
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut bindings::sk_buff {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the structure that the buffer shares with its clones.
    #[inline]
    pub(super) fn shared(&self) -> *mut bindings::skb_shared_info {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid. The structure lies at the end
        // of the buffer's memory.
        unsafe {
            (*self.as_ptr())
                .head
                .add((*self.as_ptr()).end as usize)
                .cast()
        }
    }

    /// Returns the length of the data in bytes, linear and paged.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // SAFETY: A borrow of `Buffer` means that the buffer is valid and not being changed.
        unsafe { (*self.as_ptr()).len as usize }
    }

    /// Returns the size of the memory that the buffer takes, in bytes.
    #[inline]
    pub(crate) fn truesize(&self) -> u32 {
        // SAFETY: A borrow of `Buffer` means that the buffer is valid and not being changed.
        unsafe { (*self.as_ptr()).truesize }
    }

    /// Returns the linear part of the data.
    #[inline]
    pub(crate) fn head(&self) -> &[u8] {
        // SAFETY: The `linear_len` bytes from `data` on are the linear part. They were initialised
        // when the buffer was filled, and the borrow keeps them in place.
        unsafe { slice::from_raw_parts((*self.as_ptr()).data, self.linear_len()) }
    }

    /// Returns the length of the linear part, which excludes data in pages, in bytes.
    #[inline]
    fn linear_len(&self) -> usize {
        // SAFETY: A borrow of `Buffer` means that the buffer is valid and not being changed.
        unsafe { (*self.as_ptr()).len.wrapping_sub((*self.as_ptr()).data_len) as usize }
    }

    /// Returns whether the frame was addressed to this host alone.
    #[inline]
    pub(crate) fn is_for_this_host(&self) -> bool {
        // SAFETY: A borrow of `Buffer` means that the buffer is valid and not being changed.
        let kind = unsafe {
            (*self.as_ptr())
                .__bindgen_anon_4
                .headers
                .as_ref()
                .pkt_type()
        };
        u32::from(kind) == bindings::PACKET_HOST
    }

    /// Returns the sender's Ethernet address of a received frame. Returns `None` if no Ethernet
    /// header precedes the data. Even a device that claims to be Ethernet may have frames without
    /// this header, since the owner of a `tun` device may set the device's type.
    #[inline]
    pub(crate) fn source(&self) -> Option<Mac> {
        const UNSET: u16 = !0;
        let skb = self.as_ptr();
        // SAFETY: A borrow of `Buffer` means that the buffer is valid and not being changed.
        let (at, head, data) = unsafe {
            let at = (*skb).__bindgen_anon_4.headers.as_ref().mac_header;
            (at, (*skb).head, (*skb).data)
        };
        let end = usize::from(at).saturating_add(mem::size_of::<bindings::ethhdr>());
        if at == UNSET || end > (data as usize).wrapping_sub(head as usize) {
            return None;
        }
        // SAFETY: By the check above, the header ends where the data start or before, so all of it
        // lies in the buffer's memory. `ethhdr` is a packed structure, so any address is aligned
        // for it.
        unsafe {
            let header: *const bindings::ethhdr = head.add(at.into()).cast();
            Some(Mac((*header).h_source))
        }
    }

    /// Returns the socket that the buffer is charged to, or null.
    #[inline]
    pub(super) fn owner(&self) -> *mut bindings::sock {
        // SAFETY: A borrow of `Buffer` means that the buffer is valid and not being changed.
        unsafe { bindings::skb_owner(self.as_ptr()) }
    }

    /// Returns whether the frame has a receive timestamp.
    pub(crate) fn has_time(&self) -> bool {
        // SAFETY: A borrow of `Buffer` means that the buffer is valid and not being changed. The
        // function only reads the buffer.
        unsafe { bindings::skb_has_time(self.as_ptr()) }
    }

    /// Returns the value that the protocol has stored in the buffer's control block.
    #[inline]
    pub(crate) fn note<N: Note>(&self) -> N {
        // SAFETY: `cb` has 48 bytes and is aligned to 8, and every bit pattern is a valid value of
        // `Words`.
        N::from_words(unsafe { ptr::read((*self.as_ptr()).cb.as_ptr().cast::<Words>()) })
    }

    /// Returns a clone: a second `sk_buff` that refers to the same data.
    #[inline]
    pub(crate) fn try_clone(&self, context: Context) -> Option<Skb> {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid. The function returns null, or
        // a new buffer that is ours.
        unsafe { Skb::from_raw(bindings::skb_clone(self.as_ptr(), context.gfp())) }
    }

    /// Returns a copy with its own data, so that its header may be written.
    pub(crate) fn copy(&self, context: Context) -> Option<Skb> {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid. The function returns null, or
        // a new buffer that is ours.
        unsafe { Skb::from_raw(bindings::skb_copy(self.as_ptr(), context.gfp())) }
    }

    /// Returns whether the buffer has, or had, a clone. Unlike [`is_cloned`](Self::is_cloned), this
    /// never calls the kernel.
    #[inline]
    fn may_be_cloned(&self) -> bool {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid, and no one changes the
        // `sk_buff` during the borrow.
        unsafe { bindings::sk_buff::cloned_raw(self.as_ptr()) != 0 }
    }

    /// Returns whether a clone shares the data. If so, the data must not be written.
    #[inline]
    pub(crate) fn is_cloned(&self) -> bool {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid. `skb_cloned` is only needed if
        // there is or was a clone.
        unsafe { self.may_be_cloned() && bindings::skb_cloned(self.as_ptr()) != 0 }
    }

    /// Fills `to` with the data from `offset` on. Returns `false` if there are too few data.
    pub(crate) fn copy_bits(&self, offset: usize, to: &mut [u8]) -> bool {
        let Some((offset, len)) = self.span(offset, to.len()) else {
            return false;
        };
        // SAFETY: `to` is valid for its length, and the span lies in the buffer's data.
        unsafe { bindings::skb_copy_bits(self.as_ptr(), offset, to.as_mut_ptr().cast(), len) == 0 }
    }

    /// Returns `offset` and `len` as the integers that the kernel's functions take. Returns `None`
    /// unless the whole range is data.
    #[inline]
    pub(super) fn span(&self, offset: usize, len: usize) -> Option<(c_int, c_int)> {
        let end = offset.checked_add(len)?;
        if end > self.len() {
            return None;
        }
        Some((offset.try_into().ok()?, len.try_into().ok()?))
    }

    /// Returns the room after the linear data, in bytes.
    #[inline]
    pub(crate) fn tailroom(&self) -> usize {
        let skb = self.as_ptr();
        // SAFETY: By the invariant of `Buffer`, the buffer is valid. The room behind the linear
        // part does not count if data in pages follow it.
        unsafe {
            if (*skb).data_len == 0 {
                (*skb).end.wrapping_sub((*skb).tail) as usize
            } else {
                0
            }
        }
    }

    /// Returns the room in front of the data, in bytes.
    #[inline]
    pub(crate) fn headroom(&self) -> usize {
        let skb = self.as_ptr();
        // SAFETY: By the invariant of `Buffer`, the buffer is valid, and `data` points into the
        // memory that starts at `head`.
        unsafe { ((*skb).data as usize).wrapping_sub((*skb).head as usize) }
    }

    /// Extends the linear data by the `n` bytes after it.
    ///
    /// # Safety
    ///
    /// The buffer has at least `n` bytes of [`tailroom`](Self::tailroom), and these bytes are
    /// initialised.
    #[inline]
    unsafe fn grow(&mut self, n: usize) {
        let skb = self.as_ptr();
        // SAFETY: The buffer is borrowed exclusively, and the end of its data stays in its memory.
        unsafe {
            (*skb).tail = (*skb).tail.wrapping_add(n as Offset);
            (*skb).len = (*skb).len.wrapping_add(n as u32);
        }
    }

    /// Returns the end of the linear data, where [`tailroom`](Self::tailroom) starts.
    #[inline]
    fn end(&self) -> *mut u8 {
        // SAFETY: The end of the data lies in the buffer's memory.
        unsafe { (*self.as_ptr()).data.add(self.linear_len()) }
    }

    /// Returns whether `n` bytes after the data may be written, that is, whether the tailroom is
    /// large enough and no clone shares it.
    #[inline]
    fn takes(&self, n: usize) -> bool {
        self.tailroom() >= n && !self.is_cloned()
    }

    /// Stores `note` with the buffer.
    #[inline]
    pub(crate) fn set_note<N: Note>(&mut self, note: N) {
        let words = note.to_words();
        // SAFETY: `cb` has 48 bytes and is aligned to 8. The buffer is borrowed exclusively.
        unsafe { ptr::write((*self.as_ptr()).cb.as_mut_ptr().cast::<Words>(), words) }
    }

    /// Makes the first `N` bytes of the data linear, if they are not, and returns them. Returns
    /// `None` if there are fewer than `N` bytes, or if there is no memory.
    #[inline]
    pub(crate) fn header<const N: usize>(&mut self) -> Option<[u8; N]> {
        // SAFETY: The buffer is borrowed exclusively, so its head may be reallocated.
        if self.linear_len() < N && !unsafe { bindings::pskb_may_pull(self.as_ptr(), N as u32) } {
            return None;
        }
        self.head().first_chunk().copied()
    }

    /// Copies the first `n` bytes of data into the linear part, where no sender on this host can
    /// change them. Returns `false` if there is no memory for the copy, or if there are fewer than
    /// `n` bytes.
    pub(crate) fn gather(&mut self, n: usize) -> bool {
        let Ok(n) = u32::try_from(n) else {
            return false;
        };
        // SAFETY: The buffer is borrowed exclusively, so its head may be reallocated. The function
        // fails if the buffer has fewer than `n` bytes.
        unsafe { bindings::pskb_may_pull(self.as_ptr(), n) }
    }

    /// Advances the start of the data by `n` bytes. Does nothing if fewer than `n` bytes are
    /// linear. The bytes of a header that [`Self::header`] returned are always linear.
    #[inline]
    pub(crate) fn pull(&mut self, n: usize) {
        let skb = self.as_ptr();
        if n <= self.linear_len() {
            // SAFETY: By the check above, at least `n` bytes are in the linear part. The buffer is
            // borrowed exclusively.
            unsafe {
                (*skb).len = (*skb).len.wrapping_sub(n as u32);
                (*skb).data = (*skb).data.add(n);
            }
        }
    }

    /// Truncates the data to `len` bytes. If a clone shares the data, they are copied first.
    /// Returns `false` if there is no memory for this copy.
    #[inline]
    pub(crate) fn trim(&mut self, len: usize) -> bool {
        // SAFETY: The buffer is borrowed exclusively. The function copies data that a clone shares.
        len >= self.len() || unsafe { bindings::pskb_trim_rcsum(self.as_ptr(), len as u32) == 0 }
    }

    /// Prepends `bytes` to the data. Returns `false` if the headroom is too short, or if a clone
    /// may use it.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let skb = self.as_ptr();
        // SAFETY: By the invariant of `Buffer`, the buffer is valid.
        let shared = unsafe {
            bindings::sk_buff::nohdr_raw(skb) != 0
                || self.may_be_cloned() && bindings::skb_header_cloned(skb) != 0
        };
        if shared || self.headroom() < bytes.len() {
            return false;
        }
        // SAFETY: The headroom has room for `bytes`, and no clone may use it: both were checked
        // above.
        unsafe { self.prepend(bytes) };
        true
    }

    /// Prepends `bytes` to the data.
    ///
    /// # Safety
    ///
    /// The [`headroom`](Self::headroom) has room for `bytes`, and no clone may use it.
    #[inline]
    pub(super) unsafe fn prepend(&mut self, bytes: &[u8]) {
        let skb = self.as_ptr();
        // SAFETY: By the caller's promise, at least `bytes.len()` bytes of the buffer's memory
        // precede the data, and these bytes are exclusively ours.
        unsafe {
            let to = (*skb).data.sub(bytes.len());
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            (*skb).data = to;
            (*skb).len = (*skb).len.wrapping_add(bytes.len() as u32);
        }
    }

    /// Returns a clone with `header` in front of the same data. If an earlier clone may use the
    /// headroom, returns a copy instead. Returns `None` if there is no memory, or if the headroom
    /// is too short. Also returns `None` if a clone is needed and this buffer has not given up the
    /// right to its headroom (`nohdr`).
    #[inline]
    pub(crate) fn with_header(&self, header: &[u8], context: Context) -> Option<Skb> {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid.
        let yields = unsafe { bindings::sk_buff::nohdr_raw(self.as_ptr()) != 0 };
        if self.is_cloned() {
            let mut copy = self.copy(context)?;
            return copy.push(header).then_some(copy);
        }
        if !yields || self.headroom() < header.len() {
            return None;
        }
        let mut clone = self.try_clone(context)?;
        // SAFETY: The headroom has room for `header`, and there was no earlier clone: both were
        // checked above. This buffer has given up the right to the headroom, so it does not write
        // there.
        unsafe { clone.prepend(header) };
        Some(clone)
    }

    /// Appends `bytes` to the linear data. Returns `false` if the tailroom is too short, or if a
    /// clone shares the tailroom.
    // Inlined, so that writing a header takes a few stores and not a call.
    #[inline(always)]
    pub(crate) fn put(&mut self, bytes: &[u8]) -> bool {
        if !self.takes(bytes.len()) {
            return false;
        }
        // SAFETY: The tailroom has room for `bytes`, and no clone shares it: `takes` has checked
        // both.
        unsafe { self.extend(bytes) };
        true
    }

    /// Appends `bytes` to the linear data.
    ///
    /// # Safety
    ///
    /// The [`tailroom`](Self::tailroom) has room for `bytes`, and no clone uses it.
    #[inline(always)]
    pub(super) unsafe fn extend(&mut self, bytes: &[u8]) {
        // SAFETY: By the caller's promise, the tailroom has room for `bytes`, and no clone uses it.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.end(), bytes.len());
            self.grow(bytes.len());
        }
    }

    /// Appends `len` bytes of `from`, from `offset` on. Returns `false` if `from` has fewer bytes,
    /// or if this buffer has too little tailroom or shares its data with a clone.
    pub(crate) fn put_copy(&mut self, from: &Buffer, offset: usize, len: usize) -> bool {
        let Some((start, count)) = from.span(offset, len).filter(|_| self.takes(len)) else {
            return false;
        };
        // SAFETY: `takes` has checked the tailroom, which no one else uses. The span lies in the
        // data of `from`. The bytes become data of this buffer only after all of them are written.
        unsafe {
            if bindings::skb_copy_bits(from.as_ptr(), start, self.end().cast(), count) != 0 {
                return false;
            }
            self.grow(len);
        }
        true
    }

    /// Appends the next `len` bytes of the message of a send call.
    ///
    /// # Errors
    ///
    /// `EFAULT` if not all `len` bytes could be read; the buffer and the message are then
    /// unchanged. `ENOBUFS` if the tailroom is too short, or if a clone shares it.
    #[inline]
    pub(crate) fn put_from(&mut self, msg: &mut message::Message<'_>, len: usize) -> Result {
        if !self.takes(len) {
            return Err(ENOBUFS);
        }
        let mut short = mem::MaybeUninit::<[u8; message::SHORT]>::uninit();
        let by_way = len <= message::SHORT;
        let to: *mut u8 = if by_way {
            short.as_mut_ptr().cast()
        } else {
            self.end()
        };
        // SAFETY: `to` has room for `len` bytes: `takes` has checked the tailroom, which no one
        // else uses, and a short message fits into the array. If `copy_from_iter_full` fails, it
        // leaves the iterator unchanged, and nothing is appended.
        unsafe {
            if !bindings::copy_from_iter_full(to.cast(), len, msg.iter()) {
                return Err(EFAULT);
            }
            if by_way {
                ptr::copy_nonoverlapping(to, self.end(), len);
            }
            self.grow(len);
        }
        Ok(())
    }

    /// Clears the device through which the frame came. The device may be removed while the buffer
    /// is queued.
    #[inline]
    pub(crate) fn forget_device(&mut self) {
        // SAFETY: The buffer is borrowed exclusively. Lists link buffers by other fields.
        unsafe {
            (*self.as_ptr())
                .__bindgen_anon_1
                .__bindgen_anon_1
                .__bindgen_anon_1
                .dev = ptr::null_mut();
        }
    }

    /// Gives a frame of `sock` the priority, the mark and the send time in a send call's `cookie`.
    #[inline]
    pub(crate) fn set_cookie(&mut self, sock: &RawSock, cookie: &message::Cookie) {
        // SAFETY: The buffer is borrowed exclusively, and the socket and the cookie are valid for
        // the borrows.
        unsafe { bindings::skb_set_cookie(self.as_ptr(), sock.as_ptr(), cookie.as_ptr()) };
    }

    /// Gives a frame the priority, mark and flow hash of `sock`, and records the sender's
    /// processor.
    #[inline]
    pub(crate) fn set_class(&mut self, sock: &RawSock, sender: Processor) {
        // SAFETY: The buffer is borrowed exclusively, and the socket is valid for the borrow. Three
        // fields of the socket are read without its lock, as in the rest of the stack.
        unsafe { bindings::skb_set_class(self.as_ptr(), sock.as_ptr(), sender.0) };
    }

    /// Provides at least `headroom` bytes in front of the data. Only this `sk_buff`, and no clone,
    /// may write to them. Returns `false` if there is no memory.
    #[cold]
    pub(super) fn make_headroom(&mut self, headroom: usize) -> bool {
        u32::try_from(headroom).is_ok_and(|headroom| {
            // SAFETY: The buffer is borrowed exclusively, so its head may be replaced by a larger
            // one.
            unsafe { bindings::skb_cow_head(self.as_ptr(), headroom) == 0 }
        })
    }
}

/// An owned socket buffer. Dropping the value frees the buffer as a dropped packet without a stated
/// reason, which suits buffers made useless by an error. [`Self::refuse`] and [`Self::purge`] state
/// a reason, which tools that monitor drops can show. [`Self::consume`] does not count as a drop.
///
/// # Invariants
///
/// The pointer is a valid `sk_buff` of which this value holds one reference. No one else changes
/// the `sk_buff`, and it is not charged to a socket's receive memory.
pub(crate) struct Skb(NonNull<bindings::sk_buff>);

// SAFETY: A buffer is not tied to the CPU or task that allocated it.
unsafe impl Send for Skb {}

impl Skb {
    /// Takes over a reference. Returns `None` for a null pointer.
    ///
    /// # Safety
    ///
    /// `skb` is null, or a valid buffer that fulfils the type's invariant. The caller gives one
    /// reference to the buffer away.
    #[inline]
    pub(super) unsafe fn from_raw(skb: *mut bindings::sk_buff) -> Option<Self> {
        NonNull::new(skb).map(Skb)
    }

    /// Gives the reference away.
    #[inline]
    pub(super) fn into_raw(self) -> *mut bindings::sk_buff {
        let skb = self.0.as_ptr();
        mem::forget(self);
        skb
    }

    /// Advances the start of an empty buffer's data by `n` bytes.
    ///
    /// # Safety
    ///
    /// The buffer has no data, and at least `n` bytes of room.
    #[inline]
    pub(super) unsafe fn reserve(&self, n: usize) {
        let skb = self.as_ptr();
        // SAFETY: The buffer is ours. By the caller's promise, the start and the end of its data
        // stay in its memory.
        unsafe {
            (*skb).data = (*skb).data.add(n);
            (*skb).tail = (*skb).tail.wrapping_add(n as Offset);
        }
    }

    /// Clears the state that a clone has left, if the buffer is *plain*. Apart from its bytes, a
    /// plain buffer is in the same state as a new buffer from [`Self::alloc`]. That is, its bytes
    /// are not shared and are all linear, and no socket, route or device has attached anything to
    /// the buffer. Returns `false` if it is not plain.
    #[inline]
    pub(super) fn renew_plain(&mut self) -> bool {
        // SAFETY: The buffer is ours. The helper changes it only if there is no clone or other
        // reference.
        unsafe { bindings::skb_renew_plain(self.as_ptr()) }
    }

    /// Returns how many bytes the buffer has for headers and linear data.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid. `end` is the distance of the
        // memory's end from `head`.
        unsafe { (*self.as_ptr()).end as usize }
    }

    /// Discards the data, so that new data start after `headroom` bytes.
    ///
    /// # Safety
    ///
    /// The buffer [is plain](Self::renew_plain), and its [`capacity`](Self::capacity) is at least
    /// `headroom`.
    #[inline]
    pub(super) unsafe fn clear(&self, headroom: usize) {
        let skb = self.as_ptr();
        // SAFETY: The buffer is ours. By the caller's promise, the start and the end of its data
        // stay in its memory.
        unsafe {
            (*skb).data = (*skb).head.add(headroom);
            (*skb).tail = headroom as Offset;
            (*skb).len = 0;
        }
    }

    /// Gives up the right to the headroom, so that a clone may write headers there. Does nothing if
    /// there already is a clone.
    #[inline]
    pub(crate) fn release_header(&mut self) {
        if !self.is_cloned() {
            // SAFETY: The buffer is ours, and no clone shares its data.
            unsafe { bindings::skb_header_release(self.as_ptr()) };
        }
    }

    /// Returns the buffer with the receive timestamp of `from`.
    #[must_use]
    pub(crate) fn with_time_of(self, from: &Buffer) -> Self {
        // SAFETY: Both buffers are valid, and this one is owned.
        unsafe { bindings::skb_copy_time(self.as_ptr(), from.as_ptr()) };
        self
    }

    /// Frees the buffer as consumed, not as dropped.
    #[inline]
    pub(crate) fn consume(self) {
        // SAFETY: The function takes over our reference.
        unsafe { bindings::consume_skb(self.into_raw()) };
    }

    /// Frees the buffer as dropped for `reason`, by `sock` if the buffer had reached a socket.
    pub(crate) fn refuse(self, sock: Option<&RawSock>, reason: DropReason) {
        let sock = sock.map_or(ptr::null_mut(), RawSock::as_ptr);
        // SAFETY: The function takes over our reference. The socket is null or valid.
        unsafe { bindings::sk_skb_reason_drop(sock, self.into_raw(), reason.of_skb()) };
    }

    /// Frees the buffer as left over in a queue that is being destroyed.
    pub(crate) fn purge(self) {
        // SAFETY: The function takes over our reference.
        unsafe {
            bindings::sk_skb_reason_drop(
                ptr::null_mut(),
                self.into_raw(),
                bindings::skb_drop_reason_SKB_DROP_REASON_QUEUE_PURGE,
            );
        }
    }
}

impl Deref for Skb {
    type Target = Buffer;

    #[inline]
    fn deref(&self) -> &Buffer {
        // SAFETY: By the invariant of `Skb`, the buffer is valid.
        unsafe { Buffer::from_raw(self.0.as_ptr()) }
    }
}

impl DerefMut for Skb {
    #[inline]
    fn deref_mut(&mut self) -> &mut Buffer {
        // SAFETY: By the invariant of `Skb`, the buffer is valid, and no one else changes the
        // `sk_buff`.
        unsafe { Buffer::from_raw_mut(self.0.as_ptr()) }
    }
}

impl Drop for Skb {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: The function takes over the reference that the value held.
        unsafe { bindings::kfree_skb(self.0.as_ptr()) };
    }
}
