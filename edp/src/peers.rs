// SPDX-License-Identifier: GPL-2.0

//! Answers of other hosts to queries, and which hosts did not answer.
//!
//! A peer is asked when a datagram leaves for it that not every host takes. The
//! datagram does not wait for the answer: later ones meet the limit that it tells. The
//! caller keeps a number of [`Bucket`]s, and chooses a peer's by a keyed hash, so that
//! nobody can fill the one of another.
//!
//! Times are nanoseconds of a monotonic clock.

use super::query::{flags, Capabilities, Nonce};

/// Peers in a bucket.
const WAYS: usize = 4;

const SECOND: u64 = 1_000_000_000;

/// A query may follow another one to the same peer after this time. Until then the
/// peer's entry stays, so that no other one can make it ask again.
pub const ASK_AGAIN: u64 = SECOND;
/// How long an answer counts.
pub const TOLD_FOR: u64 = 60 * SECOND;
/// How long a peer that has not answered within [`ASK_AGAIN`] is not asked again.
pub const SILENT_FOR: u64 = 10 * SECOND;

/// A peer: its address, and the device that leads to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Index of the device.
    pub ifindex: u32,
}

/// What a peer has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The largest datagram that it takes, bytes.
    pub largest: u16,
    /// Whether it takes connections that stand for ones of TCP.
    pub mapped: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Unused,
    /// Asked with this, and not answered yet.
    Asked(Nonce),
    /// Answered.
    Told { told: Told, at: u64 },
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    peer: Peer,
    /// When the last query left.
    asked: u64,
    state: State,
}

impl Entry {
    fn is_of(&self, peer: &Peer) -> bool {
        !matches!(self.state, State::Unused) && self.peer == *peer
    }

    /// Whether it still says something at `now`.
    fn is_fresh(&self, now: u64) -> bool {
        match self.state {
            State::Unused => false,
            State::Asked(_) => now < self.asked.saturating_add(ASK_AGAIN + SILENT_FOR),
            State::Told { at, .. } => now < at.saturating_add(TOLD_FOR),
        }
    }

    /// Whether another peer may have its place.
    fn may_go(&self, now: u64) -> bool {
        matches!(self.state, State::Unused) || now >= self.asked.saturating_add(ASK_AGAIN)
    }

    /// More for one that is missed more: an answer, and of two the one asked for later.
    fn worth(&self, now: u64) -> (bool, u64) {
        let told = matches!(self.state, State::Told { .. }) && self.is_fresh(now);
        (told, self.asked)
    }
}

/// The cache's answer to a sender for which it matters what a peer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// What it has told.
    Told(Told),
    /// Nothing.
    Nothing,
    /// Nothing, and a query with this nonce is to leave.
    Ask(Nonce),
}

/// A few peers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket([Entry; WAYS]);

impl Bucket {
    /// What `peer` has told, if the answer counts at `now`.
    pub fn told(&self, peer: &Peer, now: u64) -> Option<Told> {
        let entry = self.0.iter().find(|entry| entry.is_of(peer))?;
        match entry.state {
            State::Told { told, .. } if entry.is_fresh(now) => Some(told),
            _ => None,
        }
    }

    /// The largest datagram that `peer` takes, bytes, if it has told that and the answer counts at `now`.
    pub fn largest(&self, peer: &Peer, now: u64) -> Option<u16> {
        self.told(peer, now).map(|told| told.largest)
    }

    /// Looks `peer` up at `now`. If the caller is to ask it, `nonce` makes the query's nonce,
    /// and the query counts as sent.
    pub fn look_up(&mut self, peer: &Peer, now: u64, nonce: impl FnOnce() -> Nonce) -> Known {
        if let Some(told) = self.told(peer, now) {
            return Known::Told(told);
        }
        let entries = &mut self.0;
        let place = match entries.iter().position(|entry| entry.is_of(peer)) {
            Some(index) => entries.get_mut(index).filter(|e| !e.is_fresh(now)),
            None => {
                let free = entries.iter_mut().filter(|entry| entry.may_go(now));
                free.min_by_key(|entry| entry.worth(now))
            }
        };
        let Some(entry) = place else {
            return Known::Nothing;
        };
        let nonce = nonce();
        *entry = Entry {
            peer: *peer,
            asked: now,
            state: State::Asked(nonce),
        };
        Known::Ask(nonce)
    }

    /// Takes the answer of `peer` at `now`. `false` if it was not asked, or with another
    /// nonce; then nothing changes.
    pub fn answer(&mut self, peer: &Peer, now: u64, nonce: Nonce, answer: &Capabilities) -> bool {
        let asked = |entry: &&mut Entry| {
            let pending = matches!(entry.state, State::Asked(asked) if asked == nonce);
            pending && entry.is_of(peer) && entry.is_fresh(now)
        };
        let Some(entry) = self.0.iter_mut().find(asked) else {
            return false;
        };
        let told = Told {
            largest: answer.largest_datagram.unwrap_or(u16::MAX),
            mapped: answer.flags.unwrap_or(0) & flags::MAPPED != 0,
        };
        entry.state = State::Told { told, at: now };
        true
    }

    /// Forgets what `peer` has told. It is asked again when its next turn comes.
    pub fn doubt(&mut self, peer: &Peer) {
        let told =
            |entry: &&mut Entry| matches!(entry.state, State::Told { .. }) && entry.is_of(peer);
        if let Some(entry) = self.0.iter_mut().find(told) {
            *entry = Entry::default();
        }
    }

    /// Forgets the peers that the device with index `ifindex` led to.
    pub fn forget(&mut self, ifindex: u32) {
        let gone = self.0.iter_mut().filter(|e| e.peer.ifindex == ifindex);
        gone.for_each(|entry| *entry = Entry::default());
    }
}
