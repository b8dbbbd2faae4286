// SPDX-License-Identifier: GPL-2.0-only

//! Compares `connect(2)` over TCP and ESP: without blocking, called again, after a failure, and
//! with `AF_UNSPEC`, which disconnects.

use super::super::side::NOTHING;
use crate::prelude::*;

behaviours! {
    stream stream_connect_without_blocking;
    stream stream_connect_while_it_is_under_way;
    stream stream_connect_time_limit;
    stream stream_connect_timed_out;
    stream stream_connect_again_after_a_refusal = after_refusal;
    stream stream_connect_again_after_a_refusal_without_blocking;
    stream stream_failed_connect_releases_its_port;
    stream stream_connect_in_states_that_do_not_allow_it;
    stream stream_disconnect_ends_a_connection;
    stream stream_disconnect_ends_an_attempt;
    stream stream_disconnect_ends_listening;
    stream stream_disconnect_without_a_connection;
    connected_streams stream_disconnect_wakes_a_receiver;
    stream stream_disconnect_wakes_an_acceptor;
    stream stream_connect_woken_by_shutdown;
    stream stream_connect_woken_by_disconnect;
    stream stream_send_and_receive_wait_for_the_connect;
    stream stream_shutdown_after_a_refusal;
}

fn stream_connect_without_blocking(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(140, 4)?;
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    side.losing_frames(|| {
        trace.see("connect", client.connect_bytes(&side.far(140)));
        trace.see("again", client.connect_bytes(&side.far(140)));
        trace.see("elsewhere", client.connect_bytes(&side.far(141)));
        trace.poll("under way", &client)
    })?;
    trace.poll_until("connected", &client, libc::POLLOUT)?;
    trace.pending_error("no error", &client);
    trace.see("connect tells", client.connect_bytes(&side.far(140)));
    trace.see("connect once more", client.connect_bytes(&side.far(140)));
    let (server, _) = listener.accept(0)?;
    trace.see("send", client.send(b"data", 0));
    trace.receive("received", &server, 10, 0);
    Ok(())
}

fn stream_connect_while_it_is_under_way(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect", client.connect_bytes(&side.nobody(142)));
    client.set_nonblocking(false)?;
    client.set_timeout(libc::SO_SNDTIMEO, Duration::from_millis(100))?;
    // This call waits for the connection attempt that an earlier call has started.
    trace.see("and wait", client.connect_bytes(&side.nobody(142)));
    trace.see("listen", client.listen(1));
    trace.see("bind", client.bind_bytes(&side.anywhere(143)));
    trace.see("accept", client.accept(libc::SOCK_NONBLOCK).map(drop));
    trace.poll("under way", &client)
}

fn stream_connect_time_limit(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_timeout(libc::SO_SNDTIMEO, Duration::from_millis(100))?;
    let start = Instant::now();
    trace.see("connect", client.connect_bytes(&side.nobody(144)));
    trace.see("waited", start.elapsed() >= Duration::from_millis(50));
    trace.see("connect again", client.connect_bytes(&side.nobody(144)));
    trace.poll("under way", &client)?;
    trace.pending_error("no error", &client);
    Ok(())
}

fn stream_connect_timed_out(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    trace.see("connect", client.connect_bytes(&side.nobody(145)));
    trace.poll("then", &client)?;
    trace.pending_error("reported once", &client);
    trace.receive("receive", &client, 1, 0);
    let listener = side.listener(145, 4)?;
    trace.see("connect elsewhere", client.connect_bytes(&side.far(145)));
    trace.see("accept", listener.accept(0).map(drop));
    Ok(())
}

fn after_refusal(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.bound(&side.lab.a, 146)?;
    for round in 1..=2 {
        trace.see(
            &format!("attempt {round}"),
            client.connect_bytes(&side.far(146)),
        );
        trace.poll(&format!("after {round}"), &client)?;
        trace.receive(&format!("receive {round}"), &client, 1, 0);
        trace.see(
            &format!("send {round}"),
            client.send(b"x", libc::MSG_NOSIGNAL),
        );
        trace.see(&format!("its peer {round}"), client.peer_name().map(drop));
    }
    let listener = side.listener(146, 4)?;
    trace.see("attempt 3", client.connect_bytes(&side.far(146)));
    let (server, _) = listener.accept(0)?;
    trace.see("the port that was bound", side.port(&client.local_name()?));
    trace.poll("connected", &client)?;
    trace.see("send", client.send(b"data", 0));
    trace.receive("received", &server, 10, 0);
    Ok(())
}

