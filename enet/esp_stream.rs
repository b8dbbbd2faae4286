// SPDX-License-Identifier: GPL-2.0

//! Bytes into and out of an ESP connection.

use crate::net::errno::prelude::*;
use crate::{
    esp::HEADER_LEN,
    esp_connection::{self, Stream, FALL_ASLEEP},
    esp_output,
    esp_socket::Esp,
    esp_turns,
    family::{EP_RECVERR, SOL_EP},
    net::{
        message::Message,
        skb::{Buffer, Context, Note, Processor, Skb},
        sock::{Guard, Sock, TcpState},
        timer, uapi,
        wait::Waiter,
    },
};
use core::sync::atomic::Ordering::Relaxed;

/// For how long `MSG_MORE` holds the last packet back, as with TCP.
const CORK_NANOS: u64 = 200_000_000;

/// Lets go what `MSG_MORE` held back; the caller transmits.
pub(crate) fn uncork(stream: &mut Stream) {
    stream.corked = u64::MAX;
    stream.connection.hold_last(false);
}

/// What was announced by `MSG_MORE` does not come.
pub(crate) fn no_more(sock: &Sock<Esp>) {
    let mut guard = sock.lock();
    let (sock, stream) = guard.parts();
    if stream.corked != u64::MAX {
        uncork(stream);
        push(sock, stream);
    }
}

/// Holds the last packet back at the end of a call that announced `more`, or lets it go. A full one
/// would gain nothing by waiting.
fn cork(sock: &Sock<Esp>, stream: &mut Stream, more: bool) {
    let mss = stream.mss as usize;
    let fills = |skb: &Buffer| skb.len() < mss;
    if !more || !sock.write_queue().last().is_some_and(fills) {
        uncork(stream);
        return;
    }
    stream.connection.hold_last(true);
    if stream.corked == u64::MAX {
        stream.corked = timer::now().saturating_add(CORK_NANOS);
    }
}

/// Payload bytes that have never left.
pub(crate) fn unsent(guard: &mut Guard<'_, Esp>) -> u32 {
    let (sock, stream) = guard.parts();
    let queue = sock.write_queue();
    let connection = &stream.connection;
    let mut sent = connection.unacked().saturating_sub(connection.unsent());
    let mut bytes = 0_u32;
    let mut next = queue.first();
    while let Some(skb) = next {
        if sent == 0 {
            bytes = bytes.saturating_add(skb.len() as u32);
        }
        sent = sent.saturating_sub(1);
        next = queue.after(skb);
    }
    bytes
}

/// Ends the own half of the stream: a FIN follows what is queued.
pub(crate) fn finish_sending(sock: &Sock<Esp>, stream: &mut Stream) {
    let now = timer::now();
    uncork(stream);
    stream.connection.close_send(now);
    esp_connection::set_state(sock, esp_connection::tcp_state(stream.connection.state()));
    esp_output::transmit(sock, stream, now);
}

/// `sendmsg`: one call, one message (S1), as much of it as fits or as time allows.
pub(crate) fn send(sock: &Sock<Esp>, msg: &mut Message<'_>, len: usize) -> Result<usize> {
    let flags = msg.flags();
    if flags & uapi::MSG_OOB != 0 {
        return Err(EOPNOTSUPP);
    }
    let mut timeout = sock.send_timeout(flags & uapi::MSG_DONTWAIT != 0);
    let mut guard = sock.lock();
    let mut sent = 0;
    let mut result = ready_to_send(&mut guard, &mut timeout);
    if result.is_ok() && msg.has_control() {
        // Checked as TCP does; its packets are the socket's, not one call's.
        result = msg.wishes(sock).map(drop);
    }
    esp_turns::refresh(guard.state());
    if result.is_ok() {
        result = queue_message(&mut guard, msg, len, &mut timeout, &mut sent);
        let (sk, stream) = guard.parts();
        cork(sk, stream, flags & uapi::MSG_MORE != 0);
        push(sk, stream);
    }
    drop(guard);
    match result {
        Err(e) if sent == 0 => {
            if e == EPIPE {
                sock.take_error()?;
                if flags & uapi::MSG_NOSIGNAL == 0 {
                    sock.broken_pipe();
                }
            }
            Err(e)
        }
        _ => Ok(sent),
    }
}

