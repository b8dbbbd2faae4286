// SPDX-License-Identifier: GPL-2.0-only

//! Compares TCP and ESP in calls that wait: time limits, `MSG_DONTWAIT`, and the events that wake a
//! call.

use super::super::moments::await_poll;
use super::super::Shown;
use crate::prelude::*;
use guest::asleep::{alias, left_asleep, POLL};
use guest::transfer::fill;

behaviours! {
    connected_streams stream_receive_time_limit;
    connected_streams stream_receive_all_within_a_time_limit;
    stream stream_accept_time_limit;
    stream stream_send_time_limit;
    connected_streams stream_dontwait = dontwait;
    stream stream_dontwait_send_takes_a_part;
    connected_streams stream_receive_woken_by_data;
    stream stream_receive_woken_by_the_end;
    stream stream_receive_woken_by_the_own_shutdown;
    connected_streams stream_receive_not_woken_by_shutdown_of_writing;
    connected_streams stream_receive_woken_by_a_reset;
    connected_streams stream_receive_of_two_threads;
    stream stream_send_woken_by_the_reader;
    stream stream_send_woken_by_the_own_shutdown;
    stream stream_send_woken_by_a_reset;
    stream stream_poll_woken_by_each_change;
    stream stream_closed_while_calls_sleep;
}

/// Makes a stream with small buffers.
pub fn small_stream(side: &Side<'_>, port: u16) -> anyhow::Result<(Socket, Socket)> {
    let listener = side.listener(port, 4)?;
    listener.set_so(libc::SO_RCVBUF, 16 << 10)?;
    let client = side.socket(&side.lab.a)?;
    client.set_so(libc::SO_SNDBUF, 16 << 10)?;
    client.connect_bytes(&side.far(port))?;
    let (server, _) = listener.accept(0)?;
    Ok((client, server))
}

const LIMIT: Duration = Duration::from_millis(100);

/// Runs `call`. Adds to the trace its result, and whether it waited until the time limit.
fn timed<T: Shown>(trace: &Trace, what: &str, call: impl FnOnce() -> std::io::Result<T>) {
    let start = Instant::now();
    let result = call();
    let took = start.elapsed();
    trace.see(what, result.shown());
    // The kernel counts time limits in ticks, and a tick may be short. So a call may wait for less
    // than its limit.
    trace.see(&format!("{what}: waited"), took >= LIMIT / 2);
}

fn stream_receive_time_limit(trace: &Trace, (client, server): Pair) -> Outcome {
    server.set_timeout(libc::SO_RCVTIMEO, LIMIT)?;
    timed(trace, "nothing comes", || server.receive(&mut [0; 4], 0));
    client.send_all(b"data")?;
    arrived(&server, 4)?;
    trace.receive("data", &server, 100, 0);
    timed(trace, "nothing more", || server.receive(&mut [0; 4], 0));
    timed(trace, "peeking", || {
        server.receive(&mut [0; 4], libc::MSG_PEEK)
    });
    trace.poll("as good as before", &server)?;
    trace.pending_error("no error", &server);
    Ok(())
}

fn stream_receive_all_within_a_time_limit(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"half")?;
    server.set_timeout(libc::SO_RCVTIMEO, LIMIT)?;
    trace.poll_until("half is there", &server, libc::POLLIN)?;
    timed(trace, "the other half does not come", || {
        server.receive(&mut [0; 8], libc::MSG_WAITALL)
    });
    timed(trace, "nothing comes", || {
        server.receive(&mut [0; 8], libc::MSG_WAITALL)
    });
    client.send_all(b"whole")?;
    arrived(&server, 5)?;
    trace.receive("all of it", &server, 5, libc::MSG_WAITALL);
    client.send_all(b"last")?;
    client.shutdown(libc::SHUT_WR)?;
    trace.receive("the end ends it", &server, 100, libc::MSG_WAITALL);
    Ok(())
}

fn stream_accept_time_limit(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(82, 4)?;
    listener.set_timeout(libc::SO_RCVTIMEO, LIMIT)?;
    timed(trace, "nobody comes", || listener.accept(0).map(drop));
    let _client = side.dial(82)?;
    await_poll(&listener, libc::POLLIN)?;
    let (server, _) = listener.accept(0)?;
    // An accepted socket inherits its listener's time limits.
    timed(trace, "its child", || server.receive(&mut [0; 4], 0));
    Ok(())
}

