// SPDX-License-Identifier: GPL-2.0-only

//! Compares socket filters over each protocol: which bytes they see, which packets they pass, and
//! how a program may replace a filter.

use guest::socket::meminfo::DROPS;
use libc::SOL_SOCKET;

use super::super::Family;
use crate::prelude::*;
use guest::bpf::{
    attach, attach_extended, detach, if_equal, keep, load_byte, load_extended, load_half, KEEP_ALL,
};

behaviours! {
    stream stream_filter_calls = calls;
    datagram datagram_filter_calls = calls;
    stream stream_filter_lock = lock;
    datagram datagram_filter_lock = lock;
    stream stream_filter_extended = extended;
    datagram datagram_filter_extended = extended;
    connected_datagrams datagram_filter_drops;
    connected_datagrams datagram_filter_sees_the_header;
    datagram datagram_filter_sees_the_payload;
    datagram datagram_filter_cuts;
    stream stream_filter_sees_the_header;
    stream stream_filter_of_a_listener_holds_for_its_connections;
    stream stream_filter_refuses_everybody;
}

fn calls(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    trace.see("detach without one", detach(&socket));
    trace.see("an empty one", attach(&socket, &[]));
    trace.see("one without an end", attach(&socket, &[load_byte(0)]));
    trace.see(
        "one that jumps out",
        attach(&socket, &[if_equal(1), KEEP_ALL]),
    );
    trace.see(
        "too short an option",
        socket.set_option(SOL_SOCKET, libc::SO_ATTACH_FILTER, &[0; 8]),
    );
    trace.see("a place that is nowhere", {
        let value = [1u64.to_ne_bytes(), 8u64.to_ne_bytes()].concat();
        socket.set_option(SOL_SOCKET, libc::SO_ATTACH_FILTER, &value)
    });
    trace.see("attach", attach(&socket, &[KEEP_ALL]));
    trace.see(
        "attach in its place",
        attach(&socket, &[load_byte(0), KEEP_ALL]),
    );
    // The option's length is a number of instructions, not a number of bytes.
    let count = socket.option(SOL_SOCKET, libc::SO_ATTACH_FILTER, 64, 0);
    trace.see("SO_GET_FILTER", count.map(|bytes| bytes.len()));
    trace.see("detach", detach(&socket));
    trace.see("detach again", detach(&socket));
    Ok(())
}

fn lock(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    attach(&socket, &[KEEP_ALL])?;
    trace.see("SO_LOCK_FILTER", socket.set_so(libc::SO_LOCK_FILTER, 1));
    trace.see("read", socket.so(libc::SO_LOCK_FILTER));
    trace.see("attach", attach(&socket, &[keep(0)]));
    trace.see("detach", detach(&socket));
    trace.see("attach an extended one", attach_extended(&socket, -1));
    trace.see("unlock", socket.set_so(libc::SO_LOCK_FILTER, 0));
    trace.see("lock again", socket.set_so(libc::SO_LOCK_FILTER, 1));
    Ok(())
}

fn extended(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    trace.see("no descriptor", attach_extended(&b, -1));
    trace.see("no program", attach_extended(&b, a.as_raw_fd()));
    let program = load_extended(i32::MAX)?;
    trace.see("attach", attach_extended(&b, program.as_raw_fd()));
    a.send(b"kept", 0)?;
    trace.receive("receive", &b, 100, 0);
    trace.see("detach", detach(&b));
    Ok(())
}

/// Returns the number of header bytes that a filter sees before the payload.
fn header(side: &Side<'_>) -> u32 {
    match side.family {
        Family::Inet | Family::Mapped => 8,
        Family::Enet => 6,
    }
}

/// Sends to a socket with a filter. Then removes the filter and sends once more, so that the filter
/// has handled all payloads when the last datagram arrives.
fn probe(trace: &Trace, a: &Socket, b: &Socket, payloads: &[&[u8]]) -> Outcome {
    for payload in payloads {
        a.send(payload, 0)?;
    }
    detach(b)?;
    a.send(b"the end", 0)?;
    // Frames stay in order, so the payloads that pass the filter are queued before the last
    // datagram.
    for _ in 0..=payloads.len() {
        trace.receive("receive", b, 100, 0);
        if guest::raw_calls::ioctl(b, libc::FIONREAD, &[])?[0] == 0 {
            break;
        }
    }
    Ok(())
}

