// SPDX-License-Identifier: GPL-2.0

//! EDP sockets: what the socket calls do.

use crate::net::errno::prelude::*;
use crate::{
    address::{Address, Peer, INTERFACE_ANY},
    counters::Counter,
    devices::{bindable, local, outgoing, tie, usable, Presence},
    edp,
    edp_cork::{self, Pending},
    family::{is_own_level, EP_RECVERR, SOL_EP},
    net::{
        device::{Device, DeviceRef, Mac},
        family::{End, NewSocket, Operations, Socket, Vtable, ADDRESS_LEN},
        message::Message,
        namespace::PerNet,
        options::{IntArgument, OptionBuffer},
        rcu,
        skb::Skb,
        sock::{Protocol, Sock, SockRef, TcpState},
        uapi,
    },
    parameters,
    ports::{self, Binding},
    space::Space,
};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

const EDP_SO_MTU: i32 = 1;
const EDP_SO_STATS: i32 = 2;

/// The protocol.
pub(crate) struct Edp;

/// Counters of one socket, as `EDP_SO_STATS` reports them.
#[derive(Default)]
pub(crate) struct Stats {
    pub(crate) pkt_tx: Counter,
    pub(crate) tx_err: Counter,
    pub(crate) pkt_rx: Counter,
    pub(crate) pkt_rx_drop: Counter,
}

/// What is read and written without the socket lock.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) binding: Binding,
    pub(crate) peer: Peer,
    pub(crate) stats: Stats,
    /// A datagram is pending.
    pub(crate) corked: AtomicBool,
    presence: Presence,
}

impl Shared {
    /// How well a datagram for `port` that comes from `source` by device `ifindex` fits: `None` if
    /// it is not for the socket, more for one that has asked for less.
    #[inline]
    pub(crate) fn fitness(
        &self,
        port: u16,
        ifindex: u32,
        source: Mac,
        source_port: u16,
    ) -> Option<u32> {
        if !self.binding.takes(port, ifindex) {
            return None;
        }
        let named = u32::from(self.binding.ifindex() != 0);
        match self.peer.get() {
            None => Some(named),
            Some(peer) => {
                (peer.mac == source && peer.port == source_port && peer.ifindex == ifindex)
                    .then_some(named.saturating_add(2))
            }
        }
    }
}

static VTABLE: Vtable<Edp> = Vtable::new(b"EDP");

impl Protocol for Edp {
    type Shared = Shared;
    /// What `MSG_MORE` began.
    type State = Option<Pending>;

    fn vtable() -> &'static Vtable<Self> {
        &VTABLE
    }

    fn backlog(_sock: &Sock<Self>, _pending: &mut Option<Pending>, _skb: Skb) {}
}

/// Makes an EDP socket.
pub(crate) fn create(new: NewSocket<'_>, protocol: i32) -> Result {
    new.attach::<Edp>(protocol, Shared::default(), None)?
        .start_flow();
    Ok(())
}

/// Checks that `len` bytes of payload leave by `device` in one frame.
///
/// # Errors
///
/// `EMSGSIZE`.
pub(crate) fn fits(device: &Device, len: usize) -> Result {
    if len > edp::wire::mtu(device.mtu()) as usize {
        return Err(EMSGSIZE);
    }
    Ok(())
}

/// The interface that a socket is tied to, 0 if to none.
pub(crate) fn interface(sock: &Sock<Edp>) -> u32 {
    let shared = sock.shared();
    let peer = shared.peer.get().map_or(INTERFACE_ANY, |peer| peer.ifindex);
    tie(sock, shared.binding.ifindex(), peer)
}

impl Edp {
    fn bind_free_port(sock: &Sock<Self>) -> Result {
        match Self::take_port(sock, 0, INTERFACE_ANY) {
            // Another thread was faster.
            Err(e) if e == EINVAL => Ok(()),
            Err(e) if e == EADDRINUSE => Err(EAGAIN),
            result => result,
        }
    }

    fn take_port(sock: &Sock<Self>, port: u16, ifindex: u32) -> Result {
        let shared = sock.shared();
        ports::take(
            &Space::of(sock.net()).edp_ports,
            sock,
            &shared.binding,
            |other| &other.shared().binding,
            port,
            ifindex,
        )
    }

    fn give_port_back(sock: &Sock<Self>) {
        ports::give_back(
            &Space::of(sock.net()).edp_ports,
            sock,
            &sock.shared().binding,
            |other| &other.shared().binding,
        );
    }

