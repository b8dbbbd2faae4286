// SPDX-License-Identifier: GPL-2.0

//! A function for the module's own sockets stores an error in a TCP socket. The function follows
//! `sk_user_data`, which in a TCP socket does not point to a socket of the module.

use crate::net::errno::EINVAL;
use crate::net::inet::{StreamCall, Streams};

fn fail<M: Streams>(call: &StreamCall<'_, M>) {
    call.report_error(EINVAL);
    #[cfg(misuse)]
    call.sock().report_error(EINVAL); //~ E0599
}
