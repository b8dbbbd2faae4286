// SPDX-License-Identifier: GPL-2.0-only

//! Compares how TCP and ESP peek at bytes: `MSG_PEEK` and `SO_PEEK_OFF`.

use super::super::moments::send_apart;
use crate::prelude::*;

behaviours! {
    connected_streams stream_peek_leaves_the_bytes;
    connected_streams stream_peek_looks_across_packets;
    connected_streams stream_peek_waits_for_data;
    connected_streams stream_peek_with_waitall_waits_for_all;
    connected_streams stream_peek_at_the_end;
    connected_streams stream_peek_with_truncate_counts;
    connected_streams stream_peek_offset_moves_on;
    connected_streams stream_peek_offset_across_packets;
    connected_streams stream_peek_offset_beyond_what_is_there;
    stream stream_peek_offset_of_an_accepted_socket;
}

const PEEK: i32 = libc::MSG_PEEK;
const NOW: i32 = libc::MSG_DONTWAIT;

fn stream_peek_leaves_the_bytes(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.receive("peek at nothing", &server, 10, PEEK | NOW);
    client.send_all(b"hello")?;
    arrived(&server, 5)?;
    trace.receive("peek at some", &server, 3, PEEK);
    trace.receive("peek at all", &server, 100, PEEK);
    trace.see("still queued", server.queued(libc::FIONREAD));
    trace.receive("receive some", &server, 2, 0);
    trace.receive("peek at the rest", &server, 100, PEEK);
    trace.receive("receive the rest", &server, 100, 0);
    trace.receive("peek at nothing again", &server, 10, PEEK | NOW);
    Ok(())
}

fn stream_peek_looks_across_packets(trace: &Trace, (client, server): Pair) -> Outcome {
    send_apart(&client, &[b"abc", b"def", b"ghi"])?;
    arrived(&server, 9)?;
    trace.receive("peek at all three", &server, 100, PEEK);
    trace.receive("peek at one and a half", &server, 5, PEEK);
    trace.receive("receive one and a bit", &server, 4, 0);
    trace.receive("peek at what is left", &server, 100, PEEK);
    trace.receive("receive what is left", &server, 100, 0);
    Ok(())
}

fn stream_peek_waits_for_data(trace: &Trace, (client, server): Pair) -> Outcome {
    let peek = || {
        let mut bytes = [0; 10];
        server.receive(&mut bytes, PEEK)
    };
    let (_, peeked, ()) = asleep(libc::SYS_recvfrom, peek, |sleeper| {
        trace.see("it waits", sleeper.sleeps()?);
        Ok(client.send_all(b"late")?)
    })?;
    trace.see("peek", peeked);
    trace.receive("receive", &server, 10, 0);
    server.set_timeout(libc::SO_RCVTIMEO, Duration::from_millis(50))?;
    trace.receive("peek until the time is up", &server, 10, PEEK);
    Ok(())
}

fn stream_peek_with_waitall_waits_for_all(trace: &Trace, (client, server): Pair) -> Outcome {
    let peek = || {
        let mut bytes = [0; 6];
        server
            .receive(&mut bytes, PEEK | libc::MSG_WAITALL)
            .map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned())
    };
    let (_, peeked, ()) = asleep(libc::SYS_recvfrom, peek, |sleeper| {
        send_apart(&client, &[b"abc"])?;
        arrived(&server, 3)?;
        trace.see("half is not enough", sleeper.sleeps()?);
        Ok(client.send_all(b"def")?)
    })?;
    trace.see("peek", peeked);
    trace.receive("receive", &server, 10, 0);
    Ok(())
}

fn stream_peek_at_the_end(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"hello")?;
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("data and the end", &server, libc::POLLIN | libc::POLLRDHUP)?;
    trace.receive("peek", &server, 3, PEEK);
    trace.receive(
        "peek for more than comes",
        &server,
        10,
        PEEK | libc::MSG_WAITALL,
    );
    trace.receive("receive", &server, 10, 0);
    trace.receive("peek at the end", &server, 10, PEEK);
    trace.receive(
        "peek at the end again",
        &server,
        10,
        PEEK | libc::MSG_WAITALL,
    );
    trace.receive("receive at the end", &server, 10, 0);
    Ok(())
}

