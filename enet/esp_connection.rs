// SPDX-License-Identifier: GPL-2.0

//! An ESP socket's own part, and what becomes of it when its engine has decided.

use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    counters::Counter,
    esp::{self, Connection, Failure, State},
    esp_accept, esp_output,
    esp_socket::Esp,
    net::{
        device::Mac,
        namespace::PerNet,
        queue::Cursor,
        sock::{Sock, SockRef, TcpState},
        uapi,
    },
    ports::{self, Binding},
    space::Space,
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What is read without the socket lock: the local end, and the other one of a connection.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) binding: Binding,
    /// Ethernet address in the upper 48 bits, port in the lower 16.
    peer: AtomicU64,
    peer_ifindex: AtomicU32,
    /// Bytes in the receive queue that no one has read.
    pub(crate) readable: AtomicU32,
    /// Bytes that the peer has not acknowledged.
    pub(crate) unacknowledged: AtomicU32,
    /// Packets that waited too many for a busy socket.
    pub(crate) backlog_drops: Counter,
}

impl Shared {
    /// The part of an accepted connection.
    pub(crate) fn of_child(local_port: u16, peer: &Address) -> Self {
        let shared = Shared {
            binding: Binding::fixed(local_port, peer.ifindex),
            ..Shared::default()
        };
        shared.set_peer(peer);
        shared
    }

    /// Sets the other end, before the socket is put among the connections.
    pub(crate) fn set_peer(&self, peer: &Address) {
        self.peer_ifindex.store(peer.ifindex, Relaxed);
        self.peer
            .store(peer.mac.to_bits() << 16 | u64::from(peer.port), Relaxed);
    }

    /// The other end, meaningful while there is a connection.
    #[inline]
    pub(crate) fn peer(&self) -> Address {
        let bits = self.peer.load(Relaxed);
        Address {
            port: bits as u16,
            mac: Mac::from_bits(bits >> 16),
            ifindex: self.peer_ifindex.load(Relaxed),
        }
    }

    /// Whether this is the connection of `local_port` with `peer`.
    #[inline]
    pub(crate) fn connects(&self, local_port: u16, peer: &Address) -> bool {
        self.peer.load(Relaxed) == peer.mac.to_bits() << 16 | u64::from(peer.port)
            && self.binding.port() == local_port
            && self.peer_ifindex.load(Relaxed) == peer.ifindex
    }
}

