// SPDX-License-Identifier: GPL-2.0-only

//! Tests records of ESP (`SOCK_SEQPACKET` sockets). The results are compared with those of records
//! of `AF_UNIX`, and also with those of messages of SCTP.

use super::moments::await_poll;
use super::{events_text, Family};
use crate::prelude::*;

/// The differences for a record that was received whole: ESP marks it with `MSG_EOR` (0x80), as
/// SCTP does, but `AF_UNIX` does not.
const EOR: [Difference; 2] = [
    Difference::new(
        "whole",
        "3 bytes, flags 0x0, no name",
        "3 bytes, flags 0x80, no name",
    ),
    Difference::new(
        "rest",
        "3 bytes, flags 0x0, no name",
        "3 bytes, flags 0x80, no name",
    ),
];

behaviours! {
    record record_is_what_one_send_sent = dialogue;
    record record_of_several_pieces = pieces;
    record record_longer_than_the_room_is_cut = cut, differs(&EOR);
    record record_length_is_told_by_msg_trunc = told;
    record record_peek = peek;
    record record_waitall_waits_for_one_record = wait_all;
    record record_without_blocking = without_blocking;
    record record_send_is_all_or_nothing = all_or_nothing;
    record record_too_long_to_be_sent = too_long;
    record record_of_0_bytes = nothing,
        differs(&[Difference::new("send", "0", "EINVAL"), Difference::new("receive", "0", "4"),
            Difference::new("then", "4", "EAGAIN")]);
    record record_queued_bytes = queued, differs(&[Difference::new("two", "8", "5")]);
    record record_end_behind_what_was_sent = end;
    record record_send_to_a_closed_peer = closed;
    record record_poll = readiness, differs(&[Difference::new("at first", "OUT|WRNORM|WRBAND", "OUT|WRNORM")]);
    record record_low_water_mark_is_without_effect = low_water;
    record record_of_a_new_socket = unconnected,
        differs(&[Difference::new("send", "ENOTCONN", "EPIPE"),
            Difference::new("poll", "OUT|HUP|WRNORM|WRBAND", "OUT|HUP|WRNORM")]);
    record record_urgent_data = urgent;
    record record_connect_to_a_listener_of_streams = to_streams;
    record record_socket_type = kind;
    record record_receive_timeout = timeout;
    message record_beside_sctp_is_what_one_send_sent = dialogue;
    message record_beside_sctp_of_several_pieces = pieces;
    message record_beside_sctp_of_0_bytes = nothing;
    message record_beside_sctp_queued_bytes = queued;
    message record_beside_sctp_end_of_a_record = end_of_record;
    message record_beside_sctp_without_blocking = without_blocking;
    message record_beside_sctp_end_behind_what_was_sent = end,
        differs(&[Difference::new("no more", "ESHUTDOWN", "EPIPE")]);
    message record_beside_sctp_longer_than_the_room = cut, differs(&[Difference::new("the next", "2000", "3")]);
}

fn send(trace: &Trace, what: &str, socket: &Socket, bytes: &[u8]) {
    trace.see(what, socket.send(bytes, libc::MSG_NOSIGNAL));
}

/// Receives with `recvmsg`, and adds its result and the bytes to the trace.
fn receive(trace: &Trace, what: &str, socket: &Socket, room: usize, flags: i32) {
    let mut bytes = vec![0; room];
    let received = socket.receive_message(&mut [PieceMut::Good(&mut bytes)], flags);
    if let Ok(received) = &received {
        trace.bytes(
            &format!("{what}: bytes"),
            &bytes[..received.length.min(room)],
        );
    }
    trace.see(what, received);
}

/// Waits until `poll(2)` reports `wanted`. Then adds the reported events to the trace, except the
/// events that only `AF_UNIX` reports: priority bands (`POLLWRBAND`), and the end of both halves
/// (`POLLHUP`).
fn ready(trace: &Trace, what: &str, socket: &Socket, wanted: i16) -> Outcome {
    await_poll(socket, wanted)?;
    let events = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    let found = socket.poll(events, Duration::ZERO)?;
    trace.see(what, events_text(found & events));
    Ok(())
}

fn dialogue(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    for round in 0..3 {
        for (from, to) in [(&client, &server), (&server, &client)] {
            send(trace, "first", from, b"one");
            send(trace, "second", from, &[b'a' + round; 20]);
            send(trace, "third", from, b"!");
            for what in ["first came", "second came", "third came"] {
                trace.receive(what, to, 100, 0);
            }
        }
    }
    let long = vec![b'x'; 50_000];
    send(trace, "long", &client, &long);
    send(trace, "behind it", &client, b"short");
    let mut room = vec![0; 60_000];
    trace.see("long came", server.receive(&mut room, 0));
    trace.see("as it was", room.starts_with(&long));
    trace.receive("and what was behind it", &server, 100, 0);
    Ok(())
}

