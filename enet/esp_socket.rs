// SPDX-License-Identifier: GPL-2.0

//! ESP sockets: what the socket calls do, but for sending and receiving.

use crate::net::errno::prelude::*;
use crate::{
    address::{Address, INTERFACE_ANY},
    devices::{bindable, local, outgoing, present, tie, usable},
    esp::{self, Connection, Seq},
    esp_accept,
    esp_connection::{self, Parent, Shared, Stream, DEVICE, STALE, TURN},
    esp_devices, esp_input, esp_output, esp_stream, esp_turns,
    family::is_own_level,
    net::{
        device::{Device, DeviceRef, Mac},
        family::{End, NewSocket, Operations, Socket, SocketState, Vtable, ADDRESS_LEN},
        message::Message,
        namespace::PerNet,
        options::{IntArgument, OptionBuffer},
        random, rcu,
        skb::Skb,
        sock::{task_is_exiting, Guard, Protocol, Sock, SockRef, TcpState},
        timer, uapi,
        wait::Waiter,
    },
    ports,
    space::Space,
};
use core::sync::atomic::Ordering::Relaxed;

const ESP_SO_MTU: i32 = 1;
const ESP_SO_STATS: i32 = 2;

/// The protocol.
pub(crate) struct Esp;

static VTABLE: Vtable<Esp> = Vtable::new(b"ESP");

impl Protocol for Esp {
    type Shared = Shared;
    type State = Stream;

    fn vtable() -> &'static Vtable<Self> {
        &VTABLE
    }

    fn backlog(sock: &Sock<Self>, stream: &mut Stream, skb: Skb) {
        esp_input::process_late(sock, stream, skb);
    }

    fn timer(sock: &Sock<Self>, stream: &mut Stream) {
        stream.armed = u64::MAX;
        if esp_connection::is_stale(sock) {
            return esp_connection::give_up(sock, stream);
        }
        let now = timer::now();
        if now >= stream.corked {
            esp_stream::uncork(stream);
        }
        esp_turns::refresh(stream);
        if let Some(lane) = &stream.lane {
            stream.connection.port_busy(lane.busy());
        }
        if stream.connection.unacked() == 0 {
            // Who only waits gives back what it may not need for long.
            stream.spares.limit(0);
        }
        let outcome = stream.connection.on_deadline(now);
        esp_connection::settle(sock, stream, outcome, now);
    }

    fn released(sock: &Sock<Self>, stream: &mut Stream) {
        let missed = &sock.shared().missed;
        if missed.load(Relaxed) == 0 {
            return;
        }
        let missed = missed.fetch_and(STALE, Relaxed);
        if missed & DEVICE != 0 {
            esp_devices::look(sock, stream);
        }
        if missed & TURN != 0 {
            esp_turns::grant(sock, stream, timer::now());
        }
    }
}

/// An engine without a connection.
fn unconnected() -> Connection {
    Connection::new(0, 0, esp::Config::default())
}

/// Makes an ESP socket.
pub(crate) fn create(new: NewSocket<'_>, protocol: i32) -> Result {
    let sock = new.attach::<Esp>(protocol, Shared::default(), Stream::new(unconnected()))?;
    sock.wakes_writers_itself();
    Space::of(sock.net()).sysctl.limit_buffers(sock);
    Ok(())
}

/// Ends every connection of a namespace that only waits for its peer, at module exit.
pub(crate) fn end_all(space: &Space) {
    // Once more, for those that came meanwhile, until there is none.
    while space.esp_connections.for_each_held(|_| true, |sock| {
        let mut guard = sock.lock();
        let (sock, stream) = guard.parts();
        rcu::without_bottom_halves(|| {
            esp_connection::abort(sock, stream);
            esp_connection::unhash(sock);
        });
    }) {}
}

/// The interface that a socket is tied to, 0 if to none.
pub(crate) fn interface(sock: &Sock<Esp>) -> u32 {
    let shared = sock.shared();
    // A listener may have had a peer that refused it.
    let listens = sock.tcp_state() == TcpState::Listen as u8;
    let peer = if listens {
        INTERFACE_ANY
    } else {
        shared.peer().ifindex
    };
    tie(sock, shared.binding.ifindex(), peer)
}

