// SPDX-License-Identifier: GPL-2.0

//! Access to the user memory that `getsockopt`, `setsockopt` and `ioctl` read and write.
//!
//! C header: [`include/linux/uaccess.h`](srctree/include/linux/uaccess.h)

use super::bindings;
use crate::net::errno::prelude::*;
use core::mem;
use kernel::{
    ffi::{c_char, c_int, c_uint, c_ulong},
    uaccess::{UserPtr, UserSlice},
};

/// Returns the user memory of an integer at `address`.
fn integer(address: UserPtr) -> UserSlice {
    UserSlice::new(address, mem::size_of::<c_int>())
}

/// The user memory for the value that `getsockopt` returns.
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

    /// Writes as many of `bytes` as the user memory has room for, and stores their number in the
    /// user's length.
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
        self.write_numbers([value])
    }

    /// Writes consecutive integers in host order, like [`write`](Self::write).
    pub(crate) fn write_numbers<const N: usize>(self, values: [u32; N]) -> Result {
        self.write(values.map(u32::to_ne_bytes).as_flattened())
    }
}

/// The value passed to `setsockopt`: user memory, or kernel memory in a call from within the
/// kernel.
pub(crate) struct OptionValue {
    value: bindings::sockptr_t,
    len: usize,
}

impl OptionValue {
    /// # Safety
    ///
    /// The core passed `value` to a `setsockopt` call that is still running. If `value` is kernel
    /// memory, `len` bytes of it are readable.
    pub(super) unsafe fn new(value: bindings::sockptr_t, len: c_uint) -> Self {
        OptionValue {
            value,
            len: len as usize,
        }
    }

    /// Reads an integer that is 0 or 1.
    ///
    /// # Errors
    ///
    /// The errors of [`read_u32`](Self::read_u32), and `EINVAL` for any other number.
    pub(crate) fn read_bool(self) -> Result<bool> {
        match self.read_u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(EINVAL),
        }
    }

    /// Reads an integer in host order; further bytes are ignored.
    ///
    /// # Errors
    ///
    /// `EINVAL` for fewer than four bytes, `EFAULT` for memory that is not the user's.
    pub(crate) fn read_u32(self) -> Result<u32> {
        let mut bytes = [0; 4];
        if self.len < bytes.len() {
            return Err(EINVAL);
        }
        // SAFETY: `bytes` has room for the copied bytes. The function checks user memory. If the
        // memory is the kernel's, `self.len` bytes of it are readable, as the caller of `new` has
        // promised.
        let missing = unsafe {
            bindings::copy_from_sockptr(bytes.as_mut_ptr().cast(), self.value, bytes.len())
        };
        if missing != 0 {
            return Err(EFAULT);
        }
        Ok(u32::from_ne_bytes(bytes))
    }
}

/// The argument of an `ioctl` that returns an integer.
pub(crate) struct IntArgument(UserPtr);

impl IntArgument {
    pub(super) fn new(argument: c_ulong) -> Self {
        IntArgument(UserPtr::from_addr(argument))
    }

    /// Writes the result.
    ///
    /// # Errors
    ///
    /// `EFAULT` for memory that is not the user's.
    pub(crate) fn write(self, value: u32) -> Result {
        let value = c_int::try_from(value).unwrap_or(c_int::MAX);
        Ok(integer(self.0).writer().write(&value)?)
    }
}

/// The argument of an `ioctl` that reads, and may change, a structure of 64-bit numbers.
pub(crate) struct StructArgument(c_ulong);

impl StructArgument {
    pub(super) fn new(argument: c_ulong) -> Self {
        StructArgument(argument)
    }

    fn slice<const N: usize>(&self) -> UserSlice {
        UserSlice::new(UserPtr::from_addr(self.0), mem::size_of::<[u64; N]>())
    }

    /// Reads the first `N` numbers of the structure.
    ///
    /// # Errors
    ///
    /// `EFAULT` for memory that is not the user's.
    pub(crate) fn read<const N: usize>(&self) -> Result<[u64; N]> {
        Ok(self.slice::<N>().reader().read()?)
    }

    /// Writes the first `N` numbers of the structure.
    ///
    /// # Errors
    ///
    /// `EFAULT` for memory that is not the user's.
    pub(crate) fn write<const N: usize>(&self, numbers: &[u64; N]) -> Result {
        Ok(self.slice::<N>().writer().write(numbers)?)
    }
}

const _: () = assert!(mem::size_of::<c_int>() == 4);
