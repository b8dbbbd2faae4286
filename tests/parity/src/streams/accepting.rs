// SPDX-License-Identifier: GPL-2.0-only

//! Compares `listen(2)` and `accept4(2)` over TCP and ESP.

use crate::prelude::*;
use guest::asleep::left_asleep;

behaviours! {
    stream stream_accept_of_what_does_not_listen;
    stream stream_accept_without_blocking;
    stream stream_accept_flags;
    stream stream_accept_does_not_inherit_nonblocking;
    stream stream_accept_in_order;
    stream stream_accept_of_a_connection_that_is_over;
    stream stream_accept_woken_by_shutdown;
    stream stream_accept_of_several_threads = several;
    stream stream_accept_of_several_threads_woken_by_shutdown;
    stream stream_listen_states;
    stream stream_listen_without_a_name;
    stream stream_backlog_of_0_accepts_one;
    stream stream_backlog_overflows_and_recovers;
    stream stream_listen_again_with_a_larger_backlog;
    stream stream_listen_again_with_a_smaller_backlog;
    stream stream_backlog_below_0;
}

fn stream_accept_of_what_does_not_listen(side: &Side<'_>, trace: &Trace) -> Outcome {
    let fresh = side.socket(&side.lab.b)?;
    trace.see("new", fresh.accept(0).map(drop));
    let bound = side.bound(&side.lab.b, 160)?;
    trace.see("bound", bound.accept(0).map(drop));
    let (client, server) = side.stream(161)?;
    trace.see("connected", client.accept(0).map(drop));
    trace.see("accepted", server.accept(0).map(drop));
    Ok(())
}

fn stream_accept_without_blocking(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(162, 4)?;
    listener.set_nonblocking(true)?;
    trace.see("nobody", listener.accept(0).map(drop));
    let _client = side.dial(162)?;
    trace.poll_until("one", &listener, libc::POLLIN)?;
    trace.see("accept", listener.accept(0).map(drop));
    trace.see("nobody else", listener.accept(0).map(drop));
    trace.pending_error("no error", &listener);
    Ok(())
}

/// Adds to the trace what `F_GETFL` and `F_GETFD` report about an accepted descriptor.
fn descriptor_flags(trace: &Trace, what: &str, socket: &impl AsRawFd) -> Outcome {
    // SAFETY: These `fcntl` calls take integers and no pointer.
    let (file, descriptor) = unsafe {
        (
            check(libc::fcntl(socket.as_raw_fd(), libc::F_GETFL))?,
            check(libc::fcntl(socket.as_raw_fd(), libc::F_GETFD))?,
        )
    };
    trace.see(
        &format!("{what}: O_NONBLOCK"),
        file & i64::from(libc::O_NONBLOCK) != 0,
    );
    trace.see(
        &format!("{what}: FD_CLOEXEC"),
        descriptor & i64::from(libc::FD_CLOEXEC) != 0,
    );
    Ok(())
}

fn stream_accept_flags(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(163, 8)?;
    for (what, flags) in [
        ("none", 0),
        ("SOCK_NONBLOCK", libc::SOCK_NONBLOCK),
        ("SOCK_CLOEXEC", libc::SOCK_CLOEXEC),
        ("both", libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC),
    ] {
        let _client = side.dial(163)?;
        let accepted = listener.accept_with_flags(flags)?;
        descriptor_flags(trace, what, &accepted)?;
    }
    for invalid in [1, 0x4_0000, 0x4000_0000] {
        trace.see("a flag that is none", listener.accept_with_flags(invalid));
    }
    Ok(())
}

fn stream_accept_does_not_inherit_nonblocking(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(164, 4)?;
    listener.set_nonblocking(true)?;
    let client = side.dial(164)?;
    trace.poll_until("one", &listener, libc::POLLIN)?;
    let server = listener.accept_with_flags(0)?;
    descriptor_flags(trace, "accepted", &server)?;
    let call = || server.receive(&mut [0; 10], 0);
    let _ = trace.sleeping("receive", libc::SYS_recvfrom, call, |_| {
        Ok(client.send_all(b"data")?)
    })?;
    Ok(())
}

