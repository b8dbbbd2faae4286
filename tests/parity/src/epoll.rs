// SPDX-License-Identifier: GPL-2.0-only

//! Calls `epoll(7)`, `select(2)` and `ppoll(2)` for sockets, and adds the results to a trace.

use std::io::Result;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::c_int;

use super::events_text;
use crate::prelude::*;

/// `EPOLLIN` and other events, of the type that `epoll_ctl` takes.
pub mod events {
    /// Data to read, or a connection to accept.
    pub const IN: u32 = libc::EPOLLIN as u32;
    /// Room to write.
    pub const OUT: u32 = libc::EPOLLOUT as u32;
    /// The peer has shut down its sending half.
    pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
    /// Edge-triggered.
    pub const EDGE: u32 = libc::EPOLLET as u32;
    /// One event, then none until the entry is re-armed.
    pub const ONCE: u32 = libc::EPOLLONESHOT as u32;
    /// An event wakes only one of several instances.
    pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
}

/// An epoll instance, which is closed when this value is dropped.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// Makes an instance: `epoll_create1(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn new() -> Result<Self> {
        // SAFETY: `epoll_create1` takes an integer and no pointer.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: The kernel has just returned this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// Makes an instance that watches one socket, with the key 0.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn of(socket: &impl AsRawFd, events: u32) -> Result<Self> {
        let epoll = Self::new()?;
        epoll.add(socket, events, 0)?;
        Ok(epoll)
    }

    /// Adds, changes or removes an entry: `epoll_ctl(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn control(&self, operation: c_int, fd: RawFd, events: u32, key: u64) -> Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: `event` is readable during the call; the kernel checks both descriptors.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd, &mut event) }).map(drop)
    }

    /// Adds a descriptor, with `key` to recognize its events.
    ///
    /// # Errors
    /// The call's errno.
    pub fn add(&self, socket: &impl AsRawFd, events: u32, key: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket.as_raw_fd(), events, key)
    }

    /// Changes the events for which a descriptor is watched, and its key.
    ///
    /// # Errors
    /// The call's errno.
    pub fn modify(&self, socket: &impl AsRawFd, events: u32, key: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket.as_raw_fd(), events, key)
    }

    /// Calls `epoll_wait(2)` for at most four events; returns keys and event bits, sorted by key.
    ///
    /// # Errors
    /// The call's errno.
    pub fn wait(&self, timeout: Duration) -> Result<Vec<(u64, u32)>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        // SAFETY: `events` has room for the four events that the call may return.
        let count = check(unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                4,
                timeout.as_millis() as c_int,
            )
        })?;
        let mut found: Vec<_> = events[..count as usize]
            .iter()
            .map(|event| (event.u64, event.events))
            .collect();
        found.sort_unstable();
        Ok(found)
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn found_text(found: &[(u64, u32)]) -> String {
    match found {
        [] => "no event".into(),
        [(0, events)] => events_text(*events as i16),
        many => many
            .iter()
            .map(|(key, events)| format!("{key} {}", events_text(*events as i16)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

impl Trace {
    /// Adds to the trace the events that `epoll_wait` returns at once.
    ///
    /// # Errors
    /// The errno of `epoll_wait`.
    pub fn epoll(&self, what: &str, epoll: &Epoll) -> Outcome {
        self.see(what, found_text(&epoll.wait(Duration::ZERO)?));
        Ok(())
    }

    /// Waits for events, and adds to the trace the first ones that `epoll_wait` returns.
    ///
    /// # Errors
    /// The errno of `epoll_wait`.
    pub fn epoll_next(&self, what: &str, epoll: &Epoll) -> Outcome {
        self.see(what, found_text(&epoll.wait(patience())?));
        Ok(())
    }

    /// Waits until the socket with the key 0 has reported all bits of `wanted`, which may take
    /// several edges. Adds all reported bits to the trace. Use this for a change that may cause
    /// several edges, since their number depends on timing.
    ///
    /// # Errors
    /// The errno of `epoll_wait`.
    pub fn epoll_until(&self, what: &str, epoll: &Epoll, wanted: u32) -> Outcome {
        let end = Instant::now() + patience();
        let mut all = 0;
        while all & wanted != wanted {
            let left = end.saturating_duration_since(Instant::now());
            let found = epoll.wait(left)?;
            if found.is_empty() {
                break;
            }
            all |= found.iter().fold(0, |all, (_, events)| all | events);
        }
        self.see(what, events_text(all as i16));
        Ok(())
    }

    /// Adds to the trace in which of the three sets `select(2)` finds a descriptor.
    ///
    /// # Errors
    /// The errno of `select`.
    pub fn select(&self, what: &str, socket: &impl AsRawFd) -> Outcome {
        let fd = socket.as_raw_fd();
        // SAFETY: All-zero bytes are a valid `fd_set`, which is plain data.
        let mut sets: [libc::fd_set; 3] = unsafe { std::mem::zeroed() };
        let mut none = libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        for set in &mut sets {
            // SAFETY: `set` is writable. The process has few descriptors, so `fd` is below
            // FD_SETSIZE.
            unsafe { libc::FD_SET(fd, set) };
        }
        let [read, write, except] = &mut sets;
        // SAFETY: The three sets and the time are alive and writable during the call.
        check(unsafe { libc::select(fd + 1, read, write, except, &mut none) })?;
        let names = ["readable", "writable", "exceptional"];
        let found: Vec<&str> = sets
            .iter()
            .zip(names)
            // SAFETY: `set` is readable, and `fd` is below FD_SETSIZE as for FD_SET.
            .filter(|(set, _)| unsafe { libc::FD_ISSET(fd, *set) })
            .map(|(_, name)| name)
            .collect();
        self.see(what, found.join(", "));
        Ok(())
    }
}
