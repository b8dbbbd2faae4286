// SPDX-License-Identifier: MIT OR Apache-2.0

//! MPI between two ranks, over the network that Open MPI chose (Treydte 2007, figure 17).
//!
//! Client and server are the two ranks of a job that `mpirun` starts. They still use the control
//! connection, so that `-m mpi,esp,tcp` measures all three in one run. Open MPI's library is loaded
//! only when this transport is used, so netgauge also runs on hosts without the library.

use std::cell::OnceCell;
use std::env;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::rc::Rc;

use anyhow::{ensure, Context as _, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::kind::Kind;
use super::options::Takes;
use super::{Context, Prepared, Transport};
use crate::wire::{Endpoint, RankOf};

pub(super) const KIND: Kind = Kind {
    takes: Takes::NOTHING,
    interface: false,
    ..Kind::new("mpi", "MPI, two ranks of a job of Open MPI", prepare)
};

/// The name of Open MPI's library, unchanged since Open MPI 3.0. The ABI of the calls below is
/// unchanged since Open MPI 1.7.
const LIBRARY: &str = "libmpi.so.40";

/// A hint for error messages: how to start the two ranks.
const REMEDY: &str = "start both ends by one mpirun, the server with --once: mpirun --host A,B -n 2 sh -c \
     '[ $OMPI_COMM_WORLD_RANK = 1 ] || exec netgauge --server --once; exec netgauge -m mpi --connect A'";

/// `MPI_THREAD_FUNNELED`. This level is enough because only the main thread uses this transport.
const FUNNELED: c_int = 1;
/// The tag of messages.
const TAG: c_int = 0;
/// `MPI_MAX_LIBRARY_VERSION_STRING`.
const LONGEST_VERSION: usize = 256;

/// Returns whether `mpirun` has started this process.
pub(super) fn is_started() -> bool {
    env::var_os("OMPI_COMM_WORLD_SIZE").is_some()
}

impl RankOf {
    /// Returns this process's rank, which `mpirun` has set in the environment.
    fn here() -> Result<Self> {
        let number = |name: &str| {
            let value = env::var(name).ok()?;
            value.parse::<c_int>().ok()
        };
        let size = number("OMPI_COMM_WORLD_SIZE").with_context(|| {
            format!("mpi is between two ranks, and mpirun did not start this one: {REMEDY}")
        })?;
        ensure!(
            size == 2,
            "mpi is between two ranks, and this job has {size}: {REMEDY}"
        );
        Ok(Self {
            job: env::var("PMIX_NAMESPACE").context("mpirun did not name the job")?,
            rank: number("OMPI_COMM_WORLD_RANK").context("mpirun did not number this rank")?,
        })
    }
}

/// `MPI_Comm` and `MPI_Datatype` of Open MPI: addresses of objects in its library.
type Handle = *mut c_void;
/// Room for Open MPI's `MPI_Status`, which is 24 bytes.
type Status = [u64; 8];

type InitFn = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
type VersionFn = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
type SendFn = unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle) -> c_int;
type ReceiveFn =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Status) -> c_int;
type GetCountFn = unsafe extern "C" fn(*const Status, Handle, *mut c_int) -> c_int;
type FinalizeFn = unsafe extern "C" fn() -> c_int;

/// The calls in use, as Open MPI's `mpi.h` declares them. The library is never unloaded.
struct Calls {
    world: Handle,
    byte: Handle,
    send: SendFn,
    receive: ReceiveFn,
    get_count: GetCountFn,
    finalize: FinalizeFn,
    /// The library's name and version.
    version: String,
}

thread_local! {
    /// The library's calls, once this process has joined the job. The process leaves the job
    /// ([`leave`]) before it ends, and cannot join again.
    static JOINED: OnceCell<Rc<Calls>> = const { OnceCell::new() };
}

/// Leaves the job, if this thread has joined it, and waits until the other rank leaves. If a
/// process ends without this call, `mpirun` ends the whole job. Only a process that has failed ends
/// that way.
pub fn leave() {
    JOINED.with(|joined| {
        if let Some(calls) = joined.get() {
            // SAFETY: `finalize` has the type that mpi.h declares. This thread has called
            // MPI_Init_thread, and makes no call to the library after this one.
            unsafe { (calls.finalize)() };
        }
    });
}

/// Joins the job, if this thread has not done so yet, and waits until the other rank joins.
fn join() -> Result<Rc<Calls>> {
    JOINED.with(|joined| {
        if let Some(calls) = joined.get() {
            return Ok(calls.clone());
        }
        let calls = load().with_context(|| {
            format!("loading {LIBRARY}: install Open MPI (Debian: openmpi-bin) on both hosts")
        })?;
        Ok(joined.get_or_init(|| Rc::new(calls)).clone())
    })
}

