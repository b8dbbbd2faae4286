// SPDX-License-Identifier: GPL-2.0-only

//! Maps a page of a program's memory that stays missing until the program supplies it. Until then,
//! a call that copies to the page sleeps, and keeps the locks that it holds.

use std::fs::File;
use std::io::Error;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::ptr;

use anyhow::{ensure, Context, Result};

use crate::patience::patience;
use crate::socket::check;

/// Number of bytes of a page.
pub const PAGE: usize = 4096;

/// `UFFD_API`, and the requests of `linux/userfaultfd.h`.
const API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
/// `UFFDIO_REGISTER_MODE_MISSING`.
const MISSING: u64 = 1;

/// A mapping with one missing page.
#[derive(Debug)]
pub struct HeldPage {
    start: *mut u8,
    length: usize,
    held: usize,
    faults: File,
}

// SAFETY: The mapping belongs to the value, and a shared borrow hands out no reference to its
// bytes.
unsafe impl Send for HeldPage {}
// SAFETY: The methods that take a shared borrow hand out no reference to the bytes of the mapping.
unsafe impl Sync for HeldPage {}

impl HeldPage {
    /// Maps `length` bytes, a multiple of the page size. The page at offset `held` is missing.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn new(length: usize, held: usize) -> Result<Self> {
        ensure!(length % PAGE == 0 && held % PAGE == 0 && held < length);
        // `poll(2)` works on a userfaultfd only if the descriptor is non-blocking.
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: The call takes only flags.
        let fd = check(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) });
        let fd = fd.context("userfaultfd")?;
        // SAFETY: The kernel just returned this descriptor and nothing else owns it.
        let faults = unsafe { File::from_raw_fd(fd as i32) };
        // SAFETY: This makes a new private mapping at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        ensure!(start != libc::MAP_FAILED, Error::last_os_error());
        let memory = Self {
            start: start.cast(),
            length,
            held,
            faults,
        };
        memory.request(UFFDIO_API, &mut [API, 0, 0])?;
        let page = start as u64 + held as u64;
        memory.request(UFFDIO_REGISTER, &mut [page, PAGE as u64, MISSING, 0])?;
        Ok(memory)
    }

    fn request<const N: usize>(
        &self,
        request: libc::c_ulong,
        argument: &mut [u64; N],
    ) -> Result<()> {
        // SAFETY: The argument has the words that the request reads and writes, and lives for the
        // call.
        let done = unsafe { libc::ioctl(self.faults.as_raw_fd(), request, argument.as_mut_ptr()) };
        check(done).with_context(|| format!("request {request:#x}"))?;
        Ok(())
    }

    /// Receives from `socket` into the whole mapping.
    pub fn receive(&self, socket: &impl AsRawFd, flags: i32) -> std::io::Result<usize> {
        let fd = socket.as_raw_fd();
        // SAFETY: The memory is mapped for `length` bytes, and no reference to it exists.
        let got = unsafe { libc::recv(fd, self.start.cast(), self.length, flags) };
        check(got as i64).map(|got| got as usize)
    }

    /// Calls `write(2)` with the memory's first `length` bytes.
    ///
    /// # Errors
    /// The call's errno.
    pub fn write_to(&self, file: &impl AsFd, length: usize) -> std::io::Result<usize> {
        let length = length.min(self.length);
        // SAFETY: The memory is mapped for `length` bytes, and the kernel only reads it.
        let put = unsafe { libc::write(file.as_fd().as_raw_fd(), self.start.cast(), length) };
        check(put as i64).map(|put| put as usize)
    }

    /// Returns the address of the missing page.
    pub fn address(&self) -> usize {
        self.start as usize + self.held
    }

    /// Waits until a call sleeps because of the missing page.
    ///
    /// # Errors
    /// If no call does.
    pub fn await_sleeper(&self) -> Result<()> {
        let mut entry = libc::pollfd {
            fd: self.faults.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let millis = patience().as_millis() as i32;
        // SAFETY: `entry` is one pollfd, alive and writable for the call.
        let ready = check(unsafe { libc::poll(&mut entry, 1, millis) })?;
        ensure!(
            ready == 1 && entry.revents == libc::POLLIN,
            "nobody touched the page"
        );
        Ok(())
    }

    /// Supplies the missing page, filled with zeros.
    ///
    /// # Errors
    /// The call's errno.
    pub fn release(&self) -> Result<()> {
        let page = self.address() as u64;
        self.request(UFFDIO_ZEROPAGE, &mut [page, PAGE as u64, 0, 0])
    }
}

impl Drop for HeldPage {
    fn drop(&mut self) {
        // SAFETY: The mapping belongs to this value, and no call uses it any more, because each
        // call borrows the value.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
