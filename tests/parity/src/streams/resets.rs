// SPDX-License-Identifier: GPL-2.0-only

//! Compares connections of TCP and ESP that are reset, in every state.

use super::super::moments::await_poll;
use crate::prelude::*;
use guest::calls::with_sigpipe;

behaviours! {
    stream stream_reset_reported_by_each_call;
    connected_streams stream_reset_while_sending;
    stream stream_reset_with_data_queued;
    connected_streams stream_reset_after_own_end;
    stream stream_reset_after_the_peers_end = after_peers_end;
    connected_streams stream_reset_after_the_peers_end_unread;
    stream stream_reset_before_accept = before_accept;
    stream stream_reset_before_accept_with_data;
    stream stream_data_before_accept;
    stream stream_listener_closed_with_connections_waiting;
    stream stream_listener_closed_with_data_waiting;
    stream stream_listener_closed_leaves_accepted_alone;
    stream stream_reset_both_ways;
    connected_streams stream_reset_and_readiness_without_reading;
}

fn stream_reset_reported_by_each_call(side: &Side<'_>, trace: &Trace) -> Outcome {
    for (port, order) in ["rrrse", "sssre", "erse", "srse", "rsse"]
        .iter()
        .enumerate()
    {
        let (client, server) = side.stream(7 + port as u16)?;
        reset(client)?;
        trace.poll_until(order, &server, libc::POLLHUP)?;
        see_end(trace, order, &server, order);
        trace.poll(order, &server)?;
    }
    Ok(())
}

fn stream_reset_while_sending(trace: &Trace, (client, server): Pair) -> Outcome {
    let bytes = vec![7; 16_000_000];
    let send = || with_sigpipe(|| client.send(&bytes, 0));
    let (_, sent, ()) = asleep(libc::SYS_sendto, send, |sleeper| {
        trace.see("it waits", sleeper.sleeps()?);
        reset(server)
    })?;
    let some = |result: &std::io::Result<usize>| {
        result
            .as_ref()
            .is_ok_and(|sent| *sent > 0 && *sent < bytes.len())
    };
    trace.see("some was sent", some(&sent.0));
    trace.see("SIGPIPE", sent.1);
    trace.poll("client", &client)?;
    see_end(trace, "client", &client, "ssre");
    Ok(())
}

fn stream_reset_with_data_queued(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    client.send_all(b"hello world")?;
    arrived(&server, 11)?;
    acknowledged(&client)?;
    reset(client)?;
    trace.poll_until("server", &server, libc::POLLHUP)?;
    trace.see("queued", server.queued(libc::FIONREAD));
    trace.receive("peek", &server, 3, libc::MSG_PEEK);
    trace.receive("some", &server, 6, 0);
    trace.receive("all the rest", &server, 100, libc::MSG_WAITALL);
    see_end(trace, "server", &server, "rrse");
    let (client, server) = side.stream(8)?;
    client.send_all(b"hello world")?;
    arrived(&server, 11)?;
    acknowledged(&client)?;
    reset(client)?;
    trace.poll_until("server", &server, libc::POLLHUP)?;
    see_end(trace, "sending first", &server, "ssrr");
    Ok(())
}

fn stream_reset_after_own_end(trace: &Trace, (client, server): Pair) -> Outcome {
    client.shutdown(libc::SHUT_WR)?;
    trace.receive("the end", &server, 10, 0);
    acknowledged(&client)?;
    reset(server)?;
    trace.poll_until("client", &client, libc::POLLHUP)?;
    see_end(trace, "client", &client, "rrs");
    Ok(())
}

/// In this test the peer shuts down its sending half. Then the peer closes its socket while data
/// are unread, which resets the connection.
fn after_peers_end(side: &Side<'_>, trace: &Trace) -> Outcome {
    for (port, order) in [(7, "rrsse"), (8, "srs"), (9, "ers")] {
        let (client, server) = side.stream(port)?;
        client.shutdown(libc::SHUT_WR)?;
        trace.receive("the end", &server, 10, 0);
        server.send_all(b"unread")?;
        acknowledged(&server)?;
        drop(client);
        trace.poll_until(order, &server, libc::POLLHUP)?;
        see_end(trace, order, &server, order);
    }
    Ok(())
}

