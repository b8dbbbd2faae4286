// SPDX-License-Identifier: MIT OR Apache-2.0

//! Windows: regions of the program's memory. Peers may write into a region while it is registered.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::wire::{Atomic, Calculation, Target, Width};

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

    /// Returns the address of `target`. Returns `None` unless one window contains the whole target.
    fn place(&self, target: &Target) -> Option<*mut u8> {
        let window = self.open.get(&target.key)?;
        let end = target.offset.checked_add(target.length)?;
        if end > window.length as u64 {
            return None;
        }
        // SAFETY: The target ends within the window, whose bytes are one allocation. The cast is
        // lossless, since the offset does not exceed the window's length.
        Some(unsafe { window.start.as_ptr().add(target.offset as usize) })
    }

    /// Returns the memory of `target` without its first `skipped` bytes. Returns `None` unless one
    /// window contains the whole target.
    pub fn memory(&mut self, target: &Target, skipped: u64) -> Option<&mut [u8]> {
        let place = self.place(target)?;
        let length = target.length.checked_sub(skipped)?;
        // SAFETY: The caller of `open` promised that the window's bytes stay allocated, and that no
        // other reference to these bytes is used. `place` has `target.length` bytes, of which the
        // slice has the last. The returned reference borrows the table. The casts are lossless,
        // since neither number exceeds the window's length.
        Some(unsafe { slice::from_raw_parts_mut(place.add(skipped as usize), length as usize) })
    }

    /// Appends the bytes of `target` to `bytes`. Returns `None` unless one window contains the
    /// whole target.
    pub fn read(&self, target: &Target, bytes: &mut Vec<u8>) -> Option<()> {
        let place = self.place(target)?;
        let length = target.length as usize;
        bytes.reserve(length);
        // SAFETY: `place` has `length` bytes, which stay allocated while the window is open. They
        // are not in the vector, which has room for them behind its end; the copy initialises this
        // room.
        unsafe {
            ptr::copy_nonoverlapping(place, bytes.as_mut_ptr().add(bytes.len()), length);
            bytes.set_len(bytes.len() + length);
        }
        Some(())
    }

    /// Writes `length` bytes from `from` on to `target`. The two may overlap. Returns `None` unless
    /// one window contains the whole target.
    ///
    /// # Safety
    ///
    /// `from` must have as many readable bytes as the target.
    pub unsafe fn write(&self, target: &Target, from: *const u8) -> Option<()> {
        let place = self.place(target)?;
        // SAFETY: `place` has `target.length` bytes, which stay allocated while the window is open;
        // the caller has as many to read.
        unsafe { ptr::copy(from, place, target.length as usize) };
        Some(())
    }

    /// Executes an atomic operation and returns the old value. Returns `None` unless one window
    /// contains the number, at an aligned address.
    pub fn execute(&self, atomic: &Atomic) -> Option<u64> {
        let place = self.place(&Target {
            key: atomic.key,
            offset: atomic.offset,
            length: atomic.width as u64,
        })?;
        // SAFETY: The number is in the window, which stays allocated while it is open. MPI requires
        // that the program and the peers change it by atomic operations alone.
        unsafe { execute_at(place, atomic) }
    }
}

/// Executes an atomic operation on a number of the type `$value`, and returns the old value.
macro_rules! calculate {
    ($number:expr, $value:ty, $atomic:expr) => {{
        let (operand, expected) = ($atomic.operand as $value, $atomic.expected as $value);
        let order = Ordering::SeqCst;
        match $atomic.calculation {
            Calculation::Add => $number.fetch_add(operand, order),
            Calculation::And => $number.fetch_and(operand, order),
            Calculation::Or => $number.fetch_or(operand, order),
            Calculation::Xor => $number.fetch_xor(operand, order),
            Calculation::Swap => $number.swap(operand, order),
            Calculation::CompareSwap => $number
                .compare_exchange(expected, operand, order, order)
                .unwrap_or_else(|old| old),
        }
    }};
}

