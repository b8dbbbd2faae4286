// SPDX-License-Identifier: GPL-2.0

//! A queue of buffers ordered by sequence number, such as a stream's retransmission queue.
//!
//! The queue owns its buffers and links them by their own fields, so it allocates nothing and may
//! be moved. The queue needs no lock, because methods that change it borrow it exclusively.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{
    bindings,
    skb::{Buffer, Note, Skb},
};
use core::{marker::PhantomData, ptr};

/// A value that is stored in each buffer of a [`SeqQueue`], and that holds the buffer's sequence
/// numbers.
pub(crate) trait Sequenced: Note {
    /// Returns the buffer's first number. Numbers grow from the head of the queue to its tail,
    /// modulo 2^16.
    fn number(&self) -> u16;
    /// Returns how many numbers the buffer covers.
    fn count(&self) -> u16;
}

/// A queue of buffers, each of which carries a value of type `N`. The queue also stores the
/// position `place` where the last search ended.
///
/// # Invariants
///
/// `first` is null or the first of a list of buffers. The field `next` of each buffer points to the
/// buffer behind it, and is null in `last`. The queue holds the only reference to each buffer.
/// `last` is null if `first` is, and `place` is null or one of the buffers.
pub(crate) struct SeqQueue<N: Sequenced> {
    first: *mut bindings::sk_buff,
    last: *mut bindings::sk_buff,
    place: *mut bindings::sk_buff,
    _notes: PhantomData<N>,
}

// SAFETY: A buffer is not tied to the CPU or task that allocated it, and the queue owns its
// buffers.
unsafe impl<N: Sequenced> Send for SeqQueue<N> {}

/// Returns the link to the buffer after `skb`.
///
/// # Safety
///
/// `skb` is a valid buffer that belongs to a queue borrowed exclusively, or only to the caller.
#[inline]
unsafe fn next_mut<'a>(skb: *mut bindings::sk_buff) -> &'a mut *mut bindings::sk_buff {
    // SAFETY: By the caller's promise, `skb` is valid and belongs to an exclusively borrowed queue,
    // or only to the caller.
    unsafe { &mut (*skb).__bindgen_anon_1.__bindgen_anon_1.next }
}

/// Returns the buffer after `skb`, or null.
///
/// # Safety
///
/// `skb` is a buffer of a queue that is borrowed.
#[inline]
unsafe fn next(skb: *mut bindings::sk_buff) -> *mut bindings::sk_buff {
    // SAFETY: By the caller's promise, `skb` is a buffer of a borrowed queue.
    unsafe { (*skb).__bindgen_anon_1.__bindgen_anon_1.next }
}

impl<N: Sequenced> SeqQueue<N> {
    /// Creates an empty queue.
    pub(crate) const fn new() -> Self {
        SeqQueue {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            place: ptr::null_mut(),
            _notes: PhantomData,
        }
    }

