// SPDX-License-Identifier: GPL-2.0

//! Sending and receiving records on an ESP connection: the calls of `SOCK_SEQPACKET` sockets.
//!
//! `unread` counts only the bytes of complete records, so a socket is readable if there is a
//! complete record. A buffer of the receive queue has bytes of one record, and a flag that is set
//! if they end the record.

use super::{
    bytes::{
        acknowledge, await_room, ended, failed, grow_send_buffer, poll_device, ready_to_send,
        sendable, take_report,
    },
    output::push,
    receive::is_over,
    send_queue::takes_record,
    sock::{parts, Esp, LockedEsp},
};
use crate::net::errno::prelude::*;
use crate::{
    esp::records,
    net::{
        family::Call,
        message::Message,
        namespace::PerNet,
        sock::{Guard, Sock, TcpState},
        stamps::StampRequest,
        timer, uapi,
        wait::Waiter,
    },
    pernet::NetState,
    skb_cb::Piece,
};
use kernel::ffi::c_long;

/// Returns the records that a socket accepts; `None` for streams.
pub(super) fn accepted(sock: &Sock<Esp>) -> Option<records::Kind> {
    sock.keeps_records().then(|| records::Kind {
        largest: records::largest_record(sock.receive_limit()),
        is_channel: sock.shared().domain().is_some(),
    })
}

/// Serves `sendmsg`: sends a whole record or nothing.
pub(super) fn send(call: &Call<'_, Esp>, msg: &mut Message<'_>, len: usize) -> Result<usize> {
    let flags = msg.flags();
    if flags & uapi::MSG_OOB != 0 {
        return Err(EOPNOTSUPP);
    }
    let mut timeout = call.send_timeout(flags & uapi::MSG_DONTWAIT != 0);
    let mut guard = call.sock().lock();
    let mut result = ready_to_send::<true>(call, &mut guard, &mut timeout);
    let mut request = StampRequest::default();
    if result.is_ok() && (msg.has_control() || call.wants_stamps()) {
        // Control messages are checked as in TCP. Only control messages for timestamps have an
        // effect, because packets get their attributes from the socket and not from one call.
        result = msg.stamp_request(call).map(|wanted| request = wanted);
    }
    if result.is_ok() {
        result = queue(call, &mut guard, msg, len, &mut timeout, request);
    }
    drop(guard);
    match result {
        Ok(()) => Ok(len),
        Err(e) => Err(failed(call, flags, e)),
    }
}

/// Returns the number of packets in a record of `len` bytes.
///
/// # Errors
///
/// `EINVAL` for an empty record, since a packet without payload takes no sequence number.
/// `EMSGSIZE` if the record is longer than the send buffer can grow to, or longer than the peer
/// accepts.
fn packets_of(esp: &mut LockedEsp<'_>, len: usize) -> Result<u16> {
    let (sock, connection) = parts(esp).ok_or(EPIPE)?;
    let record = u32::try_from(len).map_err(|_| EMSGSIZE)?;
    if record == 0 {
        return Err(EINVAL);
    }
    if record > connection.engine.largest_record() {
        return Err(EMSGSIZE);
    }
    if record > sock.send_limit() {
        let settings = &NetState::of(sock.net()).sysctl;
        settings.grow_send_buffer(sock, record);
    }
    if record > sock.send_limit().max(records::LEAST_RECORD) {
        return Err(EMSGSIZE);
    }
    connection.sending.packets_of(len).ok_or(EMSGSIZE)
}

fn queue(
    call: &Call<'_, Esp>,
    guard: &mut Guard<'_, Esp>,
    msg: &mut Message<'_>,
    len: usize,
    timeout: &mut c_long,
    request: StampRequest,
) -> Result {
    loop {
        guard.flush_backlog();
        let mut esp = guard.locked();
        // The backlog may have contained a reset, or another event that ends the call.
        sendable(&mut esp)?;
        let packets = packets_of(&mut esp, len)?;
        let takes = |esp: &mut LockedEsp<'_>| {
            parts(esp).is_some_and(|(sock, c)| takes_record(sock, &c.engine, packets))
        };
        if !takes(&mut esp) {
            grow_send_buffer(&mut esp);
        }
        if takes(&mut esp) {
            break;
        }
        await_room(call, guard, timeout, takes)?;
    }
    let mut esp = guard.locked();
    let (sock, connection) = parts(&mut esp).ok_or(EPIPE)?;
    connection.queue_entry.refresh(&mut connection.engine);
    let unacknowledged = &sock.shared().unacknowledged;
    let engine = &mut connection.engine;
    (connection.sending).take_record(sock, unacknowledged, engine, msg, len)?;
    if !request.is_nothing() {
        if let Some(stamp) = request.stamp_message(sock) {
            connection.sending.stamp_last(engine, &stamp);
        }
    }
    push(&mut esp, timer::now());
    Ok(())
}

