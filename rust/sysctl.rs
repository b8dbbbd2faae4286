// SPDX-License-Identifier: GPL-2.0

//! Numbers in files under `/proc/sys`, one set per network namespace.
//!
//! The core restricts writing, as in all of `net.*`, to tasks with `CAP_NET_ADMIN` over the
//! namespace. It also parses the text, which is one number (`proc_douintvec`).
//!
//! C headers: [`include/linux/sysctl.h`](srctree/include/linux/sysctl.h),
//! [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use super::{
    bindings,
    namespace::{self, Net, PerNet},
};
use crate::net::errno::prelude::*;
use core::{marker::PhantomData, mem, ptr, ptr::NonNull, slice};
use kernel::{
    alloc::KVec,
    ffi::{c_int, c_void},
    str::{CStr, CStrExt},
    sync::Arc,
};

/// The numbers of one namespace, each in a file of its own.
pub(crate) trait Numbers: Send + Sync + 'static {
    /// The directory under `/proc/sys`.
    const DIRECTORY: &'static CStr;
    /// A value that identifies the setting behind a file.
    type File: Copy + 'static;
    /// The files: the name of each, and the setting behind it.
    const FILES: &'static [(&'static CStr, Self::File)];

    /// Returns the number that `file` shows. Called in process context.
    ///
    /// # Errors
    ///
    /// The error that the reader gets.
    fn get(&self, file: Self::File) -> Result<u32>;

    /// Sets `file` to the `number` that a task has written. Called in process context, on several
    /// processors at once.
    ///
    /// # Errors
    ///
    /// The error that the writer gets. After an error, no setting has changed.
    fn set(&self, file: Self::File, number: u32) -> Result;
}

/// Numbers that each namespace has.
pub(crate) trait PerNamespace: Numbers + Sized {
    /// Returns the static structure with which the files are registered.
    fn operations() -> &'static Operations<Self>;

    /// Returns the numbers of a namespace whose files are being created.
    fn of(net: &Net) -> Arc<Self>;
}

/// The structure with which the files are registered. The kernel keeps it while the
/// [`Registration`] lasts.
pub(crate) struct Operations<N: PerNamespace>(namespace::Operations<Directory<N>>);

impl<N: PerNamespace> Operations<N> {
    /// Creates an unregistered structure.
    pub(crate) const fn new() -> Self {
        Operations(namespace::Operations::new())
    }
}

/// The files of all namespaces. Dropping this value removes the files.
pub(crate) struct Registration<N: PerNamespace>(
    #[allow(dead_code)] namespace::Registration<Directory<N>>,
);

impl<N: PerNamespace> Registration<N> {
    /// Creates the files of every existing and future namespace in the [`Root`]. All may read them,
    /// and administrators of the namespace may write to them. May be called once.
    ///
    /// # Errors
    ///
    /// `EEXIST` on a second call. `ENOMEM` if there is no memory, or if the core rejects the files.
    /// The core logs a rejection.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        namespace::Registration::new(module).map(Registration)
    }
}

/// The directory that has the files of all namespaces. It is created before the first file, and
/// must be dropped after the last file. Dropping this value removes the directory.
///
/// Names directly under `/proc/sys` are common to all namespaces. Without a common directory, every
/// process would see the files of the namespace in which the directory was looked up first. The
/// core has a common directory for `/proc/sys/net`, too.
///
/// # Invariants
///
/// `header` registers the directory with zero entries. `_table` is the pointer that the
/// registration has in place of entries, and does not move.
pub(crate) struct Root<N: Numbers> {
    header: NonNull<bindings::ctl_table_header>,
    _table: KBox<bindings::ctl_table>,
    _numbers: PhantomData<fn() -> N>,
}

// SAFETY: The registration is not tied to a task, and the core's unregister function takes a lock.
unsafe impl<N: Numbers> Send for Root<N> {}
// SAFETY: The type has no methods that take a shared reference.
unsafe impl<N: Numbers> Sync for Root<N> {}

impl<N: Numbers> Root<N> {
    /// Creates the directory.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory, or if the core rejects the name. The core logs a rejection.
    pub(crate) fn new(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: All-zero bytes are a valid value: an entry without name, data and handler.
        let table = KBox::new(unsafe { mem::zeroed::<bindings::ctl_table>() }, GFP_KERNEL)?;
        // SAFETY: The name is static, and the table does not move until `drop` has unregistered it.
        // The function reads none of its entries, since their number is 0.
        let header =
            unsafe { bindings::register_sysctl_sz(N::DIRECTORY.as_char_ptr(), &*table, 0) };
        // INVARIANT: The call above has registered `header` with zero entries and this table.
        Ok(Root {
            header: NonNull::new(header).ok_or(ENOMEM)?,
            _table: table,
            _numbers: PhantomData,
        })
    }
}

impl<N: Numbers> Drop for Root<N> {
    fn drop(&mut self) {
        // SAFETY: By the invariant, `header` is registered, and it is unregistered only here.
        unsafe { bindings::unregister_sysctl_table(self.header.as_ptr()) };
    }
}

