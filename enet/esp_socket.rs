// SPDX-License-Identifier: GPL-2.0

//! ESP sockets: what the socket calls do, but for sending and receiving.

use crate::net::errno::prelude::*;
use crate::{
    address::{Address, INTERFACE_ANY},
    edp_socket::{outgoing, usable},
    esp::{self, Connection, Seq},
    esp_accept,
    esp_connection::{self, Parent, Shared, Stream},
    esp_input, esp_output, esp_stream,
    family::SOL_EP,
    net::{
        device::{Device, DeviceRef, Mac},
        family::{NewSocket, Operations, Socket, SocketState, Vtable, ADDRESS_LEN},
        message::Message,
        namespace::PerNet,
        options::{IntArgument, OptionBuffer},
        random, rcu,
        skb::Skb,
        sock::{Guard, Protocol, Sock, SockRef, TcpState},
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
        esp_input::process(sock, stream, skb);
    }

    fn timer(sock: &Sock<Self>, stream: &mut Stream) {
        stream.armed = u64::MAX;
        let now = timer::now();
        let outcome = stream.connection.on_deadline(now);
        esp_connection::settle(sock, stream, outcome, now);
    }
}

/// An engine without a connection.
fn unconnected() -> Connection {
    Connection::new(0, 0, esp::Config::default())
}

/// Makes an ESP socket.
pub(crate) fn create(new: NewSocket<'_>, protocol: i32) -> Result {
    new.attach::<Esp>(protocol, Shared::default(), Stream::new(unconnected(), 0))
}

/// Ends every connection of a namespace that only waits for its peer, at module exit.
pub(crate) fn end_all(space: &Space) {
    end_where(space, |_| true, esp_connection::abort);
}

