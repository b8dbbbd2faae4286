// SPDX-License-Identifier: GPL-2.0

//! The lists in which a socket keeps its buffers.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{
    bindings,
    skb::{Buffer, Skb},
};
use core::{cell::UnsafeCell, ptr, ptr::NonNull};

/// A place in a [`Queue`] where the next search starts.
///
/// # Invariants
///
/// Null, or a buffer in the one queue that the cursor is used with: buffers leave that queue by
/// [`Queue::pop_before`] only.
pub(crate) struct Cursor(*mut bindings::sk_buff);

// SAFETY: A cursor is used under the lock of its queue's socket.
unsafe impl Send for Cursor {}

impl Cursor {
    /// At the head of the queue.
    pub(crate) const fn new() -> Self {
        Cursor(ptr::null_mut())
    }
}

/// A list of buffers. Its methods do not lock: streams use it under the socket lock.
#[repr(transparent)]
pub(crate) struct Queue(UnsafeCell<bindings::sk_buff_head>);

impl Queue {
    /// Whether nothing is queued. May be asked without a lock.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: `next` of a valid head is read in one load; the head itself means empty.
        unsafe {
            let next = ptr::addr_of!((*self.head()).__bindgen_anon_1.__bindgen_anon_1.next);
            ptr::read_volatile(next) == self.head()
        }
    }

    /// The buffer at the head.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Buffer> {
        // SAFETY: The caller has the queue to itself, so the buffer stays for the borrow.
        unsafe { self.unless_end((*self.head()).__bindgen_anon_1.__bindgen_anon_1.next) }
    }

    /// The buffer at the tail.
    #[inline]
    pub(crate) fn last(&self) -> Option<&Buffer> {
        // SAFETY: As in `first`.
        unsafe { self.unless_end((*self.head()).__bindgen_anon_1.__bindgen_anon_1.prev) }
    }

    /// The buffer behind `skb`, which is in this queue.
    #[inline]
    pub(crate) fn after(&self, skb: &Buffer) -> Option<&Buffer> {
        // SAFETY: As in `first`.
        unsafe { self.unless_end((*skb.as_ptr()).__bindgen_anon_1.__bindgen_anon_1.next) }
    }

    /// The head, which closes the ring of buffers and starts as one of them does.
    #[inline]
    fn head(&self) -> *mut bindings::sk_buff {
        self.0.get().cast()
    }

    /// # Safety
    ///
    /// `skb` is the head, or a buffer that stays in the queue for the borrow.
    #[inline]
    unsafe fn unless_end(&self, skb: *mut bindings::sk_buff) -> Option<&Buffer> {
        // SAFETY: The caller's promise.
        (skb != self.head()).then(|| unsafe { Buffer::from_raw(skb) })
    }

    /// # Safety
    ///
    /// `skb` is null, or stays in the queue for as long as `'a`.
    #[inline]
    unsafe fn borrow<'a>(skb: *mut bindings::sk_buff) -> Option<&'a Buffer> {
        // SAFETY: Null or a buffer that the caller knows to stay.
        NonNull::new(skb).map(|skb| unsafe { Buffer::from_raw(skb.as_ptr()) })
    }

    /// Lends the buffer at the tail for writing; the caller has the queue to itself.
    #[inline]
    pub(crate) fn with_last<R>(&self, f: impl FnOnce(&mut Skb) -> R) -> Option<R> {
        let skb = self.last()?.as_ptr();
        // SAFETY: The queue's reference is lent, not given: `into_raw` below takes it back, and a
        // panic cannot come between, since the module has none.
        let mut skb = unsafe { Skb::from_raw(skb) }?;
        let result = f(&mut skb);
        let _ = skb.into_raw();
        Some(result)
    }

    /// Lends `skb`, which is in this queue, for writing; the caller has the queue to itself.
    #[inline]
    pub(crate) fn with<R>(&self, skb: &Buffer, f: impl FnOnce(&mut Skb) -> R) -> Option<R> {
        // SAFETY: As in `with_last`.
        let mut skb = unsafe { Skb::from_raw(skb.as_ptr()) }?;
        let result = f(&mut skb);
        let _ = skb.into_raw();
        Some(result)
    }

    /// Appends a buffer.
    #[inline]
    pub(crate) fn push(&self, skb: Skb) {
        // SAFETY: The reference goes to the queue; the caller has it to itself.
        unsafe { bindings::skb_queue_tail_unlocked(self.0.get(), skb.into_raw()) };
    }

    /// Puts a buffer behind `place`, which is in this queue, and returns it there.
    pub(crate) fn insert_behind<'a>(&'a self, place: &Buffer, skb: Skb) -> &'a Buffer {
        let raw = skb.into_raw();
        // SAFETY: The reference goes to the queue, where the buffer stays; the caller has the queue
        // to itself, and `place` is in it.
        unsafe {
            bindings::skb_queue_after(self.0.get(), place.as_ptr(), raw);
            Buffer::from_raw(raw)
        }
    }

    /// Takes the buffer at the head.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Skb> {
        // SAFETY: Null, or the queue's reference, which becomes ours.
        unsafe { Skb::from_raw(bindings::skb_dequeue_unlocked(self.0.get())) }
    }

    /// The packet numbered `seq` (as its note says), searched from `cursor` on, which moves there.
    #[inline]
    pub(crate) fn seek(&self, cursor: &mut Cursor, seq: u16) -> Option<&Buffer> {
        // SAFETY: By the cursor's invariant.
        let start = unsafe { Self::borrow(cursor.0) };
        let behind = |skb: &Buffer| (seq.wrapping_sub(skb.note().seq) as i16) < 0;
        let mut next = match start {
            Some(skb) if !behind(skb) => Some(skb),
            _ => self.first(),
        };
        while let Some(skb) = next {
            if skb.note().seq == seq {
                cursor.0 = skb.as_ptr();
                return Some(skb);
            }
            next = self.after(skb);
        }
        None
    }

    /// Takes the buffer at the head of a queue that `cursor` is used with.
    #[inline]
    pub(crate) fn pop_before(&self, cursor: &mut Cursor) -> Option<Skb> {
        let skb = self.pop()?;
        if cursor.0 == skb.as_ptr() {
            *cursor = Cursor::new();
        }
        Some(skb)
    }

    /// Frees everything queued.
    pub(crate) fn purge(&self) {
        while let Some(skb) = self.pop() {
            skb.purge();
        }
    }
}
