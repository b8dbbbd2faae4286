// SPDX-License-Identifier: GPL-2.0

//! The module marks a TCP socket as listening, although TCP has set up no accept queue for it.

use crate::net::inet::{StreamCall, Streams};
use crate::net::sock::TcpState;

fn listen<M: Streams>(call: &StreamCall<'_, M>) {
    drop::<u8>(call.sock().tcp_state());
    #[cfg(misuse)]
    call.sock().set_tcp_state(TcpState::Listen); //~ E0599
}