fn stream_connect_again_after_a_refusal_without_blocking(
    side: &Side<'_>,
    trace: &Trace,
) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("attempt 1", client.connect_bytes(&side.far(147)));
    trace.poll_until("refused", &client, libc::POLLERR)?;
    // The call that follows a failed attempt reports the failure. Here that call is `connect`.
    trace.see("attempt 2 tells", client.connect_bytes(&side.far(147)));
    let listener = side.listener(147, 4)?;
    trace.see("attempt 3", client.connect_bytes(&side.far(147)));
    trace.poll_until("connected", &client, libc::POLLOUT)?;
    let (server, _) = listener.accept(0)?;
    trace.see("send", client.send(b"data", 0));
    trace.receive("received", &server, 10, 0);
    Ok(())
}

fn stream_failed_connect_releases_its_port(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    trace.see("connect", client.connect_bytes(&side.far(141)));
    // After the failed attempt, `getsockname` still returns the attempt's port, but any socket may
    // bind to that port.
    let port = side.port(&client.local_name()?);
    trace.see("a port", port != 0);
    let other = side.socket(&side.lab.a)?;
    trace.see("bind another to it", other.bind_bytes(&side.at_a(port)));
    trace.see("bind elsewhere", client.bind_bytes(&side.at_a(141)));
    trace.see("the port then", side.port(&client.local_name()?));
    trace.see("connect again", client.connect_bytes(&side.far(141)));
    trace.see("bind again", client.bind_bytes(&side.at_a(142)));
    trace.see("bind another to that", {
        let third = side.socket(&side.lab.a)?;
        third.bind_bytes(&side.at_a(141))
    });
    Ok(())
}

fn stream_connect_in_states_that_do_not_allow_it(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(148, 4)?;
    let far = side.address(&side.lab.b, &side.lab.a, 149);
    trace.see("a listener", listener.connect_bytes(&far));
    let client = side.dial(148)?;
    let (server, _) = listener.accept(0)?;
    trace.see("connected", client.connect_bytes(&side.far(148)));
    trace.see("accepted", server.connect_bytes(&far));
    trace.see("listen of a connected one", client.listen(1));
    client.shutdown(libc::SHUT_WR)?;
    server.shutdown(libc::SHUT_WR)?;
    trace.poll_until("both ended", &client, libc::POLLHUP)?;
    trace.poll_until("there too", &server, libc::POLLHUP)?;
    trace.see("one that is over", client.connect_bytes(&side.far(148)));
    trace.see("listen of it", client.listen(1));
    trace.see("accept of it", client.accept(libc::SOCK_NONBLOCK).map(drop));
    trace.see("shutdown of it", client.shutdown(libc::SHUT_WR));
    Ok(())
}

fn stream_disconnect_ends_a_connection(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(150, 4)?;
    let client = side.dial(150)?;
    let (server, _) = listener.accept(0)?;
    server.send_all(b"never read")?;
    trace.poll_until("data", &client, libc::POLLIN)?;
    trace.see("connect to nothing", client.connect_bytes(&NOTHING));
    trace.poll("then", &client)?;
    trace.pending_error("its error", &client);
    trace.poll("without the error", &client)?;
    trace.receive("receive", &client, 100, 0);
    trace.see("getpeername", client.peer_name().map(drop));
    trace.poll_until("the other end", &server, libc::POLLERR)?;
    trace.pending_error("its own error", &server);
    trace.see("connect", client.connect_bytes(&side.far(150)));
    let (server, _) = listener.accept(0)?;
    server.send_all(b"new")?;
    trace.receive("received", &client, 100, 0);
    trace.see("undo the accepted end", server.connect_bytes(&NOTHING));
    trace.poll_until("seen here", &client, libc::POLLERR)?;
    trace.see("listen with it", server.listen(1));
    trace.see(
        "the listener is as it was",
        side.dial(150).map(drop).map_err(to_io),
    );
    Ok(())
}

fn to_io(error: anyhow::Error) -> std::io::Error {
    error
        .downcast()
        .unwrap_or_else(|error: anyhow::Error| std::io::Error::other(error.to_string()))
}

fn stream_disconnect_ends_an_attempt(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect", client.connect_bytes(&side.nobody(151)));
    trace.see("connect to nothing", client.connect_bytes(&NOTHING));
    trace.poll("then", &client)?;
    trace.pending_error("its error", &client);
    let listener = side.listener(151, 4)?;
    trace.see("connect elsewhere", client.connect_bytes(&side.far(151)));
    trace.poll_until("connected", &client, libc::POLLOUT)?;
    trace.see("accept", listener.accept(0).map(drop));
    Ok(())
}