fn stream_peek_with_truncate_counts(trace: &Trace, (client, server): Pair) -> Outcome {
    send_apart(&client, &[b"abc", b"def"])?;
    arrived(&server, 6)?;
    let mut bytes = *b"------";
    let flags = PEEK | libc::MSG_TRUNC;
    trace.see("peek and throw away", server.receive(&mut bytes, flags));
    trace.bytes("the buffer is as it was", &bytes);
    trace.receive("nothing was thrown away", &server, 100, 0);
    Ok(())
}

fn peek_offset(socket: &Socket) -> std::io::Result<i32> {
    socket.so(libc::SO_PEEK_OFF)
}

fn set_peek_offset(socket: &Socket, offset: i32) -> std::io::Result<()> {
    socket.set_so(libc::SO_PEEK_OFF, offset)
}

fn stream_peek_offset_moves_on(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("at first", peek_offset(&server));
    client.send_all(b"hello world")?;
    arrived(&server, 11)?;
    trace.see("set", set_peek_offset(&server, 0));
    trace.receive("peek", &server, 3, PEEK);
    trace.see("it moved on", peek_offset(&server));
    trace.receive("peek on", &server, 3, PEEK);
    trace.receive("receive", &server, 4, 0);
    trace.see("it moved back", peek_offset(&server));
    trace.receive("peek on after that", &server, 3, PEEK);
    trace.receive("receive past it", &server, 6, 0);
    trace.see("it does not go below zero", peek_offset(&server));
    trace.see("off", set_peek_offset(&server, -1));
    trace.receive("peek from the start", &server, 100, PEEK);
    trace.receive("peek from the start again", &server, 100, PEEK);
    trace.see("off for good", peek_offset(&server));
    Ok(())
}

fn stream_peek_offset_across_packets(trace: &Trace, (client, server): Pair) -> Outcome {
    send_apart(&client, &[b"abc", b"def", b"ghi"])?;
    arrived(&server, 9)?;
    trace.see("set", set_peek_offset(&server, 2));
    trace.receive("peek", &server, 3, PEEK);
    trace.receive("peek on", &server, 100, PEEK);
    trace.receive("nothing is left to see", &server, 100, PEEK | NOW);
    acknowledged(&client)?;
    client.send_all(b"jkl")?;
    arrived(&server, 12)?;
    trace.receive("peek at what came", &server, 100, PEEK | NOW);
    trace.receive("receive all", &server, 100, 0);
    trace.see("back to zero", peek_offset(&server));
    Ok(())
}

fn stream_peek_offset_beyond_what_is_there(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("set", set_peek_offset(&server, 5));
    client.send_all(b"abc")?;
    arrived(&server, 3)?;
    trace.receive("nothing there", &server, 10, PEEK | NOW);
    let peek = || {
        let mut bytes = [0; 10];
        server
            .receive(&mut bytes, PEEK)
            .map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned())
    };
    let (_, peeked, ()) = asleep(libc::SYS_recvfrom, peek, |sleeper| {
        trace.see("it waits", sleeper.sleeps()?);
        Ok(client.send_all(b"defg")?)
    })?;
    trace.see("peek", peeked);
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.receive("peek at the end", &server, 10, PEEK);
    trace.receive("receive", &server, 10, 0);
    Ok(())
}

fn stream_peek_offset_of_an_accepted_socket(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    trace.see("set on the listener", set_peek_offset(&listener, 1));
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    trace.see("of the accepted socket", peek_offset(&server));
    client.send_all(b"abc")?;
    arrived(&server, 3)?;
    trace.receive("peek", &server, 10, PEEK | NOW);
    Ok(())
}
