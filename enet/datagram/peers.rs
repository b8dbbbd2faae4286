// SPDX-License-Identifier: GPL-2.0

//! The state of queries in a network namespace, in bounded memory. It consists of other hosts'
//! answers to this host's queries, and of the rate limit for this host's own answers.

use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    edp::{
        peers::{Bucket, Known, Patience, Peer},
        query::{Capabilities, Nonce},
        rate,
    },
    net::{
        bh_lock::BhLock,
        device::{Device, Mac},
        random::{self, Secret},
        timer,
    },
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::alloc::KVVec;

/// Number of buckets, each of which holds some peers: 1024 together, as many as the kernel's tables
/// of neighbours have by default (`gc_thresh3`). Of the 200 hosts that a job connects to when it
/// starts, none finds its bucket full.
const BUCKETS: usize = 128;

/// The hosts that a namespace has queried, with their answers.
pub(crate) struct Peers {
    /// Key of the hash that chooses a peer's bucket.
    secret: Secret,
    /// The peers, by bucket. No other lock is taken with this one held.
    buckets: BhLock<KVVec<Bucket>>,
    /// The state of the rate limit for this host's answers: the time at which the next answer would
    /// be due at the steady rate.
    answers: AtomicU64,
}

impl Peers {
    /// Creates an empty table.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let mut buckets = KVVec::with_capacity(BUCKETS, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..BUCKETS {
            buckets.push(Bucket::default(), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Peers {
            secret: Secret::new(),
            buckets: BhLock::new(buckets, kernel::static_lock_class!())?,
            answers: AtomicU64::new(0),
        })
    }

    /// Finds the host that has address `mac` behind device `ifindex`. Calls `f` with three
    /// arguments: the host's bucket, the host, and the current time.
    fn with<R>(
        &self,
        mac: Mac,
        ifindex: u32,
        f: impl FnOnce(&mut Bucket, &Peer, u64) -> R,
    ) -> Option<R> {
        let now = timer::now();
        let peer = Peer {
            mac: mac.0,
            ifindex,
        };
        let place = self.secret.hash([mac.to_bits(), ifindex.into(), 0]) as usize % BUCKETS;
        let mut buckets = self.buckets.lock();
        buckets.get_mut(place).map(|bucket| f(bucket, &peer, now))
    }

    /// Returns the length, in bytes, of the largest datagram that `to` accepts, if `to` has
    /// reported it.
    pub(super) fn largest(&self, to: &Address) -> Option<u16> {
        self.with(to.mac, to.ifindex, |bucket, peer, now| {
            bucket.largest(peer, now)
        })?
    }

    /// Looks up what `to` has reported, for instance before sending a datagram that some hosts
    /// would be unable to accept.
    pub(crate) fn look_up(&self, to: &Address) -> Known {
        let nonce = || random::u32().to_be_bytes();
        self.with(to.mac, to.ifindex, |bucket, peer, now| {
            bucket.look_up(peer, now, nonce)
        })
        .unwrap_or(Known::Nothing)
    }

    /// Looks up `to`, for a connection that may wait for the answer.
    pub(crate) fn await_answer(&self, to: &Address, patience: Patience) -> Known {
        let nonce = || random::u32().to_be_bytes();
        self.with(to.mac, to.ifindex, |bucket, peer, now| {
            bucket.await_answer(peer, now, patience, nonce)
        })
        .unwrap_or(Known::Nothing)
    }

    /// Stores the answer that came from address `source` through `device`. Returns `false` if this
    /// host has sent no matching query.
    pub(super) fn answer(
        &self,
        source: Mac,
        device: &Device,
        nonce: Nonce,
        told: &Capabilities,
    ) -> bool {
        self.with(source, device.index(), |bucket, peer, now| {
            bucket.on_answer(peer, now, nonce, told)
        })
        .unwrap_or(false)
    }

    /// Forgets the answer of `peer`, because the answer may be outdated.
    pub(crate) fn doubt(&self, peer: &Address) {
        self.with(peer.mac, peer.ifindex, |bucket, peer, _| {
            bucket.invalidate(peer)
        });
    }

    /// Forgets that `peer` did not answer during the wait that ended at `end`, because it answered
    /// nothing else either.
    pub(crate) fn excuse(&self, peer: &Address, end: u64) {
        self.with(peer.mac, peer.ifindex, |bucket, peer, _| {
            bucket.excuse(peer, end)
        });
    }

    /// Forgets the hosts behind device `ifindex`, which was removed.
    pub(crate) fn forget(&self, ifindex: u32) {
        let mut buckets = self.buckets.lock();
        buckets.iter_mut().for_each(|bucket| bucket.forget(ifindex));
    }

    /// Returns whether the rate limit permits another answer now.
    pub(super) fn may_answer(&self) -> bool {
        let now = timer::now();
        self.answers
            .fetch_update(Relaxed, Relaxed, |due| rate::admit(due, now))
            .is_ok()
    }
}
