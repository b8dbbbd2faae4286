// SPDX-License-Identifier: GPL-2.0-only

//! Compares which sockets of each protocol may share a port, and what `SO_REUSEADDR` and
//! `SO_BINDTODEVICE` do.

use std::collections::BTreeSet;

use libc::{SOL_SOCKET, SO_BINDTODEVICE, SO_REUSEADDR};

use super::super::second::{SecondWire, SECOND};
use super::super::Family;
use crate::prelude::*;

const NO_DEVICE: &[Difference] = &[Difference::new(
    "bind to an address that is not here",
    "EADDRNOTAVAIL",
    "ENODEV",
)];
const NO_WAIT: &[Difference] = &[Difference::new(
    "bind again beside a connection",
    "EADDRINUSE",
    "success",
)];

behaviours! {
    stream stream_port_belongs_to_one_socket = plain;
    datagram datagram_port_belongs_to_one_socket = plain;
    stream stream_port_sharing_needs_both = sharing;
    datagram datagram_port_sharing_needs_both = sharing;
    stream stream_port_of_a_listener_is_not_shared;
    stream stream_port_of_each_device = tied;
    datagram datagram_port_of_each_device = tied;
    stream stream_port_listens_once;
    stream stream_port_chosen_by_the_system = chosen;
    datagram datagram_port_chosen_by_the_system = chosen;
    datagram datagram_port_chosen_by_sending;
    stream stream_port_of_a_closed_listener, differs(NO_WAIT);
    stream stream_port_shared_by_two_connections;
    stream stream_bind_to_a_foreign_address = not_here, differs(NO_DEVICE);
    datagram datagram_bind_to_a_foreign_address = not_here, differs(NO_DEVICE);
    stream stream_bind_to_device;
    datagram datagram_bind_to_device;
    stream stream_bound_to_one_address;
    datagram datagram_bound_to_one_address;
    datagram datagram_goes_to_the_most_specific_socket;
    datagram datagram_goes_to_the_last_bound_of_equal_sockets;
}

/// The words by which a trace names the addresses to which sockets on host `b` are bound.
const PLACES: [&str; 3] = ["all", "one", "the other"];

fn name(side: &Side<'_>, second: &SecondWire<'_>, place: &str, port: u16) -> Vec<u8> {
    match place {
        "all" => side.anywhere(port),
        "one" => side.at_b(port),
        _ => second.here_b(port),
    }
}

fn socket(side: &Side<'_>, reuse: bool) -> Result<Socket> {
    let socket = side.socket(&side.lab.b)?;
    socket.set_so(SO_REUSEADDR, i32::from(reuse))?;
    Ok(socket)
}

/// Adds to the trace which sockets may share a port. Each combination has a port of its own.
fn conflicts(side: &Side<'_>, trace: &Trace, reuse: [bool; 2], listens: bool) -> Outcome {
    let second = SecondWire::of(side)?;
    let mut port = 2000;
    for first in PLACES {
        for other in PLACES {
            port += 1;
            let holder = socket(side, reuse[0])?;
            holder.bind_bytes(&name(side, &second, first, port))?;
            if listens {
                holder.listen(1)?;
            }
            let late = socket(side, reuse[1])?;
            let bound = late.bind_bytes(&name(side, &second, other, port));
            trace.see(&format!("{other} beside {first}, sharing {reuse:?}"), bound);
        }
    }
    Ok(())
}

fn plain(side: &Side<'_>, trace: &Trace) -> Outcome {
    conflicts(side, trace, [false, false], false)
}

fn sharing(side: &Side<'_>, trace: &Trace) -> Outcome {
    conflicts(side, trace, [true, true], false)?;
    conflicts(side, trace, [true, false], false)?;
    conflicts(side, trace, [false, true], false)
}

fn stream_port_of_a_listener_is_not_shared(side: &Side<'_>, trace: &Trace) -> Outcome {
    conflicts(side, trace, [true, true], true)?;
    conflicts(side, trace, [false, false], true)
}

fn tie(socket: &Socket, device: &str) -> Result<()> {
    socket.set_option(SOL_SOCKET, SO_BINDTODEVICE, device.as_bytes())?;
    Ok(())
}

fn tied(side: &Side<'_>, trace: &Trace) -> Outcome {
    SecondWire::of(side)?;
    let mut port = 2000;
    for first in ["", DEVICE, SECOND] {
        for other in ["", DEVICE, SECOND] {
            port += 1;
            let (holder, late) = (socket(side, false)?, socket(side, false)?);
            tie(&holder, first)?;
            tie(&late, other)?;
            holder.bind_bytes(&side.anywhere(port))?;
            let bound = late.bind_bytes(&side.anywhere(port));
            trace.see(&format!("tied to '{other}' beside '{first}'"), bound);
        }
    }
    Ok(())
}

