// SPDX-License-Identifier: GPL-2.0-only

//! Compares options at the socket level: whether each can be set, and which value it has
//! afterwards.

use libc::SOL_SOCKET;

use crate::prelude::*;
use guest::privilege::without_capabilities;
use guest::raw_calls::{self, Pointer};

// Numbers that the libc crate does not define for this target.
const SO_RCVMARK: i32 = 75;
const SO_RCVPRIORITY: i32 = 82;
const SO_RESERVE_MEM: i32 = 73;
const SO_BUF_LOCK: i32 = 72;

behaviours! {
    stream stream_option_buffer_sizes = buffer_sizes;
    datagram datagram_option_buffer_sizes = buffer_sizes;
    stream stream_option_buffer_sizes_by_force = buffers_by_force;
    datagram datagram_option_buffer_sizes_by_force = buffers_by_force;
    stream stream_option_flags = flags;
    datagram datagram_option_flags = flags;
    stream stream_option_numbers = numbers;
    datagram datagram_option_numbers = numbers;
    stream stream_option_lengths = lengths;
    datagram datagram_option_lengths = lengths;
    stream stream_option_bad_pointers = bad_pointers;
    datagram datagram_option_bad_pointers = bad_pointers;
    stream stream_option_unknown = unknown;
    datagram datagram_option_unknown = unknown;
    stream stream_option_linger_values = linger;
    datagram datagram_option_linger_values = linger;
    stream stream_option_time_limit_values = time_limits;
    datagram datagram_option_time_limit_values = time_limits;
    stream stream_option_low_water_values = low_water;
    datagram datagram_option_low_water_values = low_water;
    stream stream_option_busy_polling = busy_polling;
    datagram datagram_option_busy_polling = busy_polling;
    stream stream_option_privileged = privileged;
    datagram datagram_option_privileged = privileged;
}

/// Sets an integer option of the socket level. Adds to the trace the result, and the option's value
/// afterwards.
pub(super) fn set(trace: &Trace, socket: &Socket, label: &str, name: i32, value: i32) {
    let result = socket.set_so(name, value);
    trace.see(&format!("{label} set to {value}"), result);
    get(trace, socket, &format!("{label} after {value}"), name);
}

/// Adds to the trace the value of an integer option of the socket level.
pub(super) fn get(trace: &Trace, socket: &Socket, label: &str, name: i32) {
    trace.see(label, socket.so(name));
}

fn buffer_sizes(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    for (label, name) in [
        ("SO_SNDBUF", libc::SO_SNDBUF),
        ("SO_RCVBUF", libc::SO_RCVBUF),
    ] {
        for value in [50_000, 0, 1, 2304, 10_000, -1, i32::MAX, i32::MIN] {
            set(trace, &socket, label, name, value);
        }
    }
    set(trace, &socket, "SO_BUF_LOCK", SO_BUF_LOCK, 0);
    set(trace, &socket, "SO_BUF_LOCK", SO_BUF_LOCK, 3);
    set(trace, &socket, "SO_BUF_LOCK", SO_BUF_LOCK, 8);
    Ok(())
}

fn buffers_by_force(side: &Side<'_>, trace: &Trace) -> Outcome {
    let both = [
        ("SO_SNDBUF", libc::SO_SNDBUF, libc::SO_SNDBUFFORCE),
        ("SO_RCVBUF", libc::SO_RCVBUF, libc::SO_RCVBUFFORCE),
    ];
    for (label, name, force) in both {
        let socket = side.socket(&side.lab.a)?;
        for value in [4_000_000, 1, -5] {
            let forced = socket.set_so(force, value);
            trace.see(&format!("{label} forced to {value}"), forced);
            get(trace, &socket, &format!("{label} after {value}"), name);
        }
        let refused = without_capabilities(|| socket.set_so(force, 4_000_000))?;
        trace.see(&format!("{label} forced by a user"), refused);
        get(trace, &socket, &format!("{label} after that"), name);
        trace.see(&format!("{label}FORCE read"), socket.so(force));
    }
    Ok(())
}

