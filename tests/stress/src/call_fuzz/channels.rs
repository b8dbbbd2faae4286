// SPDX-License-Identifier: GPL-2.0-only

//! Makes channels, regions of the memory for arguments, and messages whose headers are mostly
//! valid.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libc::{c_int, c_long};

use super::arena::ROOM;
use super::calls::{words, Caller};
use guest::address::{EP_IOC_END_REGION, EP_IOC_REGION, EP_SO_DOMAIN};
use guest::prelude::*;

/// The keys of some regions that the threads of a process have made.
#[derive(Debug, Default)]
pub struct Keys([AtomicU64; 8]);

impl Caller<'_> {
    /// Makes `fd` a channel of the domain of `domain`.
    pub(super) fn join(&mut self, fd: u64, domain: u64) -> c_long {
        let value = self.put(&(domain as i32).to_ne_bytes()) as u64;
        let (level, name) = (SOL_EP as u64, EP_SO_DOMAIN as u64);
        Self::syscall(libc::SYS_setsockopt, [fd, level, name, value, 4, 0])
    }

    /// Returns the key of a region that some thread has made, or rarely another number.
    fn key(&mut self) -> u64 {
        let key = self.common.keys.0[self.rng.usize(..8)].load(Relaxed);
        match self.rng.u8(..32) {
            0 => self.rng.u64(..),
            1 => key ^ (1 << self.rng.u8(..64)),
            _ => key,
        }
    }

    /// Joins a domain, makes or ends a region, or sends a message.
    pub(super) fn channel(&mut self, fd: c_int, other: c_int) -> c_long {
        let fd = fd as u64;
        let ioctl =
            |request, argument| Self::syscall(libc::SYS_ioctl, [fd, request, argument, 0, 0, 0]);
        match self.rng.u8(..8) {
            0 => self.join(fd, other as u64),
            1 | 2 => {
                let length = self.rng.u64(..ROOM as u64);
                let place = self.memory(length as usize) as u64;
                let argument = self.put(&words(&[place, length, 0])) as *mut u64;
                let made = ioctl(EP_IOC_REGION, argument as u64);
                if made == 0 {
                    // SAFETY: The kernel has just written the numbers there. No reference to the
                    // memory exists; other threads may write to it, too.
                    let key = unsafe { argument.add(2).read_unaligned() };
                    self.common.keys.0[self.rng.usize(..8)].store(key, Relaxed);
                }
                made
            }
            3 => {
                let key = self.key();
                let argument = self.put(&words(&[0, 0, key])) as u64;
                ioctl(EP_IOC_END_REGION, argument)
            }
            _ => self.message_to(fd),
        }
    }

    fn message_to(&mut self, fd: u64) -> c_long {
        let wild = self.rng.u8(..32) == 0;
        let most = *self.rng.choice(&[0, 10, 3_000, 40_000]).unwrap_or(&0);
        let offset = match self.rng.u8(..16) {
            0 => self.rng.u64(..),
            1 => ROOM as u64,
            _ => self.rng.u64(..ROOM as u64 / 4),
        };
        let start = if wild {
            self.rng.u32(..).to_be_bytes()
        } else {
            [self.rng.u8(1..3), 0, 0, 0]
        };
        let mut bytes = start.to_vec();
        if start[0] == 2 && !wild {
            bytes[1] = self.rng.u8(..2);
        }
        bytes.extend([1, 2, 3, 4]);
        bytes.extend(self.key().to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.resize(bytes.len() + self.rng.usize(..=most), 7);
        let (place, length) = (self.put(&bytes) as u64, bytes.len() as u64);
        let flags = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as u64;
        Self::syscall(libc::SYS_sendto, [fd, place, length, flags, 0, 0])
    }
}
