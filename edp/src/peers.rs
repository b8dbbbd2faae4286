// SPDX-License-Identifier: GPL-2.0

//! A cache of other hosts' answers to queries, and of the hosts that did not answer.
//!
//! This host queries a peer when it sends the peer a datagram that some hosts would be unable to
//! accept. The datagram does not wait for the answer; the limit in the answer holds for later
//! datagrams. A peer that is still in use is queried again before its answer expires. The caller
//! has an array of [`Bucket`]s, and chooses the bucket of a peer by a keyed hash. An attacker does
//! not know the key, and so cannot choose addresses that fill another peer's bucket.
//!
//! A connection may wait for the answer ([`Bucket::await_answer`]). All connections that are opened
//! during a wait share this wait. If the peer does not answer in time, connections to this peer are
//! opened without a wait until the time [`REST`] has passed. The time doubles with each further
//! wait without an answer. The caller can [excuse](Bucket::excuse) a peer that was away.
//!
//! Times are in nanoseconds of a monotonic clock.

use super::query::{flags, Capabilities, Nonce};

/// Maximum number of peers in a bucket. Many enough that the hosts of a segment, which a hash
/// spreads over the buckets unevenly, find places although some buckets get twice their share.
pub const WAYS: usize = 8;

const SECOND: u64 = 1_000_000_000;

/// The minimum time between two queries to a peer, in nanoseconds. A peer's entry is not evicted
/// for this time after a query. Otherwise, the next look-up of the peer would find no entry, and
/// would send another query too early.
pub const QUERY_INTERVAL: u64 = SECOND;
/// The time for which an answer is valid, in nanoseconds.
pub const ANSWER_LIFETIME: u64 = 60 * SECOND;
/// If a valid answer is at least this old, in nanoseconds, a look-up sends another query to refresh
/// the answer.
pub const REFRESH_AFTER: u64 = ANSWER_LIFETIME / 2;
/// A peer that did not answer within [`QUERY_INTERVAL`] is queried again after this further time,
/// in nanoseconds.
pub const SILENCE_BACKOFF: u64 = 10 * SECOND;

/// After a connection has waited in vain for a peer's answer, the next wait for this peer begins at
/// least this time later, in nanoseconds. Connections that are opened sooner do not wait. The time
/// doubles with each further wait in vain, up to [`REST_MAX`].
pub const REST: u64 = 60 * SECOND;
/// The upper bound of [`REST`], in nanoseconds.
pub const REST_MAX: u64 = 16 * REST;
/// Replaces [`REST`] for a peer that is expected to answer, because the peer has answered before or
/// because the caller says so.
pub const REST_EXPECTED: u64 = QUERY_INTERVAL;
/// The upper bound of [`REST_EXPECTED`], in nanoseconds.
pub const REST_EXPECTED_MAX: u64 = REST;

/// Number of doublings after which [`REST`] and [`REST_EXPECTED`] have reached their upper bounds.
const MOST_DOUBLED: u8 = 6;

/// How a connection waits for a peer's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The longest wait in nanoseconds, or 0 for no wait. A bound above [`QUERY_INTERVAL`] has the
    /// effect of `QUERY_INTERVAL`.
    pub bound: u64,
    /// Whether the peer is expected to answer. If so, connections wait for the peer again sooner
    /// after a wait in vain.
    pub expects: bool,
}

/// A peer: its address, and the device that leads to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The peer's Ethernet address.
    pub mac: [u8; 6],
    /// Index of the device.
    pub ifindex: u32,
}

/// The contents of a peer's answer to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The largest datagram that the peer accepts, in bytes.
    pub largest: u16,
    /// Whether the peer accepts mapped connections (ESP connections that stand for TCP
    /// connections).
    pub mapped: bool,
    /// Whether the peer also accepts mapped connections between IPv6 addresses.
    pub mapped_v6: bool,
}

