// SPDX-License-Identifier: GPL-2.0-only

//! Makes channels, the regions of memory that a channel's peer may put to, and the headers of
//! messages.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;

use nix::sys::mman::{mmap_anonymous, munmap, MapFlags, ProtFlags};

use crate::address::{EP_IOC_END_REGION, EP_IOC_REGION, EP_SO_DOMAIN};
use crate::prelude::*;

/// Number of bytes of a message's header.
pub const HEADER: usize = 24;
/// The operation of a message that the peer's program receives.
pub const SEND: u8 = 1;
/// The operation of a message that goes to a region of the peer's.
pub const PUT: u8 = 2;
/// The flag of a put whose header the peer's program receives.
pub const TELLS: u8 = 1;

/// Memory that peers may write to at any time.
#[derive(Debug)]
pub struct Memory {
    place: NonNull<u8>,
    length: usize,
}

// SAFETY: The memory belongs to no thread.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `length` bytes.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(length: usize, how: MapFlags) -> Result<Self> {
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let size = NonZeroUsize::new(length).context("no memory")?;
        // SAFETY: the kernel chooses the place, so the call replaces no mapping.
        let place = unsafe { mmap_anonymous(None, size, both, how)? }.cast();
        Ok(Self { place, length })
    }

    /// Maps `length` bytes that no other process shares.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn private(length: usize) -> Result<Self> {
        Self::new(length, MapFlags::MAP_PRIVATE)
    }

    /// Returns the bytes in `range`.
    pub fn read(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.end <= self.length);
        range
            // SAFETY: the offset lies within the mapping. The read is volatile, since the kernel
            // may write the byte at any time.
            .map(|at| unsafe { self.place.add(at).read_volatile() })
            .collect()
    }

    /// Sets all bytes to `byte`.
    pub fn fill(&self, byte: u8) {
        // SAFETY: the mapping has this length.
        unsafe { self.place.write_bytes(byte, self.length) };
    }

    /// Returns the number of bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the start of the memory.
    pub fn place(&self) -> NonNull<u8> {
        self.place
    }

    /// Returns the address of the memory.
    pub fn address(&self) -> u64 {
        self.place.as_ptr() as u64
    }

    /// Makes the whole memory a region of the socket's domain, and returns its key.
    ///
    /// # Errors
    /// The errors of the call.
    pub fn region(&self, socket: &Socket) -> io::Result<u64> {
        region(socket, self.address(), self.length as u64)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping has this place and length, and no reference to it is left.
        let _ = unsafe { munmap(self.place.cast(), self.length) };
    }
}

/// Makes a region, and returns its key.
///
/// # Errors
/// The errors of the call.
pub fn region(socket: &Socket, address: u64, length: u64) -> io::Result<u64> {
    let mut region = [address, length, 0];
    // SAFETY: the request reads and writes three numbers, which live across the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), EP_IOC_REGION, &mut region) })?;
    Ok(region[2])
}

/// Ends a region.
///
/// # Errors
/// The errors of the call.
pub fn end_region(socket: &Socket, key: u64) -> io::Result<()> {
    let region = [0, 0, key];
    // SAFETY: the request reads three numbers, which live across the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), EP_IOC_END_REGION, &region) }).map(drop)
}

/// Returns the header of a message.
pub fn header(operation: u8, flags: u8, immediate: u32, key: u64, offset: u64) -> Vec<u8> {
    let fields: [&[u8]; 4] = [
        &[operation, flags, 0, 0],
        &immediate.to_be_bytes(),
        &key.to_be_bytes(),
        &offset.to_be_bytes(),
    ];
    fields.concat()
}

/// Makes `socket` a channel of a domain of its own.
///
/// # Errors
/// If the kernel refuses.
pub fn channel(socket: Socket) -> Result<Socket> {
    join(&socket, &socket)?;
    Ok(socket)
}

/// Makes `socket` a channel of the domain of `domain`.
///
/// # Errors
/// If the kernel refuses.
pub fn join(socket: &Socket, domain: &Socket) -> Outcome {
    socket
        .set_int_option(SOL_EP, EP_SO_DOMAIN, domain.as_raw_fd())
        .context("EP_SO_DOMAIN")
}
