// SPDX-License-Identifier: MIT OR Apache-2.0

//! Windows: regions of the program's memory. Peers may write into a region while it is registered.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::slice;

use crate::wire::Target;

/// A region of memory that is open to peers.
#[derive(Debug)]
struct Window {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the caller of `Windows::open` leaves the memory to the table, whichever thread uses the
// table.
unsafe impl Send for Window {}

/// The open regions of memory, by key. To write into a region, a peer must know its key. So a
/// stranger that connects cannot write.
#[derive(Debug, Default)]
pub struct Windows {
    open: HashMap<u64, Window>,
    /// The secret from which keys are derived, so that peers cannot guess the keys.
    secret: RandomState,
    next: u64,
}

impl Windows {
    /// Opens `length` bytes from `start` to the peers. Returns the key, which is never 0, or `None`
    /// if `start` is null.
    ///
    /// # Safety
    ///
    /// Until [`Windows::close`] is called with the key, the memory must stay allocated and
    /// writable, and no reference to it may be used.
    pub unsafe fn open(&mut self, start: *mut u8, length: usize) -> Option<u64> {
        let start = NonNull::new(start)?;
        loop {
            let key = self.secret.hash_one(self.next);
            self.next += 1;
            if key != 0 && !self.open.contains_key(&key) {
                self.open.insert(key, Window { start, length });
                return Some(key);
            }
        }
    }

    /// Closes a window. The window's memory is not written to after this.
    pub fn close(&mut self, key: u64) {
        self.open.remove(&key);
    }

    /// Returns whether no window is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the memory of `target` without its first `skipped` bytes. Returns `None` unless one
    /// window contains the whole target.
    pub fn memory(&mut self, target: &Target, skipped: u64) -> Option<&mut [u8]> {
        let window = self.open.get_mut(&target.key)?;
        let end = target.offset.checked_add(target.length)?;
        if end > window.length as u64 || skipped > target.length {
            return None;
        }
        // SAFETY: The caller of `open` promised that `length` bytes stay allocated, and that no
        // other reference to these bytes is used. The returned reference borrows the table. The
        // casts are lossless, since neither number exceeds the window's length.
        Some(unsafe {
            slice::from_raw_parts_mut(
                window
                    .start
                    .as_ptr()
                    .add((target.offset + skipped) as usize),
                (target.length - skipped) as usize,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_no_memory_beyond_its_ends() {
        let mut memory = [1u8, 2, 3, 4];
        let mut windows = Windows::default();
        // SAFETY: the memory outlives the table, and nothing else uses the memory while the table
        // exists.
        let key = unsafe { windows.open(memory.as_mut_ptr(), 4) }.unwrap();
        let target = |key, offset, length| Target {
            key,
            offset,
            length,
        };
        assert_eq!(windows.memory(&target(key, 1, 3), 1), Some(&mut [3, 4][..]));
        assert_eq!(windows.memory(&target(key, 4, 0), 0), Some(&mut [][..]));
        for (offset, length, skipped) in [(1, 4, 0), (5, 0, 0), (u64::MAX, 2, 0), (0, 2, 3)] {
            assert_eq!(windows.memory(&target(key, offset, length), skipped), None);
        }
        assert_eq!(windows.memory(&target(key ^ 1, 0, 1), 0), None);
        windows.close(key);
        assert_eq!(windows.memory(&target(key, 0, 1), 0), None);
        assert!(windows.is_empty());
    }
}
