// SPDX-License-Identifier: GPL-2.0

//! ESP sockets: the socket calls, except for sending and receiving.

use super::{
    accept::{self, Offspring},
    ack_queue::Scheduled,
    bytes, channel, device, input, options, out_of_order,
    outcome::{self, is_connecting},
    output::push,
    records, ring,
    sock::{key, parts, serve_by_timer, tie, Deferred, Esp, LockedEsp, Role, Shared, State},
    splice,
};
use crate::net::errno::prelude::*;
use crate::{
    address::{Address, INTERFACE_ANY},
    device::{bindable, choose_interface, local, present, usable},
    esp::{self, Seq},
    net::{
        device::{Device, Mac},
        family::{
            Call, Closing, End, NewDescriptor, NewSocket, Operations, SocketState, Vtable,
            ADDRESS_LEN,
        },
        message::Message,
        namespace::PerNet,
        options::{OptionBuffer, OptionValue, StructArgument},
        random, rcu,
        ring::Ring,
        skb::Skb,
        sock::{self, task_is_exiting, Guard, Protocol, Sock, SockRef, TcpState},
        softirq::{self, Softirq},
        splice::Pipe,
        timer, uapi,
        wait::Waiter,
    },
    pernet::NetState,
    ports,
    statistics::Statistic,
    uapi::is_own_level,
};
use core::sync::atomic::Ordering::Relaxed;

/// Number of times that the SYN of a mapped connection is sent. With the value 2, an attempt to
/// connect ends after 0.6 s, since the timeouts are 0.2 and 0.4 s.
const MAPPED_SYN_TRIES: u8 = 2;

static VTABLE: Vtable<Esp> = Vtable::new(b"ESP");

impl Protocol for Esp {
    type Kind = sock::Stream;
    type Shared = Shared;
    type State = State;
    type Slot = esp::Slot;
    const WAKES_WRITERS: bool = true;
    const OUTLIVES_DESCRIPTOR: bool = true;

    fn vtable() -> &'static Vtable<Self> {
        &VTABLE
    }

    fn backlog(esp: &mut LockedEsp<'_>, skb: Skb, softirq: Softirq<'_>) {
        input::process_late(esp, skb, softirq);
    }

    fn timer(esp: &mut LockedEsp<'_>, _softirq: Softirq<'_>) {
        let sock = esp.sock();
        if sock.shared().asking.key() != 0 {
            // This socket connects on behalf of a TCP socket, and its wait before its SYN has timed
            // out.
            return NetState::of(sock.net()).mapped_askers.expire(sock);
        }
        let Some((_, connection)) = parts(esp) else {
            return;
        };
        connection.expired();
        let now = timer::now();
        let engine = &mut connection.engine;
        if now >= connection.sending.corked_until() {
            connection.sending.uncork(engine);
        }
        connection.queue_entry.refresh(engine);
        if engine.unacked() == 0 {
            // An idle connection frees its spare memory, which it may not need soon.
            connection.sending.free_spares();
        }
        let heard = connection.queue_entry.last_arrival();
        let outcome = engine.on_deadline(heard, now);
        let due = outcome::apply_outcome(esp, outcome, now);
        serve_by_timer(esp, due, now);
    }

    #[inline]
    fn awaits_release(shared: &Shared) -> bool {
        shared.has_deferred()
    }

    fn before_release(esp: &mut LockedEsp<'_>, _softirq: Softirq<'_>) {
        let shared = esp.sock().shared();
        if shared.take_deferred(Deferred::Device) {
            device::look(esp);
        }
        if shared.take_deferred(Deferred::Turn) {
            Self::take_turn(esp, timer::now());
        }
    }
}

impl Scheduled for Esp {
    fn take_turn(esp: &mut LockedEsp<'_>, now: u64) {
        if let Some((_, connection)) = parts(esp) {
            connection.queue_entry.refresh(&mut connection.engine);
            connection.engine.take_turn();
        }
        push(esp, now);
    }

