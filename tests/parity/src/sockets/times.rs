// SPDX-License-Identifier: GPL-2.0-only

//! Compares the information that a receiver can get in addition to the data: arrival time, number
//! of lost packets, mark, priority and processor.

use guest::socket::meminfo::DROPS;
use std::time::{SystemTime, UNIX_EPOCH};

use libc::SOL_SOCKET;

use crate::prelude::*;
use guest::control::{receive_with_control, send_with_control, Control};

// Numbers that the libc crate does not define for this target.
const SO_RCVMARK: i32 = 75;
const SO_RCVPRIORITY: i32 = 82;

/// The flags for software time stamps of received packets.
const SOFTWARE: i32 = (1 << 4) | (1 << 3);

behaviours! {
    stream stream_timestamp_in_microseconds = micros;
    datagram datagram_timestamp_in_microseconds = micros;
    stream stream_timestamp_in_nanoseconds = nanos;
    datagram datagram_timestamp_in_nanoseconds = nanos;
    stream stream_timestamp_by_software = software;
    datagram datagram_timestamp_by_software = software;
    stream stream_timestamp_of_an_accepted_socket = accepted;
    stream stream_timestamp_without_room = without_room;
    datagram datagram_timestamp_without_room = without_room;
    stream stream_timestamp_of_a_peek = look;
    datagram datagram_timestamp_of_a_peek = look;
    stream stream_processor_of_the_last_packet = processor;
    datagram datagram_processor_of_the_last_packet = processor;
    datagram datagram_drop_counter;
    datagram datagram_mark_and_priority;
    datagram datagram_transmit_time;
}

/// Sends until the receiver gets a control message. The receiver has `room` bytes for control
/// messages; if a message does not fit, the receiver gets `MSG_CTRUNC` instead.
///
/// The kernel starts to take time stamps shortly after the first socket has asked for them. It may
/// also be about to stop taking them, because an earlier socket no longer asks for them. Until it
/// has started, any packet of a stream may lack a time stamp.
fn told(a: &Socket, b: &Socket, flags: i32, room: usize) -> Result<(usize, i32, Vec<Control>)> {
    let end = Instant::now() + patience();
    loop {
        a.send(b"x", 0)?;
        let (length, back, control) = receive_with_control(b, flags, room)?;
        if back & libc::MSG_CTRUNC != 0 || !control.is_empty() {
            return Ok((length, back, control));
        }
        if flags & libc::MSG_PEEK != 0 {
            receive_with_control(b, 0, room)?;
        }
        ensure!(Instant::now() < end, "no time came");
    }
}

fn seconds(data: &[u8]) -> i64 {
    data.first_chunk()
        .map_or(0, |bytes| i64::from_ne_bytes(*bytes))
}

fn is_now(seconds: i64) -> bool {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.abs_diff(Duration::from_secs(seconds.max(0) as u64)) < Duration::from_secs(300)
}

fn note(trace: &Trace, what: &str, control: &[Control]) {
    for Control { level, kind, data } in control {
        let text = format!(
            "level {level}, type {kind}, {} bytes, now: {}",
            data.len(),
            is_now(seconds(data))
        );
        trace.see(what, text);
    }
}

fn times(side: &Side<'_>, trace: &Trace, option: i32, value: i32) -> Outcome {
    let (a, b) = side.pair(7)?;
    trace.see("set", b.set_so(option, value));
    trace.see("read", b.so(option));
    for what in ["a packet's", "another's"] {
        let (_, _, control) = told(&a, &b, 0, 512)?;
        note(trace, what, &control);
    }
    trace.see("unset", b.set_so(option, 0));
    a.send(b"x", 0)?;
    let (_, flags, control) = receive_with_control(&b, 0, 512)?;
    trace.see("control messages then", control.len());
    trace.see("flags", flags);
    Ok(())
}

fn micros(side: &Side<'_>, trace: &Trace) -> Outcome {
    times(side, trace, libc::SO_TIMESTAMP, 1)
}

fn nanos(side: &Side<'_>, trace: &Trace) -> Outcome {
    times(side, trace, libc::SO_TIMESTAMPNS, 1)
}

fn software(side: &Side<'_>, trace: &Trace) -> Outcome {
    times(side, trace, libc::SO_TIMESTAMPING, SOFTWARE)
}

/// In this test the listener is the first socket that asks for time stamps. The accepted socket
/// must still get time stamps after the listener is closed.
fn accepted(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    trace.see("set", listener.set_so(libc::SO_TIMESTAMPING, SOFTWARE));
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    drop(listener);
    trace.see("read", server.so(libc::SO_TIMESTAMPING));
    for what in ["a packet's", "another's"] {
        let (_, _, control) = told(&client, &server, 0, 512)?;
        note(trace, what, &control);
    }
    Ok(())
}

