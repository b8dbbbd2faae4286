// SPDX-License-Identifier: GPL-2.0

//! A listener's children: half-open ones, and full ones that wait for `accept`.
//!
//! They are in two lists whose links are in the children, so neither `listen` nor a packet from the
//! wire allocates anything for the queue, however long the backlog may be.
//!
//! The queue has a lock of its own, a leaf: a child takes it with its own lock held, the listener
//! likewise, and neither ever takes the other's lock for it.

use crate::net::errno::prelude::*;
use crate::net::{
    bh_lock::BhLock,
    sock::{Protocol, Sock, SockRef},
    sock_list::{ChildLink, SockLists},
};
use kernel::sync::Arc;

/// A protocol whose sockets listen and are children of listeners.
pub(super) trait Offspring: Protocol {
    /// So many connections wait for `accept`, for those who look without the lock.
    fn note_ready(listener: &Sock<Self>, connections: u32);
}

/// The queue as listener and children hold it.
pub(super) type SharedQueue<P> = Arc<BhLock<Queue<P>>>;

/// The list of children whose peer has not answered yet.
const HALF_OPEN: usize = 0;
/// The list of full connections, in the order in which they became so.
const READY: usize = 1;

/// For how long there must have been no room for another half-open child before SYNs are answered
/// by cookies, nanoseconds. Many clients that come at once answer sooner, and their SYNs come
/// again.
const GRACE: u64 = 10_000_000;

/// For how long after a cookie there need not have been, nanoseconds: a flood goes on.
const ALERT: u64 = 1_000_000_000;

/// The answer to a SYN, if there is one.
pub(super) enum Admission {
    /// A child answers it.
    Child,
    /// It is answered, and nothing is kept of it.
    Cookie,
    /// It is dropped.
    Refused,
}

/// Children of one listener.
pub(super) struct Queue<P: Offspring> {
    /// Whom to wake; none once the listener is closed.
    listener: Option<SockRef<P>>,
    /// Both lists hold their children.
    children: SockLists<P, 2, ChildLink>,
    half_open: usize,
    ready: usize,
    /// Since when there has been no room for a half-open child, as far as SYNs have shown.
    full_since: Option<u64>,
    /// When a SYN was last answered by a cookie.
    last_cookie: Option<u64>,
    /// How many half-open children there may be, and how many full ones.
    limit: usize,
}

/// The most that `listen` may ask for; the core has cut the number at `net.core.somaxconn`.
const MOST: usize = 65535;

/// How many children of a kind a backlog lets in: one more, as the kernel counts.
fn limit_for(backlog: u32) -> usize {
    (backlog as usize + 1).min(MOST)
}

/// A further `listen` on the same socket: changes the limit. Those who wait already stay.
pub(super) fn set_backlog<P: Offspring>(queue: &SharedQueue<P>, backlog: u32) {
    queue.lock().limit = limit_for(backlog);
}

impl<P: Offspring> Queue<P> {
    /// A queue for children of `listener`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(listener: SockRef<P>, backlog: u32) -> Result<SharedQueue<P>> {
        let queue = Queue {
            listener: Some(listener),
            children: SockLists::new()?,
            half_open: 0,
            ready: 0,
            full_since: None,
            last_cookie: None,
            limit: limit_for(backlog),
        };
        let lock = BhLock::new(queue, kernel::static_lock_class!())?;
        Ok(Arc::new(lock, GFP_KERNEL_ACCOUNT)?)
    }

    /// The answer to a SYN that comes at `now`. Only what `accept` has room for is answered, as TCP
    /// has it: the client of a connection that nobody can take would wait in vain.
    pub(super) fn admit(&mut self, now: u64) -> Admission {
        if self.listener.is_none() || !self.has_room() {
            return Admission::Refused;
        }
        if self.half_open < self.limit {
            return Admission::Child;
        }
        let since = *self.full_since.get_or_insert(now);
        if now.saturating_sub(since) < GRACE && !self.sent_cookie_within(ALERT, now) {
            return Admission::Refused;
        }
        self.last_cookie = Some(now);
        Admission::Cookie
    }

    /// Whether a SYN was answered by a cookie less than `time` ago.
    pub(super) fn sent_cookie_within(&self, time: u64, now: u64) -> bool {
        self.last_cookie
            .is_some_and(|last| now.saturating_sub(last) < time)
    }

    /// The listener, until it closes.
    pub(super) fn listener(&self) -> Option<SockRef<P>> {
        self.listener.clone()
    }

    /// Whether `accept` can be given one more connection.
    pub(super) fn has_room(&self) -> bool {
        self.ready < self.limit
    }

    /// Whether there is a place for a child whose peer has answered a cookie. It may be one more
    /// half-open child than there may be otherwise, until its packet has made it a full one.
    pub(super) fn has_place(&self) -> bool {
        let children = self.half_open.saturating_add(self.ready);
        self.listener.is_some() && self.has_room() && children < self.limit.saturating_mul(2)
    }

    /// A half-open child is none any more.
    fn leave_half_open(&mut self) {
        self.half_open = self.half_open.saturating_sub(1);
        self.full_since = None;
    }

    /// Takes a half-open child in. `false` if the listener has closed.
    pub(super) fn put(&mut self, sock: &Sock<P>) -> bool {
        if self.listener.is_none() || !self.children.admit(sock, ()) {
            return false;
        }
        self.children.push(sock, HALF_OPEN);
        self.half_open = self.half_open.saturating_add(1);
        true
    }

    /// Takes a half-open child out, if it is still there.
    pub(super) fn take(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let held = self.children.dismiss(sock)?;
        self.leave_half_open();
        Some(held)
    }

    /// The half-open child `sock` is connected: it waits for `accept` now. Returns the listener to
    /// wake, none if it has closed.
    pub(super) fn complete(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let listener = self.listener.clone()?;
        let held = self.children.remove(sock)?;
        self.children.push(sock, READY);
        drop(held);
        self.leave_half_open();
        self.ready = self.ready.saturating_add(1);
        self.publish();
        Some(listener)
    }

    /// Whether `accept` would find a connection.
    pub(super) fn has_ready(&self) -> bool {
        self.ready > 0
    }

    /// Tells `poll` how many connections wait, where it looks without a lock.
    fn publish(&self) {
        if let Some(listener) = &self.listener {
            P::note_ready(listener, self.ready as u32);
        }
    }

    /// The connection that has waited longest.
    pub(super) fn pop_ready(&mut self) -> Option<SockRef<P>> {
        self.ready = self.ready.checked_sub(1)?;
        self.publish();
        self.pop(READY)
    }

    /// The listener closes: no child comes in or is completed any more. Returns its reference.
    pub(super) fn close(&mut self) -> Option<SockRef<P>> {
        self.ready = 0;
        self.listener.take()
    }

    /// Any child that is left in a closed queue.
    pub(super) fn drain(&mut self) -> Option<SockRef<P>> {
        self.pop(HALF_OPEN).or_else(|| self.pop(READY))
    }

    /// The first child of a list, which belongs to the queue no more.
    fn pop(&mut self, list: usize) -> Option<SockRef<P>> {
        let child = self.children.pop(list)?;
        // It was in a list until now, so this has no reference of its own.
        let _ = self.children.dismiss(&child);
        Some(child)
    }
}