fn stream_reset_after_the_peers_end_unread(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"last words")?;
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    server.send_all(b"unread")?;
    acknowledged(&server)?;
    drop(client);
    trace.poll_until("server", &server, libc::POLLHUP)?;
    trace.receive("what came before", &server, 100, 0);
    see_end(trace, "server", &server, "rrse");
    Ok(())
}

fn before_accept(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.dial(7)?;
    await_poll(&listener, libc::POLLIN)?;
    reset(client)?;
    // Packets stay in order, so the second connection proves that the reset has arrived.
    let second = side.dial(7)?;
    second.send_all(b"second")?;
    acknowledged(&second)?;
    trace.poll("listener", &listener)?;
    let (server, name) = listener.accept(0)?;
    trace.see("accepted with a name", !name.is_empty());
    trace.see("getpeername", server.peer_name().map(|_| ()));
    trace.see("getsockname", server.local_name().map(|_| ()));
    trace.poll("accepted", &server)?;
    see_end(trace, "accepted", &server, "rrse");
    let (server, _) = listener.accept(0)?;
    trace.receive("the second", &server, 100, 0);
    Ok(())
}

fn stream_reset_before_accept_with_data(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.dial(7)?;
    client.send_all(b"last words")?;
    acknowledged(&client)?;
    reset(client)?;
    let second = side.dial(7)?;
    second.send_all(b"second")?;
    acknowledged(&second)?;
    let (server, _) = listener.accept(0)?;
    trace.poll("accepted", &server)?;
    trace.receive("what came", &server, 100, 0);
    see_end(trace, "accepted", &server, "rrse");
    Ok(())
}

fn stream_data_before_accept(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.dial(7)?;
    let bytes = guest::transfer::random(20_000, 7);
    client.send_all(&bytes)?;
    acknowledged(&client)?;
    let (server, _) = listener.accept(0)?;
    trace.see("queued", server.queued(libc::FIONREAD));
    let got = server.receive_all(bytes.len())?;
    trace.see("all is there", got == bytes);
    Ok(())
}

fn stream_listener_closed_with_connections_waiting(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let clients = [side.dial(7)?, side.dial(7)?];
    // The last acknowledgement of the handshake may still be in flight, so data are sent and
    // acknowledged.
    for client in &clients {
        client.send_all(b"x")?;
        acknowledged(client)?;
    }
    drop(listener);
    for (client, order) in clients.iter().zip(["rrs", "sre"]) {
        trace.poll_until(order, client, libc::POLLHUP)?;
        see_end(trace, order, client, order);
    }
    let late = side.socket(&side.lab.a)?;
    trace.see("connect", late.connect_bytes(&side.far(7)));
    Ok(())
}

fn stream_listener_closed_with_data_waiting(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.dial(7)?;
    client.send_all(b"request")?;
    client.shutdown(libc::SHUT_WR)?;
    acknowledged(&client)?;
    drop(listener);
    trace.poll_until("client", &client, libc::POLLHUP)?;
    see_end(trace, "client", &client, "rrs");
    Ok(())
}

fn stream_listener_closed_leaves_accepted_alone(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    drop(listener);
    trace.see("send", client.send(b"hello", 0));
    trace.receive("receive", &server, 100, 0);
    trace.see("answer", server.send(b"hello", 0));
    trace.receive("receive it", &client, 100, 0);
    Ok(())
}

fn stream_reset_both_ways(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    client.send_all(b"unread")?;
    server.send_all(b"unread")?;
    acknowledged(&client)?;
    acknowledged(&server)?;
    let (there, here) = guest::transfer::beside(|| reset(server), || reset(client))?;
    trace.see("both are gone", (there, here) == ((), ()));
    let (client, server) = side.stream(8)?;
    client.send_all(b"a new one")?;
    trace.receive("works", &server, 100, 0);
    Ok(())
}

fn stream_reset_and_readiness_without_reading(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"unread")?;
    arrived(&server, 6)?;
    acknowledged(&client)?;
    reset(client)?;
    trace.poll_until("at first", &server, libc::POLLHUP)?;
    trace.pending_error("SO_ERROR", &server);
    trace.poll("the error taken", &server)?;
    trace.receive("read", &server, 100, 0);
    trace.poll("all read", &server)?;
    trace.receive("the end", &server, 100, 0);
    Ok(())
}