fn pieces(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    let parts = [Piece::Good(b"to"), Piece::Good(b""), Piece::Good(b"gether")];
    trace.see("send", client.send_message(&parts, 0, &[]));
    send(trace, "another", &client, b"other");
    let (mut first, mut second) = ([0; 3], [0; 20]);
    let mut room = [PieceMut::Good(&mut first), PieceMut::Good(&mut second)];
    trace.see(
        "receive",
        server.receive_message(&mut room, 0).map(|r| r.length),
    );
    trace.bytes("first piece", &first);
    trace.bytes("second piece", &second[..5]);
    trace.receive("another came", &server, 100, 0);
    let unreadable = [Piece::Good(b"good"), Piece::Bad(100)];
    trace.see("of no memory", client.send_message(&unreadable, 0, &[]));
    send(trace, "after it", &client, b"next");
    trace.receive("nothing of it comes", &server, 100, 0);
    Ok(())
}

fn cut(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    let long: Vec<u8> = (0..5_000).map(|n| b'a' + (n % 26) as u8).collect();
    send(trace, "long", &client, &long);
    send(trace, "short", &client, b"end");
    if side.is_beside_sctp() {
        // SCTP delivers a message in parts, and sets `MSG_EOR` only on the last part.
        let mut room = vec![0; 3_000];
        for what in ["a part", "the next"] {
            let got = server.receive_message(&mut [PieceMut::Good(&mut room)], 0)?;
            trace.see(what, got.length);
            trace.see(
                &format!("{what} ends a record"),
                got.flags & libc::MSG_EOR != 0,
            );
        }
        return Ok(());
    }
    receive(trace, "cut", &server, 10, 0);
    receive(trace, "whole", &server, 3, 0);
    send(trace, "once more", &client, b"and");
    receive(trace, "rest", &server, 100, 0);
    Ok(())
}

fn told(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    send(trace, "long", &client, &[b'x'; 5_000]);
    send(trace, "short", &client, b"end");
    let mut room = [0; 10];
    let look = libc::MSG_TRUNC | libc::MSG_PEEK;
    trace.see("a look", server.receive(&mut room, look));
    trace.see("receive", server.receive(&mut room, libc::MSG_TRUNC));
    trace.see("the next", server.receive(&mut room, libc::MSG_TRUNC));
    Ok(())
}

fn peek(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    send(trace, "first", &client, b"first");
    send(trace, "second", &client, b"second");
    for what in ["a look", "another look"] {
        trace.receive(what, &server, 100, libc::MSG_PEEK);
    }
    trace.receive("a look at a part", &server, 2, libc::MSG_PEEK);
    trace.receive("receive", &server, 100, 0);
    trace.receive("a look at the next", &server, 100, libc::MSG_PEEK);
    trace.receive("the next", &server, 100, 0);
    let look = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    trace.receive("a look at nothing", &server, 100, look);
    Ok(())
}

fn wait_all(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    send(trace, "first", &client, b"first");
    send(trace, "second", &client, b"second");
    trace.receive("receive", &server, 100, libc::MSG_WAITALL);
    trace.receive("the next", &server, 100, libc::MSG_WAITALL);
    Ok(())
}

fn without_blocking(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    trace.receive("nothing", &server, 100, libc::MSG_DONTWAIT);
    send(trace, "send", &client, b"here");
    ready(trace, "it is there", &server, libc::POLLIN)?;
    trace.receive("receive", &server, 100, libc::MSG_DONTWAIT);
    server.set_nonblocking(true)?;
    trace.receive("nothing more", &server, 100, 0);
    Ok(())
}

fn all_or_nothing(side: &Side<'_>, trace: &Trace) -> Outcome {
    const LENGTH: usize = 10_000;
    let (client, server) = side.pair(7)?;
    client.set_nonblocking(true)?;
    let mut sent = 0_usize;
    let refused = loop {
        match client.send(&[sent as u8; LENGTH], 0) {
            Ok(length) => assert_eq!(length, LENGTH, "a part of a record was sent"),
            Err(error) => break error,
        }
        sent += 1;
    };
    trace.see("then", std::io::Result::<()>::Err(refused));
    let full = client.poll(libc::POLLOUT, Duration::ZERO)?;
    trace.see("it is writable", full != 0);
    let mut room = vec![0; LENGTH + 1];
    let (mut whole, mut right) = (0, true);
    while whole < sent {
        let length = server.receive(&mut room, 0)?;
        right &= length == LENGTH && room[..LENGTH].iter().all(|byte| *byte == whole as u8);
        whole += 1;
    }
    trace.see("all came as they were", right);
    ready(trace, "then it is writable", &client, libc::POLLOUT)?;
    trace.receive("and nothing else came", &server, 100, libc::MSG_DONTWAIT);
    Ok(())
}