    /// Returns the buffers, from the head on.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Buffer> {
        let mut place = self.first;
        core::iter::from_fn(move || {
            if place.is_null() {
                return None;
            }
            // SAFETY: By the invariant, `place` is a buffer of the queue, which does not change
            // while it is borrowed.
            unsafe {
                let skb = Buffer::from_raw(place);
                place = next(place);
                Some(skb)
            }
        })
    }

    /// Returns the buffer at the head, for writing.
    #[inline]
    pub(crate) fn first_mut(&mut self) -> Option<&mut Buffer> {
        // SAFETY: By the invariant, `first` is null or a buffer of the queue, which is borrowed
        // exclusively.
        (!self.first.is_null()).then(|| unsafe { Buffer::from_raw_mut(self.first) })
    }

    /// Returns the buffer at the tail.
    #[inline]
    pub(crate) fn last(&self) -> Option<&Buffer> {
        // SAFETY: By the invariant, `last` is null or a buffer of the queue, which is borrowed.
        (!self.last.is_null()).then(|| unsafe { Buffer::from_raw(self.last) })
    }

    /// Returns the buffer at the tail, for writing.
    #[inline]
    pub(crate) fn last_mut(&mut self) -> Option<&mut Buffer> {
        // SAFETY: By the invariant, `last` is null or a buffer of the queue, which is borrowed
        // exclusively.
        (!self.last.is_null()).then(|| unsafe { Buffer::from_raw_mut(self.last) })
    }

    /// Appends a buffer.
    #[inline]
    pub(crate) fn push(&mut self, skb: Skb) {
        let raw = skb.into_raw();
        // SAFETY: The buffer is exclusively ours. By the invariant, `last` is null or a buffer of
        // the queue.
        unsafe {
            *next_mut(raw) = ptr::null_mut();
            if self.last.is_null() {
                self.first = raw;
            } else {
                *next_mut(self.last) = raw;
            }
        }
        self.last = raw;
    }

    /// Removes the buffer at the head.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Skb> {
        let raw = self.first;
        // SAFETY: By the invariant, `raw` is null, or a buffer with the queue's only reference. The
        // `Skb` takes over this reference.
        let skb = unsafe { Skb::from_raw(raw) }?;
        // SAFETY: `raw` is valid, and was the first buffer of the queue until now.
        unsafe {
            self.first = next(raw);
            *next_mut(raw) = ptr::null_mut();
        }
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        if self.place == raw {
            self.place = ptr::null_mut();
        }
        Some(skb)
    }

    /// Finds the buffer that covers the number `number`, starting where the last search ended.
    #[inline]
    fn find(&mut self, number: u16) -> Option<*mut bindings::sk_buff> {
        // SAFETY: The closure is called only with buffers of the queue, which is borrowed
        // exclusively.
        let note = |skb: *mut bindings::sk_buff| unsafe { Buffer::from_raw(skb).note::<N>() };
        let ahead = |note: &N| number.wrapping_sub(note.number()) as i16;
        let mut skb = self.place;
        if skb.is_null() || ahead(&note(skb)) < 0 {
            skb = self.first;
        }
        while !skb.is_null() {
            let note = note(skb);
            let ahead = ahead(&note);
            if ahead < 0 {
                return None;
            }
            if (ahead as u16) < note.count() {
                self.place = skb;
                return Some(skb);
            }
            // SAFETY: By the type invariant, `skb` is a buffer of this queue, which is borrowed.
            skb = unsafe { next(skb) };
        }
        None
    }

    /// Returns the buffer that covers the number `number`.
    #[inline]
    pub(crate) fn seek(&mut self, number: u16) -> Option<&mut Buffer> {
        let skb = self.find(number)?;
        // SAFETY: `skb` is a buffer of the queue, which is borrowed exclusively.
        Some(unsafe { Buffer::from_raw_mut(skb) })
    }

    /// Returns a cursor at the buffer that covers the number `number`.
    #[inline]
    pub(crate) fn cursor(&mut self, number: u16) -> Cursor<'_, N> {
        let at = self.find(number).unwrap_or(ptr::null_mut());
        Cursor { queue: self, at }
    }

    /// Frees all queued buffers.
    pub(crate) fn purge(&mut self) {
        while let Some(skb) = self.pop() {
            skb.purge();
        }
    }
}

impl<N: Sequenced> Drop for SeqQueue<N> {
    fn drop(&mut self) {
        self.purge();
    }
}

/// A position in a queue. The cursor borrows the queue exclusively.
///
/// # Invariants
///
/// `at` is a buffer of the queue, or null if the cursor is at the end.
pub(crate) struct Cursor<'a, N: Sequenced> {
    queue: &'a mut SeqQueue<N>,
    at: *mut bindings::sk_buff,
}

impl<N: Sequenced> Cursor<'_, N> {
    /// Returns the buffer at the cursor, or `None` at the end.
    pub(crate) fn current(&mut self) -> Option<&mut Buffer> {
        // SAFETY: By the invariant, `at` is null or a buffer of the queue, which is borrowed
        // exclusively.
        (!self.at.is_null()).then(|| unsafe { Buffer::from_raw_mut(self.at) })
    }

    /// Moves to the next buffer.
    pub(crate) fn advance(&mut self) {
        if !self.at.is_null() {
            // SAFETY: By the invariant, `at` is a buffer of the queue.
            self.at = unsafe { next(self.at) };
        }
    }

    /// Inserts a buffer after the one at the cursor, or at the tail if the cursor is at the end.
    /// The cursor does not move.
    pub(crate) fn insert_behind(&mut self, skb: Skb) {
        if self.at.is_null() || self.at == self.queue.last {
            return self.queue.push(skb);
        }
        let raw = skb.into_raw();
        // SAFETY: By the invariant, `at` is a buffer of the queue, and it is not the last. The new
        // buffer is exclusively ours.
        unsafe {
            *next_mut(raw) = next(self.at);
            *next_mut(self.at) = raw;
        }
    }
}
