// SPDX-License-Identifier: GPL-2.0-only

//! Compares send and receive calls over TCP and ESP that fail because of the socket's state. Also
//! compares `SIGPIPE`.

use std::io::IoSlice;

use nix::sys::uio::writev;
use nix::unistd::write;

use crate::prelude::*;
use guest::calls::{send_many, with_sigpipe};

behaviours! {
    stream stream_data_calls_unconnected;
    stream stream_data_calls_on_a_listener;
    stream stream_data_calls_while_connecting;
    stream stream_data_calls_after_a_refusal;
    connected_streams stream_sigpipe_by_call;
    stream stream_sigpipe_unconnected;
    connected_streams stream_queue_lengths = queue_lengths;
    stream stream_queue_lengths_without_a_connection;
    connected_streams stream_queue_lengths_after_a_reset;
}

const NOW: i32 = libc::MSG_DONTWAIT;
const QUIET: i32 = libc::MSG_NOSIGNAL;

fn see_calls(trace: &Trace, socket: &Socket) {
    trace.see("send", socket.send(b"x", NOW | QUIET));
    trace.see("send nothing", socket.send(b"", NOW | QUIET));
    trace.see(
        "send bad memory",
        socket.send_message(&[Piece::Bad(1)], NOW | QUIET, &[]),
    );
    trace.receive("receive", socket, 10, NOW);
    trace.receive("peek", socket, 10, NOW | libc::MSG_PEEK);
    trace.receive("receive nothing", socket, 0, NOW);
    trace.receive("urgent", socket, 1, NOW | libc::MSG_OOB);
    trace.receive("error queue", socket, 10, NOW | libc::MSG_ERRQUEUE);
    trace.pending_error("pending", socket);
}

fn stream_data_calls_unconnected(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    see_calls(trace, &socket);
    let bound = side.bound(&side.lab.a, 7)?;
    see_calls(trace, &bound);
    Ok(())
}

fn stream_data_calls_on_a_listener(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    see_calls(trace, &listener);
    let _client = side.dial(7)?;
    trace.poll_until("a connection waits", &listener, libc::POLLIN)?;
    see_calls(trace, &listener);
    Ok(())
}

fn stream_data_calls_while_connecting(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect", client.connect_bytes(&side.nobody(7)));
    see_calls(trace, &client);
    trace.see("queued in", client.queued(libc::FIONREAD));
    trace.see("queued out", client.queued(libc::TIOCOUTQ));
    Ok(())
}

fn stream_data_calls_after_a_refusal(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    trace.see("connect", client.connect_bytes(&side.far(7)));
    see_calls(trace, &client);
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect now", client.connect_bytes(&side.far(7)));
    trace.poll_until("refused", &client, libc::POLLERR)?;
    see_calls(trace, &client);
    Ok(())
}

fn stream_sigpipe_by_call(trace: &Trace, (client, _server): Pair) -> Outcome {
    let all_sent = with_sigpipe(|| client.send(b"x", 0));
    trace.see("while it goes well", all_sent.0);
    trace.see("no SIGPIPE", all_sent.1);
    client.shutdown(libc::SHUT_WR)?;
    let see = |what: &str, call: &dyn Fn() -> std::io::Result<usize>| {
        let (result, signal) = with_sigpipe(call);
        trace.see(what, result);
        trace.see(&format!("SIGPIPE by {what}"), signal);
    };
    let pieces = [Piece::Good(b"x")];
    see("send", &|| client.send(b"x", 0));
    see("send with MSG_NOSIGNAL", &|| client.send(b"x", QUIET));
    see("send of nothing", &|| client.send(b"", 0));
    see("write", &|| Ok(write(&client, b"x")?));
    see("writev", &|| Ok(writev(&client, &[IoSlice::new(b"x")])?));
    see("sendmsg", &|| client.send_message(&pieces, 0, &[]));
    see("sendmmsg", &|| send_many(&client, &pieces, 0));
    see("sendmmsg with MSG_NOSIGNAL", &|| {
        send_many(&client, &pieces, QUIET)
    });
    Ok(())
}

fn stream_sigpipe_unconnected(side: &Side<'_>, trace: &Trace) -> Outcome {
    let fresh = side.socket(&side.lab.a)?;
    let (sent, signal) = with_sigpipe(|| fresh.send(b"x", 0));
    trace.see("unconnected", sent);
    trace.see("SIGPIPE unconnected", signal);
    let (client, server) = side.stream(7)?;
    reset(client)?;
    trace.poll_until("a reset", &server, libc::POLLERR)?;
    for (what, again) in [("first", "SIGPIPE first"), ("second", "SIGPIPE second")] {
        let (sent, signal) = with_sigpipe(|| server.send(b"x", 0));
        trace.see(what, sent);
        trace.see(again, signal);
    }
    Ok(())
}

/// `SIOCOUTQNSD` asks for the number of bytes that were not sent yet.
const SIOCOUTQNSD: libc::c_ulong = 0x894b;

fn queue_lengths(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("in, at first", server.queued(libc::FIONREAD));
    trace.see("out, at first", client.queued(libc::TIOCOUTQ));
    client.send_all(b"hello")?;
    client.send_all(&[7; 5000])?;
    acknowledged(&client)?;
    arrived(&server, 5005)?;
    trace.see("unsent", client.queued(SIOCOUTQNSD));
    server.receive(&mut [0; 10], 0)?;
    trace.see("in, after a read", server.queued(libc::FIONREAD));
    trace.see("the other way", client.queued(libc::FIONREAD));
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.see("in, with the end behind it", server.queued(libc::FIONREAD));
    acknowledged(&client)?;
    server.receive(&mut [0; 4995], libc::MSG_WAITALL)?;
    trace.see("in, before the end", server.queued(libc::FIONREAD));
    trace.receive("the end", &server, 10, 0);
    trace.see("in, after the end", server.queued(libc::FIONREAD));
    trace.see("out, after the end", client.queued(libc::TIOCOUTQ));
    Ok(())
}

fn stream_queue_lengths_without_a_connection(side: &Side<'_>, trace: &Trace) -> Outcome {
    for (what, socket) in [
        ("fresh", side.socket(&side.lab.a)?),
        ("listening", side.listener(7, 4)?),
    ] {
        for (queue, request) in [
            ("in", libc::FIONREAD),
            ("out", libc::TIOCOUTQ),
            ("unsent", SIOCOUTQNSD),
            ("unknown", 0x89fe),
        ] {
            trace.see(&format!("{queue}, {what}"), socket.queued(request));
        }
    }
    Ok(())
}

fn stream_queue_lengths_after_a_reset(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"hello")?;
    acknowledged(&client)?;
    reset(client)?;
    trace.poll_until("a reset", &server, libc::POLLERR)?;
    trace.see("in", server.queued(libc::FIONREAD));
    trace.see("out", server.queued(libc::TIOCOUTQ));
    trace.receive("receive", &server, 10, 0);
    trace.see("in, after a read", server.queued(libc::FIONREAD));
    Ok(())
}
