// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completions of sends from the program's own memory: the kernel reports on the socket's error
//! queue when it has released the pages of a send.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{recvmsg, ControlMessageOwned, MsgFlags, UnknownCmsg};
use sockaddr_en::constants::{EP_RECVERR, SOL_EP};
use socket2::SockRef;

use super::polled::wait;

/// `SO_EE_ORIGIN_ZEROCOPY` of `linux/errqueue.h`: the error is a completion.
const ORIGIN_ZEROCOPY: u8 = 5;
/// `SO_EE_CODE_ZEROCOPY_COPIED` of `linux/errqueue.h`: the kernel made a copy.
const CODE_COPIED: u8 = 1;

/// If more sends than this are not completed, the sender reads completions. Each pending send uses
/// socket memory, which `net.core.optmem_max` limits.
const MANY: u32 = 64;

/// Room for one control message of the error queue: an error and an IPv6 address.
const CONTROL_SPACE: usize = 128;

/// Counts the sends of a socket that do not copy, and reads their completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Completions {
    /// Number of sends that are not completed.
    pending: u32,
    /// Number of completed sends, whose memory the kernel has released.
    sends: u64,
    /// Number of completed sends that the kernel copied.
    copied: u64,
}

impl Completions {
    /// Counts a send that will be completed.
    pub(super) fn expect_one(&mut self) {
        self.pending += 1;
    }

    /// Returns the number of sends that are not completed.
    pub(super) fn pending(&self) -> u32 {
        self.pending
    }

    /// Forgets the sends that are not completed.
    pub(super) fn forget(&mut self) {
        self.pending = 0;
    }

    /// Reads all completions from the error queue. Returns whether there were any.
    pub(super) fn take(&mut self, socket: &impl AsFd) -> io::Result<bool> {
        let mut any = false;
        while self.pending > 0 {
            let Some((sends, copied)) = completion(socket)? else {
                break;
            };
            any = true;
            self.pending = self.pending.saturating_sub(sends);
            self.sends += u64::from(sends);
            if copied {
                self.copied += u64::from(sends);
            }
        }
        Ok(any)
    }

    /// Reads all completions if many sends are pending.
    pub(super) fn take_if_many(&mut self, socket: &impl AsFd) -> io::Result<()> {
        if self.pending > MANY {
            self.take(socket)?;
        }
        Ok(())
    }

    /// Waits until at least one send is completed, for `most` at most.
    pub(super) fn await_one(&mut self, socket: &impl AsFd, most: Duration) -> io::Result<()> {
        while !self.take(socket)? {
            // poll(2) reports a queued completion as an error, and waits for errors even if no
            // events are requested.
            let events = wait(socket, PollFlags::empty(), most)?;
            if events.is_empty() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if self.take(socket)? {
                return Ok(());
            }
            if let Some(error) = SockRef::from(&socket.as_fd()).take_error()? {
                return Err(error);
            }
            if events.contains(PollFlags::POLLHUP) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        Ok(())
    }

    /// Waits until all sends are completed, for each of them for `most` at most.
    pub(super) fn settle(&mut self, socket: &impl AsFd, most: Duration) -> io::Result<()> {
        while self.pending > 0 {
            self.await_one(socket, most)?;
        }
        Ok(())
    }

    /// Returns a sentence on sends that the kernel copied, if there were any.
    pub(super) fn remark(&self) -> Option<String> {
        let Self { sends, copied, .. } = self;
        (*copied > 0)
            .then(|| format!("the kernel copied {copied} of {sends} sends here all the same"))
    }

    /// Returns the number of completed sends.
    #[cfg(test)]
    pub(super) fn completed(&self) -> u64 {
        self.sends
    }
}

/// Reads the next completion from a socket's error queue, if there is one. Returns the number of
/// completed sends, and whether the kernel copied them.
fn completion(socket: &impl AsFd) -> io::Result<Option<(u32, bool)>> {
    let mut control = [0; CONTROL_SPACE];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    loop {
        let message = recvmsg::<()>(
            socket.as_fd().as_raw_fd(),
            &mut [],
            Some(&mut control),
            flags,
        );
        let message = match message {
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) => continue,
            message => message?,
        };
        for control in message.cmsgs()? {
            let report = match &control {
                ControlMessageOwned::Ipv4RecvErr(error, _) => Report::from(error),
                ControlMessageOwned::Ipv6RecvErr(error, _) => Report::from(error),
                ControlMessageOwned::Unknown(other) => match Report::of_enet(other) {
                    Some(report) => report,
                    None => continue,
                },
                _ => continue,
            };
            if report.origin == ORIGIN_ZEROCOPY {
                // The completion covers the sends with the numbers `first` to `last`. Numbers start
                // at 0, and wrap at 2^32.
                let sends = report.last.wrapping_sub(report.first).wrapping_add(1);
                return Ok(Some((sends, report.code & CODE_COPIED != 0)));
            }
        }
        // The queue had something other than a completion, such as a timestamp or an ICMP error.
    }
}

/// The fields of a `struct sock_extended_err` that are used.
struct Report {
    origin: u8,
    code: u8,
    first: u32,
    last: u32,
}

impl From<&libc::sock_extended_err> for Report {
    fn from(error: &libc::sock_extended_err) -> Self {
        Self {
            origin: error.ee_origin,
            code: error.ee_code,
            first: error.ee_info,
            last: error.ee_data,
        }
    }
}

impl Report {
    /// Returns the extended error of ESP or EDP from a control message that nix does not know.
    fn of_enet(message: &UnknownCmsg) -> Option<Self> {
        let header = &message.cmsg_header;
        if (header.cmsg_level, header.cmsg_type) != (SOL_EP, EP_RECVERR) {
            return None;
        }
        let bytes = message.data_bytes.first_chunk::<16>()?;
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        Some(Self {
            origin: bytes[4],
            code: bytes[6],
            first: word(8),
            last: word(12),
        })
    }
}