    /// Where a datagram goes: to the address of the call, or to the peer.
    pub(crate) fn destination(sock: &Sock<Self>, msg: &Message<'_>) -> Result<Address> {
        match msg.name() {
            Some(name) => Address::parse(name),
            None => sock.shared().peer.get().ok_or(EDESTADDRREQ),
        }
    }

    /// The device that leads to `to`, whose interface it fills in, for as long as the read section
    /// lasts: a call that sleeps looks again, so that the device can go meanwhile. The socket has a
    /// port then.
    pub(crate) fn way<'a>(
        sock: &Sock<Self>,
        to: &mut Address,
        section: &'a rcu::Read,
    ) -> Result<&'a Device> {
        let binding = &sock.shared().binding;
        to.ifindex = outgoing(sock, binding.ifindex(), to.ifindex)?;
        let device = Device::find(sock.net(), to.ifindex, section).ok_or(ENODEV)?;
        usable(device)?;
        if to.mac.is_group() {
            return Err(EACCES);
        }
        if binding.port() == 0 {
            Self::bind_free_port(sock)?;
        }
        Ok(device)
    }

    /// The header of a datagram with `len` bytes of payload.
    pub(crate) fn header(sock: &Sock<Self>, to: &Address, len: usize) -> edp::wire::Header {
        edp::wire::Header {
            src: sock.shared().binding.port(),
            dst: to.port,
            len: len as u16,
        }
    }

    fn send_now(sock: &Sock<Self>, msg: &mut Message<'_>, len: usize) -> Result {
        let mut to = Self::destination(sock, msg)?;
        let headroom = {
            let section = rcu::Read::enter();
            let device = Self::way(sock, &mut to, &section)?;
            fits(device, len)?;
            device.headroom()
        };
        let wishes = msg.wishes(sock)?;
        let nonblocking = msg.flags() & uapi::MSG_DONTWAIT != 0;
        // What follows may sleep: for room, and for the user's memory.
        let mut skb = sock.alloc_send(headroom, edp::wire::HEADER_LEN + len, nonblocking)?;
        if !skb.put(&Self::header(sock, &to, len).emit()) {
            return Err(ENOBUFS);
        }
        skb.put_from(msg, len)?;
        skb.set_wishes(sock, &wishes);
        let section = rcu::Read::enter();
        let device = Self::way(sock, &mut to, &section)?;
        fits(device, len)?;
        Self::transmit(sock, device, skb, &to)
    }

    /// Sends a whole packet, and counts it.
    pub(crate) fn transmit(sock: &Sock<Self>, device: &Device, skb: Skb, to: &Address) -> Result {
        let stats = &sock.shared().stats;
        device
            .send(skb, parameters::edp_type(), to.mac)
            .inspect(|()| stats.pkt_tx.count())
            .inspect_err(|_| stats.tx_err.count())
    }
}

impl Operations for Edp {
    fn release(sock: SockRef<Self>) {
        Self::give_port_back(&sock);
        sock.add_shutdown(uapi::SHUTDOWN_MASK);
        *sock.lock().state() = None;
        sock.orphan();
        SockRef::from_lifetime(&sock).retire();
    }

    fn bind(sock: &Sock<Self>, address: &[u8]) -> Result {
        let address = Address::parse(address)?;
        ports::allowed(sock, address.port)?;
        let _guard = sock.lock();
        let section = rcu::Read::enter();
        bindable(sock.net(), address.ifindex, &section)?;
        Self::take_port(sock, address.port, address.ifindex)
    }

    fn connect(sock: &Sock<Self>, _socket: &Socket, address: &[u8], _nonblocking: bool) -> Result {
        let shared = sock.shared();
        if Address::is_unspecified(address) {
            let _guard = sock.lock();
            shared.peer.clear();
            sock.set_tcp_state(TcpState::Close);
            // A port that nobody asked for was this peer's.
            if !shared.binding.is_asked_for() {
                Self::give_port_back(sock);
                shared.binding.clear();
            }
            return Ok(());
        }
        let mut peer = Address::parse(address)?;
        peer.ifindex = outgoing(sock, shared.binding.ifindex(), peer.ifindex)?;
        let _guard = sock.lock();
        // As in `bindable`.
        let section = rcu::Read::enter();
        usable(Device::find(sock.net(), peer.ifindex, &section).ok_or(ENODEV)?)?;
        if peer.mac.is_group() {
            return Err(EACCES);
        }
        if shared.binding.port() == 0 {
            Self::bind_free_port(sock)?;
        }
        shared.peer.set(&peer);
        sock.set_tcp_state(TcpState::Established);
        Ok(())
    }