/// Executes an atomic operation on the number at `place`, and returns the old value. Returns `None`
/// if the address is not aligned.
///
/// # Safety
///
/// There must be a number of the operation's width at `place`, which during the call changes by
/// atomic operations alone.
pub unsafe fn execute_at(place: *mut u8, atomic: &Atomic) -> Option<u64> {
    if place.addr() % atomic.width as usize != 0 {
        return None;
    }
    Some(match atomic.width {
        Width::Four => {
            // SAFETY: The address is aligned, and the caller passes that of a number of four bytes.
            let number = unsafe { AtomicU32::from_ptr(place.cast()) };
            u64::from(calculate!(number, u32, atomic))
        }
        Width::Eight => {
            // SAFETY: The address is aligned, and the caller passes that of a number of eight
            // bytes.
            let number = unsafe { AtomicU64::from_ptr(place.cast()) };
            calculate!(number, u64, atomic)
        }
    })
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
        let mut bytes = vec![9];
        assert_eq!(windows.read(&target(key, 1, 2), &mut bytes), Some(()));
        assert_eq!(windows.read(&target(key, 1, 4), &mut bytes), None);
        assert_eq!(windows.read(&target(key ^ 1, 0, 1), &mut bytes), None);
        assert_eq!(bytes, [9, 2, 3]);
        // SAFETY: the array has the four bytes that the target has.
        unsafe {
            assert_eq!(
                windows.write(&target(key, 0, 4), [5, 6, 7, 8].as_ptr()),
                Some(())
            );
            assert_eq!(windows.write(&target(key, 1, 4), [1; 4].as_ptr()), None);
        }
        assert_eq!(
            windows.memory(&target(key, 0, 4), 0),
            Some(&mut [5, 6, 7, 8][..])
        );
        windows.close(key);
        assert_eq!(windows.memory(&target(key, 0, 1), 0), None);
        assert!(windows.is_empty());
    }

    #[test]
    fn atomic_operations_return_the_old_value() {
        let mut memory = [u64::MAX, 100];
        let mut windows = Windows::default();
        // SAFETY: the memory outlives the table, and nothing else uses the memory while the table
        // exists.
        let key = unsafe { windows.open(memory.as_mut_ptr().cast(), 16) }.unwrap();
        let atomic = |calculation, width, offset, operand, expected| Atomic {
            calculation,
            width,
            key,
            offset,
            operand,
            expected,
        };
        let steps = [
            (Calculation::Add, 5, 0, 100),
            (Calculation::Or, 0x92, 0, 105),
            (Calculation::And, 0x7f, 0, 0xfb),
            (Calculation::Xor, 1, 0, 0x7b),
            (Calculation::CompareSwap, 9, 8, 0x7a),
            (Calculation::CompareSwap, 9, 0x7a, 0x7a),
            (Calculation::Swap, 3, 0, 9),
            (Calculation::Add, 0, 0, 3),
        ];
        for (calculation, operand, expected, old) in steps {
            let atomic = atomic(calculation, Width::Eight, 8, operand, expected);
            assert_eq!(windows.execute(&atomic), Some(old));
        }
        // A number of four bytes overflows into no other number.
        let four = atomic(Calculation::Add, Width::Four, 0, 1, 0);
        assert_eq!(windows.execute(&four), Some(u64::from(u32::MAX)));
        let wrong = [
            atomic(Calculation::Add, Width::Eight, 4, 1, 0),
            atomic(Calculation::Add, Width::Four, 2, 1, 0),
            atomic(Calculation::Add, Width::Eight, 16, 1, 0),
            atomic(Calculation::Add, Width::Eight, u64::MAX - 7, 1, 0),
            Atomic {
                key: key ^ 1,
                ..four
            },
        ];
        for atomic in wrong {
            assert_eq!(windows.execute(&atomic), None);
        }
        windows.close(key);
        assert_eq!(memory, [u64::MAX << 32, 3]);
    }
}
