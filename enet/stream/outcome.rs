// SPDX-License-Identifier: GPL-2.0

//! Carries out an ESP engine's decisions, and ends connections.
//!
//! A connection is listed in its namespace until it is [`over`]. The list holds a reference to the
//! connection's socket.

use super::{
    ack_queue::Due,
    cookies, out_of_order,
    output::{push, send_control, transmit},
    ring,
    send_queue::{writable, UnsentLimit},
    sock::{parts, Esp, LockedEsp},
};
use crate::net::errno::prelude::*;
use crate::{
    esp::{self, Failure, Seq, State},
    events,
    net::{
        namespace::PerNet,
        sock::{Sock, TcpState},
        timer, uapi,
    },
    pernet::NetState,
    ports,
    statistics::Statistic,
};
use core::sync::atomic::Ordering::Relaxed;

/// Returns the kernel's name for a state of the engine.
pub(crate) fn tcp_state(state: State) -> TcpState {
    match state {
        State::Closed => TcpState::Close,
        State::SynSent => TcpState::SynSent,
        State::SynReceived => TcpState::SynRecv,
        State::Established => TcpState::Established,
        State::FinWait1 => TcpState::FinWait1,
        State::FinWait2 => TcpState::FinWait2,
        State::CloseWait => TcpState::CloseWait,
        State::Closing => TcpState::Closing,
        State::LastAck => TcpState::LastAck,
    }
}

/// Returns whether an attempt to connect is in progress in `state`: a SYN was sent, or two SYNs
/// have crossed (SYN_RECV). A listener's child in SYN_RECV counts, too, but no call reaches it,
/// since it has no descriptor.
#[inline]
pub(crate) fn is_connecting(state: u8) -> bool {
    state == TcpState::SynSent as u8 || state == TcpState::SynRecv as u8
}

/// Sets a socket's state, and traces a change.
pub(super) fn set_state(sock: &Sock<Esp>, state: TcpState) {
    let old = sock.tcp_state();
    if old != state as u8 {
        sock.set_tcp_state(state);
        events::esp_state(sock, old);
    }
}

/// Carries out the outcome of a packet or a timer, and sends what the engine now wants sent.
pub(super) fn apply_outcome(esp: &mut LockedEsp<'_>, outcome: esp::Outcome, now: u64) -> Due {
    let mut due = transmit(esp, now);
    make_room(esp, outcome.acked);
    if outcome.cut {
        if let Some((_, connection)) = parts(esp) {
            let from = connection.engine.first_unacked();
            cut(esp, from);
            due = due.or(transmit(esp, now));
        }
    }
    let Some((sock, connection)) = parts(esp) else {
        return due;
    };
    let before = sock.tcp_state();
    let state = tcp_state(connection.engine.state());
    if state as u8 == before {
        return due;
    }
    if let Some(failure) = outcome.failed {
        if failure == Failure::TimedOut {
            (connection.queue_entry.statistics()).count(Statistic::EspTimeouts);
        }
        // Every later call reports a timeout, unless the connection timed out while connecting:
        // then the peer has never answered, and only one call reports the error.
        let timed_out = failure == Failure::TimedOut && !is_connecting(before);
        let error = error_for(failure, before);
        if timed_out || failure == Failure::TooLarge {
            fail_for_good(esp, error);
        } else {
            fail(esp, error);
        }
        return due;
    }
    if outcome.fin {
        connection.receiving.end();
        esp.add_shutdown(uapi::RCV_SHUTDOWN);
    }
    set_state(sock, state);
    if is_connecting(state as u8) {
        return due;
    }
    if outcome.established {
        established(esp);
    }
    sock.state_change();
    if is_connecting(before) {
        sock.signal_connected();
    }
    if outcome.fin {
        ring::tell(sock);
        sock.signal_end();
        sock.data_ready();
    }
    if outcome.closed {
        over(esp);
    }
    due
}

