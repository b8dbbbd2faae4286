// SPDX-License-Identifier: GPL-2.0

//! A listener's children: half-open ones, and full ones that wait for `accept`.
//!
//! The queue has a lock of its own, a leaf: a child takes it with its own lock held, the listener
//! likewise, and neither ever takes the other's lock for it.

use crate::net::errno::prelude::*;
use crate::net::{
    bh_lock::BhLock,
    sock::{Protocol, Sock, SockRef},
};
use kernel::sync::Arc;

/// A protocol whose sockets listen and are children of listeners.
pub(crate) trait Offspring: Protocol {
    /// So many connections wait for `accept`, for those who look without the lock.
    fn note_ready(listener: &Sock<Self>, connections: u32);
}

/// The queue as listener and children hold it.
pub(crate) type SharedQueue<P> = Arc<BhLock<Queue<P>>>;

/// A child in its place.
struct Child<P: Offspring> {
    sock: SockRef<P>,
    /// The peer has not answered yet.
    half_open: bool,
}

/// For how long there must have been no room for another half-open child before SYNs are answered by
/// cookies, nanoseconds. Many clients that come at once answer sooner, and their SYNs come again.
const GRACE: u64 = 10_000_000;

/// For how long after a cookie there need not have been, nanoseconds: a flood goes on.
const ALERT: u64 = 1_000_000_000;

/// The answer to a SYN, if there is one.
pub(crate) enum Admission {
    /// A child in this place answers it.
    Child(u32),
    /// It is answered, and nothing is kept of it.
    Cookie,
    /// It is dropped.
    Refused,
}

/// Children of one listener, in slots that were allocated when it began to listen: a packet from
/// the wire never makes it allocate.
pub(crate) struct Queue<P: Offspring> {
    /// Whom to wake; none once the listener is closed.
    listener: Option<SockRef<P>>,
    /// Enough for as many half-open children as `limit`, and as many full ones.
    slots: KVVec<Option<Child<P>>>,
    /// Indices of empty slots.
    free: KVVec<u32>,
    /// Indices of full connections, a ring in the order in which they became so.
    ready: KVVec<u32>,
    ready_head: usize,
    ready_len: usize,
    half_open: usize,
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

/// How many slots such a limit takes.
fn slots_for(limit: usize) -> usize {
    limit.saturating_mul(2)
}

/// A further `listen` on the same socket: changes the limit. Those who wait already stay.
///
/// # Errors
///
/// `ENOMEM`; then the old limit holds.
pub(crate) fn set_backlog<P: Offspring>(queue: &SharedQueue<P>, backlog: u32) -> Result {
    let limit = limit_for(backlog);
    // Only `listen` changes the number of slots, and that with the listener's lock held.
    let mut larger = if slots_for(limit) > queue.lock().slots.len() {
        Some(Queue::empty(limit)?)
    } else {
        None
    };
    let mut queue = queue.lock();
    if let Some(larger) = &mut larger {
        queue.grow(larger);
    }
    queue.limit = limit;
    Ok(())
}

impl<P: Offspring> Queue<P> {
    /// A queue for children of `listener`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(listener: SockRef<P>, backlog: u32) -> Result<SharedQueue<P>> {
        let mut queue = Queue::empty(limit_for(backlog))?;
        queue.listener = Some(listener);
        let lock = BhLock::new(queue, kernel::static_lock_class!())?;
        Ok(Arc::new(lock, GFP_KERNEL)?)
    }

    /// A queue for `limit` children of each kind, that is nobody's.
    fn empty(limit: usize) -> Result<Queue<P>> {
        let slots = slots_for(limit);
        let mut queue = Queue {
            listener: None,
            slots: KVVec::with_capacity(slots, GFP_KERNEL)?,
            free: KVVec::with_capacity(slots, GFP_KERNEL)?,
            ready: KVVec::with_capacity(slots, GFP_KERNEL)?,
            ready_head: 0,
            ready_len: 0,
            half_open: 0,
            full_since: None,
            last_cookie: None,
            limit,
        };
        for slot in (0..slots).rev() {
            queue.slots.push(None, GFP_KERNEL)?;
            queue.free.push(slot as u32, GFP_KERNEL)?;
            queue.ready.push(0, GFP_KERNEL)?;
        }
        Ok(queue)
    }

    /// Moves everything into `larger`, an empty queue with more slots, and becomes that; what is
    /// left of the old one is in `larger` then. Children keep their slots, and their order. Nobody
    /// is between [`Self::admit`] and [`Self::put`], which takes the listener's lock.
    fn grow(&mut self, larger: &mut Queue<P>) {
        for (to, from) in larger.slots.iter_mut().zip(self.slots.iter_mut()) {
            core::mem::swap(to, from);
        }
        let slots = &larger.slots;
        larger
            .free
            .retain(|slot| slots.get(*slot as usize).is_some_and(Option::is_none));
        let mut head = self.ready_head;
        for to in larger.ready.iter_mut().take(self.ready_len) {
            *to = self.ready.get(head).copied().unwrap_or(0);
            head = (head + 1).checked_rem(self.ready.len()).unwrap_or(0);
        }
        larger.ready_len = self.ready_len;
        larger.half_open = self.half_open;
        larger.last_cookie = self.last_cookie;
        larger.listener = self.listener.take();
        core::mem::swap(self, larger);
    }

