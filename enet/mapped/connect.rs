// SPDX-License-Identifier: GPL-2.0

//! Chooses the protocol for a connection that a mapped socket opens.
//!
//! ESP is tried if the peer is on the local Ethernet and has reported that it accepts mapped
//! connections. If this host has not queried the peer, the attempt waits for the peer's answer
//! ([`plan`]). If the peer refuses ESP's SYN, or does not answer it, TCP's SYN is sent. Until the
//! protocol is chosen, neither protocol serves calls, because the program is still connecting.
//!
//! Only calls on the socket take these steps: `connect`, `poll`, and other calls that wait for the
//! connection. An event that makes a step possible wakes the calls that sleep.

use super::{
    carriers::Carrier,
    plan::{plan, Course, Mapped, Plan, Query, Wait},
    state::{Attempt, Deadlines, Phase, Record},
};
use crate::net::errno::prelude::*;
use crate::{
    esp,
    net::{
        family::Operations,
        inet::{Backend, Companion, InternetEnd, Parts, StreamCall},
        namespace::PerNet,
        rcu,
        sock::TcpState,
        softirq, timer,
    },
    pernet::NetState,
    statistics::Statistic,
    stream::{
        outcome::is_connecting,
        sock::{key, Esp, Shared},
        socket,
    },
};
use core::mem;
use kernel::ffi::c_long;

/// Maximum number of times that one call of [`look`] examines the attempt. The second time is
/// needed after the attempt begins to wait for the host's answer, and the third if the host's
/// Ethernet address changes.
const LOOKS: u32 = 3;

/// A socket address of no address family, as long as a `sockaddr_in6`.
const NOWHERE: [u8; 28] = [0xff; 28];

/// Why ESP's SYN is not sent.
enum Failure {
    /// TCP carries the connection; the statistic counts the reason.
    Tcp(Statistic),
    /// `connect` fails.
    Error(Error),
}

impl From<Statistic> for Failure {
    fn from(reason: Statistic) -> Self {
        Failure::Tcp(reason)
    }
}

/// Serves `connect` to an address.
pub(super) fn connect<M: Mapped>(
    call: &StreamCall<'_, M>,
    name: &[u8],
    nonblocking: bool,
) -> Result {
    if let Some(companion) = call.companion() {
        M::look_at_listener(call, companion);
        settle(call, companion);
        // Whenever `io_uring` is woken, it calls `connect` again. These calls do not block, even on
        // a blocking descriptor. `io_uring` treats the attempt as still in progress only if they
        // return `EINPROGRESS`.
        let by_ring = nonblocking && call.blocks();
        let pending = if by_ring { EINPROGRESS } else { EALREADY };
        match companion.record.phase() {
            Phase::Tcp | Phase::Fallback if is_connecting(call.sock().tcp_state()) => {
                return match call.connect(name, nonblocking) {
                    Err(EALREADY) => Err(pending),
                    other => other,
                };
            }
            Phase::Tcp | Phase::Fallback => {}
            Phase::Listening => return call.connect(name, nonblocking),
            Phase::Asking | Phase::Connecting => return finish(call, nonblocking, pending),
            Phase::Esp if companion.record.tell() => return Err(EISCONN),
            Phase::Esp => return Ok(()),
        }
    }
    if call.sock().tcp_state() != TcpState::Close as u8 || !call.is_unconnected() {
        return call.connect(name, nonblocking);
    }
    let mut query = None;
    let attempted = attempt(call, name, &mut query);
    let net = call.sock().net();
    let net_state = NetState::of(net);
    let connected = match attempted {
        Err(Failure::Error(error)) => Err(error),
        Ok(()) => {
            // The query is sent before `finish` sleeps, because another call may wait for the
            // answer.
            if let Some(query) = query.take() {
                query.send(net_state, net);
            }
            let failed = call.companion().is_some_and(has_failed);
            // As in TCP, a nonblocking call returns `EINPROGRESS` even if the connection is already
            // open.
            if nonblocking && !failed {
                Err(EINPROGRESS)
            } else {
                finish(call, nonblocking, EINPROGRESS)
            }
        }
        Err(Failure::Tcp(reason)) => {
            // If another call has begun to connect, that call notes the reason.
            if call.is_unconnected() {
                note_tcp(call, reason);
            }
            call.connect(name, nonblocking)
        }
    };
    // The query is sent last, so that it does not delay TCP's SYN.
    if let Some(query) = query {
        query.send(net_state, net);
    }
    connected
}

