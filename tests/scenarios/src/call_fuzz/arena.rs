// SPDX-License-Identifier: GPL-2.0-only

//! Memory for arguments: a stretch that may be read and written, with a stretch behind it that may
//! not. No Rust object lies in it, so the kernel and other threads may write there what they like,
//! while a call reads it too.

use std::ptr;

use fastrand::Rng;
use libc::c_void;

use crate::prelude::*;
use crate::socket::NOWHERE;

/// Bytes that may be written.
pub const ROOM: usize = 64 << 10;
/// Bytes behind them that may not be touched.
const WALL: usize = 16 << 20;

/// Two stretches of address space that last as long as the process.
#[derive(Clone, Copy, Debug)]
pub struct Arena(usize);

impl Arena {
    /// Maps it.
    ///
    /// # Errors
    /// The errno of `mmap(2)` or `mprotect(2)`.
    pub fn map() -> Result<Self> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches none that is there.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), ROOM + WALL, libc::PROT_NONE, kind, -1, 0) };
        check(if base == libc::MAP_FAILED { -1 } else { 0 })?;
        let open = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the beginning of the mapping just made, which nobody knows of yet.
        check(unsafe { libc::mprotect(base, ROOM, open) })?;
        Ok(Self(base as usize))
    }

    /// Puts `bytes` somewhere in it; the place. Another thread may put others there at once.
    pub fn put(self, rng: &mut Rng, bytes: &[u8]) -> *mut c_void {
        let at = self.0 + (rng.usize(..ROOM - bytes.len()) & !7);
        let to = at as *mut u8;
        for (offset, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the room, which is only ever written byte by byte and never borrowed.
            unsafe { to.add(offset).write_volatile(*byte) };
        }
        to.cast()
    }

    /// A place in it with at least `length` bytes behind it.
    pub fn place(self, rng: &mut Rng, length: usize) -> *mut c_void {
        (self.0 + rng.usize(..=ROOM.saturating_sub(length))) as *mut c_void
    }

    /// A pointer that is seldom good: near the wall, into it, null, the kernel's, anything.
    pub fn bad(self, rng: &mut Rng) -> *mut c_void {
        match rng.u8(..6) {
            0 => ptr::null_mut(),
            1 => NOWHERE,
            2 => (self.0 + ROOM - rng.usize(1..64)) as *mut c_void,
            3 => (self.0 + ROOM + rng.usize(..4096)) as *mut c_void,
            4 => 0xffff_8880_0000_1000_usize as *mut c_void,
            _ => 0x0001_0000_0000_0000_usize.wrapping_mul(rng.usize(..)) as *mut c_void,
        }
    }

    /// A pointer to `length` bytes, or one time in sixteen to none.
    pub fn pointer(self, rng: &mut Rng, length: usize) -> *mut c_void {
        if rng.u8(..16) == 0 {
            self.bad(rng)
        } else {
            self.place(rng, length)
        }
    }
}
