//! Readiness of datagram sockets: `poll(2)`, `epoll(7)`, signals.

use super::super::epoll::{events, Epoll};
use super::super::moments::deliver;
use super::super::signals::Driven;
use super::super::{Difference, Side, Trace};
use super::waiting::{small, stuff};
use crate::harness::{Outcome, Scenario};

use events::{EDGE, IN, ONCE, OUT, RDHUP};

/// The behaviours of this file.
pub const ALL: &[Scenario] = &[
    Scenario::datagram("datagram_poll_before_a_datagram", before),
    Scenario::datagram("datagram_poll_with_datagrams", with_datagrams),
    Scenario::datagram("datagram_poll_of_an_empty_datagram", empty),
    Scenario::datagram("datagram_poll_after_shutdown", after_shutdown),
    Scenario::datagram(
        "datagram_poll_after_shutdown_without_a_peer",
        shutdown_unconnected,
    ),
    Scenario::datagram("datagram_poll_after_sending_to_an_unused_port", nobody).differs(&[
        Difference {
            what: "poll",
            inet: "OUT|ERR|WRNORM|WRBAND",
            enet: "OUT|WRNORM|WRBAND",
        },
        Difference {
            what: "error",
            inet: "ECONNREFUSED",
            enet: "0",
        },
    ]),
    Scenario::datagram("datagram_poll_ignores_the_low_water_mark", low_water),
    Scenario::datagram("datagram_select_and_poll_agree", select),
    Scenario::datagram("datagram_epoll_edge_for_each_datagram", edges),
    Scenario::datagram("datagram_epoll_level_and_oneshot", level),
    Scenario::datagram("datagram_epoll_edge_of_shutdown", edge_of_shutdown),
    Scenario::datagram("datagram_epoll_edge_when_room_comes", room),
    Scenario::datagram("datagram_signals", signals),
    Scenario::datagram("datagram_signal_for_room", signal_for_room),
];

fn before(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    trace.poll("new", &socket)?;
    socket.bind_bytes(&side.here(&side.lab.a, 20))?;
    trace.poll("bound", &socket)?;
    socket.connect_bytes(&side.far(20))?;
    trace.poll("connected", &socket)?;
    trace.pending_error("no error", &socket);
    Ok(())
}

fn with_datagrams(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(21)?;
    a.send(b"one", 0)?;
    a.send(b"two", 0)?;
    trace.poll_until("they come", &b, libc::POLLIN)?;
    trace.receive("a look", &b, 10, libc::MSG_PEEK);
    trace.poll("unchanged", &b)?;
    trace.receive("one", &b, 2, 0);
    trace.receive("two", &b, 10, 0);
    trace.poll("no more", &b)?;
    Ok(())
}

fn empty(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(22)?;
    let _ = trace.call("send", a.send(b"", 0));
    trace.poll_until("it comes", &b, libc::POLLIN)?;
    trace.receive("it", &b, 10, 0);
    trace.poll("no more", &b)?;
    trace.receive("no more indeed", &b, 10, libc::MSG_DONTWAIT);
    Ok(())
}

fn after_shutdown(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(23)?;
    let _ = trace.call("reading", b.shutdown(libc::SHUT_RD));
    trace.poll("reading ended", &b)?;
    trace.receive("receive", &b, 10, 0);
    trace.receive("receive at once", &b, 10, libc::MSG_DONTWAIT);
    // No event announces it, since the socket was readable before.
    deliver(&a, &b, b"late")?;
    trace.receive("what comes all the same", &b, 10, 0);
    let _ = trace.call("send", b.send(b"answer", libc::MSG_NOSIGNAL));
    trace.receive("the answer", &a, 10, 0);
    let _ = trace.call("writing", b.shutdown(libc::SHUT_WR));
    trace.poll("both ended", &b)?;
    let _ = trace.call("send then", b.send(b"x", libc::MSG_NOSIGNAL));
    let _ = trace.call("again", b.shutdown(libc::SHUT_RDWR));
    Ok(())
}

fn shutdown_unconnected(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.bound(&side.lab.b, 24)?;
    let _ = trace.call("shutdown", socket.shutdown(libc::SHUT_RDWR));
    trace.poll("refused, and yet", &socket)?;
    trace.receive("receive", &socket, 10, 0);
    let _ = trace.call("send", {
        let to = side.address(&side.lab.b, &side.lab.a, 24);
        socket.send_to_bytes(b"x", libc::MSG_NOSIGNAL, &to)
    });
    Ok(())
}

fn nobody(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.bound(&side.lab.a, 25)?;
    socket.connect_bytes(&side.far(25))?;
    let _ = trace.call("send", socket.send(b"anybody?", 0));
    // Whatever answers is there before an answer to this.
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
    let _ = trace.call("send again", socket.send(b"anybody?", 0));
    Ok(())
}

fn low_water(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(27)?;
    b.set_int_option(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 100)?;
    trace.see(
        "the mark",
        b.int_option(libc::SOL_SOCKET, libc::SO_RCVLOWAT)?,
    );
    a.send(b"small", 0)?;
    trace.poll_until("one datagram", &b, libc::POLLIN)?;
    trace.receive("received", &b, 10, 0);
    Ok(())
}

fn select(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(28)?;
    trace.select("nothing", &b)?;
    a.send(b"x", 0)?;
    trace.poll_until("a datagram", &b, libc::POLLIN)?;
    trace.select("with it", &b)?;
    trace.receive("it", &b, 10, 0);
    b.shutdown(libc::SHUT_RDWR)?;
    trace.select("shut down", &b)?;
    Ok(())
}

fn edges(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(29)?;
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
    trace.epoll("added when readable", &only)?;
    Ok(())
}

fn level(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(30)?;
    let (level, once) = (Epoll::of(&b, IN)?, Epoll::of(&b, IN | ONCE)?);
    a.send(b"data", 0)?;
    trace.epoll_next("level", &level)?;
    trace.epoll("level, still", &level)?;
    trace.epoll("once", &once)?;
    trace.epoll("once, silent", &once)?;
    once.modify(&b, IN | ONCE, 0)?;
    trace.epoll("once, armed anew", &once)?;
    trace.receive("it", &b, 10, 0);
    trace.epoll("level, no more", &level)?;
    Ok(())
}

fn edge_of_shutdown(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (_a, b) = side.datagrams(31)?;
    let epoll = Epoll::of(&b, IN | OUT | RDHUP | EDGE)?;
    trace.epoll("at first", &epoll)?;
    b.shutdown(libc::SHUT_RD)?;
    trace.epoll_next("reading", &epoll)?;
    b.shutdown(libc::SHUT_WR)?;
    trace.epoll_next("writing", &epoll)?;
    trace.epoll("no more", &epoll)?;
    Ok(())
}

fn room(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = small(side, 32)?;
    let epoll = Epoll::of(&a, OUT | EDGE)?;
    trace.epoll("at first", &epoll)?;
    side.delaying_frames(|| {
        stuff(&a);
        trace.poll("full", &a)?;
        let _ = trace.call("send", a.send(&[7; 1000], libc::MSG_DONTWAIT));
        trace.epoll("no edge", &epoll)?;
        Ok(())
    })?;
    trace.epoll_next("room", &epoll)?;
    trace.poll_until("and writable", &a, libc::POLLOUT)?;
    let _ = trace.call("send then", a.send(&[7; 1000], libc::MSG_DONTWAIT));
    Ok(())
}

fn signals(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(33)?;
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

fn signal_for_room(side: &Side<'_>, trace: &Trace) -> Outcome {
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
