// SPDX-License-Identifier: GPL-2.0

//! SYN cookies that have made a connection: none of them makes another one.
//!
//! A copy of a client's first packet may arrive when its connection has ended. What is kept of a
//! cookie is a mark of 32 bits in a table that does not grow: a mark that falls on another one's
//! place takes it. So a flood of clients that answer cookies shortens the time for which a copy is
//! known, and costs no memory.

use crate::esp::cookie::MARKS;
use crate::net::errno::prelude::*;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A namespace's marks.
pub(crate) struct Marks(KVVec<AtomicU32>);

impl Marks {
    /// None.
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

    /// Whether the cookie with this mark has made a connection.
    pub(super) fn contains(&self, (place, tag): (usize, u32)) -> bool {
        self.0
            .get(place)
            .is_some_and(|mark| mark.load(Relaxed) == tag)
    }

    /// The cookie with this mark has made a connection.
    pub(super) fn add(&self, (place, tag): (usize, u32)) {
        if let Some(mark) = self.0.get(place) {
            mark.store(tag, Relaxed);
        }
    }
}
