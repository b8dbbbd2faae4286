// SPDX-License-Identifier: GPL-2.0-only

//! Memory that keeps whoever touches it, the kernel in the middle of a system call too.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::prelude::*;

/// Bytes of the page.
const PAGE: usize = 4096;

/// `_IOWR` of `UFFDIO_API`, whose argument has three words.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
/// `_IOWR` of `UFFDIO_REGISTER`, whose argument has four words.
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
/// `_IOWR` of `UFFDIO_ZEROPAGE`, whose argument has four words.
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
/// What the first word of `UFFDIO_API` names.
const API: u64 = 0xaa;
/// Pages that are not there yet are waited for.
const MISSING: u64 = 1;

/// A page that is not there: who reads it sleeps until it is [released](Self::release) (`userfaultfd(2)`).
#[derive(Debug)]
pub struct StalledPage {
    page: NonNull<libc::c_void>,
    faults: OwnedFd,
}

// SAFETY: the page is only passed on to the kernel.
unsafe impl Send for StalledPage {}
// SAFETY: as above.
unsafe impl Sync for StalledPage {}

impl StalledPage {
    /// A new page.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn new() -> Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the call takes flags.
        let fd = check(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) });
        // SAFETY: the descriptor is new and nobody else's.
        let faults = unsafe { OwnedFd::from_raw_fd(fd.context("userfaultfd")? as i32) };
        // SAFETY: a new mapping, of nothing that exists.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        ensure!(
            page != libc::MAP_FAILED,
            "mmap: {}",
            io::Error::last_os_error()
        );
        let page = NonNull::new(page).context("mmap returned no page")?;
        let this = Self { page, faults };
        let mut api = [API, 0, 0];
        let mut range = [page.addr().get() as u64, PAGE as u64, MISSING, 0];
        for (request, argument) in [
            (UFFDIO_API, api.as_mut_slice()),
            (UFFDIO_REGISTER, range.as_mut_slice()),
        ] {
            let fd = this.faults.as_raw_fd();
            // SAFETY: both requests read and write so many words, which live across the call.
            check(unsafe { libc::ioctl(fd, request, argument.as_mut_ptr()) })
                .with_context(|| format!("request {request:#x}"))?;
        }
        Ok(this)
    }

    /// `write(2)` of the page's first `len` bytes, which sleeps until the page is released.
    ///
    /// # Errors
    /// The call's errno.
    pub fn write_to(&self, file: &impl AsFd, len: usize) -> io::Result<usize> {
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: the page is mapped as long as this value, and the kernel only reads it.
        let written = check(unsafe { libc::write(fd, self.page.as_ptr(), len.min(PAGE)) } as i64)?;
        Ok(written as usize)
    }

    /// Waits until somebody sleeps for the page.
    ///
    /// # Errors
    /// When nobody does after [`patience`].
    pub fn await_sleeper(&self) -> Outcome {
        let mut entry = [PollFd::new(self.faults.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(patience()).context("a time for poll(2)")?;
        ensure!(poll(&mut entry, limit)? > 0, "nobody reads the page");
        Ok(())
    }

    /// Lets the sleepers go on: the page is one of zeroes.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn release(&self) -> Outcome {
        let mut zeroes = [self.page.addr().get() as u64, PAGE as u64, 0, 0];
        let fd = self.faults.as_raw_fd();
        // SAFETY: the request reads and writes four words, which live across the call.
        check(unsafe { libc::ioctl(fd, UFFDIO_ZEROPAGE, zeroes.as_mut_ptr()) })
            .map(drop)
            .context("UFFDIO_ZEROPAGE")
    }
}

impl Drop for StalledPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nobody refers to it any more.
        unsafe { libc::munmap(self.page.as_ptr(), PAGE) };
    }
}
