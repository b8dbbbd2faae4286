// SPDX-License-Identifier: GPL-2.0

//! Files under `/proc/net`, one set per namespace, with one line per item.
//!
//! The core asks for records and gives each a page of room. A record here is as many lines as fit
//! into the page. So each line is formatted only once, and a reader that pauses between records
//! holds no resources.
//!
//! C headers: [`include/linux/proc_fs.h`](srctree/include/linux/proc_fs.h),
//! [`include/linux/seq_file.h`](srctree/include/linux/seq_file.h)

use super::{
    bindings,
    namespace::{self, Net, PerNet},
    sock::RawSock,
    table::Walk,
};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    fmt::{self, Write},
    marker::PhantomData,
    mem, ptr,
};
use kernel::{
    alloc::KVec,
    ffi::{c_char, c_int, c_void},
    str::{CStr, CStrExt},
};

/// A text that is truncated at `N` bytes.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// Creates an empty text.
    pub(crate) const fn new() -> Self {
        Text {
            bytes: [0; N],
            len: 0,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Returns the text.
    pub(crate) fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or("?")
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let end = self.len.saturating_add(s.len());
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(s.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Length of the longest line, in bytes. Longer lines are truncated.
const LONGEST: usize = 192;

/// The error for a line that does not fit into the current record. The core then asks for the line
/// again, for a new record.
pub(crate) struct Full;

/// The destination of a file's lines. Also gives access to the credentials of the task that opened
/// the file.
pub(crate) struct Output {
    file: *mut bindings::seq_file,
    /// Whether a line of the current record has been written.
    begun: bool,
}

impl Output {
    /// Writes a line.
    ///
    /// # Errors
    ///
    /// [`Full`].
    pub(crate) fn line(&mut self, text: fmt::Arguments<'_>) -> Result<(), Full> {
        let mut line = Text::<LONGEST>::new();
        // An error only means that the line is too long and was truncated, as intended.
        let _ = writeln!(line, "{text}");
        let bytes = line.as_bytes();
        // SAFETY: `file` is valid while it is being shown.
        let fits = bytes.len() < unsafe { bindings::seq_room(self.file) };
        // The first line of a record is passed to the core even if it does not fit, so that the
        // core gives the record more room. A later line that does not fit must not be passed,
        // because the record would lose its previous lines.
        if fits || !self.begun {
            // SAFETY: `file` is valid while it is being shown, and `bytes` is borrowed.
            unsafe { bindings::seq_write(self.file, bytes.as_ptr().cast(), bytes.len()) };
        }
        if !fits {
            return Err(Full);
        }
        self.begun = true;
        Ok(())
    }

    /// Returns the user that created a socket, as the reader's user namespace sees it.
    pub(crate) fn user_of(&self, sock: &RawSock) -> u32 {
        // SAFETY: `file` is valid while it is being shown, and has the credentials of the task that
        // opened it. The socket is valid.
        unsafe { bindings::seq_sk_uid(self.file, sock.as_ptr()) }
    }
}

/// A reader's position in a file.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    /// The part of the file that the next line belongs to. Each [`Show`] defines its own parts,
    /// such as one part for the header and one for each table.
    pub(crate) part: u32,
    /// The position in that part.
    pub(crate) walk: Walk,
}

impl Place {
    /// Moves to the next part.
    pub(crate) fn next_part(&mut self) {
        self.part = self.part.saturating_add(1);
        self.walk = Walk::default();
    }
}

/// The contents of a file under `/proc/net`.
pub(crate) trait Show: 'static {
    /// The file's name under `/proc/net`.
    const NAME: &'static kernel::str::CStr;
    /// Returns the tables through which the kernel calls the file.
    fn table() -> &'static Table<Self>
    where
        Self: Sized;
    /// Writes the lines from `place` on, and moves `place` past each line that was written.
    ///
    /// # Errors
    ///
    /// [`Full`] if a line did not fit.
    fn show(net: &Net, place: &mut Place, out: &mut Output) -> Result<(), Full>;
}

/// A file that can also be written.
pub(crate) trait Edit: Show {
    /// Handles the text of one `write` call. The caller has `CAP_NET_ADMIN` over the namespace.
    ///
    /// # Errors
    ///
    /// The errors of the `write` call. After an error, none of the text has any effect.
    fn edit(net: &Net, text: &[u8]) -> Result;
}

/// The tables through which the kernel calls a file.
pub(crate) struct Table<S: Show>(UnsafeCell<bindings::seq_operations>, PhantomData<S>);

// SAFETY: The table is never written after its creation.
unsafe impl<S: Show> Sync for Table<S> {}

impl<S: Show> Table<S> {
    /// Creates the tables of `S`.
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

/// All files that a module has in a namespace.
pub(crate) trait Files: Sized + 'static {
    /// Returns the static structure with which the files are registered.
    fn operations() -> &'static Operations<Self>;

    /// Creates the files of a new namespace.
    ///
    /// # Errors
    ///
    /// The errors of the functions of `directory`.
    fn make(directory: &mut Directory) -> Result;
}

/// The structure with which the files are registered. The kernel keeps it while the
/// [`Registration`] lasts.
pub(crate) struct Operations<F: Files>(namespace::Operations<State<F>>);

impl<F: Files> Operations<F> {
    /// Creates an unregistered structure.
    pub(crate) const fn new() -> Self {
        Operations(namespace::Operations::new())
    }
}

/// The files of all namespaces. Dropping this value removes the files.
pub(crate) struct Registration<F: Files>(#[allow(dead_code)] namespace::Registration<State<F>>);

impl<F: Files> Registration<F> {
    /// Creates the files of every existing and future namespace. May be called once.
    ///
    /// # Errors
    ///
    /// `EEXIST` on a second call, and the errors of [`Files::make`].
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        namespace::Registration::new(module).map(Registration)
    }
}

/// The files of one namespace. Only the registration creates and drops this value, so that no file
/// outlives its directory.
struct State<F: Files> {
    _directory: Directory,
    _files: PhantomData<fn() -> F>,
}

// SAFETY: No code calls [`PerNet::of`] for this type.
unsafe impl<F: Files> PerNet for State<F> {
    fn operations() -> &'static namespace::Operations<Self> {
        &F::operations().0
    }

    fn new(net: &Net) -> Result<Self> {
        let mut directory = Directory {
            net: net.as_ptr(),
            // SAFETY: The namespace is valid.
            entry: unsafe { bindings::proc_net(net.as_ptr()) },
            files: KVec::new(),
        };
        F::make(&mut directory)?;
        Ok(State {
            _directory: directory,
            _files: PhantomData,
        })
    }
}

