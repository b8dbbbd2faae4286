// SPDX-License-Identifier: GPL-2.0

//! Receives ESP frames, and passes their packets to connections and listeners.

use super::{
    accept::Admission,
    ack_queue::{self, Due},
    cookies,
    deliver::{deliver, drop_packet, Packets},
    device,
    lifecycle::Parent,
    out_of_order,
    outcome::{self, apply_outcome},
    output::{self, push},
    receive::Promise,
    records,
    sock::{key, parts, serve_by_timer, Connection, Esp, LockedEsp, Shared},
};
use crate::{
    address::{sender, Address},
    esp::{
        self, cookie::Answer, flags, records::Kind, Header, Options, Seq, HEADER_LEN, OPTIONS_MAX,
    },
    events,
    net::{
        device::Device,
        errno::EEXIST,
        inet::InternetEnd,
        namespace::PerNet,
        offload::Contents,
        packet_type::Handler,
        random, rcu, route,
        skb::Skb,
        sock::{BhGuard, NewChild, Sock, TcpState},
        softirq::Softirq,
        timer,
        trace::DropReason,
    },
    pernet::NetState,
    skb_cb::Masked,
    statistics::Statistic,
};

/// The handler of ESP's Ethernet type.
pub(crate) struct Frames;

/// Drops a frame that reaches no socket.
#[cold]
#[inline(never)]
fn refuse(skb: Skb, device: &Device, reason: DropReason) {
    events::esp_frame_drop(&skb, device, reason);
    skb.refuse(None, reason);
}

/// Returns the mask of the checksum of a packet with `len` bytes of payload, or `None` if the
/// checksum is wrong with any mask. A mask is a value that the sender combines with a checksum; the
/// packet's connection or listener [checks](lacks_sum) the mask. All packets that GRO merged had
/// the same mask, which the buffer keeps. Packets of this host have no checksums until they are
/// segmented.
#[cold]
#[inline(never)]
fn mask(skb: &Skb, header: &Header, len: usize) -> Option<u32> {
    let mask = match skb.contents() {
        Contents::Packet => skb.mask_behind(HEADER_LEN.saturating_add(len))?,
        Contents::Packets(_) => skb.mask_of_run(),
        Contents::Foreign => 0,
    };
    (mask == 0 || !header.has(flags::SYN)).then_some(mask)
}

impl Handler for Frames {
    fn receive(mut skb: Skb, device: &Device, section: &rcu::Read, softirq: Softirq<'_>) {
        let net_state = NetState::of_within(device.net(), section);
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
        let mut sum = 0;
        if header.has_checksum() {
            match mask(&skb, &header, len) {
                Some(mask) => sum = mask,
                None => return refuse(skb, device, DropReason::Checksum),
            }
        }
        if !skb.trim(HEADER_LEN.saturating_add(len)) {
            return refuse(skb, device, DropReason::NoMemory);
        }
        let Some(packets) = Packets::of(&skb, &header) else {
            return refuse(skb, device, DropReason::NotOurs);
        };
        let peer = Address {
            port: header.src,
            mac: source,
            ifindex: device.index(),
        };
        skb.set_note(Masked { peer, mask: sum });
        let mut sock = net_state
            .esp_connections
            .find(&key(header.dst, &peer), section);
        if sock.is_none() {
            // The options of a SYN are parsed again when the SYN is answered, and must not change
            // in between. Another program may be able to write to their page, so they are moved to
            // the linear part, which belongs to the buffer.
            if header.opens() && !skb.gather(HEADER_LEN.saturating_add(len.min(OPTIONS_MAX))) {
                return refuse(skb, device, DropReason::NoMemory);
            }
            sock = listener(net_state, &skb, &header, &peer, device, section);
        }
        let Some(sock) = sock else {
            refuse(skb, device, DropReason::NoSocket);
            output::send_reset(device, peer.mac, &header, sum);
            return;
        };
        pass_to(sock, skb, &header, packets, &peer, net_state, softirq);
    }
}

