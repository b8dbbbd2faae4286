// SPDX-License-Identifier: GPL-2.0

//! What is known of the hosts that have turns: their rounds, their debt, and whether they use what
//! they get.

use super::{List, CREDIT, PARTS, ROUNDS};

/// Hosts that the table knows, in sets of [`WAYS`].
const HOSTS: usize = 64;
const WAYS: usize = 4;
const SETS: usize = HOSTS / WAYS;

/// With more debt a host has no more first turns before the others, in [`PARTS`].
const MOST_DEBT: u8 = (CREDIT - 1) * PARTS;

/// What a turn that passed costs a host's trust; one that was used gives 1 back.
const PASSED: i8 = 4;
/// The least trust.
const LEAST_TRUST: i8 = -32;

/// A host that has turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Host {
    /// See [`Slot::of`](super::Slot::of).
    key: u64,
    /// The first round in which it has no turn.
    next: u32,
    /// First turns that it had beyond those of its rounds, in [`PARTS`]. A round without a turn
    /// makes up for one.
    debt: u8,
    /// Below 0, its connections wait aside.
    trust: i8,
}

impl Host {
    /// How many rounds from `round` on it has a turn in already.
    #[inline]
    fn ahead(&self, round: u32) -> u32 {
        let ahead = self.next.wrapping_sub(round);
        // More is a round that is over, or was before numbers wrapped.
        if ahead > ROUNDS {
            0
        } else {
            ahead
        }
    }

    /// Its debt by now.
    #[inline]
    fn debt(&self, round: u32) -> u8 {
        if self.ahead(round) > 0 {
            return self.debt;
        }
        let missed = u8::try_from(round.wrapping_sub(self.next)).unwrap_or(u8::MAX);
        self.debt.saturating_sub(missed.saturating_mul(PARTS))
    }

    /// Whether nothing need be known of it: so is one that was never seen.
    #[inline]
    fn is_free(&self, round: u32) -> bool {
        self.ahead(round) == 0 && self.debt(round) == 0 && self.is_trusted()
    }

    /// Whether it may hold others up.
    #[inline]
    pub(super) fn is_trusted(&self) -> bool {
        self.trust == 0
    }

    /// The list in which a connection of it waits, in one of the next `most` rounds at the latest;
    /// `None` if there is no place in these.
    #[inline]
    pub(super) fn place(&mut self, round: u32, most: u32, first: bool) -> Option<List> {
        let ahead = self.ahead(round);
        self.debt = self.debt(round);
        if first && ahead > 0 && self.debt <= MOST_DEBT {
            self.debt = self.debt.saturating_add(PARTS);
            return Some(List::FIRST);
        }
        if ahead >= most {
            return None;
        }
        let place = round.wrapping_add(ahead);
        self.next = place.wrapping_add(1);
        Some(if first && ahead == 0 {
            List::FIRST
        } else {
            List::of_round(place)
        })
    }

    /// A connection has left its list without a turn.
    #[inline]
    pub(super) fn return_place(&mut self, round: u32, first: bool) {
        if first && self.debt > 0 {
            self.debt = self.debt.saturating_sub(PARTS);
        } else if self.ahead(round) > 0 {
            self.next = self.next.wrapping_sub(1);
        }
    }

    /// It had a turn in this round, which nobody had to wait for.
    #[inline]
    pub(super) fn count(&mut self, round: u32) {
        self.debt = self.debt(round);
        if self.ahead(round) == 0 {
            self.next = round.wrapping_add(1);
        }
    }

    /// Of a turn it did not use so many [`PARTS`].
    #[inline]
    pub(super) fn refund(&mut self, round: u32, parts: u8) {
        self.debt = self.debt(round).saturating_sub(parts);
    }

    /// It has let a turn pass, or has used one that it had without trust.
    #[cold]
    pub(super) fn update_trust(&mut self, passed: bool) {
        self.trust = if passed {
            self.trust.saturating_sub(PASSED).max(LEAST_TRUST)
        } else {
            self.trust.saturating_add(1).min(0)
        };
    }
}

/// A table of hosts. It needs no memory of its own accord and no cleaning up: a host that is not
/// ahead of others is forgotten when its place is needed. One that finds no place is treated like
/// one that is never ahead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hosts([Host; HOSTS]);

impl Default for Hosts {
    fn default() -> Self {
        Hosts([Host::default(); HOSTS])
    }
}

impl Hosts {
    /// What is known of a host, or is from now on; `None` if there is no room for it.
    #[inline]
    pub(super) fn find(&mut self, key: u64, round: u32) -> Option<&mut Host> {
        // Multiplicative hashing: the upper bits depend on all of the key.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let set = (hash as usize % SETS).saturating_mul(WAYS);
        let set = self.0.get_mut(set..set.saturating_add(WAYS))?;
        let known = set.iter().position(|host| host.key == key);
        let way = known.or_else(|| set.iter().position(|host| host.is_free(round)))?;
        let host = set.get_mut(way)?;
        if known.is_none() {
            *host = Host {
                key,
                next: round,
                ..Host::default()
            };
        }
        Some(host)
    }
}
