// SPDX-License-Identifier: GPL-2.0-only

//! Compares the events that `poll(2)` and `select(2)` report for a stream of TCP or ESP in each of
//! its states.

use super::super::moments;
use crate::prelude::*;

behaviours! {
    stream stream_poll_before_a_connection;
    stream stream_poll_of_a_listener = listener;
    stream stream_poll_of_a_listener_that_was_shut_down;
    stream stream_poll_while_connecting;
    stream stream_poll_after_a_refusal;
    stream stream_poll_after_a_connect_timed_out;
    connected_streams stream_poll_when_the_peer_ended_its_half;
    connected_streams stream_poll_when_the_own_half_is_ended;
    connected_streams stream_poll_when_both_halves_are_ended;
    connected_streams stream_poll_when_reading_was_shut_down;
    stream stream_poll_after_a_reset = reset;
    connected_streams stream_poll_after_a_reset_behind_the_end;
    connected_streams stream_poll_reports_only_requested_events;
    stream stream_select_and_poll_agree = select;
    connected_streams stream_poll_of_a_duplicate;
}

fn stream_poll_before_a_connection(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    trace.poll("new", &socket)?;
    socket.bind_bytes(&side.at_a(40))?;
    trace.poll("bound", &socket)?;
    trace.see("shutdown", socket.shutdown(libc::SHUT_RDWR));
    trace.poll("after shutdown was refused", &socket)?;
    trace.receive("receive then", &socket, 1, 0);
    trace.see("send then", socket.send(b"x", libc::MSG_NOSIGNAL));
    trace.poll("at last", &socket)
}

fn listener(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(41, 4)?;
    trace.poll("nobody waits", &listener)?;
    let _one = side.dial(41)?;
    trace.poll_until("one waits", &listener, libc::POLLIN)?;
    trace.pending_error("an error", &listener);
    let _server = listener.accept(0)?;
    trace.poll("accepted", &listener)?;
    trace.see("shutdown of writing", listener.shutdown(libc::SHUT_WR));
    trace.poll("after that", &listener)?;
    let _two = side.dial(41)?;
    trace.poll_until("another waits", &listener, libc::POLLIN)
}

fn stream_poll_of_a_listener_that_was_shut_down(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(42, 4)?;
    let client = side.dial(42)?;
    trace.poll_until("one waits", &listener, libc::POLLIN)?;
    trace.see("shutdown", listener.shutdown(libc::SHUT_RD));
    trace.poll("after shutdown", &listener)?;
    trace.pending_error("its error", &listener);
    trace.see("accept", listener.accept(libc::SOCK_NONBLOCK).map(drop));
    trace.poll_until("who waited was reset", &client, libc::POLLERR)?;
    trace.pending_error("by", &client);
    let late = side.socket(&side.lab.a)?;
    trace.see("who comes later", late.connect_bytes(&side.far(42)));
    trace.see("shutdown again", listener.shutdown(libc::SHUT_RD));
    trace.see("listen again", listener.listen(4));
    trace.poll("listening again", &listener)?;
    let third = side.socket(&side.lab.a)?;
    trace.see("connect", third.connect_bytes(&side.far(42)));
    trace.see("accept again", listener.accept(0).map(drop));
    Ok(())
}

fn stream_poll_while_connecting(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect", client.connect_bytes(&side.nobody(43)));
    trace.poll("while connecting", &client)?;
    trace.select("selected", &client)?;
    trace.pending_error("no error yet", &client);
    trace.see("send", client.send(b"x", libc::MSG_NOSIGNAL));
    trace.receive("receive", &client, 1, 0);
    trace.see("getpeername", client.peer_name().map(drop));
    trace.see("shutdown", client.shutdown(libc::SHUT_WR));
    trace.poll("after shutdown", &client)?;
    trace.pending_error("its error", &client);
    trace.poll("without the error", &client)
}

fn stream_poll_after_a_refusal(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect", client.connect_bytes(&side.far(44)));
    trace.poll_until("refused", &client, libc::POLLERR)?;
    trace.select("selected", &client)?;
    trace.pending_error("by", &client);
    trace.poll("without the error", &client)?;
    trace.receive("receive", &client, 1, 0);
    trace.see("send", client.send(b"x", libc::MSG_NOSIGNAL));
    trace.see("connect again", client.connect_bytes(&side.far(44)));
    trace.poll("after that", &client)
}

fn stream_poll_after_a_connect_timed_out(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect", client.connect_bytes(&side.nobody(45)));
    trace.poll_until("timed out", &client, libc::POLLERR)?;
    trace.pending_error("by", &client);
    trace.poll("without the error", &client)
}

fn stream_poll_when_the_peer_ended_its_half(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"last words")?;
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("data and the end", &server, libc::POLLRDHUP)?;
    trace.select("selected", &server)?;
    trace.receive("the data", &server, 100, 0);
    trace.poll("the end alone", &server)?;
    trace.receive("the end", &server, 100, 0);
    trace.receive("the end again", &server, 100, 0);
    trace.poll("still", &server)?;
    trace.pending_error("no error", &server);
    trace.see("send the other way", server.send(b"yes", 0));
    trace.receive("received there", &client, 100, 0);
    Ok(())
}

fn stream_poll_when_the_own_half_is_ended(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("shutdown", client.shutdown(libc::SHUT_WR));
    trace.poll_until("at the other end", &server, libc::POLLRDHUP)?;
    trace.poll("nothing came", &client)?;
    trace.select("selected", &client)?;
    server.send_all(b"data")?;
    trace.poll_until("data came", &client, libc::POLLIN)?;
    trace.see("send", client.send(b"x", libc::MSG_NOSIGNAL));
    trace.see("shutdown again", client.shutdown(libc::SHUT_WR));
    trace.receive("the data", &client, 100, 0);
    trace.poll("nothing left", &client)
}

