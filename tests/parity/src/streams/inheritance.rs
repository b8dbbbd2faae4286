// SPDX-License-Identifier: GPL-2.0-only

//! Compares which properties an accepted socket of TCP or ESP inherits from its listener.

use libc::SOL_SOCKET;

use crate::prelude::*;
use guest::raw_calls::fcntl;

behaviours! {
    stream stream_accepted_has_the_listeners_flags = flags;
    stream stream_accepted_has_the_listeners_numbers;
    stream stream_accepted_has_the_listeners_structures;
    stream stream_accepted_has_flags_of_its_own;
    stream stream_accepted_is_independent;
}

fn accepted(
    side: &Side<'_>,
    prepare: impl FnOnce(&Socket) -> Outcome,
) -> anyhow::Result<(Socket, Socket, Socket)> {
    let listener = side.listener(7, 4)?;
    prepare(&listener)?;
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    Ok((listener, client, server))
}

fn inherited(side: &Side<'_>, trace: &Trace, options: &[(&str, i32, i32)]) -> Outcome {
    let (_listener, _client, server) = accepted(side, |listener| {
        for (_, name, value) in options {
            listener.set_so(*name, *value)?;
        }
        Ok(())
    })?;
    for (label, name, _) in options {
        trace.see(label, server.so(*name));
    }
    Ok(())
}

fn flags(side: &Side<'_>, trace: &Trace) -> Outcome {
    inherited(
        side,
        trace,
        &[
            ("SO_REUSEADDR", libc::SO_REUSEADDR, 1),
            ("SO_KEEPALIVE", libc::SO_KEEPALIVE, 1),
            ("SO_OOBINLINE", libc::SO_OOBINLINE, 1),
            ("SO_BROADCAST", libc::SO_BROADCAST, 1),
            ("SO_DONTROUTE", libc::SO_DONTROUTE, 1),
            ("SO_DEBUG", libc::SO_DEBUG, 1),
            ("SO_TIMESTAMP", libc::SO_TIMESTAMP, 1),
            ("SO_RXQ_OVFL", libc::SO_RXQ_OVFL, 1),
            ("SO_PREFER_BUSY_POLL", libc::SO_PREFER_BUSY_POLL, 1),
        ],
    )
}

fn stream_accepted_has_the_listeners_numbers(side: &Side<'_>, trace: &Trace) -> Outcome {
    inherited(
        side,
        trace,
        &[
            ("SO_SNDBUF", libc::SO_SNDBUF, 50_000),
            ("SO_RCVBUF", libc::SO_RCVBUF, 40_000),
            ("SO_RCVLOWAT", libc::SO_RCVLOWAT, 3),
            ("SO_PRIORITY", libc::SO_PRIORITY, 4),
            ("SO_BUSY_POLL", libc::SO_BUSY_POLL, 20),
            (
                "SO_MAX_PACING_RATE",
                libc::SO_MAX_PACING_RATE,
                1_000_000_000,
            ),
            ("SO_TIMESTAMPING", libc::SO_TIMESTAMPING, 24),
        ],
    )
}

fn stream_accepted_has_the_listeners_structures(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (_listener, _client, server) = accepted(side, |listener| {
        listener.set_linger(Some(9))?;
        listener.set_timeout(libc::SO_RCVTIMEO, Duration::from_secs(50))?;
        listener.set_timeout(libc::SO_SNDTIMEO, Duration::from_millis(60_500))?;
        listener.set_option(SOL_SOCKET, libc::SO_BINDTODEVICE, DEVICE.as_bytes())?;
        Ok(())
    })?;
    for (label, name) in [
        ("SO_LINGER", libc::SO_LINGER),
        ("SO_RCVTIMEO", libc::SO_RCVTIMEO),
        ("SO_SNDTIMEO", libc::SO_SNDTIMEO),
        ("SO_BINDTODEVICE", libc::SO_BINDTODEVICE),
    ] {
        let value = server.option(SOL_SOCKET, name, 16, 16);
        trace.see(label, value);
    }
    Ok(())
}

fn stream_accepted_has_flags_of_its_own(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    listener.set_nonblocking(true)?;
    // SAFETY: `getpid` takes no arguments, and always succeeds.
    fcntl(&listener, libc::F_SETOWN, unsafe { libc::getpid() })?;
    let flags =
        |socket: &Socket| fcntl(socket, libc::F_GETFL, 0).map(|flags| format!("{flags:#o}"));
    for (label, asked) in [("plain", 0), ("told not to wait", libc::SOCK_NONBLOCK)] {
        let _client = side.dial(7)?;
        trace.poll_until("a connection comes", &listener, libc::POLLIN)?;
        let (server, _) = listener.accept(asked)?;
        trace.see(&format!("flags, {label}"), flags(&server));
        trace.see(
            &format!("owner, {label}"),
            fcntl(&server, libc::F_GETOWN, 0),
        );
    }
    trace.see("the listener's", flags(&listener));
    Ok(())
}

fn stream_accepted_is_independent(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (listener, client, server) = accepted(side, |_| Ok(()))?;
    listener.set_so(libc::SO_KEEPALIVE, 1)?;
    server.set_so(libc::SO_OOBINLINE, 1)?;
    trace.see("set later on the listener", server.so(libc::SO_KEEPALIVE));
    trace.see("set on the accepted", listener.so(libc::SO_OOBINLINE));
    trace.see("it listens", server.so(libc::SO_ACCEPTCONN));
    trace.see("the listener does", listener.so(libc::SO_ACCEPTCONN));
    drop(listener);
    client.send(b"without the listener", 0)?;
    trace.receive("receive", &server, 100, 0);
    Ok(())
}