/// Returns whether the attempt has ended with an error, and not because TCP connects instead.
fn has_failed<M: Mapped>(companion: &Companion<M>) -> bool {
    let record = &companion.record;
    let has_ended = |attempt: &Attempt| attempt.stands().is_err();
    record.phase() == Phase::Tcp && record.decide().as_ref().is_some_and(has_ended)
}

/// Sends ESP's SYN, or begins to wait for the host. If `query` is set on return, the caller must
/// send this query.
fn attempt<M: Mapped>(
    call: &StreamCall<'_, M>,
    name: &[u8],
    query: &mut Option<Query>,
) -> Result<(), Failure> {
    let mut deadlines = Deadlines::default();
    let course = plan(call, name, &mut deadlines, query)?;
    let failed = |_| Statistic::MappedTcpError;
    let companion = call
        .accompany(0, || {
            Ok(Parts {
                shared: Shared::default(),
                record: Record::new(false)?,
            })
        })
        .map_err(failed)?;
    let record = &companion.record;
    let sock = companion.sock();
    if sock.shared().front.is_some() {
        // The companion, which is the ESP socket of the descriptor, was created when the socket
        // listened (`front`). Such a companion cannot open a connection.
        return Err(Failure::Tcp(Statistic::MappedTcpOption));
    }
    NetState::of(sock.net()).sysctl.limit_buffers(sock);
    let mut attempt = record.decide();
    // Another call may have taken the outcome of an earlier attempt.
    end_fallback(call, companion, &attempt);
    if record.phase() != Phase::Tcp {
        // Another call has begun an attempt; this one waits for the same connection.
        return Ok(());
    }
    if call.ordered_state() != TcpState::Close as u8 || call.sock().shutdown() != 0 {
        // The socket listens or connects over TCP, or has failed to. So leave the call to TCP's
        // `connect`, which returns the right error. Or the socket was shut down before it was
        // connected, which holds for TCP's connection.
        return Err(Failure::Tcp(Statistic::MappedTcpError));
    }
    record.begin_attempt();
    if let Some((to, scope)) = InternetEnd::parse(name, call.is_v6()) {
        if to.is_link_local() && scope != 0 && !call.bind_to_device(scope) {
            // Another call has bound the socket since. TCP's `connect` returns the error.
            return Err(Failure::Tcp(Statistic::MappedTcpError));
        }
    }
    match course {
        Course::Open(plan) => {
            open(call, companion, &plan, false)?;
            *attempt = Some(Attempt::new(name, plan.to));
            call.set_asked(true);
        }
        Course::Wait(wait) => {
            let begun = attempt.insert(Attempt::new(name, wait.to()));
            begun.deadlines = deadlines;
            call.set_asked(true);
            if let Err(failure) = ask(call, companion, begun, &wait, query.take()) {
                // Another call may already wait for the attempt, so the attempt must be ended.
                give_up_asking(call, companion, &mut attempt, failure);
            }
        }
    }
    Ok(())
}

/// Sends ESP's SYN. `has_port` says that the source port was taken by [`take_port`], and not chosen
/// by the program.
fn open<'a, M: Mapped>(
    call: &StreamCall<'a, M>,
    companion: &'a Companion<M>,
    plan: &Plan,
    has_port: bool,
) -> Result<(), Failure> {
    let sock = companion.sock();
    let chosen = plan.ends.source.port;
    let mut guard = sock.lock();
    guard.locked().state.mapped = Some(plan.ends);
    if chosen != 0 {
        sock.shared().binding.fix(chosen);
    }
    drop(guard);
    // The phase is set first, because the peer's answer may wake calls before `Esp::connect`
    // returns. In this phase, woken calls wait for the mutex that this call holds, which protects
    // the choice of the protocol.
    let before = companion.record.phase();
    companion.record.set_phase(Phase::Connecting);
    match Esp::connect(&call.on(companion), &plan.to.emit(), true) {
        Ok(()) | Err(EINPROGRESS) => return Ok(()),
        Err(error) => {
            companion.record.set_phase(before);
            if chosen != 0 {
                // The port belongs to TCP's socket, so ESP's socket must not release it.
                sock.shared().binding.mark_released();
            }
            // `connect` fails if the program chose a port that already has a connection with this
            // destination.
            let refuses = error == EADDRNOTAVAIL && !has_port;
            if refuses && has_connection(NetState::of(sock.net()), chosen, plan) {
                return Err(Failure::Error(EADDRNOTAVAIL));
            }
        }
    }
    Err(Failure::Tcp(Statistic::MappedTcpError))
}

