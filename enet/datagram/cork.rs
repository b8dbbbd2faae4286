// SPDX-License-Identifier: GPL-2.0

//! Datagrams assembled from several sends (`MSG_MORE`).

use super::{
    output::{fits, fits_peer},
    sock::{Edp, Pending},
    zerocopy,
};
use crate::net::errno::prelude::*;
use crate::{
    edp,
    net::{
        message::{Cookie, Message},
        rcu,
        sock::Sock,
        uapi,
    },
};
use core::sync::atomic::Ordering::Relaxed;

/// Starts, continues or completes a datagram of several sends. An error discards the whole
/// datagram, as in UDP.
pub(super) fn send(sock: &Sock<Edp>, msg: &mut Message<'_>, len: usize) -> Result {
    let mut guard = sock.lock();
    let pending = guard.locked().state;
    let in_place = zerocopy::is_wanted(sock, msg);
    let begun = if in_place {
        msg.begin_in_place(sock, len, None)
    } else {
        Ok(())
    };
    // Several sends share a buffer, so their data is copied. The completion notification of a
    // zero-copy send must report the copy.
    msg.note_copy();
    let result = begun.and_then(|()| {
        append(sock, pending, msg, len)?;
        if msg.flags() & uapi::MSG_MORE != 0 {
            return Ok(());
        }
        push(sock, pending)
    });
    msg.end_in_place(result.is_ok());
    if result.is_err() {
        *pending = None;
    }
    sock.shared().corked.store(pending.is_some(), Relaxed);
    result
}

/// Sends the pending datagram as it is, because no more data follow.
pub(super) fn no_more(sock: &Sock<Edp>) {
    if sock.shared().corked.load(Relaxed) {
        let mut guard = sock.lock();
        let pending = guard.locked().state;
        // The error is ignored, because no call waits for it here.
        let _ = push(sock, pending);
        sock.shared().corked.store(false, Relaxed);
    }
}

fn append(
    sock: &Sock<Edp>,
    pending: &mut Option<Pending>,
    msg: &mut Message<'_>,
    len: usize,
) -> Result {
    let (pending, cookie) = match pending {
        Some(pending) => (pending, None),
        None => {
            let (begun, cookie) = begin(sock, msg)?;
            (pending.insert(begun), Some(cookie))
        }
    };
    if len > pending.room.saturating_sub(pending.skb.len()) {
        return Err(EMSGSIZE);
    }
    pending.skb.put_from(msg, len)?;
    // Only a message that is accepted takes a number for time stamps.
    if let Some(cookie) = cookie {
        pending.skb.set_cookie(sock, &cookie);
    }
    Ok(())
}

/// Begins a datagram: allocates an empty one for the destination of its first message, `msg`. The
/// buffer has room for the largest datagram. Also returns what `msg` says of send time and time
/// stamps.
fn begin(sock: &Sock<Edp>, msg: &mut Message<'_>) -> Result<(Pending, Cookie)> {
    let mut to = Edp::destination(sock, msg)?;
    let with_checksum = sock.shared().sums.load(Relaxed);
    let (headroom, room) = {
        let section = rcu::Read::enter();
        let device = Edp::way(sock, &mut to, &section)?;
        let room = edp::wire::mtu(device.mtu(), with_checksum) as usize;
        (device.headroom(), room)
    };
    let headroom = headroom.saturating_add(edp::wire::HEADER_LEN);
    let nonblocking = msg.flags() & uapi::MSG_DONTWAIT != 0;
    let cookie = msg.cookie(sock)?;
    let size = room.saturating_add(edp::wire::checksum_len(with_checksum));
    let skb = sock.alloc_send(headroom, size, nonblocking)?;
    Ok((Pending { skb, to, room }, cookie))
}

fn push(sock: &Sock<Edp>, pending: &mut Option<Pending>) -> Result {
    let Some(Pending {
        mut skb, mut to, ..
    }) = pending.take()
    else {
        return Ok(());
    };
    let section = rcu::Read::enter();
    let device = Edp::way(sock, &mut to, &section)?;
    let len = skb.len();
    let with_checksum = sock.shared().sums.load(Relaxed);
    fits(device, len, with_checksum)?;
    fits_peer(device, &to, len, with_checksum)?;
    if !skb.push(&Edp::header(sock, &to, len, with_checksum)?.emit()) {
        return Err(ENOBUFS);
    }
    if with_checksum && !skb.append_sum(0) {
        return Err(ENOBUFS);
    }
    Edp::transmit(sock, device, skb, &to)
}
