// SPDX-License-Identifier: GPL-2.0-only

//! Compares time stamps of sent data (`SO_TIMESTAMPING`): the reports that the sender gets, the
//! bytes that they cover, and their order.

use libc::SOL_SOCKET;

use crate::moments::send_apart;
use crate::prelude::*;
use guest::control::{send_with_control, Control};
use guest::stamps::{
    report, set, OPT_CMSG, OPT_ID, OPT_ID_TCP, OPT_STATS, OPT_TSONLY, RAW_HARDWARE, SOFTWARE,
    TX_ACK, TX_HARDWARE, TX_SCHED, TX_SOFTWARE,
};

/// A flag that the kernel does not know.
const UNKNOWN: u32 = 1 << 29;
/// `SCM_TS_OPT_ID`.
const SCM_TS_OPT_ID: i32 = 81;

behaviours! {
    stream stream_stamp_of_each_send = each;
    datagram datagram_stamp_of_each_send = each;
    stream stream_stamp_of_each_stage = stages;
    datagram datagram_stamp_of_each_stage = stages;
    stream stream_stamp_of_one_send = one_send;
    datagram datagram_stamp_of_one_send = one_send;
    stream stream_stamp_with_a_chosen_number = chosen_number;
    datagram datagram_stamp_with_a_chosen_number = chosen_number;
    stream stream_stamp_with_the_packet = with_the_packet;
    datagram datagram_stamp_with_the_packet = with_the_packet;
    stream stream_stamp_by_hardware_that_has_none = hardware;
    datagram datagram_stamp_by_hardware_that_has_none = hardware;
    stream stream_stamp_within_one_host = one_host;
    datagram datagram_stamp_within_one_host = one_host;
    stream stream_stamp_readiness = readiness;
    datagram datagram_stamp_readiness = readiness;
    stream stream_stamp_options = options;
    datagram datagram_stamp_options = options;
    stream stream_stamp_of_an_accepted_socket = accepted;
    stream stream_stamp_numbers_are_bytes = bytes;
    stream stream_stamp_of_many_packets = many_packets;
    stream stream_stamp_of_a_part = part;
    stream stream_stamp_option_before_connecting = before_connecting,
        differs(&[Difference::new("numbers", "EINVAL", "success")]);
    datagram datagram_stamp_of_several_sends = several_sends;
}

/// Makes two connected sockets.
fn pair(side: &Side<'_>) -> Result<(Socket, Socket)> {
    side.lab.calm()?;
    side.pair(7)
}

/// Returns the next report as text, or `None` if no report comes within `time`.
fn in_words(socket: &Socket, time: Duration) -> Result<Option<String>> {
    Ok(report(socket, time)?.map(|report| report.to_string()))
}

/// Adds to the trace the next `count` reports, and whether another report follows them.
fn see(trace: &Trace, what: &str, socket: &Socket, count: usize) -> Outcome {
    for _ in 0..count {
        trace.see(what, in_words(socket, patience())?);
    }
    trace.see("more", in_words(socket, Duration::ZERO)?);
    Ok(())
}

/// Returns whether the kernel reports when the peer has acknowledged data. It does so only for
/// streams.
fn acknowledges(side: &Side<'_>) -> bool {
    side.is_stream()
}

/// Sends `bytes`, and waits until the other end has received them.
fn send(a: &Socket, b: &Socket, bytes: &[u8]) -> Outcome {
    let sent = a.send(bytes, 0)?;
    ensure!(sent == bytes.len(), "{sent} bytes were sent");
    receives(b, bytes)
}

fn each(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    trace.see("set", set(&a, TX_SOFTWARE | SOFTWARE | OPT_TSONLY | OPT_ID));
    trace.see("read", a.so(libc::SO_TIMESTAMPING));
    for bytes in [&b"abc"[..], b"defgh", b"i"] {
        send(&a, &b, bytes)?;
        see(trace, "report", &a, 1)?;
    }
    // From here on reports have no numbers, since OPT_ID is not set.
    trace.see("set", set(&a, TX_SOFTWARE | SOFTWARE | OPT_TSONLY));
    send(&a, &b, b"abc")?;
    see(trace, "report without a number", &a, 1)?;
    trace.see("set", set(&a, SOFTWARE | OPT_TSONLY));
    send(&a, &b, b"abc")?;
    trace.see("no report", in_words(&a, Duration::ZERO)?);
    trace.see("set", set(&a, TX_SOFTWARE | SOFTWARE | OPT_TSONLY | OPT_ID));
    send(&a, &b, b"abcd")?;
    see(trace, "numbers begin anew", &a, 1)
}

