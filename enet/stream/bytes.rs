// SPDX-License-Identifier: GPL-2.0

//! Sending and receiving bytes on an ESP connection.

use super::{
    outcome::{below_limit, is_connecting},
    output::push,
    ring,
    send_queue::{has_room, UnsentLimit},
    sock::{parts, Esp, LockedEsp},
};
use crate::net::errno::prelude::*;
use crate::{
    net::{
        family::Call,
        message::Message,
        namespace::PerNet,
        skb::{Buffer, Skb},
        sock::{Guard, Sock, TcpState},
        stamps::StampRequest,
        timer, uapi,
        wait::Waiter,
    },
    pernet::NetState,
    skb_cb::Unread,
    uapi::{EP_RECVERR, SOL_EP},
};
use core::{mem, sync::atomic::Ordering::Relaxed};
use kernel::ffi::c_long;

/// Number of windows that the send buffer holds. Like TCP's send buffer, it holds twice the data in
/// flight. TCP has one congestion window in flight; ESP has two windows, so its send buffer holds
/// four.
const WINDOWS_IN_BUFFER: u32 = 4;

/// Sends the packet that `MSG_MORE` holds back. No more data follow, because the file that the
/// program sends has ended.
pub(super) fn no_more(sock: &Sock<Esp>) {
    let mut guard = sock.lock();
    let mut esp = guard.locked();
    if let Some((_, connection)) = parts(&mut esp).filter(|(_, c)| c.sending.is_corked()) {
        connection.sending.uncork(&mut connection.engine);
        push(&mut esp, timer::now());
    }
}

/// Returns the payload bytes that were never sent.
pub(super) fn unsent(sock: &Sock<Esp>) -> u32 {
    let mut guard = sock.lock();
    let mut esp = guard.locked();
    parts(&mut esp).map_or(0, |(_, connection)| {
        connection.sending.unsent(&connection.engine)
    })
}

/// Serves `sendmsg`. Each call is a message (rule S1 in `docs/protocol.md`). Sends as much of the
/// message as fits into the send buffer before the timeout.
pub(super) fn send(call: &Call<'_, Esp>, msg: &mut Message<'_>, len: usize) -> Result<usize> {
    let flags = msg.flags();
    if flags & uapi::MSG_OOB != 0 {
        return Err(EOPNOTSUPP);
    }
    let mut timeout = call.send_timeout(flags & uapi::MSG_DONTWAIT != 0);
    let mut guard = call.sock().lock();
    // If the write queue is not empty, earlier packets may be waiting for the window. Then the
    // message may fit into the last of them.
    let queued = call.write_queued().load(Relaxed) != 0;
    if queued && joins_last(&mut guard, msg, len, flags) {
        return Ok(len);
    }
    let mut sent = 0;
    let mut result = ready_to_send::<false>(call, &mut guard, &mut timeout);
    let mut request = StampRequest::default();
    if result.is_ok() && (msg.has_control() || call.wants_stamps()) {
        // Control messages are checked as in TCP. Only control messages for timestamps have an
        // effect, because packets get their attributes from the socket and not from one call.
        let wanted = msg.stamp_request(call).and_then(StampRequest::of_bytes);
        result = wanted.map(|wanted| request = wanted);
    }
    if result.is_ok() && flags & uapi::MSG_ZEROCOPY != 0 {
        result = begin_in_place(&mut guard.locked(), msg, len);
    }
    if result.is_ok() {
        if let Some((_, connection)) = parts(&mut guard.locked()) {
            connection.queue_entry.refresh(&mut connection.engine);
        }
        // `MSG_MORE` has no effect on a send that requests a timestamp, so its packet is not held
        // back.
        let more = flags & uapi::MSG_MORE != 0 && request.is_nothing();
        result = queue_message(
            call,
            &mut guard,
            msg,
            len,
            &mut timeout,
            &mut sent,
            &mut request,
        );
        if flags & uapi::MSG_ZEROCOPY != 0 {
            msg.end_in_place(sent > 0);
        }
        let mut esp = guard.locked();
        if !request.is_nothing() {
            stamp(&mut esp, &mut request, sent);
        }
        if !is_settled(&mut esp, more, queued) {
            push(&mut esp, timer::now());
        }
    }
    drop(guard);
    match result {
        Err(e) if sent == 0 => Err(failed(call, flags, e)),
        _ => Ok(sent),
    }
}