/// Passes a packet to `sock`: processes it, or adds it to the backlog while a task owns the socket.
#[inline]
fn pass_to(
    sock: &Sock<Esp>,
    mut skb: Skb,
    header: &Header,
    packets: Packets,
    peer: &Address,
    net_state: &NetState,
    softirq: Softirq<'_>,
) {
    // A filter that shortens a packet would remove bytes from the stream. So a shortened packet is
    // dropped, like a rejected one.
    let whole = skb.len();
    if !sock.filter(&mut skb, HEADER_LEN) || skb.len() != whole {
        sock.count_drop();
        return drop_packet(sock, skb, DropReason::Filter);
    }
    skb.forget_device();
    (net_state.statistics).add(Statistic::EspInPkts, packets.count.into());
    let now = timer::now();
    net_state.esp_queues.arrivals().pass(peer.ifindex, now);
    let mut queue = None;
    let mut guard = sock.lock_bh(softirq);
    match guard.locked() {
        Some(mut esp) => {
            if process(&mut esp, skb, header, packets, peer, now, softirq).is_now() {
                queue = esp
                    .state
                    .connection()
                    .map(|c| c.queue_entry.queue().clone());
            }
        }
        None => {
            let least = Promise::least_backlog_limit(sock);
            if let Err(skb) = guard.add_backlog(skb, least) {
                keep_promise(&mut guard, sock, skb, packets);
            }
        }
    }
    drop(guard);
    if let Some(queue) = queue {
        ack_queue::serve(&queue, now, softirq);
    }
}

/// Handles a packet that would exceed the lower bound of the backlog's limit, while a task owns
/// `sock`. Computes the exact limit, which has room for every packet that the peer was allowed to
/// send. Queues the packet for the task, or drops it if it exceeds this limit, too.
#[cold]
#[inline(never)]
fn keep_promise(guard: &mut BhGuard<'_, Esp>, sock: &Sock<Esp>, skb: Skb, packets: Packets) {
    let cost = (skb.truesize())
        .checked_div(packets.count.into())
        .unwrap_or(u32::MAX);
    let limit = sock.shared().promise.backlog_limit(sock, cost);
    if let Err(skb) = guard.add_backlog(skb, limit) {
        sock.count_drop();
        sock.shared().backlog_drops.count();
        drop_packet(sock, skb, DropReason::Backlog);
    }
}

/// Returns the ends that a SYN states if its connection stands for a TCP connection.
#[inline]
fn mapped(skb: &Skb, header: &Header) -> Option<esp::Mapped> {
    if !header.opens() {
        return None;
    }
    options(skb).mapped
}

/// Returns the listener for a packet without a connection, if there is one.
#[inline]
fn listener<'a>(
    net_state: &NetState,
    skb: &Skb,
    header: &Header,
    peer: &Address,
    device: &Device,
    section: &'a rcu::Read,
) -> Option<&'a Sock<Esp>> {
    if let Some(mapped) = mapped(skb, header) {
        return mapped_listener(net_state, &mapped, peer, device, section);
    }
    net_state
        .esp_listeners
        .find(header.dst.into(), section, |sock| {
            sock.shared().binding.takes(header.dst, peer.ifindex)
                && sock.accepts_device(peer.ifindex)
        })
}

