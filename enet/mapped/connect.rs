// SPDX-License-Identifier: GPL-2.0

//! Chooses the protocol for a connection that a mapped socket opens.
//!
//! ESP is tried if the peer is on the local Ethernet and has reported that it accepts mapped
//! connections. Until the choice is certain, neither protocol serves calls, because the program is
//! still connecting. The peer may refuse ESP, or not answer for some round trips. Then the next
//! call on the socket (`connect`, `poll`, or another call that waits for the connection) sends
//! TCP's SYN.

use super::{
    carriers::Carrier,
    state::{Attempt, Phase, Record},
};
use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    datagram::control,
    device::usable,
    edp::{peers::Known, query::Nonce},
    esp,
    net::{
        device::Device,
        family::{Operations, SocketState},
        inet::{Backend, Companion, InternetEnd, Objection, Parts, StreamCall, Streams},
        namespace::{Net, PerNet},
        rcu,
        route::NoHop,
        sock::TcpState,
        softirq,
    },
    pernet::NetState,
    statistics::Statistic,
    stream::{
        outcome::is_connecting,
        sock::{key, Chosen, Esp, Shared, State},
    },
};

/// Stream sockets that are served as mapped ones.
pub(super) trait Mapped: Streams<Protocol = Esp, Record = Record> {}

impl<M: Streams<Protocol = Esp, Record = Record>> Mapped for M {}

/// A connection that ESP can try to open.
struct Plan {
    to: Address,
    ends: esp::Mapped,
}

/// A query that is sent at the end of `connect`, so that it does not delay `connect`.
struct Query {
    to: Address,
    nonce: Nonce,
}

impl Query {
    fn send(self, net_state: &NetState, net: &Net) {
        let section = rcu::Read::enter();
        if let Some(device) = Device::find(net, self.to.ifindex, &section) {
            control::ask(device, self.nonce, self.to.mac, net_state);
        }
    }
}

/// Determines whether ESP may carry a connection to the address that a program passed, and whether
/// to query the peer.
///
/// # Errors
///
/// The statistic that counts the reason against ESP.
fn plan<M: Mapped>(
    call: &StreamCall<'_, M>,
    name: &[u8],
    query: &mut Option<Query>,
) -> Result<Plan, Statistic> {
    let sock = call.sock();
    let net_state = NetState::of(sock.net());
    if !net_state.sysctl.mapped() {
        return Err(Statistic::MappedTcpSetting);
    }
    let destination = InternetEnd::parse(name, call.is_v6()).ok_or(Statistic::MappedTcpAddress)?;
    let to = destination.v4().ok_or(Statistic::MappedTcpAddress)?;
    let mut own = call.own_end();
    if own.is_any() {
        own = InternetEnd::of_v4([0; 4], own.port);
    }
    let from = own.v4().ok_or(Statistic::MappedTcpAddress)?;
    if !net_state.mapped_rules.allow(sock, to, destination.port) {
        return Err(Statistic::MappedTcpPolicy);
    }
    if call.is_v6() && call.is_v6_only() {
        return Err(Statistic::MappedTcpAddress);
    }
    if let Some(objection) = call.objection() {
        return Err(match objection {
            Objection::Option | Objection::User => Statistic::MappedTcpOption,
            Objection::Group => Statistic::MappedTcpGroup,
            Objection::Policy => Statistic::MappedTcpRoute,
        });
    }
    let hop = sock
        .next_hop(from, to, destination.port)
        .map_err(|why| match why {
            NoHop::NotOnLink => Statistic::MappedTcpRoute,
            NoHop::NoNeighbour => Statistic::MappedTcpNeighbour,
        })?;
    let peer = Address {
        port: destination.port,
        ifindex: hop.ifindex,
        mac: hop.mac,
    };
    if net_state.mapped_refusals.contains(&peer) {
        return Err(Statistic::MappedTcpRefused);
    }
    let section = rcu::Read::enter();
    let device = Device::find(sock.net(), hop.ifindex, &section);
    if device.is_none_or(|device| usable(device).is_err()) {
        return Err(Statistic::MappedTcpRoute);
    }
    let known = net_state.edp_peers.look_up(&peer);
    *query = known.query().map(|nonce| Query { to: peer, nonce });
    match known {
        Known::Answer(told, _) if told.mapped => {}
        Known::Answer(..) => return Err(Statistic::MappedTcpPeer),
        Known::Query(_) | Known::Nothing => return Err(Statistic::MappedTcpUnknown),
    }
    Ok(Plan {
        to: peer,
        ends: esp::Mapped {
            source: InternetEnd::of_v4(hop.source, own.port).into(),
            destination: destination.into(),
        },
    })
}