fn flags(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    for (label, name) in [
        ("SO_REUSEADDR", libc::SO_REUSEADDR),
        ("SO_KEEPALIVE", libc::SO_KEEPALIVE),
        ("SO_BROADCAST", libc::SO_BROADCAST),
        ("SO_OOBINLINE", libc::SO_OOBINLINE),
        ("SO_DONTROUTE", libc::SO_DONTROUTE),
        ("SO_DEBUG", libc::SO_DEBUG),
        ("SO_NO_CHECK", libc::SO_NO_CHECK),
        ("SO_TIMESTAMP", libc::SO_TIMESTAMP),
        ("SO_TIMESTAMPNS", libc::SO_TIMESTAMPNS),
        ("SO_RXQ_OVFL", libc::SO_RXQ_OVFL),
        ("SO_WIFI_STATUS", libc::SO_WIFI_STATUS),
        ("SO_NOFCS", libc::SO_NOFCS),
        ("SO_SELECT_ERR_QUEUE", libc::SO_SELECT_ERR_QUEUE),
        ("SO_RCVMARK", SO_RCVMARK),
        ("SO_RCVPRIORITY", SO_RCVPRIORITY),
        ("SO_LOCK_FILTER", libc::SO_LOCK_FILTER),
    ] {
        get(trace, &socket, &format!("{label} at first"), name);
        for value in [1, 0, 2, -1] {
            set(trace, &socket, label, name, value);
        }
    }
    Ok(())
}

fn numbers(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    for (label, name, values) in [
        ("SO_PRIORITY", libc::SO_PRIORITY, [0, 6, 7, -1]),
        ("SO_MARK", libc::SO_MARK, [0, 1, -1, i32::MAX]),
        ("SO_INCOMING_CPU", libc::SO_INCOMING_CPU, [0, 1, -1, 1000]),
        ("SO_RESERVE_MEM", SO_RESERVE_MEM, [0, 1, -1, 4096]),
    ] {
        for value in values {
            set(trace, &socket, label, name, value);
        }
    }
    Ok(())
}

fn lengths(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    for length in [0, 1, 3, 4, 8, 128] {
        let result = socket.set_option(SOL_SOCKET, libc::SO_KEEPALIVE, &vec![1; length]);
        trace.see(&format!("set of {length} bytes"), result);
    }
    for length in [-1, i32::MIN] {
        let result = raw_calls::set_option(
            &socket,
            SOL_SOCKET,
            libc::SO_KEEPALIVE,
            Pointer::Zeroes,
            length,
        );
        trace.see(&format!("set of {length} bytes"), result);
        let result = raw_calls::get_option(
            &socket,
            SOL_SOCKET,
            libc::SO_KEEPALIVE,
            Pointer::Zeroes,
            Some(length),
        );
        trace.see(&format!("get of {length} bytes"), result);
    }
    for told in [0, 1, 2, 4, 8] {
        let got = socket.option(SOL_SOCKET, libc::SO_TYPE, 8, told);
        trace.see(
            &format!("get with room for {told}"),
            got.map(|bytes| format!("{bytes:?}").replace("[2", "[1")),
        );
    }
    Ok(())
}

fn bad_pointers(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    for pointer in [Pointer::Null, Pointer::Nowhere] {
        for (label, name) in [
            ("an int", libc::SO_KEEPALIVE),
            ("a structure", libc::SO_LINGER),
            ("a time", libc::SO_RCVTIMEO),
            ("a name", libc::SO_BINDTODEVICE),
        ] {
            let result = raw_calls::set_option(&socket, SOL_SOCKET, name, pointer, 16);
            trace.see(&format!("set {label} from {pointer:?}"), result);
            let result = raw_calls::get_option(&socket, SOL_SOCKET, name, pointer, Some(16));
            trace.see(&format!("get {label} into {pointer:?}"), result);
        }
    }
    let result = raw_calls::get_option(&socket, SOL_SOCKET, libc::SO_TYPE, Pointer::Zeroes, None);
    trace.see("get with the length nowhere", result);
    Ok(())
}

fn unknown(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    for (level, name) in [
        (SOL_SOCKET, 9999),
        (SOL_SOCKET, -1),
        (SOL_SOCKET, 0),
        (9999, 1),
        (-1, 1),
        (libc::SOL_PACKET, 1),
        (libc::SOL_NETLINK, 1),
    ] {
        let set = socket.set_int_option(level, name, 1);
        trace.see(&format!("set option {name} of level {level}"), set);
        let get = socket.int_option(level, name);
        trace.see(&format!("get option {name} of level {level}"), get);
    }
    Ok(())
}

