// SPDX-License-Identifier: GPL-2.0

//! User memory of `getsockopt`, `setsockopt` and `ioctl`.
//!
//! C header: [`include/linux/uaccess.h`](srctree/include/linux/uaccess.h)

use crate::net::errno::prelude::*;
use core::mem;
use kernel::{
    ffi::{c_char, c_int, c_ulong},
    uaccess::{UserPtr, UserSlice},
};

/// The user's memory of an integer at `address`.
fn integer(address: UserPtr) -> UserSlice {
    UserSlice::new(address, mem::size_of::<c_int>())
}

/// Where `getsockopt` wants its value.
pub(crate) struct OptionBuffer {
    value: UserPtr,
    len: UserPtr,
}

impl OptionBuffer {
    pub(super) fn new(value: *mut c_char, len: *mut c_int) -> Self {
        OptionBuffer {
            value: UserPtr::from_ptr(value.cast()),
            len: UserPtr::from_ptr(len.cast()),
        }
    }

    /// Writes as much of `bytes` as the user has room for, and how much that was.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a negative length, `EFAULT` for memory that is not the user's.
    pub(crate) fn write(self, bytes: &[u8]) -> Result {
        let room: c_int = integer(self.len).reader().read()?;
        let len = bytes.len().min(usize::try_from(room).map_err(|_| EINVAL)?);
        let bytes = bytes.get(..len).ok_or(EINVAL)?;
        integer(self.len).writer().write(&(len as c_int))?;
        UserSlice::new(self.value, len)
            .writer()
            .write_slice(bytes)?;
        Ok(())
    }

    /// Writes an integer in host order.
    pub(crate) fn write_u32(self, value: u32) -> Result {
        self.write(&value.to_ne_bytes())
    }
}

/// The argument of an `ioctl` that answers with an integer.
pub(crate) struct IntArgument(UserPtr);

impl IntArgument {
    pub(super) fn new(argument: c_ulong) -> Self {
        IntArgument(UserPtr::from_addr(argument as usize))
    }

    /// Writes the answer.
    ///
    /// # Errors
    ///
    /// `EFAULT` for memory that is not the user's.
    pub(crate) fn write(self, value: u32) -> Result {
        let value = c_int::try_from(value).unwrap_or(c_int::MAX);
        Ok(integer(self.0).writer().write(&value)?)
    }
}

const _: () = assert!(mem::size_of::<c_int>() == 4);
