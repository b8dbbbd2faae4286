// SPDX-License-Identifier: GPL-2.0-only

//! Compares calls that the protocols refuse: on the wrong kind of socket, in the wrong state, or
//! with unknown numbers.

use crate::prelude::*;
use guest::privilege::without_capabilities;
use guest::raw_calls::message_of;

const CONTROL_PORT: &[Difference] = &[Difference::new("sendto port 0", "EINVAL", "1")];

behaviours! {
    stream stream_refuses_unknown_types_and_protocols;
    stream stream_refuses_socketpair = pairs;
    datagram datagram_refuses_socketpair = pairs;
    datagram datagram_refuses_listen_and_accept;
    stream stream_refuses_to_bind_twice = bind_twice;
    datagram datagram_refuses_to_bind_twice = bind_twice;
    stream stream_refuses_to_bind_a_connection = bind_connection;
    datagram datagram_refuses_to_bind_a_connection = bind_connection;
    stream stream_refuses_privileged_ports = privileged_ports;
    datagram datagram_refuses_privileged_ports = privileged_ports;
    stream stream_refuses_too_many_pieces = pieces;
    datagram datagram_refuses_too_many_pieces = pieces;
    stream stream_ignores_unknown_flags = unknown_flags;
    datagram datagram_ignores_unknown_flags = unknown_flags;
    datagram datagram_port_zero, differs(CONTROL_PORT);
    stream stream_refuses_connections_to_port_zero;
    stream stream_listener_takes_no_data;
}

fn stream_refuses_unknown_types_and_protocols(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (family, _, _) = side.numbers();
    let (stream, datagram) = (libc::SOCK_STREAM, libc::SOCK_DGRAM);
    // IP supports SOCK_SEQPACKET only while SCTP's module is loaded. Making a socket of SCTP loads
    // the module.
    let sctp = Socket::new(libc::AF_INET, libc::SOCK_SEQPACKET, libc::IPPROTO_SCTP)?;
    drop(sctp);
    for (label, kind, protocol) in [
        ("no type", 0, 0),
        ("an unknown type", 11, 0),
        ("a negative type", -1, 0),
        ("SOCK_RDM", libc::SOCK_RDM, 0),
        ("SOCK_SEQPACKET", libc::SOCK_SEQPACKET, 0),
        ("SOCK_DCCP", libc::SOCK_DCCP, 0),
        ("an unknown flag", stream | 0x1_0000, 0),
        ("a negative protocol", stream, -1),
        ("another protocol of streams", stream, 17),
        ("another protocol of datagrams", datagram, 6),
        ("a stream", stream, 0),
        ("flags", stream | libc::SOCK_NONBLOCK, 0),
        ("a datagram socket", datagram, 0),
    ] {
        trace.see(label, Socket::new(family, kind, protocol));
    }
    trace.see("an unknown family", Socket::new(45, stream, 0));
    trace.see("no family", Socket::new(-1, stream, 0));
    Ok(())
}

fn pairs(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (family, kind, _) = side.numbers();
    trace.see("socketpair", Socket::pair(family, kind));
    Ok(())
}

fn datagram_refuses_listen_and_accept(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    trace.see("listen unbound", socket.listen(1));
    trace.see("accept unbound", socket.accept(0));
    socket.bind_bytes(&side.at_a(9))?;
    trace.see("listen", socket.listen(1));
    trace.see("accept", socket.accept(0));
    trace.see("accept, not to wait", socket.accept(libc::SOCK_NONBLOCK));
    let (a, _b) = side.datagrams(7)?;
    trace.see("listen connected", a.listen(1));
    trace.see("accept connected", a.accept(0));
    Ok(())
}

fn bind_twice(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.bound(&side.lab.a, 9)?;
    for (label, name) in [
        ("the same", side.at_a(9)),
        ("another port", side.at_a(10)),
        ("any port", side.at_a(0)),
        ("any address", side.anywhere(9)),
    ] {
        trace.see(label, socket.bind_bytes(&name));
    }
    trace.see("the port", side.port(&socket.local_name()?));
    Ok(())
}