/// Serves `connect` to an address.
pub(super) fn connect<M: Mapped>(
    call: &StreamCall<'_, M>,
    name: &[u8],
    nonblocking: bool,
) -> Result {
    if let Some(companion) = call.companion() {
        M::look_at_listener(call, companion);
        match companion.record.phase() {
            // After polling, `io_uring` calls `connect` again. It takes the attempt as still in
            // progress only if the call returns `EINPROGRESS`.
            Phase::Tcp
                if is_connecting(call.sock().tcp_state()) && companion.record.take_switch() =>
            {
                return match call.connect(name, nonblocking) {
                    Err(EALREADY) => Err(EINPROGRESS),
                    other => other,
                };
            }
            Phase::Tcp => {}
            Phase::Listening => return call.connect(name, nonblocking),
            Phase::Connecting => return finish(call, nonblocking, EALREADY),
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
        // The program has chosen a port that already has a connection with this destination.
        Ok(Some(error)) => Err(error),
        Ok(None) => {
            // As in TCP, a nonblocking call does not succeed even if the answer has already
            // arrived.
            if nonblocking {
                Err(EINPROGRESS)
            } else {
                finish(call, nonblocking, EINPROGRESS)
            }
        }
        Err(reason) => {
            net_state.statistics.count(reason);
            let carrier = Carrier::Tcp(reason);
            (net_state.mapped_connections).note(call.sock().inode(), carrier);
            call.connect(name, nonblocking)
        }
    };
    if let Some(query) = query {
        query.send(net_state, net);
    }
    connected
}

/// Sends ESP's SYN. Returns `Some` with the error if `connect` is to fail.
///
/// # Errors
///
/// The statistic that counts the reason for sending TCP's SYN instead.
fn attempt<M: Mapped>(
    call: &StreamCall<'_, M>,
    name: &[u8],
    query: &mut Option<Query>,
) -> Result<Option<Error>, Statistic> {
    let plan = plan(call, name, query)?;
    let failed = |_| Statistic::MappedTcpError;
    let companion = call
        .accompany(0, || {
            Ok(Parts {
                shared: Shared::default(),
                state: State::idle(Chosen::default()),
                record: Record::new(false)?,
            })
        })
        .map_err(failed)?;
    let record = &companion.record;
    let sock = companion.sock();
    if sock.shared().front.is_some() {
        // The socket has listened before, so its companion cannot open a connection.
        return Err(Statistic::MappedTcpOption);
    }
    let net_state = NetState::of(sock.net());
    net_state.sysctl.limit_buffers(sock);
    let mut attempt = record.decide();
    if record.phase() != Phase::Tcp {
        // Another call has begun an attempt; this one waits for the same connection.
        return Ok(None);
    }
    if call.ordered_state() != TcpState::Close as u8 {
        // `listen` or TCP's `connect` came first; TCP returns the error.
        return Err(Statistic::MappedTcpError);
    }
    let chosen = plan.ends.source.port;
    let mut guard = sock.lock();
    guard.locked().state.mapped = Some(plan.ends);
    if chosen != 0 {
        sock.shared().binding.fix(chosen);
    }
    drop(guard);
    match Esp::connect(&call.on(companion), &plan.to.emit(), true) {
        Ok(()) | Err(EINPROGRESS) => {}
        Err(EADDRNOTAVAIL) if has_connection(net_state, chosen, &plan) => {
            return Ok(Some(EADDRNOTAVAIL))
        }
        Err(_) => return Err(Statistic::MappedTcpError),
    }
    *attempt = Some(Attempt::new(name, plan.to));
    record.tell_again();
    record.set_phase(Phase::Connecting);
    call.set_asked(true);
    Ok(None)
}

/// Returns whether the connection of `plan` from port `own` is open already. ESP looks up
/// connections by ports and Ethernet addresses. So the connection that is found may be a different
/// one than `plan` describes: it may be between other IP addresses, or not mapped.
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
            // A call owns the socket, and may be opening the connection.
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
    let timeout = call.sock().send_timeout(nonblocking);
    let backend = match M::await_backend(call, companion, timeout) {
        Err(EAGAIN) => return Err(pending),
        other => other?,
    };
    if backend == Backend::Companion {
        companion.record.tell();
        return Ok(());
    }
    let name = {
        let attempt = companion.record.decide();
        let attempt = attempt.as_ref().ok_or(ECONNABORTED)?;
        attempt.stands()?;
        Attempt::new(attempt.name(), attempt.to)
    };
    // TCP is connecting already; this call waits for it.
    match call.connect(name.name(), nonblocking) {
        Err(EALREADY) => Err(pending),
        other => other,
    }
}

