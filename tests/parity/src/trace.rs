// SPDX-License-Identifier: GPL-2.0-only

//! Records, as text, the results that a program saw, so that two runs can be compared.

use std::cell::RefCell;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use guest::asleep::{asleep, Sleeper};
use guest::harness::errno_name;
use guest::patience::patience;
use guest::socket::{Received, Socket};
use guest::uring::Completion;

/// The notes (labels and results) of one side of a comparison, in order. A trace belongs to one
/// thread, so that the order is defined; results of other threads are noted after these threads
/// were joined.
#[derive(Debug, Default)]
pub struct Trace(RefCell<Vec<(String, String)>>);

/// A result of a call that can be shown as text.
pub trait Shown {
    /// Returns the text. It is the same for TCP and ESP if a program would see the same result.
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

/// Shows the value of an option, byte by byte.
impl Shown for Vec<u8> {
    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

/// Only the presence of a socket is noted, since descriptors and addresses differ between the
/// sides.
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

impl Shown for Completion {
    fn shown(&self) -> String {
        match self.result {
            result if result < 0 => errno_name(-result),
            result => result.to_string(),
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

/// Returns the names of the bits of `poll(2)`. The bits of `epoll(7)` are the same.
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

/// All events that `poll(2)` reports only if they are requested.
const EVERYTHING: i16 = libc::POLLIN
    | libc::POLLPRI
    | libc::POLLOUT
    | libc::POLLRDNORM
    | libc::POLLRDBAND
    | libc::POLLWRNORM
    | libc::POLLWRBAND
    | libc::POLLRDHUP;

impl Trace {
    /// Adds a value to the trace, with the label `what`.
    pub fn see(&self, what: &str, value: impl Shown) {
        self.0.borrow_mut().push((what.to_owned(), value.shown()));
    }

    /// Adds bytes to the trace, as text where they are printable.
    pub fn bytes(&self, what: &str, bytes: &[u8]) {
        self.see(
            what,
            format!("{} bytes {}", bytes.len(), bytes.escape_ascii()),
        );
    }

    /// Receives at most `room` bytes and adds the result to the trace: the bytes, the end, or the
    /// errno.
    pub fn receive(&self, what: &str, socket: &Socket, room: usize, flags: i32) {
        let mut bytes = vec![0; room];
        match socket.receive(&mut bytes, flags) {
            Ok(length) => self.bytes(what, &bytes[..length.min(room)]),
            Err(error) => self.see(what, io::Result::<()>::Err(error)),
        }
    }

    /// Adds to the trace all events that `poll(2)` reports right now.
    ///
    /// # Errors
    /// The errno of `poll`.
    pub fn poll(&self, what: &str, socket: &Socket) -> Result<()> {
        self.see(what, events_text(socket.poll(EVERYTHING, Duration::ZERO)?));
        Ok(())
    }

    /// Waits until `poll(2)` reports all events of `wanted`, and until two polls in a row agree.
    /// Then adds to the trace all events that `poll` reports. Use this for a change that takes a
    /// moment: at the first poll, a timer on another processor may still be ending a connection. If
    /// `wanted` is not reported within [`patience`], adds the events of the last poll. They differ
    /// from the other side's events if the other side reported all of `wanted`.
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

    /// Adds the pending error to the trace. Reading it by `SO_ERROR` clears it.
    pub fn pending_error(&self, what: &str, socket: &Socket) {
        self.see(what, socket.pending_error().map(errno_name));
    }

    /// Adds to the trace whether `call` sleeps in the system call `number`. Then runs `meanwhile`,
    /// and adds the result of `call`.
    ///
    /// # Errors
    /// The errors of [`asleep`].
    pub fn sleeping<T: Shown + Send>(
        &self,
        what: &str,
        number: libc::c_long,
        call: impl FnOnce() -> io::Result<T> + Send,
        meanwhile: impl FnOnce(&Sleeper) -> Result<()>,
    ) -> Result<io::Result<T>> {
        let (slept, value, ()) = asleep(number, call, meanwhile)?;
        self.see(&format!("{what}: sleeps"), slept);
        self.see(what, value.shown());
        Ok(value)
    }

    /// Adds to the trace whether a receive call sleeps. Then runs `meanwhile`, and adds the call's
    /// result.
    ///
    /// # Errors
    /// The errors of [`asleep`].
    pub fn sleeping_receive(
        &self,
        socket: &Socket,
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let call = || socket.receive(&mut [0; 100], 0);
        let _ = self.sleeping("receive", libc::SYS_recvfrom, call, |_| meanwhile())?;
        Ok(())
    }

    /// Returns the notes that were added so far.
    pub fn notes(&self) -> Vec<(String, String)> {
        self.0.borrow().clone()
    }

    /// Returns all notes, and ends the trace.
    pub fn into_notes(self) -> Vec<(String, String)> {
        self.0.into_inner()
    }
}
