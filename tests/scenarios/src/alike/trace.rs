// SPDX-License-Identifier: GPL-2.0-only

//! What a program saw, as text that can be compared.

use std::cell::RefCell;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::errno::Errno;

use crate::patience::patience;
use crate::socket::{Received, Socket};

/// The notes of one side, in their order. It stays with one thread, so that the order means
/// something: what other threads see is noted after they were joined.
#[derive(Debug, Default)]
pub struct Trace(RefCell<Vec<(String, String)>>);

/// How a call's result is written down.
pub trait Shown {
    /// The result as text; the same for TCP and ESP when a program would see the same.
    fn shown(&self) -> String;
}

macro_rules! shown_as_they_print {
    ($($type:ty),*) => {
        $(impl Shown for $type {
            fn shown(&self) -> String {
                self.to_string()
            }
        })*
    };
}

shown_as_they_print!(bool, i16, i32, i64, u8, u16, u32, u64, usize, String, &str);

impl Shown for () {
    fn shown(&self) -> String {
        "success".into()
    }
}

/// An option's value, byte by byte.
impl Shown for Vec<u8> {
    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

/// Descriptors and addresses differ; that there is one is what counts.
impl Shown for Socket {
    fn shown(&self) -> String {
        "a socket".into()
    }
}

impl Shown for (Socket, Vec<u8>) {
    fn shown(&self) -> String {
        "a socket".into()
    }
}

impl Shown for Received {
    fn shown(&self) -> String {
        let named = if self.name.is_empty() {
            "no name"
        } else {
            "a name"
        };
        format!("{} bytes, flags {:#x}, {named}", self.length, self.flags)
    }
}

impl<T: Shown> Shown for Option<T> {
    fn shown(&self) -> String {
        self.as_ref().map_or("none".into(), Shown::shown)
    }
}

impl<T: Shown> Shown for io::Result<T> {
    fn shown(&self) -> String {
        match self {
            Ok(value) => value.shown(),
            Err(error) => match error.raw_os_error() {
                Some(number) => errno_name(number),
                None => error.to_string(),
            },
        }
    }
}

impl<T: Shown> Shown for nix::Result<T> {
    fn shown(&self) -> String {
        match self {
            Ok(value) => value.shown(),
            Err(errno) => format!("{errno:?}"),
        }
    }
}

/// An errno's name, `0` for none.
pub fn errno_name(number: i32) -> String {
    match number {
        0 => "0".into(),
        number => format!("{:?}", Errno::from_raw(number)),
    }
}

/// The names of the bits of `poll(2)`, which are those of `epoll(7)`.
pub fn events_text(events: i16) -> String {
    const NAMES: &[(i16, &str)] = &[
        (libc::POLLIN, "IN"),
        (libc::POLLPRI, "PRI"),
        (libc::POLLOUT, "OUT"),
        (libc::POLLERR, "ERR"),
        (libc::POLLHUP, "HUP"),
        (libc::POLLNVAL, "NVAL"),
        (libc::POLLRDNORM, "RDNORM"),
        (libc::POLLRDBAND, "RDBAND"),
        (libc::POLLWRNORM, "WRNORM"),
        (libc::POLLWRBAND, "WRBAND"),
        (libc::POLLRDHUP, "RDHUP"),
    ];
    let set: Vec<&str> = NAMES
        .iter()
        .filter(|(bit, _)| events & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    if set.is_empty() {
        return "nothing".into();
    }
    set.join("|")
}

/// Every event that `poll(2)` can be asked for.
const EVERYTHING: i16 = libc::POLLIN
    | libc::POLLPRI
    | libc::POLLOUT
    | libc::POLLRDNORM
    | libc::POLLRDBAND
    | libc::POLLWRNORM
    | libc::POLLWRBAND
    | libc::POLLRDHUP;

impl Trace {
    /// Notes a value.
    pub fn see(&self, what: &str, value: impl Shown) {
        self.0.borrow_mut().push((what.to_owned(), value.shown()));
    }

    /// Notes bytes: as text where they are printable.
    pub fn bytes(&self, what: &str, bytes: &[u8]) {
        self.see(
            what,
            format!("{} bytes {}", bytes.len(), bytes.escape_ascii()),
        );
    }

    /// Receives at most `room` bytes and notes what came: the bytes, the end, or the errno.
    pub fn receive(&self, what: &str, socket: &Socket, room: usize, flags: i32) {
        let mut bytes = vec![0; room];
        match socket.receive(&mut bytes, flags) {
            Ok(length) => self.bytes(what, &bytes[..length.min(room)]),
            Err(error) => self.see(what, io::Result::<()>::Err(error)),
        }
    }

    /// Notes what `poll(2)` reports right now, asked for everything.
    ///
    /// # Errors
    /// The errno of `poll`.
    pub fn poll(&self, what: &str, socket: &Socket) -> Result<()> {
        self.see(what, events_text(socket.poll(EVERYTHING, Duration::ZERO)?));
        Ok(())
    }

    /// Waits until `poll(2)` reports all of `wanted`, for what takes a moment to come; then notes
    /// everything it reports, once it does so twice: a timer on another processor may be half way
    /// through ending a connection at the first look. After [`patience`] it notes what is there: a
    /// difference, if the other side got what it waited for.
    ///
    /// # Errors
    /// The errno of `poll`.
    pub fn poll_until(&self, what: &str, socket: &Socket, wanted: i16) -> Result<()> {
        let end = Instant::now() + patience();
        let mut before = None;
        loop {
            let events = socket.poll(EVERYTHING, Duration::ZERO)?;
            let settled = events & wanted == wanted && before == Some(events);
            if settled || Instant::now() >= end {
                self.see(what, events_text(events));
                return Ok(());
            }
            before = Some(events);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Notes `SO_ERROR`, which reading clears.
    pub fn pending_error(&self, what: &str, socket: &Socket) {
        self.see(what, socket.pending_error().map(errno_name));
    }

    /// The notes so far.
    pub fn notes(&self) -> Vec<(String, String)> {
        self.0.borrow().clone()
    }

    /// All notes.
    pub fn into_notes(self) -> Vec<(String, String)> {
        self.0.into_inner()
    }
}
