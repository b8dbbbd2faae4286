// SPDX-License-Identifier: GPL-2.0

//! Mapped sockets: streams of `AF_INET` and `AF_INET6`. ESP carries a connection if both hosts
//! support ESP and are on the same Ethernet; otherwise TCP does.
//!
//! The choice is final. It is made during `connect`, before the program learns that it is
//! connected. A TCP listener has a companion, which is an ESP socket that shares the descriptor;
//! `accept` takes connections from both sockets.

pub(crate) mod askers;
pub(crate) mod carriers;
mod connect;
pub(crate) mod fallback;
mod plan;
pub(crate) mod policy;
pub(crate) mod procfs;
mod state;

use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    device::mtu,
    net::{
        family::Operations,
        inet::{
            Backend, Companion, End, InternetEnd, NewStream, Parts, StreamCall, StreamInfo,
            Streams, Tables,
        },
        namespace::PerNet,
        sock::{RawSock, TcpState},
    },
    pernet::NetState,
    statistics::Statistic,
    stream::{
        options,
        outcome::{is_connecting, tcp_state},
        sock::{parts, tie, Esp, FrontListener, Shared},
        socket,
    },
    uapi::is_own_level,
};
use carriers::Carrier;
use state::{Attempt, Phase, Record};

const NSEC_PER_USEC: u64 = 1000;

/// The implementation of mapped sockets.
pub(super) struct Mapped;

static TABLES: Tables<Mapped> = Tables::new();

/// A call on a mapped socket.
type Call<'a> = StreamCall<'a, Mapped>;

impl Streams for Mapped {
    type Protocol = Esp;
    type Record = Record;

