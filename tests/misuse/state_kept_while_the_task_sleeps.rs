// SPDX-License-Identifier: GPL-2.0

//! The state is borrowed while the task sleeps with the lock released.

use crate::net::sock::{Protocol, Sock};
use crate::net::wait::Waiter;

fn sleep_under_a_borrow<P: Protocol>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let state = guard.state();
    #[cfg(misuse)]
    let _ = guard.wait(&mut 0, Waiter::Shared, |_, _| true); //~ E0499
    drop::<&mut P::State>(state);
}