/// Examines the state of the attempt to connect, and chooses the protocol if possible.
#[cold]
pub(super) fn advance<M: Mapped>(call: &StreamCall<'_, M>) -> Backend {
    let Some(companion) = call.companion() else {
        return Backend::Tcp;
    };
    let record = &companion.record;
    let mut attempt = record.decide();
    match record.phase() {
        Phase::Connecting => {}
        Phase::Esp => return Backend::Companion,
        Phase::Listening => return Backend::Both,
        Phase::Tcp => return Backend::Tcp,
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
        // The peer has reset an open connection. The program gets the error, and TCP does not open
        // a connection instead.
        Err(ECONNRESET) => {
            end_attempt(call, record, &mut attempt, ECONNRESET);
            call.report_error(ECONNRESET);
            return Backend::Tcp;
        }
        Err(ECONNREFUSED) => Statistic::MappedTcpRefused,
        Err(ETIMEDOUT) => Statistic::MappedTcpSilent,
        Err(_) => Statistic::MappedTcpError,
    };
    net_state.statistics.count(reason);
    (net_state.mapped_connections).note(call.sock().inode(), Carrier::Tcp(reason));
    record.set_phase(Phase::Tcp);
    call.set_asked(false);
    if let Some(attempt) = &*attempt {
        if reason == Statistic::MappedTcpSilent {
            // The peer may have unloaded the module, so it is queried before the next attempt.
            net_state.edp_peers.doubt(&attempt.to);
        }
        net_state.mapped_refusals.add(&attempt.to);
        record.note_switch();
        match call.connect(attempt.name(), true) {
            Ok(()) | Err(EINPROGRESS) => {}
            Err(error) => call.report_error(error),
        }
    }
    Backend::Tcp
}

/// Ends the attempt: `connect` fails with `error`. TCP, which serves the socket now, does not
/// repeat the attempt.
fn end_attempt<M: Mapped>(
    call: &StreamCall<'_, M>,
    record: &Record,
    attempt: &mut Option<Attempt>,
    error: Error,
) {
    if let Some(attempt) = attempt {
        attempt.give_up(error);
    }
    record.set_phase(Phase::Tcp);
    call.set_asked(false);
}

/// Serves `shutdown` while ESP's SYN is in flight.
pub(super) fn give_up<M: Mapped>(call: &StreamCall<'_, M>, companion: &Companion<M>) -> Result {
    let mut attempt = companion.record.decide();
    if companion.record.phase() != Phase::Connecting {
        return Err(ENOTCONN);
    }
    end_attempt(call, &companion.record, &mut attempt, ECONNABORTED);
    let Some(companion) = call.companion() else {
        return Err(ENOTCONN);
    };
    let result = Esp::shutdown(&call.on(companion), crate::net::uapi::SHUTDOWN_MASK);
    call.on(companion).set_state(SocketState::Unconnected);
    result
}