impl Esp {
    fn take_port(sock: &Sock<Self>, port: u16, ifindex: u32) -> Result {
        ports::take(
            &Space::of(sock.net()).esp_ports,
            sock,
            &sock.shared().binding,
            |other| &other.shared().binding,
            port,
            ifindex,
        )
    }

    /// Sends the SYN.
    fn start_connecting(sock: &Sock<Self>, stream: &mut Stream, address: &[u8]) -> Result {
        let mut peer = Address::parse(address)?;
        let shared = sock.shared();
        peer.ifindex = outgoing(sock, shared.binding.ifindex(), peer.ifindex)?;
        // A device that goes is not to be found first, and then looks for its connections when
        // nobody reads any more: within one section it cannot be missed.
        let section = rcu::Read::enter();
        let device = Device::find(sock.net(), peer.ifindex, &section).ok_or(ENODEV)?;
        usable(device)?;
        if peer.mac.is_group() || peer.mac == Mac::default() {
            return Err(ENETUNREACH);
        }
        let lane = Space::of(sock.net()).esp_lanes.of(peer.ifindex)?;
        if !shared.binding.is_taken() {
            Self::take_port(sock, 0, INTERFACE_ANY).map_err(|_| EADDRNOTAVAIL)?;
        }
        let port = shared.binding.port();
        let key = esp_connection::key(port, &peer);
        shared.set_peer(&peer);
        shared.missed.store(0, Relaxed);
        esp_devices::begin(sock);
        if let Err(e) = Space::of(sock.net()).esp_connections.insert(&key, sock) {
            shared.set_peer(&Address::default());
            return Err(if e == EEXIST { EADDRNOTAVAIL } else { e });
        }
        let config = Space::of(sock.net()).sysctl.config();
        let connection = Connection::new(port, peer.port, config);
        esp_turns::leave(sock, stream);
        *stream = Stream::new(connection);
        // Measured when changes are heard of already.
        stream.measure(device);
        esp_turns::join(sock, stream, lane);
        sock.start_flow();
        let _ = sock.take_error();
        esp_connection::set_state(sock, TcpState::SynSent);
        let now = timer::now();
        stream.connection.connect(Seq(random::u16()), now);
        rcu::without_bottom_halves(|| esp_output::transmit(sock, stream, now));
        Ok(())
    }

    /// Takes a listener out of the table, and ends its children.
    fn stop_listening(guard: &mut Guard<'_, Self>) {
        let (sock, stream) = guard.parts();
        let Some(queue) = stream.listening.take() else {
            return;
        };
        let table = Space::of(sock.net()).esp_listeners.lock();
        table.remove(sock);
        drop(table);
        esp_connection::set_state(sock, TcpState::Close);
        let listener = queue.lock().close();
        drop(listener);
        sock.shared().readable.store(0, Relaxed);
        loop {
            let child = queue.lock().drain();
            let Some(child) = child else {
                break;
            };
            let held = child.hold();
            let mut guard = held.lock_child();
            let (sock, stream) = guard.parts();
            stream.parent = Parent::None;
            rcu::without_bottom_halves(|| esp_connection::abort(sock, stream));
            esp_connection::release(stream, child);
        }
    }

    /// Ends whatever the socket is in, with a reset if there is a connection, and makes it as good
    /// as new: but for its options, and for its port if that was asked for.
    fn disconnect(guard: &mut Guard<'_, Self>) {
        Self::stop_listening(guard);
        let (sock, stream) = guard.parts();
        let state = sock.tcp_state();
        let ending = [TcpState::Closing, TcpState::LastAck].map(|s| s as u8);
        if state != TcpState::Close as u8 {
            if !ending.contains(&state) || stream.connection.unacked() > 0 {
                sock.set_error(ECONNRESET);
            }
            rcu::without_bottom_halves(|| esp_connection::abort(sock, stream));
        }
        sock.receive_queue().purge();
        sock.shared().readable.store(0, Relaxed);
        let readers = stream.readers;
        *stream = Stream::new(unconnected());
        stream.readers = readers;
        if !sock.shared().binding.is_asked_for() {
            esp_connection::give_port_back(sock);
            sock.shared().binding.lapse();
        }
        sock.clear_shutdown();
        sock.wake_error();
    }

