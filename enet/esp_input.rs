// SPDX-License-Identifier: GPL-2.0

//! ESP frames that come in.

use crate::{
    ack_queue::{self, Due},
    address::Address,
    esp::{self, flags, Header, Seq, HEADER_LEN},
    esp_connection::{self, settle},
    esp_devices,
    esp_life::Parent,
    esp_output::{self, push},
    esp_sock::{key, parts, serve_by_timer, Connection, Esp, LockedEsp, Role, Shared, State},
    events,
    net::{
        device::Device,
        errno::EEXIST,
        namespace::PerNet,
        packet_type::Handler,
        random, rcu,
        skb::Skb,
        sock::{NewChild, Sock, TcpState},
        softirq::Softirq,
        timer,
        trace::DropReason,
    },
    notes::{Origin, Taken},
    sender::sender,
    space::Space,
};

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
    fn receive(mut skb: Skb, device: &Device, section: &rcu::Read, softirq: Softirq<'_>) {
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
        skb.set_note(Origin(peer));
        let sock = space
            .esp_connections
            .find(&key(header.dst, &peer), section)
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
        space.esp_queues.arrivals().pass(peer.ifindex, now);
        let mut queue = None;
        let mut guard = sock.lock_bh(softirq);
        match guard.locked() {
            Some(mut esp) => {
                if process(&mut esp, skb, &header, &peer, now, softirq).is_now() {
                    queue = esp.state.connection().map(|c| c.place.queue().clone());
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
        if let Some(queue) = queue {
            ack_queue::serve(&queue, now, softirq);
        }
    }
}

/// Processes a packet that waited while a task owned the socket.
pub(crate) fn process_late(esp: &mut LockedEsp<'_>, skb: Skb, softirq: Softirq<'_>) {
    let Some(header) = Header::parse(skb.head()) else {
        return;
    };
    let Origin(peer) = skb.note();
    let now = timer::now();
    let due = process(esp, skb, &header, &peer, now, softirq);
    serve_by_timer(esp, due, now);
}

/// Processes a packet with `header` from `peer` at `now`.
fn process(
    esp: &mut LockedEsp<'_>,
    skb: Skb,
    header: &Header,
    peer: &Address,
    now: u64,
    softirq: Softirq<'_>,
) -> Due {
    let sock = esp.sock();
    let Some((_, connection)) = parts(esp).filter(|_| sock.shared().connects(header.dst, peer))
    else {
        return mismatch(esp, skb, header, peer, softirq);
    };
    sock.note_arrival(&skb);
    let room = connection.receiving.room(sock, skb.truesize());
    connection.place.refresh(&mut connection.engine);
    let outcome = connection.engine.on_packet(header, room, now);
    if outcome.deliver && !header.has(flags::RRQ) {
        deliver(esp, skb);
    } else {
        examine(esp, skb, &outcome);
    }
    settle(esp, outcome, now)
}

/// A packet for a listener, or for a socket that has got another peer since it was looked up.
#[cold]
#[inline(never)]
fn mismatch(
    esp: &mut LockedEsp<'_>,
    skb: Skb,
    header: &Header,
    peer: &Address,
    softirq: Softirq<'_>,
) -> Due {
    let sock = esp.sock();
    if esp.state.listening().is_some() {
        sock.note_queue(&skb);
        match open(esp, peer, header, softirq) {
            Ok(()) => skb.consume(),
            Err(reason) => drop_packet(sock, skb, reason),
        }
    } else {
        Space::of(sock.net()).esp_refused.no_socket.count();
        drop_packet(sock, skb, DropReason::NoSocket);
    }
    Due::NOT
}

/// Traces a packet that is not just next in the stream, and delivers or frees it.
#[inline(never)]
fn examine(esp: &mut LockedEsp<'_>, skb: Skb, outcome: &esp::Outcome) {
    let sock = esp.sock();
    // Packets dropped for these reasons are traced as dropped only.
    let valid = !matches!(
        outcome.drop,
        Some(esp::DropReason::Malformed | esp::DropReason::BadAck | esp::DropReason::BadState)
    );
    if valid {
        events::esp_received(sock, &skb);
    }
    if outcome.deliver {
        deliver(esp, skb);
    } else if let Some(reason) = outcome.drop {
        drop_packet(sock, skb, reason.into());
    } else {
        skb.consume();
    }
}

/// Queues the payload that is next in the stream.
#[inline]
fn deliver(esp: &mut LockedEsp<'_>, mut skb: Skb) {
    let sock = esp.sock();
    if sock.is_dead() {
        return;
    }
    skb.pull(HEADER_LEN);
    if let Some(connection) = esp.state.connection() {
        connection.receiving.note_cost(skb.truesize());
    }
    let unread = &sock.shared().unread;
    unread.add(skb.len());
    skb.set_note(Taken::default());
    esp.queue_received(skb);
    // A call that has taken a part already wants the rest, though it is below the mark.
    if esp.state.has_readers() || unread.is_readable(sock) {
        sock.data_ready();
    }
}

/// A packet for a listener: the start of a connection, or a mistake.
fn open(
    esp: &mut LockedEsp<'_>,
    peer: &Address,
    header: &Header,
    softirq: Softirq<'_>,
) -> Result<(), DropReason> {
    let sock = esp.sock();
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
    spawn(esp, device, peer, header, softirq).inspect_err(|_| sock.count_drop())
}

/// Makes the child of a listener that answers a SYN, if there is room and memory, and no child for
/// it already.
fn spawn(
    esp: &mut LockedEsp<'_>,
    device: &Device,
    peer: &Address,
    syn: &Header,
    softirq: Softirq<'_>,
) -> Result<(), DropReason> {
    let listener = esp.sock();
    let space = Space::of(listener.net());
    let queue = esp.state.listening().ok_or(DropReason::NoSocket)?.clone();
    let turns = space
        .esp_queues
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
    let config = space.sysctl.config();
    let mut engine = esp::Connection::accept(port, syn, Seq(random::u16()), config, now);
    let user_timeout = esp.state.user_timeout;
    engine.set_user_timeout(user_timeout, config);
    let shared = Shared::of_child(port, peer);
    let Some(mut child) = NewChild::spawn(esp, shared, State::idle(user_timeout), softirq) else {
        queue.lock().unreserve(slot);
        return Err(DropReason::NoMemory);
    };
    let held = child.hold();
    let mut esp = child.locked();
    let sock = esp.sock();
    space.sysctl.limit_buffers(sock);
    esp_devices::begin(sock);
    if let Err(error) = space.esp_connections.insert(&key(port, peer), &esp) {
        queue.lock().unreserve(slot);
        esp_connection::set_state(sock, TcpState::Close);
        esp_connection::end(sock);
        return Err(if error == EEXIST {
            DropReason::Duplicate
        } else {
            DropReason::NoMemory
        });
    }
    esp_connection::set_state(sock, TcpState::SynRecv);
    // The device is measured when changes are heard of already.
    let mut connection = Connection::new(sock, engine, device, turns);
    connection.life.set_parent(Parent::new(queue.clone(), slot));
    esp.state.role = Role::Connection(connection);
    sock.start_flow();
    if queue.lock().put(slot, held, now).is_some() {
        // The listener has closed meanwhile.
        if let Some(connection) = esp.state.connection() {
            let _ = connection.engine.abort();
        }
        esp_connection::set_state(sock, TcpState::Close);
        esp_connection::over(&mut esp);
        return Err(DropReason::NoSocket);
    }
    push(&mut esp, timer::now());
    Ok(())
}
