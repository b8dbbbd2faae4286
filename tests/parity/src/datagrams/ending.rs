// SPDX-License-Identifier: GPL-2.0-only

//! Compares UDP and EDP after `shutdown`, after `close`, with shared descriptors, and after changes
//! of a socket's name or peer.

use std::os::fd::AsFd;

use nix::sys::signal::{kill, Signal};
use nix::unistd::{dup, write};

use super::super::moments::deliver;
use super::super::side::NOTHING;
use super::super::sockets::names::see_names;
use crate::prelude::*;
use guest::asleep::alias;

behaviours! {
    datagram datagram_shutdown_of_each_half;
    datagram datagram_shutdown_unconnected;
    connected_datagrams datagram_shutdown_with_data_queued;
    connected_datagrams datagram_peer_is_not_told_of_a_close;
    datagram datagram_port_bound_again_after_close;
    datagram datagram_last_descriptor_closes;
    datagram datagram_killed_process_frees_the_port;
    connected_datagrams datagram_closed_under_a_reader;
    datagram datagram_names_in_each_state;
    datagram datagram_connects_to_several_peers_in_turn;
    datagram datagram_keeps_datagrams_queued_before_connect;
}

const NOW: i32 = libc::MSG_DONTWAIT;
fn datagram_shutdown_of_each_half(side: &Side<'_>, trace: &Trace) -> Outcome {
    for (what, how) in [
        ("reading", libc::SHUT_RD),
        ("writing", libc::SHUT_WR),
        ("both", libc::SHUT_RDWR),
    ] {
        let (a, b) = side.datagrams(7 + how as u16)?;
        trace.see(what, a.shutdown(how));
        trace.poll(&format!("poll, {what}"), &a)?;
        trace.see(&format!("again, {what}"), a.shutdown(how));
        trace.see(&format!("send, {what}"), a.send(b"x", 0));
        trace.receive(&format!("receive, {what}"), &a, 10, NOW);
        deliver(&b, &a, b"hello")?;
        trace.receive(&format!("what comes, {what}"), &a, 10, NOW);
        trace.pending_error(&format!("pending, {what}"), &a);
    }
    let (a, b) = side.datagrams(20)?;
    for how in [-1, 3, i32::MAX] {
        trace.see("an unknown half", a.shutdown(how));
    }
    a.send(b"still there", 0)?;
    trace.receive("nothing was shut down", &b, 100, 0);
    Ok(())
}

fn datagram_shutdown_unconnected(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.bound(&side.lab.a, 7)?;
    let far = side.bound(&side.lab.b, 7)?;
    trace.see("shutdown of writing", socket.shutdown(libc::SHUT_WR));
    trace.poll("after it", &socket)?;
    trace.see("send", socket.send_to_bytes(b"x", 0, &side.far(7)));
    trace.see("shutdown of reading", socket.shutdown(libc::SHUT_RD));
    trace.poll("after that", &socket)?;
    trace.receive("receive", &socket, 10, NOW);
    trace.see("connect", socket.connect_bytes(&side.far(7)));
    trace.see("send", socket.send(b"x", 0));
    trace.receive("nothing came", &far, 10, NOW);
    Ok(())
}

fn datagram_shutdown_with_data_queued(trace: &Trace, (a, b): Pair) -> Outcome {
    deliver(&a, &b, b"before")?;
    trace.see("shutdown", b.shutdown(libc::SHUT_RD));
    trace.receive("what came before", &b, 100, 0);
    trace.receive("then", &b, 100, 0);
    deliver(&a, &b, b"after")?;
    trace.poll("something comes", &b)?;
    trace.receive("it can be read", &b, 100, 0);
    trace.receive("and then", &b, 100, 0);
    Ok(())
}

fn datagram_peer_is_not_told_of_a_close(trace: &Trace, (a, b): Pair) -> Outcome {
    deliver(&a, &b, b"last words")?;
    a.shutdown(libc::SHUT_RDWR)?;
    drop(a);
    trace.poll("what came stays", &b)?;
    trace.receive("receive", &b, 100, 0);
    trace.poll("no end comes", &b)?;
    trace.receive("nothing", &b, 100, NOW);
    Ok(())
}

fn datagram_port_bound_again_after_close(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    deliver(&a, &b, b"unread")?;
    let other = side.socket(&side.lab.b)?;
    let bind = |socket: &Socket| socket.bind_bytes(&side.at_b(7));
    trace.see("taken", bind(&other));
    drop(b);
    trace.see("free", bind(&other));
    trace.receive("nothing of the old is there", &other, 100, NOW);
    trace.see("bind again", other.bind_bytes(&side.at_b(8)));
    deliver(&a, &other, b"hello")?;
    trace.receive("it takes its place", &other, 100, 0);
    Ok(())
}