/// The cached state of one peer. An entry is unused if the peer has never answered and no query is
/// pending.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    peer: Peer,
    /// The time at which the last query was sent.
    queried_at: u64,
    /// The nonce of the last query, until it is answered.
    pending: Option<Nonce>,
    /// The last answer, and the time at which it arrived.
    answer: Option<(Answer, u64)>,
    /// Whether the peer has ever answered.
    answered: bool,
    /// The time at which the last wait for an answer began.
    waited_at: u64,
    /// The time at which the last wait for an answer ends.
    wait_ends: u64,
    /// Number of waits since the last answer, or since the peer was last excused.
    waits: u8,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.pending.is_some() || self.answered
    }

    fn is_of(&self, peer: &Peer) -> bool {
        self.is_used() && self.peer == *peer
    }

    /// Returns the last answer and its age, if the answer is valid at `now`.
    fn valid_answer(&self, now: u64) -> Option<(Answer, u64)> {
        let (answer, at) = self.answer?;
        let age = now.saturating_sub(at);
        (age < ANSWER_LIFETIME).then_some((answer, age))
    }

    /// Returns whether the last query may still be answered at `now`.
    fn is_pending(&self, now: u64) -> bool {
        self.pending.is_some()
            && now
                < self
                    .queried_at
                    .saturating_add(QUERY_INTERVAL + SILENCE_BACKOFF)
    }

    /// Returns whether another peer may take the entry.
    fn is_evictable(&self, now: u64) -> bool {
        !self.is_used() || now >= self.queried_at.saturating_add(QUERY_INTERVAL)
    }

    /// Returns the entry's worth. Eviction takes the entry that is worth least. An entry with a
    /// valid answer is worth more than one without. Otherwise, the entry whose peer was queried
    /// later is worth more.
    fn worth(&self, now: u64) -> (bool, u64) {
        (self.valid_answer(now).is_some(), self.queried_at)
    }

    /// Returns the answer, if it is valid at `now`. If a query is due, also returns a nonce from
    /// `nonce`, and counts the query as sent.
    fn look_up(&mut self, now: u64, nonce: impl FnOnce() -> Nonce) -> Known {
        let answer = self.valid_answer(now);
        let is_old = answer.is_none_or(|(_, age)| age >= REFRESH_AFTER);
        let nonce = (is_old && !self.is_pending(now)).then(nonce);
        if let Some(nonce) = nonce {
            self.on_query_sent(now, nonce);
        }
        match (answer, nonce) {
            (Some((answer, _)), nonce) => Known::Answer(answer, nonce),
            (None, Some(nonce)) => Known::Query(nonce),
            (None, None) => Known::Nothing,
        }
    }

    /// Returns the time, in nanoseconds, that must pass from the beginning of the last wait to the
    /// beginning of a new wait with `patience`.
    fn rest(&self, patience: Patience) -> u64 {
        let (first, most) = if patience.expects || self.answered {
            (REST_EXPECTED, REST_EXPECTED_MAX)
        } else {
            (REST, REST_MAX)
        };
        match self.waits.checked_sub(1) {
            None => 0,
            Some(doubled) => (first << doubled.min(MOST_DOUBLED)).min(most),
        }
    }

    /// Returns the time until which a connection that is opened at `now` waits for the answer. If a
    /// query is due, also returns a nonce from `nonce`. Returns `None` if the connection does not
    /// wait.
    fn wait(
        &mut self,
        now: u64,
        patience: Patience,
        nonce: impl FnOnce() -> Nonce,
    ) -> Option<(u64, Option<Nonce>)> {
        let bound = patience.bound.min(QUERY_INTERVAL);
        if self.waits > 0 {
            let end = self.waited_at.saturating_add(bound);
            if now < end {
                return Some((end, None));
            }
            if now < self.waited_at.saturating_add(self.rest(patience)) {
                return None;
            }
        }
        // A datagram may have caused a query a short time ago, so a second query would be too
        // early.
        let asked = self.pending.is_some() && now < self.queried_at.saturating_add(QUERY_INTERVAL);
        let since = if asked { self.queried_at } else { now };
        let end = since.saturating_add(bound);
        if now >= end {
            return None;
        }
        self.waited_at = since;
        self.wait_ends = end;
        self.waits = self.waits.saturating_add(1);
        let nonce = (!asked).then(nonce);
        if let Some(nonce) = nonce {
            self.on_query_sent(now, nonce);
        }
        Some((end, nonce))
    }

    /// Stores that a query is sent at `now`.
    fn on_query_sent(&mut self, now: u64, nonce: Nonce) {
        self.queried_at = now;
        self.pending = Some(nonce);
    }
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The answer. If there is a nonce, send a query with it, because the answer expires soon.
    Answer(Answer, Option<Nonce>),
    /// There is no answer, and no query is due.
    Nothing,
    /// There is no answer. Send a query with this nonce.
    Query(Nonce),
    /// There is no answer yet. The connection waits for the answer until this time. If there is a
    /// nonce, send a query with it.
    Wait(u64, Option<Nonce>),
}

