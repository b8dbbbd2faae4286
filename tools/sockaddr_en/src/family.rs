// SPDX-License-Identifier: MIT OR Apache-2.0

//! The address family number, which the module's parameter `family` can change.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::constants::AF_ENET;

static FAMILY: AtomicU16 = AtomicU16::new(AF_ENET);

/// Returns the address family number of this program's sockets and addresses, in host byte order:
/// [`AF_ENET`] unless [`set_family`] changed it.
pub fn family() -> u16 {
    FAMILY.load(Ordering::Relaxed)
}

/// Sets the address family number, in host byte order, of all sockets and addresses of this
/// program.
///
/// Call it once before opening sockets if the module was loaded with a number other than
/// [`AF_ENET`]:
///
/// ```no_run
/// use sockaddr_en::EspListener;
///
/// // modprobe enet family=29
/// sockaddr_en::set_family(29);
/// let listener = EspListener::bind("*:2805")?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_family(number: u16) {
    FAMILY.store(number, Ordering::Relaxed);
}

/// The error that the kernel does not know this program's address family, because the module is not
/// loaded or was loaded with a different number.
///
/// Opening a socket then fails with an [`io::Error`] of kind `Unsupported` that holds this error.
/// The kernel's own error is `EAFNOSUPPORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this kernel has no socket family {family} (EAFNOSUPPORT): load the module with `modprobe enet`"
)]
pub struct FamilyMissing {
    /// The requested family number, in host byte order.
    pub family: u16,
}

impl FamilyMissing {
    /// Returns whether `error` holds a `FamilyMissing`.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Turns the kernel's error for an unknown family into [`FamilyMissing`].
pub(crate) fn explain(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => io::Error::new(
            io::ErrorKind::Unsupported,
            FamilyMissing { family: family() },
        ),
        _ => error,
    }
}