    /// Waits, as `SO_LINGER` asks, until the peer has acknowledged everything.
    fn linger(guard: &mut Guard<'_, Self>) {
        let timeout = guard.sock().linger();
        if let Some(mut timeout) = timeout.filter(|_| !task_is_exiting()) {
            let over = |sock: &Sock<Self>, _: &mut Stream| {
                !matches!(
                    sock.tcp_state(),
                    s if s == TcpState::FinWait1 as u8
                        || s == TcpState::Closing as u8
                        || s == TcpState::LastAck as u8
                )
            };
            // What has not arrived when the time is up goes on in the background.
            let _ = guard.wait(&mut timeout, Waiter::Shared, over);
        }
    }
}

fn is_connected(state: u8) -> bool {
    state != TcpState::Close as u8
        && state != TcpState::Listen as u8
        && state != TcpState::SynSent as u8
}

impl Operations for Esp {
    fn release(sock: SockRef<Self>) {
        let mut guard = sock.lock();
        Self::stop_listening(&mut guard);
        let (sk, stream) = guard.parts();
        sk.add_shutdown(uapi::SHUTDOWN_MASK);
        // Bytes that nobody will read, or a wish to close hard: the peer must know that not all
        // was taken (RFC 2525, section 2.17, of TCP).
        let hard = !sk.receive_queue().is_empty() || sk.linger() == Some(0);
        let state = sk.tcp_state();
        if hard || state == TcpState::SynSent as u8 {
            rcu::without_bottom_halves(|| esp_connection::abort(sk, stream));
        } else if is_connected(state) {
            rcu::without_bottom_halves(|| esp_stream::finish_sending(sk, stream));
            Self::linger(&mut guard);
        }
        let (sk, stream) = guard.parts();
        sk.receive_queue().purge();
        sk.orphan();
        rcu::without_bottom_halves(|| {
            if sk.tcp_state() == TcpState::Close as u8 || !is_connected(sk.tcp_state()) {
                esp_connection::unhash(sk);
                sk.disarm_timer();
                esp_connection::release_own(sk, stream);
            } else if esp_connection::count_orphan(sk, stream) {
                // The local port stays taken until the connection is over.
                stream.connection.orphan(timer::now());
                esp_output::transmit(sk, stream, timer::now());
            } else {
                esp_connection::abort(sk, stream);
            }
        });
    }

    fn bind(sock: &Sock<Self>, address: &[u8]) -> Result {
        let address = Address::parse(address)?;
        ports::allowed(sock, address.port)?;
        let _guard = sock.lock();
        if sock.tcp_state() != TcpState::Close as u8 {
            return Err(EINVAL);
        }
        let section = rcu::Read::enter();
        bindable(sock.net(), address.ifindex, &section)?;
        Self::take_port(sock, address.port, address.ifindex)
    }

    fn connect(sock: &Sock<Self>, socket: &Socket, address: &[u8], nonblocking: bool) -> Result {
        let mut guard = sock.lock();
        if Address::is_unspecified(address) {
            sock.count_disconnect();
            Self::disconnect(&mut guard);
            socket.set_state(SocketState::Unconnected);
            return Ok(());
        }
        let (sk, stream) = guard.parts();
        let pending = match socket.state() {
            SocketState::Disconnecting => return Err(EINVAL),
            SocketState::Connected => return Err(EISCONN),
            SocketState::Connecting => EALREADY,
            SocketState::Unconnected => {
                if sk.tcp_state() != TcpState::Close as u8 {
                    return Err(EISCONN);
                }
                Self::start_connecting(sk, stream, address)?;
                socket.set_state(SocketState::Connecting);
                EINPROGRESS
            }
        };
        let mut timeout = sock.send_timeout(nonblocking);
        guard
            .wait(&mut timeout, Waiter::Shared, |sock, _| {
                sock.tcp_state() != TcpState::SynSent as u8
            })
            .map_err(|e| if e == EAGAIN { pending } else { e })?;
        if sock.tcp_state() == TcpState::Close as u8 {
            let failure = sock.take_error();
            socket.set_state(SocketState::Unconnected);
            sock.count_disconnect();
            Self::disconnect(&mut guard);
            failure?;
            return Err(ECONNABORTED);
        }
        socket.set_state(SocketState::Connected);
        Ok(())
    }

