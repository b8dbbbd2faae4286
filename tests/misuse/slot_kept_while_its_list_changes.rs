// SPDX-License-Identifier: GPL-2.0

//! A list's slot, which is part of a socket, stays borrowed while the socket is removed from the
//! list. After the removal, another list may use the slot.

use crate::net::sock::{Protocol, Sock};
use crate::net::sock_list::SockLists;

fn dismiss_under_a_borrow<P: Protocol>(list: &mut SockLists<P, 2>, sock: &Sock<P>) {
    let slot = list.slot(sock);
    #[cfg(misuse)]
    let _ = list.dismiss(sock); //~ E0499
    drop::<Option<&mut P::Slot>>(slot);
}