fn stream_accept_in_order(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(165, 8)?;
    let clients: Vec<Socket> = (0..4)
        .map(|_| side.dial(165))
        .collect::<anyhow::Result<_>>()?;
    for (number, client) in clients.iter().enumerate() {
        client.send_all(&[b'0' + number as u8])?;
    }
    for number in 0..4 {
        let (server, name) = listener.accept(0)?;
        trace.see("accept tells its peer", name == server.peer_name()?);
        trace.receive(&format!("from number {number}"), &server, 10, 0);
    }
    Ok(())
}

fn stream_accept_of_a_connection_that_is_over(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(166, 4)?;
    let client = side.dial(166)?;
    client.send_all(b"last words")?;
    drop(client);
    let (server, _) = listener.accept(0)?;
    trace.poll_until("it has ended", &server, libc::POLLRDHUP)?;
    trace.receive("said", &server, 100, 0);
    trace.receive("then", &server, 100, 0);
    trace.see("getpeername", server.peer_name().map(drop));

    let client = side.dial(166)?;
    trace.poll_until("another", &listener, libc::POLLIN)?;
    reset(client)?;
    // A reset does not remove a connection from the accept queue.
    trace.poll("it waits all the same", &listener)?;
    let server = listener.accept_with_flags(0)?;
    trace.poll_until("it was reset", &server, libc::POLLERR)?;
    trace.receive("so it says", &server, 100, 0);
    Ok(())
}

fn stream_accept_woken_by_shutdown(side: &Side<'_>, trace: &Trace) -> Outcome {
    for (port, how) in [(167, libc::SHUT_RD), (168, libc::SHUT_RDWR)] {
        let listener = side.listener(port, 4)?;
        let call = || listener.accept(0).map(drop);
        let _ = trace.sleeping("accept", libc::SYS_accept4, call, |_| {
            Ok(listener.shutdown(how)?)
        })?;
        trace.poll("then", &listener)?;
    }
    Ok(())
}

fn several(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(169, 8)?;
    let mut left = Vec::new();
    let call = || listener.accept(0).map(drop);
    let values = crowd(libc::SYS_accept4, 3, call, |threads| {
        let _one = side.dial(169)?;
        left.push(left_asleep(threads)?);
        let _two = side.dial(169)?;
        let _three = side.dial(169)?;
        Ok(())
    })?;
    trace.see("asleep after one connection", left[0]);
    for value in values {
        trace.see("accept", value);
    }
    Ok(())
}

fn stream_accept_of_several_threads_woken_by_shutdown(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(170, 8)?;
    let call = || listener.accept(0).map(drop);
    let values = crowd(libc::SYS_accept4, 3, call, |_| {
        Ok(listener.shutdown(libc::SHUT_RD)?)
    })?;
    for value in values {
        trace.see("accept", value);
    }
    Ok(())
}

fn stream_listen_states(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(171, 4)?;
    trace.see("again", listener.listen(4));
    let client = side.dial(171)?;
    let (server, _) = listener.accept(0)?;
    trace.see("connected", client.listen(4));
    trace.see("accepted", server.listen(4));
    client.send_all(b"still there")?;
    trace.receive("the connection", &server, 100, 0);
    let refused = side.socket(&side.lab.a)?;
    refused.set_nonblocking(true)?;
    trace.see("connect", refused.connect_bytes(&side.far(172)));
    trace.poll_until("refused", &refused, libc::POLLERR)?;
    trace.see("refused, but not told", refused.listen(4));
    trace.see("told", refused.connect_bytes(&side.far(172)));
    trace.see("refused and told", refused.listen(4));
    Ok(())
}