/// `/proc/net` of one namespace, and the files created there. Dropping the value removes the files.
/// [`Files::make`] borrows the value to create the files.
///
/// # Invariants
///
/// `net` is a namespace that still exists, `entry` is its directory, and `files` are the names of
/// the files and directories created there.
pub(crate) struct Directory {
    net: *mut bindings::net,
    entry: *mut bindings::proc_dir_entry,
    files: KVec<&'static CStr>,
}

// SAFETY: By the invariant, both pointers are valid as long as this value. The functions of procfs
// take locks.
unsafe impl Send for Directory {}
// SAFETY: The type has no methods that take a shared reference.
unsafe impl Sync for Directory {}

/// Data that the core keeps with an open file. All-zero bytes are a valid value: a reader at the
/// beginning of the file.
#[repr(C)]
struct Reader {
    /// The data that the core itself keeps, namely the file's namespace.
    net: bindings::seq_net_private,
    place: Place,
    /// Whether no line is left.
    done: bool,
}

impl Directory {
    /// Creates a file, readable by all.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add<S: Show>(&mut self) -> Result {
        // SAFETY: By the invariant, `entry` is valid. The name and the tables are static.
        let entry = unsafe {
            bindings::proc_create_net_data(
                S::NAME.as_char_ptr(),
                0o444,
                self.entry,
                S::table().0.get(),
                mem::size_of::<Reader>() as u32,
                ptr::null_mut(),
            )
        };
        self.keep(entry, S::NAME)
    }

    /// Creates a directory. Files whose names begin with the directory's name and a slash can then
    /// be created there.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add_directory(&mut self, name: &'static CStr) -> Result {
        // SAFETY: By the invariant, the namespace still exists. The name is static.
        let entry = unsafe { bindings::proc_net_mkdir(self.net, name.as_char_ptr()) };
        self.keep(entry, name)
    }

    /// Creates a file, readable by all, and writable with `CAP_NET_ADMIN`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn add_editable<S: Edit>(&mut self) -> Result {
        // SAFETY: By the invariant, `entry` is valid. The name and the tables are static. The
        // function `write` is for files of `S`.
        let entry = unsafe {
            bindings::proc_create_net_data_write(
                S::NAME.as_char_ptr(),
                0o644,
                self.entry,
                S::table().0.get(),
                Some(write::<S>),
                mem::size_of::<Reader>() as u32,
                ptr::null_mut(),
            )
        };
        self.keep(entry, S::NAME)
    }

    /// Stores the name of a new file or directory. `entry` is the result of its creation. Fails if
    /// `entry` is null because the creation failed.
    fn keep(&mut self, entry: *mut bindings::proc_dir_entry, name: &'static CStr) -> Result {
        if entry.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: The caller has created `name` in the directory `self.entry`.
        if let Err(error) = self.files.push(name, GFP_KERNEL_ACCOUNT) {
            // SAFETY: The caller has created it. Its name is not in `files`, so nothing else
            // removes it.
            unsafe { bindings::remove_proc_entry(name.as_char_ptr(), self.entry) };
            return Err(error.into());
        }
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        for name in self.files.iter().rev() {
            // SAFETY: By the invariant, the directory has a file or a directory of this name. The
            // files of a directory were created after it, so it is empty by now. The function waits
            // for readers.
            unsafe { bindings::remove_proc_entry(name.as_char_ptr(), self.entry) };
        }
    }
}

