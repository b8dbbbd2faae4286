// SPDX-License-Identifier: GPL-2.0

//! ESP frames that come in.

use crate::{
    address::Address,
    edp_input::sender,
    esp::{self, flags, Connection, Header, Seq, HEADER_LEN},
    esp_connection::{self, readable, Parent, Shared, Stream},
    esp_devices, esp_output,
    esp_socket::Esp,
    esp_turns, events,
    net::{
        device::{Device, Mac},
        errno::EEXIST,
        namespace::PerNet,
        packet_type::Handler,
        random, rcu,
        skb::{Note, Skb},
        sock::{NewChild, Sock, SockRef, TcpState},
        timer,
        trace::DropReason,
    },
    space::Space,
};
use core::sync::atomic::Ordering::Relaxed;

/// Takes the frames of ESP's Ethernet type.
pub(crate) struct Frames;

/// Throws a frame away that reaches no socket.
#[cold]
#[inline(never)]
fn refuse(skb: Skb, device: &Device, reason: DropReason) {
    Space::of(device.net()).esp_refused.count(reason);
    events::esp_frame_drop(&skb, device, reason);
    skb.refuse(None, reason);
}

/// Throws a packet away that `sock` does not take.
#[cold]
#[inline(never)]
fn drop_packet(sock: &Sock<Esp>, skb: Skb, reason: DropReason) {
    events::esp_drop(sock, &skb, reason);
    skb.refuse(Some(sock), reason);
}

impl Handler for Frames {
    fn receive(mut skb: Skb, device: &Device, section: &rcu::Read) {
        let space = Space::of_within(device.net(), section);
        let Some(source) = sender(&skb, device) else {
            return refuse(skb, device, DropReason::NotOurs);
        };
        let header = skb
            .header::<HEADER_LEN>()
            .and_then(|bytes| Header::parse(&bytes));
        let payload = header.and_then(|h| h.payload_len(skb.len().saturating_sub(HEADER_LEN)));
        let (Some(header), Some(len)) = (header, payload) else {
            return refuse(skb, device, DropReason::Malformed);
        };
        if !skb.trim(HEADER_LEN.saturating_add(len)) {
            return refuse(skb, device, DropReason::NoMemory);
        }
        let peer = Address {
            port: header.src,
            mac: source,
            ifindex: device.index(),
        };
        skb.set_note(Note {
            mac: peer.mac.0,
            ifindex: peer.ifindex,
            ..Note::default()
        });
        let sock = space
            .esp_connections
            .find(&esp_connection::key(header.dst, &peer), section)
            .or_else(|| {
                space
                    .esp_listeners
                    .find(header.dst.into(), section, |sock| {
                        sock.shared().binding.takes(header.dst, peer.ifindex)
                            && sock.hears(peer.ifindex)
                    })
            });
        let Some(sock) = sock else {
            refuse(skb, device, DropReason::NoSocket);
            esp_output::send_reset(device, peer.mac, &header);
            return;
        };
        // A filter that shortens a packet would take bytes out of the stream: it can only refuse.
        let whole = skb.len();
        if !sock.filter(&mut skb, HEADER_LEN) || skb.len() != whole {
            sock.count_drop();
            return drop_packet(sock, skb, DropReason::Filter);
        }
        skb.forget_device();
        let now = timer::now();
        space.esp_lanes.arrivals.pass(peer.ifindex, now);
        let mut lane = None;
        let mut guard = sock.lock_bh();
        match guard.parts() {
            Some((sock, stream)) => {
                stream.serves = true;
                process(sock, stream, skb, &header, &peer, now);
                stream.serves = false;
                if core::mem::take(&mut stream.served) {
                    lane = stream.lane.clone();
                }
            }
            None => {
                let limit = sock.receive_limit().saturating_add(sock.send_limit());
                if let Err(skb) = guard.add_backlog(skb, limit) {
                    sock.count_drop();
                    sock.shared().backlog_drops.count();
                    drop_packet(sock, skb, DropReason::Backlog);
                }
            }
        }
        drop(guard);
        if let Some(lane) = lane {
            lane.serve(now);
        }
    }
}

/// Processes a packet that waited while a task owned the socket.
pub(crate) fn process_late(sock: &Sock<Esp>, stream: &mut Stream, skb: Skb) {
    let Some(header) = Header::parse(skb.head()) else {
        return;
    };
    let note = skb.note();
    let peer = Address {
        port: header.src,
        mac: Mac(note.mac),
        ifindex: note.ifindex,
    };
    process(sock, stream, skb, &header, &peer, timer::now());
}

/// Processes a packet with `header` from `peer` at `now`, with the socket locked and bottom halves
/// disabled.
fn process(
    sock: &Sock<Esp>,
    stream: &mut Stream,
    mut skb: Skb,
    header: &Header,
    peer: &Address,
    now: u64,
) {
    if stream.listening.is_some() {
        sock.note_queue(&skb);
        return match open(sock, stream, peer, header) {
            Ok(()) => skb.consume(),
            Err(reason) => drop_packet(sock, skb, reason),
        };
    }
    // Since it was looked up, the socket may have got another peer.
    if !sock.shared().connects(header.dst, peer) {
        Space::of(sock.net()).esp_refused.no_socket.count();
        return drop_packet(sock, skb, DropReason::NoSocket);
    }
    sock.note_arrival(&skb);
    let room = stream.room(sock, skb.truesize());
    esp_turns::refresh(stream);
    let outcome = stream.connection.on_segment(header, room, now);
    if outcome.deliver && !header.has(flags::RRQ) {
        skb.pull(HEADER_LEN);
        deliver(sock, stream, skb);
    } else {
        examine(sock, stream, skb, &outcome);
    }
    esp_connection::settle(sock, stream, outcome, now);
}