    fn tables() -> &'static Tables<Self> {
        &TABLES
    }

    fn closing(call: &Call<'_>, companion: &Companion<Self>) {
        connect::close(call, companion);
    }

    fn released(sock: &RawSock) {
        NetState::of(sock.net())
            .mapped_connections
            .forget(sock.inode());
    }

    fn connect(call: &Call<'_>, address: &[u8], nonblocking: bool) -> Result {
        if !Address::is_unspecified(address) {
            if let Some(error) = unreported_end(call) {
                return Err(error);
            }
            return connect::connect(call, address, nonblocking);
        }
        Self::released(call.sock());
        let result = match call.companion() {
            None => call.connect(address, nonblocking),
            Some(companion) => {
                // The decision (the choice of the protocol) is locked before the phase is read.
                // Otherwise, TCP's SYN could replace ESP's after the phase was read.
                let mut attempt = companion.record.decide();
                if is_taken(companion) {
                    disconnect(call, companion, &mut attempt)
                } else {
                    // Another call may still wait for an attempt that has switched to TCP. Once
                    // this call has disconnected the socket, the other call must not repeat the
                    // attempt.
                    give_up(&mut attempt);
                    // TCP's `connect` hides the outcome of TCP's attempt, so this call looks first.
                    connect::end_fallback(call, companion, &attempt);
                    let result = call.connect(address, nonblocking);
                    connect::end_fallback(call, companion, &attempt);
                    result
                }
            }
        };
        if let Some(companion) = call.companion() {
            Self::look_at_listener(call, companion);
        }
        result
    }

    fn listen(call: &Call<'_>, backlog: u32) -> Result {
        {
            // While the choice of the protocol is locked, no attempt to connect begins. A later
            // attempt fails because TCP listens.
            let companion = call.companion();
            let _decision = companion.map(|companion| companion.record.decide());
            if companion.is_some_and(is_taken) {
                return Err(EINVAL);
            }
            call.listen(backlog)?;
        }
        let net_state = NetState::of(call.sock().net());
        if !net_state.sysctl.mapped() || call.needs_tcp() {
            return Ok(());
        }
        // If there is no memory for the ESP companion or its bell, only TCP listens.
        let Ok(bell) = call.bell(Shared::default()) else {
            return Ok(());
        };
        let front = FrontListener {
            own: call.own_end(),
            takes_v4: !call.is_v6() || !call.is_v6_only(),
            bell,
        };
        let made = call.accompany(0, || {
            Ok(Parts {
                shared: Shared::of_companion(front),
                record: Record::new(false)?,
            })
        });
        let Ok(companion) = made else {
            return Ok(());
        };
        let mut attempt = companion.record.decide();
        if is_taken(companion) {
            // `connect` has taken the companion since the first check. As in TCP, one of the two
            // calls fails.
            return disconnect(call, companion, &mut attempt);
        }
        // If the companion was created for an attempt to connect, or for a listener at a different
        // address, only TCP listens. Neither protocol listens if a `shutdown` ended TCP's listener
        // before the companion existed. A later `shutdown` waits for the lock that this call holds,
        // and stops the companion.
        let own = call.own_end();
        let front = companion.sock().shared().front.as_ref();
        if front.is_none_or(|front| front.own != own)
            || call.ordered_state() != TcpState::Listen as u8
        {
            return Ok(());
        }
        net_state.sysctl.limit_buffers(companion.sock());
        // The kernel has already limited `backlog` to `net.core.somaxconn`, as it does for TCP. The
        // accept queue of a companion has a second bound: `u16::MAX`.
        let most = backlog.min(u16::MAX.into());
        if socket::listen_as_companion(&call.on(companion), most).is_ok() {
            companion.record.set_phase(Phase::Listening);
            call.set_asked(true);
        }
        Ok(())
    }

    fn accept(call: &Call<'_>, new: &mut NewStream<'_, Self>, nonblocking: bool) -> Result {
        let mut timeout = call.sock().receive_timeout(nonblocking);
        loop {
            // A companion may have appeared while the call slept, so each iteration looks for it.
            let companion = listening_companion(call);
            if let Some(companion) = companion {
                Self::look_at_listener(call, companion);
            }
            // The protocol that is tried first alternates, so that neither starves the other.
            let tcp_first = companion.is_none_or(|companion| companion.record.take_turn());
            for tcp in [tcp_first, !tcp_first] {
                if tcp {
                    if new.accept_of_tcp(call)? {
                        if companion.is_some() {
                            note(call, new, Carrier::TcpByPeer);
                        }
                        return Ok(());
                    }
                } else if let Some(companion) = companion {
                    if accept_of_esp(call, companion, new)? {
                        return Ok(());
                    }
                }
            }
            let waited = call.wait_exclusive(&mut timeout, || {
                call.tcp_accepts()
                    || listening_companion(call)
                        .is_some_and(|companion| companion.sock().shared().unread.count() > 0)
            });
            match waited {
                // The socket was disconnected and no longer listens. The next iteration reports
                // that.
                Err(EPIPE) => {}
                other => other?,
            }
        }
    }

    fn backend(call: &Call<'_>, companion: &Companion<Self>) -> Backend {
        match companion.record.phase() {
            Phase::Tcp => Backend::Tcp,
            Phase::Fallback => {
                connect::settle(call, companion);
                Backend::Tcp
            }
            Phase::Listening if !is_listener(call) => {
                Self::look_at_listener(call, companion);
                Backend::Tcp
            }
            Phase::Listening => Backend::Both,
            Phase::Esp => Backend::Companion,
            Phase::Asking if !companion.sock().shared().asking.has_news() => Backend::Pending,
            Phase::Asking | Phase::Connecting => connect::advance(call),
        }
    }

    fn await_backend(
        call: &Call<'_>,
        companion: &Companion<Self>,
        timeout: &mut kernel::ffi::c_long,
    ) -> Result<Backend> {
        loop {
            let backend = Self::backend(call, companion);
            let Some(companion) = call.companion().filter(|_| backend == Backend::Pending) else {
                return Ok(backend);
            };
            let sock = companion.sock();
            let ready = || match companion.record.phase() {
                Phase::Asking => sock.shared().asking.has_news(),
                _ => !is_connecting(sock.tcp_state()),
            };
            let waited = call.on(companion).wait(timeout, ready);
            match waited {
                // Another call has ended the attempt. The next iteration reports that.
                Err(EPIPE) => {}
                other => other?,
            }
        }
    }

    fn leave_to_tcp(call: &Call<'_>, companion: &Companion<Self>) -> Result {
        let mut attempt = companion.record.decide();
        if companion.record.phase() != Phase::Esp {
            // Another call has left the connection to TCP, or ended it.
            return Ok(());
        }
        let sock = companion.sock();
        let is_unused = parts(&mut sock.lock().locked()).is_some_and(|(_, c)| c.engine.is_unused());
        // A connection that a listener has accepted has no attempt.
        let Some(begun) = (*attempt).as_mut().filter(|_| is_unused) else {
            return Err(EOPNOTSUPP);
        };
        disconnect(call, companion, &mut None)?;
        connect::by_tcp(call, companion, begun);
        Ok(())
    }

    fn name(call: &Call<'_>, companion: &Companion<Self>, end: End) -> Result<(InternetEnd, u32)> {
        let sock = companion.sock();
        if matches!(end, End::Own) && companion.record.phase() == Phase::Asking {
            connect::take_port(call, companion);
        }
        let mapped = sock.lock().locked().state.mapped.ok_or(ENOTCONN)?;
        let (own, peer) = match companion.record.is_accepted() {
            true => (&mapped.destination, &mapped.source),
            false => (&mapped.source, &mapped.destination),
        };
        let state = sock.tcp_state();
        let end = InternetEnd::from(match end {
            End::Own => *own,
            End::Peer if state == TcpState::Close as u8 || is_connecting(state) => {
                return Err(ENOTCONN)
            }
            End::Peer | End::Accepted => *peer,
        });
        // As in TCP, a connection with a link-local peer has bound the socket to the device.
        let scope = match end.is_link_local() {
            true => call.sock().bound_device(),
            false => 0,
        };
        Ok((end, scope))
    }

    fn give_up(call: &Call<'_>, companion: &Companion<Self>) -> Option<Result> {
        connect::give_up(call, companion)
    }

    fn shutting(companion: &Companion<Self>) {
        // As in TCP, the program then knows the connection, and `connect` fails with `EISCONN`.
        if companion.sock().tcp_state() != TcpState::Close as u8 {
            companion.record.tell();
        }
    }

    fn set_user_timeout(companion: &Companion<Self>, millis: u32) {
        options::adopt_user_timeout(companion.sock(), millis);
    }

    fn set_unsent_limit(companion: &Companion<Self>, bytes: u32) {
        options::adopt_unsent_limit(companion.sock(), bytes);
    }

    fn info(companion: &Companion<Self>) -> StreamInfo {
        let sock = companion.sock();
        let mtu = mtu(sock.net(), tie(sock)).unwrap_or(0);
        let mut guard = sock.lock();
        let mut esp = guard.locked();
        let Some((_, connection)) = parts(&mut esp) else {
            return StreamInfo::default();
        };
        let engine = &connection.engine;
        let micros = |nanos: u64| u32::try_from(nanos / NSEC_PER_USEC).unwrap_or(u32::MAX);
        let (round_trip, timeout) = engine.times();
        StreamInfo {
            state: tcp_state(engine.state()) as u8,
            mss: connection.sending.mss(),
            mtu,
            window: engine.window().into(),
            unacknowledged: engine.unacked().saturating_sub(engine.unsent()).into(),
            unsent: connection.sending.unsent(engine),
            round_trip: micros(round_trip),
            timeout: micros(timeout),
            sent: engine.stats.pkt_tx,
            received: engine.stats.pkt_rx,
            resent: engine.stats.pkt_rtx,
        }
    }

    fn has_option_level(level: i32) -> bool {
        is_own_level(level)
    }

    fn look_at_listener(call: &Call<'_>, companion: &Companion<Self>) {
        if companion.record.phase() != Phase::Listening || is_listener(call) {
            return;
        }
        // The check is repeated with the choice of the protocol locked, because `listen` may have
        // been called again.
        let _decision = companion.record.decide();
        if companion.record.phase() == Phase::Listening && !is_listener(call) {
            socket::stop_as_companion(companion.sock());
            companion.record.set_phase(Phase::Tcp);
            call.set_asked(false);
        }
    }
}

