// SPDX-License-Identifier: GPL-2.0-only

//! Compares TCP and ESP in two points: how much room in the send buffer makes a stream writable,
//! and when new room causes an edge.

use super::super::epoll::{events, Epoll};
use super::waiting::small_stream;
use crate::prelude::*;
use guest::asleep::POLL;
use guest::transfer::fill;

use events::{EDGE, IN, OUT, RDHUP};

behaviours! {
    stream stream_writable_when_the_peer_has_read_all;
    stream stream_not_writable_when_the_peer_has_read_a_byte;
    stream stream_writable_edge_after_a_refused_send;
    stream stream_writable_edge_after_a_poll_of_a_full_stream;
    connected_streams stream_writable_edge_only_after_full;
    stream stream_poll_needs_more_room_than_send;
    stream stream_full_and_shut_down;
    stream stream_full_and_reset;
    stream stream_full_and_readable;
    stream stream_larger_send_buffer_makes_room;
}

fn read_all(socket: &Socket, total: usize) -> Outcome {
    let mut all = vec![0; total];
    Ok(socket.receive_exact(&mut all)?)
}

fn stream_writable_when_the_peer_has_read_all(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 180)?;
    let full = fill(&client)?;
    trace.poll("full", &client)?;
    trace.select("selected", &client)?;
    let level = Epoll::of(&client, OUT)?;
    trace.epoll("by epoll", &level)?;
    read_all(&server, full)?;
    trace.poll_until("read", &client, libc::POLLOUT)?;
    trace.epoll("by epoll then", &level)?;
    trace.see("send", client.send(b"x", libc::MSG_DONTWAIT));
    trace.receive("received", &server, 10, 0);
    Ok(())
}

fn stream_not_writable_when_the_peer_has_read_a_byte(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 181)?;
    fill(&client)?;
    let edge = Epoll::of(&client, OUT | EDGE)?;
    trace.epoll("full", &edge)?;
    server.receive_exact(&mut [0; 1])?;
    // Room for one byte counts as no room, so no event is expected. The test can only sleep for a
    // while and check that none has come.
    thread::sleep(Duration::from_millis(50));
    trace.poll("a byte was read", &client)?;
    trace.epoll("no edge", &edge)?;
    trace.see("send", client.send(b"x", libc::MSG_DONTWAIT));
    Ok(())
}

fn stream_writable_edge_after_a_refused_send(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 182)?;
    let edge = Epoll::of(&client, IN | OUT | RDHUP | EDGE)?;
    trace.epoll("at first", &edge)?;
    let mut total = 0;
    // Fills and empties the buffer three times. No edge may get lost.
    for round in 1..=3 {
        let full = fill(&client)?;
        total += full;
        while !edge.wait(Duration::ZERO)?.is_empty() {}
        trace.see(
            &format!("send {round}"),
            client.send(b"x", libc::MSG_DONTWAIT),
        );
        trace.epoll(&format!("full {round}"), &edge)?;
        read_all(&server, full)?;
        trace.epoll_next(&format!("room {round}"), &edge)?;
    }
    trace.see("something was sent", total > 0);
    Ok(())
}

fn stream_writable_edge_after_a_poll_of_a_full_stream(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 183)?;
    let full = fill(&client)?;
    // Adding the socket to an epoll instance polls the socket, whose send buffer is full. After
    // this poll an edge is reported once there is room, although no call to send has failed in
    // between.
    let edge = Epoll::of(&client, OUT | EDGE)?;
    trace.epoll("full", &edge)?;
    read_all(&server, full)?;
    trace.epoll_next("room", &edge)?;
    trace.epoll("once", &edge)
}

fn stream_writable_edge_only_after_full(trace: &Trace, (client, server): Pair) -> Outcome {
    let edge = Epoll::of(&client, OUT | EDGE)?;
    trace.epoll("at first", &edge)?;
    let block = [7; 20_000];
    for round in 1..=3 {
        client.send_all(&block)?;
        read_all(&server, block.len())?;
        acknowledged(&client)?;
        trace.epoll(&format!("taken at once {round}"), &edge)?;
    }
    Ok(())
}

fn stream_poll_needs_more_room_than_send(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(185)?;
    client.set_so(libc::SO_SNDBUF, 64 << 10)?;
    let mut sent = 0;
    side.losing_frames(|| {
        while client.poll(libc::POLLOUT, Duration::ZERO)? != 0 {
            sent += client.send(&[7; 1000], libc::MSG_DONTWAIT)?;
        }
        trace.poll("less than a third is free", &client)?;
        let more = client.send(&[7; 1000], libc::MSG_DONTWAIT);
        sent += *more.as_ref().unwrap_or(&0);
        trace.see("send takes more", more);
        let before = sent;
        while let Ok(took) = client.send(&[7; 1000], libc::MSG_DONTWAIT) {
            sent += took;
        }
        trace.see("much more", sent - before > 4000);
        trace.see("full", client.send(b"x", libc::MSG_DONTWAIT));
        Ok(())
    })?;
    read_all(&server, sent)?;
    trace.poll_until("all arrived", &client, libc::POLLOUT)
}

fn stream_full_and_shut_down(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 186)?;
    let full = fill(&client)?;
    let edge = Epoll::of(&client, OUT | EDGE)?;
    trace.epoll("full", &edge)?;
    trace.see("shutdown", client.shutdown(libc::SHUT_WR));
    // The buffer has no room. The socket is writable all the same, because a send call does not
    // block: it fails at once.
    trace.poll("then", &client)?;
    trace.epoll("an edge", &edge)?;
    trace.see(
        "send",
        client.send(b"x", libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL),
    );
    read_all(&server, full)?;
    trace.receive("the end behind all of it", &server, 10, 0);
    Ok(())
}

fn stream_full_and_reset(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 187)?;
    fill(&client)?;
    let edge = Epoll::of(&client, OUT | EDGE)?;
    trace.epoll("full", &edge)?;
    drop(server);
    trace.epoll_until("reset", &edge, libc::EPOLLERR as u32)?;
    trace.see("send", client.send(b"x", libc::MSG_NOSIGNAL));
    Ok(())
}

fn stream_full_and_readable(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 188)?;
    fill(&client)?;
    server.send_all(b"the other way")?;
    trace.poll_until("data for a full sender", &client, libc::POLLIN)?;
    trace.receive("it", &client, 100, 0);
    server.shutdown(libc::SHUT_WR)?;
    trace.poll_until("and the end", &client, libc::POLLRDHUP)
}

fn stream_larger_send_buffer_makes_room(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, _server) = small_stream(side, 189)?;
    fill(&client)?;
    trace.poll("full", &client)?;
    let call = || {
        client
            .poll(libc::POLLOUT, patience())
            .map(super::super::events_text)
    };
    let _ = trace.sleeping("poll", POLL, call, |_| {
        Ok(client.set_so(libc::SO_SNDBUF, 100_000)?)
    })?;
    trace.see("send", client.send(b"x", libc::MSG_DONTWAIT));
    Ok(())
}