/// Returns the listener for a mapped connection from `peer`. The addresses that the SYN states must
/// belong to the neighbour that sent it and to this host. As in TCP, a listener at the
/// destination's address is preferred to one at all addresses. Among the remaining listeners, the
/// ones bound to a device or a VRF are preferred. If several are left, each gets a share of the
/// peers.
#[cold]
#[inline(never)]
fn mapped_listener<'a>(
    net_state: &NetState,
    mapped: &esp::Mapped,
    peer: &Address,
    device: &Device,
    section: &'a rcu::Read,
) -> Option<&'a Sock<Esp>> {
    let source = InternetEnd::from(mapped.source);
    let destination = InternetEnd::from(mapped.destination);
    let (from, to) = (source.ip(), destination.ip());
    // As in IP, loopback addresses are only for the host itself.
    let inside = from.is_loopback() || to.is_loopback();
    let meant = from.is_ipv4() == to.is_ipv4() && !inside && route::is_own(device, to);
    let comes = route::may_come_from(device, from);
    if !meant || !comes || !route::is_neighbour(device, from, to, peer.mac) {
        net_state.statistics.count(Statistic::MappedInForeign);
        return None;
    }
    let port = destination.port;
    let listener = net_state
        .mapped_listeners
        .find_best(port.into(), section, |sock| {
            let front = sock.shared().front.as_ref()?;
            if !front.takes(&destination)
                || !is_open(sock)
                || !sock.may_take_for_front(front.bell.as_ref(), device, section)
            {
                return None;
            }
            let from = peer.mac.to_bits() << 16 | u64::from(peer.port);
            let share = net_state.cookie_secret.hash([from, sock.inode(), 0]) as u32 >> 2;
            let of_device = u32::from(sock.bound_device() != 0) << 30;
            Some(share | of_device | u32::from(!front.own.is_any()) << 31)
        })?;
    if !net_state.mapped_rules.allow(listener, from, port) {
        net_state.statistics.count(Statistic::MappedInPolicy);
        return None;
    }
    Some(listener)
}

/// Returns whether a listener accepts connections. A companion (an ESP listener beside a TCP
/// listener) accepts connections while the TCP listener has the address that it had when the
/// companion was created.
fn is_open(listener: &Sock<Esp>) -> bool {
    let front = listener.shared().front.as_ref();
    front.is_none_or(|front| listener.front_listens_at() == Some(front.own))
}

/// Returns whether a listener accepts the connection that a SYN with `options` opens.
fn takes(listener: &Sock<Esp>, options: &Options) -> bool {
    let mapped = match (&listener.shared().front, &options.mapped) {
        (Some(front), Some(ends)) => front.takes(&InternetEnd::from(ends.destination)),
        (None, None) => true,
        _ => false,
    };
    let agrees = Kind::agree(records::accepted(listener), options.records);
    mapped && agrees && is_open(listener)
}

/// Processes a packet from the backlog, where it waited while a task owned the socket.
pub(super) fn process_late(esp: &mut LockedEsp<'_>, skb: Skb, softirq: Softirq<'_>) {
    let Some(header) = Header::parse(skb.head()) else {
        return;
    };
    let Some(packets) = Packets::of(&skb, &header) else {
        return;
    };
    let Masked { peer, .. } = skb.note();
    let now = timer::now();
    let due = process(esp, skb, &header, packets, &peer, now, softirq);
    serve_by_timer(esp, due, now);
}

/// Processes a packet with `header` from `peer` at the time `now`.
fn process(
    esp: &mut LockedEsp<'_>,
    skb: Skb,
    header: &Header,
    packets: Packets,
    peer: &Address,
    now: u64,
    softirq: Softirq<'_>,
) -> Due {
    let sock = esp.sock();
    let Some((_, connection)) = parts(esp).filter(|_| sock.shared().connects(header.dst, peer))
    else {
        return mismatch(esp, skb, header, peer, softirq);
    };
    if header.opens() && !crosses(connection, &skb) {
        return refuse_syn(esp, skb, header);
    }
    let mut without_sum = *header;
    if header.has_checksum() || connection.sending.has_checksum() {
        if lacks_sum(connection, &skb, header) {
            drop_packet(sock, skb, DropReason::Checksum);
            return Due::NOT;
        }
        without_sum = header.with_checksum(false);
    }
    let whole = header;
    let names = header.has(flags::RRQ) && without_sum.names_missing();
    if names {
        without_sum = connection.engine.without_names(&without_sum);
    }
    let header = &without_sum;
    if sock.tcp_state() == TcpState::SynRecv as u8 && completes(header) {
        if let Some(reason) = refusal(connection) {
            drop_packet(sock, skb, reason);
            if reason == DropReason::NoSocket {
                outcome::abort(esp);
            }
            return Due::NOT;
        }
    }
    sock.note_arrival(&skb);
    let room = connection.room(sock, skb.truesize());
    connection.queue_entry.refresh(&mut connection.engine);
    let outcome = (connection.engine).on_packets(header, packets.count, room, now);
    if names {
        out_of_order::named(connection, &skb, whole, &outcome, now);
    }
    if connection.queue_entry.waits() {
        connection.engine.note_arrived(header, packets.count, now);
    }
    if whole.has_checksum() {
        connection.engine.sum_challenged();
        let begins = !connection.sending.has_checksum() && outcome.is_of_open_connection();
        // A repeated SYN may be forged. It is not the packet that begins the checksums.
        if begins && !(header.has(flags::SYN) && outcome.drop.is_some()) {
            device::sum(esp, now);
        }
    }
    carry_out(esp, skb, header, packets, outcome, now)
}

