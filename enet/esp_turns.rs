// SPDX-License-Identifier: GPL-2.0

//! The ACK queue: whose acknowledgement leaves next by a device (Treydte 2007).
//!
//! There is one lane per receiving device and namespace. It decides by [`Turns`] and keeps the line
//! of sockets that wait. Its lock is a leaf: a socket takes it with its own lock held, and a lane
//! that gives a socket its turn has let go of it before. A turn is given in softirq context, behind
//! a packet or from the lane's alarm, never by a task that has some other socket locked.

use crate::net::errno::prelude::*;
use crate::{
    counters::Counter,
    esp::{Ticket, Turns},
    esp_connection::{Shared, Stream, TURN},
    esp_output,
    esp_socket::Esp,
    net::{
        alarm::{self, Alarm, Alarmed},
        bh_lock::BhLock,
        line::{Line, Lined, Place},
        sock::Sock,
        timer,
    },
    sysctl::Live,
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::sync::Arc;

impl Lined for Esp {
    type Ticket = Ticket;

    fn place(shared: &Shared) -> &Place<Self> {
        &shared.place
    }
}

/// One receiving device's turns.
pub(crate) struct Lane {
    // First: it is to be silent before anything else goes.
    alarm: Alarm<Lane>,
    ifindex: u32,
    arrivals: Arc<Arrivals>,
    live: Arc<Live>,
    queue: BhLock<Queue>,
    /// Acknowledgements that had to wait for their turn.
    waited: Counter,
    /// Times that a turn was taken from a silent holder.
    overrun: Counter,
}

struct Queue {
    turns: Turns,
    line: Line<Esp>,
    /// When the alarm goes off; `u64::MAX` if it is not armed.
    armed: u64,
}

// SAFETY: `alarm` is the first field, and lanes are made and stay in an `Arc`. `ring` takes the lane's
// lock, and the spin locks of sockets. The last reference is given back with none of them held: by the
// end of a socket, by a task that makes its socket anew and owns that without the spin lock, behind a
// packet, or when the device goes. A stream that is over keeps its lane until then, see `leave`. Who
// looks a lane up with a spin lock held is in a read section that has found the device, as long as
// which the namespace keeps the lane.
unsafe impl Alarmed for Lane {
    fn alarm(&self) -> &Alarm<Self> {
        &self.alarm
    }

    fn ring(&self) {
        self.queue.lock().armed = u64::MAX;
        self.serve(timer::now());
    }
}

impl Lane {
    /// The lane of a device that has none yet, made where the caller may not sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn new(ifindex: u32, lanes: &Lanes) -> Result<Arc<Self>> {
        let queue = Queue {
            turns: Turns::default(),
            line: Line::new_atomic()?,
            armed: u64::MAX,
        };
        let lane = Lane {
            ifindex,
            arrivals: lanes.arrivals.clone(),
            live: lanes.live.clone(),
            queue: BhLock::new_atomic(queue, kernel::static_lock_class!())?,
            alarm: Alarm::new_atomic()?,
            waited: Counter::new(),
            overrun: Counter::new(),
        };
        Ok(Arc::new(lane, GFP_ATOMIC)?)
    }

    /// When a packet of any connection last came by the device.
    #[inline]
    pub(crate) fn busy(&self) -> u64 {
        self.arrivals.last(self.ifindex)
    }

    /// Has the line looked at again when that is next due, unless the alarm goes off before.
    fn set_alarm(&self, queue: &mut Queue, at: u64) {
        if at < queue.armed {
            queue.armed = at;
            alarm::arm(self, at);
        }
    }

    /// Gives turns as far as they are due, in softirq context without a socket's lock.
    pub(crate) fn serve(&self, now: u64) {
        loop {
            let mut guard = self.queue.lock();
            let queue = &mut *guard;
            let overruns = queue.turns.overruns();
            queue.turns.heard(self.busy());
            if !queue.turns.head_leaves(now) {
                if let Some(at) = queue.turns.deadline() {
                    self.set_alarm(queue, at);
                }
                return;
            }
            if queue.turns.overruns() != overruns {
                self.overrun.count();
            }
            let Some(sock) = queue.line.pop() else {
                return;
            };
            if let Some(ticket) = queue.line.ticket(&sock) {
                queue.turns.depart(ticket, now);
            }
            drop(guard);
            let mut guard = sock.lock_bh();
            match guard.parts() {
                Some((sock, stream)) => grant(sock, stream, now),
                // The task that owns the socket does it when it releases it.
                None => {
                    sock.shared().missed.fetch_or(TURN, Relaxed);
                }
            }
            drop(guard);
        }
    }
}

/// The socket's turn has come.
pub(crate) fn grant(sock: &Sock<Esp>, stream: &mut Stream, now: u64) {
    refresh(stream);
    stream.connection.take_turn();
    esp_output::transmit(sock, stream, now);
}

/// Makes a new connection one of its device's lane. The caller has the socket locked, and it has
/// left the lane of any connection before.
pub(crate) fn join(sock: &Sock<Esp>, stream: &mut Stream, lane: Arc<Lane>) {
    lane.queue.lock().line.admit(sock);
    stream.lane = Some(lane);
    stream.scheduled = false;
}

