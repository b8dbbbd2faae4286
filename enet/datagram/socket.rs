// SPDX-License-Identifier: GPL-2.0

//! EDP sockets: the socket calls.

use super::{
    cork,
    output::largest,
    ring,
    sock::{tie, Edp, LockedEdp, Pending, Shared},
    zerocopy,
};
use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    device::{bindable, choose_interface, local, usable},
    net::{
        device::Device,
        family::{Call, Closing, End, NewSocket, Operations, Vtable, ADDRESS_LEN},
        message::Message,
        options::{OptionBuffer, OptionValue},
        rcu,
        ring::Ring,
        skb::Skb,
        sock::{self, Protocol, Sock, TcpState},
        softirq::Softirq,
        uapi,
    },
    ports,
    skb_cb::Origin,
    uapi::{is_own_level, EP_RECVERR, EP_SO_RECEIVE_RING, EP_SO_ZEROCOPY, SOL_EP},
};
use core::sync::atomic::Ordering::Relaxed;

const EDP_SO_MTU: i32 = 1;
const EDP_SO_STATS: i32 = 2;
const EDP_SO_CHECKSUM: i32 = 3;

static VTABLE: Vtable<Edp> = Vtable::new(b"EDP");

impl Protocol for Edp {
    type Kind = sock::Datagram;
    type Shared = Shared;
    /// The incomplete datagram that a send with `MSG_MORE` began, if there is one.
    type State = Option<Pending>;
    type Slot = ();
    const WAKES_WRITERS: bool = false;
    const OUTLIVES_DESCRIPTOR: bool = false;

    fn vtable() -> &'static Vtable<Self> {
        &VTABLE
    }

    fn backlog(_edp: &mut LockedEdp<'_>, _skb: Skb, _softirq: Softirq<'_>) {}
}

/// Creates an EDP socket or, if `always_in_place`, an EZDP socket. The payload of an EZDP socket's
/// datagrams is sent from the program's pages.
pub(crate) fn create(new: NewSocket<'_>, protocol: i32, always_in_place: bool) -> Result {
    let shared = Shared {
        always_in_place,
        ..Shared::default()
    };
    let sock = new.attach::<Edp>(protocol, shared)?;
    sock.start_flow();
    if always_in_place {
        sock.set_sends_in_place(true);
    }
    Ok(())
}

impl Operations for Edp {
    fn release(closing: Closing<'_, Self>) {
        let sock = closing.sock();
        Self::give_port_back(sock);
        let mut guard = sock.lock();
        let mut edp = guard.locked();
        edp.add_shutdown(uapi::SHUTDOWN_MASK);
        *edp.state = None;
        drop(closing);
        sock.retire();
    }

    fn bind(call: &Call<'_, Self>, address: &[u8]) -> Result {
        let address = Address::parse(address)?;
        ports::allowed(call, address.port)?;
        let _guard = call.lock();
        let section = rcu::Read::enter();
        bindable(call.net(), address.ifindex, &section)?;
        Self::take_port(call, address.port, address.ifindex)
    }

    fn connect(call: &Call<'_, Self>, address: &[u8], _nonblocking: bool) -> Result {
        let sock = call.sock();
        let shared = sock.shared();
        if Address::is_unspecified(address) {
            let _guard = sock.lock();
            shared.peer.clear();
            sock.set_tcp_state(TcpState::Close);
            // Release an autobound port.
            if !shared.binding.is_explicit() {
                Self::give_port_back(sock);
            }
            return Ok(());
        }
        let mut peer = Address::parse(address)?;
        peer.ifindex = choose_interface(sock, shared.binding.ifindex(), peer.ifindex)?;
        let _guard = sock.lock();
        // The check of the device and the change of the peer are in one RCU read section. A removal
        // of the device waits for this section to end, and so finds the socket.
        let section = rcu::Read::enter();
        usable(Device::find(sock.net(), peer.ifindex, &section).ok_or(ENODEV)?)?;
        if peer.mac.is_group() {
            return Err(EACCES);
        }
        Self::own_port(sock)?;
        shared.peer.set(&peer);
        sock.set_tcp_state(TcpState::Established);
        Ok(())
    }

    fn name(sock: &Sock<Self>, end: End) -> Result<[u8; ADDRESS_LEN]> {
        if end != End::Own {
            return Ok(sock.shared().peer.get().ok_or(ENOTCONN)?.emit());
        }
        let ifindex = tie(sock);
        let port = sock.shared().binding.port();
        Ok(local(sock.net(), port, ifindex).emit())
    }

    fn ring(sock: &Sock<Self>) -> Option<&Ring> {
        sock.shared().ring.get().map(|ring| &**ring)
    }

    fn poll(call: &Call<'_, Self>) -> u32 {
        let mut ready = call.datagram_readiness();
        if ring::unread(call) > 0 {
            ready |= uapi::EPOLLIN | uapi::EPOLLRDNORM;
        }
        let device = &call.shared().device;
        if ready & uapi::EPOLLIN == 0 && device.check(call.net(), tie(call)).is_err() {
            return ready | uapi::EPOLLERR | uapi::EPOLLHUP;
        }
        ready
    }