    fn miss_turn(sock: &Sock<Self>) {
        sock.shared().defer(Deferred::Turn);
    }
}

impl Offspring for Esp {
    fn note_ready(listener: &Sock<Self>, connections: u32) {
        listener.shared().unread.set(connections);
    }
}

/// Creates an ESP socket.
pub(crate) fn create(new: NewSocket<'_>, protocol: i32) -> Result {
    let sock = new.attach::<Esp>(protocol, Shared::default())?;
    NetState::of(sock.net()).sysctl.limit_buffers(sock);
    Ok(())
}

/// Ends all connections of a namespace at module exit. The remaining connections only wait for
/// their peers.
pub(crate) fn end_all(net_state: &NetState) {
    // Repeats until the walk finds no connection, because connections may be added while others
    // end.
    while net_state.esp_connections.for_each_held(
        |_| true,
        |sock| {
            let mut guard = sock.lock();
            let mut esp = guard.locked();
            softirq::disabled(|_| {
                outcome::abort(&mut esp);
                outcome::unlist(&esp);
            });
        },
    ) {}
}

impl Esp {
    fn take_port(sock: &Sock<Self>, port: u16, ifindex: u32) -> Result {
        ports::take(
            &NetState::of(sock.net()).esp_ports,
            sock,
            &sock.shared().binding,
            |other| &other.shared().binding,
            port,
            ifindex,
        )
    }

    /// Asks the device of a connection to `address` for the speed of its link, if the speed decides
    /// whether the connection has checksums. Called before the socket is locked.
    fn ask_speed(sock: &Sock<Esp>, address: &[u8]) {
        let net_state = NetState::of(sock.net());
        if !net_state.sysctl.checksum_by_speed() || sock.tcp_state() != TcpState::Close as u8 {
            return;
        }
        let asked = Address::parse(address)
            .and_then(|peer| choose_interface(sock, sock.shared().binding.ifindex(), peer.ifindex));
        if let Ok(ifindex) = asked {
            net_state.esp_queues.ask_speed(sock.net(), ifindex);
        }
    }

    /// Lists a socket as a connection to `peer`, and takes a port if the socket has none.
    fn list_connection(esp: &LockedEsp<'_>, peer: &Address) -> Result {
        let sock = esp.sock();
        let shared = sock.shared();
        let net_state = NetState::of(sock.net());
        shared.set_peer(peer);
        shared.unacknowledged.clear();
        shared.forget_deferred();
        device::begin(sock);
        let list = |port| net_state.esp_connections.insert(&key(port, peer), esp);
        let listed = if shared.binding.is_taken() {
            list(shared.binding.port())
        } else {
            let to = u64::from(peer.ifindex) << 32 | u64::from(peer.port);
            let hash = net_state.port_secret.hash([peer.mac.to_bits(), to, 0]);
            ports::take_to_connect(&net_state.esp_ports, sock, &shared.binding, hash, list)
        };
        listed.map_err(|e| {
            shared.set_peer(&Address::default());
            if e == EEXIST {
                EADDRNOTAVAIL
            } else {
                e
            }
        })
    }

