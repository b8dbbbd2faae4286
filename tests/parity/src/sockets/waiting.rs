// SPDX-License-Identifier: GPL-2.0-only

//! Compares calls that wait on a stream or a datagram socket: several calls at once, calls that a
//! shutdown ends, and calls that a signal interrupts.

use super::super::events_text;
use super::super::signals::{each_way, interrupted};
use crate::prelude::*;
use guest::asleep::POLL;

behaviours! {
    stream stream_threads_poll_one_stream = pollers;
    datagram datagram_threads_poll_one_socket = pollers;
    stream stream_receive_interrupted = receive_interrupted;
    datagram datagram_receive_interrupted = receive_interrupted;
}

fn pollers(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    let seen = crowd(
        POLL,
        4,
        || await_events(&b, libc::POLLIN),
        |_| {
            a.send(b"for all", 0)?;
            Ok(())
        },
    )?;
    for events in seen {
        trace.see("one sees", events_text(events?));
    }
    trace.receive("receive", &b, 100, 0);
    Ok(())
}

/// Adds to the trace the results of waiting receive calls after the receiving half of `socket` is
/// shut down.
pub fn receives_shut_down(trace: &Trace, socket: &Socket) -> Outcome {
    let got = crowd(
        libc::SYS_recvfrom,
        3,
        || socket.receive(&mut [0; 10], 0),
        |_| Ok(socket.shutdown(libc::SHUT_RD)?),
    )?;
    for result in got {
        trace.see("one receives", result);
    }
    trace.see("sending goes on", socket.send(b"x", 0));
    Ok(())
}

fn receive_interrupted(side: &Side<'_>, trace: &Trace) -> Outcome {
    each_way(|what, limit, port| {
        let (a, b) = side.pair(port)?;
        b.set_timeout(libc::SO_RCVTIMEO, limit)?;
        let call = || b.receive(&mut [0; 10], 0);
        let release = || Ok(a.send(b"data", 0).map(drop)?);
        let _ = interrupted(trace, what, libc::SYS_recvfrom, call, release)?;
        Ok(())
    })
}