    fn ioctl(sock: &Sock<Self>, command: u32) -> Result<u32> {
        match command {
            uapi::SIOCINQ if sock.receives_nothing() => Ok(ring::unread(sock)),
            uapi::SIOCINQ => Ok(sock.first_datagram_len()),
            uapi::SIOCOUTQ => Ok(sock.in_devices()),
            _ => Err(ENOIOCTLCMD),
        }
    }

    fn shutdown(call: &Call<'_, Self>, halves: u8) -> Result {
        let mut guard = call.lock();
        guard.locked().add_shutdown(halves);
        call.state_change();
        // Without a peer, `shutdown` fails, but it still shuts the directions down and wakes
        // sleeping calls. Programs use it to get a thread out of a call.
        call.shared().peer.get().map(drop).ok_or(ENOTCONN)
    }

    fn get_option(sock: &Sock<Self>, level: i32, name: i32, value: OptionBuffer) -> Result {
        if !is_own_level(level) {
            return Err(EOPNOTSUPP);
        }
        match name {
            EDP_SO_MTU => {
                let bytes = {
                    let section = rcu::Read::enter();
                    let device = Device::find(sock.net(), tie(sock), &section).ok_or(ENODEV)?;
                    largest(sock, device)
                };
                // No read section is open here, because the write may sleep until the user's memory
                // is paged in.
                value.write_u32(bytes)
            }
            EDP_SO_STATS => {
                let stats = &sock.shared().stats;
                value.write_numbers([
                    stats.pkt_tx.get(),
                    stats.tx_err.get(),
                    stats.pkt_rx.get(),
                    stats.pkt_rx_drop.get(),
                ])
            }
            EDP_SO_CHECKSUM => value.write_u32(sock.shared().sums.load(Relaxed).into()),
            EP_SO_ZEROCOPY => value.write_u32(sock.sends_in_place().into()),
            EP_SO_RECEIVE_RING => {
                let size = sock.shared().ring.get().map_or(0, |ring| ring.size());
                value.write_u32(size as u32)
            }
            _ => Err(ENOPROTOOPT),
        }
    }

    fn set_option(sock: &Sock<Self>, level: i32, name: i32, value: OptionValue) -> Result {
        if !is_own_level(level) {
            return Err(ENOPROTOOPT);
        }
        match name {
            EP_SO_RECEIVE_RING => ring::make(sock, value.read_u32()?)?,
            EDP_SO_CHECKSUM => sock.shared().sums.store(value.read_bool()?, Relaxed),
            EP_SO_ZEROCOPY => {
                let on = value.read_bool()?;
                if sock.shared().always_in_place && !on {
                    return Err(EINVAL);
                }
                sock.set_sends_in_place(on);
            }
            _ => return Err(ENOPROTOOPT),
        }
        Ok(())
    }

    fn send(call: &Call<'_, Self>, msg: &mut Message<'_>, len: usize) -> Result<usize> {
        if msg.flags() & uapi::MSG_OOB != 0 {
            return Err(EOPNOTSUPP);
        }
        if call.shutdown() & uapi::SEND_SHUTDOWN != 0 {
            return Err(EPIPE);
        }
        if msg.flags() & uapi::MSG_MORE != 0 || call.shared().corked.load(Relaxed) {
            cork::send(call, msg, len)?;
        } else if zerocopy::is_wanted(call, msg) {
            zerocopy::send(call, msg, len)?;
        } else {
            Self::send_now(call, msg, len)?;
        }
        Ok(len)
    }

    fn no_more(sock: &Sock<Self>) {
        cork::no_more(sock);
    }

    fn receive(
        call: &Call<'_, Self>,
        msg: &mut Message<'_>,
        len: usize,
        flags: i32,
    ) -> Result<usize> {
        let sock = call.sock();
        if flags & uapi::MSG_ERRQUEUE != 0 {
            return msg.put_report(sock, len, SOL_EP, EP_RECVERR);
        }
        if sock.receives_nothing() && !sock.has_error() {
            // Without its device the socket can receive nothing more, so the call fails and does
            // not wait.
            sock.shared().device.check(sock.net(), tie(sock))?;
        }
        let has_ring = sock.shared().ring.is_set();
        let patience = if has_ring { uapi::MSG_DONTWAIT } else { 0 };
        let next = call.next_datagram(flags | patience);
        if has_ring {
            ring::tell(sock);
        }
        let Some((skb, offset)) = next? else {
            return Ok(0);
        };
        let Origin(from) = skb.note();
        let whole = skb.len().saturating_sub(offset);
        let copied = whole.min(len);
        if copied < whole {
            msg.add_flags(uapi::MSG_TRUNC);
        }
        msg.put(&skb, offset, copied)?;
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
