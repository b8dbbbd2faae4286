// SPDX-License-Identifier: GPL-2.0

//! Receiving by a ring that the program has mapped (`EP_SO_RECEIVE_RING`).
//!
//! Payload that is next in order goes to the ring, as if a reader had taken it at once. Payload
//! that does not fit goes to the receive queue, and so does all that follows until receive calls
//! have emptied the queue. So the flow control is the queue's, and a program that does not read
//! stops its peer. The program takes the bytes of the ring first. If the control page then says so,
//! it makes a receive call, for queued bytes, an error, or the end of the stream.

use super::{
    receive::is_over,
    sock::{parts, Esp, LockedEsp},
};
use crate::net::errno::prelude::*;
use crate::{
    net::{
        namespace::PerNet,
        ring::Ring,
        skb::Skb,
        sock::{Sock, TcpState},
        timer,
    },
    pernet::NetState,
    skb_cb::Unread,
};

/// Makes a ring of `size` bytes for the connection.
///
/// # Errors
///
/// `EOPNOTSUPP` for records and listeners, `EBUSY` if there is a ring already, and the errors of
/// [`Ring::new`].
pub(super) fn make(sock: &Sock<Esp>, size: u32) -> Result {
    if sock.keeps_records() {
        return Err(EOPNOTSUPP);
    }
    if sock.shared().unread.ring.is_set() {
        return Err(EBUSY);
    }
    let ring = Ring::new(size as usize)?;
    let _guard = sock.lock();
    if sock.tcp_state() == TcpState::Listen as u8 {
        return Err(EOPNOTSUPP);
    }
    if !sock.shared().unread.ring.set(ring) {
        return Err(EBUSY);
    }
    tell(sock);
    Ok(())
}

/// Returns the size of the ring in bytes, 0 if there is none.
pub(super) fn size(sock: &Sock<Esp>) -> u32 {
    (sock.shared().unread.ring.get()).map_or(0, |ring| ring.size() as u32)
}

/// Puts payload that is next in order, `bytes` of `skb`, into the ring. Returns the buffer if it
/// must be queued instead.
#[inline(never)]
pub(super) fn put(esp: &mut LockedEsp<'_>, skb: Skb, bytes: Unread) -> Option<Skb> {
    let sock = esp.sock();
    let unread = &sock.shared().unread;
    let Some(ring) = unread.ring.get() else {
        return Some(skb);
    };
    if unread.count() > 0 || !ring.put(&skb, bytes.start as usize, bytes.len()) {
        ring.set_call(true);
        return Some(skb);
    }
    skb.consume();
    count_as_read(esp);
    sock.data_ready();
    None
}

/// Tells the engine that bytes which were not queued count as read.
pub(super) fn count_as_read(esp: &mut LockedEsp<'_>) {
    if let Some((sock, connection)) = parts(esp) {
        // As in `acknowledge`.
        if let Some(wanted) = connection.engine.wanted_room() {
            let settings = &NetState::of(sock.net()).sysctl;
            settings.grow_receive_buffer(sock, wanted);
        }
        if connection.engine.waits_for_room() {
            let room = connection.room(sock, 0);
            connection.engine.on_read(room, timer::now());
        }
    }
}

/// Tells the program of the ring, if there is one, whether a receive call has something to return.
#[inline]
pub(super) fn tell(sock: &Sock<Esp>) {
    let unread = &sock.shared().unread;
    if let Some(ring) = unread.ring.get() {
        ring.set_call(unread.count() > 0 || is_over(sock));
    }
}

/// Returns whether there is a ring. Receive calls then never sleep, since the bytes that they would
/// wait for go to the ring.
#[inline]
pub(super) fn is_made(sock: &Sock<Esp>) -> bool {
    sock.shared().unread.ring.is_set()
}

/// Returns whether the next bytes that are processed go to a ring, since a receive call has emptied
/// the queue. The call then ends before it processes its backlog: what does not fit into the ring
/// is queued, and must not be read before the bytes in the ring.
#[inline]
pub(super) fn is_next(sock: &Sock<Esp>) -> bool {
    let unread = &sock.shared().unread;
    unread.count() == 0 && unread.ring.is_set()
}

/// Returns whether a reader must stop waiting: because the connection is over, or because the bytes
/// that it waits for are in a ring.
#[cold]
#[inline(never)]
pub(super) fn ends_wait(sock: &Sock<Esp>) -> bool {
    is_over(sock) || has_bytes(sock)
}

/// Returns whether the ring has bytes that the program has not taken.
#[inline]
pub(super) fn has_bytes(sock: &Sock<Esp>) -> bool {
    (sock.shared().unread.ring.get()).is_some_and(|ring| ring.unread() > 0)
}
