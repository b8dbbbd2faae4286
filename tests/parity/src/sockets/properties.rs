// SPDX-License-Identifier: GPL-2.0-only

//! Compares the options that report a socket's kind, its network namespace, its device and its
//! peer.

use libc::SOL_SOCKET;

use super::super::second::SECOND;
use super::options::{get, set};
use crate::prelude::*;
use guest::privilege::without_capabilities;

// Numbers that the libc crate does not define for this target.
const SO_NETNS_COOKIE: i32 = 71;
const SO_PASSPIDFD: i32 = 76;
const SO_PEERPIDFD: i32 = 77;

const NUMBERS: &[Difference] = &[
    Difference::new("the family", "2", "28"),
    Difference::new("the protocol", "6", "0"),
];
const NUMBERS_OF_DATAGRAMS: &[Difference] = &[
    Difference::new("the family", "2", "28"),
    Difference::new("the protocol", "17", "0"),
];

const NO_PORT_SHARING: &[Difference] = &[Difference::new("SO_REUSEPORT", "success", "EOPNOTSUPP")];
const NO_ZERO_COPY: &[Difference] = &[Difference::new("SO_ZEROCOPY", "success", "EOPNOTSUPP")];
const NO_ROUTES: &[Difference] = &[Difference::new("SO_TXREHASH", "success", "EOPNOTSUPP")];

behaviours! {
    stream stream_option_family_type_and_protocol = what_it_is, differs(NUMBERS);
    datagram datagram_option_family_type_and_protocol = what_it_is, differs(NUMBERS_OF_DATAGRAMS);
    stream stream_option_credentials = credentials;
    datagram datagram_option_credentials = credentials;
    stream stream_option_cookies = cookies;
    datagram datagram_option_cookies = cookies;
    stream stream_option_memory = memory;
    datagram datagram_option_memory = memory;
    stream stream_option_sending_times = sending_times;
    datagram datagram_option_sending_times = sending_times;
    stream stream_option_pacing = pacing;
    datagram datagram_option_pacing = pacing;
    stream stream_option_port_sharing = port_sharing, differs(NO_PORT_SHARING);
    datagram datagram_option_port_sharing = port_sharing, differs(NO_PORT_SHARING);
    datagram datagram_option_zero_copy, differs(NO_ZERO_COPY);
    stream stream_option_route_hash, differs(NO_ROUTES);
    stream stream_option_device_by_name = device_by_name;
    datagram datagram_option_device_by_name = device_by_name;
    stream stream_option_device_by_index = device_by_index;
    datagram datagram_option_device_by_index = device_by_index;
}

fn what_it_is(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    let all = [
        ("the type", libc::SO_TYPE),
        ("the family", libc::SO_DOMAIN),
        ("the protocol", libc::SO_PROTOCOL),
        ("whether it listens", libc::SO_ACCEPTCONN),
        ("its error", libc::SO_ERROR),
        ("the NAPI instance", libc::SO_INCOMING_NAPI_ID),
    ];
    for (label, name) in all {
        get(trace, &a, label, name);
        let other = b.so(name)?;
        trace.see("the same at the other end", other == a.so(name)?);
        let set = a.set_so(name, 1);
        trace.see(&format!("{label} cannot be set"), set);
    }
    Ok(())
}

fn credentials(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = side.pair(7)?;
    for (label, name) in [
        ("SO_PASSCRED", libc::SO_PASSCRED),
        ("SO_PASSSEC", libc::SO_PASSSEC),
        ("SO_PASSPIDFD", SO_PASSPIDFD),
    ] {
        set(trace, &a, label, name, 1);
        set(trace, &a, label, name, 0);
    }
    let peer = a.option(SOL_SOCKET, libc::SO_PEERCRED, 12, 12);
    trace.see("SO_PEERCRED", peer);
    for (label, name) in [
        ("SO_PEERSEC", libc::SO_PEERSEC),
        ("SO_PEERGROUPS", libc::SO_PEERGROUPS),
        ("SO_PEERPIDFD", SO_PEERPIDFD),
    ] {
        get(trace, &a, label, name);
    }
    let name = a.option(SOL_SOCKET, libc::SO_PEERNAME, 16, 16)?;
    trace.see("SO_PEERNAME is the peer's", name == a.peer_name()?);
    let short = a.option(SOL_SOCKET, libc::SO_PEERNAME, 4, 4)?;
    trace.see("SO_PEERNAME with little room", short == name[..4]);
    let alone = side.socket(&side.lab.a)?;
    let name = alone.option(SOL_SOCKET, libc::SO_PEERNAME, 16, 16);
    trace.see("SO_PEERNAME without one", name.map(drop));
    Ok(())
}