    fn name(sock: &Sock<Self>, end: End) -> Result<[u8; ADDRESS_LEN]> {
        if end != End::Own {
            return Ok(sock.shared().peer.get().ok_or(ENOTCONN)?.emit());
        }
        let ifindex = interface(sock);
        let port = sock.shared().binding.port();
        Ok(local(sock.net(), port, ifindex).emit())
    }

    fn poll(sock: &Sock<Self>) -> u32 {
        let ready = sock.datagram_readiness();
        if ready & uapi::EPOLLIN == 0
            && sock
                .shared()
                .presence
                .check(sock.net(), interface(sock))
                .is_err()
        {
            return ready | uapi::EPOLLERR | uapi::EPOLLHUP;
        }
        ready
    }

    fn ioctl(sock: &Sock<Self>, command: u32, argument: IntArgument) -> Result {
        match command {
            uapi::SIOCINQ => argument.write(sock.first_datagram_len()),
            uapi::SIOCOUTQ => argument.write(sock.in_devices()),
            _ => Err(ENOIOCTLCMD),
        }
    }

    fn shutdown(sock: &Sock<Self>, _socket: &Socket, halves: u8) -> Result {
        let _guard = sock.lock();
        sock.add_shutdown(halves);
        sock.state_change();
        // Without a peer it is refused, and ends the halves and wakes who waits all the same: the
        // way to get a thread out of a call.
        sock.shared().peer.get().map(drop).ok_or(ENOTCONN)
    }

    fn get_option(sock: &Sock<Self>, level: i32, name: i32, value: OptionBuffer) -> Result {
        if !is_own_level(level) {
            return Err(EOPNOTSUPP);
        }
        match name {
            EDP_SO_MTU => {
                let ifindex = interface(sock);
                let device = DeviceRef::get(sock.net(), ifindex).ok_or(ENODEV)?;
                value.write_u32(edp::wire::mtu(device.mtu()))
            }
            EDP_SO_STATS => {
                let stats = &sock.shared().stats;
                let mut bytes = [0; 16];
                let counters = [
                    &stats.pkt_tx,
                    &stats.tx_err,
                    &stats.pkt_rx,
                    &stats.pkt_rx_drop,
                ];
                for (to, counter) in bytes.chunks_exact_mut(4).zip(counters) {
                    to.copy_from_slice(&counter.get().to_ne_bytes());
                }
                value.write(&bytes)
            }
            _ => Err(ENOPROTOOPT),
        }
    }

    fn send(sock: &Sock<Self>, msg: &mut Message<'_>, len: usize) -> Result<usize> {
        if msg.flags() & uapi::MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        if sock.shutdown() & uapi::SEND_SHUTDOWN != 0 {
            return Err(EPIPE);
        }
        if msg.flags() & uapi::MSG_MORE != 0 || sock.shared().corked.load(Relaxed) {
            edp_cork::send(sock, msg, len)?;
        } else {
            Self::send_now(sock, msg, len)?;
        }
        Ok(len)
    }

    fn no_more(sock: &Sock<Self>) {
        edp_cork::no_more(sock);
    }

    fn receive(sock: &Sock<Self>, msg: &mut Message<'_>, len: usize, flags: i32) -> Result<usize> {
        if flags & uapi::MSG_ERRQUEUE != 0 {
            return msg.put_report(sock, len, SOL_EP, EP_RECVERR);
        }
        if sock.receive_queue().is_empty() && !sock.has_error() {
            // Nothing can come any more.
            sock.shared().presence.check(sock.net(), interface(sock))?;
        }
        let Some((skb, offset)) = sock.next_datagram(flags)? else {
            return Ok(0);
        };
        let note = skb.note();
        let whole = skb.len().saturating_sub(offset);
        let copied = whole.min(len);
        if copied < whole {
            msg.add_flags(uapi::MSG_TRUNC);
        }
        msg.put(&skb, offset, copied)?;
        let from = Address {
            port: note.port,
            ifindex: note.ifindex,
            mac: Mac(note.mac),
        };
        msg.set_name(&from.emit());
        msg.put_control(sock, &skb);
        let length = if flags & uapi::MSG_TRUNC != 0 {
            skb.len()
        } else {
            copied
        };
        sock.move_peek_offset(flags & uapi::MSG_PEEK != 0, length);
        skb.consume();
        Ok(length)
    }
}
