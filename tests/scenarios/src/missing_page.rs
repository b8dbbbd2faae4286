// SPDX-License-Identifier: GPL-2.0-only

//! A page of memory that is not there until the scenario fills it (`userfaultfd`): who touches it waits, also in the kernel.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use anyhow::{anyhow, ensure, Context, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::mman::{mmap_anonymous, munmap, MapFlags, ProtFlags};

use crate::patience::patience;
use crate::socket::check;

const PAGE: usize = 4096;
/// `UFFD_API` of `linux/userfaultfd.h`.
const API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;

/// `struct uffdio_api`, also `uffdio_register` and `uffdio_zeropage`, without and with a fourth word.
type Three = [u64; 3];
type Four = [u64; 4];
nix::ioctl_readwrite!(agree, 0xaa, 0x3f, Three);
nix::ioctl_readwrite!(register, 0xaa, 0x00, Four);
nix::ioctl_readwrite!(zero, 0xaa, 0x04, Four);

/// The page.
#[derive(Debug)]
pub struct MissingPage {
    faults: OwnedFd,
    place: NonNull<c_void>,
}

// SAFETY: the page belongs to this value, and nothing but the kernel touches it.
unsafe impl Send for MissingPage {}
// SAFETY: as above.
unsafe impl Sync for MissingPage {}

impl MissingPage {
    /// Makes one.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new() -> Result<Self> {
        // SAFETY: the call takes an integer.
        let fd = check(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) })
            .context("userfaultfd")?;
        // SAFETY: the kernel just returned this descriptor and nothing else owns it.
        let faults = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        let size = NonZeroUsize::new(PAGE).context("a size")?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a mapping where nothing is yet.
        let place = unsafe { mmap_anonymous(None, size, protection, MapFlags::MAP_PRIVATE) }?;
        let page = Self { faults, place };
        let fd = page.faults.as_raw_fd();
        // SAFETY: each is a structure of the request's size, alive and writable for the call. Nothing touches the page yet.
        unsafe {
            agree(fd, &mut [API, 0, 0]).context("UFFDIO_API")?;
            register(
                fd,
                &mut [page.address() as u64, PAGE as u64, MODE_MISSING, 0],
            )
            .context("UFFDIO_REGISTER")?;
        }
        Ok(page)
    }

    /// Where it is.
    pub fn address(&self) -> *mut c_void {
        self.place.as_ptr()
    }

    /// Waits until somebody waits for the page.
    ///
    /// # Errors
    /// When nobody does within [`patience`].
    pub fn await_fault(&self) -> Result<()> {
        let mut entry = [PollFd::new(self.faults.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(patience()).map_err(|_| anyhow!("a timeout"))?;
        ensure!(poll(&mut entry, timeout)? == 1, "nobody touched the page");
        let mut event = [0; 32];
        let length = nix::unistd::read(&self.faults, &mut event)?;
        ensure!(
            length == event.len() && event[0] == EVENT_PAGEFAULT,
            "{length} bytes of another event: {event:?}"
        );
        Ok(())
    }

    /// Fills the page: who waits for it goes on.
    ///
    /// # Errors
    /// When the kernel refuses, as it does the second time.
    pub fn fill(&self) -> Result<()> {
        let mut request = [self.address() as u64, PAGE as u64, 0, 0];
        // SAFETY: a structure of the request's size, alive and writable for the call; the page is this value's.
        unsafe { zero(self.faults.as_raw_fd(), &mut request) }.context("UFFDIO_ZEROPAGE")?;
        Ok(())
    }
}

impl Drop for MissingPage {
    fn drop(&mut self) {
        // Closing the descriptor would let waiting threads go on, too.
        let _ = self.fill();
        // SAFETY: mapped by `new`; whoever used it has gone.
        let _ = unsafe { munmap(self.place, PAGE) };
    }
}