/// Serves `recvmsg`: returns one record. If the record does not fit into the program's buffer,
/// returns as much of it as fits and discards the rest.
pub(super) fn receive(
    call: &Call<'_, Esp>,
    msg: &mut Message<'_>,
    len: usize,
    flags: i32,
) -> Result<usize> {
    let sock = call.sock();
    if flags & uapi::MSG_ERRQUEUE != 0 {
        return take_report(sock, msg, len);
    }
    if flags & uapi::MSG_OOB != 0 {
        return Err(EOPNOTSUPP);
    }
    let mut timeout = sock.receive_timeout(flags & uapi::MSG_DONTWAIT != 0);
    sock.record_flow();
    poll_device(call, timeout == 0);
    let mut guard = sock.lock();
    if sock.tcp_state() == TcpState::Listen as u8 {
        return Err(ENOTCONN);
    }
    let unread = &sock.shared().unread;
    while unread.count() == 0 {
        if let Some(end) = ended(&mut guard, 0) {
            return end.map(|()| 0);
        }
        if timeout == 0 {
            return Err(EAGAIN);
        }
        acknowledge(&mut guard, true);
        call.suppress_data_signals(true);
        let waited = guard.wait(call, &mut timeout, Waiter::Shared, |_| {
            unread.count() > 0 || is_over(sock)
        });
        call.suppress_data_signals(false);
        waited?;
    }
    let record = copy(&mut guard, msg, len)?;
    if flags & uapi::MSG_PEEK == 0 {
        take(&mut guard);
        guard.flush_backlog();
        acknowledge(&mut guard, false);
    }
    msg.report_left(unread.count());
    drop(guard);
    msg.add_flags(if record > len {
        uapi::MSG_TRUNC
    } else {
        uapi::MSG_EOR
    });
    Ok(if flags & uapi::MSG_TRUNC != 0 {
        record
    } else {
        record.min(len)
    })
}

/// Copies at most `len` bytes of the first record to the user, and returns the record's length.
fn copy(guard: &mut Guard<'_, Esp>, msg: &mut Message<'_>, len: usize) -> Result<usize> {
    let sock = guard.sock();
    let mut esp = guard.locked();
    let mut passed = 0_usize;
    for skb in esp.receive_queue().iter() {
        let Piece { bytes, ends } = skb.note();
        let most = len.saturating_sub(passed);
        msg.put(skb, bytes.start as usize, bytes.len().min(most))?;
        passed = passed.saturating_add(bytes.len());
        if ends {
            if sock.wants_times() && skb.has_time() {
                msg.put_times(sock, skb);
            }
            break;
        }
    }
    Ok(passed)
}

/// Frees the first record.
fn take(guard: &mut Guard<'_, Esp>) {
    let mut esp = guard.locked();
    let unread = &esp.sock().shared().unread;
    while let Some(skb) = esp.receive_queue().pop() {
        let Piece { bytes, ends } = skb.note();
        unread.sub(bytes.len());
        skb.consume();
        if ends {
            break;
        }
    }
}

/// Serves `SIOCINQ`: returns the number of bytes of the next record, or 0 if no record is queued.
pub(super) fn next_len(sock: &Sock<Esp>) -> u32 {
    let mut guard = sock.lock();
    if sock.shared().unread.count() == 0 {
        return 0;
    }
    let mut esp = guard.locked();
    let mut sum = 0_u32;
    for skb in esp.receive_queue().iter() {
        let Piece { bytes, ends } = skb.note();
        sum = sum.saturating_add(bytes.len() as u32);
        if ends {
            break;
        }
    }
    sum
}