fn stream_disconnect_ends_listening(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(152, 4)?;
    let client = side.dial(152)?;
    trace.poll_until("one waits", &listener, libc::POLLIN)?;
    trace.see("connect to nothing", listener.connect_bytes(&NOTHING));
    trace.poll("then", &listener)?;
    trace.pending_error("its error", &listener);
    trace.see("accept", listener.accept(libc::SOCK_NONBLOCK).map(drop));
    trace.poll_until("who waited", &client, libc::POLLERR)?;
    trace.see("listen again", listener.listen(4));
    trace.see("connect", side.dial(152).map(drop).map_err(to_io));
    Ok(())
}

fn stream_disconnect_without_a_connection(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    trace.see("new", socket.connect_bytes(&NOTHING));
    trace.see("two bytes", socket.connect_bytes(&[0, 0]));
    trace.see("one byte", socket.connect_bytes(&[0]));
    trace.poll("as before", &socket)?;
    trace.pending_error("no error", &socket);
    socket.bind_bytes(&side.at_a(153))?;
    trace.see("bound", socket.connect_bytes(&NOTHING));
    trace.see("its port", side.port(&socket.local_name()?));
    // Disconnecting also undoes an earlier shutdown.
    trace.see("shutdown", socket.shutdown(libc::SHUT_RDWR));
    trace.see("after shutdown", socket.connect_bytes(&NOTHING));
    trace.poll("as new", &socket)?;
    let listener = side.listener(153, 4)?;
    trace.see("connect", socket.connect_bytes(&side.far(153)));
    trace.see("accept", listener.accept(0).map(drop));
    Ok(())
}

fn stream_disconnect_wakes_a_receiver(trace: &Trace, (client, _server): Pair) -> Outcome {
    let call = || client.receive(&mut [0; 10], 0);
    let _ = trace.sleeping("receive", libc::SYS_recvfrom, call, |_| {
        Ok(client.connect_bytes(&NOTHING)?)
    })?;
    trace.pending_error("its error", &client);
    trace.receive("receive again", &client, 10, 0);
    Ok(())
}

fn stream_disconnect_wakes_an_acceptor(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(155, 4)?;
    let call = || listener.accept(0).map(drop);
    let _ = trace.sleeping("accept", libc::SYS_accept4, call, |_| {
        Ok(listener.connect_bytes(&NOTHING)?)
    })?;
    Ok(())
}

fn stream_connect_woken_by_shutdown(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    let call = || client.connect_bytes(&side.nobody(156));
    let _ = trace.sleeping("connect", libc::SYS_connect, call, |_| {
        Ok(client.shutdown(libc::SHUT_RD)?)
    })?;
    trace.poll("then", &client)?;
    trace.pending_error("no error left", &client);
    Ok(())
}

fn stream_connect_woken_by_disconnect(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    let call = || client.connect_bytes(&side.nobody(157));
    let _ = trace.sleeping("connect", libc::SYS_connect, call, |_| {
        Ok(client.connect_bytes(&NOTHING)?)
    })?;
    trace.pending_error("its error", &client);
    Ok(())
}

fn stream_send_and_receive_wait_for_the_connect(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(158, 4)?;
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    side.losing_frames(|| {
        trace.see("connect", client.connect_bytes(&side.far(158)));
        trace.see("send does not wait", client.send(b"x", 0));
        trace.receive("nor does receive", &client, 1, 0);
        Ok(())
    })?;
    client.set_nonblocking(false)?;
    trace.see("send waits", client.send(b"data", 0));
    let (accepted, _) = listener.accept(0)?;
    trace.receive("received", &accepted, 10, 0);

    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect to nobody", client.connect_bytes(&side.nobody(158)));
    client.set_nonblocking(false)?;
    client.set_timeout(libc::SO_SNDTIMEO, Duration::from_millis(50))?;
    client.set_timeout(libc::SO_RCVTIMEO, Duration::from_millis(50))?;
    trace.see("send waits in vain", client.send(b"data", 0));
    trace.receive("so does receive", &client, 10, 0);
    Ok(())
}

fn stream_shutdown_after_a_refusal(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect", client.connect_bytes(&side.far(159)));
    trace.poll_until("refused", &client, libc::POLLERR)?;
    trace.see("shutdown", client.shutdown(libc::SHUT_RDWR));
    trace.see("connect again", client.connect_bytes(&side.far(159)));
    trace.pending_error("the error", &client);
    trace.see("connect once more", client.connect_bytes(&side.far(159)));
    trace.see("connect to nothing", client.connect_bytes(&NOTHING));
    trace.see("and again", client.connect_bytes(&side.far(159)));
    Ok(())
}
