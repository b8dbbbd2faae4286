// SPDX-License-Identifier: GPL-2.0-only

//! Compares sleeping calls over TCP and ESP that a signal interrupts: each call fails with `EINTR`
//! or continues (`signal(7)`).

use super::super::signals::{catch, caught, each_way, interrupted};
use super::waiting::small_stream;
use crate::prelude::*;
use guest::asleep::POLL;
use guest::transfer::fill;

behaviours! {
    stream stream_receive_all_interrupted;
    stream stream_send_interrupted = send;
    stream stream_send_interrupted_half_way;
    stream stream_accept_interrupted;
    stream stream_connect_interrupted = connect;
    stream stream_connect_interrupted_then_polled;
    stream stream_poll_interrupted;
    stream stream_ppoll_unblocks_a_signal;
}

fn stream_receive_all_interrupted(side: &Side<'_>, trace: &Trace) -> Outcome {
    each_way(|what, limit, port| {
        let (client, server) = side.stream(port)?;
        server.set_timeout(libc::SO_RCVTIMEO, limit)?;
        client.send_all(b"half")?;
        trace.poll_until("half", &server, libc::POLLIN)?;
        let call = || server.receive(&mut [0; 8], libc::MSG_WAITALL);
        let release = || Ok(client.send_all(b"more")?);
        let _ = interrupted(trace, what, libc::SYS_recvfrom, call, release)?;
        Ok(())
    })
}

fn send(side: &Side<'_>, trace: &Trace) -> Outcome {
    each_way(|what, limit, port| {
        let (client, server) = small_stream(side, port)?;
        client.set_timeout(libc::SO_SNDTIMEO, limit)?;
        let full = fill(&client)?;
        let call = || client.send(b"x", 0);
        let release = || {
            let mut all = vec![0; full];
            Ok(server.receive_exact(&mut all)?)
        };
        let _ = interrupted(trace, what, libc::SYS_sendto, call, release)?;
        Ok(())
    })
}

fn stream_send_interrupted_half_way(side: &Side<'_>, trace: &Trace) -> Outcome {
    each_way(|what, limit, port| {
        let (client, _server) = small_stream(side, port)?;
        client.set_timeout(libc::SO_SNDTIMEO, limit)?;
        let large = vec![7; 4 << 20];
        let call = || {
            let took = client.send(&large, 0)?;
            Ok(took > 0 && took < large.len())
        };
        // A call that has already accepted bytes returns their number, with or without SA_RESTART.
        let _ = interrupted(trace, what, libc::SYS_sendto, call, || Ok(()))?;
        Ok(())
    })
}

fn stream_accept_interrupted(side: &Side<'_>, trace: &Trace) -> Outcome {
    each_way(|what, limit, port| {
        let listener = side.listener(port, 4)?;
        listener.set_timeout(libc::SO_RCVTIMEO, limit)?;
        let call = || listener.accept(0).map(drop);
        let mut client = None;
        let release = || {
            client = Some(side.dial(port)?);
            Ok(())
        };
        let _ = interrupted(trace, what, libc::SYS_accept4, call, release)?;
        Ok(())
    })
}

fn connect(side: &Side<'_>, trace: &Trace) -> Outcome {
    each_way(|what, limit, port| {
        let client = side.socket(&side.lab.a)?;
        client.set_timeout(libc::SO_SNDTIMEO, limit)?;
        let call = || client.connect_bytes(&side.nobody(port));
        let release = || Ok(client.shutdown(libc::SHUT_RDWR)?);
        let _ = interrupted(trace, what, libc::SYS_connect, call, release)?;
        trace.poll("then", &client)
    })
}

fn stream_connect_interrupted_then_polled(side: &Side<'_>, trace: &Trace) -> Outcome {
    catch(false)?;
    let listener = side.listener(120, 4)?;
    let client = side.socket(&side.lab.a)?;
    side.losing_frames(|| {
        let call = || client.connect_bytes(&side.far(120));
        let _ = interrupted(trace, "connect", libc::SYS_connect, call, || Ok(()))?;
        trace.poll("under way", &client)?;
        client.set_nonblocking(true)?;
        trace.see("connect again", client.connect_bytes(&side.far(120)));
        Ok(())
    })?;
    trace.poll_until("connected", &client, libc::POLLOUT)?;
    trace.pending_error("no error", &client);
    trace.see("connect once more", client.connect_bytes(&side.far(120)));
    trace.see("and again", client.connect_bytes(&side.far(120)));
    let (server, _) = listener.accept(0)?;
    exchange_noted(trace, &client, &server)
}

fn exchange_noted(trace: &Trace, client: &Socket, server: &Socket) -> Outcome {
    trace.see("send", client.send(b"data", 0));
    trace.receive("received", server, 10, 0);
    Ok(())
}

fn stream_poll_interrupted(side: &Side<'_>, trace: &Trace) -> Outcome {
    each_way(|what, _limit, port| {
        let (_client, server) = side.stream(port)?;
        let call = || server.poll(libc::POLLIN, patience());
        // The kernel never restarts `poll`, even with SA_RESTART.
        let _ = interrupted(trace, what, POLL, call, || Ok(()))?;
        Ok(())
    })
}

/// In this test a signal is blocked except during the `ppoll` call. Programs use `ppoll` to wait
/// for a signal or a socket without a race.
fn stream_ppoll_unblocks_a_signal(side: &Side<'_>, trace: &Trace) -> Outcome {
    catch(true)?;
    let (client, server) = side.stream(121)?;
    let waits = |limit: Duration| {
        // SAFETY: All-zero bytes are a valid `sigset_t`; `sigemptyset` below initializes it.
        let mut blocked: libc::sigset_t = unsafe { std::mem::zeroed() };
        let mut none = blocked;
        // SAFETY: Both sets are writable, and the number is a valid signal number.
        unsafe {
            libc::sigemptyset(&mut none);
            libc::sigemptyset(&mut blocked);
            libc::sigaddset(&mut blocked, libc::SIGUSR1);
        }
        // SAFETY: `blocked` is readable, and `pthread_kill` targets the calling thread itself.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, std::ptr::null_mut());
            libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1);
        }
        let before = caught();
        let mut entry = libc::pollfd {
            fd: server.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: 0,
        };
        // SAFETY: `entry` is one pollfd, alive and writable during the call; `limit` and `none` are
        // readable.
        let found = check(unsafe { libc::ppoll(&mut entry, 1, &limit, &none) });
        let found = found.map(|_| super::super::events_text(entry.revents));
        let caught_now = caught() > before;
        // SAFETY: The set is readable, and the null pointer means that the old set is not returned.
        // A pending signal is caught during this call.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &blocked, std::ptr::null_mut()) };
        (found, caught_now)
    };
    let (found, signal) = waits(patience());
    trace.see("ppoll", found);
    trace.see("the signal", signal);
    client.send_all(b"data")?;
    trace.poll_until("data", &server, libc::POLLIN)?;
    // If the socket is readable and a signal is pending, `ppoll` reports the socket.
    let (found, _) = waits(patience());
    trace.see("ppoll with data", found);
    Ok(())
}
