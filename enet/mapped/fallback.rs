// SPDX-License-Identifier: GPL-2.0

//! Destinations that refused a mapped connection over ESP. For some time, connections to these
//! destinations use TCP without trying ESP.
//!
//! The table has a fixed size: a new destination replaces the one whose hash selects the same
//! entry.

use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    net::{random::Secret, timer},
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PLACES: usize = 256;

/// Lifetime of an entry, in nanoseconds.
const LASTS: u64 = 10_000_000_000;

/// The bits of an entry that identify its destination. The other bits are the end of the entry's
/// lifetime, in units of 2^20 nanoseconds.
const TAG: u64 = (1 << 20) - 1;

/// The destinations that have refused a connection from a namespace.
pub(crate) struct Refusals {
    secret: Secret,
    places: KVec<AtomicU64>,
}

impl Refusals {
    /// Creates an empty table.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let mut places = KVec::with_capacity(PLACES, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..PLACES {
            places.push(AtomicU64::new(0), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Refusals {
            secret: Secret::new(),
            places,
        })
    }

    /// Returns the entry for a destination, and the tag that identifies the destination there.
    fn place(&self, to: &Address) -> Option<(&AtomicU64, u64)> {
        let port = u64::from(to.ifindex) << 16 | u64::from(to.port);
        let hash = self.secret.hash([to.mac.to_bits(), port, 0]);
        let place = self.places.get(hash as usize % PLACES)?;
        Some((place, (hash >> 32) & TAG))
    }

    /// Adds `to`, which has refused a connection.
    pub(super) fn add(&self, to: &Address) {
        if let Some((place, tag)) = self.place(to) {
            let end = timer::now().saturating_add(LASTS);
            place.store(end & !TAG | tag, Relaxed);
        }
    }

    /// Returns whether `to` has refused recently. In rare cases, also returns `true` if the hash of
    /// a different destination that has refused selects the same entry and tag.
    pub(super) fn contains(&self, to: &Address) -> bool {
        self.place(to).is_some_and(|(place, tag)| {
            let word = place.load(Relaxed);
            word & TAG == tag && timer::now() < word & !TAG
        })
    }
}
