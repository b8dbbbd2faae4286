// SPDX-License-Identifier: GPL-2.0-only

//! Maps the memory for arguments: an accessible region, followed by an inaccessible one. This
//! memory contains no Rust object, so the kernel and other threads may write to it at any time,
//! even while a call reads it.
//!
//! So they also write to pointers that lie there. A pointer into the accessible region whose lower
//! four bytes are overwritten still points into one of the two regions, and not to the stack of a
//! thread, which the kernel would then write to.

use std::ptr;

use fastrand::Rng;
use libc::c_void;

use guest::prelude::*;
use guest::socket::NOWHERE;

/// Number of bytes of the accessible region.
pub const ROOM: usize = 64 << 10;
/// Number of bytes of both regions together, and their alignment.
const WHOLE: usize = 1 << 32;

/// Two adjacent memory regions that exist until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Arena(usize);

impl Arena {
    /// Maps both memory regions.
    pub fn map() -> Result<Self> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: The kernel chooses the address of the new mapping, so it overlaps no existing
        // mapping.
        let base = unsafe { libc::mmap(ptr::null_mut(), 2 * WHOLE, libc::PROT_NONE, kind, -1, 0) };
        check(if base == libc::MAP_FAILED { -1 } else { 0 })?;
        let base = (base as usize).next_multiple_of(WHOLE) as *mut c_void;
        let open = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: `base` lies in the new mapping, to which no reference exists.
        check(unsafe { libc::mprotect(base, ROOM, open) })?;
        Ok(Self(base as usize))
    }

    /// Stores `bytes` at a random position and returns the position. Another thread may overwrite
    /// the stored bytes at any time.
    pub fn put(self, rng: &mut Rng, bytes: &[u8]) -> *mut c_void {
        let at = self.0 + (rng.usize(..ROOM - bytes.len()) & !7);
        let to = at as *mut u8;
        for (offset, byte) in bytes.iter().enumerate() {
            // SAFETY: The address is inside the accessible region. That region is only written byte
            // by byte and never borrowed.
            unsafe { to.add(offset).write_volatile(*byte) };
        }
        to.cast()
    }

    /// Returns a random position that is followed by at least `length` accessible bytes.
    pub fn place(self, rng: &mut Rng, length: usize) -> *mut c_void {
        (self.0 + rng.usize(..=ROOM.saturating_sub(length))) as *mut c_void
    }

    /// Returns a pointer that is usually invalid: near the inaccessible region, inside it, null, a
    /// kernel address, or random.
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

    /// Returns a pointer to `length` bytes, or in one of sixteen cases a bad pointer.
    pub fn pointer(self, rng: &mut Rng, length: usize) -> *mut c_void {
        if rng.u8(..16) == 0 {
            self.bad(rng)
        } else {
            self.place(rng, length)
        }
    }
}
