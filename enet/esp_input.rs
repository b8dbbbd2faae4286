// SPDX-License-Identifier: GPL-2.0

//! ESP frames that come in.

use crate::{
    address::Address,
    edp_input::acceptable,
    esp::{self, flags, Connection, Header, Seq, HEADER_LEN},
    esp_connection::{self, Parent, Shared, Stream},
    esp_output,
    esp_socket::Esp,
    net::{
        device::{Device, Mac},
        namespace::PerNet,
        packet_type::Handler,
        random, rcu,
        skb::{Note, Skb},
        sock::{NewChild, Sock, SockRef, TcpState},
        timer,
    },
    space::Space,
};
use core::sync::atomic::Ordering::Relaxed;

/// Takes the frames of ESP's Ethernet type.
pub(crate) struct Frames;

impl Handler for Frames {
    fn receive(mut skb: Skb, device: &Device) {
        let space = Space::of(device.net());
        let refused = &space.esp_refused;
        if !acceptable(&skb, device, refused) {
            return;
        }
        let header = skb
            .header::<HEADER_LEN>()
            .and_then(|bytes| Header::parse(&bytes));
        let payload = header.and_then(|h| h.payload_len(skb.len().saturating_sub(HEADER_LEN)));
        let (Some(header), Some(len)) = (header, payload) else {
            refused.malformed.count();
            return;
        };
        if !skb.trim(HEADER_LEN.saturating_add(len)) {
            refused.no_memory.count();
            return;
        }
        let peer = Address {
            port: header.src,
            mac: skb.source(),
            ifindex: device.index(),
        };
        skb.set_note(Note {
            mac: peer.mac.0,
            ifindex: peer.ifindex,
            ..Note::default()
        });
        let section = rcu::Read::enter();
        let sock = space
            .esp_connections
            .find(esp_connection::hash(header.dst, &peer), &section, |sock| {
                sock.shared().connects(header.dst, &peer)
            })
            .or_else(|| {
                space
                    .esp_listeners
                    .find(header.dst.into(), &section, |sock| {
                        sock.shared().binding.takes(header.dst, peer.ifindex)
                    })
            });
        let Some(sock) = sock else {
            refused.no_socket.count();
            esp_output::send_reset(device, peer.mac, &header);
            return;
        };
        // A filter that shortens a packet would take bytes out of the stream: it can only refuse.
        let whole = skb.len();
        if !sock.filter(&skb) || skb.len() != whole {
            sock.count_drop();
            return;
        }
        skb.forget_device();
        let mut guard = sock.lock_bh();
        match guard.parts() {
            Some((sock, stream)) => process(sock, stream, skb),
            None => {
                let limit = sock.receive_limit().saturating_add(sock.send_limit());
                if guard.add_backlog(skb, limit).is_err() {
                    sock.count_drop();
                    sock.shared().backlog_drops.count();
                }
            }
        }
    }
}

/// Processes a packet with the socket locked and bottom halves disabled.
pub(crate) fn process(sock: &Sock<Esp>, stream: &mut Stream, mut skb: Skb) {
    let Some(header) = Header::parse(skb.head()) else {
        return;
    };
    let note = skb.note();
    let peer = Address {
        port: header.src,
        mac: Mac(note.mac),
        ifindex: note.ifindex,
    };
    if stream.listening.is_some() {
        open(sock, stream, &peer, &header);
        return;
    }
    // Since it was looked up, the socket may have got another peer.
    if !sock.shared().connects(header.dst, &peer) {
        return;
    }
    let room = stream.room(sock);
    let now = timer::now();
    let outcome = stream.connection.on_segment(&header, room, now);
    if outcome.deliver {
        skb.pull(HEADER_LEN);
        deliver(sock, stream, skb);
    }
    esp_connection::settle(sock, stream, outcome, now);
}

/// Queues the payload that is next in the stream.
#[inline]
fn deliver(sock: &Sock<Esp>, stream: &mut Stream, mut skb: Skb) {
    if sock.is_dead() {
        return;
    }
    stream.packet_cost = stream.packet_cost.max(skb.truesize());
    let readable = &sock.shared().readable;
    readable.store(
        readable.load(Relaxed).wrapping_add(skb.len() as u32),
        Relaxed,
    );
    skb.set_note(Note::default());
    sock.charge_receive(&mut skb);
    sock.receive_queue().push(skb);
    sock.data_ready();
}

/// A packet for a listener: the start of a connection, or a mistake.
fn open(sock: &Sock<Esp>, stream: &mut Stream, peer: &Address, header: &Header) {
    let section = rcu::Read::enter();
    let Some(device) = Device::find(sock.net(), peer.ifindex, &section) else {
        return;
    };
    if header.has(flags::RST) {
        return;
    }
    if !header.opens() {
        Space::of(sock.net()).esp_refused.no_socket.count();
        esp_output::send_reset(device, peer.mac, header);
        return;
    }
    if spawn(sock, stream, device, peer, header).is_none() {
        sock.count_drop();
    }
}

/// Makes the child of a listener that answers a SYN. `None` without room or memory, or if there
/// is a child for it already.
fn spawn(
    listener: &Sock<Esp>,
    stream: &Stream,
    device: &Device,
    peer: &Address,
    syn: &Header,
) -> Option<()> {
    let queue = stream.listening.as_ref()?;
    let slot = queue.lock().reserve()?;
    let port = listener.shared().binding.port();
    let connection = Connection::accept(
        port,
        syn,
        Seq(random::u16()),
        esp::Config::default(),
        timer::now(),
    );
    let child = NewChild::spawn(
        listener,
        Shared::of_child(port, peer),
        Stream::new(connection, esp::mss(device.mtu())),
    );
    let Some(mut child) = child else {
        queue.lock().unreserve(slot);
        return None;
    };
    let (sock, stream) = child.parts();
    sock.set_tcp_state(TcpState::SynRecv);
    let hash = esp_connection::hash(port, peer);
    let table = Space::of(sock.net()).esp_connections.lock();
    let known = table.any(hash, |other| other.shared().connects(port, peer));
    if !known {
        table.insert(hash, sock);
    }
    drop(table);
    if known {
        queue.lock().unreserve(slot);
        esp_connection::release_own(sock, stream);
        return None;
    }
    stream.parent = Parent::HalfOpen(queue.clone(), slot);
    let refused = queue.lock().put(slot, SockRef::from_lifetime(sock));
    if let Some(lifetime) = refused {
        // The listener has closed meanwhile.
        esp_connection::unhash(sock);
        stream.parent = Parent::None;
        esp_connection::release(stream, lifetime);
        return None;
    }
    esp_output::transmit(sock, stream, timer::now());
    Some(())
}
