// SPDX-License-Identifier: GPL-2.0

//! EDP sockets: what the socket calls do.

use crate::net::errno::prelude::*;
use crate::{
    address::{Address, INTERFACE_ANY},
    counters::Counter,
    edp,
    family::SOL_EP,
    net::{
        device::{Device, DeviceRef, Mac},
        family::{NewSocket, Operations, Socket, Vtable, ADDRESS_LEN},
        message::Message,
        namespace::PerNet,
        options::{IntArgument, OptionBuffer},
        rcu,
        skb::Skb,
        sock::{Protocol, RawSock, Sock, SockRef, TcpState},
        uapi,
    },
    parameters,
    ports::{self, Binding},
    space::Space,
};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

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

/// The other end a socket is connected to. Address and port are read together, so that a send
/// beside a `connect` gets one of the two peers.
#[derive(Default)]
pub(crate) struct Peer {
    /// Ethernet address in the upper 48 bits, port in the lower 16; 0 without a peer.
    address: AtomicU64,
    ifindex: AtomicU32,
}

impl Peer {
    fn set(&self, peer: &Address) {
        self.ifindex.store(peer.ifindex, Relaxed);
        self.address
            .store(peer.mac.to_bits() << 16 | u64::from(peer.port), Relaxed);
    }

    fn clear(&self) {
        self.address.store(0, Relaxed);
        self.ifindex.store(0, Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<Address> {
        match self.address.load(Relaxed) {
            0 => None,
            bits => Some(Address {
                port: bits as u16,
                mac: Mac::from_bits(bits >> 16),
                ifindex: self.ifindex.load(Relaxed),
            }),
        }
    }
}

/// An EDP socket's own part. All of it is read and written without the socket lock.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) binding: Binding,
    pub(crate) peer: Peer,
    pub(crate) stats: Stats,
}

impl Shared {
    /// Whether the socket takes datagrams for `port` that come from `source` by device `ifindex`.
    #[inline]
    pub(crate) fn takes(&self, port: u16, ifindex: u32, source: Mac, source_port: u16) -> bool {
        self.binding.takes(port, ifindex)
            && match self.peer.get() {
                None => true,
                Some(peer) => {
                    peer.mac == source && peer.port == source_port && peer.ifindex == ifindex
                }
            }
    }
}

static VTABLE: Vtable<Edp> = Vtable::new(b"EDP");

impl Protocol for Edp {
    type Shared = Shared;
    type State = ();

    fn vtable() -> &'static Vtable<Self> {
        &VTABLE
    }

    fn backlog(_sock: &Sock<Self>, _state: &mut (), _skb: Skb) {}
}

/// Makes an EDP socket.
pub(crate) fn create(new: NewSocket<'_>, protocol: i32) -> Result {
    new.attach::<Edp>(protocol, Shared::default(), ())
}

/// Checks that frames can leave by `device`.
///
/// # Errors
///
/// `ENODEV` if it is not an Ethernet device, `ENETDOWN` if it is down.
pub(crate) fn usable(device: &Device) -> Result {
    if !device.is_ethernet() {
        return Err(ENODEV);
    }
    if !device.is_up() {
        return Err(ENETDOWN);
    }
    Ok(())
}

/// The interface `asked` for, unless the socket is tied to another.
///
/// # Errors
///
/// `EINVAL` if it is, `ENODEV` if there is neither.
pub(crate) fn outgoing(sock: &RawSock, bound: u32, asked: u32) -> Result<u32> {
    let mut chosen = asked;
    for tie in [bound, sock.bound_device()] {
        if tie != 0 {
            if chosen != 0 && chosen != tie {
                return Err(EINVAL);
            }
            chosen = tie;
        }
    }
    if chosen == 0 {
        return Err(ENODEV);
    }
    Ok(chosen)
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

    /// The interface that the socket is bound or connected to, if any.
    fn interface(sock: &Sock<Self>) -> u32 {
        let shared = sock.shared();
        match shared.binding.ifindex() {
            INTERFACE_ANY => shared.peer.get().map_or(0, |peer| peer.ifindex),
            ifindex => ifindex,
        }
    }

    fn send_to(sock: &Sock<Self>, msg: &mut Message<'_>, len: usize, to: &Address) -> Result {
        let shared = sock.shared();
        let ifindex = outgoing(sock, shared.binding.ifindex(), to.ifindex)?;
        let device = DeviceRef::get(sock.net(), ifindex).ok_or(ENODEV)?;
        usable(&device)?;
        if to.mac.is_group() {
            return Err(EACCES);
        }
        if len > edp::wire::mtu(device.mtu()) as usize {
            return Err(EMSGSIZE);
        }
        if shared.binding.port() == 0 {
            Self::bind_free_port(sock)?;
        }
        let nonblocking = msg.flags() & uapi::MSG_DONTWAIT != 0;
        let header = edp::wire::Header {
            src: shared.binding.port(),
            dst: to.port,
            len: len as u16,
        };
        let mut skb =
            sock.alloc_send(device.headroom(), edp::wire::HEADER_LEN + len, nonblocking)?;
        if !skb.put(&header.emit()) {
            return Err(ENOBUFS);
        }
        skb.put_from(msg, len)?;
        skb.set_class(sock);
        device
            .send(skb, parameters::edp_type(), to.mac)
            .inspect(|()| shared.stats.pkt_tx.count())
            .inspect_err(|_| shared.stats.tx_err.count())
    }
}

