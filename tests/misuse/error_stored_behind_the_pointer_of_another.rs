// SPDX-License-Identifier: GPL-2.0

//! An error is stored in the socket in front of one of TCP's, whose pointer is not to a socket.

use crate::net::errno::EINVAL;
use crate::net::inet::{StreamCall, Streams};

fn fail<M: Streams>(call: &StreamCall<'_, M>) {
    call.report_error(EINVAL);
    #[cfg(misuse)]
    call.sock().report_error(EINVAL); //~ E0599
}
