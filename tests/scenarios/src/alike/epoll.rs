// SPDX-License-Identifier: GPL-2.0-only

//! `epoll(7)`, `select(2)` and `ppoll(2)` on sockets.

use std::io::Result;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use libc::c_int;

use super::events_text;
use crate::alike::prelude::*;

/// `EPOLLIN` and its like as `epoll_ctl` takes them.
pub mod events {
    /// There is something to read, or a connection to accept.
    pub const IN: u32 = libc::EPOLLIN as u32;
    /// There is room to write.
    pub const OUT: u32 = libc::EPOLLOUT as u32;
    /// The peer has ended its half.
    pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
    /// Edges only.
    pub const EDGE: u32 = libc::EPOLLET as u32;
    /// One event, then silence until armed anew.
    pub const ONCE: u32 = libc::EPOLLONESHOT as u32;
    /// One of several instances is woken.
    pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
}

/// An epoll instance; closed when dropped.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// `epoll_create1(2)`.
    ///
    /// # Errors
    /// The call's errno, as for every function here.
    pub fn new() -> Result<Self> {
        // SAFETY: epoll_create1 takes an integer.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just returned this descriptor and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// An instance that watches one socket, under the key 0.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn of(socket: &impl AsRawFd, events: u32) -> Result<Self> {
        let epoll = Self::new()?;
        epoll.add(socket, events, 0)?;
        Ok(epoll)
    }

    /// `epoll_ctl(2)`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn control(&self, operation: c_int, fd: RawFd, events: u32, key: u64) -> Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: `event` is readable; the kernel checks the descriptors.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd, &mut event) }).map(drop)
    }

    /// Adds a descriptor under `key`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn add(&self, socket: &impl AsRawFd, events: u32, key: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket.as_raw_fd(), events, key)
    }

    /// Changes what is asked for.
    ///
    /// # Errors
    /// The call's errno.
    pub fn modify(&self, socket: &impl AsRawFd, events: u32, key: u64) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket.as_raw_fd(), events, key)
    }

    /// `epoll_wait(2)` for at most four events: their keys and bits, by key.
    ///
    /// # Errors
    /// The call's errno.
    pub fn wait(&self, timeout: Duration) -> Result<Vec<(u64, u32)>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        // SAFETY: there is room for the four events asked for.
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
    /// Notes what `epoll_wait` has right now.
    ///
    /// # Errors
    /// The errno of `epoll_wait`.
    pub fn epoll(&self, what: &str, epoll: &Epoll) -> Outcome {
        self.see(what, found_text(&epoll.wait(Duration::ZERO)?));
        Ok(())
    }

    /// Notes what `epoll_wait` has first, after a wait if need be.
    ///
    /// # Errors
    /// The errno of `epoll_wait`.
    pub fn epoll_next(&self, what: &str, epoll: &Epoll) -> Outcome {
        self.see(what, found_text(&epoll.wait(patience())?));
        Ok(())
    }

    /// Waits until events have brought all of `wanted` for the socket of the key 0, in however many
    /// edges, and notes all that they brought. For what wakes more than once: how many edges come
    /// of it is a matter of timing.
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

    /// Notes in which of the three sets `select(2)` finds a descriptor.
    ///
    /// # Errors
    /// The errno of `select`.
    pub fn select(&self, what: &str, socket: &impl AsRawFd) -> Outcome {
        let fd = socket.as_raw_fd();
        // SAFETY: all-zero is a valid fd_set, which is plain data.
        let mut sets: [libc::fd_set; 3] = unsafe { std::mem::zeroed() };
        let mut none = libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        for set in &mut sets {
            // SAFETY: a process with few descriptors: the number is below FD_SETSIZE.
            unsafe { libc::FD_SET(fd, set) };
        }
        let [read, write, except] = &mut sets;
        // SAFETY: three sets and a time, alive and writable for the call.
        check(unsafe { libc::select(fd + 1, read, write, except, &mut none) })?;
        let names = ["readable", "writable", "exceptional"];
        let found: Vec<&str> = sets
            .iter()
            .zip(names)
            // SAFETY: as above.
            .filter(|(set, _)| unsafe { libc::FD_ISSET(fd, *set) })
            .map(|(_, name)| name)
            .collect();
        self.see(what, found.join(", "));
        Ok(())
    }
}
