// SPDX-License-Identifier: GPL-2.0

//! Datagrams whose payload stays in the program's pages until they are sent (EZDP, `MSG_ZEROCOPY`).

use super::{output::fits, sock::Edp};
use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    edp::wire::{checksum_len, HEADER_LEN},
    net::{message::Message, rcu, skb::Skb, sock::Sock, uapi},
};

/// A datagram's properties that are known before the socket is locked.
struct Datagram {
    to: Address,
    len: usize,
    with_checksum: bool,
    /// Headroom that the device needs, in bytes.
    headroom: usize,
}

/// Returns whether the bytes of a send call stay in place.
#[inline]
pub(super) fn is_wanted(sock: &Sock<Edp>, msg: &Message<'_>) -> bool {
    let always = sock.shared().always_in_place;
    (always || msg.asks_in_place()) && msg.may_stay_in_place(sock)
}

/// Sends a datagram in place. A payload that spans more pages than a buffer can refer to is copied.
pub(super) fn send(sock: &Sock<Edp>, msg: &mut Message<'_>, len: usize) -> Result {
    let (to, with_checksum, headroom) = Edp::prepare(sock, msg, len)?;
    let datagram = Datagram {
        to,
        len,
        with_checksum,
        headroom,
    };
    let cookie = msg.cookie(sock)?;
    let nonblocking = msg.flags() & uapi::MSG_DONTWAIT != 0;
    let skb = sock.alloc_send(
        headroom,
        HEADER_LEN + checksum_len(with_checksum),
        nonblocking,
    )?;
    // The socket stays locked while the datagram is built and sent. If that fails, the number of
    // the completion notification is used again, so no other call may take the next number first.
    let _guard = sock.lock();
    msg.begin_in_place(sock, len, None)?;
    let result = datagram.fill(sock, skb, msg).and_then(|mut skb| {
        skb.set_cookie(sock, &cookie);
        let mut to = datagram.to;
        let section = rcu::Read::enter();
        let device = Edp::way(sock, &mut to, &section)?;
        fits(device, len, with_checksum)?;
        Edp::transmit(sock, device, skb, &to)
    });
    msg.end_in_place(result.is_ok());
    result
}

impl Datagram {
    /// Returns the whole datagram: in `skb`, or in another buffer with a copy of the payload.
    fn fill(&self, sock: &Sock<Edp>, mut skb: Skb, msg: &mut Message<'_>) -> Result<Skb> {
        let header = Edp::header(sock, &self.to, self.len, self.with_checksum)?.emit();
        if !skb.put(&header) {
            return Err(ENOBUFS);
        }
        match sock.put_in_place(&mut skb, msg, self.len) {
            Err(error) if error == EMSGSIZE => {
                drop(skb);
                skb = self.copy(sock, &header, msg)?;
            }
            other => other?,
        }
        if self.with_checksum && !skb.append_sum(0) {
            return Err(ENOBUFS);
        }
        Ok(skb)
    }

    fn copy(&self, sock: &Sock<Edp>, header: &[u8], msg: &mut Message<'_>) -> Result<Skb> {
        msg.note_copy();
        let nonblocking = msg.flags() & uapi::MSG_DONTWAIT != 0;
        let room = HEADER_LEN + self.len + checksum_len(self.with_checksum);
        let mut skb = sock.alloc_send(self.headroom, room, nonblocking)?;
        if !skb.put(header) {
            return Err(ENOBUFS);
        }
        skb.put_from(msg, self.len)?;
        Ok(skb)
    }
}
