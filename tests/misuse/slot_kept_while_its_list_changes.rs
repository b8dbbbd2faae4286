// SPDX-License-Identifier: GPL-2.0

//! The slot that a list stores in a socket is used at a time when the socket may belong to another
//! list already.

use crate::net::sock::{Protocol, Sock};
use crate::net::sock_list::SockLists;

fn dismiss_under_a_borrow<P: Protocol>(list: &mut SockLists<P, 2>, sock: &Sock<P>) {
    let slot = list.slot(sock);
    #[cfg(misuse)]
    let _ = list.dismiss(sock); //~ E0499
    drop::<Option<&mut P::Slot>>(slot);
}
