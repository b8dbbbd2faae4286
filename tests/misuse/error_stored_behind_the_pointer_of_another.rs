// SPDX-License-Identifier: GPL-2.0

//! An error is stored in a TCP socket as if the TCP socket were a socket of the module's own
//! protocol. The `sk_user_data` of a TCP socket does not point to such a socket.

use crate::net::errno::EINVAL;
use crate::net::inet::{StreamCall, Streams};

fn fail<M: Streams>(call: &StreamCall<'_, M>) {
    call.report_error(EINVAL);
    #[cfg(misuse)]
    call.sock().report_error(EINVAL); //~ E0599
}
