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
pub const QUERY_INTERVAL: u64 = SECOND;
/// How long an answer counts.
pub const ANSWER_LIFETIME: u64 = 60 * SECOND;
/// The age of an answer from which on the peer is asked again while the answer still counts.
pub const REFRESH_AFTER: u64 = ANSWER_LIFETIME / 2;
/// How long a peer that has not answered within [`QUERY_INTERVAL`] is not asked again.
pub const SILENCE_BACKOFF: u64 = 10 * SECOND;

/// A peer: its address, and the device that leads to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Index of the device.
    pub ifindex: u32,
}

/// What a peer has answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
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
    queried_at: u64,
    /// That query's nonce, if there is no answer to it.
    pending: Option<Nonce>,
    /// The last answer, and when it came.
    answer: Option<(Answer, u64)>,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.pending.is_some() || self.answer.is_some()
    }

    fn is_of(&self, peer: &Peer) -> bool {
        self.is_used() && self.peer == *peer
    }

    /// The last answer, if it counts at `now`, and its age.
    fn valid_answer(&self, now: u64) -> Option<(Answer, u64)> {
        let (answer, at) = self.answer?;
        let age = now.saturating_sub(at);
        (age < ANSWER_LIFETIME).then_some((answer, age))
    }

    /// Whether the last query may still be answered at `now`.
    fn is_pending(&self, now: u64) -> bool {
        self.pending.is_some()
            && now
                < self
                    .queried_at
                    .saturating_add(QUERY_INTERVAL + SILENCE_BACKOFF)
    }

    /// Whether another peer may have its place.
    fn is_evictable(&self, now: u64) -> bool {
        !self.is_used() || now >= self.queried_at.saturating_add(QUERY_INTERVAL)
    }

    /// More for one that is missed more: an answer, and of two the one asked for later.
    fn worth(&self, now: u64) -> (bool, u64) {
        (self.valid_answer(now).is_some(), self.queried_at)
    }

    /// A query leaves at `now`.
    fn on_query_sent(&mut self, now: u64, nonce: Nonce) {
        self.queried_at = now;
        self.pending = Some(nonce);
    }
}

/// The cache's answer to a sender for which it matters what a peer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// What it has answer. With a nonce, a query with that is to be sent: the answer expires soon.
    Answer(Answer, Option<Nonce>),
    /// Nothing.
    Nothing,
    /// Nothing, and a query with this nonce is to be sent.
    Query(Nonce),
}

impl Known {
    /// The nonce of the query that is to be sent.
    pub fn query(self) -> Option<Nonce> {
        match self {
            Known::Answer(_, nonce) => nonce,
            Known::Query(nonce) => Some(nonce),
            Known::Nothing => None,
        }
    }
}

/// A few peers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket([Entry; WAYS]);

impl Bucket {
    /// What `peer` has answer, if the answer counts at `now`.
    pub fn answer_of(&self, peer: &Peer, now: u64) -> Option<Answer> {
        let entry = self.0.iter().find(|entry| entry.is_of(peer))?;
        entry.valid_answer(now).map(|(answer, _)| answer)
    }

    /// The largest datagram that `peer` takes, bytes, if it has answer that and the answer counts at
    /// `now`.
    pub fn largest(&self, peer: &Peer, now: u64) -> Option<u16> {
        self.answer_of(peer, now).map(|answer| answer.largest)
    }

    /// Looks `peer` up at `now`. If the caller is to ask it, `nonce` makes the query's nonce,
    /// and the query counts as sent.
    pub fn look_up(&mut self, peer: &Peer, now: u64, nonce: impl FnOnce() -> Nonce) -> Known {
        let entries = &mut self.0;
        if let Some(entry) = entries.iter_mut().find(|entry| entry.is_of(peer)) {
            let answer = entry.valid_answer(now);
            let is_old = answer.is_none_or(|(_, age)| age >= REFRESH_AFTER);
            let nonce = (is_old && !entry.is_pending(now)).then(nonce);
            if let Some(nonce) = nonce {
                entry.on_query_sent(now, nonce);
            }
            return match (answer, nonce) {
                (Some((answer, _)), nonce) => Known::Answer(answer, nonce),
                (None, Some(nonce)) => Known::Query(nonce),
                (None, None) => Known::Nothing,
            };
        }
        let free = entries.iter_mut().filter(|entry| entry.is_evictable(now));
        let Some(entry) = free.min_by_key(|entry| entry.worth(now)) else {
            return Known::Nothing;
        };
        let nonce = nonce();
        *entry = Entry {
            peer: *peer,
            ..Entry::default()
        };
        entry.on_query_sent(now, nonce);
        Known::Query(nonce)
    }

    /// Takes the answer of `peer` at `now`. `false` if it was not asked, or with another
    /// nonce; then nothing changes.
    pub fn on_answer(&mut self, peer: &Peer, now: u64, nonce: Nonce, caps: &Capabilities) -> bool {
        let queried = |entry: &&mut Entry| {
            entry.pending == Some(nonce) && entry.is_of(peer) && entry.is_pending(now)
        };
        let Some(entry) = self.0.iter_mut().find(queried) else {
            return false;
        };
        let answer = Answer {
            largest: caps.largest_datagram.unwrap_or(u16::MAX),
            mapped: caps.flags.unwrap_or(0) & flags::MAPPED != 0,
        };
        entry.answer = Some((answer, now));
        entry.pending = None;
        true
    }

    /// Forgets what `peer` has answer. It is asked again when its next turn comes.
    pub fn invalidate(&mut self, peer: &Peer) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.is_of(peer)) {
            entry.answer = None;
        }
    }

    /// Forgets the peers that the device with index `ifindex` led to.
    pub fn forget(&mut self, ifindex: u32) {
        let gone = self.0.iter_mut().filter(|e| e.peer.ifindex == ifindex);
        gone.for_each(|entry| *entry = Entry::default());
    }
}