/// Waits for a connection attempt that is under way, and reports why sending is not possible.
fn ready_to_send(guard: &mut Guard<'_, Esp>, timeout: &mut kernel::ffi::c_long) -> Result {
    let sock = guard.sock();
    if sock.tcp_state() == TcpState::SynSent as u8 {
        guard.wait(timeout, Waiter::Shared, |sock, _| {
            sock.tcp_state() != TcpState::SynSent as u8
        })?;
    }
    sendable(sock, guard.state())
}

fn sendable(sock: &Sock<Esp>, stream: &Stream) -> Result {
    sock.take_error()?;
    if let Some(error) = stream.ended {
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

/// Sends what the engine lets go now.
#[inline]
fn push(sock: &Sock<Esp>, stream: &mut Stream) {
    esp_output::transmit(sock, stream, timer::now());
}

fn queue_message(
    guard: &mut Guard<'_, Esp>,
    msg: &mut Message<'_>,
    len: usize,
    timeout: &mut kernel::ffi::c_long,
    sent: &mut usize,
) -> Result {
    while *sent < len {
        guard.flush_backlog();
        let (sock, stream) = guard.parts();
        // A reset or the like may have come with it.
        go_on(sock, stream, *sent)?;
        let has_room = |sock: &Sock<Esp>, stream: &Stream| {
            sock.write_queued().load(Relaxed) < sock.send_limit() && stream.connection.can_enqueue()
        };
        if !has_room(sock, stream) {
            uncork(stream);
            push(sock, stream);
            let waited = guard.wait(timeout, Waiter::Shared, |sock, stream| {
                // The wish is used up by a wake-up that came too early.
                sock.await_write_space();
                has_room(sock, stream) || is_stopped(sock)
            });
            if waited == Err(EAGAIN) {
                sock.want_write_space();
            }
            waited?;
            continue;
        }
        let rest = len.saturating_sub(*sent);
        let taken = match extend_last(sock, stream, msg, rest)? {
            0 => append(sock, stream, msg, rest)?,
            taken => taken,
        };
        *sent = sent.saturating_add(taken);
        let unacknowledged = &sock.shared().unacknowledged;
        unacknowledged.store(
            unacknowledged.load(Relaxed).wrapping_add(taken as u32),
            Relaxed,
        );
        if *sent == len && ends_record(msg) {
            stream.connection.seal_last();
        }
        if *sent < len {
            // Copying on beside what is on its way: all but the last packet may leave, which
            // would otherwise have to say that the message ends with it (S6).
            stream.connection.hold_last(true);
            push(sock, stream);
        }
    }
    Ok(())
}

/// Whether a writer has a reason to give up.
fn is_stopped(sock: &Sock<Esp>) -> bool {
    sock.has_error() || sock.shutdown() & uapi::SEND_SHUTDOWN != 0
}

/// Whether a call that has taken `sent` bytes so far goes on. If it has taken any it will report
/// these, and the pending error is left for the next call.
fn go_on(sock: &Sock<Esp>, stream: &Stream, sent: usize) -> Result {
    if !is_stopped(sock) {
        return Ok(());
    }
    if sent > 0 {
        return Err(EPIPE);
    }
    sendable(sock, stream)
}

/// Appends to the last packet while that has never left and has room (S5). Returns the bytes
/// taken.
#[inline]
fn extend_last(
    sock: &Sock<Esp>,
    stream: &Stream,
    msg: &mut Message<'_>,
    rest: usize,
) -> Result<usize> {
    if !stream.connection.last_takes_more() {
        return Ok(0);
    }
    let mss = stream.mss as usize;
    sock.write_queue()
        .with_last(|skb| {
            // One that was cut may share its bytes with what left before.
            if skb.is_cloned() {
                return Ok(0);
            }
            let room = skb.tailroom().min(mss.saturating_sub(skb.len()));
            let take = rest.min(room);
            if take > 0 {
                skb.put_from(msg, take)?;
            }
            Ok(take)
        })
        .unwrap_or(Ok(0))
}

/// Whether nothing may join the call's last packet, as with TCP.
#[inline]
fn ends_record(msg: &Message<'_>) -> bool {
    msg.flags() & uapi::MSG_EOR != 0
}

/// Queues a new packet. Returns the bytes taken.
#[inline]
fn append(
    sock: &Sock<Esp>,
    stream: &mut Stream,
    msg: &mut Message<'_>,
    rest: usize,
) -> Result<usize> {
    let take = rest.min(stream.mss as usize);
    // A packet that cannot leave at once gets room for what may still join it.
    let size = if stream.connection.last_is_unsent() && !ends_record(msg) {
        stream.mss as usize
    } else {
        take
    };
    let headroom = stream.headroom.saturating_add(HEADER_LEN);
    let spare = stream.spares.take(headroom, size);
    let mut skb = spare
        .or_else(|| Skb::alloc(headroom, size, Context::Task))
        .ok_or(ENOBUFS)?;
    skb.put_from(msg, take)?;
    skb.release_header();
    skb.set_note(Note {
        seq: stream.connection.next_number().0,
        ..Note::default()
    });
    if stream.connection.unacked() == 0 {
        stream.processor = Processor::current();
    }
    esp_output::charge(sock, &skb);
    sock.write_queue().push(skb);
    stream.connection.enqueue();
    Ok(take)
}

/// How far a receive call has come.
struct Progress {
    copied: usize,
    /// Where a look starts, from the first unread byte.
    offset: usize,
    /// Enough to return with.
    target: usize,
    len: usize,
    flags: i32,
    /// Whether the caller wants to learn when the packets came, and the last one that was read.
    times: bool,
    last: Option<Skb>,
}

impl Progress {
    /// Remembers a packet for its time.
    #[inline]
    fn touch(&mut self, skb: &Buffer) {
        if self.times && skb.has_time() {
            self.last = skb.try_clone(Context::Task);
        }
    }

    fn peeks(&self) -> bool {
        self.flags & uapi::MSG_PEEK != 0
    }

    /// Bytes of the queue that the call is past, and leaves there.
    fn passed(&self) -> usize {
        if self.peeks() {
            self.offset.saturating_add(self.copied)
        } else {
            0
        }
    }

    /// Whether there is something that the call has not got yet.
    fn finds_more(&self, sock: &Sock<Esp>) -> bool {
        sock.shared().readable.load(Relaxed) as usize > self.passed()
    }

    /// Whether the call returns with what it has got. One that asks for nothing still waits until
    /// there is something, as TCP's does.
    fn is_done(&self, sock: &Sock<Esp>) -> bool {
        if self.len == 0 {
            return self.finds_more(sock);
        }
        self.copied >= self.target
    }
}

/// `recvmsg`: the bytes that are there, or after a wait the ones that come.
pub(crate) fn receive(
    sock: &Sock<Esp>,
    msg: &mut Message<'_>,
    len: usize,
    flags: i32,
) -> Result<usize> {
    if flags & uapi::MSG_ERRQUEUE != 0 {
        return msg.put_report(sock, len, SOL_EP, EP_RECVERR);
    }
    let mut timeout = sock.receive_timeout(flags & uapi::MSG_DONTWAIT != 0);
    let mut progress = Progress {
        copied: 0,
        offset: sock.peek_offset(),
        target: sock.low_water(flags & uapi::MSG_WAITALL != 0, len),
        len,
        flags,
        times: sock.wants_times(),
        last: None,
    };
    if flags & uapi::MSG_OOB == 0 {
        poll_device(sock, timeout == 0);
        await_data(sock, &progress, &mut timeout)?;
    }
    let mut guard = sock.lock();
    if sock.tcp_state() == TcpState::Listen as u8 {
        return Err(ENOTCONN);
    }
    if flags & uapi::MSG_OOB != 0 {
        return Err(EINVAL);
    }
    let result = loop {
        if let Err(e) = take(&mut guard, msg, &mut progress) {
            break Err(e);
        }
        if progress.is_done(sock) {
            break Ok(());
        }
        if let Some(end) = ended(&mut guard, progress.copied) {
            break end;
        }
        if timeout == 0 {
            break Err(EAGAIN);
        }
        acknowledge(&mut guard, true);
        sock.hush_data_signals(true);
        guard.state().readers = guard.state().readers.wrapping_add(1);
        let waited = guard.wait(&mut timeout, Waiter::Shared, |sock, _| {
            progress.finds_more(sock) || is_over(sock)
        });
        guard.state().readers = guard.state().readers.saturating_sub(1);
        sock.hush_data_signals(false);
        if waited.is_err() {
            break waited;
        }
    };
    if progress.copied > 0 && !progress.peeks() {
        acknowledge(&mut guard, false);
    }
    msg.report_left(sock.shared().readable.load(Relaxed));
    drop(guard);
    if let Some(skb) = &progress.last {
        msg.put_times(sock, skb);
    }
    match result {
        Err(e) if progress.copied == 0 => Err(e),
        _ => Ok(progress.copied),
    }
}

/// Whether a reader has a reason to give up.
fn is_over(sock: &Sock<Esp>) -> bool {
    sock.has_error()
        || sock.shutdown() & uapi::RCV_SHUTDOWN != 0
        || sock.tcp_state() == TcpState::Close as u8
}

/// Has the reader take in frames from the device itself, if nothing has come and `SO_BUSY_POLL` asks
/// for it.
#[inline]
fn poll_device(sock: &Sock<Esp>, once: bool) {
    let idle =
        sock.receive_queue().is_empty() && sock.tcp_state() == TcpState::Established as u8;
    if !idle || !sock.polls_device() {
        return;
    }
    if !once && sock.shared().awaited.load(Relaxed) & FALL_ASLEEP != 0 {
        // A reader that polls sends nothing that could carry it.
        acknowledge(&mut sock.lock(), true);
    }
    sock.poll_device(once);
}

/// Sleeps before the socket is locked, if that is all a call would do with it: nothing has come, and
/// nothing waits for the reader to fall asleep. Who waits for more than a byte tells so under the
/// lock.
#[inline]
fn await_data(sock: &Sock<Esp>, progress: &Progress, timeout: &mut kernel::ffi::c_long) -> Result {
    let wakes =
        || progress.finds_more(sock) || is_over(sock) || sock.low_water(false, usize::MAX) != 1;
    let idle = *timeout != 0
        && sock.tcp_state() == TcpState::Established as u8
        && sock.shared().awaited.load(Relaxed) == 0;
    if !idle || wakes() {
        return Ok(());
    }
    sock.hush_data_signals(true);
    let waited = sock.wait(timeout, wakes);
    sock.hush_data_signals(false);
    waited
}

/// Whether nothing more can come: with what the call then returns.
fn ended(guard: &mut Guard<'_, Esp>, copied: usize) -> Option<Result> {
    let (sock, stream) = guard.parts();
    if copied > 0 && (sock.has_error() || sock.shutdown() & uapi::RCV_SHUTDOWN != 0) {
        return Some(Ok(()));
    }
    if stream.peer_ended {
        return Some(Ok(()));
    }
    if let Err(e) = sock.take_error() {
        return Some(Err(e));
    }
    if let Some(error) = stream.ended {
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

/// Copies queued bytes to the user, and frees what has been read.
fn take(guard: &mut Guard<'_, Esp>, msg: &mut Message<'_>, progress: &mut Progress) -> Result {
    let (sock, _) = guard.parts();
    let queue = sock.receive_queue();
    let mut skip = progress.passed();
    let mut next = queue.first();
    while let Some(skb) = next {
        if progress.copied >= progress.len {
            break;
        }
        let start = skb.note().taken as usize;
        let there = skb.len().saturating_sub(start);
        if progress.peeks() {
            let skipped = skip.min(there);
            skip = skip.saturating_sub(skipped);
            copy(
                sock,
                msg,
                skb,
                start.saturating_add(skipped),
                there.saturating_sub(skipped),
                progress,
            )?;
            progress.touch(skb);
            next = queue.after(skb);
            continue;
        }
        let copied = copy(sock, msg, skb, start, there, progress)?;
        progress.touch(skb);
        let readable = &sock.shared().readable;
        readable.store(readable.load(Relaxed).wrapping_sub(copied as u32), Relaxed);
        if copied == there {
            if let Some(skb) = queue.pop() {
                skb.consume();
            }
            guard.flush_backlog();
            next = queue.first();
        } else {
            queue.with(skb, |skb| {
                let mut note = skb.note();
                note.taken = note.taken.saturating_add(copied as u32);
                skb.set_note(note);
            });
        }
    }
    Ok(())
}

/// Copies up to `there` bytes from `start` on; with `MSG_TRUNC` they are thrown away, as TCP does.
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

/// Lets acknowledgements go that waited for room, and with `sleeping` those that waited for data
/// to carry them.
#[inline]
fn acknowledge(guard: &mut Guard<'_, Esp>, sleeping: bool) {
    let (sock, stream) = guard.parts();
    let flush = sleeping && stream.connection.waits_for_data();
    if !flush && !stream.connection.waits_for_room() {
        return;
    }
    let now = timer::now();
    let room = stream.room(sock, 0);
    stream.connection.on_read(room, now);
    if flush {
        stream.connection.flush_ack();
    }
    esp_output::transmit(sock, stream, now);
}
