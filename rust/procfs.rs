// SPDX-License-Identifier: GPL-2.0

//! Files under `/proc/net`, one set per namespace.
//!
//! C header: [`include/linux/proc_fs.h`](srctree/include/linux/proc_fs.h)

use super::{bindings, namespace::Net};
use crate::net::errno::prelude::*;
use core::{cell::UnsafeCell, fmt, marker::PhantomData, mem, ptr};
use kernel::ffi::{c_int, c_void};
use kernel::str::CStrExt;

/// Where a file's text goes.
pub(crate) struct Output {
    file: *mut bindings::seq_file,
    /// There was no room for some of it.
    full: bool,
}

impl fmt::Write for Output {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // SAFETY: The file being shown, and bytes that are readable for their length. What does not
        // fit is noted in the file.
        let code = unsafe { bindings::seq_write(self.file, s.as_ptr().cast(), s.len()) };
        if code == 0 {
            return Ok(());
        }
        // The rest would be made for nothing.
        self.full = true;
        Err(fmt::Error)
    }
}

/// The text of a file.
pub(crate) trait Show: 'static {
    /// The file's name under `/proc/net`.
    const NAME: &'static kernel::str::CStr;
    /// The tables the kernel calls the file by.
    fn table() -> &'static Table<Self>
    where
        Self: Sized;
    /// Writes the whole text, and stops at the first error. Text that does not fit is written again.
    fn show(net: &Net, out: &mut Output) -> fmt::Result;
}

/// The tables by which the kernel calls a file.
pub(crate) struct Table<S: Show>(UnsafeCell<bindings::seq_operations>, PhantomData<S>);

// SAFETY: Never written after it is made.
unsafe impl<S: Show> Sync for Table<S> {}

impl<S: Show> Table<S> {
    /// The tables of `S`.
    pub(crate) const fn new() -> Self {
        Table(
            UnsafeCell::new(bindings::seq_operations {
                start: Some(start),
                stop: Some(stop),
                next: Some(next),
                show: Some(show::<S>),
            }),
            PhantomData,
        )
    }
}

/// A file in one namespace, removed when dropped.
pub(crate) struct File<S: Show> {
    directory: *mut bindings::proc_dir_entry,
    _show: PhantomData<S>,
}

// SAFETY: The directory outlives the file; procfs locks.
unsafe impl<S: Show> Send for File<S> {}
// SAFETY: As above; nothing can be done through a shared reference.
unsafe impl<S: Show> Sync for File<S> {}

impl<S: Show> File<S> {
    /// Makes the file, readable by all.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(net: &Net) -> Result<Self> {
        // SAFETY: The namespace is valid; name and tables are static.
        unsafe {
            let directory = bindings::proc_net(net.as_ptr());
            let entry = bindings::proc_create_net_data(
                S::NAME.as_char_ptr(),
                0o444,
                directory,
                S::table().0.get(),
                mem::size_of::<bindings::seq_net_private>() as u32,
                ptr::null_mut(),
            );
            if entry.is_null() {
                return Err(ENOMEM);
            }
            Ok(File {
                directory,
                _show: PhantomData,
            })
        }
    }
}

impl<S: Show> Drop for File<S> {
    fn drop(&mut self) {
        // SAFETY: Made by `new`; waits for readers.
        unsafe { bindings::remove_proc_entry(S::NAME.as_char_ptr(), self.directory) };
    }
}

/// One record, the whole text: position 0 shows it, every other is the end.
///
/// # Safety
///
/// Called by the core, with the position of an open file.
unsafe extern "C" fn start(_file: *mut bindings::seq_file, position: *mut i64) -> *mut c_void {
    // SAFETY: The core passes the position of the file, which nobody else touches meanwhile.
    if unsafe { *position } == 0 {
        // Any pointer but null and the error values means that there is a record.
        ptr::dangling_mut::<u64>().cast()
    } else {
        ptr::null_mut()
    }
}

/// # Safety
///
/// Called by the core, with the position of an open file.
unsafe extern "C" fn next(
    _file: *mut bindings::seq_file,
    _record: *mut c_void,
    position: *mut i64,
) -> *mut c_void {
    // SAFETY: The core passes the position of the file, which nobody else touches meanwhile.
    unsafe { *position += 1 };
    ptr::null_mut()
}

/// # Safety
///
/// Called by the core; nothing is touched.
unsafe extern "C" fn stop(_file: *mut bindings::seq_file, _record: *mut c_void) {}

/// # Safety
///
/// Called by the core, with an open file that [`File::new`] made.
unsafe extern "C" fn show<S: Show>(file: *mut bindings::seq_file, _record: *mut c_void) -> c_int {
    // SAFETY: The file was made for a namespace, which its opener holds.
    let net = unsafe { Net::from_raw(bindings::seq_file_net(file)) };
    let mut out = Output { file, full: false };
    match S::show(net, &mut out) {
        // What was too long is asked for again, with more room.
        Err(fmt::Error) if !out.full => EIO.to_errno(),
        _ => 0,
    }
}