    /// The answer to a SYN that comes at `now`. Only what `accept` has room for is answered, as TCP has
    /// it: the client of a connection that nobody can take would wait in vain.
    pub(crate) fn admit(&mut self, now: u64) -> Admission {
        if self.listener.is_none() || !self.has_room() {
            return Admission::Refused;
        }
        if self.half_open < self.limit {
            return match self.free.pop() {
                Some(slot) => Admission::Child(slot),
                None => Admission::Refused,
            };
        }
        let since = *self.full_since.get_or_insert(now);
        if now.saturating_sub(since) < GRACE && !self.sent_cookie_within(ALERT, now) {
            return Admission::Refused;
        }
        self.last_cookie = Some(now);
        Admission::Cookie
    }

    /// Whether a SYN was answered by a cookie less than `time` ago.
    pub(crate) fn sent_cookie_within(&self, time: u64, now: u64) -> bool {
        self.last_cookie
            .is_some_and(|last| now.saturating_sub(last) < time)
    }

    /// The listener, until it closes.
    pub(crate) fn listener(&self) -> Option<SockRef<P>> {
        self.listener.clone()
    }

    /// Whether `accept` can be given one more connection.
    pub(crate) fn has_room(&self) -> bool {
        self.ready_len < self.limit
    }

    /// Keeps a place for a child whose peer has answered a cookie, unless there is no room.
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        if self.listener.is_none() || !self.has_room() {
            return None;
        }
        self.free.pop()
    }

    /// A half-open child is none any more.
    fn leave_half_open(&mut self) {
        self.half_open = self.half_open.saturating_sub(1);
        self.full_since = None;
    }

    /// Gives back a place that got no child.
    pub(crate) fn unreserve(&mut self, slot: u32) {
        // There is room: the index came from here.
        let _ = self.free.push_within_capacity(slot);
    }

    /// Puts a half-open child in its place, unless the listener has closed meanwhile.
    pub(crate) fn put(&mut self, slot: u32, sock: SockRef<P>) -> Option<SockRef<P>> {
        if self.listener.is_none() {
            return Some(sock);
        }
        let Some(place) = self.slots.get_mut(slot as usize) else {
            return Some(sock);
        };
        let child = Child {
            sock,
            half_open: true,
        };
        self.half_open += 1;
        place.replace(child).map(|child| child.sock)
    }

    /// The place of `sock`, if that is still in it.
    fn place_of(&mut self, slot: u32, sock: &Sock<P>) -> Option<&mut Option<Child<P>>> {
        let place = self.slots.get_mut(slot as usize)?;
        let found: &Sock<P> = &place.as_ref()?.sock;
        core::ptr::eq(found, sock).then_some(place)
    }

    /// Takes `sock` out, if it is still there.
    pub(crate) fn take(&mut self, slot: u32, sock: &Sock<P>) -> Option<SockRef<P>> {
        let child = self.place_of(slot, sock)?.take()?;
        self.unreserve(slot);
        if child.half_open {
            self.leave_half_open();
        }
        Some(child.sock)
    }

    /// The child `sock` is connected: it waits for `accept` now. Returns the listener to wake, none
    /// if it has closed.
    pub(crate) fn complete(&mut self, slot: u32, sock: &Sock<P>) -> Option<SockRef<P>> {
        self.place_of(slot, sock)?.as_mut()?.half_open = false;
        self.leave_half_open();
        let listener = self.listener.clone()?;
        let tail = (self.ready_head + self.ready_len).checked_rem(self.ready.len())?;
        *self.ready.get_mut(tail)? = slot;
        self.ready_len += 1;
        self.publish();
        Some(listener)
    }

    /// Whether `accept` would find a connection.
    pub(crate) fn has_ready(&self) -> bool {
        self.ready_len > 0
    }

    /// Tells `poll` how many connections wait, where it looks without a lock.
    fn publish(&self) {
        if let Some(listener) = &self.listener {
            P::note_ready(listener, self.ready_len as u32);
        }
    }

    /// The connection that has waited longest.
    pub(crate) fn pop_ready(&mut self) -> Option<SockRef<P>> {
        if self.ready_len == 0 {
            return None;
        }
        let slot = *self.ready.get(self.ready_head)?;
        self.ready_head = (self.ready_head + 1).checked_rem(self.ready.len())?;
        self.ready_len -= 1;
        self.publish();
        let child = self.slots.get_mut(slot as usize)?.take()?;
        self.unreserve(slot);
        Some(child.sock)
    }

    /// The listener closes: no child comes in or is completed any more. Returns its reference.
    pub(crate) fn close(&mut self) -> Option<SockRef<P>> {
        self.ready_len = 0;
        self.listener.take()
    }

    /// Any child that is left in a closed queue.
    pub(crate) fn drain(&mut self) -> Option<SockRef<P>> {
        // The slots go with their children, so that the next call need not look at them again.
        while let Some(slot) = self.slots.pop() {
            if let Some(child) = slot {
                return Some(child.sock);
            }
        }
        None
    }
}