fn stream_send_time_limit(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 83)?;
    client.set_timeout(libc::SO_SNDTIMEO, LIMIT)?;
    let large = vec![7; 4 << 20];
    let start = Instant::now();
    let took = client.send(&large, 0)?;
    trace.see("a part was taken", took > 0 && took < large.len());
    trace.see("after a wait", start.elapsed() >= LIMIT / 2);
    let more = fill(&client)?;
    timed(trace, "nothing fits", || client.send(&large, 0));
    trace.poll("not writable", &client)?;
    server.receive_all(took + more)?;
    trace.poll_until("writable again", &client, libc::POLLOUT)?;
    trace.pending_error("no error", &client);
    Ok(())
}

fn dontwait(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.receive("flag", &server, 4, libc::MSG_DONTWAIT);
    trace.receive(
        "flag and WAITALL",
        &server,
        4,
        libc::MSG_DONTWAIT | libc::MSG_WAITALL,
    );
    server.set_nonblocking(true)?;
    trace.receive("O_NONBLOCK", &server, 4, 0);
    client.send_all(b"half")?;
    trace.poll_until("data", &server, libc::POLLIN)?;
    trace.receive("what is there", &server, 8, libc::MSG_WAITALL);
    trace.receive("no more", &server, 8, libc::MSG_WAITALL);
    server.set_nonblocking(false)?;
    client.send_all(b"more")?;
    trace.receive("blocking again", &server, 8, 0);
    Ok(())
}

fn stream_dontwait_send_takes_a_part(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 85)?;
    let large = vec![7; 4 << 20];
    let took = client.send(&large, libc::MSG_DONTWAIT)?;
    trace.see("a part was taken", took > 0 && took < large.len());
    let more = fill(&client)?;
    trace.see("nothing fits", client.send(b"x", libc::MSG_DONTWAIT));
    trace.see("nor with the flag on the file", {
        client.set_nonblocking(true)?;
        client.send(&large, 0)
    });
    trace.see("nothing of nothing", client.send(b"", libc::MSG_DONTWAIT));
    server.receive_all(took + more)?;
    trace.poll_until("room again", &client, libc::POLLOUT)?;
    trace.see("a byte fits", client.send(b"x", 0));
    Ok(())
}

fn stream_receive_woken_by_data(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.sleeping_receive(&server, || Ok(client.send_all(b"data")?))
}

fn stream_receive_woken_by_the_end(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(87)?;
    trace.sleeping_receive(&server, || Ok(client.shutdown(libc::SHUT_WR)?))?;
    let (client, server) = side.stream(88)?;
    trace.sleeping_receive(&server, || {
        drop(client);
        Ok(())
    })
}

fn stream_receive_woken_by_the_own_shutdown(side: &Side<'_>, trace: &Trace) -> Outcome {
    for (port, how) in [(89, libc::SHUT_RD), (90, libc::SHUT_RDWR)] {
        let (client, server) = side.stream(port)?;
        trace.sleeping_receive(&server, || Ok(server.shutdown(how)?))?;
        trace.poll("then", &server)?;
        drop(client);
    }
    Ok(())
}

fn stream_receive_not_woken_by_shutdown_of_writing(
    trace: &Trace,
    (client, server): Pair,
) -> Outcome {
    let call = || server.receive(&mut [0; 100], 0);
    let (_, value, still) = asleep(libc::SYS_recvfrom, call, |reader| {
        server.shutdown(libc::SHUT_WR)?;
        let mut end = [0; 1];
        trace.see("the other end reads", client.receive(&mut end, 0).shown());
        let still = reader.sleeps()?;
        client.send_all(b"data")?;
        Ok(still)
    })?;
    trace.see("still asleep", still);
    trace.see("then", value.shown());
    Ok(())
}

fn stream_receive_woken_by_a_reset(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.sleeping_receive(&server, || reset(client))?;
    trace.receive("once more", &server, 10, 0);
    trace.poll("then", &server)
}

fn stream_receive_of_two_threads(trace: &Trace, (client, server): Pair) -> Outcome {
    let call = || server.receive(&mut [0; 4], 0);
    let mut left = 0;
    let values = crowd(libc::SYS_recvfrom, 2, call, |readers| {
        client.send_all(b"half")?;
        left = left_asleep(readers)?;
        client.send_all(b"more")?;
        Ok(())
    })?;
    trace.see("asleep after one message", left);
    for value in values {
        trace.see("got", value.shown());
    }
    Ok(())
}

