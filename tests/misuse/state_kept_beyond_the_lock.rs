// SPDX-License-Identifier: GPL-2.0

//! The state of a socket is used after the socket was unlocked.

use crate::net::sock::{Protocol, Sock};

fn unlock_too_early<P: Protocol>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let state = guard.locked().state;
    #[cfg(misuse)]
    drop(guard); //~ E0505
    drop::<&mut P::State>(state);
}
