// SPDX-License-Identifier: GPL-2.0-only

//! Compares `epoll(7)` over TCP and ESP, with level-triggered, edge-triggered, one-shot and
//! exclusive entries, and with nested instances.

use super::super::epoll::{events, Epoll};
use crate::prelude::*;
use guest::asleep::{left_asleep, EPOLL_WAIT};

use events::{EDGE, EXCLUSIVE, IN, ONCE, OUT, RDHUP};

behaviours! {
    connected_streams stream_epoll_level;
    connected_streams stream_epoll_edge_for_each_arrival;
    connected_streams stream_epoll_edge_after_a_part_was_read;
    connected_streams stream_epoll_edge_when_added_or_modified;
    stream stream_epoll_edge_of_a_connect;
    stream stream_epoll_edge_of_a_refusal;
    stream stream_epoll_edge_of_a_listener;
    stream stream_epoll_edge_of_the_end;
    connected_streams stream_epoll_edge_of_the_own_shutdown;
    connected_streams stream_epoll_edge_of_a_reset;
    connected_streams stream_epoll_edge_none_for_acknowledgements;
    connected_streams stream_epoll_oneshot;
    stream stream_epoll_exclusive_wakes_one;
    stream stream_epoll_shared_wakes_all;
    connected_streams stream_epoll_nested;
    connected_streams stream_epoll_control_errors;
    stream stream_epoll_of_a_closed_socket;
    connected_streams stream_epoll_of_a_duplicate;
    stream stream_epoll_without_a_connection;
}

const ALL_EDGES: u32 = IN | OUT | RDHUP | EDGE;

fn stream_epoll_level(trace: &Trace, (client, server): Pair) -> Outcome {
    let epoll = Epoll::of(&server, IN)?;
    trace.epoll("nothing", &epoll)?;
    client.send_all(b"data")?;
    trace.epoll_next("data", &epoll)?;
    trace.epoll("still", &epoll)?;
    trace.receive("a part", &server, 2, 0);
    trace.epoll("the rest", &epoll)?;
    trace.receive("the rest", &server, 2, 0);
    trace.epoll("no more", &epoll)?;
    client.shutdown(libc::SHUT_WR)?;
    trace.epoll_next("the end", &epoll)?;
    trace.epoll("still the end", &epoll)?;
    epoll.modify(&server, IN | OUT | RDHUP, 0)?;
    trace.epoll("all of it", &epoll)
}

fn stream_epoll_edge_for_each_arrival(trace: &Trace, (client, server): Pair) -> Outcome {
    let epoll = Epoll::of(&server, ALL_EDGES)?;
    trace.epoll("at first", &epoll)?;
    trace.epoll("nothing new", &epoll)?;
    for round in 1..=4 {
        client.send_all(b"x")?;
        trace.epoll_next(&format!("arrival {round}"), &epoll)?;
        trace.epoll(&format!("nothing new after {round}"), &epoll)?;
    }
    trace.receive("all of it", &server, 100, 0);
    trace.epoll("reading is no edge", &epoll)?;
    trace.see("send", server.send(b"answer", 0));
    trace.receive("answer", &client, 100, 0);
    client.send_all(b"x")?;
    trace.epoll_next("one more", &epoll)?;
    trace.epoll("and that was all", &epoll)
}

fn stream_epoll_edge_after_a_part_was_read(trace: &Trace, (client, server): Pair) -> Outcome {
    let epoll = Epoll::of(&server, IN | EDGE)?;
    client.send_all(b"0123456789")?;
    trace.epoll_next("data", &epoll)?;
    trace.receive("a part", &server, 3, 0);
    trace.epoll("the rest is no edge", &epoll)?;
    trace.poll("though readable", &server)?;
    client.send_all(b"more")?;
    trace.epoll_next("more is", &epoll)?;
    trace.receive("a look", &server, 3, libc::MSG_PEEK);
    trace.epoll("looking is none", &epoll)?;
    trace.receive("all of it", &server, 100, 0);
    trace.epoll("no more", &epoll)
}

fn stream_epoll_edge_when_added_or_modified(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"early")?;
    trace.poll_until("data", &server, libc::POLLIN)?;
    let epoll = Epoll::of(&server, IN | EDGE)?;
    trace.epoll("what was there before", &epoll)?;
    trace.epoll("once", &epoll)?;
    epoll.modify(&server, IN | EDGE, 0)?;
    trace.epoll("modified", &epoll)?;
    trace.epoll("once again", &epoll)?;
    epoll.control(libc::EPOLL_CTL_DEL, raw(&server), 0, 0)?;
    trace.epoll("removed", &epoll)?;
    epoll.add(&server, OUT | EDGE, 0)?;
    trace.epoll("added for writing", &epoll)?;
    trace.epoll("once for writing", &epoll)
}