fn stream_port_listens_once(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (one, other) = (socket(side, true)?, socket(side, true)?);
    for socket in [&one, &other] {
        socket.bind_bytes(&side.anywhere(7))?;
    }
    trace.see("the first listens", one.listen(1));
    trace.see("the second listens", other.listen(1));
    trace.see(
        "a third binds",
        socket(side, true)?.bind_bytes(&side.anywhere(7)),
    );
    trace.see("the first listens again", one.listen(2));
    let _client = side.dial(7)?;
    trace.see("the first accepts", one.accept(0));
    drop(one);
    trace.see("the second listens then", other.listen(1));
    let _client = side.dial(7)?;
    trace.see("the second accepts", other.accept(0));
    Ok(())
}

fn chosen(side: &Side<'_>, trace: &Trace) -> Outcome {
    let mut ports = BTreeSet::new();
    let mut all = Vec::new();
    for number in 0..20 {
        let socket = side.socket(&side.lab.a)?;
        match number % 2 {
            0 => socket.bind_bytes(&side.anywhere(0))?,
            _ => socket.bind_bytes(&side.at_a(0))?,
        }
        ports.insert(side.port(&socket.local_name()?));
        all.push(socket);
    }
    trace.see("twenty ports", ports.len());
    trace.see("none is privileged", ports.iter().all(|port| *port >= 1024));
    let listener = side.bound(&side.lab.b, 7)?;
    if side.is_stream() {
        listener.listen(20)?;
    }
    for _ in 0..10 {
        let socket = side.socket(&side.lab.a)?;
        socket.connect_bytes(&side.far(7))?;
        ports.insert(side.port(&socket.local_name()?));
        all.push(socket);
    }
    trace.see("and those of ten connections", ports.len());
    trace.see("bind to a chosen one", {
        let port = side.port(&all[0].local_name()?);
        side.socket(&side.lab.a)?.bind_bytes(&side.anywhere(port))
    });
    Ok(())
}

fn datagram_port_chosen_by_sending(side: &Side<'_>, trace: &Trace) -> Outcome {
    let b = side.bound(&side.lab.b, 7)?;
    let a = side.socket(&side.lab.a)?;
    trace.see("port before", side.port(&a.local_name()?));
    a.send_to_bytes(b"x", 0, &side.far(7))?;
    let port = side.port(&a.local_name()?);
    trace.see("a port then", port >= 1024);
    let (_, sender) = b.receive_from(&mut [0; 10], 0)?;
    trace.see("the sender's", side.port(&sender) == port);
    a.send_to_bytes(b"x", 0, &side.far(7))?;
    trace.see("it stays", side.port(&a.local_name()?) == port);
    trace.see("bind", a.bind_bytes(&side.anywhere(9)));
    Ok(())
}

fn stream_port_of_a_closed_listener(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = socket(side, true)?;
    listener.bind_bytes(&side.at_b(7))?;
    listener.listen(1)?;
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    drop(listener);
    let again = socket(side, false)?;
    trace.see(
        "bind again beside a connection",
        again.bind_bytes(&side.at_b(7)),
    );
    drop(again);
    let again = socket(side, true)?;
    trace.see("bind to be shared", again.bind_bytes(&side.at_b(7)));
    trace.see("listen", again.listen(1));
    let _other = side.dial(7)?;
    trace.see("accept", again.accept(0));
    client.send(b"goes on", 0)?;
    trace.receive("the first connection", &server, 100, 0);
    Ok(())
}

fn stream_port_shared_by_two_connections(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (one, other) = (side.listener(7, 2)?, side.listener(8, 2)?);
    let client = || -> Result<Socket> {
        let socket = side.socket(&side.lab.a)?;
        socket.set_so(SO_REUSEADDR, 1)?;
        socket.bind_bytes(&side.at_a(1999))?;
        Ok(socket)
    };
    let (a, b, c) = (client()?, client()?, client()?);
    trace.see("from one port to one", a.connect_bytes(&side.far(7)));
    trace.see("and to another", b.connect_bytes(&side.far(8)));
    trace.see("and to the first again", c.connect_bytes(&side.far(7)));
    let (first, _) = one.accept(0)?;
    let (second, _) = other.accept(0)?;
    a.send(b"to the first", 0)?;
    b.send(b"to the second", 0)?;
    trace.receive("first", &first, 100, 0);
    trace.receive("second", &second, 100, 0);
    Ok(())
}

fn not_here(side: &Side<'_>, trace: &Trace) -> Outcome {
    let name = match side.family {
        Family::Inet | Family::Mapped => side.internet(0, 98, 9),
        Family::Enet => Address {
            port: 9,
            ifindex: 777,
            mac: [0; 6],
        }
        .to_bytes()
        .to_vec(),
    };
    let socket = side.socket(&side.lab.a)?;
    trace.see(
        "bind to an address that is not here",
        socket.bind_bytes(&name),
    );
    trace.see("bind to one that is", socket.bind_bytes(&side.at_a(9)));
    Ok(())
}

