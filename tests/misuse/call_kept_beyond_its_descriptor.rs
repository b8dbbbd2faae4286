// SPDX-License-Identifier: GPL-2.0

//! A `Call` is kept after the system call has returned. By then its descriptor may be gone.

use crate::net::family::Call;
use crate::net::sock::Protocol;

fn keep<T: 'static>(_: T) {}

fn call<P: Protocol>(call: &Call<'_, P>) {
    keep(call.try_hold());
    #[cfg(misuse)]
    keep(call); //~ E0521
}