    /// Begins a connection to `address`: sends the SYN.
    fn start_connecting(esp: &mut LockedEsp<'_>, address: &[u8]) -> Result {
        let sock = esp.sock();
        let net_state = NetState::of(sock.net());
        let mut peer = Address::parse(address)?;
        let shared = sock.shared();
        peer.ifindex = choose_interface(sock, shared.binding.ifindex(), peer.ifindex)?;
        // When a device is removed, the core unlists the device and waits for readers. Then this
        // module searches for the connections of the device. So the search finds a connection if
        // the connection is listed in the read section in which its device was looked up.
        let section = rcu::Read::enter();
        let device = Device::find(sock.net(), peer.ifindex, &section).ok_or(ENODEV)?;
        usable(device)?;
        if peer.mac.is_group() || peer.mac == Mac::default() {
            return Err(ENETUNREACH);
        }
        let queue = net_state.esp_queues.of(peer.ifindex)?;
        let sums = esp.state.chosen.sums_at(&net_state.sysctl, queue.speed());
        Self::list_connection(esp, &peer)?;
        let port = shared.binding.port();
        if let Some(last) = esp.state.connection() {
            last.queue_entry.leave(sock);
        }
        let config = net_state.sysctl.config();
        let mut engine = esp::Connection::new(port, peer.port, config);
        engine.set_user_timeout(esp.state.chosen.user_timeout, config);
        if let Some(kind) = records::accepted(sock) {
            engine.use_records(kind);
        }
        let mapped = esp.state.mapped.as_mut().map(|mapped| {
            // TCP is the fallback of a mapped connection. The number of SYNs is limited, so that a
            // silent peer does not delay TCP for long.
            engine.set_syn_tries(MAPPED_SYN_TRIES);
            if mapped.source.port == 0 {
                mapped.source.port = port;
            }
            *mapped
        });
        let now = timer::now();
        engine.use_nonce(random::u32());
        engine.connect(Seq(random::u16()), now);
        // The device's properties are not read before this point: only from here on is the
        // connection informed of changes.
        esp.state.begin(sock, engine, device, queue);
        if let Some(connection) = esp.state.connection() {
            connection.mapped = mapped;
        }
        if sums {
            device::sum(esp, now);
        }
        sock.start_flow();
        let _ = sock.take_own_error();
        let _ = sock.take_error();
        net_state.statistics.count(Statistic::EspActiveOpens);
        outcome::set_state(sock, TcpState::SynSent);
        softirq::disabled(|_| push(esp, now));
        Ok(())
    }

    /// Removes a listener from the table, and ends its children.
    fn stop_listening(guard: &mut Guard<'_, Self>) {
        let esp = guard.locked();
        let sock = esp.sock();
        let Some(queue) = esp.state.listening().cloned() else {
            return;
        };
        esp.state.role = Role::Idle;
        let net_state = NetState::of(sock.net());
        let listed = net_state.esp_listeners.lock().remove(sock);
        drop(listed);
        let listed = net_state.mapped_listeners.lock().remove(sock);
        drop(listed);
        outcome::set_state(sock, TcpState::Close);
        let listener = queue.lock().close();
        drop(listener);
        sock.shared().unread.set(0);
        loop {
            let child = queue.lock().drain();
            let Some(child) = child else {
                break;
            };
            let mut guard = child.lock_child();
            let mut esp = guard.locked();
            if let Some(connection) = esp.state.connection() {
                let _ = connection.life.take_parent();
            }
            softirq::disabled(|_| outcome::abort(&mut esp));
            outcome::end(&child);
        }
    }

    /// Resets the socket to its initial state. Its options stay, and so does a port that `bind`
    /// named. A listener stops listening. A connection ends with a reset.
    fn disconnect(guard: &mut Guard<'_, Self>) {
        Self::stop_listening(guard);
        let mut esp = guard.locked();
        let sock = esp.sock();
        let state = sock.tcp_state();
        let ending = [TcpState::Closing, TcpState::LastAck].map(|s| s as u8);
        if state != TcpState::Close as u8 {
            let unacked = esp.state.connection().map_or(0, |c| c.engine.unacked());
            if !ending.contains(&state) || unacked > 0 {
                sock.set_error(ECONNRESET);
            }
            softirq::disabled(|_| outcome::abort(&mut esp));
        }
        esp.receive_queue().purge();
        sock.shared().unread.set(0);
        sock.shared().unacknowledged.clear();
        esp.state.role = Role::Idle;
        if !sock.shared().binding.is_explicit() {
            outcome::give_port_back(sock);
            sock.shared().binding.mark_released();
        }
        esp.clear_shutdown();
        sock.wake_error();
    }

