// SPDX-License-Identifier: GPL-2.0

//! Destinations that refused a mapped connection of ESP: for a while the next ones go to TCP at
//! once.
//!
//! They are kept in memory that does not grow: one that falls on another's place takes it.

use crate::{
    address::Address,
    net::{random::Secret, timer},
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PLACES: usize = 256;

/// For how long, nanoseconds.
const LASTS: u64 = 10_000_000_000;

/// Bits of a place that tell which destination it is of; the others are the end of its time, in
/// units of 2^20 nanoseconds.
const TAG: u64 = (1 << 20) - 1;

/// A namespace's destinations.
pub(crate) struct Refusals {
    secret: Secret,
    places: [AtomicU64; PLACES],
}

impl Refusals {
    /// None.
    pub(crate) fn new() -> Self {
        Refusals {
            secret: Secret::new(),
            places: [const { AtomicU64::new(0) }; PLACES],
        }
    }

    /// The place of a destination, and its tag.
    fn place(&self, to: &Address) -> Option<(&AtomicU64, u64)> {
        let port = u64::from(to.ifindex) << 16 | u64::from(to.port);
        let hash = self.secret.hash([to.mac.to_bits(), port, 0]);
        let place = self.places.get(hash as usize % PLACES)?;
        Some((place, (hash >> 32) & TAG))
    }

    /// `to` has refused.
    pub(super) fn add(&self, to: &Address) {
        if let Some((place, tag)) = self.place(to) {
            let end = timer::now().saturating_add(LASTS);
            place.store(end & !TAG | tag, Relaxed);
        }
    }

    /// Whether `to` has refused a short time ago. Now and then another destination has.
    pub(super) fn contains(&self, to: &Address) -> bool {
        self.place(to).is_some_and(|(place, tag)| {
            let word = place.load(Relaxed);
            word & TAG == tag && timer::now() < word & !TAG
        })
    }
}