/// Carries out the decisions of the engine after a packet, beginning with the decision on the
/// packet itself.
#[inline]
fn carry_out(
    esp: &mut LockedEsp<'_>,
    skb: Skb,
    header: &Header,
    packets: Packets,
    mut outcome: esp::Outcome,
    now: u64,
) -> Due {
    if outcome.deliver && !header.has(flags::RRQ) {
        deliver(esp, skb, header, packets, &mut outcome);
    } else {
        if outcome.answered {
            device::answered(esp, &options(&skb), &mut outcome, now);
        }
        examine(esp, skb, header, packets, &mut outcome);
    }
    if esp.sock().shared().unread.out_of_order_memory() > 0 {
        out_of_order::hand_over(esp, &mut outcome, now);
    }
    apply_outcome(esp, outcome, now)
}

/// Returns whether a packet lacks a required checksum, or has the connection's first checksum too
/// late. That is too late once this end has sent packets without room for a checksum, because their
/// retransmissions would have no room, either. A SYN needs no checksum because its sender cannot
/// know yet that this end uses checksums. Neither does a packet that finds a client which has
/// forgotten the connection: the client only answers it.
#[cold]
#[inline(never)]
fn lacks_sum(connection: &mut Connection, skb: &Skb, header: &Header) -> bool {
    if header.has_checksum() {
        if !connection.sending.has_checksum() && !connection.engine.may_shrink() {
            return true;
        }
        let Masked { mask, .. } = skb.note();
        return !connection.engine.takes_mask(header, mask);
    }
    let is_challenged =
        connection.engine.state() == esp::State::SynSent && !header.has(flags::SYN | flags::RST);
    connection.sending.has_checksum() && !header.opens() && !is_challenged
}

/// Returns whether the SYN in `skb` may cross the SYN of `connection`: both SYNs stand for the same
/// TCP connection, or neither stands for one. Otherwise, a client that connects from the port of a
/// TCP server would get the server's clients.
#[cold]
#[inline(never)]
fn crosses(connection: &Connection, skb: &Skb) -> bool {
    connection.engine.state() != esp::State::SynSent
        || options(skb).mapped == connection.mapped.map(esp::Mapped::swapped)
}

/// Drops a SYN that the socket's connection does not accept, and answers it with a reset.
#[cold]
#[inline(never)]
fn refuse_syn(esp: &mut LockedEsp<'_>, skb: Skb, header: &Header) -> Due {
    drop_packet(esp.sock(), skb, DropReason::NoSocket);
    if let Some(reset) = esp::reset_for(header) {
        output::send_control(esp, reset);
    }
    Due::NOT
}