/// Makes the bytes of a send call stay in place (`MSG_ZEROCOPY`), if the socket supports that.
#[cold]
#[inline(never)]
fn begin_in_place(esp: &mut LockedEsp<'_>, msg: &mut Message<'_>, len: usize) -> Result {
    // As in TCP, a call without bytes gets no completion notification.
    if len == 0 {
        return Ok(());
    }
    let (sock, connection) = parts(esp).ok_or(EPIPE)?;
    let last = connection.sending.last_unsent(&connection.engine);
    msg.begin_in_place(sock, len, last)
}

/// Appends a short message to the last packet, if that packet waits for the window and has room.
/// Nothing is sent in this case. This is the fast path of a program that sends without waiting for
/// answers. Returns `false`, and leaves the message untouched, if nothing was appended.
#[inline]
fn joins_last(guard: &mut Guard<'_, Esp>, msg: &mut Message<'_>, len: usize, flags: i32) -> bool {
    const USUAL: i32 = uapi::MSG_DONTWAIT | uapi::MSG_NOSIGNAL;
    let mut esp = guard.locked();
    let Some((sock, connection)) = parts(&mut esp).filter(|_| flags & !USUAL == 0) else {
        return false;
    };
    let ready = connection.engine.awaits_window()
        && connection.engine.last_takes_more()
        && !connection.sending.is_corked()
        && !msg.has_control()
        && !sock.wants_stamps()
        && has_room(sock)
        && connection.life.ended().is_none()
        && !is_stopped(sock);
    ready
        && connection
            .sending
            .join_last(&sock.shared().unacknowledged, msg, len)
}

/// Requests the timestamp in `request` for the last of the `sent` bytes of a send call. Empties
/// `request`, so that this happens once.
#[cold]
#[inline(never)]
fn stamp(esp: &mut LockedEsp<'_>, request: &mut StampRequest, sent: usize) {
    let request = mem::take(request);
    let Some((sock, connection)) = parts(esp).filter(|_| sent > 0) else {
        return;
    };
    if let Some(stamp) = request.stamp_bytes(sock, sent as u32) {
        (connection.sending).stamp_last(&mut connection.engine, &stamp);
    }
}

/// Returns the error of a send call that fails with `error`. A pending error takes precedence over
/// `EPIPE`. If the call fails with `EPIPE`, it also raises SIGPIPE.
pub(super) fn failed(call: &Call<'_, Esp>, flags: i32, error: Error) -> Error {
    if error == EPIPE {
        if let Err(pending) = call.take_error() {
            return pending;
        }
        if flags & uapi::MSG_NOSIGNAL == 0 {
            call.broken_pipe();
        }
    }
    error
}

/// Ends a send call: holds the last packet back if `more` was announced. Returns `true` if there is
/// nothing to transmit because the packet must wait for the window, behind earlier packets
/// (`queued`).
#[inline]
fn is_settled(esp: &mut LockedEsp<'_>, more: bool, queued: bool) -> bool {
    let Some((_, connection)) = parts(esp) else {
        return true;
    };
    connection
        .sending
        .cork(&mut connection.engine, more, timer::now);
    queued && !connection.sending.is_corked() && connection.engine.awaits_window()
}

/// Waits for a connection attempt in progress, and reports why sending is not possible.
// Because of the parameter `RECORDS`, streams and records each have a copy of this function, which
// is inlined into its only caller. This saves 8 instructions per message.
#[inline(always)]
pub(super) fn ready_to_send<const RECORDS: bool>(
    call: &Call<'_, Esp>,
    guard: &mut Guard<'_, Esp>,
    timeout: &mut c_long,
) -> Result {
    if is_connecting(call.tcp_state()) {
        guard.wait(call, timeout, Waiter::Shared, |esp| {
            !is_connecting(esp.sock().tcp_state())
        })?;
    }
    sendable(&mut guard.locked())
}

#[inline(always)]
pub(super) fn sendable(esp: &mut LockedEsp<'_>) -> Result {
    let sock = esp.sock();
    sock.take_error()?;
    if let Some(error) = esp.state.connection().and_then(|c| c.life.ended()) {
        return Err(error);
    }
    if sock.shutdown() & uapi::SEND_SHUTDOWN != 0 {
        return Err(EPIPE);
    }
    match sock.tcp_state() {
        s if s == TcpState::Established as u8 || s == TcpState::CloseWait as u8 => Ok(()),
        _ => Err(EPIPE),
    }
}