/// Returns whether the limit of unsent bytes, if there is one, permits `admits` with the bytes that
/// were never sent.
#[inline]
pub(super) fn below_limit(esp: &mut LockedEsp<'_>, admits: fn(&UnsentLimit, u32) -> bool) -> bool {
    !esp.sock().shared().unsent_limit.is_set() || keeps_limit(esp, admits)
}

// Out of line, so that connections without a limit only pay for a branch.
#[cold]
#[inline(never)]
fn keeps_limit(esp: &mut LockedEsp<'_>, admits: fn(&UnsentLimit, u32) -> bool) -> bool {
    parts(esp).is_none_or(|(sock, connection)| {
        let limit = &sock.shared().unsent_limit;
        let unsent = connection
            .sending
            .unsent_up_to(&connection.engine, limit.bytes());
        admits(limit, unsent)
    })
}

/// Returns whether poll reports the stream writable.
#[inline]
pub(super) fn is_writable(sock: &Sock<Esp>) -> bool {
    // The socket is locked only if there is a limit, since poll needs no lock for anything else.
    writable(sock)
        && (!sock.shared().unsent_limit.is_set()
            || keeps_limit(&mut sock.lock().locked(), UnsentLimit::is_writable))
}

/// Wakes writers, if the stream is writable.
#[inline]
pub(super) fn wake_writers(esp: &mut LockedEsp<'_>) {
    if writable(esp.sock()) && below_limit(esp, UnsentLimit::is_writable) {
        esp.wake_writers();
    }
}

/// Makes room for writers, and wakes them: `acked` packets were acknowledged, and others may have
/// left.
#[inline]
fn make_room(esp: &mut LockedEsp<'_>, acked: u16) {
    if acked > 0 {
        free_acknowledged(esp, acked);
    } else if esp.sock().shared().unsent_limit.is_set() {
        // With a limit of unsent bytes, packets make room as soon as they leave.
        wake_writers(esp);
    }
}

/// Frees `count` packets at the head of the write queue, and wakes writers.
fn free_acknowledged(esp: &mut LockedEsp<'_>, count: u16) {
    let Some((sock, connection)) = parts(esp) else {
        return;
    };
    let unacknowledged = &sock.shared().unacknowledged;
    connection
        .sending
        .free_acknowledged(sock, unacknowledged, &connection.engine, count);
    wake_writers(esp);
}

/// Splits the packets from `from` on so that none exceeds the MSS. If there is no memory for all
/// new packets, [pauses](esp::Connection::pause) the engine, which later asks for the rest to be
/// split. Ends the connection if there would be too many packets.
pub(crate) fn cut(esp: &mut LockedEsp<'_>, from: Seq) {
    let Some((sock, connection)) = parts(esp) else {
        return;
    };
    match connection.sending.cut(sock, &mut connection.engine, from) {
        Ok(()) => {}
        Err(EMSGSIZE) => {
            if let Some(reset) = connection.engine.abort() {
                send_control(esp, reset);
            }
            fail_for_good(esp, EMSGSIZE);
        }
        Err(_) => connection.engine.pause(timer::now()),
    }
}

/// Returns the error of a connection that failed in state `before`. TCP returns the same errors.
fn error_for(failure: Failure, before: u8) -> Error {
    match failure {
        Failure::Refused => ECONNREFUSED,
        Failure::Reset if before == TcpState::CloseWait as u8 => EPIPE,
        Failure::Reset => ECONNRESET,
        Failure::TimedOut => ETIMEDOUT,
        Failure::TooLarge => EMSGSIZE,
    }
}

/// Completes the handshake: a child joins the accept queue.
fn established(esp: &mut LockedEsp<'_>) {
    let Some((sock, connection)) = parts(esp) else {
        return;
    };
    let Some(parent) = connection.life.take_parent() else {
        return;
    };
    let listener = parent.queue().lock().complete(sock);
    match listener {
        Some(listener) => {
            cookies::note_use(&listener, &sock.shared().peer(), &connection.engine);
            (connection.queue_entry.statistics()).count(Statistic::EspPassiveOpens);
            listener.data_ready();
            let front = listener.shared().front.as_ref();
            if let Some(bell) = front.and_then(|front| front.bell.as_ref()) {
                bell.ring(&listener);
            }
        }
        // The listener has closed, and is about to end the child. The child stays half-open.
        None => connection.life.set_parent(parent),
    }
}

