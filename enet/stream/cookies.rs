// SPDX-License-Identifier: GPL-2.0

//! The SYN cookies of listeners, and which of them have been used.

use super::sock::Esp;
use crate::{
    address::Address,
    esp::{self, cookie::Client, Header, Seq},
    net::{namespace::PerNet, sock::Sock},
    pernet::NetState,
};

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
