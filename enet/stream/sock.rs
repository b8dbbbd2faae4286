// SPDX-License-Identifier: GPL-2.0

//! An ESP socket's data: the part that is accessed without the socket lock, and the role of the
//! socket (idle, listener or connection).

use super::{
    accept::SharedQueue,
    ack_queue::{self, Due, QueueEntry},
    domain::Domain,
    lifecycle::Life,
    receive::{Promise, Receiving, Unread},
    send_queue::{Sending, Unacknowledged, UnsentLimit},
};
use crate::{
    address::{Address, Peer, INTERFACE_ANY},
    counters::Counter,
    device::interface,
    esp,
    net::{
        device::{Device, Mac},
        inet::{Bell, InternetEnd},
        map::Key,
        once::Once,
        sock::{Locked, Sock, TcpState},
    },
    ports::Binding,
    sysctl::Settings,
};
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// The protocol ESP.
pub(crate) struct Esp;

/// A locked ESP socket.
pub(super) type LockedEsp<'a> = Locked<'a, Esp>;

/// The part of a socket that is accessed without the socket lock.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) binding: Binding,
    /// The TCP listener, if this socket is its companion (the ESP socket of the same descriptor).
    pub(crate) front: Option<FrontListener>,
    peer: Peer,
    pub(crate) unread: Unread,
    pub(crate) unacknowledged: Unacknowledged,
    pub(super) unsent_limit: UnsentLimit,
    pub(super) promise: Promise,
    /// Number of packets dropped because the backlog of the owning task was full.
    pub(super) backlog_drops: Counter,
    /// The number of the last device change that the connection was informed of.
    told: AtomicU32,
    deferred: AtomicU8,
    pub(crate) asking: Asking,
    /// The domain, if the socket is a channel.
    domain: Once<Domain>,
}

/// The state of a wait before the SYN. A companion, the ESP socket of a TCP socket's descriptor,
/// may have to wait before it sends its SYN.
#[derive(Default)]
pub(crate) struct Asking {
    /// The key under which the socket is listed while it waits; 0 if it does not wait.
    key: AtomicU64,
    /// Whether an event has occurred since a call last examined the attempt to connect.
    news: AtomicBool,
}

impl Asking {
    /// Returns the socket's key in the list of waiting sockets, or 0 if the socket does not wait.
    pub(crate) fn key(&self) -> u64 {
        self.key.load(Relaxed)
    }

    /// Sets the socket's key in the list of waiting sockets. The caller has locked the list.
    pub(crate) fn set_key(&self, key: u64) {
        self.key.store(key, Relaxed);
    }

    /// Returns whether an event has occurred since a call last examined the attempt to connect.
    pub(crate) fn has_news(&self) -> bool {
        self.news.load(Acquire)
    }

    /// Stores that an event has occurred, so that the next call examines the attempt to connect.
    pub(crate) fn note_news(&self) {
        self.news.store(true, Release);
    }

    /// Returns whether an event has occurred since a call last examined the attempt to connect, and
    /// clears `news`.
    pub(crate) fn take_news(&self) -> bool {
        self.news.swap(false, AcqRel)
    }
}

/// Wakes the calls that wait for `sock` before it sends its SYN, so that they examine the attempt
/// to connect.
pub(crate) fn tell(sock: &Sock<Esp>) {
    let asking = &sock.shared().asking;
    asking.note_news();
    sock.state_change();
    // A program that waits for `SIGIO` alone makes its next call only after this signal.
    sock.signal_error();
}

/// The TCP listener on whose behalf an ESP socket accepts mapped connections.
pub(crate) struct FrontListener {
    /// The address that the listener is bound to.
    pub(crate) own: InternetEnd,
    /// Whether the listener accepts IPv4 connections.
    pub(crate) takes_v4: bool,
    /// Tells the kernel code that has made the listener of new connections.
    pub(crate) bell: Option<Bell<Esp>>,
}