/// Begins to wait for the host. Then examines the attempt, because the awaited event may already
/// have occurred.
#[cold]
fn ask<'a, M: Mapped>(
    call: &StreamCall<'a, M>,
    companion: &'a Companion<M>,
    attempt: &mut Attempt,
    wait: &Wait,
    query: Option<Query>,
) -> Result<(), Failure> {
    let sock = companion.sock();
    sock.lock().locked().state.mapped = Some(wait.ends);
    // Discards the events and the error of an earlier attempt.
    let _ = sock.take_error();
    let asking = &sock.shared().asking;
    let _ = asking.take_news();
    attend(companion, wait, query)?;
    NetState::of(sock.net())
        .statistics
        .count(Statistic::MappedWaits);
    companion.record.set_phase(Phase::Asking);
    look(call, companion, attempt)
}

/// Lists the ESP socket of `companion` for the event that `wait` names, and sends `query`. If this
/// event is the resolution of the host's Ethernet address, also starts the resolution. Returns
/// `false` if the socket was already listed for this event.
fn attend<M: Mapped>(
    companion: &Companion<M>,
    wait: &Wait,
    query: Option<Query>,
) -> Result<bool, Failure> {
    let sock = companion.sock();
    let net_state = NetState::of(sock.net());
    let entered = net_state.mapped_askers.enter(sock, wait.awaited);
    if entered == Ok(true) {
        sock.arm_timer(wait.until);
        wait.resolve(sock.net());
    }
    if let Some(query) = query {
        query.send(net_state, sock.net());
    }
    entered.map_err(|_| Failure::Tcp(wait.reason()))
}

/// Examines an attempt that waits for the host: sends ESP's SYN if the wait is over, or begins the
/// next wait.
fn look<'a, M: Mapped>(
    call: &StreamCall<'a, M>,
    companion: &'a Companion<M>,
    attempt: &mut Attempt,
) -> Result<(), Failure> {
    let sock = companion.sock();
    let net_state = NetState::of(sock.net());
    for _ in 0..LOOKS {
        let mut query = None;
        let mut deadlines = attempt.deadlines;
        let course = plan(call, attempt.name(), &mut deadlines, &mut query);
        attempt.deadlines = deadlines;
        let result = match course {
            Ok(Course::Wait(wait)) => {
                attempt.to = wait.to();
                if attend(companion, &wait, query.take())? {
                    // The event may have occurred before the socket was listed for it.
                    continue;
                }
                Ok(())
            }
            Ok(Course::Open(plan)) => {
                net_state.mapped_askers.leave(sock);
                attempt.to = plan.to;
                open(call, companion, &plan, attempt.has_port)
            }
            Err(reason) => Err(Failure::Tcp(reason)),
        };
        if let Some(query) = query {
            query.send(net_state, sock.net());
        }
        return result;
    }
    // If an event was missed, the timer still wakes the attempt.
    Ok(())
}

/// Takes a port for an attempt that waits for the host, because the program asks for the socket's
/// name. TCP's `connect` would already have taken a port. If no port is free, the port in the name
/// is 0.
#[cold]
pub(super) fn take_port<M: Mapped>(call: &StreamCall<'_, M>, companion: &Companion<M>) {
    let record = &companion.record;
    let mut attempt = record.decide();
    let Some(asking) = &mut *attempt else {
        return;
    };
    if record.phase() == Phase::Asking && call.take_port() {
        asking.has_port = true;
        let mut guard = companion.sock().lock();
        if let Some(ends) = &mut guard.locked().state.mapped {
            ends.source.port = call.own_end().port;
        }
    }
}

/// Releases the port that [`take_port`] took for the attempt, because TCP does not repeat the
/// attempt.
pub(super) fn release_port<M: Mapped>(call: &StreamCall<'_, M>, attempt: &mut Option<Attempt>) {
    if let Some(Attempt { has_port, .. }) = attempt {
        if mem::take(has_port) {
            call.release_port();
        }
    }
}

/// Returns whether the connection of `plan` from port `own` is open already. ESP looks up
/// connections by ports and Ethernet addresses. So the lookup may find a different connection: one
/// between other IP addresses, or one that is not mapped.
#[cold]
fn has_connection(net_state: &NetState, own: u16, plan: &Plan) -> bool {
    softirq::disabled(|softirq| {
        let section = rcu::Read::enter();
        let Some(other) = net_state
            .esp_connections
            .find(&key(own, &plan.to), &section)
        else {
            return false;
        };
        let mut guard = other.lock_bh(softirq);
        let Some(esp) = guard.locked() else {
            // A call owns the socket and may be opening the connection, so count it as open.
            return true;
        };
        let ends = esp.state.mapped;
        ends == Some(plan.ends) || ends == Some(plan.ends.swapped())
    })
}

