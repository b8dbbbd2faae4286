// SPDX-License-Identifier: GPL-2.0

//! The ACK queue: the order of the acknowledgements that open senders' windows (Treydte 2007).
//!
//! There is one queue per receiving device and namespace. The engine's [`esp::AckQueue`] decides
//! the order; this module has the lists of waiting sockets. The queue's lock is a leaf. A socket
//! takes it with the socket lock held, and [`serve`] releases the queue's lock before it gives a
//! turn to a socket. Turns are given in softirq context, after a packet or by the timer, never by a
//! task that owns another socket.

use crate::net::errno::prelude::*;
use crate::{
    esp::{self, ack_queue::LISTS, Connection, Demand, Slot, Verdict},
    net::{
        bh_lock::BhLock,
        device::{Configuration, Device, Mac},
        namespace::Net,
        owned_timer::{Expire, OwnedTimer},
        rcu,
        sock::{Locked, Protocol, Sock},
        sock_list::SockLists,
        softirq::Softirq,
        timer,
    },
    statistics::{Statistic, Statistics},
    sysctl::{Live, Seen},
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use kernel::{
    rbtree::{RBTree, RBTreeNode},
    sync::Arc,
};

/// A protocol whose sockets wait in ACK queues.
pub(crate) trait Scheduled: Protocol<Slot = esp::Slot> {
    /// Gives the socket its turn.
    fn take_turn(locked: &mut Locked<'_, Self>, now: u64);

    /// Defers the socket's turn to the task that owns the socket. The task takes the turn when it
    /// releases the socket.
    fn miss_turn(sock: &Sock<Self>);
}

/// A reference to a device's queue. The last reference must not be dropped under a socket's spin
/// lock, because the queue's timer may be waiting for that lock. A connection therefore keeps its
/// reference after its end, until the socket is freed or a task replaces the connection.
pub(super) type Shared<P> = Arc<OwnedTimer<AckQueue<P>>>;

/// The ACK queue of one receiving device.
pub(super) struct AckQueue<P: Scheduled> {
    ifindex: u32,
    arrivals: Arc<Arrivals>,
    live: Arc<Live>,
    statistics: Arc<Statistics>,
    /// Number of connections that have an entry.
    connections: AtomicU32,
    /// Whether a connection waits for its turn, as of the last release of `waiting`'s lock. If so,
    /// the engine learns of every arriving packet, since each arrival may permit the next turn.
    waits: AtomicBool,
    waiting: BhLock<Waiting<P>>,
    /// The link's speed in Mbit/s, or [`UNASKED`]. Written with the devices' configuration lock
    /// held, which also protects changes of the link.
    speed: AtomicU32,
}

/// The value of `speed` if the device has not been asked for its speed since the link last changed.
/// If the device reports no speed, `speed` is 0.
const UNASKED: u32 = u32::MAX;

struct Waiting<P: Scheduled> {
    /// The order of turns, boxed because it is too large to be moved on the stack of a softirq.
    order: KBox<esp::AckQueue>,
    sockets: SockLists<P, LISTS>,
    /// The time at which the timer expires; `u64::MAX` if the timer is not armed.
    armed: u64,
}

impl<P: Scheduled> Expire for AckQueue<P> {
    fn expired(this: &OwnedTimer<Self>, softirq: Softirq<'_>) {
        this.waiting.lock().armed = u64::MAX;
        serve(this, timer::now(), softirq);
    }
}

/// Whether a turn is due. If one is, call [`serve`] in softirq context without a socket's lock, or
/// let [the timer](QueueEntry::serve_by_timer) call it.
#[derive(Clone, Copy)]
#[must_use]
pub(super) struct Due(bool);

impl Due {
    /// No turn is due.
    pub(super) const NOT: Due = Due(false);

    /// Returns whether a turn is due.
    #[inline]
    pub(super) fn is_now(self) -> bool {
        self.0
    }

    /// Combines two results: a turn is due if one is due according to `self` or `other`.
    #[inline]
    pub(super) fn or(self, other: Due) -> Due {
        Due(self.0 || other.0)
    }
}

/// Arms the timer for `at`, unless it already expires earlier.
fn set_timer<P: Scheduled>(queue: &OwnedTimer<AckQueue<P>>, waiting: &mut Waiting<P>, at: u64) {
    if at < waiting.armed {
        waiting.armed = at;
        queue.arm(at);
    }
}

/// Gives all turns that are due. The caller must not have locked any socket of the queue.
pub(super) fn serve<P: Scheduled>(queue: &OwnedTimer<AckQueue<P>>, now: u64, softirq: Softirq<'_>) {
    loop {
        let mut guard = queue.waiting.lock();
        let waiting = &mut *guard;
        let overruns = waiting.order.overruns();
        waiting.order.note_arrival(queue.last_arrival());
        let Some(turn) = waiting.order.next_turn(now) else {
            if let Some(at) = waiting.order.deadline() {
                set_timer(queue, waiting, at);
            }
            queue.tell(waiting);
            return;
        };
        let Some(sock) = waiting.sockets.pop(turn.list().index()) else {
            queue.tell(waiting);
            return;
        };
        let slot = waiting.sockets.slot(&sock);
        if let Some(list) = slot.and_then(|slot| turn.give(slot)) {
            waiting.sockets.push(&sock, list.index());
            drop(guard);
            drop(sock);
            continue;
        }
        if waiting.order.overruns() != overruns {
            queue.statistics.count(Statistic::EspAckQueueOverrun);
        }
        drop(guard);
        let mut guard = sock.lock_bh(softirq);
        match guard.locked() {
            Some(mut locked) => P::take_turn(&mut locked, now),
            None => P::miss_turn(&sock),
        }
        drop(guard);
    }
}

impl<P: Scheduled> AckQueue<P> {
    /// Creates the queue of a device that has none yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cold]
    #[inline(never)]
    fn new_atomic(ifindex: u32, queues: &AckQueues<P>) -> Result<Shared<P>> {
        let waiting = Waiting {
            order: KBox::new(esp::AckQueue::default(), GFP_ATOMIC)?,
            sockets: SockLists::new_atomic()?,
            armed: u64::MAX,
        };
        OwnedTimer::new_atomic(AckQueue {
            ifindex,
            arrivals: queues.arrivals.clone(),
            live: queues.live.clone(),
            statistics: queues.statistics.clone(),
            connections: AtomicU32::new(0),
            waits: AtomicBool::new(false),
            waiting: BhLock::new_atomic(waiting, kernel::static_lock_class!())?,
            speed: AtomicU32::new(UNASKED),
        })
    }

    /// Returns the speed of the device's link in Mbit/s; 0 if it is not known.
    pub(super) fn speed(&self) -> u32 {
        match self.speed.load(Relaxed) {
            UNASKED => 0,
            speed => speed,
        }
    }

    /// Sets the speed of the link in Mbit/s, or [`UNASKED`]. The caller holds the devices'
    /// configuration lock.
    fn set_speed(&self, speed: u32) {
        self.speed.store(speed, Relaxed);
        self.waiting.lock().order.set_link(self.speed());
    }

    /// Returns the time at which the device last received a packet, of any connection.
    #[inline]
    fn last_arrival(&self) -> u64 {
        self.arrivals.last(self.ifindex)
    }

    /// Publishes whether a connection waits. Called before `waiting` is unlocked.
    #[inline]
    fn tell(&self, waiting: &Waiting<P>) {
        let waits = waiting.order.waiting() > 0;
        if self.waits.load(Relaxed) != waits {
            self.waits.store(waits, Relaxed);
        }
    }
}

/// A connection's entry in its device's ACK queue.
pub(super) struct QueueEntry<P: Scheduled> {
    queue: Shared<P>,
    /// The last change of the settings that was passed to the engine.
    seen: Seen,
    /// Whether the queue counts this connection among those with an incoming transmission.
    counted: bool,
}

impl<P: Scheduled> QueueEntry<P> {
    /// Creates an entry for the connection of `sock` with the host `peer`. The socket must have
    /// left the queue of any earlier connection.
    pub(super) fn new(sock: &Sock<P>, peer: Mac, queue: Shared<P>) -> Self {
        let slot = Slot::of(peer.to_bits());
        if queue.waiting.lock().sockets.admit(sock, slot) {
            queue.connections.fetch_add(1, Relaxed);
        }
        QueueEntry {
            queue,
            seen: Seen::default(),
            counted: false,
        }
    }

    /// Returns the queue that the entry is in.
    pub(super) fn queue(&self) -> &Shared<P> {
        &self.queue
    }

    /// Returns whether the queue has many connections. New connections report this to their peers.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.queue.connections.load(Relaxed) as usize > esp::ack_queue::CROWD
    }

    /// Returns whether any connection waits for its turn, in which case the engine is told of
    /// arriving packets.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.queue.waits.load(Relaxed)
    }

    /// Passes changed parameters to the engine. Called before the engine decides anything.
    #[inline]
    pub(super) fn refresh(&mut self, engine: &mut Connection) {
        if let Some(config) = self.queue.live.news(&mut self.seen) {
            engine.set_config(config);
        }
    }

    /// Returns the time at which the device last received a packet, of any connection.
    #[inline]
    pub(super) fn last_arrival(&self) -> u64 {
        self.queue.last_arrival()
    }

    /// Returns the counters of the namespace.
    #[inline]
    pub(super) fn statistics(&self) -> &Statistics {
        &self.queue.statistics
    }

    /// Reports the engine's demand to the queue. Called before anything is sent.
    #[inline]
    pub(super) fn update(&mut self, sock: &Sock<P>, engine: &mut Connection, now: u64) -> Due {
        let demand = engine.demand();
        let queue = &self.queue;
        if !demand.needs_schedule(self.counted, queue.waits.load(Relaxed)) {
            return Due::NOT;
        }
        let mut guard = queue.waiting.lock();
        let waiting = &mut *guard;
        self.counted = demand.counts();
        let Some(slot) = waiting.sockets.slot(sock) else {
            // The connection has left the queue, so nothing delays its acknowledgement.
            engine.take_turn();
            return Due::NOT;
        };
        slot.set_priority(sock.priority());
        let released = match waiting.order.schedule(slot, engine, now) {
            Verdict::Unchanged | Verdict::Turn => None,
            Verdict::Joins(list) => {
                waiting.sockets.push(sock, list.index());
                queue.statistics.count(Statistic::EspAckQueueWaited);
                None
            }
            Verdict::Leaves(_) => waiting.sockets.remove(sock),
        };
        waiting.order.note_arrival(queue.last_arrival());
        let due = waiting.order.is_due(now);
        if !due {
            if let Some(at) = waiting.order.deadline() {
                set_timer(queue, waiting, at);
            }
        }
        queue.tell(waiting);
        drop(guard);
        drop(released);
        Due(due)
    }

    /// Arms the timer to serve the queue, if a turn is due.
    #[inline]
    pub(super) fn serve_by_timer(&self, due: Due, now: u64) {
        if due.is_now() {
            set_timer(&self.queue, &mut self.queue.waiting.lock(), now);
        }
    }

    /// Removes an ended connection from the queue.
    pub(super) fn leave(&mut self, sock: &Sock<P>) {
        self.counted = false;
        let queue = &self.queue;
        let mut guard = queue.waiting.lock();
        let waiting = &mut *guard;
        let now = timer::now();
        if let Some(slot) = waiting.sockets.slot(sock) {
            queue.connections.fetch_sub(1, Relaxed);
            // The verdict is ignored, because `dismiss` below removes the socket from its list in
            // any case.
            let _ = waiting.order.update(slot, Demand::Nothing, now);
            waiting.order.release(slot);
        }
        let released = waiting.sockets.dismiss(sock);
        waiting.order.note_arrival(queue.last_arrival());
        if waiting.order.is_due(now) {
            set_timer(queue, waiting, now);
        }
        queue.tell(waiting);
        drop(guard);
        drop(released);
    }
}

