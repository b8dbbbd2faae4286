// SPDX-License-Identifier: GPL-2.0-only

//! Compares how many bytes a receive call takes over TCP and ESP: with `MSG_WAITALL`, with
//! `MSG_TRUNC`, and with an empty buffer.

use super::super::moments::send_apart;
use crate::prelude::*;

behaviours! {
    connected_streams stream_waitall_waits_for_all;
    connected_streams stream_waitall_ends_with_the_stream;
    connected_streams stream_waitall_ends_with_the_time;
    connected_streams stream_waitall_ends_with_a_reset;
    connected_streams stream_waitall_without_waiting;
    connected_streams stream_waitall_and_the_low_water_mark;
    connected_streams stream_truncate_discards_bytes;
    connected_streams stream_zero_bytes_sent;
    stream stream_zero_bytes_received = zero_received;
    connected_streams stream_zero_bytes_received_waits;
    connected_streams stream_flags_and_name_of_a_received_message;
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn read(socket: &Socket, room: usize, flags: i32) -> std::io::Result<String> {
    let mut bytes = vec![0; room];
    let length = socket.receive(&mut bytes, flags)?;
    Ok(text(&bytes[..length]))
}

fn stream_waitall_waits_for_all(trace: &Trace, (client, server): Pair) -> Outcome {
    let receive = || read(&server, 9, libc::MSG_WAITALL);
    let (_, received, ()) = asleep(libc::SYS_recvfrom, receive, |sleeper| {
        for piece in [b"abc", b"def"] {
            send_apart(&client, &[piece])?;
            arrived(&server, 0)?;
            trace.see("still waiting", sleeper.sleeps()?);
        }
        Ok(client.send_all(b"ghijk")?)
    })?;
    trace.see("received", received);
    trace.receive("the rest", &server, 10, 0);
    Ok(())
}

fn stream_waitall_ends_with_the_stream(trace: &Trace, (client, server): Pair) -> Outcome {
    let receive = || read(&server, 9, libc::MSG_WAITALL);
    let (_, received, ()) = asleep(libc::SYS_recvfrom, receive, |_| {
        send_apart(&client, &[b"abc"])?;
        Ok(client.shutdown(libc::SHUT_WR)?)
    })?;
    trace.see("received", received);
    trace.see("after the end", read(&server, 9, libc::MSG_WAITALL));
    Ok(())
}

fn stream_waitall_ends_with_the_time(trace: &Trace, (client, server): Pair) -> Outcome {
    send_apart(&client, &[b"abc"])?;
    arrived(&server, 3)?;
    server.set_timeout(libc::SO_RCVTIMEO, Duration::from_millis(100))?;
    trace.see("received", read(&server, 9, libc::MSG_WAITALL));
    trace.see("nothing more", read(&server, 9, libc::MSG_WAITALL));
    Ok(())
}

fn stream_waitall_ends_with_a_reset(trace: &Trace, (client, server): Pair) -> Outcome {
    let receive = || read(&server, 9, libc::MSG_WAITALL);
    let (_, received, ()) = asleep(libc::SYS_recvfrom, receive, |sleeper| {
        send_apart(&client, &[b"abc"])?;
        arrived(&server, 0)?;
        sleeper.sleeps()?;
        reset(client)
    })?;
    trace.see("received", received);
    trace.see("then", read(&server, 9, libc::MSG_WAITALL));
    trace.see("at last", read(&server, 9, libc::MSG_WAITALL));
    Ok(())
}

fn stream_waitall_without_waiting(trace: &Trace, (client, server): Pair) -> Outcome {
    let flags = libc::MSG_WAITALL | libc::MSG_DONTWAIT;
    trace.see("nothing there", read(&server, 9, flags));
    send_apart(&client, &[b"abc"])?;
    arrived(&server, 3)?;
    trace.see("some there", read(&server, 9, flags));
    Ok(())
}

fn stream_waitall_and_the_low_water_mark(trace: &Trace, (client, server): Pair) -> Outcome {
    server.set_so(libc::SO_RCVLOWAT, 5)?;
    let receive = || read(&server, 100, 0);
    let (_, received, ()) = asleep(libc::SYS_recvfrom, receive, |sleeper| {
        send_apart(&client, &[b"abc"])?;
        trace.see("below the mark", sleeper.sleeps()?);
        Ok(client.send_all(b"def")?)
    })?;
    trace.see("above the mark", received);
    client.send_all(b"gh")?;
    arrived(&server, 2)?;
    trace.see("not waiting", read(&server, 100, libc::MSG_DONTWAIT));
    client.send_all(b"ij")?;
    trace.see("asked for less", read(&server, 2, 0));
    Ok(())
}

fn stream_truncate_discards_bytes(trace: &Trace, (client, server): Pair) -> Outcome {
    send_apart(&client, &[b"abc", b"defgh"])?;
    arrived(&server, 8)?;
    let mut bytes = *b"-----";
    trace.see("throw away", server.receive(&mut bytes, libc::MSG_TRUNC));
    trace.bytes("the buffer", &bytes);
    let pieces = &mut [PieceMut::Bad(2)];
    let discarded = server.receive_message(pieces, libc::MSG_TRUNC);
    trace.see("no memory is needed for it", discarded);
    trace.receive("what is left", &server, 100, 0);
    trace.receive("nothing", &server, 5, libc::MSG_TRUNC | libc::MSG_DONTWAIT);
    Ok(())
}

fn stream_zero_bytes_sent(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("send", client.send(b"", 0));
    trace.see("a message of no pieces", client.send_message(&[], 0, &[]));
    trace.see("write", nix::unistd::write(&client, b""));
    client.send_all(b"x")?;
    trace.receive("only what was sent comes", &server, 10, 0);
    client.shutdown(libc::SHUT_WR)?;
    trace.see("send after the end", client.send(b"", libc::MSG_NOSIGNAL));
    trace.see("write after the end", nix::unistd::write(&client, b""));
    Ok(())
}

fn zero_received(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    trace.receive("nothing there", &server, 0, libc::MSG_DONTWAIT);
    trace.see("read", nix::unistd::read(&server, &mut []));
    client.send_all(b"x")?;
    arrived(&server, 1)?;
    trace.receive("something there", &server, 0, 0);
    trace.receive("peek", &server, 0, libc::MSG_PEEK);
    trace.receive("waitall", &server, 0, libc::MSG_WAITALL);
    let none = server.receive_message(&mut [], 0);
    trace.see("no pieces", none.map(|received| received.length));
    trace.receive("it still is", &server, 10, 0);
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.receive("at the end", &server, 0, 0);
    let (client, server) = side.stream(8)?;
    reset(client)?;
    trace.poll_until("a reset", &server, libc::POLLERR)?;
    trace.receive("after a reset", &server, 0, 0);
    trace.receive("after that", &server, 0, 0);
    Ok(())
}

fn stream_zero_bytes_received_waits(trace: &Trace, (client, server): Pair) -> Outcome {
    let (_, received, ()) = asleep(
        libc::SYS_recvfrom,
        || read(&server, 0, 0),
        |sleeper| {
            trace.see("waits", sleeper.sleeps()?);
            Ok(client.send_all(b"x")?)
        },
    )?;
    trace.see("received", received);
    trace.receive("the byte", &server, 10, 0);
    Ok(())
}

fn stream_flags_and_name_of_a_received_message(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("send with MSG_EOR", client.send(b"record", libc::MSG_EOR));
    trace.see("send behind it", client.send(b"more", 0));
    arrived(&server, 10)?;
    let mut bytes = [0; 4];
    let mut first = |flags| server.receive_message(&mut [PieceMut::Good(&mut bytes)], flags);
    trace.see("peek", first(libc::MSG_PEEK));
    trace.see("receive some", first(0));
    trace.see("close-on-exec", first(libc::MSG_CMSG_CLOEXEC));
    trace.see("confirm", client.send(b"c", libc::MSG_CONFIRM));
    trace.see("without route", client.send(b"d", libc::MSG_DONTROUTE));
    trace.see("receive the rest", first(libc::MSG_WAITALL));
    Ok(())
}
