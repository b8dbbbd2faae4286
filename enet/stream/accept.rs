// SPDX-License-Identifier: GPL-2.0

//! A listener's children: half-open ones, and established ones in the accept queue.
//!
//! The children are in two lists, and the lists' links are part of the children. So neither
//! `listen` nor a received packet allocates memory for the queue, however large the backlog.
//!
//! The queue's lock is a leaf. A child or the listener takes it with its own socket lock held, but
//! no socket is locked while the queue's lock is held.

use crate::net::errno::prelude::*;
use crate::net::{
    bh_lock::BhLock,
    sock::{Protocol, Sock, SockRef},
    sock_list::{ChildLink, SockLists},
};
use kernel::sync::Arc;

/// A protocol whose sockets can be listeners and children of listeners.
pub(super) trait Offspring: Protocol {
    /// Publishes the length of the accept queue for readers without the lock.
    fn note_ready(listener: &Sock<Self>, connections: u32);
}

/// A reference to the queue. The listener and each child hold one.
pub(super) type SharedQueue<P> = Arc<BhLock<Queue<P>>>;

/// Index of the list of children in SYN_RECV.
const HALF_OPEN: usize = 0;
/// Index of the list of established connections, which are in the order of establishment.
const READY: usize = 1;

/// SYNs are answered with cookies once half-open children have filled the backlog for this long, in
/// nanoseconds. A burst of clients needs no cookies, because the clients complete their handshakes
/// within this time, and retransmit SYNs that were dropped.
const GRACE: u64 = 10_000_000;

/// For this time after a cookie, in nanoseconds, further cookies are sent without waiting for
/// [`GRACE`]: the flood is assumed to continue.
const ALERT: u64 = 1_000_000_000;

/// The treatment of a SYN.
pub(super) enum Admission {
    /// A child answers the SYN.
    Child,
    /// A cookie answers the SYN; no state is kept.
    Cookie,
    /// The SYN is dropped.
    Refused,
}

/// The children of a listener.
pub(super) struct Queue<P: Offspring> {
    /// The socket to wake; `None` once the listener is closed.
    listener: Option<SockRef<P>>,
    /// The lists hold references to their children.
    children: SockLists<P, 2, ChildLink>,
    half_open: usize,
    ready: usize,
    /// The time of the first SYN that found the backlog filled by half-open children; `None` if
    /// they have left room since.
    full_since: Option<u64>,
    /// The time at which the most recent cookie was sent.
    last_cookie: Option<u64>,
    /// The limit of each list: the maximum number of half-open children, and also of established
    /// ones.
    limit: usize,
}

/// Upper bound of a list's limit. The kernel has already limited the backlog to
/// `net.core.somaxconn`, but an administrator may raise that limit above this one.
const MOST: usize = 65535;

/// Returns how many half-open children, and how many established children, a backlog permits. Both
/// limits are one more than the backlog, as in TCP.
fn limit_for(backlog: u32) -> usize {
    (backlog as usize + 1).min(MOST)
}

/// Changes the limit at a further `listen` on the same socket. Children in excess of the new limit
/// stay.
pub(super) fn set_backlog<P: Offspring>(queue: &SharedQueue<P>, backlog: u32) {
    queue.lock().limit = limit_for(backlog);
}

impl<P: Offspring> Queue<P> {
    /// Creates a queue for children of `listener`.
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

    /// Decides the treatment of a SYN at the time `now`. As in TCP, a SYN is only answered if the
    /// accept queue has room, because otherwise the client would wait in vain.
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

    /// Returns whether a cookie was sent less than `time` ago.
    pub(super) fn sent_cookie_within(&self, time: u64, now: u64) -> bool {
        self.last_cookie
            .is_some_and(|last| now.saturating_sub(last) < time)
    }

    /// Returns the listener until it closes.
    pub(super) fn listener(&self) -> Option<SockRef<P>> {
        self.listener.clone()
    }

    /// Returns whether the accept queue has room.
    pub(super) fn has_room(&self) -> bool {
        self.ready < self.limit
    }

    /// Returns whether there is room for a child whose peer has answered a cookie. Such a child may
    /// exceed the limit of half-open children, until the answer has established it.
    pub(super) fn has_place(&self) -> bool {
        let children = self.half_open.saturating_add(self.ready);
        self.listener.is_some() && self.has_room() && children < self.limit.saturating_mul(2)
    }

    /// Counts a half-open child that leaves its list. This leaves room in the backlog, so
    /// `full_since` is cleared.
    fn leave_half_open(&mut self) {
        self.half_open = self.half_open.saturating_sub(1);
        self.full_since = None;
    }

    /// Adds a half-open child. Returns `false` if the listener has closed.
    pub(super) fn put(&mut self, sock: &Sock<P>) -> bool {
        if self.listener.is_none() || !self.children.admit(sock, ()) {
            return false;
        }
        self.children.push(sock, HALF_OPEN);
        self.half_open = self.half_open.saturating_add(1);
        true
    }

    /// Removes a half-open child, if it is still in the list.
    pub(super) fn take(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let held = self.children.dismiss(sock)?;
        self.leave_half_open();
        Some(held)
    }

    /// Moves the half-open child `sock`, now established, to the accept queue. Returns the
    /// listener, which must be woken, or `None` if the listener has closed.
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

    /// Returns whether the accept queue has a connection.
    pub(super) fn has_ready(&self) -> bool {
        self.ready > 0
    }

    /// Publishes the length of the accept queue for `poll`, which reads it without a lock.
    fn publish(&self) {
        if let Some(listener) = &self.listener {
            P::note_ready(listener, self.ready as u32);
        }
    }

    /// Removes and returns the connection that has waited longest, if there is one.
    pub(super) fn pop_ready(&mut self) -> Option<SockRef<P>> {
        self.ready = self.ready.checked_sub(1)?;
        self.publish();
        self.pop(READY)
    }

    /// Closes the listener: no child is added or completed any more. Returns the reference to the
    /// listener.
    pub(super) fn close(&mut self) -> Option<SockRef<P>> {
        self.ready = 0;
        self.listener.take()
    }

    /// Removes and returns a child of a closed queue, if there is one.
    pub(super) fn drain(&mut self) -> Option<SockRef<P>> {
        self.pop(HALF_OPEN).or_else(|| self.pop(READY))
    }

    /// Removes and returns the first child of a list, if there is one.
    fn pop(&mut self, list: usize) -> Option<SockRef<P>> {
        let child = self.children.pop(list)?;
        // The result is ignored, because `child` already has the list's reference.
        let _ = self.children.dismiss(&child);
        Some(child)
    }
}
