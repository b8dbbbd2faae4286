// SPDX-License-Identifier: GPL-2.0-only

//! Compares how UDP and EDP report that a socket is ready: `poll(2)`, `epoll(7)`, signals.

use super::super::epoll::{events, Epoll};
use super::super::moments::deliver;
use super::super::signals::Driven;
use super::waiting::{small, stuff};
use crate::prelude::*;

use events::{EDGE, IN, ONCE, OUT, RDHUP};

behaviours! {
    datagram datagram_poll_before_a_datagram;
    connected_datagrams datagram_poll_with_datagrams;
    connected_datagrams datagram_poll_after_shutdown = after_shutdown;
    datagram datagram_poll_after_shutdown_without_a_peer;
    datagram datagram_poll_after_sending_to_an_unused_port,
        differs(&[
        Difference::new("poll", "OUT|ERR|WRNORM|WRBAND", "OUT|WRNORM|WRBAND"),
        Difference::new("error", "ECONNREFUSED", "0"),
    ]);
    connected_datagrams datagram_poll_ignores_the_low_water_mark;
    connected_datagrams datagram_select_and_poll_agree;
    connected_datagrams datagram_epoll_edge_for_each_datagram;
    connected_datagrams datagram_epoll_level_and_oneshot;
    connected_datagrams datagram_epoll_edge_of_shutdown;
    datagram datagram_epoll_edge_when_room_comes;
    connected_datagrams datagram_signals;
    datagram datagram_signal_for_room;
}

fn datagram_poll_before_a_datagram(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    trace.poll("new", &socket)?;
    socket.bind_bytes(&side.at_a(20))?;
    trace.poll("bound", &socket)?;
    socket.connect_bytes(&side.far(20))?;
    trace.poll("connected", &socket)?;
    trace.pending_error("no error", &socket);
    Ok(())
}

fn datagram_poll_with_datagrams(trace: &Trace, (a, b): Pair) -> Outcome {
    a.send(b"one", 0)?;
    a.send(b"two", 0)?;
    trace.poll_until("they come", &b, libc::POLLIN)?;
    trace.receive("a look", &b, 10, libc::MSG_PEEK);
    trace.poll("unchanged", &b)?;
    trace.receive("one", &b, 2, 0);
    trace.receive("two", &b, 10, 0);
    trace.poll("no more", &b)
}

fn after_shutdown(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.see("reading", b.shutdown(libc::SHUT_RD));
    trace.poll("reading ended", &b)?;
    trace.receive("receive", &b, 10, 0);
    trace.receive("receive at once", &b, 10, libc::MSG_DONTWAIT);
    // The socket is already readable, so no event announces the datagram. `deliver` waits until the
    // datagram is queued.
    deliver(&a, &b, b"late")?;
    trace.receive("what comes all the same", &b, 10, 0);
    trace.see("send", b.send(b"answer", libc::MSG_NOSIGNAL));
    trace.receive("the answer", &a, 10, 0);
    trace.see("writing", b.shutdown(libc::SHUT_WR));
    trace.poll("both ended", &b)?;
    trace.see("send then", b.send(b"x", libc::MSG_NOSIGNAL));
    trace.see("again", b.shutdown(libc::SHUT_RDWR));
    Ok(())
}

fn datagram_poll_after_shutdown_without_a_peer(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.bound(&side.lab.b, 24)?;
    trace.see("shutdown", socket.shutdown(libc::SHUT_RDWR));
    trace.poll("refused, and yet", &socket)?;
    trace.receive("receive", &socket, 10, 0);
    trace.see("send", {
        let to = side.address(&side.lab.b, &side.lab.a, 24);
        socket.send_to_bytes(b"x", libc::MSG_NOSIGNAL, &to)
    });
    Ok(())
}

fn datagram_poll_after_sending_to_an_unused_port(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.bound(&side.lab.a, 25)?;
    socket.connect_bytes(&side.far(25))?;
    trace.see("send", socket.send(b"anybody?", 0));
    // If host `b` reports the unused port with an error message, the message arrives before the
    // replies that are exchanged here.
    let (a, b) = side.datagrams(26)?;
    for _ in 0..3 {
        a.send(b"ping", 0)?;
        b.receive(&mut [0; 4], 0)?;
        b.send(b"pong", 0)?;
        a.receive(&mut [0; 4], 0)?;
    }
    trace.poll("poll", &socket)?;
    trace.pending_error("error", &socket);
    trace.poll("then", &socket)?;
    trace.see("send again", socket.send(b"anybody?", 0));
    Ok(())
}