/// Tells tracers what a packet was for that is not just next in the stream, and sees it to its end.
#[inline(never)]
fn examine(sock: &Sock<Esp>, stream: &mut Stream, mut skb: Skb, outcome: &esp::Outcome) {
    // Of these, tracers are told that they came only if they counted.
    let valid = !matches!(
        outcome.drop,
        Some(esp::DropReason::Malformed | esp::DropReason::BadAck | esp::DropReason::BadState)
    );
    if valid {
        events::esp_received(sock, &skb);
    }
    if outcome.deliver {
        skb.pull(HEADER_LEN);
        deliver(sock, stream, skb);
    } else if let Some(reason) = outcome.drop {
        drop_packet(sock, skb, reason.into());
    } else {
        skb.consume();
    }
}

/// Queues the payload that is next in the stream.
#[inline]
fn deliver(sock: &Sock<Esp>, stream: &mut Stream, mut skb: Skb) {
    if sock.is_dead() {
        return;
    }
    stream.packet_cost = stream.packet_cost.max(skb.truesize());
    let unread = &sock.shared().readable;
    unread.store(unread.load(Relaxed).wrapping_add(skb.len() as u32), Relaxed);
    skb.set_note(Note::default());
    sock.charge_receive(&mut skb);
    sock.receive_queue().push(skb);
    // A call that has taken a part already wants the rest, though it is below the mark.
    if stream.readers > 0 || readable(sock) {
        sock.data_ready();
    }
}

/// A packet for a listener: the start of a connection, or a mistake.
#[cold]
#[inline(never)]
fn open(
    sock: &Sock<Esp>,
    stream: &mut Stream,
    peer: &Address,
    header: &Header,
) -> core::result::Result<(), DropReason> {
    let section = rcu::Read::enter();
    let Some(device) = Device::find(sock.net(), peer.ifindex, &section) else {
        return Err(DropReason::BadState);
    };
    if header.has(flags::RST) {
        return Err(DropReason::BadState);
    }
    if !header.opens() {
        Space::of(sock.net()).esp_refused.no_socket.count();
        esp_output::send_reset(device, peer.mac, header);
        return Err(DropReason::NoSocket);
    }
    spawn(sock, stream, device, peer, header).inspect_err(|_| sock.count_drop())
}

/// Makes the child of a listener that answers a SYN, if there is room and memory, and no child for
/// it already.
fn spawn(
    listener: &Sock<Esp>,
    stream: &Stream,
    device: &Device,
    peer: &Address,
    syn: &Header,
) -> core::result::Result<(), DropReason> {
    let queue = stream.listening.as_ref().ok_or(DropReason::NoSocket)?;
    let lane = Space::of(listener.net())
        .esp_lanes
        .of(device.index())
        .map_err(|_| DropReason::NoMemory)?;
    let now = timer::now();
    let (stale, slot) = {
        let mut queue = queue.lock();
        (queue.make_room(now), queue.reserve())
    };
    if let Some(stale) = stale {
        listener.count_drop();
        esp_connection::dismiss(&stale, now);
    }
    let slot = slot.ok_or(DropReason::ListenQueue)?;
    let port = listener.shared().binding.port();
    let connection = Connection::accept(
        port,
        syn,
        Seq(random::u16()),
        Space::of(listener.net()).sysctl.config(),
        now,
    );
    let child = NewChild::spawn(
        listener,
        Shared::of_child(port, peer),
        Stream::new(connection),
    );
    let Some(mut child) = child else {
        queue.lock().unreserve(slot);
        return Err(DropReason::NoMemory);
    };
    let (sock, stream) = child.parts();
    Space::of(sock.net()).sysctl.limit_buffers(sock);
    esp_connection::set_state(sock, TcpState::SynRecv);
    esp_devices::begin(sock);
    let key = esp_connection::key(port, peer);
    if let Err(error) = Space::of(sock.net()).esp_connections.insert(&key, sock) {
        queue.lock().unreserve(slot);
        esp_connection::set_state(sock, TcpState::Close);
        esp_connection::release_own(sock, stream);
        return Err(if error == EEXIST {
            DropReason::Duplicate
        } else {
            DropReason::NoMemory
        });
    }
    // Measured when changes are heard of already.
    stream.measure(device);
    sock.start_flow();
    esp_turns::join(sock, stream, lane);
    stream.parent = Parent::HalfOpen(queue.clone(), slot);
    let refused = queue.lock().put(slot, SockRef::from_lifetime(sock), now);
    if let Some(lifetime) = refused {
        // The listener has closed meanwhile.
        esp_connection::set_state(sock, TcpState::Close);
        esp_connection::unhash(sock);
        esp_turns::leave(sock, stream);
        stream.parent = Parent::None;
        esp_connection::release(stream, lifetime);
        return Err(DropReason::NoSocket);
    }
    esp_output::transmit(sock, stream, timer::now());
    Ok(())
}
