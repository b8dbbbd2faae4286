// SPDX-License-Identifier: GPL-2.0

//! A socket of TCP's gets another state than TCP gave it, and with it a queue that it does not
//! have.

use crate::net::inet::{StreamCall, Streams};
use crate::net::sock::TcpState;

fn listen<M: Streams>(call: &StreamCall<'_, M>) {
    drop::<u8>(call.sock().tcp_state());
    #[cfg(misuse)]
    call.sock().set_tcp_state(TcpState::Listen); //~ E0599
}
