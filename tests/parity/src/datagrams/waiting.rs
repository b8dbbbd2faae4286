// SPDX-License-Identifier: GPL-2.0-only

//! Compares UDP and EDP in calls that wait: their time limits, signals, and the events that wake
//! them.

use super::super::side::NOTHING;
use super::super::signals::catch;
use super::super::Shown;
use crate::prelude::*;
use guest::asleep::{left_asleep, POLL};

behaviours! {
    connected_datagrams datagram_receive_time_limit;
    connected_datagrams datagram_dontwait;
    connected_datagrams datagram_receive_woken_by_a_datagram;
    datagram datagram_receive_woken_by_shutdown;
    datagram datagram_receive_without_a_peer_woken_by_shutdown;
    connected_datagrams datagram_receive_of_several_threads;
    datagram datagram_send_waits_for_room;
    datagram datagram_send_time_limit;
    datagram datagram_send_interrupted;
    datagram datagram_send_woken_by_shutdown;
    datagram datagram_calls_that_streams_have;
    datagram datagram_disconnect;
}

const LIMIT: Duration = Duration::from_millis(100);

fn datagram_receive_time_limit(trace: &Trace, (a, b): Pair) -> Outcome {
    b.set_timeout(libc::SO_RCVTIMEO, LIMIT)?;
    let start = Instant::now();
    trace.receive("nothing comes", &b, 10, 0);
    trace.see("waited", start.elapsed() >= LIMIT / 2);
    trace.receive("nor to look at", &b, 10, libc::MSG_PEEK);
    a.send(b"data", 0)?;
    trace.poll_until("a datagram", &b, libc::POLLIN)?;
    trace.receive("it", &b, 10, libc::MSG_WAITALL);
    Ok(())
}

fn datagram_dontwait(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.receive("flag", &b, 10, libc::MSG_DONTWAIT);
    b.set_nonblocking(true)?;
    trace.receive("O_NONBLOCK", &b, 10, 0);
    trace.see("send", a.send(b"data", libc::MSG_DONTWAIT));
    trace.poll_until("it comes", &b, libc::POLLIN)?;
    trace.receive("it", &b, 10, 0);
    trace.receive("no more", &b, 10, 0);
    Ok(())
}

fn datagram_receive_woken_by_a_datagram(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.sleeping_receive(&b, || Ok(a.send(b"data", 0).map(drop)?))?;
    trace.sleeping_receive(&b, || Ok(a.send(b"", 0).map(drop)?))
}

fn datagram_receive_woken_by_shutdown(side: &Side<'_>, trace: &Trace) -> Outcome {
    for (port, how) in [(53, libc::SHUT_RD), (54, libc::SHUT_RDWR)] {
        let (_a, b) = side.datagrams(port)?;
        trace.sleeping_receive(&b, || Ok(b.shutdown(how)?))?;
    }
    Ok(())
}

fn datagram_receive_without_a_peer_woken_by_shutdown(side: &Side<'_>, trace: &Trace) -> Outcome {
    let socket = side.bound(&side.lab.b, 55)?;
    let mut refused = Ok(());
    trace.sleeping_receive(&socket, || {
        refused = socket.shutdown(libc::SHUT_RD);
        Ok(())
    })?;
    trace.see("shutdown", refused);
    let call = || {
        let events = libc::POLLPRI;
        socket
            .poll(events, patience())
            .map(super::super::events_text)
    };
    let _ = trace.sleeping("poll", POLL, call, |_| {
        let _ = socket.shutdown(libc::SHUT_WR);
        Ok(())
    })?;
    Ok(())
}

fn datagram_receive_of_several_threads(trace: &Trace, (a, b): Pair) -> Outcome {
    let call = || b.receive(&mut [0; 10], 0);
    let mut left = 0;
    let values = crowd(libc::SYS_recvfrom, 3, call, |threads| {
        a.send(b"one", 0)?;
        left = left_asleep(threads)?;
        a.send(b"two", 0)?;
        a.send(b"six", 0)?;
        Ok(())
    })?;
    trace.see("asleep after one datagram", left);
    for value in values {
        trace.see("received", value);
    }
    Ok(())
}

