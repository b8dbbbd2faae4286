// SPDX-License-Identifier: GPL-2.0

//! An error is stored in the front of a TCP socket, whose `sk_user_data` does not point to a
//! socket.

use crate::net::errno::EINVAL;
use crate::net::inet::{StreamCall, Streams};

fn fail<M: Streams>(call: &StreamCall<'_, M>) {
    call.report_error(EINVAL);
    #[cfg(misuse)]
    call.sock().report_error(EINVAL); //~ E0599
}