/// Takes in what was set since, before the engine decides anything.
#[inline]
pub(crate) fn refresh(stream: &mut Stream) {
    if let Some(lane) = &stream.lane {
        if let Some(config) = lane.live.news(&mut stream.seen) {
            stream.connection.set_config(config);
        }
    }
}

/// Tells the lane what the engine now wants: to be called before anything is sent.
#[inline]
pub(crate) fn update(sock: &Sock<Esp>, stream: &mut Stream, now: u64) {
    let scheduled = stream.connection.is_scheduled();
    let wants = stream.connection.wants_turn();
    if !wants && scheduled == stream.scheduled {
        return;
    }
    let Some(lane) = &stream.lane else {
        stream.connection.take_turn();
        return;
    };
    let mut guard = lane.queue.lock();
    let queue = &mut *guard;
    stream.scheduled = scheduled;
    let Some(ticket) = queue.line.ticket(sock) else {
        // On its way out: nobody is kept waiting for it.
        stream.connection.take_turn();
        return;
    };
    let stood = queue.turns.update(ticket, scheduled);
    if wants {
        if queue.turns.ask(ticket, now) {
            stream.connection.take_turn();
        } else {
            stream.connection.wait_turn();
            queue.line.push(sock);
            lane.waited.count();
        }
    }
    let released = if stood { queue.line.remove(sock) } else { None };
    queue.turns.heard(lane.busy());
    if queue.turns.is_due(now) {
        if stream.serves {
            stream.served = true;
        } else {
            lane.set_alarm(queue, now);
        }
    } else if let Some(at) = queue.turns.deadline() {
        lane.set_alarm(queue, at);
    }
    drop(guard);
    drop(released);
}

/// The connection is over: it counts no more. The caller has the socket locked.
pub(crate) fn leave(sock: &Sock<Esp>, stream: &mut Stream) {
    // The stream keeps its reference: this may be the last, and the alarm may be waiting for the
    // spin lock that the caller has.
    let Some(lane) = &stream.lane else {
        return;
    };
    stream.scheduled = false;
    let mut guard = lane.queue.lock();
    let queue = &mut *guard;
    if let Some(ticket) = queue.line.ticket(sock) {
        queue.turns.update(ticket, false);
    }
    let released = queue.line.dismiss(sock);
    let now = timer::now();
    queue.turns.heard(lane.busy());
    if queue.turns.is_due(now) {
        lane.set_alarm(queue, now);
    }
    drop(guard);
    drop(released);
}

/// When ESP packets last came by a namespace's devices, whether or not their sockets could look at
/// them yet: a task may have a socket locked, and run or not.
///
/// Devices whose indices are congruent share an entry: what this is asked for, whether somebody may
/// still be sending, is then answered with yes a little longer.
#[derive(Default)]
pub(crate) struct Arrivals([Arrival; 16]);

/// On a cache line of its own, for devices are served by different processors.
#[derive(Default)]
#[repr(align(64))]
struct Arrival(AtomicU64);

impl Arrivals {
    /// A packet comes by at `now`, nanoseconds of the monotonic clock.
    #[inline]
    pub(crate) fn pass(&self, ifindex: u32, now: u64) {
        if let Some(arrival) = self.0.get(ifindex as usize % 16) {
            arrival.0.store(now, Relaxed);
        }
    }

    #[inline]
    fn last(&self, ifindex: u32) -> u64 {
        self.0
            .get(ifindex as usize % 16)
            .map_or(0, |arrival| arrival.0.load(Relaxed))
    }
}

/// The lanes of a namespace.
pub(crate) struct Lanes {
    lanes: BhLock<KVec<Arc<Lane>>>,
    pub(crate) arrivals: Arc<Arrivals>,
    live: Arc<Live>,
}

impl Lanes {
    /// None yet; connections look at `live`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(live: Arc<Live>) -> Result<Self> {
        Ok(Lanes {
            live,
            lanes: BhLock::new(KVec::new(), kernel::static_lock_class!())?,
            arrivals: Arc::new(Arrivals::default(), GFP_KERNEL)?,
        })
    }

    /// The lane of a device.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when it has none yet and none can be made.
    pub(crate) fn of(&self, ifindex: u32) -> Result<Arc<Lane>> {
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.iter().find(|lane| lane.ifindex == ifindex) {
            return Ok(lane.clone());
        }
        let lane = Lane::new(ifindex, self)?;
        lanes.push(lane.clone(), GFP_ATOMIC)?;
        Ok(lane)
    }

    /// A device is gone: its lane lasts as long as sockets that know it.
    pub(crate) fn forget(&self, ifindex: u32) {
        let mut lanes = self.lanes.lock();
        let place = lanes.iter().position(|lane| lane.ifindex == ifindex);
        let lane = place.and_then(|place| lanes.remove(place).ok());
        drop(lanes);
        drop(lane);
    }

    /// Acknowledgements that had to wait for their turn, and times that a turn was taken from a
    /// silent holder, by the devices that are there.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let lanes = self.lanes.lock();
        lanes.iter().fold((0, 0), |(waited, overrun), lane| {
            (
                lane.waited.get().wrapping_add(waited),
                lane.overrun.get().wrapping_add(overrun),
            )
        })
    }
}