fn stream_poll_when_both_halves_are_ended(trace: &Trace, (client, server): Pair) -> Outcome {
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("half", &server, libc::POLLRDHUP)?;
    server.send_all(b"data")?;
    server.shutdown(libc::SHUT_WR)?;
    trace.poll_until("who ended last", &server, libc::POLLHUP)?;
    trace.poll_until("who ended first, with data", &client, libc::POLLHUP)?;
    trace.receive("the data", &client, 100, 0);
    trace.poll("who ended first", &client)?;
    trace.receive("its end", &client, 100, 0);
    trace.receive("the other's end", &server, 100, 0);
    trace.see("send", client.send(b"x", libc::MSG_NOSIGNAL));
    trace.pending_error("no error here", &client);
    trace.pending_error("no error there", &server);
    trace.poll("at last here", &client)?;
    trace.poll("at last there", &server)
}

fn stream_poll_when_reading_was_shut_down(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("shutdown", server.shutdown(libc::SHUT_RD));
    trace.poll("no data", &server)?;
    trace.poll("the other end", &client)?;
    trace.receive("receive", &server, 100, 0);
    trace.see("the peer sends", client.send(b"data", 0));
    // The socket is already readable, so no event announces the data. `arrived` waits until they
    // are queued.
    moments::arrived(&server, 4)?;
    trace.poll("with data", &server)?;
    trace.receive("the data", &server, 100, 0);
    trace.receive("no more", &server, 100, 0);
    trace.see("send the other way", server.send(b"yes", 0));
    trace.receive("received there", &client, 100, 0);
    trace.see("shutdown of the rest", server.shutdown(libc::SHUT_WR));
    trace.poll("both halves", &server)
}

fn reset(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(50)?;
    moments::reset(client)?;
    trace.poll_until("reset", &server, libc::POLLERR)?;
    trace.select("selected", &server)?;
    trace.receive("receive", &server, 100, 0);
    trace.poll("once reported", &server)?;
    trace.receive("receive again", &server, 100, 0);
    trace.see("send", server.send(b"x", libc::MSG_NOSIGNAL));
    trace.see("shutdown", server.shutdown(libc::SHUT_WR));

    let (client, server) = side.stream(51)?;
    moments::reset(client)?;
    trace.poll_until("reset again", &server, libc::POLLERR)?;
    trace.pending_error("asked for", &server);
    trace.poll("then", &server)?;
    trace.receive("receive then", &server, 100, 0);

    let (client, server) = side.stream(52)?;
    moments::reset(client)?;
    trace.poll_until("and again", &server, libc::POLLERR)?;
    trace.see("send tells", server.send(b"x", libc::MSG_NOSIGNAL));
    trace.see("send then", server.send(b"x", libc::MSG_NOSIGNAL));
    Ok(())
}

fn stream_poll_after_a_reset_behind_the_end(trace: &Trace, (client, server): Pair) -> Outcome {
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    moments::reset(client)?;
    trace.poll_until("reset", &server, libc::POLLERR)?;
    trace.receive("receive", &server, 100, 0);
    trace.poll("after that", &server)?;
    trace.see("send", server.send(b"x", libc::MSG_NOSIGNAL));
    trace.pending_error("left", &server);
    Ok(())
}

fn stream_poll_reports_only_requested_events(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"data")?;
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("everything", &server, libc::POLLRDHUP)?;
    for (what, events) in [
        ("nothing", 0),
        ("IN", libc::POLLIN),
        ("OUT", libc::POLLOUT),
        ("RDHUP", libc::POLLRDHUP),
        ("PRI", libc::POLLPRI),
    ] {
        let found = server.poll(events, Duration::ZERO)?;
        trace.see(
            &format!("asked for {what}"),
            super::super::events_text(found),
        );
    }
    moments::reset(client)?;
    // `poll` reports errors even if no event is requested.
    let found = server.poll(0, patience())?;
    trace.see(
        "asked for nothing after a reset",
        super::super::events_text(found),
    );
    Ok(())
}

fn select(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(57, 4)?;
    trace.select("listener", &listener)?;
    let client = side.dial(57)?;
    trace.poll_until("a connection waits", &listener, libc::POLLIN)?;
    trace.select("listener with a connection", &listener)?;
    let (server, _) = listener.accept(0)?;
    trace.select("connected", &server)?;
    client.send_all(b"data")?;
    trace.poll_until("data", &server, libc::POLLIN)?;
    trace.select("with data", &server)?;
    trace.receive("the data", &server, 100, 0);
    trace.select("without", &server)?;
    moments::reset(client)?;
    trace.poll_until("reset", &server, libc::POLLERR)?;
    trace.select("after the reset", &server)
}

fn stream_poll_of_a_duplicate(trace: &Trace, (client, server): Pair) -> Outcome {
    let copy = server.duplicate()?;
    client.send_all(b"data")?;
    trace.poll_until("the one", &server, libc::POLLIN)?;
    trace.poll("the other", &copy)?;
    trace.receive("read by the other", &copy, 100, 0);
    trace.poll("the one, then", &server)?;
    drop(server);
    client.send_all(b"more")?;
    trace.poll_until("the one is closed", &copy, libc::POLLIN)?;
    trace.receive("read", &copy, 100, 0);
    trace.see("send", copy.send(b"yes", 0));
    trace.receive("received", &client, 100, 0);
    drop(copy);
    trace.receive("when both are closed", &client, 100, 0);
    Ok(())
}