fn queue_message(
    call: &Call<'_, Esp>,
    guard: &mut Guard<'_, Esp>,
    msg: &mut Message<'_>,
    len: usize,
    timeout: &mut c_long,
    sent: &mut usize,
    request: &mut StampRequest,
) -> Result {
    let takes_packet = |esp: &mut LockedEsp<'_>| {
        parts(esp).is_some_and(|(sock, c)| has_room(sock) && c.engine.can_enqueue())
            && below_limit(esp, UnsentLimit::admits)
    };
    let mut looks = false;
    while *sent < len {
        // The backlog may contain a reset, or another event that ends the call.
        looks |= guard.flush_backlog();
        let mut esp = guard.locked();
        if looks {
            go_on(&mut esp, *sent)?;
        }
        looks = true;
        if !takes_packet(&mut esp) {
            grow_send_buffer(&mut esp);
            if takes_packet(&mut esp) {
                continue;
            }
            if let Some((_, connection)) = parts(&mut esp) {
                connection.sending.uncork(&mut connection.engine);
            }
            if *timeout == 0 && *sent > 0 && !request.is_nothing() {
                // The call is about to end. Its last packet is stamped now because `push` may send
                // it.
                stamp(&mut esp, request, *sent);
            }
            push(&mut esp, timer::now());
            await_room(call, guard, timeout, takes_packet)?;
            continue;
        }
        let (sock, connection) = parts(&mut esp).ok_or(EPIPE)?;
        let rest = len.saturating_sub(*sent);
        let taken = connection.sending.take(
            sock,
            &sock.shared().unacknowledged,
            &mut connection.engine,
            msg,
            rest,
        )?;
        *sent = sent.saturating_add(taken);
        if *sent < len {
            // Copying continues while packets are in flight. All but the last packet may be sent:
            // the last one must carry the message's end (rule S6), which is not queued yet.
            connection.engine.hold_last(true);
            push(&mut esp, timer::now());
        }
    }
    Ok(())
}

