// SPDX-License-Identifier: GPL-2.0

//! An ESP socket's own part, and what becomes of it when its engine has decided.

use crate::net::errno::prelude::*;
use crate::{
    address::{Address, Peer},
    counters::Counter,
    esp::{self, Connection, Failure, State},
    esp_accept, esp_devices, esp_output,
    esp_socket::Esp,
    esp_turns::{self, Lane},
    events,
    net::{
        device::{Device, Mac},
        limits,
        line::Place,
        map::Key,
        namespace::PerNet,
        queue::Cursor,
        skb::Processor,
        sock::{Sock, SockRef, TcpState},
        spares::Spares,
        uapi,
    },
    ports::{self, Binding},
    space::Space,
    sysctl::Seen,
};
use core::sync::atomic::{AtomicU32, AtomicU8, Ordering::Relaxed};
use kernel::sync::Arc;

/// What is read without the socket lock: the local end, and the other one of a connection.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) binding: Binding,
    peer: Peer,
    /// Bytes in the receive queue that no one has read.
    pub(crate) readable: AtomicU32,
    /// Bytes that the peer has not acknowledged.
    pub(crate) unacknowledged: AtomicU32,
    /// Packets that waited too many for a busy socket.
    pub(crate) backlog_drops: Counter,
    /// Where the socket stands in its device's lane.
    pub(crate) place: Place<Esp>,
    /// The last change of a device that the connection was told of.
    pub(crate) told: AtomicU32,
    /// What acknowledgements wait for the reader to do: [`FALL_ASLEEP`], [`MAKE_ROOM`].
    pub(crate) awaited: AtomicU8,
    /// What came while a task owned the socket, and is done when that lets go: [`TURN`], [`DEVICE`],
    /// [`STALE`].
    pub(crate) missed: AtomicU8,
}

/// An acknowledgement waits for data to carry it. See [`Shared::awaited`].
pub(crate) const FALL_ASLEEP: u8 = 1;
/// What would open the peer's window is withheld. See [`Shared::awaited`].
pub(crate) const MAKE_ROOM: u8 = 2;

/// The socket's turn came. See [`Shared::missed`].
pub(crate) const TURN: u8 = 1;
/// The connection's device has changed. See [`Shared::missed`].
pub(crate) const DEVICE: u8 = 2;
/// The socket was half-open for too long and had to make room in its listener's queue: its timer
/// ends it, or its own end does. It stays set. See [`Shared::missed`].
pub(crate) const STALE: u8 = 4;

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
        self.peer.set(peer);
    }

    /// The other end, meaningful while there is a connection.
    #[inline]
    pub(crate) fn peer(&self) -> Address {
        self.peer.last()
    }

    /// Whether this is the connection of `local_port` with `peer`.
    #[inline]
    pub(crate) fn connects(&self, local_port: u16, peer: &Address) -> bool {
        self.binding.port() == local_port && self.peer.is(peer)
    }
}

/// What a connection is looked up by.
#[inline]
pub(crate) fn key(local_port: u16, peer: &Address) -> Key {
    let mac = peer.mac.to_bits();
    [
        (mac >> 16) as u32,
        (mac as u32) << 16 | u32::from(peer.port),
        peer.ifindex,
        local_port.into(),
    ]
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
    /// Acknowledged packets that the next ones are made of.
    pub(crate) spares: Spares,
    /// When the timer is armed for; `u64::MAX` if it is not.
    pub(crate) armed: u64,
    /// When what `MSG_MORE` holds back leaves anyway; `u64::MAX` if nothing is.
    pub(crate) corked: u64,
    /// Memory that a full packet costs in the receive queue, bytes: the most seen so far.
    pub(crate) packet_cost: u32,
    /// Payload bytes of a full packet.
    pub(crate) mss: u32,
    /// Bytes that the device needs in front of a packet, as it was when one last left.
    pub(crate) headroom: usize,
    /// The processor that packets say they were sent by. It changes only while none is
    /// unacknowledged: transmit queues overtake each other.
    pub(crate) processor: Processor,
    /// The own Ethernet address that the peer knows.
    pub(crate) local: Mac,
    /// The receiving device's turns.
    pub(crate) lane: Option<Arc<Lane>>,
    /// The parameters that the engine has.
    pub(crate) seen: Seen,
    /// Whether the lane counts this connection.
    pub(crate) scheduled: bool,
    /// The caller gives turns that are due when it has let go of the socket.
    pub(crate) serves: bool,
    /// Some are.
    pub(crate) served: bool,
    pub(crate) parent: Parent,
    /// The queue of a listener.
    pub(crate) listening: Option<esp_accept::Shared>,
    /// Why the connection ended, if every later call is to say so.
    pub(crate) ended: Option<Error>,
    /// The peer has ended its half: reading ends there, whatever happens later.
    pub(crate) peer_ended: bool,
    /// How many calls sleep for data.
    pub(crate) readers: u32,
    /// What an orphan counts for in [`Space::esp_orphaned`], bytes.
    pub(crate) orphaned: usize,
    /// The protocol has given its reference back.
    pub(crate) released: bool,
}