/// Returns whether TCP's socket listens, and permits an ESP companion on the same port.
fn is_listener(call: &Call<'_>) -> bool {
    call.sock().tcp_state() == TcpState::Listen as u8 && !call.needs_tcp()
}

/// Returns whether the companion is a connection, or is becoming one.
fn is_taken(companion: &Companion<Mapped>) -> bool {
    let phase = companion.record.phase();
    matches!(phase, Phase::Asking | Phase::Connecting | Phase::Esp)
}

/// Prevents TCP from repeating an attempt to connect. A call that waits for the attempt fails as if
/// TCP had been disconnected.
fn give_up(attempt: &mut Option<Attempt>) {
    if let Some(attempt) = attempt {
        attempt.give_up(EPIPE);
    }
}

/// Ends the companion's connection or attempt to connect. The caller has locked the decision, that
/// is, the choice of the protocol.
fn disconnect<'a>(
    call: &Call<'a>,
    companion: &'a Companion<Mapped>,
    attempt: &mut Option<Attempt>,
) -> Result {
    const NOTHING: [u8; 16] = [0; 16];
    give_up(attempt);
    (NetState::of(call.sock().net()).mapped_askers).leave(companion.sock());
    let asked = companion.record.phase() == Phase::Asking;
    let result = Esp::connect(&call.on(companion), &NOTHING, true);
    if asked {
        // The error below wakes the calls that wait for the attempt. Because of `note_news`, they
        // examine the attempt again. For this they lock the choice of the protocol, and so wait
        // until this call unlocks it.
        companion.sock().shared().asking.note_news();
        // A TCP socket whose SYN is in flight reports the same error if it is disconnected.
        call.report_error(ECONNRESET);
    }
    // `set_served` is called before `set_phase`, because other calls read the phase without a lock.
    // A call that reads the new phase must find that TCP serves the socket.
    call.set_served(false);
    connect::release_port(call, attempt);
    companion.record.set_phase(Phase::Tcp);
    call.set_asked(false);
    if asked {
        // A call that was woken before the phase changed may sleep again, so wake it once more.
        companion.sock().state_change();
    }
    result
}