fn linger(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    let read = |when: &str| {
        let value = socket.option(SOL_SOCKET, libc::SO_LINGER, 8, 8);
        trace.see(&format!("SO_LINGER {when}"), value);
    };
    read("at first");
    for (on, seconds) in [(1, 5), (0, 5), (7, 0), (1, -1), (1, i32::MAX)] {
        let value = [i32::to_ne_bytes(on), i32::to_ne_bytes(seconds)].concat();
        let set = socket.set_option(SOL_SOCKET, libc::SO_LINGER, &value);
        trace.see(&format!("SO_LINGER set to {on} {seconds}"), set);
        read(&format!("after {on} {seconds}"));
    }
    for length in [0, 4, 7, 9] {
        let set = socket.set_option(SOL_SOCKET, libc::SO_LINGER, &vec![0; length]);
        trace.see(&format!("SO_LINGER set with {length} bytes"), set);
    }
    let short = socket.option(SOL_SOCKET, libc::SO_LINGER, 8, 4);
    trace.see("SO_LINGER read with 4 bytes", short);
    // The sockets are closed on return, with the linger time that was set most recently. This must
    // not block, since none of them is connected.
    Ok(())
}

fn time_limits(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    for (label, name) in [
        ("SO_RCVTIMEO", libc::SO_RCVTIMEO),
        ("SO_SNDTIMEO", libc::SO_SNDTIMEO),
    ] {
        let read = |when: &str| {
            let value = socket.option(SOL_SOCKET, name, 16, 16);
            trace.see(&format!("{label} {when}"), value);
        };
        read("at first");
        let set = socket.set_timeout(name, Duration::from_millis(1500));
        trace.see(&format!("{label} set"), set);
        read("then");
        for (seconds, micros) in [
            (0, 1_000_000),
            (0, -1),
            (-1, 0),
            (i64::MAX, 0),
            (0, 1),
            (0, 0),
        ] {
            let value = [i64::to_ne_bytes(seconds), i64::to_ne_bytes(micros)].concat();
            let set = socket.set_option(SOL_SOCKET, name, &value);
            trace.see(&format!("{label} set to {seconds} {micros}"), set);
            read(&format!("after {seconds} {micros}"));
        }
        for length in [0, 4, 8, 15, 17] {
            let set = socket.set_option(SOL_SOCKET, name, &vec![0; length]);
            trace.see(&format!("{label} set with {length} bytes"), set);
        }
    }
    Ok(())
}

fn low_water(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    get(trace, &socket, "SO_RCVLOWAT at first", libc::SO_RCVLOWAT);
    for value in [0, 1, 1000] {
        set(trace, &socket, "SO_RCVLOWAT", libc::SO_RCVLOWAT, value);
    }
    get(trace, &socket, "SO_SNDLOWAT", libc::SO_SNDLOWAT);
    set(trace, &socket, "SO_SNDLOWAT", libc::SO_SNDLOWAT, 5);
    Ok(())
}

fn busy_polling(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    for (label, name) in [
        ("SO_BUSY_POLL", libc::SO_BUSY_POLL),
        ("SO_PREFER_BUSY_POLL", libc::SO_PREFER_BUSY_POLL),
        ("SO_BUSY_POLL_BUDGET", libc::SO_BUSY_POLL_BUDGET),
    ] {
        for value in [0, 50, 65536, -1] {
            set(trace, &socket, label, name, value);
        }
        let by_user = without_capabilities(|| socket.set_so(name, 1000))?;
        trace.see(&format!("{label} set by a user"), by_user);
    }
    Ok(())
}

fn privileged(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.socket(&side.lab.a)?;
    socket.set_option(SOL_SOCKET, libc::SO_BINDTODEVICE, b"eth0")?;
    for (label, name, value) in [
        ("SO_PRIORITY 6", libc::SO_PRIORITY, 6),
        ("SO_PRIORITY 7", libc::SO_PRIORITY, 7),
        ("SO_MARK", libc::SO_MARK, 1),
        ("SO_DEBUG 1", libc::SO_DEBUG, 1),
        ("SO_DEBUG 0", libc::SO_DEBUG, 0),
        ("SO_RCVMARK", SO_RCVMARK, 1),
        ("SO_BINDTOIFINDEX", libc::SO_BINDTOIFINDEX, 0),
        ("SO_BINDTODEVICE", libc::SO_BINDTODEVICE, 0),
    ] {
        let by_user = without_capabilities(|| socket.set_so(name, value))?;
        trace.see(&format!("{label} by a user"), by_user);
    }
    Ok(())
}
