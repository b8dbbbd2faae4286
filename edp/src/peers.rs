// SPDX-License-Identifier: GPL-2.0

//! Answers of other hosts to queries, and which hosts did not answer.
//!
//! A peer is asked when a datagram leaves for it that not every host takes. The
//! datagram does not wait for the answer: later ones meet the limit that it tells. A peer
//! that is still of interest is asked again before its answer expires. The
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
/// The age of an answer from which on the peer is asked again while the answer still counts.
pub const REFRESH_AFTER: u64 = TOLD_FOR / 2;
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

/// An entry without a query and without an answer is unused.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    peer: Peer,
    /// When the last query left.
    asked: u64,
    /// That query's nonce, if there is no answer to it.
    pending: Option<Nonce>,
    /// The last answer, and when it came.
    told: Option<(Told, u64)>,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.pending.is_some() || self.told.is_some()
    }

    fn is_of(&self, peer: &Peer) -> bool {
        self.is_used() && self.peer == *peer
    }

    /// The last answer, if it counts at `now`, and its age.
    fn told(&self, now: u64) -> Option<(Told, u64)> {
        let (told, at) = self.told?;
        let age = now.saturating_sub(at);
        (age < TOLD_FOR).then_some((told, age))
    }

    /// Whether the last query may still be answered at `now`.
    fn is_pending(&self, now: u64) -> bool {
        self.pending.is_some() && now < self.asked.saturating_add(ASK_AGAIN + SILENT_FOR)
    }

    /// Whether another peer may have its place.
    fn may_go(&self, now: u64) -> bool {
        !self.is_used() || now >= self.asked.saturating_add(ASK_AGAIN)
    }

    /// More for one that is missed more: an answer, and of two the one asked for later.
    fn worth(&self, now: u64) -> (bool, u64) {
        (self.told(now).is_some(), self.asked)
    }

    /// A query leaves at `now`.
    fn ask(&mut self, now: u64, nonce: Nonce) {
        self.asked = now;
        self.pending = Some(nonce);
    }
}

/// The cache's answer to a sender for which it matters what a peer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// What it has told. With a nonce, a query with that is to be sent: the answer expires soon.
    Told(Told, Option<Nonce>),
    /// Nothing.
    Nothing,
    /// Nothing, and a query with this nonce is to be sent.
    Ask(Nonce),
}

impl Known {
    /// The nonce of the query that is to be sent.
    pub fn query(self) -> Option<Nonce> {
        match self {
            Known::Told(_, nonce) => nonce,
            Known::Ask(nonce) => Some(nonce),
            Known::Nothing => None,
        }
    }
}

/// A few peers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket([Entry; WAYS]);

impl Bucket {
    /// What `peer` has told, if the answer counts at `now`.
    pub fn told(&self, peer: &Peer, now: u64) -> Option<Told> {
        let entry = self.0.iter().find(|entry| entry.is_of(peer))?;
        entry.told(now).map(|(told, _)| told)
    }

    /// The largest datagram that `peer` takes, bytes, if it has told that and the answer counts at
    /// `now`.
    pub fn largest(&self, peer: &Peer, now: u64) -> Option<u16> {
        self.told(peer, now).map(|told| told.largest)
    }

    /// Looks `peer` up at `now`. If the caller is to ask it, `nonce` makes the query's nonce,
    /// and the query counts as sent.
    pub fn look_up(&mut self, peer: &Peer, now: u64, nonce: impl FnOnce() -> Nonce) -> Known {
        let entries = &mut self.0;
        if let Some(entry) = entries.iter_mut().find(|entry| entry.is_of(peer)) {
            let told = entry.told(now);
            let is_old = told.is_none_or(|(_, age)| age >= REFRESH_AFTER);
            let nonce = (is_old && !entry.is_pending(now)).then(nonce);
            if let Some(nonce) = nonce {
                entry.ask(now, nonce);
            }
            return match (told, nonce) {
                (Some((told, _)), nonce) => Known::Told(told, nonce),
                (None, Some(nonce)) => Known::Ask(nonce),
                (None, None) => Known::Nothing,
            };
        }
        let free = entries.iter_mut().filter(|entry| entry.may_go(now));
        let Some(entry) = free.min_by_key(|entry| entry.worth(now)) else {
            return Known::Nothing;
        };
        let nonce = nonce();
        *entry = Entry {
            peer: *peer,
            ..Entry::default()
        };
        entry.ask(now, nonce);
        Known::Ask(nonce)
    }

    /// Takes the answer of `peer` at `now`. `false` if it was not asked, or with another
    /// nonce; then nothing changes.
    pub fn answer(&mut self, peer: &Peer, now: u64, nonce: Nonce, answer: &Capabilities) -> bool {
        let asked = |entry: &&mut Entry| {
            entry.pending == Some(nonce) && entry.is_of(peer) && entry.is_pending(now)
        };
        let Some(entry) = self.0.iter_mut().find(asked) else {
            return false;
        };
        let told = Told {
            largest: answer.largest_datagram.unwrap_or(u16::MAX),
            mapped: answer.flags.unwrap_or(0) & flags::MAPPED != 0,
        };
        entry.told = Some((told, now));
        entry.pending = None;
        true
    }

    /// Forgets what `peer` has told. It is asked again when its next turn comes.
    pub fn doubt(&mut self, peer: &Peer) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.is_of(peer)) {
            entry.told = None;
        }
    }

    /// Forgets the peers that the device with index `ifindex` led to.
    pub fn forget(&mut self, ifindex: u32) {
        let gone = self.0.iter_mut().filter(|e| e.peer.ifindex == ifindex);
        gone.for_each(|entry| *entry = Entry::default());
    }
}