/// Waits for the connection on behalf of `connect`. Returns `pending` if the call may not wait, or
/// if the timeout expires.
fn finish<M: Mapped>(call: &StreamCall<'_, M>, nonblocking: bool, pending: Error) -> Result {
    let companion = call.companion().ok_or(EINVAL)?;
    let mut left = call.sock().send_timeout(nonblocking);
    match M::await_backend(call, companion, &mut left) {
        Ok(Backend::Companion) => {
            companion.record.tell();
            Ok(())
        }
        Ok(_) => finish_by_tcp(call, companion, &mut left, pending),
        Err(EAGAIN) => Err(pending),
        Err(error) => Err(error),
    }
}

/// Waits until TCP's attempt ends, at most for the rest of the timeout. Another call may end the
/// attempt.
fn finish_by_tcp<M: Mapped>(
    call: &StreamCall<'_, M>,
    companion: &Companion<M>,
    left: &mut c_long,
    pending: Error,
) -> Result {
    let record = &companion.record;
    let waited = call.wait(left, || !is_connecting(call.sock().tcp_state()));
    let attempt = record.decide();
    if !matches!(record.phase(), Phase::Tcp | Phase::Fallback) {
        // Another call has taken the outcome and begun a new attempt. TCP's `connect` would change
        // the state of the descriptor, which belongs to that attempt.
        return Err(EPIPE);
    }
    let begun = attempt.as_ref().ok_or(ECONNABORTED)?;
    if let Err(error) = begun.stands() {
        // This call reports the error, so later calls must not report it: TCP's `connect` takes it,
        // and the one after that begins a new attempt. Another call may already have done so.
        let is_reported = call.is_unconnected() || call.ordered_state() != TcpState::Close as u8;
        if error != EPIPE && !is_reported {
            let _ = ask_tcp(call);
        }
        return Err(error);
    }
    // This locks TCP's socket, and so waits for the end of a concurrent `shutdown`.
    let _ = call.ordered_state();
    end_fallback(call, companion, &attempt);
    match waited {
        Err(EAGAIN) => Err(pending),
        Err(error) => Err(error),
        // TCP's attempt has failed at once, or was shut down.
        Ok(()) if call.is_unconnected() => companion.sock().take_error().and(Err(ECONNABORTED)),
        Ok(()) => match ask_tcp(call) {
            Err(EALREADY) => Err(pending),
            // Another waiting call has already reported the connection.
            Err(EISCONN) => Ok(()),
            // Another call has taken the outcome since, or disconnected the socket.
            Err(EAFNOSUPPORT) => Err(ECONNABORTED),
            other => other,
        },
    }
}

/// Returns and clears the outcome of TCP's attempt, as a repeated `connect` does. TCP looks at the
/// address only if there is no attempt, and returns `EAFNOSUPPORT` then. With the attempt's own
/// address it would send a SYN for which the program has not asked.
fn ask_tcp<M: Mapped>(call: &StreamCall<'_, M>) -> Result {
    call.connect(&NOWHERE, true)
}

