// SPDX-License-Identifier: GPL-2.0-only

//! Runs operations of `io_uring`, one at a time or a few in parallel.

use std::collections::{HashMap, VecDeque};

use anyhow::{Context, Result};
use io_uring::{squeue, IoUring};

/// The completion of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The operation's result, or a negative errno.
    pub result: i32,
    /// The completion's flags, `IORING_CQE_F_*`.
    pub flags: u32,
}

/// A ring, and the completions that no method has returned yet.
pub struct Ring {
    ring: IoUring,
    come: HashMap<u64, VecDeque<Completion>>,
}

impl Ring {
    /// Makes a ring for a few operations.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn new() -> Result<Self> {
        Ok(Self {
            ring: IoUring::new(8).context("io_uring_setup")?,
            come: HashMap::new(),
        })
    }

    /// Registers `bytes` as the ring's only fixed buffer, with index 0.
    ///
    /// # Safety
    /// The buffer must live as long as the ring.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub unsafe fn register(&mut self, bytes: &[u8]) -> Result<()> {
        let buffer = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: By this function's contract the buffer outlives the ring; the kernel reads the
        // vector during the call only.
        unsafe { self.ring.submitter().register_buffers(&[buffer]) }.context("register_buffers")
    }

    /// Starts an operation; `id` identifies its completions.
    ///
    /// # Safety
    /// All memory that the operation points to must live until [`Ring::wait`] has returned the
    /// operation's completion.
    ///
    /// # Errors
    /// When it cannot be submitted.
    pub unsafe fn start(&mut self, id: u64, entry: squeue::Entry) -> Result<()> {
        let entry = entry.user_data(id);
        // SAFETY: By this function's contract all memory that the entry points to lives until its
        // completion.
        unsafe { self.ring.submission().push(&entry) }.context("a full ring")?;
        self.ring.submit().context("io_uring_enter")?;
        Ok(())
    }

    /// Waits for the completion of `id`.
    ///
    /// # Errors
    /// When waiting fails.
    pub fn wait(&mut self, id: u64) -> Result<Completion> {
        loop {
            if let Some(completion) = self.take(id) {
                return Ok(completion);
            }
            self.ring.submit_and_wait(1).context("io_uring_enter")?;
            self.gather();
        }
    }

    /// Returns a completion of `id`, if there is one, without waiting.
    pub fn look(&mut self, id: u64) -> Option<Completion> {
        self.gather();
        self.take(id)
    }

    /// Takes the next gathered completion of `id`; an operation may have several.
    fn take(&mut self, id: u64) -> Option<Completion> {
        self.come.get_mut(&id)?.pop_front()
    }

    fn gather(&mut self) {
        for entry in self.ring.completion() {
            let completion = Completion {
                result: entry.result(),
                flags: entry.flags(),
            };
            self.come
                .entry(entry.user_data())
                .or_default()
                .push_back(completion);
        }
    }

    /// Runs one operation to completion.
    ///
    /// # Safety
    /// All memory that the operation points to must live for the call.
    ///
    /// # Errors
    /// When it cannot be submitted.
    pub unsafe fn once(&mut self, entry: squeue::Entry) -> Result<Completion> {
        // SAFETY: By this function's contract the memory lives for this call, which waits for the
        // completion.
        unsafe { self.start(u64::MAX, entry) }?;
        self.wait(u64::MAX)
    }
}