fn datagram_filter_drops(trace: &Trace, (a, b): Pair) -> Outcome {
    attach(&b, &[keep(0)])?;
    a.send(b"refused", 0)?;
    guest::lab::eventually("the drop is counted", || Ok(b.meminfo()?[DROPS] == 1))?;
    trace.receive("nothing", &b, 100, libc::MSG_DONTWAIT);
    probe(trace, &a, &b, &[])
}

fn datagram_filter_sees_the_header(trace: &Trace, (a, b): Pair) -> Outcome {
    // In both protocols' headers the sender's port comes first, and the receiver's second.
    attach(&b, &[load_half(0), if_equal(7), KEEP_ALL, keep(0)])?;
    a.send(b"from port 7", 0)?;
    trace.receive("the sender's port", &b, 100, 0);
    attach(&b, &[load_half(2), if_equal(7), KEEP_ALL, keep(0)])?;
    a.send(b"to port 7", 0)?;
    trace.receive("the receiver's port", &b, 100, 0);
    Ok(())
}

fn datagram_filter_sees_the_payload(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    attach(
        &b,
        &[
            load_byte(header(side)),
            if_equal(u32::from(b'y')),
            KEEP_ALL,
            keep(0),
        ],
    )?;
    a.send(b"no", 0)?;
    a.send(b"yes", 0)?;
    // If a filter reads past the end of a packet, the packet is dropped.
    a.send(b"", 0)?;
    a.send(b"y", 0)?;
    trace.receive("receive", &b, 100, 0);
    trace.receive("receive again", &b, 100, 0);
    Ok(())
}

fn datagram_filter_cuts(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    for (label, kept) in [
        ("three bytes", 3),
        ("no byte", 0),
        ("more than there is", 100),
    ] {
        attach(&b, &[keep(header(side) + kept)])?;
        a.send(b"payload", 0)?;
        trace.receive(label, &b, 100, 0);
    }
    // A filter may truncate the payload, but never the header.
    attach(&b, &[keep(1)])?;
    a.send(b"payload", 0)?;
    trace.receive("one byte of all", &b, 100, 0);
    Ok(())
}

fn stream_filter_sees_the_header(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.stream(7)?;
    let port = u32::from(side.port(&a.local_name()?));
    let program = [load_half(0), if_equal(port), KEEP_ALL, keep(0)];
    trace.see("attach", attach(&b, &program));
    a.send(b"from that port", 0)?;
    trace.receive("receive", &b, 100, 0);
    let program = [load_half(2), if_equal(7), KEEP_ALL, keep(0)];
    trace.see("attach another", attach(&b, &program));
    a.send(b"to port 7", 0)?;
    trace.receive("receive", &b, 100, 0);
    drop(a);
    trace.receive("the end", &b, 100, 0);
    Ok(())
}

fn stream_filter_of_a_listener_holds_for_its_connections(
    side: &Side<'_>,
    trace: &Trace,
) -> Outcome {
    let listener = side.listener(7, 4)?;
    attach(&listener, &[KEEP_ALL])?;
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    let count = server.option(SOL_SOCKET, libc::SO_ATTACH_FILTER, 64, 0);
    trace.see("it has the listener's", count.is_ok());
    client.send(b"kept", 0)?;
    trace.receive("receive", &server, 100, 0);
    trace.see("detach", detach(&server));
    trace.see("the listener's stays", detach(&listener));
    Ok(())
}

fn stream_filter_refuses_everybody(side: &Side<'_>, trace: &Trace) -> Outcome {
    // The attempt must not fail before the filter is detached, which may take long on a busy
    // machine. So TCP may retransmit the SYN six times.
    side.lab.a.tcp_tries(6)?;
    let listener = side.listener(7, 4)?;
    attach(&listener, &[keep(0)])?;
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect", client.connect_bytes(&side.far(7)));
    guest::lab::eventually(
        "the drop is counted",
        || Ok(listener.meminfo()?[DROPS] >= 1),
    )?;
    trace.see("still connecting", client.connect_bytes(&side.far(7)));
    detach(&listener)?;
    // The filter is gone, so the listener accepts the next SYN.
    trace.poll_until("connected in the end", &client, libc::POLLOUT)?;
    trace.see("SO_ERROR", client.pending_error());
    trace.see("accept", listener.accept(0));
    Ok(())
}