fn raw(socket: &Socket) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(socket)
}

fn stream_epoll_edge_of_a_connect(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(64, 4)?;
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    let epoll = Epoll::of(&client, ALL_EDGES)?;
    trace.epoll("before", &epoll)?;
    trace.see("connect", client.connect_bytes(&side.far(64)));
    trace.epoll_until("connected", &epoll, OUT)?;
    let _ = listener.accept(0)?;
    Ok(())
}

fn stream_epoll_edge_of_a_refusal(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    trace.see("connect", client.connect_bytes(&side.far(65)));
    let epoll = Epoll::of(&client, ALL_EDGES)?;
    trace.epoll_until("refused", &epoll, libc::EPOLLERR as u32)?;
    trace.pending_error("by", &client);
    Ok(())
}

fn stream_epoll_edge_of_a_listener(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(66, 4)?;
    listener.set_nonblocking(true)?;
    let epoll = Epoll::of(&listener, IN | OUT | RDHUP | EDGE)?;
    trace.epoll("nobody", &epoll)?;
    let mut clients = Vec::new();
    for round in 1..=3 {
        clients.push(side.dial(66)?);
        trace.epoll_next(&format!("connection {round}"), &epoll)?;
        trace.epoll(&format!("no other than {round}"), &epoll)?;
    }
    trace.see("accept", listener.accept(0).map(drop));
    trace.epoll("two wait, no edge", &epoll)?;
    trace.poll("though readable", &listener)?;
    clients.push(side.dial(66)?);
    trace.epoll_next("connection 4", &epoll)?;
    for round in 2..=5 {
        trace.see(&format!("accept {round}"), listener.accept(0).map(drop));
    }
    trace.epoll("done", &epoll)
}

fn stream_epoll_edge_of_the_end(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(67)?;
    let epoll = Epoll::of(&server, ALL_EDGES)?;
    trace.epoll("at first", &epoll)?;
    client.shutdown(libc::SHUT_WR)?;
    trace.epoll_until("the end", &epoll, RDHUP)?;
    trace.receive("it", &server, 10, 0);
    // From here on, an action of the peer causes an edge only if it changes this socket's state.
    client.shutdown(libc::SHUT_RD)?;
    trace.see("shutdown", server.shutdown(libc::SHUT_WR));
    trace.epoll_until("both ends", &epoll, libc::EPOLLHUP as u32)
}

fn stream_epoll_edge_of_the_own_shutdown(trace: &Trace, (client, server): Pair) -> Outcome {
    let epoll = Epoll::of(&server, ALL_EDGES)?;
    trace.epoll("at first", &epoll)?;
    server.shutdown(libc::SHUT_RD)?;
    trace.epoll_until("reading ended", &epoll, RDHUP)?;
    server.shutdown(libc::SHUT_WR)?;
    trace.epoll_until("writing ended", &epoll, libc::EPOLLHUP as u32)?;
    trace.poll_until("there", &client, libc::POLLRDHUP)
}

fn stream_epoll_edge_of_a_reset(trace: &Trace, (client, server): Pair) -> Outcome {
    server.send_all(b"never read")?;
    trace.poll_until("data", &client, libc::POLLIN)?;
    let epoll = Epoll::of(&server, ALL_EDGES)?;
    trace.epoll("at first", &epoll)?;
    drop(client);
    trace.epoll_until("reset", &epoll, libc::EPOLLERR as u32)?;
    trace.pending_error("by", &server);
    Ok(())
}

fn stream_epoll_edge_none_for_acknowledgements(trace: &Trace, (client, server): Pair) -> Outcome {
    let epoll = Epoll::of(&client, ALL_EDGES)?;
    trace.epoll("at first", &epoll)?;
    for round in 1..=3 {
        client.send_all(b"some bytes")?;
        server.receive_all(10)?;
        acknowledged(&client)?;
        // The send buffer had room all the time, so no edge is due.
        trace.epoll(&format!("acknowledged {round}"), &epoll)?;
    }
    Ok(())
}

fn stream_epoll_oneshot(trace: &Trace, (client, server): Pair) -> Outcome {
    let epoll = Epoll::of(&server, IN | ONCE)?;
    client.send_all(b"one")?;
    trace.epoll_next("one", &epoll)?;
    trace.epoll("silent", &epoll)?;
    client.send_all(b"two")?;
    server.receive_all(6)?;
    client.send_all(b"three")?;
    trace.poll_until("there is more", &server, libc::POLLIN)?;
    trace.epoll("silent still", &epoll)?;
    epoll.modify(&server, IN | ONCE, 0)?;
    trace.epoll("armed anew", &epoll)?;
    trace.epoll("silent again", &epoll)?;
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.epoll("even so", &epoll)?;
    epoll.modify(&server, IN | RDHUP | ONCE | EDGE, 0)?;
    trace.epoll("armed for an edge", &epoll)
}

