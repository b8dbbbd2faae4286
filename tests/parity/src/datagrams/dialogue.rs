// SPDX-License-Identifier: GPL-2.0-only

//! Compares UDP and EDP in the dialogue of most programs: a question and its answer.

use crate::prelude::*;

behaviours! {
    connected_datagrams datagram_dialogue;
}

fn datagram_dialogue(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.poll("before", &b)?;
    trace.see("send", a.send(b"question", 0));
    trace.poll_until("something came", &b, libc::POLLIN)?;
    trace.receive("receive", &b, 100, 0);
    trace.see("answer", b.send(b"answer", 0));
    trace.receive("receive the answer", &a, 100, 0);
    trace.poll("after", &a)
}
