// SPDX-License-Identifier: GPL-2.0-only

//! Compares options at the levels of TCP, IP and UDP, and options at the socket level that a
//! protocol must implement itself.

use libc::{IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP};

use crate::prelude::*;

const OF_TCP: &[Difference] = &[
    Difference::new("set TCP_NODELAY", "success", "ENOPROTOOPT"),
    Difference::new("get TCP_NODELAY", "1", "EOPNOTSUPP"),
];
const OF_IP: &[Difference] = &[
    Difference::new("set IP_TTL", "success", "ENOPROTOOPT"),
    Difference::new("get IP_TTL", "9", "EOPNOTSUPP"),
];
const NO_GROUPS: &[Difference] = &[Difference::new("send to everybody, allowed", "1", "EACCES")];

behaviours! {
    stream stream_options_of_tcp = of_tcp, differs(OF_TCP);
    datagram datagram_options_of_tcp = of_tcp;
    stream stream_options_of_ip = of_ip, differs(OF_IP);
    datagram datagram_options_of_ip = of_ip, differs(OF_IP);
    stream stream_options_of_udp;
    datagram datagram_send_to_broadcast, differs(NO_GROUPS);
    stream stream_connect_to_broadcast;
}

fn option(
    side: &Side<'_>,
    trace: &Trace,
    label: &str,
    level: i32,
    name: i32,
    value: i32,
) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    trace.see(
        &format!("set {label}"),
        socket.set_int_option(level, name, value),
    );
    trace.see(&format!("get {label}"), socket.int_option(level, name));
    Ok(())
}

fn of_tcp(side: &Side<'_>, trace: &Trace) -> Outcome {
    option(
        side,
        trace,
        "TCP_NODELAY",
        IPPROTO_TCP,
        libc::TCP_NODELAY,
        1,
    )
}

fn of_ip(side: &Side<'_>, trace: &Trace) -> Outcome {
    option(side, trace, "IP_TTL", IPPROTO_IP, libc::IP_TTL, 9)
}

fn stream_options_of_udp(side: &Side<'_>, trace: &Trace) -> Outcome {
    option(side, trace, "UDP_CORK", IPPROTO_UDP, libc::UDP_CORK, 1)
}

fn datagram_send_to_broadcast(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let all = side.everybody(7);
    trace.see("send to everybody", socket.send_to_bytes(b"x", 0, &all));
    trace.see("connect to everybody", socket.connect_bytes(&all));
    socket.set_so(libc::SO_BROADCAST, 1)?;
    trace.see(
        "send to everybody, allowed",
        socket.send_to_bytes(b"x", 0, &all),
    );
    Ok(())
}

fn stream_connect_to_broadcast(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    trace.see("connect to all", socket.connect_bytes(&side.everybody(7)));
    trace.see("connect to somebody", socket.connect_bytes(&side.far(7)));
    Ok(())
}
