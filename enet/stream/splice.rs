// SPDX-License-Identifier: GPL-2.0

//! Moves received bytes into a pipe without copying their pages (`splice`).

use super::{
    bytes::{acknowledge, ended, poll_device, sleep},
    receive::is_over,
    ring,
    sock::Esp,
};
use crate::net::errno::prelude::*;
use crate::{
    net::{
        family::Call,
        sock::{Guard, TcpState},
        splice::Pipe,
    },
    skb_cb::Unread,
};

/// Serves `splice` from a stream, as TCP does: moves up to `len` queued bytes, and blocks if none
/// are queued.
pub(super) fn splice(
    call: &Call<'_, Esp>,
    pipe: &mut Pipe<'_>,
    len: usize,
    nonblocking: bool,
) -> Result<usize> {
    let sock = call.sock();
    sock.record_flow();
    let mut timeout = sock.receive_timeout(ring::is_made(sock) || nonblocking);
    poll_device(call, timeout == 0);
    let mut guard = sock.lock();
    if sock.tcp_state() == TcpState::Listen as u8 {
        return Err(ENOTCONN);
    }
    let has_data = || sock.shared().unread.count() > 0;
    let mut spliced = 0;
    let result = loop {
        if spliced >= len {
            break Ok(());
        }
        if ring::has_bytes(sock) {
            break Err(EAGAIN);
        }
        let taken = match take(&mut guard, pipe, len.saturating_sub(spliced)) {
            Ok(taken) => taken,
            Err(error) => break Err(error),
        };
        spliced = spliced.saturating_add(taken);
        if spliced >= len || spliced > 0 && (taken == 0 || timeout == 0 || is_over(sock)) {
            break Ok(());
        }
        if taken > 0 {
            guard.flush_backlog();
            continue;
        }
        if let Some(end) = ended(&mut guard, 0) {
            break end;
        }
        if timeout == 0 {
            break Err(EAGAIN);
        }
        let waited = sleep(call, &mut guard, &mut timeout, || {
            has_data() || ring::ends_wait(sock)
        });
        if waited.is_err() {
            break waited;
        }
    };
    ring::tell(sock);
    if spliced > 0 {
        acknowledge(&mut guard, false);
        return Ok(spliced);
    }
    result.map(|()| 0)
}

/// Moves up to `len` queued bytes into the pipe, as many as the pipe takes, and returns the number
/// of bytes moved.
fn take(guard: &mut Guard<'_, Esp>, pipe: &mut Pipe<'_>, len: usize) -> Result<usize> {
    let sock = guard.sock();
    let mut taken = 0_usize;
    while taken < len {
        let mut esp = guard.locked();
        let Some(skb) = esp.receive_queue().first_mut() else {
            break;
        };
        let bytes: Unread = skb.note();
        let there = bytes.len();
        let wanted = there.min(len.saturating_sub(taken));
        let put = match pipe.put(sock, skb, bytes.start as usize, wanted) {
            Err(error) if taken == 0 => return Err(error),
            // No memory was left for copies of bytes outside of pages. This is not the end of the
            // stream.
            Ok(0) if taken == 0 && wanted > 0 => return Err(ENOBUFS),
            put => put.unwrap_or(0),
        };
        taken = taken.saturating_add(put);
        sock.shared().unread.sub(put);
        sock.move_peek_offset(false, put);
        if put == there {
            if let Some(skb) = esp.receive_queue().pop() {
                skb.consume();
            }
            if ring::is_next(sock) {
                break;
            }
            guard.flush_backlog();
        } else {
            skb.set_note(bytes.after(put));
        }
        if put < wanted {
            break;
        }
    }
    Ok(taken)
}
