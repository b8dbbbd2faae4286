// SPDX-License-Identifier: GPL-2.0

//! A task sleeps on a socket that may have no descriptor, and thus no wait queue.

use crate::net::family::Call;
use crate::net::sock::{Protocol, Sock};

fn sleep<P: Protocol>(call: &Call<'_, P>) {
    let _ = call.wait(&mut 0, || true);
    let sock: &Sock<P> = call.sock();
    #[cfg(misuse)]
    let _ = sock.wait(&mut 0, || true); //~ E0599
    let _ = sock.shutdown();
}