fn cookies(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (one, other) = (side.socket(&side.lab.a)?, side.socket(&side.lab.a)?);
    let far = side.socket(&side.lab.b)?;
    for (label, name) in [
        ("SO_COOKIE", libc::SO_COOKIE),
        ("SO_NETNS_COOKIE", SO_NETNS_COOKIE),
    ] {
        let cookie = one.option(SOL_SOCKET, name, 8, 8)?;
        trace.see(&format!("{label} is a number"), cookie != [0; 8]);
        trace.see(
            &format!("{label} stays"),
            cookie == one.option(SOL_SOCKET, name, 8, 8)?,
        );
        trace.see(
            &format!("{label} of another is the same"),
            cookie == other.option(SOL_SOCKET, name, 8, 8)?,
        );
        trace.see(
            &format!("{label} of another host is the same"),
            cookie == far.option(SOL_SOCKET, name, 8, 8)?,
        );
        get(trace, &one, &format!("{label} with little room"), name);
        trace.see(&format!("{label} set"), one.set_so(name, 1));
    }
    if side.is_stream() {
        cookies_of_children(side, trace)?;
    }
    Ok(())
}

/// Compares the socket cookies of accepted sockets. The listener's cookie is read before the
/// listener has connections.
fn cookies_of_children(side: &Side<'_>, trace: &Trace) -> Outcome {
    let cookie = |socket: &Socket| socket.option(SOL_SOCKET, libc::SO_COOKIE, 8, 8);
    let listener = side.listener(8, 4)?;
    let listeners = cookie(&listener)?;
    let mut clients = Vec::new();
    let mut children = Vec::new();
    for _ in 0..2 {
        let client = side.socket(&side.lab.a)?;
        client.connect_bytes(&side.far(8)).context("connect")?;
        clients.push(client);
        children.push(listener.accept_with_flags(0).context("accept")?);
    }
    let [one, other] = [cookie(&children[0])?, cookie(&children[1])?];
    trace.see(
        "a child has its listener's cookie",
        one == listeners || other == listeners,
    );
    trace.see("two children have the same cookie", one == other);
    Ok(())
}

fn memory(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.pair(7)?;
    trace.see("send", a.send(&[7; 100], 0));
    trace.poll_until("something came", &b, libc::POLLIN)?;
    let read = || -> anyhow::Result<Vec<u32>> {
        let bytes = b.option(SOL_SOCKET, libc::SO_MEMINFO, 64, 64)?;
        let word = |word: &[u8]| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        Ok(bytes.chunks_exact(4).map(word).collect())
    };
    let full = read()?;
    let limit = b.so(libc::SO_RCVBUF)?;
    trace.see("numbers", full.len());
    trace.see("more is charged than the payload", full[0] > 100);
    trace.see("the limit is SO_RCVBUF", full[1] == limit as u32);
    trace.see("drops", full[8]);
    trace.receive("read", &b, 200, 0);
    trace.see("still charged", read()?[0]);
    Ok(())
}

fn sending_times(side: &Side<'_>, trace: &Trace) -> Outcome {
    const SO_TXTIME: i32 = 61;
    let socket = side.socket(&side.lab.a)?;
    let read = |when: &str| {
        let value = socket.option(SOL_SOCKET, SO_TXTIME, 8, 8);
        trace.see(&format!("SO_TXTIME {when}"), value);
    };
    read("at first");
    for (clock, flags) in [
        (libc::CLOCK_MONOTONIC, 0),
        (libc::CLOCK_TAI, 2),
        (libc::CLOCK_MONOTONIC, 64),
        (99, 0),
    ] {
        let value = [i32::to_ne_bytes(clock), i32::to_ne_bytes(flags)].concat();
        let set = socket.set_option(SOL_SOCKET, SO_TXTIME, &value);
        trace.see(&format!("SO_TXTIME set to {clock} {flags}"), set);
        let by_user = without_capabilities(|| socket.set_option(SOL_SOCKET, SO_TXTIME, &value))?;
        trace.see(&format!("the same by a user, {clock} {flags}"), by_user);
        read(&format!("after {clock} {flags}"));
    }
    trace.see("SO_TXTIME of four bytes", socket.set_so(SO_TXTIME, 1));
    Ok(())
}