fn datagram_last_descriptor_closes(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    let second = dup(a.as_fd())?;
    drop(a);
    trace.see("the second writes", write(&second, b"hello"));
    trace.receive("receive", &b, 100, 0);
    let again = side.socket(&side.lab.a)?;
    let bind = || again.bind_bytes(&side.at_a(7));
    trace.see("the port is taken", bind());
    drop(second);
    trace.see("the port is free", bind());
    Ok(())
}

fn datagram_killed_process_frees_the_port(side: &Side<'_>, trace: &Trace) -> Outcome {
    let a = side.bound(&side.lab.a, 7)?;
    let child = start_process(|| loop {
        nix::unistd::pause();
    })?;
    drop(a);
    let again = side.socket(&side.lab.a)?;
    let bind = || again.bind_bytes(&side.at_a(7));
    trace.see("the port is taken", bind());
    kill(child, Signal::SIGKILL)?;
    waitpid(child, None)?;
    trace.see("the port is free", bind());
    Ok(())
}

fn datagram_closed_under_a_reader(trace: &Trace, (a, b): Pair) -> Outcome {
    let other = alias(&b);
    let read = || other.receive(&mut [0; 10], 0);
    let (_, got, ()) = asleep(libc::SYS_recvfrom, read, |sleeper| {
        drop(b);
        trace.see("it goes on waiting", sleeper.sleeps()?);
        a.send(b"hello", 0)?;
        Ok(())
    })?;
    trace.see("receive", got);
    Ok(())
}

fn datagram_names_in_each_state(side: &Side<'_>, trace: &Trace) -> Outcome {
    let a = side.socket(&side.lab.a)?;
    see_names(side, trace, "fresh", &a);
    a.send_to_bytes(b"x", 0, &side.far(7))?;
    see_names(side, trace, "after a send", &a);
    a.connect_bytes(&side.far(7))?;
    see_names(side, trace, "connected", &a);
    a.shutdown(libc::SHUT_RDWR)?;
    see_names(side, trace, "shut down", &a);
    a.connect_bytes(&NOTHING)?;
    see_names(side, trace, "dissolved", &a);
    let b = side.bound(&side.lab.a, 7)?;
    see_names(side, trace, "bound", &b);
    b.connect_bytes(&side.far(9))?;
    b.connect_bytes(&NOTHING)?;
    see_names(side, trace, "bound and dissolved", &b);
    Ok(())
}

fn datagram_connects_to_several_peers_in_turn(side: &Side<'_>, trace: &Trace) -> Outcome {
    let a = side.bound(&side.lab.a, 70)?;
    let (first, second) = (side.bound(&side.lab.b, 7)?, side.bound(&side.lab.b, 8)?);
    let back = side.address(&side.lab.b, &side.lab.a, 70);
    for (port, far, other, what) in [
        (7, &first, &second, "first"),
        (8, &second, &first, "second"),
    ] {
        trace.see(
            &format!("connect to the {what}"),
            a.connect_bytes(&side.far(port)),
        );
        trace.see("send", a.send(b"hello", 0));
        trace.receive(&format!("the {what} receives"), far, 100, 0);
        other.send_to_bytes(b"not heard", 0, &back)?;
        far.send_to_bytes(b"heard", 0, &back)?;
        trace.receive("the answer", &a, 100, 0);
        trace.receive("nothing else", &a, 100, NOW);
    }
    trace.see("dissolve", a.connect_bytes(&NOTHING));
    trace.see("send", a.send(b"x", 0));
    first.send_to_bytes(b"heard again", 0, &back)?;
    trace.receive("anyone is heard", &a, 100, 0);
    Ok(())
}

fn datagram_keeps_datagrams_queued_before_connect(side: &Side<'_>, trace: &Trace) -> Outcome {
    let a = side.bound(&side.lab.a, 70)?;
    let (first, _second) = (side.bound(&side.lab.b, 7)?, side.bound(&side.lab.b, 8)?);
    first.connect_bytes(&side.address(&side.lab.b, &side.lab.a, 70))?;
    deliver(&first, &a, b"early")?;
    trace.see("connect to another", a.connect_bytes(&side.far(8)));
    trace.receive("what came before", &a, 100, 0);
    Ok(())
}