/// Where a connection is looked up.
#[inline]
pub(crate) fn hash(local_port: u16, peer: &Address) -> u32 {
    // The high bits of a product by an odd constant depend on all the bits below.
    let key = peer.mac.to_bits() << 16 ^ u64::from(peer.port) ^ u64::from(local_port) << 32;
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// A child's place in its listener's queue.
pub(crate) enum Parent {
    /// Not a child, or accepted, or waiting for `accept`.
    None,
    /// Half-open, in this slot.
    HalfOpen(esp_accept::Shared, u32),
}

/// What the socket lock guards.
pub(crate) struct Stream {
    /// The engine.
    pub(crate) connection: Connection,
    /// Where the write queue was sent from last.
    pub(crate) cursor: Cursor,
    /// When the timer is armed for; `u64::MAX` if it is not.
    pub(crate) armed: u64,
    /// Memory that a full packet costs in the receive queue, bytes: the most seen so far.
    pub(crate) packet_cost: u32,
    /// Payload bytes of a full packet.
    pub(crate) mss: u32,
    pub(crate) parent: Parent,
    /// The queue of a listener.
    pub(crate) listening: Option<esp_accept::Shared>,
    /// Why the connection ended, when it timed out: every later call says so.
    pub(crate) timed_out: bool,
    /// Whether the socket has been connected since it was made or disconnected.
    pub(crate) was_connected: bool,
    /// The protocol has given its reference back.
    pub(crate) released: bool,
}

/// What a frame's buffer costs at least, beside its payload: descriptor and shared part.
const BUFFER_OVERHEAD: u32 = 768;

impl Stream {
    /// A socket that has no peer yet, or one with a connection that `connection` decides.
    pub(crate) fn new(connection: Connection, mss: u32) -> Self {
        Stream {
            connection,
            cursor: Cursor::new(),
            armed: u64::MAX,
            packet_cost: mss.saturating_add(BUFFER_OVERHEAD),
            mss,
            parent: Parent::None,
            listening: None,
            timed_out: false,
            was_connected: false,
            released: false,
        }
    }

    /// The receive queue, as the engine wants to know it.
    #[inline]
    pub(crate) fn room(&self, sock: &Sock<Esp>) -> esp::Room {
        esp::Room {
            queued: sock.receive_queued(),
            limit: sock.receive_limit(),
            packet: self.packet_cost,
        }
    }
}

/// The core's name for a state of the engine.
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

/// Acts on what the engine says has come about, and sends what it now wants sent.
pub(crate) fn settle(sock: &Sock<Esp>, stream: &mut Stream, outcome: esp::Outcome, now: u64) {
    esp_output::transmit(sock, stream, now);
    if outcome.acked > 0 {
        esp_output::free_acknowledged(sock, stream, outcome.acked);
    }
    let before = sock.tcp_state();
    let state = tcp_state(stream.connection.state());
    if state as u8 == before {
        return;
    }
    sock.set_tcp_state(state);
    if outcome.fin {
        sock.add_shutdown(uapi::RCV_SHUTDOWN);
    }
    if outcome.established {
        established(stream);
    }
    sock.state_change();
    if outcome.fin {
        sock.wake_hangup();
    }
    if let Some(failure) = outcome.failed {
        fail(sock, stream, error_for(failure, before));
    } else if outcome.closed {
        over(sock, stream);
    }
}

/// The error of a connection that failed in state `before`, as TCP reports it.
fn error_for(failure: Failure, before: u8) -> Error {
    match failure {
        Failure::Refused => ECONNREFUSED,
        Failure::Reset if before == TcpState::CloseWait as u8 => EPIPE,
        Failure::Reset => ECONNRESET,
        Failure::TimedOut => ETIMEDOUT,
    }
}

/// The handshake is complete: a child joins those that wait for `accept`.
fn established(stream: &mut Stream) {
    stream.was_connected = true;
    if let Parent::HalfOpen(queue, slot) = core::mem::replace(&mut stream.parent, Parent::None) {
        let listener = queue.lock().complete(slot);
        match listener {
            Some(listener) => listener.data_ready(),
            // It has closed and will end this child too, if it has not yet.
            None => stream.parent = Parent::HalfOpen(queue, slot),
        }
    }
}

/// Ends the connection with an error, without a word to the peer.
pub(crate) fn fail(sock: &Sock<Esp>, stream: &mut Stream, error: Error) {
    stream.timed_out = error == ETIMEDOUT;
    sock.set_tcp_state(TcpState::Close);
    sock.add_shutdown(uapi::SHUTDOWN_MASK);
    esp_output::discard(sock, stream);
    if !sock.is_dead() {
        sock.report_error(error);
    }
    over(sock, stream);
}

/// Ends the connection with a reset to the peer, if that knows of it.
pub(crate) fn abort(sock: &Sock<Esp>, stream: &mut Stream) {
    if let Some(header) = stream.connection.abort() {
        esp_output::send_control(sock, stream, header);
    }
    sock.set_tcp_state(TcpState::Close);
    sock.add_shutdown(uapi::SHUTDOWN_MASK);
    esp_output::discard(sock, stream);
    over(sock, stream);
}

/// The connection is over: nothing comes in for it any more. If nobody else holds the socket, it
/// goes.
fn over(sock: &Sock<Esp>, stream: &mut Stream) {
    unhash(sock);
    stream.armed = u64::MAX;
    sock.disarm_timer();
    sock.state_change();
    if let Parent::HalfOpen(queue, slot) = core::mem::replace(&mut stream.parent, Parent::None) {
        // A child that failed before anyone could accept it.
        let child = queue.lock().take(slot);
        if let Some(child) = child {
            release(stream, child);
        }
        return;
    }
    if sock.is_dead() {
        release_own(sock, stream);
    }
}

/// Takes the socket out of the tables in which packets look for it.
pub(crate) fn unhash(sock: &Sock<Esp>) {
    let space = Space::of(sock.net());
    let shared = sock.shared();
    let port = shared.binding.port();
    space
        .esp_connections
        .lock()
        .remove(hash(port, &shared.peer()), sock);
}

/// Ends the protocol's use of a socket that nobody else holds for it, once.
pub(crate) fn release_own(sock: &Sock<Esp>, stream: &mut Stream) {
    if !stream.released {
        release(stream, SockRef::from_lifetime(sock));
    }
}

/// Gives back the local port and `lifetime`, the protocol's reference.
pub(crate) fn release(stream: &mut Stream, lifetime: SockRef<Esp>) {
    stream.released = true;
    ports::give_back(
        &Space::of(lifetime.net()).esp_ports,
        &lifetime,
        &lifetime.shared().binding,
    );
    lifetime.retire();
}