/// Finds out how many of two threads a new connection wakes. Each thread sleeps in an epoll
/// instance of its own.
fn two_instances(side: &Side<'_>, trace: &Trace, port: u16, mode: u32) -> Outcome {
    let listener = side.listener(port, 4)?;
    let epolls = [
        Epoll::of(&listener, IN | mode)?,
        Epoll::of(&listener, IN | mode)?,
    ];
    let next = AtomicUsize::new(0);
    let mut left = 0;
    let found = crowd(
        EPOLL_WAIT,
        epolls.len(),
        || epolls[next.fetch_add(1, Ordering::SeqCst)].wait(patience()),
        |threads| {
            let _one = side.dial(port)?;
            left = left_asleep(threads)?;
            let _two = side.dial(port)?;
            Ok(())
        },
    )?;
    trace.see("asleep after one connection", left);
    for found in found {
        trace.see("events in the end", found?.len());
    }
    Ok(())
}

fn stream_epoll_exclusive_wakes_one(side: &Side<'_>, trace: &Trace) -> Outcome {
    two_instances(side, trace, 72, EXCLUSIVE)
}

fn stream_epoll_shared_wakes_all(side: &Side<'_>, trace: &Trace) -> Outcome {
    two_instances(side, trace, 73, 0)
}

fn stream_epoll_nested(trace: &Trace, (client, server): Pair) -> Outcome {
    let inner = Epoll::of(&server, IN | EDGE)?;
    let outer = Epoll::of(&inner, IN)?;
    trace.epoll("nothing", &outer)?;
    client.send_all(b"data")?;
    trace.epoll_next("seen through two", &outer)?;
    trace.epoll("still", &outer)?;
    trace.epoll("the inner one", &inner)?;
    trace.epoll("then not any more", &outer)?;
    client.send_all(b"more")?;
    trace.epoll_next("more", &outer)
}

fn stream_epoll_control_errors(trace: &Trace, (client, server): Pair) -> Outcome {
    let epoll = Epoll::of(&server, IN)?;
    trace.see("twice", epoll.add(&server, IN, 0));
    trace.see("modify what is not there", epoll.modify(&client, IN, 0));
    let removed = epoll.control(libc::EPOLL_CTL_DEL, raw(&client), 0, 0);
    trace.see("remove what is not there", removed);
    trace.see(
        "a bad descriptor",
        epoll.control(libc::EPOLL_CTL_ADD, -1, IN, 0),
    );
    trace.see("a bad operation", epoll.control(77, raw(&server), IN, 0));
    trace.see("exclusive later", epoll.modify(&server, IN | EXCLUSIVE, 0));
    trace.see("once too", epoll.add(&client, IN | EXCLUSIVE | ONCE, 0));
    trace.see("on a socket", {
        let mut event = libc::epoll_event { events: IN, u64: 0 };
        // SAFETY: `event` is readable during the call. The kernel refuses a descriptor that is not
        // an epoll instance.
        guest::socket::check(unsafe {
            libc::epoll_ctl(raw(&client), libc::EPOLL_CTL_ADD, raw(&server), &mut event)
        })
    });
    Ok(())
}

fn stream_epoll_of_a_closed_socket(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(76)?;
    let (other_client, other) = side.stream(77)?;
    let epoll = Epoll::new()?;
    epoll.add(&server, IN, 1)?;
    epoll.add(&other, IN, 2)?;
    client.send_all(b"data")?;
    other_client.send_all(b"data")?;
    trace.poll_until("one", &server, libc::POLLIN)?;
    trace.poll_until("other", &other, libc::POLLIN)?;
    trace.epoll("both", &epoll)?;
    drop(server);
    trace.epoll("one is closed", &epoll)
}

fn stream_epoll_of_a_duplicate(trace: &Trace, (client, server): Pair) -> Outcome {
    let copy = server.duplicate()?;
    let epoll = Epoll::new()?;
    epoll.add(&server, IN | EDGE, 1)?;
    epoll.add(&copy, IN | EDGE, 2)?;
    client.send_all(b"data")?;
    trace.poll_until("data", &server, libc::POLLIN)?;
    trace.epoll("both descriptors", &epoll)?;
    drop(server);
    client.send_all(b"more")?;
    copy.receive_all(8)?;
    // The open file description still exists, so the closed descriptor's entry stays.
    trace.epoll("after one was closed", &epoll)
}

fn stream_epoll_without_a_connection(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let epoll = Epoll::of(&socket, ALL_EDGES)?;
    trace.epoll("new", &epoll)?;
    trace.epoll("once", &epoll)?;
    socket.bind_bytes(&side.at_a(79))?;
    trace.epoll("bound", &epoll)?;
    trace.see("listen", socket.listen(1));
    trace.epoll("listening", &epoll)
}
