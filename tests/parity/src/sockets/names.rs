// SPDX-License-Identifier: GPL-2.0-only

//! Compares calls with addresses that are too short, too long, of another family, or in memory that
//! is not mapped.

use crate::prelude::*;
use guest::raw_calls::{give_name, own_name_to_nowhere, take_name, Giving, Pointer, Taking};

/// TCP and UDP accept a name whose family is 0 as one of their own, since programs of 4.2BSD passed
/// such names.
const NO_FAMILY: &[Difference] = &[Difference::new("bind, family 0", "success", "EAFNOSUPPORT")];
const NO_FAMILY_OF_DATAGRAMS: &[Difference] = &[
    Difference::new("bind, family 0", "success", "EAFNOSUPPORT"),
    Difference::new("sendto, family 0", "1", "EAFNOSUPPORT"),
];

behaviours! {
    stream stream_name_lengths = lengths;
    datagram datagram_name_lengths = lengths;
    stream stream_name_of_another_family = families, differs(NO_FAMILY);
    datagram datagram_name_of_another_family = families, differs(NO_FAMILY_OF_DATAGRAMS);
    stream stream_name_by_bad_pointer = nowhere;
    datagram datagram_name_by_bad_pointer = nowhere;
    stream stream_name_into_a_short_buffer = little_room;
    datagram datagram_name_into_a_short_buffer = little_room;
    stream stream_name_of_a_fresh_socket = fresh_names;
    datagram datagram_name_of_a_fresh_socket = fresh_names;
    stream stream_name_of_both_ends = both_ends;
    datagram datagram_name_of_both_ends = both_ends;
}

fn cut(name: &[u8], length: usize) -> Vec<u8> {
    let mut name = name.to_vec();
    name.resize(length, 0);
    name
}

fn lengths(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.bound(&side.lab.b, 7)?;
    if side.is_stream() {
        listener.listen(16)?;
    }
    for length in (1..=17).chain([100, 128]) {
        let socket = side.socket(&side.lab.a)?;
        let bound = socket.bind_bytes(&cut(&side.at_a(9), length));
        trace.see(&format!("bind of {length} bytes"), bound);
        let socket = side.socket(&side.lab.a)?;
        let connected = socket.connect_bytes(&cut(&side.far(7), length));
        trace.see(&format!("connect of {length} bytes"), connected);
        if !side.is_stream() {
            let socket = side.socket(&side.lab.a)?;
            let sent = socket.send_to_bytes(b"x", 0, &cut(&side.far(7), length));
            trace.see(&format!("sendto of {length} bytes"), sent);
        }
    }
    for length in [0, 129, -1, i32::MIN] {
        for call in [
            Taking::Bind,
            Taking::Connect,
            Taking::SendTo,
            Taking::SendMessage,
        ] {
            let socket = side.socket(&side.lab.a)?;
            let result = take_name(&socket, call, Pointer::Zeroes, length);
            // Two results are left out: that of `connect` with length 0, and that of `sendmsg` with
            // length 129. The kernel truncates the latter length, which another test covers.
            if !(call == Taking::SendMessage && length == 129)
                && (call, length) != (Taking::Connect, 0)
            {
                trace.see(&format!("{call:?} of {length} bytes"), result);
            }
        }
    }
    Ok(())
}

fn families(side: &Side<'_>, trace: &Trace) -> Outcome {
    for family in [0u16, 1, 10, 17, 999] {
        let mut name = side.anywhere(0);
        name[..2].copy_from_slice(&family.to_ne_bytes());
        let socket = side.socket(&side.lab.a)?;
        trace.see(&format!("bind, family {family}"), socket.bind_bytes(&name));
        let mut name = side.far(7);
        name[..2].copy_from_slice(&family.to_ne_bytes());
        if family != 0 {
            let socket = side.socket(&side.lab.a)?;
            trace.see(&format!("connect, {family}"), socket.connect_bytes(&name));
        }
        if !side.is_stream() {
            let socket = side.socket(&side.lab.a)?;
            trace.see(
                &format!("sendto, family {family}"),
                socket.send_to_bytes(b"x", 0, &name),
            );
        }
    }
    Ok(())
}