/// Adds to the trace whether a send call sleeps while the buffers are full, and the call's result
/// after `meanwhile`.
fn sleeping_send(
    trace: &Trace,
    socket: &Socket,
    meanwhile: impl FnOnce() -> anyhow::Result<()>,
) -> Outcome {
    let call = || socket.send(b"x", libc::MSG_NOSIGNAL);
    let _ = trace.sleeping("send", libc::SYS_sendto, call, |_| meanwhile())?;
    Ok(())
}

fn stream_send_woken_by_the_reader(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 94)?;
    let full = fill(&client)?;
    sleeping_send(trace, &client, || {
        let mut all = vec![0; full];
        Ok(server.receive_exact(&mut all)?)
    })?;
    trace.receive("the byte", &server, 10, 0);
    Ok(())
}

fn stream_send_woken_by_the_own_shutdown(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, _server) = small_stream(side, 95)?;
    fill(&client)?;
    sleeping_send(trace, &client, || Ok(client.shutdown(libc::SHUT_WR)?))?;
    trace.poll("then", &client)?;
    let (client, _server) = small_stream(side, 96)?;
    let large = vec![7; 4 << 20];
    let call = || {
        let took = client.send(&large, libc::MSG_NOSIGNAL)?;
        Ok::<_, std::io::Error>(took > 0 && took < large.len())
    };
    let _ = trace.sleeping("send took a part", libc::SYS_sendto, call, |_| {
        Ok(client.shutdown(libc::SHUT_RDWR)?)
    })?;
    trace.see("the next", client.send(b"x", libc::MSG_NOSIGNAL));
    Ok(())
}

fn stream_send_woken_by_a_reset(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 97)?;
    fill(&client)?;
    // Closing a socket with unread data resets the connection.
    sleeping_send(trace, &client, || {
        drop(server);
        Ok(())
    })?;
    trace.see("the next", client.send(b"x", libc::MSG_NOSIGNAL));
    trace.poll("then", &client)
}

fn stream_poll_woken_by_each_change(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(98)?;
    let asked = libc::POLLIN | libc::POLLRDHUP;
    let wait = |what: &str, meanwhile: &dyn Fn() -> anyhow::Result<()>| -> Outcome {
        let call = || {
            server
                .poll(asked, patience())
                .map(super::super::events_text)
        };
        let _ = trace.sleeping(what, POLL, call, |_| meanwhile())?;
        Ok(())
    };
    wait("data", &|| Ok(client.send_all(b"data")?))?;
    trace.receive("it", &server, 100, 0);
    wait("shutdown by another thread", &|| {
        Ok(server.shutdown(libc::SHUT_RD)?)
    })?;

    let (client, server) = side.stream(99)?;
    let call = || server.poll(0, patience()).map(super::super::events_text);
    let _ = trace.sleeping("both halves", POLL, call, |_| {
        Ok(server.shutdown(libc::SHUT_RDWR)?)
    })?;
    drop(client);

    let listener = side.listener(100, 4)?;
    let call = || {
        listener
            .poll(libc::POLLIN, patience())
            .map(super::super::events_text)
    };
    let _ = trace.sleeping("a listener shut down", POLL, call, |_| {
        Ok(listener.shutdown(libc::SHUT_RD)?)
    })?;
    Ok(())
}

/// In this test another thread closes the descriptor. The sleeping calls hold a reference to the
/// socket, so they continue.
fn stream_closed_while_calls_sleep(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(101)?;
    let other = alias(&server);
    let call = || {
        other
            .poll(libc::POLLIN, patience())
            .map(super::super::events_text)
    };
    let _ = trace.sleeping("poll", POLL, call, |poller| {
        drop(server);
        // Closing the descriptor has sent no packet to the peer.
        trace.poll("the peer", &client)?;
        trace.see("asleep still", poller.sleeps()?);
        Ok(client.send_all(b"data")?)
    })?;
    // When the call ends, the socket is closed with unread data, so the connection is reset.
    trace.poll_until("the peer then", &client, libc::POLLERR)?;
    trace.pending_error("its error", &client);

    let (client, server) = side.stream(102)?;
    let other = alias(&server);
    let call = || other.receive(&mut [0; 10], 0);
    let _ = trace.sleeping("receive", libc::SYS_recvfrom, call, |reader| {
        drop(server);
        trace.see("asleep still", reader.sleeps()?);
        Ok(client.send_all(b"data")?)
    })?;
    trace.poll_until("the end", &client, libc::POLLRDHUP)
}
