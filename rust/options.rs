// SPDX-License-Identifier: GPL-2.0

//! User memory of `getsockopt`, `setsockopt` and `ioctl`.
//!
//! C header: [`include/linux/uaccess.h`](srctree/include/linux/uaccess.h)

use super::bindings;
use crate::net::errno::prelude::*;
use core::mem;
use kernel::ffi::c_int;

/// Where `getsockopt` wants its value.
pub(crate) struct OptionBuffer {
    value: *mut kernel::ffi::c_char,
    len: *mut c_int,
}

impl OptionBuffer {
    pub(super) fn new(value: *mut kernel::ffi::c_char, len: *mut c_int) -> Self {
        OptionBuffer { value, len }
    }

    /// Writes as much of `bytes` as the user has room for, and how much that was.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a negative length, `EFAULT` for memory that is not the user's.
    pub(crate) fn write(self, bytes: &[u8]) -> Result {
        let mut room: c_int = 0;
        // SAFETY: The function checks the user's pointer.
        to_result(unsafe { bindings::get_user_int(&mut room, self.len) })?;
        let len = bytes.len().min(usize::try_from(room).map_err(|_| EINVAL)?);
        // SAFETY: `len` bytes of `bytes` are ours; the functions check the user's pointers.
        unsafe {
            if bindings::put_user_int(len as c_int, self.len) != 0
                || bindings::copy_to_user(self.value.cast(), bytes.as_ptr().cast(), len) != 0
            {
                return Err(EFAULT);
            }
        }
        Ok(())
    }

    /// Writes an integer in host order.
    pub(crate) fn write_u32(self, value: u32) -> Result {
        self.write(&value.to_ne_bytes())
    }
}

/// The argument of an `ioctl` that answers with an integer.
pub(crate) struct IntArgument(*mut c_int);

impl IntArgument {
    pub(super) fn new(argument: kernel::ffi::c_ulong) -> Self {
        IntArgument(argument as *mut c_int)
    }

    /// Writes the answer.
    ///
    /// # Errors
    ///
    /// `EFAULT` for memory that is not the user's.
    pub(crate) fn write(self, value: u32) -> Result {
        let value = c_int::try_from(value).unwrap_or(c_int::MAX);
        // SAFETY: The function checks the user's pointer.
        to_result(unsafe { bindings::put_user_int(value, self.0) })
    }
}

const _: () = assert!(mem::size_of::<c_int>() == 4);