fn nowhere(side: &Side<'_>, trace: &Trace) -> Outcome {
    for pointer in [Pointer::Null, Pointer::Nowhere] {
        for call in [
            Taking::Bind,
            Taking::Connect,
            Taking::SendTo,
            Taking::SendMessage,
        ] {
            // These cases are left out: with a null pointer as the address, `sendto` and `sendmsg`
            // work like `send`.
            if pointer == Pointer::Null && matches!(call, Taking::SendTo | Taking::SendMessage) {
                continue;
            }
            let socket = side.socket(&side.lab.a)?;
            let result = take_name(&socket, call, pointer, 16);
            trace.see(&format!("{call:?} from {pointer:?}"), result);
        }
    }
    let socket = side.bound(&side.lab.a, 9)?;
    trace.see("getsockname to nowhere", own_name_to_nowhere(&socket));
    Ok(())
}

fn note_room(trace: &Trace, socket: &Socket, call: Giving, full: &[u8]) {
    for claimed in [0, 1, 2, 8, 15, 16, 17, 128, -1, i32::MIN] {
        let given = give_name(socket, call, claimed);
        let given = given.map(|(bytes, length)| {
            let fits = bytes == full[..bytes.len()];
            format!(
                "{} bytes, as they should be: {fits}, length {length}",
                bytes.len()
            )
        });
        trace.see(&format!("{call:?} into {claimed}"), given);
    }
}

fn little_room(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    note_room(trace, &a, Giving::Own, &a.local_name()?);
    note_room(trace, &a, Giving::Peer, &a.peer_name()?);
    // Receiving from a stream returns no sender's address.
    let sender = if side.is_stream() {
        Vec::new()
    } else {
        b.peer_name()?
    };
    for claimed in [0, 2, 8, 16, 17, 128] {
        a.send(b"x", 0)?;
        let given = give_name(&b, Giving::Sender, claimed);
        let given = given.map(|(bytes, length)| {
            let fits = bytes == sender[..bytes.len()];
            format!(
                "{} bytes, as they should be: {fits}, length {length}",
                bytes.len()
            )
        });
        trace.see(&format!("the sender into {claimed}"), given);
    }
    a.send(b"x", 0)?;
    trace.see(
        "the sender into -1",
        give_name(&b, Giving::Sender, -1).map(drop),
    );
    Ok(())
}

/// Adds to the trace the ports in a socket's names. A port that the kernel chose appears only as
/// "some port".
pub fn see_names(side: &Side<'_>, trace: &Trace, what: &str, socket: &Socket) {
    for (call, name) in [
        ("getsockname", socket.local_name()),
        ("getpeername", socket.peer_name()),
    ] {
        let port = name.map(|name| match side.port(&name) {
            0 => "no port".to_owned(),
            port if port < 1000 => format!("port {port}"),
            _ => "some port".to_owned(),
        });
        trace.see(&format!("{call}, {what}"), port);
    }
}

fn fresh_names(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let own = socket.local_name()?;
    trace.see("length", own.len());
    trace.see("port", side.port(&own));
    // The `AF_ENET` name of an unbound socket has only zeroes except for the length of a hardware
    // address.
    let has_address = side.host_of(&own).iter().any(|byte| *byte != 0);
    trace.see("an address", has_address);
    trace.see("peer", socket.peer_name().map(drop));
    socket.bind_bytes(&side.anywhere(9))?;
    let own = socket.local_name()?;
    trace.see("bound: port", side.port(&own));
    trace.see("bound: peer", socket.peer_name().map(drop));
    Ok(())
}

fn both_ends(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    let far = side.far(7);
    trace.see("a's peer is what it connected to", a.peer_name()? == far);
    for (socket, host) in [(&a, &side.lab.a), (&b, &side.lab.b)] {
        let own = socket.local_name()?;
        let address = side.address(host, host, side.port(&own));
        trace.see("its own name is its host's address", own == address);
    }
    trace.see("b's own port", side.port(&b.local_name()?));
    trace.see(
        "the ports agree",
        side.port(&a.local_name()?) == side.port(&b.peer_name()?),
    );
    let back = side.address(&side.lab.b, &side.lab.a, side.port(&a.local_name()?));
    trace.see("b's peer is a's address", b.peer_name()? == back);
    Ok(())
}