/// The times at which ESP packets were last received from a namespace's devices. The sockets may
/// not have processed these packets yet, because a task may own a socket without running at the
/// time.
///
/// Devices whose indices are congruent modulo 16 share an entry. Packets of one such device can
/// hide for a while that nothing arrives at another.
///
/// An entry is not updated for every packet, so that the processors that serve a device do not
/// contend for the entry's cache line. So an entry may be up to [`GRAIN`] older than the last
/// packet. That is precise enough, because silence is measured in milliseconds.
#[derive(Default)]
pub(super) struct Arrivals([Arrival; 16]);

/// The least time between two arrivals that are both stored, in nanoseconds. A packet that arrives
/// sooner after the last stored arrival is not stored.
const GRAIN: u64 = 20_000;

/// The time at which the last packet arrived. Each `Arrival` has a cache line of its own, since
/// different processors serve different devices.
#[derive(Default)]
#[repr(align(64))]
struct Arrival(AtomicU64);

impl Arrivals {
    /// Stores that a packet arrived at the time `now`, in nanoseconds of the monotonic clock.
    #[inline]
    pub(super) fn pass(&self, ifindex: u32, now: u64) {
        if let Some(arrival) = self.0.get(ifindex as usize % 16) {
            if now.wrapping_sub(arrival.0.load(Relaxed)) > GRAIN {
                arrival.0.store(now, Relaxed);
            }
        }
    }