    fn accept(sock: &Sock<Self>, new: &Socket, nonblocking: bool) -> Result {
        let mut guard = sock.lock();
        let mut timeout = sock.receive_timeout(nonblocking);
        let child = loop {
            let queue = guard.state().listening.clone().ok_or(EINVAL)?;
            let waited = guard.wait(&mut timeout, Waiter::Exclusive, |sock, stream| {
                stream.listening.is_none()
                    || queue.lock().has_ready()
                    || sock.has_error()
                    || present(sock.net(), interface(sock)).is_err()
            });
            match waited {
                // Disconnected: it listens no more, which the next look tells.
                Err(EPIPE) => {}
                other => other?,
            }
            let child = queue.lock().pop_ready();
            if let Some(child) = child {
                break child;
            }
            sock.take_error()?;
            present(sock.net(), interface(sock))?;
        };
        drop(guard);
        let guard = child.lock();
        new.graft(guard.sock());
        drop(guard);
        child.leave();
        Ok(())
    }

    fn name(sock: &Sock<Self>, end: End) -> Result<[u8; ADDRESS_LEN]> {
        if end != End::Own {
            let peer = sock.shared().peer();
            // One that has gone before it was accepted is still named, also by `SO_PEERNAME`.
            let missing = match end {
                End::Accepted => peer == Address::default(),
                _ => !is_connected(sock.tcp_state()),
            };
            return if missing { Err(ENOTCONN) } else { Ok(peer.emit()) };
        }
        let ifindex = interface(sock);
        let port = sock.shared().binding.port();
        Ok(local(sock.net(), port, ifindex).emit())
    }

    fn poll(sock: &Sock<Self>) -> u32 {
        const READABLE: u32 = uapi::EPOLLIN | uapi::EPOLLRDNORM;
        const WRITABLE: u32 = uapi::EPOLLOUT | uapi::EPOLLWRNORM;
        let state = sock.tcp_state();
        if state == TcpState::Listen as u8 {
            // The count is kept where it can be read without the socket's lock.
            let mut ready = 0;
            if sock.shared().readable.load(Relaxed) > 0 {
                ready |= READABLE;
            }
            if sock.has_error() || present(sock.net(), interface(sock)).is_err() {
                ready |= READABLE | uapi::EPOLLERR;
            }
            return ready;
        }
        let mut ready = 0;
        let shutdown = sock.shutdown();
        if shutdown == uapi::SHUTDOWN_MASK || state == TcpState::Close as u8 {
            ready |= uapi::EPOLLHUP;
        }
        if shutdown & uapi::RCV_SHUTDOWN != 0 {
            ready |= READABLE | uapi::EPOLLRDHUP;
        }
        if state != TcpState::SynSent as u8 {
            if esp_connection::readable(sock) {
                ready |= READABLE;
            }
            if shutdown & uapi::SEND_SHUTDOWN != 0 || esp_output::writable(sock) {
                ready |= WRITABLE;
            } else {
                sock.want_write_space();
                // Room may have come between the test and the wish.
                if esp_output::writable(sock) {
                    ready |= WRITABLE;
                }
            }
        }
        ready | sock.error_readiness()
    }

    fn ioctl(sock: &Sock<Self>, command: u32, argument: IntArgument) -> Result {
        match command {
            // There is no urgent data, so no mark either.
            uapi::SIOCATMARK => return argument.write(0),
            uapi::SIOCINQ | uapi::SIOCOUTQ | uapi::SIOCOUTQNSD => {}
            _ => return Err(ENOIOCTLCMD),
        }
        if sock.tcp_state() == TcpState::Listen as u8 {
            return Err(EINVAL);
        }
        argument.write(match command {
            uapi::SIOCINQ => sock.shared().readable.load(Relaxed),
            uapi::SIOCOUTQ => sock.shared().unacknowledged.load(Relaxed),
            _ => esp_stream::unsent(&mut sock.lock()),
        })
    }