/// Parses the options of a SYN or SYN|ACK.
#[cold]
#[inline(never)]
fn options(skb: &Skb) -> Options {
    let mut bytes = [0; OPTIONS_MAX];
    let length = skb.len().saturating_sub(HEADER_LEN).min(OPTIONS_MAX);
    let Some(bytes) = bytes.get_mut(..length) else {
        return Options::default();
    };
    if skb.copy_bits(HEADER_LEN, bytes) {
        Options::parse(bytes)
    } else {
        Options::default()
    }
}

/// Returns whether a packet completes the handshake of a half-open child.
#[cold]
#[inline(never)]
fn completes(header: &Header) -> bool {
    header.has(flags::ACK) && !header.has(flags::SYN | flags::RST)
}

/// Returns the reason for which a half-open child cannot become a connection, if there is one.
#[cold]
#[inline(never)]
fn refusal(connection: &Connection) -> Option<DropReason> {
    if has_lost_listener(connection) {
        return Some(DropReason::NoSocket);
    }
    // The packet can be dropped without harm: for a while, the child still answers the SYN, and the
    // peer still retransmits.
    (!connection.life.can_be_accepted()).then_some(DropReason::ListenQueue)
}

/// Returns whether the listener of a half-open child no longer accepts connections, although no
/// call has closed it.
fn has_lost_listener(connection: &Connection) -> bool {
    let parent = connection.life.parent();
    let listener = parent.and_then(|parent| parent.queue().lock().listener());
    listener.is_some_and(|listener| !is_open(&listener))
}

/// Handles a packet for a listener, or for a socket whose peer has changed since the lookup.
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
        open(esp, skb, header, peer, softirq);
    } else {
        drop_packet(sock, skb, DropReason::NoSocket);
    }
    Due::NOT
}

/// Handles a packet that is not simply the next one in the stream: traces the packet, and delivers,
/// keeps or frees it.
#[inline(never)]
fn examine(
    esp: &mut LockedEsp<'_>,
    skb: Skb,
    header: &Header,
    packets: Packets,
    outcome: &mut esp::Outcome,
) {
    let sock = esp.sock();
    // A packet dropped for one of these reasons is traced only as dropped.
    let valid = !matches!(
        outcome.drop,
        Some(esp::DropReason::Malformed | esp::DropReason::BadAck | esp::DropReason::BadState)
    );
    if valid {
        events::esp_received(sock, &skb);
    }
    if outcome.deliver {
        deliver(esp, skb, header, packets, outcome);
    } else if outcome.keep {
        out_of_order::keep(esp, skb, header);
    } else if let Some(reason) = outcome.drop {
        drop_packet(sock, skb, reason.into());
    } else {
        skb.consume();
    }
}

/// Handles a packet for a listener: the start of a connection, the answer to a cookie, or an error.
fn open(esp: &mut LockedEsp<'_>, skb: Skb, header: &Header, peer: &Address, softirq: Softirq<'_>) {
    let listener = esp.sock();
    let section = rcu::Read::enter();
    let device = Device::find(listener.net(), peer.ifindex, &section);
    let opened = match device {
        Some(device) if header.opens() => {
            answer(esp, device, peer, header, &options(&skb), softirq)
        }
        Some(device) if !header.has(flags::RST) => {
            return take_answer(esp, skb, device, header, peer, softirq);
        }
        _ => Err(DropReason::BadState),
    };
    match opened {
        Ok(()) => skb.consume(),
        Err(reason) => drop_packet(listener, skb, reason),
    }
}