fn stages(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    let all = TX_SCHED | TX_SOFTWARE | TX_ACK;
    trace.see("set", set(&a, all | SOFTWARE | OPT_TSONLY | OPT_ID));
    let count = if acknowledges(side) { 3 } else { 2 };
    for bytes in [&b"abc"[..], b"defgh"] {
        send(&a, &b, bytes)?;
        see(trace, "report", &a, count)?;
    }
    if acknowledges(side) {
        trace.see("set", set(&a, TX_ACK | SOFTWARE | OPT_TSONLY | OPT_ID));
        send(&a, &b, b"abc")?;
        see(trace, "acknowledgement alone", &a, 1)?;
    }
    Ok(())
}

fn one_send(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    trace.see("set", set(&a, SOFTWARE | OPT_TSONLY | OPT_ID));
    let control = |flags: u32| Control {
        level: SOL_SOCKET,
        kind: libc::SO_TIMESTAMPING,
        data: flags.to_ne_bytes().to_vec(),
    };
    send(&a, &b, b"none")?;
    trace.see("no report", in_words(&a, Duration::ZERO)?);
    for flags in [TX_SOFTWARE, TX_SCHED | TX_SOFTWARE, 0] {
        trace.see("send", send_with_control(&a, b"abc", &control(flags), None));
        receives(&b, b"abc")?;
        see(trace, "report", &a, flags.count_ones() as usize)?;
    }
    for flags in [SOFTWARE, OPT_ID, UNKNOWN] {
        let sent = send_with_control(&a, b"abc", &control(flags), None);
        trace.see("a flag that is none of sends", sent);
    }
    trace.see("set", set(&a, TX_SOFTWARE | SOFTWARE | OPT_TSONLY | OPT_ID));
    trace.see("send", send_with_control(&a, b"abc", &control(0), None));
    receives(&b, b"abc")?;
    trace.see("a send without", in_words(&a, Duration::ZERO)?);
    Ok(())
}

fn chosen_number(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    let control = Control {
        level: SOL_SOCKET,
        kind: SCM_TS_OPT_ID,
        data: 77u32.to_ne_bytes().to_vec(),
    };
    let send = |what: &str| -> Outcome {
        let sent = send_with_control(&a, b"abc", &control, None);
        let came = sent.is_ok();
        trace.see(what, sent);
        if came {
            receives(&b, b"abc")?;
        }
        Ok(())
    };
    send("without numbers")?;
    set(&a, TX_SOFTWARE | SOFTWARE | OPT_TSONLY | OPT_ID)?;
    send("with numbers")?;
    let count = usize::from(!side.is_stream());
    see(trace, "report", &a, count)
}

fn with_the_packet(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    trace.see("set", set(&a, TX_SOFTWARE | SOFTWARE | OPT_ID));
    send(&a, &b, b"abc")?;
    see(trace, "report", &a, 1)?;
    trace.see("set", set(&a, TX_SOFTWARE | SOFTWARE | OPT_ID | OPT_CMSG));
    send(&a, &b, b"abc")?;
    trace.see("report", in_words(&a, patience())?);
    if acknowledges(side) {
        trace.see("set", set(&a, TX_ACK | SOFTWARE | OPT_ID));
        send(&a, &b, b"abc")?;
        see(trace, "report", &a, 1)?;
    }
    Ok(())
}

fn hardware(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    let flags = TX_HARDWARE | TX_SOFTWARE | SOFTWARE | RAW_HARDWARE | OPT_TSONLY | OPT_ID;
    trace.see("set", set(&a, flags));
    send(&a, &b, b"abc")?;
    see(trace, "report", &a, 1)?;
    trace.see("set", set(&a, TX_HARDWARE | RAW_HARDWARE | OPT_TSONLY));
    send(&a, &b, b"abc")?;
    see(trace, "report", &a, 0)
}

/// In this test both sockets are on one host, so their packets do not go through the device.
fn one_host(side: &Side<'_>, trace: &Trace) -> Outcome {
    side.lab.calm()?;
    let host = &side.lab.a;
    let (a, b) = if side.is_stream() {
        let listener = side.bound(host, 7)?;
        listener.listen(1)?;
        let a = side.socket(host)?;
        a.connect_bytes(&side.address(host, host, 7))?;
        let (b, _) = listener.accept(0)?;
        (a, b)
    } else {
        let (a, b) = (side.socket(host)?, side.bound(host, 7)?);
        a.connect_bytes(&side.address(host, host, 7))?;
        (a, b)
    };
    let all = TX_SCHED | TX_SOFTWARE;
    trace.see("set", set(&a, all | SOFTWARE | OPT_TSONLY | OPT_ID));
    for bytes in [&b"abc"[..], b"defgh"] {
        send(&a, &b, bytes)?;
        see(trace, "report", &a, 2)?;
    }
    Ok(())
}