impl FrontListener {
    /// Returns whether the listener is bound to all addresses of the destination's family. The
    /// unspecified IPv4 address stands only for all IPv4 addresses.
    fn takes_all_of(&self, destination: &InternetEnd) -> bool {
        self.own.is_any() && (self.own.ip().is_ipv6() || destination.ip().is_ipv4())
    }

    /// Returns whether a connection to `destination` is for this listener.
    pub(super) fn takes(&self, destination: &InternetEnd) -> bool {
        (self.takes_v4 || destination.ip().is_ipv6())
            && self.own.port == destination.port
            && (self.takes_all_of(destination) || self.own == *destination)
    }
}

/// An event that occurs while a task owns the socket. The task handles the event when it releases
/// the socket.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Deferred {
    /// The socket has got its turn in the ACK queue.
    Turn = 1,
    /// The connection's device has changed.
    Device = 2,
}

impl Shared {
    /// Creates the part that is accessed without the lock, for an ESP socket that listens on behalf
    /// of the TCP listener `front`.
    pub(crate) fn of_companion(front: FrontListener) -> Self {
        Shared {
            binding: Binding::fixed(front.own.port, INTERFACE_ANY),
            front: Some(front),
            ..Shared::default()
        }
    }

    /// Creates the part of a listener's child that is accessed without the lock.
    pub(super) fn of_child(local_port: u16, peer: &Address) -> Self {
        let shared = Shared {
            binding: Binding::fixed(local_port, peer.ifindex),
            ..Shared::default()
        };
        shared.set_peer(peer);
        shared
    }

    /// Returns the domain, if the socket is a channel.
    pub(super) fn domain(&self) -> Option<&Domain> {
        self.domain.get()
    }

    /// Makes the socket a channel of `domain`. Returns `false` if it is a channel already.
    pub(super) fn set_domain(&self, domain: Domain) -> bool {
        self.domain.set(domain)
    }

    /// Sets the peer, before the socket is listed among the connections.
    pub(super) fn set_peer(&self, peer: &Address) {
        self.peer.set(peer);
    }

    /// Returns the peer, which is only meaningful while there is a connection.
    #[inline]
    pub(crate) fn peer(&self) -> Address {
        self.peer.last()
    }

    /// Returns whether this is the connection of `local_port` with `peer`.
    #[inline]
    pub(super) fn connects(&self, local_port: u16, peer: &Address) -> bool {
        self.binding.port() == local_port && self.peer.is(peer)
    }

    /// Defers `what` to the task that owns the socket.
    pub(super) fn defer(&self, what: Deferred) {
        self.deferred.fetch_or(what as u8, Relaxed);
    }

    /// Returns whether any event is deferred.
    #[inline]
    pub(super) fn has_deferred(&self) -> bool {
        self.deferred.load(Relaxed) != 0
    }

    /// Returns whether `what` is deferred, and clears the event.
    pub(super) fn take_deferred(&self, what: Deferred) -> bool {
        self.deferred.fetch_and(!(what as u8), Relaxed) & what as u8 != 0
    }

    /// Clears all deferred events, for a new connection.
    pub(super) fn forget_deferred(&self) {
        self.deferred.store(0, Relaxed);
    }

    /// Stores that the connection was informed of device change number `change`.
    pub(super) fn set_told(&self, change: u32) {
        self.told.store(change, Relaxed);
    }

    /// Returns the number of the last device change that the connection was informed of.
    pub(super) fn told(&self) -> u32 {
        self.told.load(Relaxed)
    }
}

/// Returns the key under which a connection is looked up.
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

/// A connection. After its end, it stays with the socket until the socket is disconnected.
pub(crate) struct Connection {
    /// The protocol engine.
    pub(crate) engine: esp::Connection,
    pub(crate) sending: Sending,
    pub(super) receiving: Receiving,
    pub(super) queue_entry: QueueEntry<Esp>,
    pub(super) life: Life<Esp>,
    /// The ends of the TCP connection that this connection stands for, as stated in the SYN.
    pub(super) mapped: Option<esp::Mapped>,
    /// The local Ethernet address, as known to the peer.
    pub(super) local: Mac,
    /// The time at which the socket's timer expires; `u64::MAX` if the timer is not armed.
    armed: u64,
}