/// Answers a SYN: with a child if the queue has room, otherwise with a cookie or not at all.
fn answer(
    esp: &mut LockedEsp<'_>,
    device: &Device,
    peer: &Address,
    syn: &Header,
    options: &Options,
    softirq: Softirq<'_>,
) -> Result<(), DropReason> {
    let listener = esp.sock();
    let net_state = NetState::of(listener.net());
    // The options are checked before the queue admits a child, so that this error path has nothing
    // to undo.
    if !takes(listener, options) {
        output::send_reset(device, peer.mac, syn, 0);
        return Err(DropReason::NoSocket);
    }
    let records = records::accepted(listener);
    let now = timer::now();
    let queue = esp.state.listening().ok_or(DropReason::NoSocket)?;
    let admission = queue.lock().admit(now);
    let with_checksum = syn.has_checksum() || esp.state.chosen.sums(&net_state.sysctl);
    let cookie = || cookies::client(peer).cookie(syn, now, cookies::hash(listener));
    let is_companion = listener.shared().front.is_some();
    match admission {
        Admission::Child => {
            let port = listener.shared().binding.port();
            let config = net_state.sysctl.config();
            // A copy of a SYN gets another number than the SYN. So a copy of the client's next
            // packet does not open a second connection.
            let isn =
                Some(cookie()).filter(|cookie| !cookies::is_used(listener, peer, syn, *cookie));
            let isn = isn.unwrap_or_else(|| Seq(random::u32() as u16));
            let mut engine = esp::Connection::accept(port, syn, isn, config, now);
            engine.use_nonce(random::u32());
            if let Some(kind) = records {
                engine.use_records(kind);
            }
            let mut child = spawn(esp, device, peer, engine, softirq)?;
            let mut esp = child.locked();
            esp.state.mapped = options.mapped;
            device::limited(&mut esp, options, now);
            if with_checksum {
                device::sum(&mut esp, now);
            }
            push(&mut esp, now);
            Ok(())
        }
        // A cookie has no room for the ends that the SYN of a mapped connection states. The sender
        // of the SYN can fall back to TCP.
        Admission::Cookie if is_companion || !esp::cookie::suits(options) => {
            listener.count_drop();
            Err(DropReason::ListenQueue)
        }
        Admission::Cookie => {
            net_state.statistics.count(Statistic::EspOutCookies);
            let answer = esp::cookie::answer_to(syn, cookie()).with_checksum(with_checksum);
            output::send_cookie(device, peer.mac, answer, records);
            Ok(())
        }
        Admission::Refused => {
            listener.count_drop();
            Err(DropReason::ListenQueue)
        }
    }
}

/// Creates the connection of a packet that answers a cookie, and passes the packet to it. Any other
/// packet belongs to no connection.
// Out of line, because each function that creates an engine needs over a kilobyte of stack.
#[inline(never)]
fn take_answer(
    esp: &mut LockedEsp<'_>,
    skb: Skb,
    device: &Device,
    header: &Header,
    peer: &Address,
    softirq: Softirq<'_>,
) {
    let listener = esp.sock();
    let net_state = NetState::of(listener.net());
    let now = timer::now();
    let (Some(queue), Some(packets)) = (esp.state.listening(), Packets::of(&skb, header)) else {
        return drop_packet(listener, skb, DropReason::NoSocket);
    };
    let expected = queue.lock().sent_cookie_within(esp::cookie::LIFE, now);
    let answered = answered_syn(listener, &skb, device, header, peer, expected, now);
    let Some(syn) = answered else {
        return drop_packet(listener, skb, DropReason::NoSocket);
    };
    if !queue.lock().has_place() {
        listener.count_drop();
        return drop_packet(listener, skb, DropReason::ListenQueue);
    }
    let port = listener.shared().binding.port();
    let isn = header.ack.sub(1);
    let mut engine =
        esp::Connection::accept_forgotten(port, &syn, isn, net_state.sysctl.config(), now);
    if let Some(kind) = records::accepted(listener) {
        engine.use_records(kind);
    }
    let with_checksum = header.has_checksum() || esp.state.chosen.sums(&net_state.sysctl);
    match spawn(esp, device, peer, engine, softirq) {
        Ok(mut child) => {
            net_state.statistics.count(Statistic::EspInCookies);
            let mut esp = child.locked();
            device::limited(&mut esp, &Options::forgotten(), now);
            if with_checksum {
                device::sum(&mut esp, now);
            }
            let due = process(&mut esp, skb, header, packets, peer, now, softirq);
            serve_by_timer(&mut esp, due, now);
        }
        Err(reason) => drop_packet(listener, skb, reason),
    }
}