    #[inline]
    fn last(&self, ifindex: u32) -> u64 {
        self.0
            .get(ifindex as usize % 16)
            .map_or(0, |arrival| arrival.0.load(Relaxed))
    }
}

/// The ACK queues of a namespace, one for each device that a connection uses.
pub(crate) struct AckQueues<P: Scheduled> {
    /// The queues, by interface index.
    queues: BhLock<RBTree<u32, Shared<P>>>,
    arrivals: Arc<Arrivals>,
    live: Arc<Live>,
    statistics: Arc<Statistics>,
}

impl<P: Scheduled> AckQueues<P> {
    /// Creates an empty set. Its connections read the settings in `live`, and count events in
    /// `statistics`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(live: Arc<Live>, statistics: Arc<Statistics>) -> Result<Self> {
        Ok(AckQueues {
            live,
            statistics,
            queues: BhLock::new(RBTree::new(), kernel::static_lock_class!())?,
            arrivals: Arc::new(Arrivals::default(), GFP_KERNEL_ACCOUNT)?,
        })
    }

    /// Returns the times at which packets were last received from the devices.
    #[inline]
    pub(super) fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Returns the queue of a device. A caller that holds a spin lock must call this in the same
    /// RCU read section in which it looked up the device. During that section, the namespace keeps
    /// the queue, so the caller never drops the last reference to it under the lock.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the device has no queue yet and none can be created.
    pub(super) fn of(&self, ifindex: u32) -> Result<Shared<P>> {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get(&ifindex) {
            return Ok(queue.clone());
        }
        let queue = AckQueue::new_atomic(ifindex, self)?;
        let node = RBTreeNode::new(ifindex, queue.clone(), GFP_ATOMIC)?;
        let before = queues.insert(node);
        drop(queues);
        drop(before);
        Ok(queue)
    }

    /// Returns whether the device has a queue, that is, whether a connection has requested one. If
    /// not, connections that request it later see all changes that the caller made before this
    /// call.
    pub(super) fn has(&self, ifindex: u32) -> bool {
        self.queues.lock().get(&ifindex).is_some()
    }

    /// Asks a device for its link's speed, unless the current speed is known. May sleep; the caller
    /// holds no lock.
    pub(super) fn ask_speed(&self, net: &Net, ifindex: u32) {
        let section = rcu::Read::enter();
        let real = Device::find(net, ifindex, &section).filter(|device| device.has_parent());
        let queue = real.and_then(|_| self.of(ifindex).ok());
        drop(section);
        let Some(queue) = queue.filter(|queue| queue.speed.load(Relaxed) == UNASKED) else {
            return;
        };
        let configuration = Configuration::lock();
        let speed = configuration.link_speed(net, ifindex).unwrap_or(0);
        queue.set_speed(speed);
    }

    /// Forgets the speed of a device's link, which may have changed. The caller holds the devices'
    /// configuration lock.
    pub(crate) fn forget_speed(&self, ifindex: u32) {
        let queue = self.queues.lock().get(&ifindex).cloned();
        if let Some(queue) = queue {
            queue.set_speed(UNASKED);
        }
    }

    /// Removes the queue of a removed device. The queue is freed once no socket refers to it.
    pub(crate) fn forget(&self, ifindex: u32) {
        let node = self.queues.lock().remove_node(&ifindex);
        drop(node);
    }
}