    /// Waits until the peer has acknowledged everything, as `SO_LINGER` asks.
    fn linger(call: &Call<'_, Self>, guard: &mut Guard<'_, Self>) {
        if let Some(mut timeout) = call.linger().filter(|_| !task_is_exiting()) {
            // The result is ignored, because the connection continues in the background after the
            // timeout.
            let _ = guard.wait(call, &mut timeout, Waiter::Shared, |esp| {
                let ending = [TcpState::FinWait1, TcpState::Closing, TcpState::LastAck];
                !ending.map(|s| s as u8).contains(&esp.sock().tcp_state())
            });
        }
    }
}

fn is_connected(state: u8) -> bool {
    state != TcpState::Close as u8 && state != TcpState::Listen as u8 && !is_connecting(state)
}

/// Makes the socket of `call` listen on behalf of a TCP socket. The caller has created it for this
/// purpose.
pub(crate) fn listen_as_companion(call: &Call<'_, Esp>, backlog: u32) -> Result {
    let front = call.sock().shared().front.as_ref().ok_or(EINVAL)?;
    start_listening(call, backlog, |sock| {
        outcome::set_state(sock, TcpState::Listen);
        let listeners = NetState::of(sock.net()).mapped_listeners.lock();
        listeners.insert(front.own.port.into(), sock)
    })
}

/// Turns the socket into a listener. `list` sets the socket's state, and adds the socket to a table
/// in which packets find it. If the socket is a listener already, only the backlog is changed.
///
/// # Errors
///
/// `EINVAL` if the socket has a connection, `ENOMEM`, and the errors of `list`.
fn start_listening(
    call: &Call<'_, Esp>,
    backlog: u32,
    list: impl FnOnce(&Sock<Esp>) -> Result,
) -> Result {
    let sock = call.sock();
    let mut guard = call.lock();
    let esp = guard.locked();
    if let Some(queue) = esp.state.listening() {
        accept::set_backlog(queue, backlog);
        sock.backlog_limit().store(backlog, Relaxed);
        return Ok(());
    }
    if sock.tcp_state() != TcpState::Close as u8 {
        return Err(EINVAL);
    }
    let queue = accept::Queue::new(call.hold(), backlog)?;
    if let Err(e) = list(sock) {
        if sock.tcp_state() == TcpState::Listen as u8 {
            outcome::set_state(sock, TcpState::Close);
        }
        drop(queue.lock().close());
        return Err(e);
    }
    esp.state.role = Role::Listener(queue);
    sock.backlog_limit().store(backlog, Relaxed);
    Ok(())
}

/// Reverses [`listen_as_companion`].
pub(crate) fn stop_as_companion(sock: &Sock<Esp>) {
    let mut guard = sock.lock();
    Esp::stop_listening(&mut guard);
}

/// Returns the connection that has waited longest for a listener's `accept`, if there is one.
pub(crate) fn take_child(listener: &Sock<Esp>) -> Option<SockRef<Esp>> {
    let mut guard = listener.lock();
    let queue = guard.locked().state.listening()?.clone();
    drop(guard);
    let child = queue.lock().pop_ready();
    child
}

/// Ends an attempt to connect, unless the attempt has already succeeded or failed. Returns whether
/// the attempt was ended.
pub(crate) fn stop_connecting(call: &Call<'_, Esp>) -> bool {
    let sock = call.sock();
    let mut guard = sock.lock();
    if !is_connecting(sock.tcp_state()) {
        return false;
    }
    Esp::disconnect(&mut guard);
    call.set_state(SocketState::Unconnected);
    sock.state_change();
    true
}

/// Ends a connection that cannot get a descriptor.
pub(crate) fn give_up_child(child: &Sock<Esp>) {
    let mut guard = child.lock();
    let mut esp = guard.locked();
    softirq::disabled(|_| outcome::abort(&mut esp));
    outcome::end(child);
}

