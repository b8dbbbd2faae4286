// SPDX-License-Identifier: GPL-2.0

//! SYN cookies of listeners, and a record of the used ones, so that no cookie makes a second
//! connection.
//!
//! A copy of a client's first packet may arrive after its connection has ended. Every SYN|ACK of a
//! listener has a cookie for its number. Each connection that opens leaves a 32-bit mark in a table
//! of fixed size, where it replaces the mark at the same index. So a flood of clients needs no
//! further memory. But the flood replaces marks sooner, so copies are recognized for a shorter
//! time.

use super::sock::Esp;
use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    esp::{
        self,
        cookie::{Client, Mark, MARKS},
        Header, Seq,
    },
    net::{namespace::PerNet, sock::Sock},
    pernet::NetState,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The marks of the used cookies of a namespace.
pub(crate) struct Marks(KVVec<AtomicU32>);

impl Marks {
    /// Creates an empty table.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let mut marks = KVVec::with_capacity(MARKS, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..MARKS {
            marks.push(AtomicU32::new(0), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Marks(marks))
    }

    /// Returns whether a connection has opened whose SYN|ACK had the cookie with this mark.
    fn contains(&self, mark: Mark) -> bool {
        self.0
            .get(mark.index)
            .is_some_and(|tag| tag.load(Relaxed) == mark.tag)
    }

    /// Stores the mark of a connection that has opened.
    fn add(&self, mark: Mark) {
        if let Some(tag) = self.0.get(mark.index) {
            tag.store(mark.tag, Relaxed);
        }
    }
}

/// Returns the hash function for a listener's cookies. It depends on the kind of socket. So if a
/// listener for records and a listener for streams use the same port one after the other, neither
/// accepts the other's cookies.
pub(super) fn hash(listener: &Sock<Esp>) -> impl Fn([u64; 3]) -> u64 + '_ {
    let records = u64::from(listener.keeps_records()) << 63;
    let kind = records | u64::from(listener.shared().domain().is_some()) << 61;
    move |[client, here, epoch]| {
        let net_state = NetState::of(listener.net());
        net_state.cookie_secret.hash([client, here, epoch ^ kind])
    }
}

/// Returns the client that sent a packet.
pub(super) fn client(peer: &Address) -> Client {
    Client {
        mac: peer.mac.to_bits(),
        ifindex: peer.ifindex,
    }
}

/// Returns whether a connection has opened that `peer` asked for by `syn`, and that `listener`
/// accepted with the number `cookie`.
pub(super) fn is_used(listener: &Sock<Esp>, peer: &Address, syn: &Header, cookie: Seq) -> bool {
    let mark = client(peer).mark(syn, cookie, hash(listener));
    NetState::of(listener.net()).cookie_marks.contains(mark)
}

/// Notes that the connection of `listener` with `peer` has opened.
#[cold]
pub(super) fn note_use(listener: &Sock<Esp>, peer: &Address, engine: &esp::Connection) {
    let (syn, cookie) = engine.accepted();
    let mark = client(peer).mark(&syn, cookie, hash(listener));
    NetState::of(listener.net()).cookie_marks.add(mark);
}