/// Returns a pair whose first socket has a small send buffer.
pub fn small(side: &Side<'_>, port: u16) -> anyhow::Result<(Socket, Socket)> {
    let (a, b) = side.datagrams(port)?;
    a.set_so(libc::SO_SNDBUF, 8 << 10)?;
    Ok((a, b))
}

/// Sends until the send buffer is full.
pub fn stuff(socket: &Socket) {
    while socket.send(&[7; 1000], libc::MSG_DONTWAIT).is_ok() {}
}

fn datagram_send_waits_for_room(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = small(side, 61)?;
    let mut delayed = false;
    let call = || a.send(&[7; 1000], 0);
    side.delay_begins()?;
    stuff(&a);
    let _ = trace.sleeping("send", libc::SYS_sendto, call, |_| {
        delayed = true;
        side.delay_ends()
    })?;
    trace.see("it was delayed", delayed);
    Ok(())
}

fn datagram_send_time_limit(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = small(side, 62)?;
    a.set_timeout(libc::SO_SNDTIMEO, LIMIT)?;
    side.delaying_frames(|| {
        stuff(&a);
        let start = Instant::now();
        trace.see("send", a.send(&[7; 1000], 0));
        trace.see("waited", start.elapsed() >= LIMIT / 2);
        trace.see("send at once", a.send(&[7; 1000], libc::MSG_DONTWAIT));
        trace.poll("poll", &a)
    })
}

fn datagram_send_interrupted(side: &Side<'_>, trace: &Trace) -> Outcome {
    catch(false)?;
    let (a, _b) = small(side, 63)?;
    side.delaying_frames(|| {
        stuff(&a);
        let call = || a.send(&[7; 1000], 0);
        let _ = trace.sleeping("send", libc::SYS_sendto, call, |sleeper| {
            sleeper.signal(libc::SIGUSR1)
        })?;
        Ok(())
    })
}

fn datagram_send_woken_by_shutdown(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = small(side, 64)?;
    side.delaying_frames(|| {
        stuff(&a);
        let call = || a.send(&[7; 1000], libc::MSG_NOSIGNAL);
        let _ = trace.sleeping("send", libc::SYS_sendto, call, |_| {
            Ok(a.shutdown(libc::SHUT_WR)?)
        })?;
        Ok(())
    })
}

fn datagram_calls_that_streams_have(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = side.datagrams(65)?;
    trace.see("listen", a.listen(1));
    trace.see("accept", a.accept(0).map(drop));
    trace.see(
        "accept, a bad flag",
        a.accept_with_flags(0x4000_0000).map(drop),
    );
    a.set_nonblocking(true)?;
    // Connecting a datagram socket never has to wait.
    trace.see("connect again", a.connect_bytes(&side.far(66)));
    trace.poll("connected", &a)
}

fn datagram_disconnect(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(67)?;
    let other = side.bound(&side.lab.a, 68)?;
    other.connect_bytes(&side.far(67))?;
    trace.see("connect to nothing", b.connect_bytes(&NOTHING));
    trace.see("getpeername", b.peer_name().map(drop));
    trace.see("send", b.send(b"x", libc::MSG_NOSIGNAL));
    other.send(b"who was kept out", 0)?;
    trace.receive("from another", &b, 100, 0);
    a.send(b"the former peer", 0)?;
    trace.receive("and from the peer", &b, 100, 0);
    trace.see("shutdown", b.shutdown(libc::SHUT_RD));
    trace.see("two bytes", b.connect_bytes(&[0, 0]));
    trace.see(
        "woken readers",
        b.receive(&mut [0; 4], libc::MSG_DONTWAIT).shown(),
    );
    Ok(())
}
