// SPDX-License-Identifier: GPL-2.0

//! Receiving datagrams by a ring that the program has mapped (`EP_SO_RECEIVE_RING`).
//!
//! From the moment on in which there is a ring, datagrams go there, and are dropped if they do not
//! fit. Receive calls return those that were queued before, and never sleep.

use super::sock::Edp;
use crate::net::errno::prelude::*;
use crate::{
    net::{rcu, ring::DatagramRing, skb::Skb, sock::Sock, softirq::Softirq},
    skb_cb::Origin,
};
use core::sync::atomic::{fence, Ordering::SeqCst};

/// Makes a ring of `size` bytes for the socket.
///
/// # Errors
///
/// `EBUSY` if there is a ring already, and the errors of [`Ring::new`].
pub(super) fn make(sock: &Sock<Edp>, size: u32) -> Result {
    let of_sock = &sock.shared().ring;
    if of_sock.is_set() {
        return Err(EBUSY);
    }
    let ring = DatagramRing::new(size as usize)?;
    // Calls come first until it is known that the queue is empty.
    ring.set_call(true);
    if !of_sock.set(ring) {
        return Err(EBUSY);
    }
    // A packet that another processor handles now may not have seen the ring, and joins the queue.
    rcu::synchronize();
    tell(sock);
    Ok(())
}

/// Puts a datagram into the ring, and wakes a reader. Returns the datagram if it does not fit.
#[cold]
#[inline(never)]
pub(super) fn put(
    sock: &Sock<Edp>,
    skb: Skb,
    softirq: Softirq<'_>,
) -> core::result::Result<(), Skb> {
    let Origin(sender) = skb.note();
    let ring = sock.shared().ring.get();
    if !ring.is_some_and(|ring| ring.put(&sender.emit(), &skb, softirq)) {
        return Err(skb);
    }
    skb.consume();
    sock.data_ready();
    Ok(())
}

/// Tells the program whether a receive call has a datagram to return, one that was queued before
/// there was a ring. Another reader may take that datagram meanwhile. The program then makes a call
/// in vain, which tells again.
pub(super) fn tell(sock: &Sock<Edp>) {
    let Some(ring) = sock.shared().ring.get() else {
        return;
    };
    ring.set_call(!sock.receives_nothing());
    fence(SeqCst);
    // A datagram may have joined the queue since the look above, and another call may have told of
    // it before this one stored what it saw.
    if !sock.receives_nothing() {
        ring.set_call(true);
    }
}

/// Returns the number of bytes in the ring that the program has not taken.
pub(super) fn unread(sock: &Sock<Edp>) -> u32 {
    (sock.shared().ring.get()).map_or(0, |ring| ring.unread() as u32)
}
