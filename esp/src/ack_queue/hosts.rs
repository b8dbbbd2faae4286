// SPDX-License-Identifier: GPL-2.0

//! A table of the hosts that have turns. With this table the queue gives each host its share of the
//! turns, and keeps hosts that leave turns unused from delaying others.

use super::{List, CREDIT, PARTS, ROUNDS};

/// Maximum number of hosts in the table. The table consists of sets of [`WAYS`] entries.
const HOSTS: usize = 64;
const WAYS: usize = 4;
const SETS: usize = HOSTS / WAYS;

/// A host with more debt than this, in [`PARTS`], gets no first turn in advance: its debt would
/// then exceed [`CREDIT`] turns.
const MOST_DEBT: u8 = (CREDIT - 1) * PARTS;

/// The trust that a host loses with an unused turn. A used turn restores 1.
const PASSED: i8 = 4;
/// The least trust that a host can have.
const LEAST_TRUST: i8 = -32;

/// A host that has turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Host {
    /// See [`Slot::of`](super::Slot::of).
    key: u64,
    /// The first round in which the host has no turn.
    next: u32,
    /// The first turns that the host had in advance and has not repaid, in parts of a turn (see
    /// [`PARTS`]). Each round in which the host has no turn repays one turn.
    debt: u8,
    /// The host's trust. If it is below 0, the host is untrusted, and its connections wait in a
    /// separate list.
    trust: i8,
}

impl Host {
    /// Returns in how many rounds, counted from `round`, the host already has a turn.
    #[inline]
    fn ahead(&self, round: u32) -> u32 {
        let ahead = self.next.wrapping_sub(round);
        // If the difference exceeds `ROUNDS`, `next` is a past round, or dates from before a wrap.
        if ahead > ROUNDS {
            0
        } else {
            ahead
        }
    }

    /// Returns the host's debt in this round.
    #[inline]
    fn debt(&self, round: u32) -> u8 {
        if self.ahead(round) > 0 {
            return self.debt;
        }
        let missed = u8::try_from(round.wrapping_sub(self.next)).unwrap_or(u8::MAX);
        self.debt.saturating_sub(missed.saturating_mul(PARTS))
    }

    /// Returns whether a different host may take the entry, because the entry only has the values
    /// that a new host starts with.
    #[inline]
    fn is_free(&self, round: u32) -> bool {
        self.ahead(round) == 0 && self.debt(round) == 0 && self.is_trusted()
    }

    /// Returns whether the host is trusted. Only the turns of trusted hosts may delay other hosts.
    #[inline]
    pub(super) fn is_trusted(&self) -> bool {
        self.trust == 0
    }

    /// Reserves a place in one of the next `most` rounds for a connection of the host. Returns the
    /// list in which the connection waits, or `None` if the host already has a place in each of
    /// these rounds.
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

    /// Gives back the place of a connection that left its list before it got a turn.
    #[inline]
    pub(super) fn return_place(&mut self, round: u32, first: bool) {
        if first && self.debt > 0 {
            self.debt = self.debt.saturating_sub(PARTS);
        } else if self.ahead(round) > 0 {
            self.next = self.next.wrapping_sub(1);
        }
    }

    /// Counts, in this round, a turn that was given at once because no other connection waited.
    #[inline]
    pub(super) fn count(&mut self, round: u32) {
        self.debt = self.debt(round);
        if self.ahead(round) == 0 {
            self.next = round.wrapping_add(1);
        }
    }

    /// Refunds `parts` parts of a turn ([`PARTS`]), because the host did not use them.
    #[inline]
    pub(super) fn refund(&mut self, round: u32, parts: u8) {
        self.debt = self.debt(round).saturating_sub(parts);
    }

    /// Updates the trust: lowers it after an unused turn (`passed`), raises it after an untrusted
    /// host has used a turn.
    #[cold]
    pub(super) fn update_trust(&mut self, passed: bool) {
        self.trust = if passed {
            self.trust.saturating_sub(PASSED).max(LEAST_TRUST)
        } else {
            self.trust.saturating_add(1).min(0)
        };
    }
}

/// A table of hosts with a fixed size. It needs no clean-up: a new host may take the entry of a
/// trusted host that has no debt and no turns in advance. A host without an entry is treated like
/// such a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hosts([Host; HOSTS]);

impl Default for Hosts {
    fn default() -> Self {
        Hosts([Host::default(); HOSTS])
    }
}

impl Hosts {
    /// Returns the entry of a host, and creates it if necessary; `None` if there is no room.
    #[inline]
    pub(super) fn find(&mut self, key: u64, round: u32) -> Option<&mut Host> {
        // Multiplicative hashing: the upper bits of the product depend on all bits of the key.
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