impl Connection {
    /// Creates the connection of `sock` with its `engine`, through `device`, whose ACK queue is
    /// `queue`.
    fn new(
        sock: &Sock<Esp>,
        engine: esp::Connection,
        device: &Device,
        queue: ack_queue::Shared<Esp>,
    ) -> Self {
        let sending = Sending::new(device);
        sock.shared().promise.set_granted(engine.granted());
        Connection {
            engine,
            receiving: Receiving::new(sending.mss()),
            sending,
            queue_entry: QueueEntry::new(sock, sock.shared().peer().mac, queue),
            life: Life::new(),
            mapped: None,
            local: device.address(),
            armed: u64::MAX,
        }
    }

    /// Describes the receive queue to the engine, with `arriving` bytes of memory about to join it.
    #[inline(always)]
    pub(super) fn room(&self, sock: &Sock<Esp>, arriving: u32) -> esp::Room {
        if self.engine.has_records() {
            self.receiving
                .room_of_records(sock, &sock.shared().unread, arriving)
        } else {
            self.receiving.room(sock, &sock.shared().unread, arriving)
        }
    }

    /// Prepares a packet that is not in the write queue: returns its `header`, which announces a
    /// checksum if the connection uses checksums, and the mask of this checksum. A RST that answers
    /// a packet of another connection has a checksum if that packet has one.
    #[inline]
    pub(super) fn sums(&self, header: esp::Header) -> (esp::Header, u32) {
        if header.has_checksum() {
            (header, self.mask_of_sums(&header))
        } else if self.sending.has_checksum() && !header.is_stateless_reset() {
            (header.with_checksum(true), self.mask_of_sums(&header))
        } else {
            (header, 0)
        }
    }

    /// Returns the mask of the checksums of packets with `header`.
    #[inline]
    pub(super) fn mask(&self, header: &esp::Header) -> u32 {
        if self.sending.has_checksum() {
            self.mask_of_sums(header)
        } else {
            0
        }
    }

    // Out of line, so that connections without checksums only pay for a branch.
    #[cold]
    #[inline(never)]
    fn mask_of_sums(&self, header: &esp::Header) -> u32 {
        self.engine.mask(header)
    }

    /// Arms the socket's timer if the engine needs it to expire earlier. A timer is not pushed
    /// back, because pushing it back would cost more than an early expiry, which is a no-op.
    #[inline]
    pub(super) fn arm(&mut self, sock: &Sock<Esp>, now: u64) {
        if self.armed <= self.engine.earliest_new_deadline(now) && !self.sending.is_corked() {
            return;
        }
        let deadline = match self.engine.deadline() {
            Some(deadline) => deadline.min(self.sending.corked_until()),
            None => return,
        };
        if deadline < self.armed {
            self.armed = deadline;
            sock.arm_timer(deadline);
        }
    }

    /// Stores that the timer has expired, and so is no longer armed.
    pub(super) fn expired(&mut self) {
        self.armed = u64::MAX;
    }

    /// Disarms the timer.
    pub(super) fn disarm(&mut self, sock: &Sock<Esp>) {
        self.armed = u64::MAX;
        sock.disarm_timer();
    }
}

/// The role of a socket.
#[derive(Default)]
pub(super) enum Role {
    /// Neither listener nor connection.
    #[default]
    Idle,
    /// A listener, with the queue of its children.
    Listener(SharedQueue<Esp>),
    /// A connection.
    Connection(Connection),
}

/// Options that programs have set by `setsockopt`. They persist across connections, and a
/// listener's children inherit them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Chosen {
    /// `ESP_SO_USER_TIMEOUT`, in milliseconds; 0 if it is not set.
    pub(super) user_timeout: u32,
    /// `ESP_SO_CHECKSUM`, if a program has set it.
    pub(super) checksum: Option<bool>,
}

impl Chosen {
    /// Returns whether a new connection through a device with a link of `speed` Mbit/s asks for
    /// checksums.
    pub(super) fn sums_at(&self, settings: &Settings, speed: u32) -> bool {
        self.checksum.unwrap_or_else(|| settings.checksum_at(speed))
    }

