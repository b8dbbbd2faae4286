// SPDX-License-Identifier: GPL-2.0

//! Errors of socket calls. The kernel crate does not name the error numbers of networking.
//!
//! C headers: [`include/uapi/asm-generic/errno.h`](srctree/include/uapi/asm-generic/errno.h),
//! [`include/linux/errno.h`](srctree/include/linux/errno.h)

use super::bindings;
use kernel::ffi::c_int;

/// A negative errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(c_int);

/// The result of a socket call, or of a part of it.
pub(crate) type Result<T = (), E = Error> = core::result::Result<T, E>;

impl Error {
    /// Returns the error as a pointer, in the form in which C functions return it (`ERR_PTR`).
    #[inline]
    pub(super) fn to_ptr<T>(self) -> *mut T {
        core::ptr::without_provenance_mut(self.0 as isize as usize)
    }

    /// Returns the error for a kernel function's result, or `EINVAL` if `code` is no errno.
    pub(crate) fn from_errno(code: c_int) -> Self {
        if (-4095..0).contains(&code) {
            Error(code)
        } else {
            EINVAL
        }
    }

    /// Returns the negative error number.
    pub(crate) fn to_errno(self) -> c_int {
        self.0
    }
}

/// Converts the result of a kernel function that returns 0 or a negative errno.
pub(crate) fn to_result(code: c_int) -> Result {
    if code < 0 {
        Err(Error::from_errno(code))
    } else {
        Ok(())
    }
}

impl From<kernel::error::Error> for Error {
    fn from(error: kernel::error::Error) -> Self {
        Error::from_errno(error.to_errno())
    }
}

impl From<kernel::alloc::AllocError> for Error {
    fn from(_: kernel::alloc::AllocError) -> Self {
        ENOMEM
    }
}

impl From<Error> for kernel::error::Error {
    fn from(error: Error) -> Self {
        kernel::error::Error::from_errno(error.0)
    }
}

macro_rules! errnos {
    ($($name:ident)+) => {
        $(pub(crate) const $name: Error = Error(-(bindings::$name as c_int));)+
    };
}

errnos! {
    EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF EBUSY ECONNABORTED ECONNREFUSED
    ECONNRESET EDESTADDRREQ EEXIST EFAULT EHOSTUNREACH EINPROGRESS EINTR EINVAL EISCONN EMSGSIZE ENETDOWN
    ENETUNREACH ENOBUFS ENODEV ENOENT ENOIOCTLCMD ENOMEM ENOPROTOOPT ENOSPC ENOTCONN EOPNOTSUPP EPERM EPIPE
    EPROTONOSUPPORT ESOCKTNOSUPPORT ESPIPE ETIMEDOUT
}

/// The prelude of the module's files. It replaces the kernel crate's prelude, which has different
/// error types.
pub(crate) mod prelude {
    pub(crate) use super::*;
    pub(crate) use core::pin::Pin;
    pub(crate) use kernel::{
        alloc::flags::{GFP_ATOMIC, GFP_KERNEL, GFP_KERNEL_ACCOUNT},
        alloc::{KBox, KVVec, KVec},
        pr_err, ThisModule,
    };
}
