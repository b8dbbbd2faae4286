// SPDX-License-Identifier: GPL-2.0-only

//! Compares how UDP and EDP peek at datagrams: `MSG_PEEK` and `SO_PEEK_OFF`.

use super::super::moments::deliver;
use crate::prelude::*;

behaviours! {
    connected_datagrams datagram_peek_leaves_the_first;
    connected_datagrams datagram_peek_at_a_part;
    connected_datagrams datagram_peek_at_an_empty_one;
    connected_datagrams datagram_peek_offset_moves_on;
    connected_datagrams datagram_peek_offset_and_lengths;
}

const PEEK: i32 = libc::MSG_PEEK;
const TRUNC: i32 = libc::MSG_TRUNC;
const NOW: i32 = libc::MSG_DONTWAIT;

fn datagram_peek_leaves_the_first(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.receive("peek at nothing", &b, 10, PEEK | NOW);
    deliver(&a, &b, b"first")?;
    deliver(&a, &b, b"second")?;
    trace.receive("peek", &b, 100, PEEK);
    trace.receive("peek again", &b, 100, PEEK);
    trace.receive("receive", &b, 100, 0);
    trace.receive("peek at the next", &b, 100, PEEK);
    trace.receive("receive the next", &b, 100, 0);
    trace.receive("nothing is left", &b, 100, PEEK | NOW);
    Ok(())
}

fn datagram_peek_at_a_part(trace: &Trace, (a, b): Pair) -> Outcome {
    deliver(&a, &b, b"hello")?;
    trace.receive("peek at a part", &b, 3, PEEK);
    let mut room = [0; 3];
    trace.see("peek for the length", b.receive(&mut room, PEEK | TRUNC));
    trace.see("with no room", b.receive(&mut [], PEEK | TRUNC));
    trace.receive("it is whole", &b, 100, 0);
    Ok(())
}

fn datagram_peek_at_an_empty_one(trace: &Trace, (a, b): Pair) -> Outcome {
    deliver(&a, &b, b"")?;
    deliver(&a, &b, b"behind")?;
    for _ in 0..3 {
        trace.receive("peek at the empty one", &b, 100, PEEK | NOW);
    }
    trace.receive("receive it", &b, 100, NOW);
    trace.receive("receive the one behind", &b, 100, NOW);
    Ok(())
}

fn offset(trace: &Trace, what: &str, socket: &guest::socket::Socket) {
    trace.see(what, socket.so(libc::SO_PEEK_OFF));
}

fn datagram_peek_offset_moves_on(trace: &Trace, (a, b): Pair) -> Outcome {
    offset(trace, "at first", &b);
    deliver(&a, &b, b"hello")?;
    deliver(&a, &b, b"world")?;
    trace.see("set", b.set_so(libc::SO_PEEK_OFF, 0));
    trace.receive("peek", &b, 3, PEEK);
    offset(trace, "after it", &b);
    trace.receive("peek on", &b, 100, PEEK);
    trace.receive("into the next", &b, 2, PEEK);
    offset(trace, "after both", &b);
    trace.receive("receive the first", &b, 100, 0);
    offset(trace, "less the first", &b);
    trace.receive("the rest of the second", &b, 100, PEEK);
    trace.receive("nothing is left to see", &b, 100, PEEK | NOW);
    trace.see("off", b.set_so(libc::SO_PEEK_OFF, -1));
    trace.receive("the second, whole", &b, 100, PEEK);
    trace.receive("taken", &b, 100, 0);
    Ok(())
}

fn datagram_peek_offset_and_lengths(trace: &Trace, (a, b): Pair) -> Outcome {
    deliver(&a, &b, b"hello world")?;
    b.set_so(libc::SO_PEEK_OFF, 6)?;
    let mut room = [0; 20];
    trace.see("from the middle", b.receive(&mut room, PEEK | TRUNC));
    offset(trace, "after it", &b);
    b.set_so(libc::SO_PEEK_OFF, 6)?;
    trace.receive("a part from there", &b, 3, PEEK);
    trace.see("in flight", b.queued(libc::FIONREAD));
    trace.receive("received from its start", &b, 100, 0);
    offset(trace, "at last", &b);
    Ok(())
}