/// What a frame's buffer costs at least, beside its payload: descriptor and shared part.
const BUFFER_OVERHEAD: u32 = 768;

impl Stream {
    /// A socket that has no peer yet, or one with a connection that `connection` decides.
    pub(crate) fn new(connection: Connection) -> Self {
        Stream {
            connection,
            cursor: Cursor::new(),
            spares: Spares::new(),
            armed: u64::MAX,
            corked: u64::MAX,
            packet_cost: 0,
            mss: 0,
            headroom: 0,
            processor: Processor::current(),
            local: Mac::default(),
            lane: None,
            seen: Seen::default(),
            scheduled: false,
            serves: false,
            served: false,
            parent: Parent::None,
            listening: None,
            ended: None,
            peer_ended: false,
            readers: 0,
            orphaned: 0,
            released: false,
        }
    }

    /// Takes in what the connection's device is like.
    pub(crate) fn measure(&mut self, device: &Device) {
        self.local = device.address();
        self.headroom = device.headroom();
        self.resize(device.mtu());
    }

    /// Fits the packets to come to the MTU of the device.
    pub(crate) fn resize(&mut self, mtu: u32) {
        // Some devices let their MTU be 0.
        self.mss = esp::mss(mtu).max(1);
        self.packet_cost = self
            .packet_cost
            .max(self.mss.saturating_add(BUFFER_OVERHEAD));
    }

    /// The receive queue, as the engine wants to know it, with `arriving` bytes of memory about to
    /// join it.
    #[inline]
    pub(crate) fn room(&self, sock: &Sock<Esp>, arriving: u32) -> esp::Room {
        esp::Room {
            queued: sock.receive_queued(),
            limit: sock.receive_limit(),
            arriving,
            packet: self.packet_cost,
        }
    }
}

