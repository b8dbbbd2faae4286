// SPDX-License-Identifier: GPL-2.0-only

//! Compares the addresses that sockets of TCP and ESP report in each state, and the reuse of
//! sockets and ports.

use super::super::moments::await_poll;
use super::super::side::NOTHING;
use super::super::sockets::names::see_names;
use crate::prelude::*;

behaviours! {
    stream stream_names_in_each_state;
    stream stream_names_after_a_reset;
    stream stream_connect_after_a_connection_ended;
    stream stream_bind_and_listen_after_a_connection_ended;
    stream stream_socket_disconnected_and_used_again;
    stream stream_port_bound_again_after_close;
    stream stream_port_bound_again_after_the_peer_closed_first;
    stream stream_port_bound_again_after_closing_first, differs(&[Difference::new("bind", "EADDRINUSE", "success")]);
    stream stream_same_pair_of_ports_again;
}

fn stream_names_in_each_state(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    see_names(side, trace, "fresh", &client);
    client.bind_bytes(&side.anywhere(0))?;
    see_names(side, trace, "bound to no port", &client);
    let client = side.bound(&side.lab.a, 70)?;
    see_names(side, trace, "bound", &client);
    let listener = side.listener(7, 4)?;
    see_names(side, trace, "listening", &listener);
    client.connect_bytes(&side.far(7))?;
    see_names(side, trace, "connected", &client);
    let (server, _) = listener.accept(0)?;
    see_names(side, trace, "accepted", &server);
    server.shutdown(libc::SHUT_WR)?;
    await_poll(&client, libc::POLLRDHUP)?;
    see_names(side, trace, "when the peer has ended", &client);
    see_names(side, trace, "when it has ended itself", &server);
    client.shutdown(libc::SHUT_WR)?;
    await_poll(&server, libc::POLLHUP)?;
    await_poll(&client, libc::POLLHUP)?;
    acknowledged(&client)?;
    see_names(side, trace, "when both have ended", &server);
    let connecting = side.socket(&side.lab.a)?;
    connecting.set_nonblocking(true)?;
    trace.see("connect", connecting.connect_bytes(&side.nobody(7)));
    see_names(side, trace, "connecting", &connecting);
    let refused = side.bound(&side.lab.a, 71)?;
    trace.see("connect", refused.connect_bytes(&side.far(8)));
    see_names(side, trace, "refused", &refused);
    Ok(())
}

fn stream_names_after_a_reset(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    reset(server)?;
    await_poll(&client, libc::POLLHUP)?;
    see_names(side, trace, "reset", &client);
    let (client, server) = side.stream(8)?;
    reset(client)?;
    await_poll(&server, libc::POLLHUP)?;
    see_names(side, trace, "reset, accepted", &server);
    Ok(())
}

fn stream_connect_after_a_connection_ended(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    let connect = || client.connect_bytes(&side.far(7));
    trace.see("connected", connect());
    trace.see("by the accepted", server.connect_bytes(&side.far(7)));
    client.shutdown(libc::SHUT_WR)?;
    trace.see("half closed", connect());
    await_poll(&server, libc::POLLRDHUP)?;
    server.shutdown(libc::SHUT_WR)?;
    await_poll(&client, libc::POLLHUP)?;
    trace.see("ended", connect());
    trace.receive("still at its end", &client, 10, 0);
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    reset(server)?;
    await_poll(&client, libc::POLLHUP)?;
    trace.see("reset", client.connect_bytes(&side.far(7)));
    trace.see("reset, again", client.connect_bytes(&side.far(7)));
    trace.pending_error("pending", &client);
    trace.see("by the listener", listener.connect_bytes(&side.far(9)));
    Ok(())
}

fn stream_bind_and_listen_after_a_connection_ended(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    let here = side.at_a(70);
    trace.see("bind, connected", client.bind_bytes(&here));
    trace.see("listen, connected", client.listen(4));
    reset(server)?;
    await_poll(&client, libc::POLLHUP)?;
    trace.see("listen, reset", client.listen(4));
    Ok(())
}

fn stream_socket_disconnected_and_used_again(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    trace.see("dissolve", client.connect_bytes(&NOTHING));
    trace.poll_until("the peer", &server, libc::POLLHUP)?;
    trace.receive("the peer receives", &server, 10, 0);
    trace.pending_error("pending", &client);
    trace.receive("receive", &client, 10, libc::MSG_DONTWAIT);
    trace.see("connect", client.connect_bytes(&side.far(7)));
    let (server, _) = listener.accept(0)?;
    trace.see("send", client.send(b"hello", 0));
    trace.receive("receive", &server, 10, 0);
    drop(server);
    trace.poll_until("the end", &client, libc::POLLRDHUP)?;
    trace.see("dissolve", client.connect_bytes(&NOTHING));
    trace.pending_error("pending", &client);
    trace.see("connect", client.connect_bytes(&side.far(7)));
    let (server, _) = listener.accept(0)?;
    trace.see("send", server.send(b"again", 0));
    trace.receive("receive", &client, 10, 0);
    Ok(())
}

fn stream_port_bound_again_after_close(side: &Side<'_>, trace: &Trace) -> Outcome {
    let bound = side.bound(&side.lab.b, 7)?;
    let second = side.socket(&side.lab.b)?;
    trace.see("taken", second.bind_bytes(&side.at_b(7)));
    drop(bound);
    trace.see("bind", second.bind_bytes(&side.at_b(7)));
    drop(second);
    let listener = side.listener(7, 4)?;
    drop(listener);
    trace.see("after listening", side.listener(7, 4).is_ok());
    Ok(())
}

fn stream_port_bound_again_after_the_peer_closed_first(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    drop(client);
    trace.receive("the end", &server, 10, 0);
    server.shutdown(libc::SHUT_WR)?;
    await_poll(&server, libc::POLLHUP)?;
    acknowledged(&server)?;
    drop((server, listener));
    trace.see("listen again", side.listener(7, 4).is_ok());
    Ok(())
}

fn stream_port_bound_again_after_closing_first(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    server.shutdown(libc::SHUT_WR)?;
    trace.receive("the end", &client, 10, 0);
    client.shutdown(libc::SHUT_WR)?;
    await_poll(&server, libc::POLLHUP)?;
    await_poll(&client, libc::POLLHUP)?;
    drop((server, listener));
    let again = side.socket(&side.lab.b)?;
    trace.see("bind", again.bind_bytes(&side.at_b(7)));
    Ok(())
}

fn stream_same_pair_of_ports_again(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    for round in ["first", "second"] {
        let client = side.bound(&side.lab.a, 70)?;
        trace.see(
            &format!("{round}: connect"),
            client.connect_bytes(&side.far(7)),
        );
        let (server, _) = listener.accept(0)?;
        client.send_all(round.as_bytes())?;
        trace.receive(round, &server, 100, 0);
        // After a reset no connection is left, so its pair of ports is free at once.
        reset(client)?;
        await_poll(&server, libc::POLLHUP)?;
    }
    Ok(())
}
