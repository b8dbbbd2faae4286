// SPDX-License-Identifier: GPL-2.0

//! A `Call` is used after its descriptor was closed.

use crate::net::family::{Call, Closing};
use crate::net::sock::Protocol;

fn close_too_early<P: Protocol>(closing: Closing<'_, P>) {
    let call: &Call<'_, P> = &closing;
    #[cfg(misuse)]
    drop(closing); //~ E0505
    let _ = call.state();
}