/// Ends an attempt to connect whose connection has ended before `connect` could report it. Returns
/// the error of that `connect`. A further `connect` begins a new attempt.
fn unreported_end(call: &Call<'_>) -> Option<Error> {
    let companion = call.companion()?;
    let record = &companion.record;
    let mut attempt = record.decide();
    let has_ended = record.phase() == Phase::Esp
        && !record.is_told()
        && companion.sock().tcp_state() == TcpState::Close as u8;
    if !has_ended {
        return None;
    }
    let error = companion.sock().take_error().err();
    Mapped::released(call.sock());
    let _ = disconnect(call, companion, &mut attempt);
    Some(error.unwrap_or(ECONNABORTED))
}

/// Returns the companion, if it belongs to a listener.
fn listening_companion<'a>(call: &Call<'a>) -> Option<&'a Companion<Mapped>> {
    let companion = call.companion();
    companion.filter(|companion| companion.sock().shared().front.is_some())
}

/// Gives `new` the ESP connection that has waited longest. Returns `false` if there is none.
fn accept_of_esp(
    call: &Call<'_>,
    companion: &Companion<Mapped>,
    new: &mut NewStream<'_, Mapped>,
) -> Result<bool> {
    if companion.sock().shared().unread.count() == 0 {
        return Ok(false);
    }
    // As far as possible, steps that can fail come before the connection is taken.
    let record = Record::new(true)?;
    let Some(child) = socket::take_child(companion.sock()) else {
        return Ok(false);
    };
    let ends = child.lock().locked().state.mapped;
    // As in TCP, only the client's address matters here, and not the listener's.
    let is_local = |ends: crate::esp::Mapped| InternetEnd::from(ends.source).is_link_local();
    let device = (ends.is_some_and(is_local)).then(|| child.shared().peer().ifindex);
    match new.serve(call, child.clone(), record, device) {
        Ok(()) => {
            let statistics = &NetState::of(call.sock().net()).statistics;
            statistics.count(Statistic::MappedPassiveOpens);
            if let Some(ends) = ends {
                note(call, new, Carrier::Esp(ends.destination, ends.source));
            }
            Ok(true)
        }
        Err(error) => {
            socket::give_up_child(&child);
            Err(error)
        }
    }
}

/// Stores which protocol carries a new connection.
fn note(call: &Call<'_>, new: &NewStream<'_, Mapped>, carrier: Carrier) {
    if let Some(inode) = new.inode() {
        (NetState::of(call.sock().net()).mapped_connections).note(inode, carrier);
    }
}