fn stream_listen_without_a_name(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.socket(&side.lab.b)?;
    trace.see("listen", listener.listen(4));
    let port = side.port(&listener.local_name()?);
    trace.see("it has a port", port != 0);
    let client = side.socket(&side.lab.a)?;
    trace.see("connect", client.connect_bytes(&side.far(port)));
    trace.see("accept", listener.accept(0).map(drop));
    Ok(())
}

/// Connects `count` clients. Each connection is in the listener's accept queue before the next
/// client connects.
fn waiting(side: &Side<'_>, port: u16, count: usize) -> anyhow::Result<Vec<Socket>> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let client = side.dial(port)?;
        // An acknowledgement of data proves that the connection is in the accept queue.
        client.send_all(b"x")?;
        acknowledged(&client)?;
        clients.push(client);
    }
    Ok(clients)
}

/// Connects to a listener that does not answer the SYN, because its accept queue is full.
fn finds_no_room(side: &Side<'_>, trace: &Trace, what: &str, port: u16) -> anyhow::Result<Socket> {
    // The attempt must not fail before the caller makes room in the queue, which may take long on a
    // busy machine. So TCP may retransmit the SYN six times.
    side.lab.a.tcp_tries(6)?;
    let late = side.socket(&side.lab.a)?;
    late.set_timeout(libc::SO_SNDTIMEO, std::time::Duration::from_millis(200))?;
    trace.see(what, late.connect_bytes(&side.far(port)));
    trace.poll("it is under way", &late)?;
    Ok(late)
}

fn stream_backlog_of_0_accepts_one(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(173, 0)?;
    let _waiting = waiting(side, 173, 1)?;
    let late = finds_no_room(side, trace, "the second", 173)?;
    trace.see("accept", listener.accept(0).map(drop));
    // The accept queue has room now, and the client retransmits its SYN.
    trace.poll_until("there is room now", &late, libc::POLLOUT)?;
    trace.see("accept the second", listener.accept(0).map(drop));
    Ok(())
}

fn stream_backlog_overflows_and_recovers(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(174, 2)?;
    let _waiting = waiting(side, 174, 3)?;
    let late = finds_no_room(side, trace, "the fourth", 174)?;
    for number in 1..=3 {
        trace.see(&format!("accept {number}"), listener.accept(0).map(drop));
    }
    trace.poll_until("there is room now", &late, libc::POLLOUT)?;
    trace.see("accept 4", listener.accept(0).map(drop));
    listener.set_nonblocking(true)?;
    trace.see("no more", listener.accept(0).map(drop));
    Ok(())
}

fn stream_listen_again_with_a_larger_backlog(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(175, 1)?;
    let waiting_first = waiting(side, 175, 2)?;
    // The client is closed. Otherwise it would retransmit its SYN, and might take the place of a
    // later client.
    drop(finds_no_room(side, trace, "the third", 175)?);
    trace.see("listen", listener.listen(8));
    let more = waiting(side, 175, 4)?;
    for number in 1..=6 {
        let (server, _) = listener.accept(0)?;
        trace.receive(&format!("from {number}"), &server, 10, 0);
    }
    drop((waiting_first, more));
    Ok(())
}

fn stream_listen_again_with_a_smaller_backlog(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(176, 8)?;
    let _waiting = waiting(side, 176, 3)?;
    trace.see("listen", listener.listen(1));
    let late = finds_no_room(side, trace, "the fourth", 176)?;
    // Connections that are already in the queue stay there.
    for number in 1..=2 {
        trace.see(&format!("accept {number}"), listener.accept(0).map(drop));
    }
    trace.poll_until("there is room now", &late, libc::POLLOUT)?;
    for number in 3..=4 {
        trace.see(&format!("accept {number}"), listener.accept(0).map(drop));
    }
    Ok(())
}

fn stream_backlog_below_0(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.bound(&side.lab.b, 177)?;
    trace.see("listen", listener.listen(-1));
    let _waiting = waiting(side, 177, 12)?;
    for number in 1..=12 {
        trace.see(&format!("accept {number}"), listener.accept(0).map(drop));
    }
    Ok(())
}
