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
    /// The child had to make room in the queue: its timer ends it, or its own end does.
    fn mark_stale(child: &Sock<Self>);

    /// So many connections wait for `accept`, for those who look without the lock.
    fn note_ready(listener: &Sock<Self>, connections: u32);
}

/// The queue as listener and children hold it.
pub(crate) type SharedQueue<P> = Arc<BhLock<Queue<P>>>;

/// A child in its place.
struct Child<P: Offspring> {
    sock: SockRef<P>,
    /// When it was put here.
    since: u64,
    /// The peer has not answered yet.
    half_open: bool,
}

/// For how long a half-open child keeps its place though another wants it, nanoseconds: many times
/// what a host of the same segment takes to answer.
const GRACE: u64 = 10_000_000;

/// How many places are looked at for one whose child has had its time, so that a SYN costs the same
/// whatever the backlog.
const LOOKS: usize = 8;

/// Children of one listener, in slots that were allocated when it began to listen: a packet from
/// the wire never makes it allocate.
pub(crate) struct Queue<P: Offspring> {
    /// Whom to wake; none once the listener is closed.
    listener: Option<SockRef<P>>,
    slots: KVVec<Option<Child<P>>>,
    /// Indices of empty slots.
    free: KVVec<u32>,
    /// Indices of full connections, a ring in the order in which they became so.
    ready: KVVec<u32>,
    ready_head: usize,
    ready_len: usize,
    /// The place that is looked at next for a child that has had its time.
    hand: usize,
    /// How many children there may be.
    limit: usize,
}

/// The most that `listen` may ask for; the core has cut the number at `net.core.somaxconn`.
const MOST: usize = 65535;

/// How many children a backlog lets in: one more, as the kernel counts.
fn limit_for(backlog: u32) -> usize {
    (backlog as usize + 1).min(MOST)
}

/// A further `listen` on the same socket: changes the limit. Those who wait already stay.
///
/// # Errors
///
/// `ENOMEM`; then the old limit holds.
pub(crate) fn set_backlog<P: Offspring>(queue: &SharedQueue<P>, backlog: u32) -> Result {
    let limit = limit_for(backlog);
    // Only `listen` changes the number of slots, and that with the listener's lock held.
    let mut larger = if limit > queue.lock().slots.len() {
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
    /// A queue for `backlog` children of `listener`, and one more, as the kernel counts backlogs.
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

    /// A queue with slots for `limit` children, that is nobody's.
    fn empty(limit: usize) -> Result<Queue<P>> {
        let mut queue = Queue {
            listener: None,
            slots: KVVec::with_capacity(limit, GFP_KERNEL)?,
            free: KVVec::with_capacity(limit, GFP_KERNEL)?,
            ready: KVVec::with_capacity(limit, GFP_KERNEL)?,
            ready_head: 0,
            ready_len: 0,
            hand: 0,
            limit,
        };
        for slot in 0..limit {
            queue.slots.push(None, GFP_KERNEL)?;
            queue.free.push((limit - 1 - slot) as u32, GFP_KERNEL)?;
            queue.ready.push(0, GFP_KERNEL)?;
        }
        Ok(queue)
    }

    /// Moves everything into `larger`, an empty queue with more slots, and becomes that; what is
    /// left of the old one is in `larger` then. Children keep their slots, and their order. Nobody
    /// is between [`Self::reserve`] and [`Self::put`], which takes the listener's lock.
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
        larger.listener = self.listener.take();
        core::mem::swap(self, larger);
    }

    fn used(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Keeps a place for a child, unless there is no room.
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        if self.listener.is_none() || self.used() >= self.limit {
            return None;
        }
        self.free.pop()
    }

    /// Gives back a place that got no child.
    pub(crate) fn unreserve(&mut self, slot: u32) {
        // There is room: the index came from here.
        let _ = self.free.push_within_capacity(slot);
    }

    /// If there is no room: takes out a half-open child whose peer has had time enough to answer.
    /// SYNs from addresses where nobody is would otherwise fill the queue until their last
    /// repetition is over, and keep everybody out. The child is to be told that it is stale.
    pub(crate) fn make_room(&mut self, now: u64) -> Option<SockRef<P>> {
        if self.listener.is_none() || self.used() < self.limit {
            return None;
        }
        for _ in 0..LOOKS.min(self.slots.len()) {
            let slot = self.hand;
            self.hand = slot.wrapping_add(1);
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let stale =
                |child: &mut Child<P>| child.half_open && now.saturating_sub(child.since) >= GRACE;
            let child = self.slots.get_mut(slot)?.take_if(stale);
            if let Some(Child { sock, .. }) = child {
                self.unreserve(slot as u32);
                // From here on the child ends itself, by whatever comes first.
                P::mark_stale(&sock);
                return Some(sock);
            }
        }
        None
    }

    /// Puts a half-open child in its place, unless the listener has closed meanwhile.
    pub(crate) fn put(&mut self, slot: u32, sock: SockRef<P>, since: u64) -> Option<SockRef<P>> {
        if self.listener.is_none() {
            return Some(sock);
        }
        let Some(place) = self.slots.get_mut(slot as usize) else {
            return Some(sock);
        };
        let child = Child {
            sock,
            since,
            half_open: true,
        };
        place.replace(child).map(|child| child.sock)
    }

    /// The place of `sock`, if that is still in it: it may have had to leave it to another.
    fn place_of(&mut self, slot: u32, sock: &Sock<P>) -> Option<&mut Option<Child<P>>> {
        let place = self.slots.get_mut(slot as usize)?;
        let found: &Sock<P> = &place.as_ref()?.sock;
        core::ptr::eq(found, sock).then_some(place)
    }

    /// Takes `sock` out, if it is still there.
    pub(crate) fn take(&mut self, slot: u32, sock: &Sock<P>) -> Option<SockRef<P>> {
        let child = self.place_of(slot, sock)?.take()?;
        self.unreserve(slot);
        Some(child.sock)
    }

    /// The child `sock` is connected: it waits for `accept` now. Returns the listener to wake, none
    /// if it has closed, or if the child had to make room.
    pub(crate) fn complete(&mut self, slot: u32, sock: &Sock<P>) -> Option<SockRef<P>> {
        self.place_of(slot, sock)?.as_mut()?.half_open = false;
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