fn without_room(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    b.set_so(libc::SO_TIMESTAMP, 1)?;
    for room in [0, 8, 24] {
        let (length, flags, control) = told(&a, &b, 0, room)?;
        trace.see(
            &format!("room for {room}"),
            format!(
                "{length} bytes, flags {flags:#x}, {} messages",
                control.len()
            ),
        );
    }
    a.send(b"x", 0)?;
    trace.receive("a plain receive", &b, 1, 0);
    Ok(())
}

fn look(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    b.set_so(libc::SO_TIMESTAMPNS, 1)?;
    let (_, _, first) = told(&a, &b, libc::MSG_PEEK, 512)?;
    let (_, _, second) = receive_with_control(&b, 0, 512)?;
    note(trace, "the look", &first);
    trace.see("the same as when it is taken", first == second);
    Ok(())
}

fn processor(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    a.send(b"x", 0)?;
    trace.receive("receive", &b, 1, 0);
    let number = b.so(libc::SO_INCOMING_CPU)?;
    // SAFETY: `sysconf` takes an integer and no pointer.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    trace.see(
        "it is one of the machine's",
        (0..processors).contains(&i64::from(number)),
    );
    Ok(())
}

fn datagram_drop_counter(side: &Side<'_>, trace: &Trace) -> Outcome {
    const SENT: u32 = 40;
    let (a, b) = side.datagrams(7)?;
    b.set_so(libc::SO_RXQ_OVFL, 1)?;
    b.set_so(libc::SO_RCVBUF, 1)?;
    a.send(b"before", 0)?;
    let (_, _, control) = receive_with_control(&b, 0, 512)?;
    trace.see("before anything is lost", control.len());
    for _ in 0..SENT {
        a.send(&[7; 1000], 0)?;
    }
    let (mut kept, mut dropped) = (0, 0);
    eventually("every datagram is received or lost", || {
        while receive_with_control(&b, libc::MSG_DONTWAIT, 512).is_ok() {
            kept += 1;
        }
        dropped = b.meminfo()?[DROPS];
        Ok(kept + dropped == SENT)
    })?;
    trace.see("some were received", kept > 0);
    trace.see("some were lost", dropped > 0);
    a.send(b"after", 0)?;
    let (_, _, control) = receive_with_control(&b, 0, 512)?;
    for Control { level, kind, data } in control {
        trace.see("told", format!("level {level}, type {kind}"));
        trace.see("told how many", data == dropped.to_ne_bytes());
    }
    Ok(())
}

fn datagram_mark_and_priority(side: &Side<'_>, trace: &Trace) -> Outcome {
    // The datagram is sent within one host, because a packet loses its mark and its priority on the
    // way to another host.
    let host = &side.lab.a;
    let (from, to) = (side.socket(host)?, side.bound(host, 7)?);
    from.connect_bytes(&side.address(host, host, 7))?;
    for option in [SO_RCVMARK, SO_RCVPRIORITY] {
        to.set_so(option, 1)?;
    }
    let receive = |what: &str| -> Outcome {
        let (_, _, control) = receive_with_control(&to, 0, 512)?;
        for Control { level, kind, data } in control {
            trace.see(what, format!("level {level}, type {kind}, data {data:?}"));
        }
        Ok(())
    };
    from.send(b"plain", 0)?;
    receive("plain")?;
    from.set_so(libc::SO_MARK, 77)?;
    from.set_so(libc::SO_PRIORITY, 5)?;
    from.send(b"by option", 0)?;
    receive("by option")?;
    for (label, kind, value) in [
        ("mark", libc::SO_MARK, 78i32),
        ("priority", libc::SO_PRIORITY, 3),
    ] {
        let control = Control {
            level: SOL_SOCKET,
            kind,
            data: value.to_ne_bytes().to_vec(),
        };
        trace.see(
            &format!("a {label} for one"),
            send_with_control(&from, b"x", &control, None),
        );
        receive(&format!("by a {label} for one"))?;
    }
    from.send(b"by option", 0)?;
    receive("after these")
}

fn datagram_transmit_time(side: &Side<'_>, trace: &Trace) -> Outcome {
    const SO_TXTIME: i32 = 61;
    let (a, b) = side.datagrams(7)?;
    let control = |length| Control {
        level: SOL_SOCKET,
        kind: SO_TXTIME,
        data: vec![1; length],
    };
    trace.see(
        "without SO_TXTIME",
        send_with_control(&a, b"x", &control(8), None),
    );
    let clock = [libc::CLOCK_MONOTONIC.to_ne_bytes(), [0; 4]].concat();
    trace.see("SO_TXTIME", a.set_option(SOL_SOCKET, SO_TXTIME, &clock));
    trace.see("too short", send_with_control(&a, b"x", &control(4), None));
    trace.see(
        "with it",
        send_with_control(&a, b"leaves", &control(8), None),
    );
    trace.receive("receive", &b, 100, 0);
    b.set_so(libc::SO_TIMESTAMPNS, 1)?;
    trace.see("again", send_with_control(&a, b"leaves", &control(8), None));
    let (_, _, times) = receive_with_control(&b, 0, 512)?;
    note(trace, "the time it came", &times);
    Ok(())
}