/// Ends the connections that `chosen` picks, in process context, each by `end`, which takes it out
/// of the table of connections.
pub(crate) fn end_where(
    space: &Space,
    chosen: impl Fn(&Sock<Esp>) -> bool,
    end: impl Fn(&Sock<Esp>, &mut Stream),
) {
    while let Some(sock) = space.esp_connections.hold_any(&chosen) {
        let mut guard = sock.lock();
        let (sock, stream) = guard.parts();
        rcu::without_bottom_halves(|| {
            end(sock, stream);
            esp_connection::unhash(sock);
        });
    }
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

    /// The interface that the socket is bound or connected by, if any.
    fn interface(sock: &Sock<Self>) -> u32 {
        match sock.shared().binding.ifindex() {
            INTERFACE_ANY => sock.shared().peer().ifindex,
            ifindex => ifindex,
        }
    }

    /// Sends the SYN.
    fn start_connecting(sock: &Sock<Self>, stream: &mut Stream, address: &[u8]) -> Result {
        let mut peer = Address::parse(address)?;
        let shared = sock.shared();
        peer.ifindex = outgoing(sock, shared.binding.ifindex(), peer.ifindex)?;
        let device = DeviceRef::get(sock.net(), peer.ifindex).ok_or(ENODEV)?;
        usable(&device)?;
        if peer.mac.is_group() || peer.mac == Mac::default() {
            return Err(ENETUNREACH);
        }
        if shared.binding.port() == 0 {
            Self::take_port(sock, 0, INTERFACE_ANY).map_err(|_| EADDRNOTAVAIL)?;
        }
        let port = shared.binding.port();
        let hash = esp_connection::hash(port, &peer);
        let table = Space::of(sock.net()).esp_connections.lock();
        if table.any(hash, |other| other.shared().connects(port, &peer)) {
            return Err(EADDRNOTAVAIL);
        }
        shared.set_peer(&peer);
        table.insert(hash, sock);
        drop(table);
        let connection = Connection::new(port, peer.port, esp::Config::default());
        *stream = Stream::new(connection, esp::mss(device.mtu()));
        sock.clear_shutdown();
        sock.set_tcp_state(TcpState::SynSent);
        let now = timer::now();
        stream.connection.connect(Seq(random::u16()), now);
        rcu::without_bottom_halves(|| esp_output::transmit(sock, stream, now));
        Ok(())
    }

    /// Ends a listener's children and takes it out of the table.
    fn stop_listening(guard: &mut Guard<'_, Self>) {
        let (sock, stream) = guard.parts();
        let Some(queue) = stream.listening.take() else {
            return;
        };
        let table = Space::of(sock.net()).esp_listeners.lock();
        table.remove(sock.shared().binding.port().into(), sock);
        drop(table);
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

    /// Waits, as `SO_LINGER` asks, until the peer has acknowledged everything.
    fn linger(guard: &mut Guard<'_, Self>) {
        if let Some(mut timeout) = guard.sock().linger() {
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
            } else {
                // The local port stays taken until the connection is over.
                stream.connection.orphan(timer::now());
                esp_output::transmit(sk, stream, timer::now());
            }
        });
    }

    fn bind(sock: &Sock<Self>, address: &[u8]) -> Result {
        let address = Address::parse(address)?;
        if address.ifindex != INTERFACE_ANY {
            let device = DeviceRef::get(sock.net(), address.ifindex).ok_or(ENODEV)?;
            usable(&device)?;
        }
        let _guard = sock.lock();
        if sock.tcp_state() != TcpState::Close as u8 {
            return Err(EINVAL);
        }
        Self::take_port(sock, address.port, address.ifindex)
    }

    fn connect(sock: &Sock<Self>, socket: &Socket, address: &[u8], nonblocking: bool) -> Result {
        let mut guard = sock.lock();
        let (sk, stream) = guard.parts();
        let state = sk.tcp_state();
        if socket.is_connecting() {
            if state == TcpState::SynSent as u8 && nonblocking {
                return Err(EALREADY);
            }
        } else if state != TcpState::Close as u8 || socket.is_connected() {
            return Err(EISCONN);
        } else {
            sk.take_error()?;
            Self::start_connecting(sk, stream, address)?;
            socket.set_state(SocketState::Connecting);
            if nonblocking {
                return Err(EINPROGRESS);
            }
        }
        let mut timeout = sock.send_timeout(false);
        guard
            .wait(&mut timeout, Waiter::Shared, |sock, _| {
                sock.tcp_state() != TcpState::SynSent as u8
            })
            .map_err(|e| if e == EAGAIN { EINPROGRESS } else { e })?;
        if guard.sock().tcp_state() == TcpState::Close as u8 {
            socket.set_state(SocketState::Unconnected);
            sock.take_error()?;
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
            guard.wait(&mut timeout, Waiter::Exclusive, |_, stream| {
                stream.listening.is_none() || queue.lock().has_ready()
            })?;
            let child = queue.lock().pop_ready();
            if let Some(child) = child {
                break child;
            }
        };
        drop(guard);
        let guard = child.lock();
        new.graft(guard.sock());
        drop(guard);
        child.leave();
        Ok(())
    }

    fn name(sock: &Sock<Self>, peer: bool) -> Result<[u8; ADDRESS_LEN]> {
        let state = sock.tcp_state();
        if peer {
            return if is_connected(state) {
                Ok(sock.shared().peer().emit())
            } else {
                Err(ENOTCONN)
            };
        }
        let ifindex = Self::interface(sock);
        let section = rcu::Read::enter();
        let mac = Device::find(sock.net(), ifindex, &section)
            .filter(|device| device.is_ethernet())
            .map_or(Mac::default(), Device::address);
        let port = sock.shared().binding.port();
        Ok(Address { port, ifindex, mac }.emit())
    }

    fn poll(sock: &Sock<Self>) -> u32 {
        const READABLE: u32 = uapi::EPOLLIN | uapi::EPOLLRDNORM;
        const WRITABLE: u32 = uapi::EPOLLOUT | uapi::EPOLLWRNORM;
        let state = sock.tcp_state();
        if state == TcpState::Listen as u8 {
            // The count is kept where it can be read without the socket's lock.
            return if sock.shared().readable.load(Relaxed) > 0 {
                READABLE
            } else {
                0
            };
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
            // A low-water mark that the buffer cannot reach would never be met.
            let full = sock.receive_queued() >= sock.receive_limit() / 2;
            let readable = sock.shared().readable.load(Relaxed) as usize;
            if readable > 0 && (full || readable >= sock.low_water(false, usize::MAX)) {
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
        if sock.has_error() {
            ready |= uapi::EPOLLERR;
        }
        ready
    }

    fn ioctl(sock: &Sock<Self>, command: u32, argument: IntArgument) -> Result {
        let counter = match command {
            uapi::SIOCINQ => &sock.shared().readable,
            uapi::SIOCOUTQ => &sock.shared().unacknowledged,
            _ => return Err(ENOIOCTLCMD),
        };
        if sock.tcp_state() == TcpState::Listen as u8 {
            return Err(EINVAL);
        }
        argument.write(counter.load(Relaxed))
    }

    fn listen(sock: &Sock<Self>, _socket: &Socket, backlog: u32) -> Result {
        let mut guard = sock.lock();
        let (sk, stream) = guard.parts();
        if let Some(queue) = &stream.listening {
            queue.lock().set_backlog(backlog);
            return Ok(());
        }
        if sk.tcp_state() != TcpState::Close as u8 {
            return Err(EINVAL);
        }
        let queue = esp_accept::Queue::new(sk.hold(), backlog)?;
        if sk.shared().binding.port() == 0 {
            if let Err(e) = Self::take_port(sk, 0, INTERFACE_ANY) {
                drop(queue.lock().close());
                return Err(e);
            }
        }
        stream.listening = Some(queue);
        sk.clear_shutdown();
        sk.backlog_limit().store(backlog, Relaxed);
        sk.set_tcp_state(TcpState::Listen);
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
        if state == TcpState::Listen as u8 {
            if halves & uapi::RCV_SHUTDOWN != 0 {
                // As TCP's, the socket can then be bound anew only by closing it; who waits in
                // `accept` is woken.
                Self::stop_listening(&mut guard);
                sock.set_tcp_state(TcpState::Close);
                sock.state_change();
            }
            return Ok(());
        }
        if state == TcpState::Close as u8 {
            return Err(ENOTCONN);
        }
        let (sk, stream) = guard.parts();
        sk.add_shutdown(halves);
        if state == TcpState::SynSent as u8 {
            rcu::without_bottom_halves(|| esp_connection::abort(sk, stream));
            socket.set_state(SocketState::Unconnected);
        } else if halves & uapi::SEND_SHUTDOWN != 0 {
            rcu::without_bottom_halves(|| esp_stream::finish_sending(sk, stream));
        }
        sk.state_change();
        Ok(())
    }

    fn get_option(sock: &Sock<Self>, level: i32, name: i32, value: OptionBuffer) -> Result {
        match (level, name) {
            (SOL_EP, ESP_SO_MTU) => {
                let ifindex = Self::interface(sock);
                let device = DeviceRef::get(sock.net(), ifindex).ok_or(ENODEV)?;
                value.write_u32(esp::mss(device.mtu()))
            }
            (SOL_EP, ESP_SO_STATS) => {
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
}