fn load() -> Result<Calls> {
    // SAFETY: Open MPI's library is made to be loaded by programs, and its initialisers have no
    // preconditions. RTLD_GLOBAL is set because the library's components look for its symbols among
    // the global symbols.
    let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_GLOBAL) }?;
    // The library is never unloaded, because it has threads of its own from here on.
    let library = ManuallyDrop::new(library);
    // SAFETY: Each symbol has the type that mpi.h declares for its name, and the library is never
    // unloaded.
    let (init, version, calls) = unsafe {
        let init: InitFn = *library.get(b"MPI_Init_thread\0")?;
        let version: VersionFn = *library.get(b"MPI_Get_library_version\0")?;
        let calls = Calls {
            world: *library.get(b"ompi_mpi_comm_world\0")?,
            byte: *library.get(b"ompi_mpi_byte\0")?,
            send: *library.get(b"MPI_Send\0")?,
            receive: *library.get(b"MPI_Recv\0")?,
            get_count: *library.get(b"MPI_Get_count\0")?,
            finalize: *library.get(b"MPI_Finalize\0")?,
            version: String::new(),
        };
        (init, version, calls)
    };
    let (mut text, mut length) = ([0; LONGEST_VERSION], 0);
    // SAFETY: The call writes at most MPI_MAX_LIBRARY_VERSION_STRING bytes to `text`, including the
    // NUL, and `text` has that many bytes. It writes an integer to `length`.
    check("MPI_Get_library_version", unsafe {
        version(text.as_mut_ptr(), &mut length)
    })?;
    // SAFETY: `text` contains a NUL, because the library has written one, and the array was zeroed
    // before.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
    let mut granted = 0;
    // SAFETY: The MPI standard allows null for both arguments of `main`. `granted` is an integer
    // that lives until the call returns.
    check("MPI_Init_thread", unsafe {
        init(ptr::null_mut(), ptr::null_mut(), FUNNELED, &mut granted)
    })?;
    Ok(Calls {
        version: text.split(',').next().unwrap_or_default().to_owned(),
        ..calls
    })
}

/// Returns an error if `call` failed. By default, Open MPI itself ends the job at an error.
fn check(call: &str, status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        status => Err(io::Error::other(format!("{call} failed ({status})"))),
    }
}

fn prepare(_: &Context) -> Result<Prepared> {
    waiting(RankOf::here()?)
}

/// Returns a rank that joins the job only when it is opened, because a join waits until the peer
/// joins as well.
fn waiting(here: RankOf) -> Result<Prepared> {
    let endpoint = Endpoint {
        mpi: Some(here.clone()),
        ..Endpoint::default()
    };
    Ok(Prepared::new(endpoint, move |peer| {
        let peer = peer.mpi.as_ref().context("the peer is no rank of a job")?;
        ensure!(
            peer.job == here.job && peer.rank != here.rank,
            "the two ends are not the two ranks of one job: {REMEDY}"
        );
        Ok(Box::new(Mpi {
            calls: join()?,
            peer: peer.rank,
            socket: UnixStream::pair()?.0,
        }))
    }))
}

/// One of the two ranks, connected with the other. A receiving call fills its buffer with one whole
/// message, or with several.
struct Mpi {
    calls: Rc<Calls>,
    peer: c_int,
    /// A socket that carries no data. `Transport` requires a descriptor, and MPI has none.
    socket: UnixStream,
}

impl Transport for Mpi {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = length(message)?;
        let Calls { world, byte, .. } = *self.calls;
        // SAFETY: `message` has `length` bytes, which the call reads before it returns. The handles
        // are the library's own, and this is the thread that joined.
        check("MPI_Send", unsafe {
            (self.calls.send)(message.as_ptr().cast(), length, byte, self.peer, TAG, world)
        })
    }

    fn send_record(&mut self, message: &[u8]) -> io::Result<()> {
        self.send(message)
    }

    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        let Calls { world, byte, .. } = *self.calls;
        let mut rest = message;
        while !rest.is_empty() {
            let (mut status, mut came): (Status, c_int) = ([0; 8], 0);
            let (room, buffer) = (length(rest)?, rest.as_mut_ptr().cast());
            // SAFETY: `buffer` points to `room` bytes of `rest`. The call writes at most that many,
            // before it returns. `status` has room for the library's status, and this is the thread
            // that joined.
            check("MPI_Recv", unsafe {
                (self.calls.receive)(buffer, room, byte, self.peer, TAG, world, &mut status)
            })?;
            // SAFETY: The library has filled `status`, for a message of the same type, `byte`.
            check("MPI_Get_count", unsafe {
                (self.calls.get_count)(&status, byte, &mut came)
            })?;
            rest = usize::try_from(came)
                .ok()
                .and_then(|came| rest.get_mut(came..))
                .ok_or_else(|| io::Error::other("MPI_Get_count gave more than came"))?;
        }
        Ok(())
    }

    fn remark(&self) -> Option<String> {
        // `mpirun --mca btl LIST` sets this variable.
        let chosen = env::var("OMPI_MCA_btl").map(|list| format!(", btl {list}"));
        Some(format!(
            "{}{}",
            self.calls.version,
            chosen.unwrap_or_default()
        ))
    }
}

as_fd!([] Mpi, socket);

/// Converts a length to MPI's type.
fn length(bytes: &[u8]) -> io::Result<c_int> {
    c_int::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_mpirun_gets_the_remedy() {
        assert!(!is_started());
        let error = RankOf::here().unwrap_err().to_string();
        assert!(error.contains("mpirun --host"), "{error}");
    }

    #[test]
    fn an_end_of_another_job_is_refused() {
        let rank = |job: &str, rank| RankOf {
            job: job.to_owned(),
            rank,
        };
        let refused = |mpi| {
            let waiting = waiting(rank("prterun-1", 1)).unwrap();
            let peer = Endpoint {
                mpi,
                ..Endpoint::default()
            };
            waiting.open(&peer, None).err().unwrap().to_string()
        };
        assert!(refused(None).contains("no rank"));
        assert!(refused(Some(rank("prterun-2", 0))).contains("one job"));
        assert!(refused(Some(rank("prterun-1", 1))).contains("one job"));
    }
}