/// Examines the state of the attempt to connect, and chooses the protocol if possible.
#[cold]
pub(super) fn advance<M: Mapped>(call: &StreamCall<'_, M>) -> Backend {
    let Some(companion) = call.companion() else {
        return Backend::Tcp;
    };
    let record = &companion.record;
    let mut attempt = record.decide();
    if record.phase() == Phase::Asking && companion.sock().shared().asking.take_news() {
        if let Some(asking) = &mut *attempt {
            if let Err(failure) = look(call, companion, asking) {
                return give_up_asking(call, companion, &mut attempt, failure);
            }
        }
    }
    match record.phase() {
        Phase::Connecting => {}
        Phase::Asking => return Backend::Pending,
        Phase::Esp => return Backend::Companion,
        Phase::Listening => return Backend::Both,
        Phase::Tcp | Phase::Fallback => return Backend::Tcp,
    }
    let net_state = NetState::of(call.sock().net());
    let reason = match Esp::connect(&call.on(companion), &[], true) {
        Ok(()) => {
            // Options that the program has set since the SYN was sent apply to the connection, too.
            call.adopt(companion);
            record.set_phase(Phase::Esp);
            call.set_served(true);
            net_state.statistics.count(Statistic::MappedActiveOpens);
            let ends = companion.sock().lock().locked().state.mapped;
            if let Some(esp::Mapped {
                source,
                destination,
            }) = ends
            {
                let carrier = Carrier::Esp(source, destination);
                (net_state.mapped_connections).note(call.sock().inode(), carrier);
            }
            return Backend::Companion;
        }
        Err(EALREADY | EINPROGRESS) => return Backend::Pending,
        // The peer has reset an open connection, in the second case after it had ended its sending
        // half. The program gets the error, and TCP does not open a connection instead.
        Err(error @ (ECONNRESET | EPIPE)) => {
            end_attempt(call, record, &mut attempt, error);
            return Backend::Tcp;
        }
        Err(ECONNREFUSED) => Statistic::MappedTcpRefused,
        Err(ETIMEDOUT) => Statistic::MappedTcpSilent,
        Err(_) => Statistic::MappedTcpError,
    };
    record.set_phase(Phase::Fallback);
    if let Some(attempt) = &mut *attempt {
        if reason == Statistic::MappedTcpSilent {
            // The peer may have unloaded the module, so it is queried before the next attempt.
            net_state.edp_peers.doubt(&attempt.to);
        }
        switch(call, attempt, reason);
    }
    end_fallback(call, companion, &attempt);
    Backend::Tcp
}

/// Counts the reason why TCP carries the connection, and notes it for `enet ss --mapped`.
fn note_tcp<M: Mapped>(call: &StreamCall<'_, M>, reason: Statistic) {
    let net_state = NetState::of(call.sock().net());
    net_state.statistics.count(reason);
    (net_state.mapped_connections).note(call.sock().inode(), Carrier::Tcp(reason));
}

/// Counts the reason why TCP carries the connection, and sends TCP's SYN in place of ESP's.
fn switch<M: Mapped>(call: &StreamCall<'_, M>, attempt: &mut Attempt, reason: Statistic) {
    note_tcp(call, reason);
    match call.connect(attempt.name(), true) {
        Ok(()) | Err(EINPROGRESS) => {}
        // Another call has begun to connect.
        Err(EALREADY | EISCONN) if !call.is_unconnected() => {}
        Err(error) => {
            if attempt.has_port {
                call.release_port();
            }
            attempt.give_up(error);
            call.fail_to_connect(error);
        }
    }
    // From now on, TCP releases the port if its attempt fails.
    attempt.has_port = false;
}

/// Ends an attempt's wait for the host without ESP's SYN: sends TCP's SYN, or lets `connect` fail.
/// The caller has locked the decision, that is, the choice of the protocol.
fn give_up_asking<M: Mapped>(
    call: &StreamCall<'_, M>,
    companion: &Companion<M>,
    attempt: &mut Option<Attempt>,
    failure: Failure,
) -> Backend {
    let record = &companion.record;
    let sock = companion.sock();
    NetState::of(sock.net()).mapped_askers.leave(sock);
    // Because of `note_news`, calls of other threads lock the choice of the protocol, and so wait
    // until TCP's `connect` has run. Otherwise they would see a socket that is not connecting.
    sock.shared().asking.note_news();
    let mut silent = false;
    match (failure, &mut *attempt) {
        (Failure::Tcp(reason), Some(begun)) => {
            let end = begun.deadlines.answer;
            silent = reason == Statistic::MappedTcpUnknown && end != 0 && timer::now() >= end;
            begun.silent = silent;
            switch(call, begun, reason);
        }
        (Failure::Error(error), _) => end_attempt(call, record, attempt, error),
        _ => {}
    }
    if silent {
        record.set_phase(Phase::Fallback);
        end_fallback(call, companion, attempt);
        sock.state_change();
    } else {
        leave_to_tcp(call, companion);
    }
    Backend::Tcp
}

/// Opens TCP's connection to the same address in place of ESP's, which the caller has ended. The
/// caller has locked the decision, that is, the choice of the protocol.
pub(super) fn by_tcp<M: Mapped>(
    call: &StreamCall<'_, M>,
    companion: &Companion<M>,
    attempt: &mut Attempt,
) {
    switch(call, attempt, Statistic::MappedTcpOption);
    leave_to_tcp(call, companion);
}