/// Ends the connection with an error, without a packet to the peer.
pub(super) fn fail(esp: &mut LockedEsp<'_>, error: Error) {
    let sock = esp.sock();
    let told = !sock.is_dead();
    // TCP may still carry the connection, so the program must not see ESP's failure.
    let undecided = esp.state.mapped.is_some() && is_connecting(sock.tcp_state());
    if told && undecided {
        sock.set_own_error(error);
    } else if told {
        sock.set_error(error);
    }
    set_state(sock, TcpState::Close);
    esp.add_shutdown(uapi::SHUTDOWN_MASK);
    if told && undecided {
        sock.signal_error();
    } else if told {
        sock.wake_error();
    }
    over(esp);
}

/// Ends the connection like [`fail`], but every later call reports the error. On a mapped
/// connection, only the first later call reports it, as in TCP.
pub(super) fn fail_for_good(esp: &mut LockedEsp<'_>, error: Error) {
    if esp.state.mapped.is_none() {
        if let Some(connection) = esp.state.connection() {
            connection.life.end_with(error);
        }
    }
    fail(esp, error);
}

/// Ends the connection. Sends a reset if the peer knows of the connection.
pub(super) fn abort(esp: &mut LockedEsp<'_>) {
    let reset = esp.state.connection().and_then(|c| c.engine.abort());
    if let Some(header) = reset {
        send_control(esp, header);
    }
    set_state(esp.sock(), TcpState::Close);
    esp.add_shutdown(uapi::SHUTDOWN_MASK);
    over(esp);
}

/// Cleans up after the connection has ended. Packets no longer find the connection. The socket is
/// freed if there are no other references to it.
pub(super) fn over(esp: &mut LockedEsp<'_>) {
    let sock = esp.sock();
    let mut ends = sock.is_dead();
    if let Some(connection) = esp.state.connection() {
        connection.queue_entry.leave(sock);
        // Even an orderly end may leave packets in the write queue, if a reset replaced their
        // acknowledgement.
        connection.sending.discard(sock);
        connection.disarm(sock);
        if let Some(parent) = connection.life.take_parent() {
            // This is a child that failed before it was accepted.
            drop(parent.queue().lock().take(sock));
            ends = true;
        }
    }
    out_of_order::drop_all(esp);
    ring::tell(sock);
    sock.state_change();
    if ends {
        end(sock);
    }
    unlist(esp);
}

/// Releases the port of a socket that no call uses any more, and stops counting the socket.
pub(super) fn end(sock: &Sock<Esp>) {
    give_port_back(sock);
    sock.retire();
}

/// Removes the socket from the table in which packets look up connections.
pub(super) fn unlist(esp: &LockedEsp<'_>) {
    NetState::of(esp.sock().net()).esp_connections.remove(esp);
}

/// Counts the connection as an orphan. Returns `false` if orphans already hold too much memory.
pub(super) fn count_orphan(esp: &mut LockedEsp<'_>) -> bool {
    let queued = esp.sock().write_queued().load(Relaxed) as usize;
    match esp.state.connection() {
        Some(connection) => connection.life.count_orphan(queued),
        None => true,
    }
}

/// Releases the local port, if the socket has one.
pub(super) fn give_port_back(sock: &Sock<Esp>) {
    ports::give_back(
        &NetState::of(sock.net()).esp_ports,
        sock,
        &sock.shared().binding,
        |other| &other.shared().binding,
    );
}

/// Shuts down the sending direction: a FIN follows the queued data.
pub(super) fn finish_sending(esp: &mut LockedEsp<'_>) {
    let Some((sock, connection)) = parts(esp) else {
        return;
    };
    connection.sending.uncork(&mut connection.engine);
    connection.engine.close_send();
    set_state(sock, tcp_state(connection.engine.state()));
    push(esp, timer::now());
}