impl Operations for Esp {
    fn release(closing: Closing<'_, Self>) {
        let sock = closing.sock();
        channel::end(sock);
        if sock.shared().asking.key() != 0 {
            NetState::of(sock.net()).mapped_askers.leave(sock);
        }
        let mut guard = sock.lock();
        Self::stop_listening(&mut guard);
        let mut esp = guard.locked();
        esp.add_shutdown(uapi::SHUTDOWN_MASK);
        // If unread bytes are discarded, or the program asked for a hard close, a reset tells the
        // peer about the loss (RFC 2525, section 2.17, for TCP).
        let unread = !esp.receive_queue().is_empty() || ring::has_bytes(sock);
        let hard = unread || sock.linger() == Some(0);
        let state = sock.tcp_state();
        if hard || is_connecting(state) {
            softirq::disabled(|_| outcome::abort(&mut esp));
        } else if is_connected(state) {
            softirq::disabled(|_| outcome::finish_sending(&mut esp));
            Self::linger(&closing, &mut guard);
        }
        let mut esp = guard.locked();
        esp.receive_queue().purge();
        drop(closing);
        softirq::disabled(|_| {
            out_of_order::drop_all(&mut esp);
            if !is_connected(sock.tcp_state()) {
                outcome::unlist(&esp);
                sock.disarm_timer();
                outcome::end(sock);
            } else if outcome::count_orphan(&mut esp) {
                // The local port stays taken until the connection is over.
                let now = timer::now();
                if let Some(connection) = esp.state.connection() {
                    connection.engine.orphan(now);
                }
                push(&mut esp, now);
            } else {
                outcome::abort(&mut esp);
            }
        });
    }

    fn bind(call: &Call<'_, Self>, address: &[u8]) -> Result {
        let address = Address::parse(address)?;
        ports::allowed(call, address.port)?;
        let _guard = call.lock();
        if call.tcp_state() != TcpState::Close as u8 {
            return Err(EINVAL);
        }
        let section = rcu::Read::enter();
        bindable(call.net(), address.ifindex, &section)?;
        Self::take_port(call, address.port, address.ifindex)
    }

    fn connect(call: &Call<'_, Self>, address: &[u8], nonblocking: bool) -> Result {
        Self::ask_speed(call, address);
        let mut guard = call.lock();
        if Address::is_unspecified(address) {
            guard.locked().count_disconnect();
            Self::disconnect(&mut guard);
            call.set_state(SocketState::Unconnected);
            return Ok(());
        }
        let pending = match call.state() {
            SocketState::Disconnecting => return Err(EINVAL),
            SocketState::Connected => return Err(EISCONN),
            SocketState::Connecting => EALREADY,
            SocketState::Unconnected => {
                if call.tcp_state() != TcpState::Close as u8 {
                    return Err(EISCONN);
                }
                if ring::has_bytes(call.sock()) {
                    // The program could not tell them from the bytes of the new connection.
                    return Err(EBUSY);
                }
                Self::start_connecting(&mut guard.locked(), address)?;
                call.set_state(SocketState::Connecting);
                ring::tell(call.sock());
                EINPROGRESS
            }
        };
        let mut timeout = call.send_timeout(nonblocking);
        guard
            .wait(call, &mut timeout, Waiter::Shared, |esp| {
                !is_connecting(esp.sock().tcp_state())
            })
            .map_err(|e| if e == EAGAIN { pending } else { e })?;
        if call.tcp_state() == TcpState::Close as u8 {
            let failure = call.take_own_error().and_then(|()| call.take_error());
            call.set_state(SocketState::Unconnected);
            guard.locked().count_disconnect();
            Self::disconnect(&mut guard);
            failure?;
            return Err(ECONNABORTED);
        }
        call.set_state(SocketState::Connected);
        Ok(())
    }