/// Lets TCP serve the socket, and wakes the calls that wait for the choice of the protocol.
fn leave_to_tcp<M: Mapped>(call: &StreamCall<'_, M>, companion: &Companion<M>) {
    companion.record.set_phase(Phase::Tcp);
    call.set_asked(false);
    companion.sock().state_change();
}

/// Ends the time in which TCP connects in place of ESP, if TCP's attempt has ended.
pub(super) fn settle<M: Mapped>(call: &StreamCall<'_, M>, companion: &Companion<M>) {
    let record = &companion.record;
    if record.phase() == Phase::Fallback && !is_connecting(call.sock().tcp_state()) {
        end_fallback(call, companion, &record.decide());
    }
}

/// Learns from an attempt whose descriptor the program closes.
pub(super) fn close<M: Mapped>(call: &StreamCall<'_, M>, companion: &Companion<M>) {
    if companion.record.phase() == Phase::Fallback {
        learn(call, companion, &companion.record.decide());
    }
}

/// Like [`settle`], but the caller has locked the choice of the protocol.
pub(super) fn end_fallback<M: Mapped>(
    call: &StreamCall<'_, M>,
    companion: &Companion<M>,
    attempt: &Option<Attempt>,
) {
    let record = &companion.record;
    if record.phase() == Phase::Fallback && !is_connecting(call.sock().tcp_state()) {
        learn(call, companion, attempt);
        record.set_phase(Phase::Tcp);
        call.set_asked(false);
    }
}

/// Stores what TCP's attempt, which replaced ESP's, tells about the host. The host refuses ESP if
/// TCP has connected instead; if TCP has failed, too, the server may not have started yet. A host
/// that answers neither the query nor TCP's SYN, which TCP repeats after a second, is away, and its
/// silence is forgotten.
fn learn<M: Mapped>(call: &StreamCall<'_, M>, companion: &Companion<M>, attempt: &Option<Attempt>) {
    let Some(attempt) = attempt else {
        return;
    };
    let state = call.sock().tcp_state();
    let failed = state == TcpState::Close as u8;
    let failed_with = |error| failed && companion.sock().is_pending(error);
    let net_state = NetState::of(call.sock().net());
    if attempt.silent {
        if call.repeats_syn() || failed_with(ETIMEDOUT) || failed_with(EHOSTUNREACH) {
            (net_state.edp_peers).excuse(&attempt.to, attempt.deadlines.answer);
        }
    } else if !failed && state != TcpState::Listen as u8 && !is_connecting(state) {
        net_state.mapped_refusals.add(&attempt.to);
    }
}

/// Ends the attempt: the next `connect` fails with `error`, as in TCP, and so do the calls that
/// wait for the connection. TCP serves the socket from now on, and does not repeat the attempt.
fn end_attempt<M: Mapped>(
    call: &StreamCall<'_, M>,
    record: &Record,
    attempt: &mut Option<Attempt>,
    error: Error,
) {
    if let Some(attempt) = attempt {
        attempt.give_up(error);
    }
    release_port(call, attempt);
    call.fail_to_connect(error);
    record.set_phase(Phase::Tcp);
    call.set_asked(false);
}

/// Serves `shutdown` while the attempt waits for the host, or while ESP's SYN is in flight. Returns
/// `None` if the protocol is already chosen, or if the outcome of ESP's SYN decides the choice.
pub(super) fn give_up<M: Mapped>(
    call: &StreamCall<'_, M>,
    companion: &Companion<M>,
) -> Option<Result> {
    let mut attempt = companion.record.decide();
    let phase = companion.record.phase();
    if phase == Phase::Asking {
        // A call that waits gets `ECONNRESET`, as it does in TCP while TCP's SYN is in flight.
        let sock = companion.sock();
        // The error below wakes the calls that wait for the attempt. Because of `note_news`, they
        // examine the attempt again. For this they lock the choice of the protocol, and so wait
        // until this call unlocks it.
        sock.shared().asking.note_news();
        call.report_error(ECONNRESET);
        NetState::of(sock.net()).mapped_askers.leave(sock);
        release_port(call, &mut attempt);
        leave_to_tcp(call, companion);
        return Some(Ok(()));
    }
    // If ESP's outcome has come, `advance` chooses the protocol. Otherwise, `stop_connecting`
    // stores an error, which a waiting call reports.
    if phase != Phase::Connecting || !socket::stop_connecting(&call.on(companion)) {
        return None;
    }
    release_port(call, &mut attempt);
    leave_to_tcp(call, companion);
    Some(Ok(()))
}