fn bind_connection(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    trace.see("one end", a.bind_bytes(&side.at_a(9)));
    trace.see("the other", b.bind_bytes(&side.at_b(9)));
    // The client got its port by connecting, without a call of `bind`.
    let client = side.socket(&side.lab.a)?;
    let listener = side.bound(&side.lab.b, 8)?;
    if side.is_stream() {
        listener.listen(1)?;
    }
    client.connect_bytes(&side.far(8))?;
    trace.see("unbound before", client.bind_bytes(&side.at_a(10)));
    if side.is_stream() {
        trace.see("a listener", listener.bind_bytes(&side.at_b(10)));
    }
    Ok(())
}

fn privileged_ports(side: &Side<'_>, trace: &Trace) -> Outcome {
    for port in [1, 80, 1023, 1024, 0] {
        let socket = side.socket(&side.lab.a)?;
        let name = side.at_a(port);
        let by_user = without_capabilities(|| socket.bind_bytes(&name))?;
        trace.see(&format!("port {port} by a user"), by_user);
        let socket = side.socket(&side.lab.a)?;
        trace.see(
            &format!("port {port} by root"),
            socket.bind_bytes(&side.at_a(port.wrapping_add(1))),
        );
    }
    Ok(())
}

fn pieces(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = side.pair(7)?;
    for count in [0, 1024, 1025, 3000] {
        trace.see(&format!("sendmsg of {count}"), message_of(&a, count, true));
        if count > 1024 {
            trace.see(&format!("recvmsg of {count}"), message_of(&a, count, false));
        }
    }
    let empty = [Piece::Good(b""); 3];
    trace.see("three empty ones", a.send_message(&empty, 0, &[]));
    Ok(())
}

fn unknown_flags(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    // MSG_TRYHARD, MSG_EOR, MSG_FIN, MSG_SYN, MSG_RST, MSG_CONFIRM, MSG_DONTROUTE and two undefined
    // bits.
    for flag in [
        0x4, 0x80, 0x200, 0x400, 0x1000, 0x800, 0x10_0000, 0x200_0000,
    ] {
        trace.see(&format!("send with {flag:#x}"), a.send(b"abc", flag));
        await_events(&b, libc::POLLIN)?;
        let mut bytes = [0; 10];
        let received = b.receive_message(&mut [PieceMut::Good(&mut bytes)], flag & !0x10_0000);
        let received = received
            .map(|received| format!("{} bytes, flags {:#x}", received.length, received.flags));
        trace.see(&format!("receive with {flag:#x}"), received);
    }
    Ok(())
}

fn datagram_port_zero(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    trace.see("sendto port 0", socket.send_to_bytes(&[9], 0, &side.far(0)));
    Ok(())
}

fn stream_refuses_connections_to_port_zero(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    trace.see("connect", socket.connect_bytes(&side.far(0)));
    Ok(())
}

fn stream_listener_takes_no_data(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    trace.receive("receive", &listener, 1, 0);
    trace.receive("receive, not to wait", &listener, 1, libc::MSG_DONTWAIT);
    trace.see("peer", listener.peer_name().map(drop));
    trace.see("SO_ERROR", listener.pending_error());
    trace.see("SO_ACCEPTCONN", listener.so(libc::SO_ACCEPTCONN));
    trace.see(
        "FIONREAD",
        guest::raw_calls::ioctl(&listener, libc::FIONREAD, &[]).map(drop),
    );
    trace.see(
        "SIOCOUTQ",
        guest::raw_calls::ioctl(&listener, 0x5411, &[]).map(drop),
    );
    trace.see(
        "SIOCATMARK",
        guest::raw_calls::ioctl(&listener, 0x8905, &[]).map(drop),
    );
    Ok(())
}
