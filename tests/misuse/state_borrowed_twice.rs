// SPDX-License-Identifier: GPL-2.0

//! The state of a locked socket is borrowed twice at the same time.

use crate::net::sock::{Protocol, Sock};

fn borrow_twice<P: Protocol>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let one = guard.state();
    #[cfg(misuse)]
    let _other = guard.state(); //~ E0499
    drop::<&mut P::State>(one);
}
