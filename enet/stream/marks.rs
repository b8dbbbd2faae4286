// SPDX-License-Identifier: GPL-2.0

//! A record of used SYN cookies, so that no cookie makes a second connection.
//!
//! A copy of a client's first packet may arrive after its connection has ended. Every SYN|ACK of a
//! listener has a cookie for its number. Each connection that opens leaves a 32-bit mark in a table
//! of fixed size, where it replaces the mark at the same index. So a flood of clients needs no
//! further memory. But the flood replaces marks sooner, so copies are recognized for a shorter
//! time.

use crate::esp::cookie::{Mark, MARKS};
use crate::net::errno::prelude::*;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The marks of the used cookies of a namespace.
pub(crate) struct Marks(KVVec<AtomicU32>);

impl Marks {
    /// Creates an empty table.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let mut marks = KVVec::with_capacity(MARKS, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..MARKS {
            marks.push(AtomicU32::new(0), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Marks(marks))
    }

    /// Returns whether a connection has opened whose SYN|ACK had the cookie with this mark.
    pub(super) fn contains(&self, mark: Mark) -> bool {
        self.0
            .get(mark.index)
            .is_some_and(|tag| tag.load(Relaxed) == mark.tag)
    }

    /// Stores the mark of a connection that has opened.
    pub(super) fn add(&self, mark: Mark) {
        if let Some(tag) = self.0.get(mark.index) {
            tag.store(mark.tag, Relaxed);
        }
    }
}
