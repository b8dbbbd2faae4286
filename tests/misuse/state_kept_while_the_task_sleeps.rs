// SPDX-License-Identifier: GPL-2.0

//! The state stays borrowed while the task sleeps with the socket unlocked.

use crate::net::family::Call;
use crate::net::sock::Protocol;
use crate::net::wait::Waiter;

fn sleep_under_a_borrow<P: Protocol>(call: &Call<'_, P>) {
    let mut guard = call.lock();
    let locked = guard.locked();
    #[cfg(misuse)]
    let _ = guard.wait(call, &mut 0, Waiter::Shared, |_| true); //~ E0499
    drop(locked);
}