    fn accept(call: &Call<'_, Self>, new: NewDescriptor<'_>, nonblocking: bool) -> Result {
        let mut guard = call.lock();
        let mut timeout = call.receive_timeout(nonblocking);
        let child = loop {
            let queue = guard.locked().state.listening().cloned().ok_or(EINVAL)?;
            let waited = guard.wait(call, &mut timeout, Waiter::Exclusive, |esp| {
                esp.state.listening().is_none()
                    || queue.lock().has_ready()
                    || call.has_error()
                    || present(call.net(), tie(call)).is_err()
            });
            match waited {
                // The socket was disconnected and no longer listens. The next iteration reports
                // that.
                Err(EPIPE) => {}
                other => other?,
            }
            let child = queue.lock().pop_ready();
            if let Some(child) = child {
                break child;
            }
            call.take_error()?;
            present(call.net(), tie(call))?;
        };
        drop(guard);
        let ifindex = child.shared().peer().ifindex;
        NetState::of(call.net())
            .esp_queues
            .ask_speed(call.net(), ifindex);
        let mut guard = child.lock();
        new.graft(&mut guard.locked())
    }

    fn name(sock: &Sock<Self>, end: End) -> Result<[u8; ADDRESS_LEN]> {
        if end != End::Own {
            let peer = sock.shared().peer();
            // If the peer closed the connection before `accept`, `accept` and `SO_PEERNAME` still
            // return the peer's address.
            let missing = match end {
                End::Accepted => peer == Address::default(),
                _ => !is_connected(sock.tcp_state()),
            };
            return if missing {
                Err(ENOTCONN)
            } else {
                Ok(peer.emit())
            };
        }
        let ifindex = tie(sock);
        let port = sock.shared().binding.port();
        Ok(local(sock.net(), port, ifindex).emit())
    }

    fn ring(sock: &Sock<Self>) -> Option<&Ring> {
        sock.shared().unread.ring.get()
    }

    fn exchange(sock: &Sock<Self>, number: u32, argument: StructArgument) -> Result {
        channel::exchange(sock, number, argument)
    }