fn too_long(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    send(trace, "send", &client, &vec![b'x'; 16 << 20]);
    trace.pending_error("error", &client);
    send(trace, "a short one", &client, b"short");
    trace.receive("it came", &server, 100, 0);
    Ok(())
}

fn nothing(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    send(trace, "send", &client, b"");
    send(trace, "the next", &client, b"next");
    let mut room = [0; 100];
    trace.see("receive", server.receive(&mut room, 0));
    trace.see("then", server.receive(&mut room, libc::MSG_DONTWAIT));
    Ok(())
}

fn queued(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    trace.see("none", server.queued(libc::FIONREAD as libc::c_ulong));
    send(trace, "first", &client, b"first");
    send(trace, "second", &client, b"2nd");
    ready(trace, "they are there", &server, libc::POLLIN)?;
    if side.family == Family::Enet {
        acknowledged(&client)?;
    }
    trace.see("two", server.queued(libc::FIONREAD as libc::c_ulong));
    trace.receive("receive", &server, 100, 0);
    ready(trace, "one is there", &server, libc::POLLIN)?;
    trace.see("one", server.queued(libc::FIONREAD as libc::c_ulong));
    Ok(())
}

fn end(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    send(trace, "first", &client, b"first");
    send(trace, "second", &client, b"second");
    trace.see("shutdown", client.shutdown(libc::SHUT_WR));
    send(trace, "no more", &client, b"third");
    trace.receive("first came", &server, 100, 0);
    trace.receive("second came", &server, 100, 0);
    trace.receive("the end", &server, 100, 0);
    trace.receive("it stays", &server, 100, 0);
    if side.is_beside_sctp() {
        // SCTP has no half-closed associations.
        return Ok(());
    }
    send(trace, "the other way", &server, b"answer");
    trace.receive("it came", &client, 100, 0);
    Ok(())
}

fn closed(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    drop(server);
    ready(trace, "the end", &client, libc::POLLRDHUP)?;
    trace.receive("receive", &client, 100, 0);
    if side.family == Family::Enet {
        // Only the answer to data reveals that the peer has no reader left.
        client.send(b"unread", libc::MSG_NOSIGNAL)?;
    }
    await_poll(&client, libc::POLLHUP)?;
    let error = client.send(b"more", libc::MSG_NOSIGNAL);
    trace.see("send", error);
    Ok(())
}

fn readiness(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    trace.poll("at first", &server)?;
    send(trace, "send", &client, &[b'x'; 5_000]);
    ready(trace, "one is there", &server, libc::POLLIN)?;
    let mut room = [0; 10];
    // A partial read discards the rest of the record.
    trace.see("a part", server.receive(&mut room, 0));
    ready(trace, "then", &server, libc::POLLOUT)?;
    client.shutdown(libc::SHUT_WR)?;
    ready(trace, "the end", &server, libc::POLLRDHUP)?;
    Ok(())
}

fn low_water(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    trace.see("set", server.set_so(libc::SO_RCVLOWAT, 1_000));
    send(trace, "send", &client, b"short");
    ready(trace, "it is readable", &server, libc::POLLIN)?;
    trace.receive("receive", &server, 100, 0);
    Ok(())
}

fn unconnected(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    send(trace, "send", &socket, b"nobody");
    trace.receive("receive", &socket, 100, libc::MSG_DONTWAIT);
    trace.see("accept", socket.accept(0).map(drop));
    trace.poll("poll", &socket)
}

fn urgent(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    trace.see("send", client.send(b"!", libc::MSG_OOB));
    trace.receive("receive", &server, 100, libc::MSG_OOB);
    Ok(())
}

fn to_streams(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (family, _, protocol) = side.numbers();
    let make = || Socket::new(family, libc::SOCK_STREAM, protocol);
    let listener = side.lab.b.namespace.within(make)??;
    listener.bind_bytes(&side.at_b(8))?;
    listener.listen(4)?;
    let client = side.socket(&side.lab.a)?;
    trace.see("connect", client.connect_bytes(&side.far(8)));
    trace.pending_error("error", &client);
    listener.set_nonblocking(true)?;
    trace.see("accept", listener.accept(0).map(drop));
    Ok(())
}

fn kind(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    for (what, socket) in [("client", &client), ("server", &server)] {
        let kind = socket.so(libc::SO_TYPE)?;
        trace.see(what, kind == libc::SOCK_SEQPACKET);
    }
    Ok(())
}

fn timeout(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (_client, server) = side.pair(7)?;
    server.set_timeout(libc::SO_RCVTIMEO, Duration::from_millis(20))?;
    trace.receive("receive", &server, 100, 0);
    Ok(())
}

fn end_of_record(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.pair(7)?;
    send(trace, "send", &client, b"record");
    let mut room = [0; 100];
    let received = server.receive_message(&mut [PieceMut::Good(&mut room)], 0)?;
    trace.see("length", received.length);
    trace.see("it ends", received.flags & libc::MSG_EOR != 0);
    Ok(())
}