/// Whether as much has come as `SO_RCVLOWAT` wants, or as the receive buffer takes: a mark beyond
/// that would never be reached. Nor would one that the peer has no window for, until there is room.
#[inline]
pub(crate) fn readable(sock: &Sock<Esp>) -> bool {
    let full = sock.receive_queued() >= sock.receive_limit() / 2
        || sock.shared().awaited.load(Relaxed) & MAKE_ROOM != 0;
    let unread = sock.shared().readable.load(Relaxed) as usize;
    unread > 0 && (full || unread >= sock.low_water(false, usize::MAX))
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

/// Brings a socket into `state`, and tells tracers if that is another than it was.
pub(crate) fn set_state(sock: &Sock<Esp>, state: TcpState) {
    let old = sock.tcp_state();
    if old != state as u8 {
        sock.set_tcp_state(state);
        events::esp_state(sock, old);
    }
}

/// Acts on what the engine says has come about, and sends what it now wants sent.
pub(crate) fn settle(sock: &Sock<Esp>, stream: &mut Stream, outcome: esp::Outcome, now: u64) {
    esp_output::transmit(sock, stream, now);
    if outcome.acked > 0 {
        esp_output::free_acknowledged(sock, stream, outcome.acked);
    }
    if outcome.cut {
        let from = stream.connection.first_unacked();
        esp_devices::cut(sock, stream, from);
        esp_output::transmit(sock, stream, now);
    }
    let before = sock.tcp_state();
    let state = tcp_state(stream.connection.state());
    if state as u8 == before {
        return;
    }
    if let Some(failure) = outcome.failed {
        // A peer that never answered has no connection that could have timed out.
        let lasts = failure == Failure::TimedOut && before != TcpState::SynSent as u8;
        stream.ended = lasts.then_some(ETIMEDOUT);
        fail(sock, stream, error_for(failure, before));
        return;
    }
    if outcome.fin {
        stream.peer_ended = true;
        sock.add_shutdown(uapi::RCV_SHUTDOWN);
    }
    set_state(sock, state);
    if outcome.established {
        established(sock, stream);
    }
    sock.state_change();
    if before == TcpState::SynSent as u8 {
        sock.signal_connected();
    }
    if outcome.fin {
        sock.signal_end();
        sock.data_ready();
    }
    if outcome.closed {
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
fn established(sock: &Sock<Esp>, stream: &mut Stream) {
    if let Parent::HalfOpen(queue, slot) = core::mem::replace(&mut stream.parent, Parent::None) {
        let listener = queue.lock().complete(slot, sock);
        match listener {
            Some(listener) => listener.data_ready(),
            // It has closed, or has made room: this child is about to be ended too.
            None => stream.parent = Parent::HalfOpen(queue, slot),
        }
    }
}

/// Ends the connection with an error, without a word to the peer.
pub(crate) fn fail(sock: &Sock<Esp>, stream: &mut Stream, error: Error) {
    let dead = sock.is_dead();
    if !dead {
        sock.set_error(error);
    }
    set_state(sock, TcpState::Close);
    sock.add_shutdown(uapi::SHUTDOWN_MASK);
    if !dead {
        sock.wake_error();
    }
    over(sock, stream);
}

/// As [`fail`], with an error that every later call reports.
pub(crate) fn fail_for_good(sock: &Sock<Esp>, stream: &mut Stream, error: Error) {
    stream.ended = Some(error);
    fail(sock, stream, error);
}

/// Ends the connection with a reset to the peer, if that knows of it.
pub(crate) fn abort(sock: &Sock<Esp>, stream: &mut Stream) {
    if let Some(header) = stream.connection.abort() {
        esp_output::send_control(sock, stream, header);
    }
    set_state(sock, TcpState::Close);
    sock.add_shutdown(uapi::SHUTDOWN_MASK);
    over(sock, stream);
}

/// The connection is over: nothing comes in for it any more. If nobody else holds the socket, it
/// goes.
fn over(sock: &Sock<Esp>, stream: &mut Stream) {
    unhash(sock);
    esp_turns::leave(sock, stream);
    // A clean end may leave packets behind too, which a reset took the place of acknowledging.
    esp_output::discard(sock, stream);
    stream.armed = u64::MAX;
    sock.disarm_timer();
    sock.state_change();
    if let Parent::HalfOpen(queue, slot) = core::mem::replace(&mut stream.parent, Parent::None) {
        // A child that failed before anyone could accept it.
        let child = queue.lock().take(slot, sock);
        if let Some(child) = child {
            release(stream, child);
        } else if is_stale(sock) {
            release_own(sock, stream);
        }
        return;
    }
    if sock.is_dead() {
        release_own(sock, stream);
    }
}

/// Whether a half-open child had to make room in its listener's queue.
pub(crate) fn is_stale(sock: &Sock<Esp>) -> bool {
    sock.shared().missed.load(Relaxed) & STALE != 0
}

/// Has a child that its listener's queue gave up at `now` end itself: its lock is not to be taken
/// while the listener's is held.
pub(crate) fn dismiss(child: &Sock<Esp>, now: u64) {
    child.arm_timer(now);
}

/// Ends a child that is stale: without a word to whoever never answered, with a reset to a peer
/// that has just done so.
pub(crate) fn give_up(sock: &Sock<Esp>, stream: &mut Stream) {
    if stream.released {
        return;
    }
    stream.parent = Parent::None;
    if sock.tcp_state() == TcpState::SynRecv as u8 {
        let _ = stream.connection.abort();
        set_state(sock, TcpState::Close);
        over(sock, stream);
    } else if sock.tcp_state() != TcpState::Close as u8 {
        abort(sock, stream);
    }
    release_own(sock, stream);
}

/// Takes the socket, which the caller has locked, out of the connections that packets look for.
pub(crate) fn unhash(sock: &Sock<Esp>) {
    Space::of(sock.net()).esp_connections.remove(sock);
}

/// Ends the protocol's use of a socket that nobody else holds for it, once.
pub(crate) fn release_own(sock: &Sock<Esp>, stream: &mut Stream) {
    if !stream.released {
        release(stream, SockRef::from_lifetime(sock));
    }
}

/// What a connection takes beside the data in its write queue, bytes, rounded up.
const CONNECTION: usize = 4096;

/// Counts a connection whose descriptor was closed and which goes on without. `false` if those of
/// its namespace hold a 32nd of the machine's memory already: nobody's descriptors bound their
/// number, and a peer that does not read lets them live.
pub(crate) fn count_orphan(sock: &Sock<Esp>, stream: &mut Stream) -> bool {
    let bytes = (sock.write_queued().load(Relaxed) as usize).saturating_add(CONNECTION);
    let all = &Space::of(sock.net()).esp_orphaned;
    if all.fetch_add(bytes, Relaxed) > limits::memory_size() / 32 {
        all.fetch_sub(bytes, Relaxed);
        return false;
    }
    stream.orphaned = bytes;
    true
}

/// Gives back the local port and `lifetime`, the protocol's reference.
pub(crate) fn release(stream: &mut Stream, lifetime: SockRef<Esp>) {
    stream.released = true;
    let orphaned = core::mem::take(&mut stream.orphaned);
    if orphaned > 0 {
        let all = &Space::of(lifetime.net()).esp_orphaned;
        all.fetch_sub(orphaned, Relaxed);
    }
    give_port_back(&lifetime);
    lifetime.retire();
}

/// Gives back the local port, if the socket has taken one.
pub(crate) fn give_port_back(sock: &Sock<Esp>) {
    ports::give_back(
        &Space::of(sock.net()).esp_ports,
        sock,
        &sock.shared().binding,
        |other| &other.shared().binding,
    );
}