impl Operations for Edp {
    fn release(sock: SockRef<Self>) {
        ports::give_back(
            &Space::of(sock.net()).edp_ports,
            &sock,
            &sock.shared().binding,
        );
        sock.add_shutdown(uapi::SHUTDOWN_MASK);
        sock.orphan();
        SockRef::from_lifetime(&sock).retire();
    }

    fn bind(sock: &Sock<Self>, address: &[u8]) -> Result {
        let address = Address::parse(address)?;
        if address.ifindex != INTERFACE_ANY {
            let device = DeviceRef::get(sock.net(), address.ifindex).ok_or(ENODEV)?;
            usable(&device)?;
        }
        let _guard = sock.lock();
        Self::take_port(sock, address.port, address.ifindex)
    }

    fn connect(sock: &Sock<Self>, _socket: &Socket, address: &[u8], _nonblocking: bool) -> Result {
        const AF_UNSPEC: [u8; 2] = [0; 2];
        let shared = sock.shared();
        if address.first_chunk() == Some(&AF_UNSPEC) {
            let _guard = sock.lock();
            shared.peer.clear();
            sock.set_tcp_state(TcpState::Close);
            return Ok(());
        }
        let mut peer = Address::parse(address)?;
        peer.ifindex = outgoing(sock, shared.binding.ifindex(), peer.ifindex)?;
        let device = DeviceRef::get(sock.net(), peer.ifindex).ok_or(ENODEV)?;
        usable(&device)?;
        if peer.mac.is_group() {
            return Err(EACCES);
        }
        let _guard = sock.lock();
        if shared.binding.port() == 0 {
            Self::bind_free_port(sock)?;
        }
        shared.peer.set(&peer);
        sock.set_tcp_state(TcpState::Established);
        Ok(())
    }

    fn name(sock: &Sock<Self>, peer: bool) -> Result<[u8; ADDRESS_LEN]> {
        if peer {
            return Ok(sock.shared().peer.get().ok_or(ENOTCONN)?.emit());
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
        sock.datagram_readiness()
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
        if sock.shared().peer.get().is_none() {
            return Err(ENOTCONN);
        }
        sock.add_shutdown(halves);
        sock.state_change();
        Ok(())
    }

    fn get_option(sock: &Sock<Self>, level: i32, name: i32, value: OptionBuffer) -> Result {
        match (level, name) {
            (SOL_EP, EDP_SO_MTU) => {
                let ifindex = Self::interface(sock);
                let device = DeviceRef::get(sock.net(), ifindex).ok_or(ENODEV)?;
                value.write_u32(edp::wire::mtu(device.mtu()))
            }
            (SOL_EP, EDP_SO_STATS) => {
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
        let to = match msg.name() {
            Some(name) => Address::parse(name)?,
            None => sock.shared().peer.get().ok_or(EDESTADDRREQ)?,
        };
        Self::send_to(sock, msg, len, &to)?;
        Ok(len)
    }

    fn receive(sock: &Sock<Self>, msg: &mut Message<'_>, len: usize, flags: i32) -> Result<usize> {
        if flags & uapi::MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        if flags & uapi::MSG_ERRQUEUE != 0 {
            return Err(EAGAIN);
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
        skb.consume();
        Ok(if flags & uapi::MSG_TRUNC != 0 {
            whole
        } else {
            copied
        })
    }
}