fn readiness(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    set(&a, TX_SOFTWARE | SOFTWARE | OPT_TSONLY)?;
    trace.poll("at first", &a)?;
    send(&a, &b, b"abc")?;
    trace.poll_until("with a report", &a, libc::POLLERR)?;
    trace.see("SO_ERROR", a.pending_error());
    trace.receive("no data", &a, 10, libc::MSG_DONTWAIT);
    see(trace, "report", &a, 1)?;
    trace.poll("after it", &a)
}

fn options(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    for (what, flags) in [
        ("an unknown flag", UNKNOWN),
        ("statistics with the packet", OPT_STATS | TX_ACK),
        ("numbers of TCP without numbers", OPT_ID_TCP),
        (
            "numbers of TCP",
            OPT_ID | OPT_ID_TCP | TX_SOFTWARE | SOFTWARE | OPT_TSONLY,
        ),
    ] {
        trace.see(what, set(&a, flags));
        trace.see("read", a.so(libc::SO_TIMESTAMPING));
    }
    send(&a, &b, b"abcdef")?;
    see(trace, "report", &a, 1)
}

fn accepted(side: &Side<'_>, trace: &Trace) -> Outcome {
    side.lab.calm()?;
    let listener = side.listener(7, 4)?;
    trace.see("set", set(&listener, TX_SOFTWARE | SOFTWARE | OPT_TSONLY));
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    trace.see("accepted", server.so(libc::SO_TIMESTAMPING));
    send(&server, &client, b"abc")?;
    see(trace, "report", &server, 1)?;
    trace.see(
        "numbers",
        set(&server, TX_SOFTWARE | SOFTWARE | OPT_TSONLY | OPT_ID),
    );
    send(&server, &client, b"abc")?;
    see(trace, "report", &server, 1)
}

fn bytes(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    trace.see("set", set(&a, TX_SOFTWARE | SOFTWARE | OPT_TSONLY | OPT_ID));
    // The bytes of each send are acknowledged before the next send, so no packet carries bytes of
    // two sends.
    send_apart(&a, &[b"a", b"bcd", b"ef"])?;
    see(trace, "report", &a, 3)?;
    receives(&b, b"abcdef")
}

fn many_packets(side: &Side<'_>, trace: &Trace) -> Outcome {
    const LENGTH: usize = 50_000;
    let (a, b) = pair(side)?;
    let flags = TX_SOFTWARE | TX_ACK | SOFTWARE | OPT_TSONLY | OPT_ID;
    trace.see("set", set(&a, flags));
    for _ in 0..2 {
        let (sent, _) = beside(
            || Ok(a.send(&[5; LENGTH], 0)?),
            || Ok(b.receive_all(LENGTH)?),
        )?;
        trace.see("send", sent);
        acknowledged(&a)?;
        see(trace, "report", &a, 2)?;
    }
    Ok(())
}

/// A non-blocking call accepts only part of its bytes. Its report covers the accepted part, and
/// comes after the peer has received this part.
fn part(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    a.set_so(libc::SO_SNDBUF, 100_000)?;
    let flags = TX_ACK | SOFTWARE | OPT_TSONLY | OPT_ID;
    trace.see("set", set(&a, flags));
    let sent = a.send(&vec![5; 4 << 20], libc::MSG_DONTWAIT)?;
    trace.see("a part", sent < 4 << 20);
    b.receive_all(sent)?;
    let found = report(&a, patience())?.context("a report")?;
    trace.see("stage", found.stage);
    trace.see("of the last byte", found.number as usize == sent - 1);
    Ok(())
}

fn before_connecting(side: &Side<'_>, trace: &Trace) -> Outcome {
    side.lab.calm()?;
    let listener = side.listener(7, 4)?;
    let client = side.socket(&side.lab.a)?;
    let numbers = TX_SOFTWARE | SOFTWARE | OPT_TSONLY | OPT_ID;
    trace.see("numbers", set(&client, numbers));
    trace.see("none", set(&client, TX_SOFTWARE | SOFTWARE | OPT_TSONLY));
    client.connect_bytes(&side.far(7))?;
    let (server, _) = listener.accept(0)?;
    send(&client, &server, b"abc")?;
    see(trace, "report", &client, 1)?;
    trace.see("numbers then", set(&client, numbers));
    send(&client, &server, b"abc")?;
    see(trace, "report", &client, 1)
}

fn several_sends(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = pair(side)?;
    trace.see("set", set(&a, TX_SOFTWARE | SOFTWARE | OPT_TSONLY | OPT_ID));
    // A send that fails takes no number.
    let too_long = vec![0; 65_520];
    trace.see("too long", a.send(&too_long, libc::MSG_MORE));
    for _ in 0..2 {
        a.send(b"one", libc::MSG_MORE)?;
        a.send(b"two", libc::MSG_MORE)?;
        trace.see("nothing yet", in_words(&a, Duration::ZERO)?);
        a.send(b"three", 0)?;
        receives(&b, b"onetwothree")?;
        see(trace, "report", &a, 1)?;
    }
    Ok(())
}
