// SPDX-License-Identifier: GPL-2.0

//! What other hosts answered to queries, and how many queries of theirs are answered: each network
//! namespace for itself, in memory that does not grow.

use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    edp::{
        peers::{Bucket, Known, Peer},
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
use kernel::alloc::KVec;

/// Each has some peers.
const BUCKETS: usize = 64;

/// A namespace's knowledge of other hosts.
pub(crate) struct Peers {
    /// Chooses a peer's bucket.
    secret: Secret,
    /// The lock is a leaf.
    buckets: BhLock<KVec<Bucket>>,
    /// When the next answer would be due at the steady rate.
    answers: AtomicU64,
}

impl Peers {
    /// Knows nobody.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let mut buckets = KVec::with_capacity(BUCKETS, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..BUCKETS {
            buckets.push(Bucket::default(), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Peers {
            secret: Secret::new(),
            buckets: BhLock::new(buckets, kernel::static_lock_class!())?,
            answers: AtomicU64::new(0),
        })
    }

    /// Lends the bucket of the host with address `mac` behind device `ifindex`, with the host and
    /// the time.
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

    /// The largest datagram that `to` has told to take, bytes.
    pub(crate) fn largest(&self, to: &Address) -> Option<u16> {
        self.with(to.mac, to.ifindex, |bucket, peer, now| {
            bucket.largest(peer, now)
        })?
    }

    /// Looks up `to`, for which something leaves that not every host takes.
    pub(crate) fn look_up(&self, to: &Address) -> Known {
        let nonce = || random::u32().to_be_bytes();
        self.with(to.mac, to.ifindex, |bucket, peer, now| {
            bucket.look_up(peer, now, nonce)
        })
        .unwrap_or(Known::Nothing)
    }

    /// Takes what the host with address `source` answered by `device`. `false` if it was not asked
    /// so.
    pub(crate) fn answer(
        &self,
        source: Mac,
        device: &Device,
        nonce: Nonce,
        told: &Capabilities,
    ) -> bool {
        self.with(source, device.index(), |bucket, peer, now| {
            bucket.answer(peer, now, nonce, told)
        })
        .unwrap_or(false)
    }

    /// Forgets what `peer` has told, which may be true no more.
    pub(crate) fn doubt(&self, peer: &Address) {
        self.with(peer.mac, peer.ifindex, |bucket, peer, _| bucket.doubt(peer));
    }

    /// Forgets the hosts behind device `ifindex`, which is gone.
    pub(crate) fn forget(&self, ifindex: u32) {
        let mut buckets = self.buckets.lock();
        buckets.iter_mut().for_each(|bucket| bucket.forget(ifindex));
    }

    /// Whether one more query may be answered now.
    pub(crate) fn may_answer(&self) -> bool {
        let now = timer::now();
        self.answers
            .fetch_update(Relaxed, Relaxed, |due| rate::admit(due, now))
            .is_ok()
    }
}