impl Known {
    /// Returns the nonce of the query to send.
    pub fn query(self) -> Option<Nonce> {
        match self {
            Known::Answer(_, nonce) | Known::Wait(_, nonce) => nonce,
            Known::Query(nonce) => Some(nonce),
            Known::Nothing => None,
        }
    }
}

/// One set of the cache, with entries for a few peers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket([Entry; WAYS]);

impl Bucket {
    /// Returns the answer of `peer`, if it is valid at `now`.
    pub fn answer_of(&self, peer: &Peer, now: u64) -> Option<Answer> {
        let entry = self.0.iter().find(|entry| entry.is_of(peer))?;
        entry.valid_answer(now).map(|(answer, _)| answer)
    }

    /// Returns the largest datagram, in bytes, that `peer` accepts, if its answer is valid at
    /// `now`.
    pub fn largest(&self, peer: &Peer, now: u64) -> Option<u16> {
        self.answer_of(peer, now).map(|answer| answer.largest)
    }

    /// Looks `peer` up at `now`. If a query is due, this takes the query's nonce from `nonce` and
    /// counts the query as sent.
    pub fn look_up(&mut self, peer: &Peer, now: u64, nonce: impl FnOnce() -> Nonce) -> Known {
        match self.entry(peer, now) {
            Some(entry) => entry.look_up(now, nonce),
            None => Known::Nothing,
        }
    }

    /// Looks `peer` up like [`look_up`](Self::look_up), but for a connection that may wait for the
    /// answer.
    pub fn await_answer(
        &mut self,
        peer: &Peer,
        now: u64,
        patience: Patience,
        nonce: impl Fn() -> Nonce,
    ) -> Known {
        let Some(entry) = self.entry(peer, now) else {
            return Known::Nothing;
        };
        if entry.valid_answer(now).is_none() {
            if let Some((end, nonce)) = entry.wait(now, patience, &nonce) {
                return Known::Wait(end, nonce);
            }
        }
        entry.look_up(now, nonce)
    }

    /// Returns the entry of `peer`, which may be new. Returns `None` if no entry of the bucket can
    /// be evicted.
    fn entry(&mut self, peer: &Peer, now: u64) -> Option<&mut Entry> {
        let entries = &mut self.0;
        if let Some(place) = entries.iter().position(|entry| entry.is_of(peer)) {
            return entries.get_mut(place);
        }
        let free = entries.iter_mut().filter(|entry| entry.is_evictable(now));
        let entry = free.min_by_key(|entry| entry.worth(now))?;
        *entry = Entry {
            peer: *peer,
            ..Entry::default()
        };
        Some(entry)
    }

    /// Stores the answer of `peer` at `now`. Returns false, and changes nothing, if no query with
    /// this nonce is pending.
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
            mapped_v6: caps.flags.unwrap_or(0) & flags::MAPPED_V6 != 0,
        };
        entry.answer = Some((answer, now));
        entry.pending = None;
        entry.answered = true;
        entry.waits = 0;
        true
    }

    /// Forgets the answer of `peer`. The next look-up may query the peer again.
    pub fn invalidate(&mut self, peer: &Peer) {
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.is_of(peer)) {
            entry.answer = None;
        }
    }

    /// Forgets all waits for `peer` in vain, because the peer was away during the wait that ended
    /// at `end`. The next connection may wait. Does nothing if a later wait has begun, which may
    /// have found the peer.
    pub fn excuse(&mut self, peer: &Peer, end: u64) {
        let mut entries = self.0.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.is_of(peer) && entry.wait_ends == end) {
            entry.waits = 0;
        }
    }

    /// Forgets the peers behind the device with the index `ifindex`.
    pub fn forget(&mut self, ifindex: u32) {
        let gone = self.0.iter_mut().filter(|e| e.peer.ifindex == ifindex);
        gone.for_each(|entry| *entry = Entry::default());
    }
}