fn datagram_poll_ignores_the_low_water_mark(trace: &Trace, (a, b): Pair) -> Outcome {
    b.set_so(libc::SO_RCVLOWAT, 100)?;
    trace.see("the mark", b.so(libc::SO_RCVLOWAT)?);
    a.send(b"small", 0)?;
    trace.poll_until("one datagram", &b, libc::POLLIN)?;
    trace.receive("received", &b, 10, 0);
    Ok(())
}

fn datagram_select_and_poll_agree(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.select("nothing", &b)?;
    a.send(b"x", 0)?;
    trace.poll_until("a datagram", &b, libc::POLLIN)?;
    trace.select("with it", &b)?;
    trace.receive("it", &b, 10, 0);
    b.shutdown(libc::SHUT_RDWR)?;
    trace.select("shut down", &b)
}

fn datagram_epoll_edge_for_each_datagram(trace: &Trace, (a, b): Pair) -> Outcome {
    let epoll = Epoll::of(&b, IN | OUT | RDHUP | EDGE)?;
    trace.epoll("at first", &epoll)?;
    for round in 1..=3 {
        a.send(b"data", 0)?;
        trace.epoll_next(&format!("datagram {round}"), &epoll)?;
        trace.epoll(&format!("once for {round}"), &epoll)?;
    }
    trace.receive("one of three", &b, 10, 0);
    trace.epoll("reading is no edge", &epoll)?;
    let only = Epoll::of(&b, IN | EDGE)?;
    trace.epoll("added when readable", &only)
}

fn datagram_epoll_level_and_oneshot(trace: &Trace, (a, b): Pair) -> Outcome {
    let (level, once) = (Epoll::of(&b, IN)?, Epoll::of(&b, IN | ONCE)?);
    a.send(b"data", 0)?;
    trace.epoll_next("level", &level)?;
    trace.epoll("level, still", &level)?;
    trace.epoll("once", &once)?;
    trace.epoll("once, silent", &once)?;
    once.modify(&b, IN | ONCE, 0)?;
    trace.epoll("once, armed anew", &once)?;
    trace.receive("it", &b, 10, 0);
    trace.epoll("level, no more", &level)
}

fn datagram_epoll_edge_of_shutdown(trace: &Trace, (_a, b): Pair) -> Outcome {
    let epoll = Epoll::of(&b, IN | OUT | RDHUP | EDGE)?;
    trace.epoll("at first", &epoll)?;
    b.shutdown(libc::SHUT_RD)?;
    trace.epoll_next("reading", &epoll)?;
    b.shutdown(libc::SHUT_WR)?;
    trace.epoll_next("writing", &epoll)?;
    trace.epoll("no more", &epoll)
}

fn datagram_epoll_edge_when_room_comes(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = small(side, 32)?;
    let epoll = Epoll::of(&a, OUT | EDGE)?;
    trace.epoll("at first", &epoll)?;
    side.delaying_frames(|| {
        stuff(&a);
        trace.poll("full", &a)?;
        trace.see("send", a.send(&[7; 1000], libc::MSG_DONTWAIT));
        trace.epoll("no edge", &epoll)
    })?;
    trace.epoll_next("room", &epoll)?;
    trace.poll_until("and writable", &a, libc::POLLOUT)?;
    trace.see("send then", a.send(&[7; 1000], libc::MSG_DONTWAIT));
    Ok(())
}

fn datagram_signals(trace: &Trace, (a, b): Pair) -> Outcome {
    let driven = Driven::new(&b)?;
    trace.signals("nothing", &driven);
    for round in 1..=2 {
        a.send(b"data", 0)?;
        trace.signals_until(&format!("datagram {round}"), &driven, "POLL_IN");
    }
    trace.receive("one", &b, 10, 0);
    trace.receive("two", &b, 10, 0);
    trace.signals("no more", &driven);
    Ok(())
}

fn datagram_signal_for_room(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = small(side, 34)?;
    let driven = Driven::new(&a)?;
    side.delaying_frames(|| {
        stuff(&a);
        trace.signals("full", &driven);
        Ok(())
    })?;
    trace.signals_until("room", &driven, "POLL_OUT");
    Ok(())
}