fn stream_bind_to_device(side: &Side<'_>, trace: &Trace) -> Outcome {
    let second = SecondWire::of(side)?;
    let listener = side.socket(&side.lab.b)?;
    tie(&listener, SECOND)?;
    listener.bind_bytes(&side.anywhere(7))?;
    listener.listen(4)?;
    trace.see(
        "by the wrong device",
        side.socket(&side.lab.a)?.connect_bytes(&side.far(7)),
    );
    let client = side.socket(&side.lab.a)?;
    trace.see("by the right one", client.connect_bytes(&second.far(7)));
    let (server, _) = listener.accept(0)?;
    let device = server.option(SOL_SOCKET, SO_BINDTODEVICE, 16, 16)?;
    trace.see("the accepted's tie", device.escape_ascii().to_string());
    tie(&listener, "")?;
    let other = side.socket(&side.lab.a)?;
    trace.see("by the other, untied", other.connect_bytes(&side.far(7)));
    Ok(())
}

fn datagram_bind_to_device(side: &Side<'_>, trace: &Trace) -> Outcome {
    let second = SecondWire::of(side)?;
    let b = side.socket(&side.lab.b)?;
    tie(&b, SECOND)?;
    b.bind_bytes(&side.anywhere(7))?;
    let a = side.socket(&side.lab.a)?;
    // The datagram to the right device is sent last, so the datagram to the wrong device would have
    // arrived before it.
    a.send_to_bytes(b"by the wrong device", 0, &side.far(7))?;
    a.send_to_bytes(b"by the right one", 0, &second.far(7))?;
    trace.receive("tied", &b, 100, 0);
    trace.receive("nothing else", &b, 100, libc::MSG_DONTWAIT);
    tie(&b, "")?;
    a.send_to_bytes(b"by either", 0, &side.far(7))?;
    trace.receive("untied", &b, 100, 0);
    Ok(())
}

fn stream_bound_to_one_address(side: &Side<'_>, trace: &Trace) -> Outcome {
    let second = SecondWire::of(side)?;
    let (one, other) = (side.listener(7, 4)?, socket(side, false)?);
    other.bind_bytes(&second.here_b(7))?;
    other.listen(4)?;
    for (label, name) in [("one", side.far(7)), ("the other", second.far(7))] {
        let client = side.socket(&side.lab.a)?;
        client.connect_bytes(&name)?;
        client.send(label.as_bytes(), 0)?;
        let (server, _) = if label == "one" {
            one.accept(0)?
        } else {
            other.accept(0)?
        };
        trace.receive(label, &server, 100, 0);
    }
    for socket in [&one, &other] {
        socket.set_nonblocking(true)?;
        trace.see("nothing else", socket.accept(0));
    }
    drop(one);
    let refused = side.socket(&side.lab.a)?;
    trace.see("when one has gone", refused.connect_bytes(&side.far(7)));
    Ok(())
}

fn datagram_bound_to_one_address(side: &Side<'_>, trace: &Trace) -> Outcome {
    let second = SecondWire::of(side)?;
    let (one, other) = (side.bound(&side.lab.b, 7)?, socket(side, false)?);
    other.bind_bytes(&second.here_b(7))?;
    let a = side.socket(&side.lab.a)?;
    a.send_to_bytes(b"to the other", 0, &second.far(7))?;
    a.send_to_bytes(b"to one", 0, &side.far(7))?;
    for socket in [&one, &other] {
        trace.receive("receive", socket, 100, 0);
        trace.receive("nothing else", socket, 100, libc::MSG_DONTWAIT);
    }
    Ok(())
}

fn datagram_goes_to_the_most_specific_socket(side: &Side<'_>, trace: &Trace) -> Outcome {
    SecondWire::of(side)?;
    let a = side.bound(&side.lab.a, 1999)?;
    // A more specific socket is bound before a less specific one. In the opposite order, it could
    // win because it was bound last: of equally specific sockets, the one that was bound last wins.
    let connected = socket(side, true)?;
    connected.bind_bytes(&side.at_b(7))?;
    connected.connect_bytes(&side.address(&side.lab.b, &side.lab.a, 1999))?;
    let tied = socket(side, true)?;
    tie(&tied, DEVICE)?;
    tied.bind_bytes(&side.at_b(7))?;
    let named = socket(side, true)?;
    named.bind_bytes(&side.at_b(7))?;
    let any = socket(side, true)?;
    any.bind_bytes(&side.anywhere(7))?;
    for (label, socket) in [
        ("connected", connected),
        ("tied", tied),
        ("named", named),
        ("any", any),
    ] {
        a.send_to_bytes(label.as_bytes(), 0, &side.far(7))?;
        trace.receive(label, &socket, 100, 0);
        drop(socket);
    }
    Ok(())
}

fn datagram_goes_to_the_last_bound_of_equal_sockets(side: &Side<'_>, trace: &Trace) -> Outcome {
    let a = side.socket(&side.lab.a)?;
    let mut all = Vec::new();
    for _ in 0..3 {
        let socket = socket(side, true)?;
        socket.bind_bytes(&side.anywhere(7))?;
        all.push(socket);
    }
    while let Some(last) = all.pop() {
        a.send_to_bytes(b"once", 0, &side.far(7))?;
        trace.receive("the last", &last, 100, 0);
        for other in &all {
            trace.receive("another", other, 100, libc::MSG_DONTWAIT);
        }
    }
    Ok(())
}