    fn listen(sock: &Sock<Self>, socket: &Socket, backlog: u32) -> Result {
        let mut guard = sock.lock();
        let (sk, stream) = guard.parts();
        if let Some(queue) = &stream.listening {
            esp_accept::set_backlog(queue, backlog)?;
            sk.backlog_limit().store(backlog, Relaxed);
            return Ok(());
        }
        if sk.tcp_state() != TcpState::Close as u8 || socket.state() != SocketState::Unconnected {
            return Err(EINVAL);
        }
        let queue = esp_accept::Queue::new(sk.hold(), backlog)?;
        if !sk.shared().binding.is_taken() {
            if let Err(e) = Self::take_port(sk, 0, INTERFACE_ANY) {
                drop(queue.lock().close());
                return Err(e);
            }
        }
        let alone = ports::listen(
            &Space::of(sk.net()).esp_ports,
            sk,
            |sock| &sock.shared().binding,
            || esp_connection::set_state(sk, TcpState::Listen),
        );
        if let Err(e) = alone {
            drop(queue.lock().close());
            return Err(e);
        }
        stream.listening = Some(queue);
        sk.backlog_limit().store(backlog, Relaxed);
        let port = sk.shared().binding.port();
        Space::of(sk.net())
            .esp_listeners
            .lock()
            .insert(port.into(), sk);
        Ok(())
    }

    fn shutdown(sock: &Sock<Self>, socket: &Socket, halves: u8) -> Result {
        let mut guard = sock.lock();
        let state = sock.tcp_state();
        if socket.state() == SocketState::Connecting {
            socket.set_state(if is_connected(state) {
                SocketState::Connected
            } else {
                SocketState::Disconnecting
            });
        }
        let ends = state == TcpState::SynSent as u8
            || state == TcpState::Listen as u8 && halves & uapi::RCV_SHUTDOWN != 0;
        if ends {
            // Who waits in `accept` or `connect` is woken.
            Self::disconnect(&mut guard);
            socket.set_state(SocketState::Unconnected);
        } else if state != TcpState::Listen as u8 {
            let (sk, stream) = guard.parts();
            sk.add_shutdown(halves);
            if halves & uapi::RCV_SHUTDOWN != 0 {
                stream.connection.stop_reading();
            }
            if halves & uapi::SEND_SHUTDOWN != 0 && is_connected(state) {
                rcu::without_bottom_halves(|| esp_stream::finish_sending(sk, stream));
            }
        }
        sock.state_change();
        if state == TcpState::Close as u8 {
            // Who waits for something is woken all the same.
            return Err(ENOTCONN);
        }
        Ok(())
    }

    fn set_low_water(sock: &Sock<Self>, mark: i32) {
        sock.set_low_water(mark);
        if esp_connection::readable(sock) {
            sock.data_ready();
        } else {
            // Who sleeps for a single byte is to tell that it is woken by less than the mark.
            sock.state_change();
        }
    }

    fn get_option(sock: &Sock<Self>, level: i32, name: i32, value: OptionBuffer) -> Result {
        if !is_own_level(level) {
            return Err(EOPNOTSUPP);
        }
        match name {
            ESP_SO_MTU => {
                let ifindex = interface(sock);
                let device = DeviceRef::get(sock.net(), ifindex).ok_or(ENODEV)?;
                value.write_u32(esp::mss(device.mtu()))
            }
            ESP_SO_STATS => {
                let stats = sock.lock().state().connection.stats;
                let backlog_drops = sock.shared().backlog_drops.get();
                let numbers = [
                    stats.pkt_tx,
                    stats.pkt_rtx,
                    stats.tx_err,
                    stats.pkt_rx,
                    stats.pkt_rx_oos,
                    stats.pkt_rx_drop.wrapping_add(backlog_drops),
                    stats.seq_lost,
                    stats.arq_tx,
                ];
                let mut bytes = [0; 32];
                for (to, number) in bytes.chunks_exact_mut(4).zip(numbers) {
                    to.copy_from_slice(&number.to_ne_bytes());
                }
                value.write(&bytes)
            }
            _ => Err(ENOPROTOOPT),
        }
    }

    fn send(sock: &Sock<Self>, msg: &mut Message<'_>, len: usize) -> Result<usize> {
        esp_stream::send(sock, msg, len)
    }

    fn receive(sock: &Sock<Self>, msg: &mut Message<'_>, len: usize, flags: i32) -> Result<usize> {
        esp_stream::receive(sock, msg, len, flags)
    }

    fn no_more(sock: &Sock<Self>) {
        esp_stream::no_more(sock);
    }
}
