//! The plain dialogue: what most programs do and nothing else.

use super::super::{Side, Trace};
use crate::harness::{Outcome, Scenario};

/// The behaviours of this file.
pub const ALL: &[Scenario] = &[Scenario::datagram("datagram_dialogue", dialogue)];

fn dialogue(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    trace.poll("before", &b)?;
    let _ = trace.call("send", a.send(b"question", 0));
    trace.poll_until("something came", &b, libc::POLLIN)?;
    trace.receive("receive", &b, 100, 0);
    let _ = trace.call("answer", b.send(b"answer", 0));
    trace.receive("receive the answer", &a, 100, 0);
    trace.poll("after", &a)?;
    Ok(())
}
