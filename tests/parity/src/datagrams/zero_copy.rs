// SPDX-License-Identifier: GPL-2.0-only

//! Compares datagrams that UDP and EDP send without copying (`MSG_ZEROCOPY`).

use io_uring::{opcode, types::Fd};

use crate::prelude::*;
use guest::zero_copy::{completed, completed_from, is_on, none_left, switch};

behaviours! {
    connected_datagrams datagram_zero_copy_sends_are_completed;
    connected_datagrams datagram_zero_copy_is_switched_on;
    connected_datagrams datagram_zero_copy_that_fails_is_not_completed;
    connected_datagrams datagram_zero_copy_by_uring;
}

const ZEROCOPY: i32 = libc::MSG_ZEROCOPY;

fn datagram_zero_copy_sends_are_completed(trace: &Trace, (a, b): Pair) -> Outcome {
    switch(&a, 1)?;
    let bytes = random(1400, 7);
    for (number, length) in [1, 60, 1000, 1400].into_iter().enumerate() {
        trace.see("send", a.send(&bytes[..length], ZEROCOPY));
        let mut got = vec![0; 2000];
        trace.see("receive", b.receive(&mut got, 0));
        trace.see("as it was", got[..length] == bytes[..length]);
        let copies = completed_from(&a, number as u32, 1)?;
        trace.see("completed", format!("{copies:?} copied"));
    }
    trace.see("without the flag", a.send(b"plain", 0));
    trace.receive("receive", &b, 10, 0);
    none_left(&a)
}

fn datagram_zero_copy_is_switched_on(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.see("at first", is_on(&a));
    trace.see("the flag alone", a.send(b"copied", ZEROCOPY));
    trace.receive("receive", &b, 10, 0);
    none_left(&a)?;
    for value in [2, -1, 1] {
        trace.see(&format!("set to {value}"), switch(&a, value));
    }
    trace.see("is", is_on(&a));
    trace.see("nothing", a.send(b"", ZEROCOPY));
    trace.receive("receive", &b, 10, 0);
    completed(&a, 1)?;
    Ok(())
}

fn datagram_zero_copy_that_fails_is_not_completed(trace: &Trace, (a, b): Pair) -> Outcome {
    switch(&a, 1)?;
    let bad = a.send_message(&[Piece::Bad(100)], ZEROCOPY, &[]);
    trace.see("unreadable", bad);
    trace.see("too long", a.send(&vec![0; 70_000], ZEROCOPY));
    trace.see("good", a.send(b"good", ZEROCOPY));
    trace.receive("receive", &b, 10, 0);
    completed(&a, 1)?;
    a.shutdown(libc::SHUT_WR)?;
    trace.see("after the end", a.send(b"late", ZEROCOPY));
    none_left(&a)
}

fn datagram_zero_copy_by_uring(trace: &Trace, (a, b): Pair) -> Outcome {
    let mut ring = Ring::new()?;
    let bytes = random(1200, 7);
    let fd = Fd(a.as_raw_fd());
    let entry = opcode::SendZc::new(fd, bytes.as_ptr(), bytes.len() as u32).build();
    // SAFETY: The buffer lives to the end of this function. The function waits for the
    // notification.
    unsafe { ring.start(1, entry) }?;
    let sent = ring.wait(1)?;
    trace.see("sent", sent);
    trace.see("a notification follows", io_uring::cqueue::more(sent.flags));
    let mut got = vec![0; 2000];
    trace.see("receive", b.receive(&mut got, 0));
    trace.see("as it was", got[..bytes.len()] == bytes);
    let notification = ring.wait(1)?;
    trace.see("it is one", io_uring::cqueue::notif(notification.flags));
    none_left(&a)
}