    fn poll(call: &Call<'_, Self>) -> u32 {
        const READABLE: u32 = uapi::EPOLLIN | uapi::EPOLLRDNORM;
        const WRITABLE: u32 = uapi::EPOLLOUT | uapi::EPOLLWRNORM;
        let sock = call.sock();
        let state = sock.tcp_state();
        if state == TcpState::Listen as u8 {
            // For a listener, `unread` has the length of the accept queue, which can be read
            // without the socket's lock.
            let mut ready = 0;
            if sock.shared().unread.count() > 0 {
                ready |= READABLE;
            }
            if sock.has_error() || present(sock.net(), tie(sock)).is_err() {
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
        if !is_connecting(state) {
            if sock.shared().unread.is_readable(sock) {
                ready |= READABLE;
            }
            if shutdown & uapi::SEND_SHUTDOWN != 0 || outcome::is_writable(sock) {
                ready |= WRITABLE;
            } else {
                call.want_write_space();
                // Room may have appeared between the test and `want_write_space`.
                if outcome::is_writable(sock) {
                    ready |= WRITABLE;
                }
            }
        }
        ready | sock.error_readiness()
    }

    fn ioctl(sock: &Sock<Self>, command: u32) -> Result<u32> {
        match command {
            // There is no urgent data, so `SIOCATMARK` reports that no mark is reached.
            uapi::SIOCATMARK => return Ok(0),
            uapi::SIOCINQ | uapi::SIOCOUTQ | uapi::SIOCOUTQNSD => {}
            _ => return Err(ENOIOCTLCMD),
        }
        if sock.tcp_state() == TcpState::Listen as u8 {
            return Err(EINVAL);
        }
        Ok(match command {
            uapi::SIOCINQ if sock.keeps_records() => records::next_len(sock),
            uapi::SIOCINQ => sock.shared().unread.all(),
            uapi::SIOCOUTQ => sock.shared().unacknowledged.bytes(),
            _ => bytes::unsent(sock),
        })
    }

    fn listen(call: &Call<'_, Self>, backlog: u32) -> Result {
        start_listening(call, backlog, |sock| {
            if call.state() != SocketState::Unconnected {
                return Err(EINVAL);
            }
            if ring::is_made(sock) {
                return Err(EOPNOTSUPP);
            }
            if !sock.shared().binding.is_taken() {
                Self::take_port(sock, 0, INTERFACE_ANY)?;
            }
            let net_state = NetState::of(sock.net());
            ports::listen(
                &net_state.esp_ports,
                sock,
                |sock| &sock.shared().binding,
                || outcome::set_state(sock, TcpState::Listen),
            )?;
            let port = sock.shared().binding.port();
            net_state.esp_listeners.lock().insert(port.into(), sock)
        })
    }

    fn shutdown(call: &Call<'_, Self>, halves: u8) -> Result {
        let sock = call.sock();
        let mut guard = sock.lock();
        let state = sock.tcp_state();
        if call.state() == SocketState::Connecting {
            call.set_state(if is_connected(state) {
                SocketState::Connected
            } else {
                SocketState::Disconnecting
            });
        }
        let ends = is_connecting(state)
            || state == TcpState::Listen as u8 && halves & uapi::RCV_SHUTDOWN != 0;
        if ends {
            // This also wakes calls that sleep in `accept` or `connect`.
            Self::disconnect(&mut guard);
            call.set_state(SocketState::Unconnected);
        } else if state != TcpState::Listen as u8 {
            let mut esp = guard.locked();
            esp.add_shutdown(halves);
            if halves & uapi::RCV_SHUTDOWN != 0 {
                if let Some(connection) = esp.state.connection() {
                    connection.engine.receive_shutdown();
                }
            }
            if halves & uapi::SEND_SHUTDOWN != 0 && is_connected(state) {
                softirq::disabled(|_| outcome::finish_sending(&mut esp));
            }
            ring::tell(sock);
        }
        sock.state_change();
        if state == TcpState::Close as u8 {
            // The error is returned only after `state_change`, so that sleeping calls are woken all
            // the same.
            return Err(ENOTCONN);
        }
        Ok(())
    }

    fn set_low_water(sock: &Sock<Self>, mark: i32) {
        sock.set_low_water(mark);
        if sock.shared().unread.is_readable(sock) {
            sock.data_ready();
        } else {
            // Wakes a call that sleeps for a single byte, so that the call reads the new low-water
            // mark.
            sock.state_change();
        }
    }

    fn get_option(sock: &Sock<Self>, level: i32, name: i32, value: OptionBuffer) -> Result {
        if !is_own_level(level) {
            return Err(EOPNOTSUPP);
        }
        options::get(sock, name, value)
    }

    fn set_option(sock: &Sock<Self>, level: i32, name: i32, value: OptionValue) -> Result {
        if !is_own_level(level) {
            return Err(ENOPROTOOPT);
        }
        options::set(sock, name, value)
    }

    fn send(call: &Call<'_, Self>, msg: &mut Message<'_>, len: usize) -> Result<usize> {
        bytes::send(call, msg, len)
    }

    fn receive(
        call: &Call<'_, Self>,
        msg: &mut Message<'_>,
        len: usize,
        flags: i32,
    ) -> Result<usize> {
        bytes::receive(call, msg, len, flags)
    }

    const SPLICES: bool = true;

    fn splice(
        call: &Call<'_, Self>,
        pipe: &mut Pipe<'_>,
        len: usize,
        nonblocking: bool,
    ) -> Result<usize> {
        splice::splice(call, pipe, len, nonblocking)
    }

    fn send_record(call: &Call<'_, Self>, msg: &mut Message<'_>, len: usize) -> Result<usize> {
        records::send(call, msg, len)
    }

    fn receive_record(
        call: &Call<'_, Self>,
        msg: &mut Message<'_>,
        len: usize,
        flags: i32,
    ) -> Result<usize> {
        records::receive(call, msg, len, flags)
    }

    fn no_more(sock: &Sock<Self>) {
        bytes::no_more(sock);
    }
}