/// # Safety
///
/// `file` is an open file that a [`Directory`] created. The core is showing it by one of the
/// functions below, of which only one runs at a time for each file.
unsafe fn reader<'a>(file: *mut bindings::seq_file) -> &'a mut Reader {
    // SAFETY: The core has allocated memory for a `Reader`, zeroed except for `net`, and no one
    // else uses it.
    unsafe { &mut *(*file).private.cast::<Reader>() }
}

/// Returns the record at the reader's position: null if no line is left, or else a pointer that is
/// not an error value.
fn record(reader: &Reader) -> *mut c_void {
    if reader.done {
        ptr::null_mut()
    } else {
        ptr::dangling_mut::<u64>().cast()
    }
}

/// # Safety
///
/// Called by the core with an open file of a [`Directory`], and with the number of a record. The
/// number is 0, or follows the last record shown.
unsafe extern "C" fn start(file: *mut bindings::seq_file, number: *mut i64) -> *mut c_void {
    // SAFETY: By the caller's promise, `file` is an open file of a `Directory`, and `number` is
    // valid.
    let (reader, number) = unsafe { (reader(file), *number) };
    if number == 0 {
        reader.place = Place::default();
        reader.done = false;
    }
    record(reader)
}

/// # Safety
///
/// The requirements of [`start`] hold.
unsafe extern "C" fn next(
    file: *mut bindings::seq_file,
    _record: *mut c_void,
    number: *mut i64,
) -> *mut c_void {
    // SAFETY: By the caller's promise, `file` is an open file of a `Directory`, and `number` is
    // valid.
    unsafe {
        *number += 1;
        record(reader(file))
    }
}

/// # Safety
///
/// Called by the core. The function accesses nothing.
unsafe extern "C" fn stop(_file: *mut bindings::seq_file, _record: *mut c_void) {}

/// # Safety
///
/// The requirements of [`start`] hold.
unsafe extern "C" fn show<S: Show>(file: *mut bindings::seq_file, _record: *mut c_void) -> c_int {
    // SAFETY: By the caller's promise, `file` is an open file of a `Directory`. The file was
    // created for a namespace, which the open file holds.
    let (net, reader) = unsafe { (Net::from_raw(bindings::seq_file_net(file)), reader(file)) };
    let mut out = Output { file, begun: false };
    reader.done = S::show(net, &mut reader.place, &mut out).is_ok();
    0
}

/// # Safety
///
/// Called by the core, in a `write` call on an open file that [`Directory::add_editable`] created,
/// with a copy of `len` bytes in kernel memory.
unsafe extern "C" fn write<S: Edit>(
    file: *mut bindings::file,
    text: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: A file of `/proc/net` has a `seq_file` for a namespace, which the open file holds. By
    // the caller's promise, `text` has `len` bytes.
    let (net, text) = unsafe {
        let net = Net::from_raw(bindings::seq_file_net(bindings::file_seq(file)));
        // `CAP_NET_ADMIN` is needed both by the task that opened the file and by the writing task.
        if !bindings::file_may_configure(file, net.as_ptr()) {
            return EPERM.to_errno();
        }
        (net, core::slice::from_raw_parts(text.cast::<u8>(), len))
    };
    match S::edit(net, text) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}