/// Waits until `takes` finds room in the write queue, or until the writer must give up.
pub(super) fn await_room(
    call: &Call<'_, Esp>,
    guard: &mut Guard<'_, Esp>,
    timeout: &mut c_long,
    takes: impl Fn(&mut LockedEsp<'_>) -> bool,
) -> Result {
    let waited = guard.wait(call, timeout, Waiter::Shared, |esp| {
        // Re-arm SOCK_NOSPACE: a spurious wake-up clears it.
        call.await_write_space();
        takes(esp) || is_stopped(esp.sock())
    });
    if waited == Err(EAGAIN) {
        call.want_write_space();
    }
    waited
}

/// Raises the send buffer's limit to several windows, as TCP does, so that a writer can fill one
/// window while another is in flight.
pub(super) fn grow_send_buffer(esp: &mut LockedEsp<'_>) {
    if let Some((sock, connection)) = parts(esp) {
        let wanted = WINDOWS_IN_BUFFER
            .saturating_mul(connection.engine.window().into())
            .saturating_mul(connection.sending.mss());
        let settings = &NetState::of(sock.net()).sysctl;
        settings.grow_send_buffer(sock, wanted);
    }
}

/// Returns whether a writer must give up: because of an error, or because the sending direction is
/// shut down.
pub(super) fn is_stopped(sock: &Sock<Esp>) -> bool {
    sock.has_error() || sock.shutdown() & uapi::SEND_SHUTDOWN != 0
}

/// Checks whether a call that has taken `sent` bytes continues. If `sent` is not 0, the call
/// returns that number and leaves the pending error for the next call.
fn go_on(esp: &mut LockedEsp<'_>, sent: usize) -> Result {
    if !is_stopped(esp.sock()) {
        return Ok(());
    }
    if sent > 0 {
        return Err(EPIPE);
    }
    sendable(esp)
}

/// The progress of a receive call.
struct Progress {
    copied: usize,
    /// Offset at which a peeking call starts, counted from the first unread byte, in bytes.
    offset: usize,
    /// The call may return once it has received this many bytes.
    target: usize,
    len: usize,
    flags: i32,
    /// Whether the program asked for receive timestamps.
    times: bool,
    /// The last packet that was read, kept for its timestamp.
    last: Option<Skb>,
}

impl Progress {
    /// Keeps a packet whose timestamp the call may have to report.
    #[inline]
    fn touch(&mut self, sock: &Sock<Esp>, skb: &Buffer) {
        if self.times && skb.has_time() {
            self.last = skb.try_clone(sock.task_context());
        }
    }

    fn peeks(&self) -> bool {
        self.flags & uapi::MSG_PEEK != 0
    }

    /// Returns the number of unread bytes that a peeking call has passed, or 0 if the call does not
    /// peek.
    fn passed(&self) -> usize {
        if self.peeks() {
            self.offset.saturating_add(self.copied)
        } else {
            0
        }
    }

    /// Returns whether the queue has bytes that the call has not received yet.
    fn finds_more(&self, sock: &Sock<Esp>) -> bool {
        sock.shared().unread.count() as usize > self.passed()
    }

    /// Returns whether the call can return. As in TCP, a call with a buffer of 0 bytes still waits
    /// until there are bytes.
    fn is_done(&self, sock: &Sock<Esp>) -> bool {
        if self.len == 0 {
            return self.finds_more(sock);
        }
        self.copied >= self.target
    }
}

/// Serves `recvmsg` of the error queue. Taking a report frees receive buffer space, which
/// acknowledgements may wait for.
#[cold]
#[inline(never)]
pub(super) fn take_report(sock: &Sock<Esp>, msg: &mut Message<'_>, len: usize) -> Result<usize> {
    let given = msg.put_report(sock, len, SOL_EP, EP_RECVERR)?;
    if sock.shared().unread.is_awaited() {
        acknowledge(&mut sock.lock(), false);
    }
    Ok(given)
}

/// Serves `recvmsg`: returns queued bytes, and blocks if there are none.
pub(super) fn receive(
    call: &Call<'_, Esp>,
    msg: &mut Message<'_>,
    len: usize,
    flags: i32,
) -> Result<usize> {
    if flags & uapi::MSG_ERRQUEUE != 0 {
        return take_report(call.sock(), msg, len);
    }
    if ring::is_made(call.sock()) {
        return receive_beside_ring(call, msg, len, flags);
    }
    receive_as::<false>(call, msg, len, flags)
}

/// Serves `recvmsg` of a socket with a ring.
#[cold]
#[inline(never)]
fn receive_beside_ring(
    call: &Call<'_, Esp>,
    msg: &mut Message<'_>,
    len: usize,
    flags: i32,
) -> Result<usize> {
    receive_as::<true>(call, msg, len, flags | uapi::MSG_DONTWAIT)
}

/// Returns queued bytes, of a socket with a ring if `RING`.
// The parameter spares sockets without a ring all but one of the checks.
#[inline(always)]
fn receive_as<const RING: bool>(
    call: &Call<'_, Esp>,
    msg: &mut Message<'_>,
    len: usize,
    flags: i32,
) -> Result<usize> {
    let sock = call.sock();
    let mut timeout = sock.receive_timeout(flags & uapi::MSG_DONTWAIT != 0);
    let mut progress = Progress {
        copied: 0,
        offset: sock.peek_offset().unwrap_or(0) as usize,
        target: sock.low_water(flags & uapi::MSG_WAITALL != 0, len),
        len,
        flags,
        times: sock.wants_times(),
        last: None,
    };
    sock.record_flow();
    if flags & uapi::MSG_OOB == 0 {
        poll_device(call, timeout == 0);
        await_data(call, &progress, &mut timeout)?;
    }
    let mut guard = sock.lock();
    if sock.tcp_state() == TcpState::Listen as u8 {
        return Err(ENOTCONN);
    }
    if flags & uapi::MSG_OOB != 0 {
        return Err(EINVAL);
    }
    // Another thread may have made a ring while this call slept, and the ring has the first bytes.
    if !RING && ring::is_made(sock) {
        return Err(EAGAIN);
    }
    let result = take_all::<RING>(call, &mut guard, msg, &mut progress, &mut timeout);
    if progress.copied > 0 && !progress.peeks() {
        acknowledge(&mut guard, false);
    }
    msg.report_left(sock.shared().unread.count());
    if RING {
        ring::tell(sock);
    }
    drop(guard);
    if let Some(skb) = &progress.last {
        msg.put_times(sock, skb);
    }
    match result {
        Err(e) if progress.copied == 0 => Err(e),
        _ => Ok(progress.copied),
    }
}

/// Copies queued bytes to the user until the call can return. Sleeps when no bytes are queued.
#[inline(always)]
fn take_all<const RING: bool>(
    call: &Call<'_, Esp>,
    guard: &mut Guard<'_, Esp>,
    msg: &mut Message<'_>,
    progress: &mut Progress,
    timeout: &mut c_long,
) -> Result {
    let sock = call.sock();
    loop {
        // The program takes the bytes of a ring first.
        if RING && ring::has_bytes(sock) {
            return Err(EAGAIN);
        }
        take::<RING>(guard, msg, progress)?;
        if progress.is_done(sock) {
            return Ok(());
        }
        if let Some(end) = ended(guard, progress.copied) {
            return end;
        }
        if *timeout == 0 {
            return Err(EAGAIN);
        }
        sleep(call, guard, timeout, || {
            progress.finds_more(sock) || ring::ends_wait(sock)
        })?;
        // Another thread may have made a ring while this call slept.
        if ring::is_made(sock) {
            return Err(EAGAIN);
        }
    }
}

/// Sleeps, and counts as a reader, until `wakes` returns `true` or the timeout expires.
pub(super) fn sleep(
    call: &Call<'_, Esp>,
    guard: &mut Guard<'_, Esp>,
    timeout: &mut c_long,
    wakes: impl Fn() -> bool,
) -> Result {
    acknowledge(guard, true);
    call.suppress_data_signals(true);
    guard.locked().state.add_reader();
    let waited = guard.wait(call, timeout, Waiter::Shared, |_| wakes());
    guard.locked().state.remove_reader();
    call.suppress_data_signals(false);
    waited
}

/// Polls the device for frames, if no data is queued and `SO_BUSY_POLL` requests polling.
#[inline]
pub(super) fn poll_device(call: &Call<'_, Esp>, once: bool) {
    let idle = call.receives_nothing() && call.tcp_state() == TcpState::Established as u8;
    if !idle || !call.polls_device() {
        return;
    }
    if !once && call.shared().unread.awaits_sleep() {
        // The acknowledgement is sent now, because a polling reader sends no data that could carry
        // it.
        acknowledge(&mut call.lock(), true);
    }
    call.poll_device(once);
}

/// Sleeps before the socket is locked, if nothing is queued and no acknowledgement waits for the
/// reader. In this case, the call would lock the socket only to sleep. A call that waits for more
/// than one byte does not sleep here, but in [`sleep`], where it counts as a reader.
#[inline]
fn await_data(call: &Call<'_, Esp>, progress: &Progress, timeout: &mut c_long) -> Result {
    let sock = call.sock();
    let wakes = || {
        progress.finds_more(sock) || ring::ends_wait(sock) || sock.low_water(false, usize::MAX) != 1
    };
    let idle = *timeout != 0
        && sock.tcp_state() == TcpState::Established as u8
        && !sock.shared().unread.is_awaited();
    // The other conditions of `wakes` need no check here, because `wait` checks them before it
    // sleeps.
    if !idle || progress.finds_more(sock) {
        return Ok(());
    }
    call.suppress_data_signals(true);
    let waited = call.wait(timeout, wakes);
    call.suppress_data_signals(false);
    waited
}

/// Returns the result of a receive call that has copied `copied` bytes, if no more data can arrive.
pub(super) fn ended(guard: &mut Guard<'_, Esp>, copied: usize) -> Option<Result> {
    let esp = guard.locked();
    let sock = esp.sock();
    if copied > 0 && (sock.has_error() || sock.shutdown() & uapi::RCV_SHUTDOWN != 0) {
        return Some(Ok(()));
    }
    let connection = esp.state.connection();
    if connection.as_ref().is_some_and(|c| c.receiving.has_ended()) {
        return Some(Ok(()));
    }
    if let Err(e) = sock.take_error() {
        return Some(Err(e));
    }
    if let Some(error) = connection.and_then(|c| c.life.ended()) {
        return Some(Err(error));
    }
    if sock.shutdown() & uapi::RCV_SHUTDOWN != 0 {
        return Some(Ok(()));
    }
    if sock.tcp_state() == TcpState::Close as u8 {
        return Some(Err(ENOTCONN));
    }
    None
}

/// Copies queued bytes to the user, and frees the buffers that were read.
#[inline(always)]
fn take<const RING: bool>(
    guard: &mut Guard<'_, Esp>,
    msg: &mut Message<'_>,
    progress: &mut Progress,
) -> Result {
    if progress.peeks() {
        return peek(guard, msg, progress);
    }
    let sock = guard.sock();
    while progress.copied < progress.len {
        let mut esp = guard.locked();
        let Some(skb) = esp.receive_queue().first_mut() else {
            break;
        };
        let bytes: Unread = skb.note();
        let there = bytes.len();
        let copied = copy(sock, msg, skb, bytes.start as usize, there, progress)?;
        progress.touch(sock, skb);
        sock.shared().unread.sub(copied);
        if copied == there {
            if let Some(skb) = esp.receive_queue().pop() {
                skb.consume();
            }
            if RING && ring::is_next(sock) {
                break;
            }
            guard.flush_backlog();
        } else {
            skb.set_note(bytes.after(copied));
        }
    }
    Ok(())
}

/// Copies queued bytes like [`take`], but leaves the queue unchanged.
fn peek(guard: &mut Guard<'_, Esp>, msg: &mut Message<'_>, progress: &mut Progress) -> Result {
    let sock = guard.sock();
    let mut skip = progress.passed();
    for skb in guard.locked().receive_queue().iter() {
        if progress.copied >= progress.len {
            break;
        }
        let bytes: Unread = skb.note();
        let there = bytes.len();
        let skipped = skip.min(there);
        skip = skip.saturating_sub(skipped);
        copy(
            sock,
            msg,
            skb,
            bytes.after(skipped).start as usize,
            there.saturating_sub(skipped),
            progress,
        )?;
        progress.touch(sock, skb);
    }
    Ok(())
}

/// Copies to the user at most `there` bytes of `skb`, which are its unread bytes from offset
/// `start` on. With `MSG_TRUNC`, discards the bytes instead, as in TCP.
#[inline]
fn copy(
    sock: &Sock<Esp>,
    msg: &mut Message<'_>,
    skb: &Buffer,
    start: usize,
    there: usize,
    progress: &mut Progress,
) -> Result<usize> {
    let n = there.min(progress.len.saturating_sub(progress.copied));
    if progress.flags & uapi::MSG_TRUNC == 0 {
        msg.put(skb, start, n)?;
    }
    progress.copied = progress.copied.saturating_add(n);
    sock.move_peek_offset(progress.peeks(), n);
    Ok(n)
}

/// Releases acknowledgements that wait until the reader makes room. If `sleeping`, also releases
/// acknowledgements that wait for data to carry them.
#[inline(always)]
pub(super) fn acknowledge(guard: &mut Guard<'_, Esp>, sleeping: bool) {
    let waits = parts(&mut guard.locked()).is_some_and(|(sock, connection)| {
        let engine = &connection.engine;
        engine.waits_for_room()
            || engine
                .wanted_room()
                .is_some_and(|wanted| may_grow(sock, wanted))
            || sleeping && engine.waits_for_sleep()
    });
    if waits {
        acknowledge_now(guard, sleeping);
    }
}

/// Returns whether the receive buffer may grow towards `wanted` bytes. At its limit it cannot, and
/// the engine still wants more.
#[cold]
#[inline(never)]
fn may_grow(sock: &Sock<Esp>, wanted: u32) -> bool {
    let settings = &NetState::of(sock.net()).sysctl;
    settings.may_grow_receive_buffer(sock, wanted)
}

/// Releases the acknowledgements that [`acknowledge`] has found.
#[inline(never)]
fn acknowledge_now(guard: &mut Guard<'_, Esp>, sleeping: bool) {
    // The backlog is processed first, so that the acknowledgement covers packets that arrived
    // during the copy.
    guard.flush_backlog();
    let mut esp = guard.locked();
    let Some((sock, connection)) = parts(&mut esp) else {
        return;
    };
    let engine = &mut connection.engine;
    if let Some(wanted) = engine.wanted_room() {
        NetState::of(sock.net())
            .sysctl
            .grow_receive_buffer(sock, wanted);
    }
    let flush = sleeping && engine.waits_for_sleep();
    if !flush && !engine.waits_for_room() {
        return;
    }
    let now = timer::now();
    let room = connection.room(sock, 0);
    connection.engine.on_read(room, now);
    if flush {
        connection.engine.flush_ack();
    }
    push(&mut esp, now);
}