fn pacing(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let read = |when: &str| {
        for room in [4, 8] {
            let value = socket.option(SOL_SOCKET, libc::SO_MAX_PACING_RATE, room, room as i32);
            trace.see(&format!("{when}, {room} bytes"), value);
        }
    };
    read("at first");
    set(
        trace,
        &socket,
        "SO_MAX_PACING_RATE",
        libc::SO_MAX_PACING_RATE,
        1_000_000,
    );
    read("then");
    let large = socket.set_option(
        SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        &u64::to_ne_bytes(1 << 40),
    );
    trace.see("more than four bytes can tell", large);
    read("and then");
    set(
        trace,
        &socket,
        "SO_MAX_PACING_RATE",
        libc::SO_MAX_PACING_RATE,
        -1,
    );
    Ok(())
}

fn port_sharing(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    get(trace, &socket, "SO_REUSEPORT at first", libc::SO_REUSEPORT);
    let set = socket.set_so(libc::SO_REUSEPORT, 1);
    trace.see("SO_REUSEPORT", set);
    let unset = socket.set_so(libc::SO_REUSEPORT, 0);
    trace.see("SO_REUSEPORT off", unset);
    // These options need a reuseport group, and the socket is in none.
    for (label, name) in [
        ("SO_ATTACH_REUSEPORT_EBPF", libc::SO_ATTACH_REUSEPORT_EBPF),
        ("SO_DETACH_REUSEPORT_BPF", 68),
    ] {
        let set = socket.set_so(name, -1);
        trace.see(label, set);
    }
    Ok(())
}

fn datagram_option_zero_copy(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    get(trace, &socket, "SO_ZEROCOPY at first", libc::SO_ZEROCOPY);
    let set = socket.set_so(libc::SO_ZEROCOPY, 1);
    trace.see("SO_ZEROCOPY", set);
    Ok(())
}

fn stream_option_route_hash(side: &Side<'_>, trace: &Trace) -> Outcome {
    const SO_TXREHASH: i32 = 74;
    let socket = side.socket(&side.lab.a)?;
    let set = socket.set_so(SO_TXREHASH, 1);
    trace.see("SO_TXREHASH", set);
    Ok(())
}

fn device_by_name(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let read = |when: &str, room: usize| {
        let value = socket.option(SOL_SOCKET, libc::SO_BINDTODEVICE, room, room as i32);
        let text = value.map(|bytes| format!("{} bytes {}", bytes.len(), bytes.escape_ascii()));
        trace.see(&format!("{when}, room for {room}"), text);
    };
    read("at first", 16);
    for name in [
        DEVICE,
        "",
        "eth0\0and more",
        "nothere0",
        "lo",
        "\0",
        "a-name-that-is-longer-than-any-device-has",
        DEVICE,
    ] {
        let set = socket.set_option(SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes());
        trace.see(&format!("tied to {}", name.escape_default()), set);
        read(&format!("after {}", name.escape_default()), 16);
    }
    read("too little", 4);
    read("enough", 5);
    let index = socket.so(libc::SO_BINDTOIFINDEX)?;
    trace.see("its index", index as u32 == side.lab.a.ifindex);
    let by_user = without_capabilities(|| {
        socket.set_option(SOL_SOCKET, libc::SO_BINDTODEVICE, SECOND.as_bytes())
    })?;
    trace.see("a user changes it", by_user);
    let fresh = side.socket(&side.lab.a)?;
    let by_user = without_capabilities(|| {
        fresh.set_option(SOL_SOCKET, libc::SO_BINDTODEVICE, DEVICE.as_bytes())
    })?;
    trace.see("a user ties a socket that is not", by_user);
    Ok(())
}

fn device_by_index(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    get(trace, &socket, "at first", libc::SO_BINDTOIFINDEX);
    for value in [side.lab.a.ifindex as i32, 0, -1, 4321, 0] {
        let set = socket.set_so(libc::SO_BINDTOIFINDEX, value);
        trace.see("set", set);
        let then = socket.so(libc::SO_BINDTOIFINDEX)?;
        trace.see("it is what was set", then == value);
        let name = socket.option(SOL_SOCKET, libc::SO_BINDTODEVICE, 16, 16);
        trace.see(
            "its name",
            name.map(|bytes| bytes.escape_ascii().to_string()),
        );
    }
    Ok(())
}