/// The files of one namespace and the numbers behind them. Dropping the value removes the files.
/// Only the registration creates and drops the value, so that no file outlives the namespace's own
/// tree of sysctl files.
///
/// # Invariants
///
/// `header` is a registration of `_table`, whose entries point to `_numbers` and contain an index
/// into `N::FILES`. Neither `_table` nor the allocation of `_numbers` moves while the registration
/// lasts.
struct Directory<N: PerNamespace> {
    header: NonNull<bindings::ctl_table_header>,
    _numbers: Arc<N>,
    _table: KVec<bindings::ctl_table>,
}

// SAFETY: The registration is not tied to a task, and the core's unregister function takes a lock.
// The numbers are `Send` and `Sync`.
unsafe impl<N: PerNamespace> Send for Directory<N> {}
// SAFETY: The type has no methods that take a shared reference.
unsafe impl<N: PerNamespace> Sync for Directory<N> {}

// SAFETY: No code calls [`PerNet::of`] for this type.
unsafe impl<N: PerNamespace> PerNet for Directory<N> {
    fn operations() -> &'static namespace::Operations<Self> {
        &N::operations().0
    }

    fn new(net: &Net) -> Result<Self> {
        let numbers = N::of(net);
        let mut table = KVec::with_capacity(N::FILES.len(), GFP_KERNEL_ACCOUNT)?;
        for (place, (name, _)) in N::FILES.iter().enumerate() {
            // SAFETY: All-zero bytes are a valid value: an entry without name, data and handler.
            let mut entry: bindings::ctl_table = unsafe { mem::zeroed() };
            entry.procname = name.as_char_ptr();
            entry.data = Arc::as_ptr(&numbers).cast_mut().cast();
            entry.extra1 = ptr::without_provenance_mut(place);
            entry.mode = 0o644;
            entry.proc_handler = Some(handle::<N>);
            table.push(entry, GFP_KERNEL_ACCOUNT)?;
        }
        // SAFETY: The namespace is valid, and so is its own directory tree, since the core removes
        // this directory before the tree. The names are static. The table and the numbers have
        // their own allocations, which do not move until `drop` has unregistered the table.
        let header = unsafe {
            bindings::register_net_sysctl_sz(
                net.as_ptr(),
                N::DIRECTORY.as_char_ptr(),
                table.as_mut_ptr(),
                table.len(),
            )
        };
        // INVARIANT: The call above has registered `header` with the entries of `table`, which
        // point to `numbers`.
        Ok(Directory {
            header: NonNull::new(header).ok_or(ENOMEM)?,
            _numbers: numbers,
            _table: table,
        })
    }
}

impl<N: PerNamespace> Drop for Directory<N> {
    fn drop(&mut self) {
        // SAFETY: By the invariant, `header` is registered, and it is unregistered only here. The
        // function waits for running handlers, and an open file calls no handler afterwards. So the
        // table and the numbers may be freed next.
        unsafe { bindings::unregister_net_sysctl_table(self.header.as_ptr()) };
    }
}

/// Reads or writes one file. The core converts between the text and the local `number`, which is
/// exchanged with [`Numbers::get`] and [`Numbers::set`].
///
/// # Safety
///
/// Called by the core with an entry of a `Directory<N>`. `buffer` points to `*len` bytes of kernel
/// memory, and `position` to the file's offset.
unsafe extern "C" fn handle<N: Numbers>(
    entry: *const bindings::ctl_table,
    write: c_int,
    buffer: *mut c_void,
    len: *mut usize,
    position: *mut i64,
) -> c_int {
    // SAFETY: By the invariant of `Directory`, `data` points to the numbers. The core lets this
    // call end before the directory is dropped.
    let (entry, numbers) = unsafe { (&*entry, &*(*entry).data.cast::<N>()) };
    let Some(&(_, file)) = N::FILES.get(entry.extra1.addr()) else {
        return EINVAL.to_errno();
    };
    let mut told = false;
    if write != 0 {
        // SAFETY: The core has copied `*len` bytes of text to `buffer`, which no one else uses.
        let text = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), *len) };
        // SAFETY: `position` points to the core's own copy of the offset.
        let at_start = unsafe { *position == 0 };
        let count = if at_start { words(text) } else { 0 };
        // Several numbers are rejected, since the core would use the first number and ignore the
        // rest.
        if count > 1 {
            return EINVAL.to_errno();
        }
        told = count == 1;
    }
    let before = match numbers.get(file) {
        Ok(number) => number,
        Err(e) => return e.to_errno(),
    };
    let mut number = before;
    // SAFETY: All-zero bytes are a valid value: an entry without name, data and handler.
    let mut one: bindings::ctl_table = unsafe { mem::zeroed() };
    one.procname = entry.procname;
    one.data = ptr::from_mut(&mut number).cast();
    one.maxlen = mem::size_of::<u32>() as c_int;
    // SAFETY: `one` points to `number` and has its size, and both outlive the call. The core passed
    // the other arguments.
    let code = unsafe { bindings::proc_douintvec(&one, write, buffer, len, position) };
    // The core ignores an empty write, or one that is not at the file's start.
    if code != 0 || !told {
        return code;
    }
    match numbers.set(file, number) {
        Ok(()) => 0,
        // The current value can be written again, even if it is out of the allowed range by now.
        Err(_) if number == before => 0,
        Err(e) => e.to_errno(),
    }
}

/// Returns the number of words in `text`.
fn words(text: &[u8]) -> usize {
    text.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .count()
}