    /// Returns whether a listener's connection has checksums if the peer does not ask for them. The
    /// link speed does not matter here (0 stands for an unknown one), because both ends of a link
    /// have the same speed, and the peer has already taken it into account.
    pub(super) fn sums(&self, settings: &Settings) -> bool {
        self.sums_at(settings, 0)
    }
}

/// The part of a socket that the socket lock guards.
#[derive(Default)]
pub(crate) struct State {
    pub(super) role: Role,
    pub(super) chosen: Chosen,
    /// The ends of the TCP connection that the socket's connection stands for.
    pub(crate) mapped: Option<esp::Mapped>,
    /// Number of calls on the socket, for its present or an earlier connection, that sleep until
    /// data arrive.
    readers: u32,
}

impl State {
    /// Turns `sock`, whose state this is, into a connection through `device`. `engine` is the
    /// connection's engine, and `queue` the ACK queue of `device`.
    // The function is out of line, because the new connection takes over a kilobyte of stack until
    // it is stored. Inlined, it would still take this stack while the caller sends packets.
    #[inline(never)]
    pub(super) fn begin(
        &mut self,
        sock: &Sock<Esp>,
        engine: esp::Connection,
        device: &Device,
        queue: ack_queue::Shared<Esp>,
    ) {
        self.role = Role::Connection(Connection::new(sock, engine, device, queue));
    }

    /// Returns the connection, if the socket is one.
    #[inline]
    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.role {
            Role::Connection(connection) => Some(connection),
            _ => None,
        }
    }

    /// Returns the queue of the listener's children, if the socket is a listener.
    #[inline]
    pub(super) fn listening(&self) -> Option<&SharedQueue<Esp>> {
        match &self.role {
            Role::Listener(queue) => Some(queue),
            _ => None,
        }
    }

    /// Returns whether a call sleeps for data.
    #[inline]
    pub(super) fn has_readers(&self) -> bool {
        self.readers > 0
    }

    /// Counts a call that is about to sleep for data.
    pub(super) fn add_reader(&mut self) {
        self.readers = self.readers.wrapping_add(1);
    }

    /// Stops counting a call that no longer sleeps for data.
    pub(super) fn remove_reader(&mut self) {
        self.readers = self.readers.saturating_sub(1);
    }
}

/// Returns a locked socket and its connection, if it has one.
#[inline]
pub(crate) fn parts<'a, 'b>(
    esp: &'b mut LockedEsp<'a>,
) -> Option<(&'a Sock<Esp>, &'b mut Connection)> {
    let sock = esp.sock();
    Some((sock, esp.state.connection()?))
}

/// Lets the timer of the socket's ACK queue serve the queue, if a turn is due.
#[inline]
pub(super) fn serve_by_timer(esp: &mut LockedEsp<'_>, due: Due, now: u64) {
    if due.is_now() {
        if let Some(connection) = esp.state.connection() {
            connection.queue_entry.serve_by_timer(due, now);
        }
    }
}

/// Returns the interface that a socket is tied to, or 0 if it is tied to none. A connection is tied
/// to the interface of its packets. If a listener is bound to a VRF, its children are bound to the
/// VRF, too, and use a device in the VRF.
pub(crate) fn tie(sock: &Sock<Esp>) -> u32 {
    let shared = sock.shared();
    // This socket listens on behalf of a TCP listener, and like that listener it is tied to no
    // device. So it continues to listen if a device is removed.
    if shared.front.is_some() {
        return INTERFACE_ANY;
    }
    let state = sock.tcp_state();
    // A listener may still have the address of a peer that refused an earlier `connect`. This
    // address must not tie the listener to a device.
    let peer = if state == TcpState::Listen as u8 {
        INTERFACE_ANY
    } else {
        shared.peer().ifindex
    };
    if peer != INTERFACE_ANY && state != TcpState::Close as u8 {
        return peer;
    }
    interface(sock, shared.binding.ifindex(), peer)
}