/// If a packet is the first answer to a cookie, returns the SYN that the cookie answered. If
/// `expected` is false, no packet counts as such an answer. A packet that belongs to no connection
/// is answered with a reset.
fn answered_syn(
    listener: &Sock<Esp>,
    skb: &Skb,
    device: &Device,
    header: &Header,
    peer: &Address,
    expected: bool,
    now: u64,
) -> Option<Header> {
    let net_state = NetState::of(listener.net());
    // A cookie carries no nonce, so a packet with a mask does not answer it.
    let Masked { mask, .. } = skb.note();
    let answered = if expected && !(header.has_checksum() && mask != 0) {
        let packet = header.with_checksum(false);
        cookies::client(peer).answered(&packet, now, cookies::hash(listener))
    } else {
        None
    };
    match answered {
        Some(Answer::First(syn)) => {
            if !cookies::is_used(listener, peer, &syn, header.ack.sub(1)) {
                return Some(syn);
            }
        }
        // The client's first packet after the cookie may be lost, so a later packet is no reason to
        // reset the connection.
        Some(Answer::Later) => return None,
        None => {}
    }
    // While this packet waited for the listener's lock, another packet may have created the
    // connection that this packet belongs to.
    let section = rcu::Read::enter();
    let connection = net_state
        .esp_connections
        .find(&key(header.dst, peer), &section);
    if connection.is_none() {
        output::send_reset(device, peer.mac, header, mask);
    }
    None
}

/// Creates a child of a listener that has room for one. Fails if there is no memory, or if the peer
/// already has a child.
fn spawn(
    esp: &mut LockedEsp<'_>,
    device: &Device,
    peer: &Address,
    mut engine: esp::Connection,
    softirq: Softirq<'_>,
) -> Result<NewChild<Esp>, DropReason> {
    let listener = esp.sock();
    let net_state = NetState::of(listener.net());
    let queue = esp.state.listening().ok_or(DropReason::NoSocket)?.clone();
    let give_up = |reason| {
        listener.count_drop();
        reason
    };
    let waiting = net_state
        .esp_queues
        .of(device.index())
        .map_err(|_| give_up(DropReason::NoMemory))?;
    let port = listener.shared().binding.port();
    let chosen = esp.state.chosen;
    engine.set_user_timeout(chosen.user_timeout, net_state.sysctl.config());
    let shared = Shared::of_child(port, peer);
    if let Some(domain) = listener.shared().domain() {
        shared.set_domain(domain.share());
    }
    let mut child =
        NewChild::spawn(esp, shared, softirq).ok_or_else(|| give_up(DropReason::NoMemory))?;
    let mut esp = child.locked();
    esp.state.chosen = chosen;
    let sock = esp.sock();
    net_state.sysctl.limit_buffers(sock);
    device::begin(sock);
    if let Err(error) = net_state.esp_connections.insert(&key(port, peer), &esp) {
        outcome::set_state(sock, TcpState::Close);
        outcome::end(sock);
        return Err(give_up(if error == EEXIST {
            DropReason::Duplicate
        } else {
            DropReason::NoMemory
        }));
    }
    outcome::set_state(sock, TcpState::SynRecv);
    // The device's properties are not read before this point: only from here on is the connection
    // informed of changes.
    esp.state.begin(sock, engine, device, waiting);
    if let Some(connection) = esp.state.connection() {
        connection.life.set_parent(Parent::new(queue.clone()));
    }
    sock.start_flow();
    if !queue.lock().put(sock) {
        // The listener has closed after it admitted the child, so the child's connection ends.
        if let Some(connection) = esp.state.connection() {
            let _ = connection.engine.abort();
        }
        outcome::set_state(sock, TcpState::Close);
        outcome::over(&mut esp);
        listener.count_drop();
        return Err(DropReason::NoSocket);
    }
    Ok(child)
}
