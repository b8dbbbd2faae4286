// SPDX-License-Identifier: GPL-2.0

//! EDP's port 0: answers echo requests and queries, and receives the answers to our own queries.

use crate::{
    edp::{
        echo,
        query::{self, Capabilities, Host, Nonce},
        wire::{self, Header, HEADER_LEN},
    },
    esp,
    mapped::askers::Awaited,
    net::{
        allocation::Context,
        device::{Device, Mac},
        route,
        skb::Skb,
        trace::DropReason,
    },
    parameters,
    pernet::NetState,
    statistics::Statistic,
};

/// Handles a message for port 0. The message's header is already removed from `skb`.
///
/// # Errors
///
/// Returns the message and the reason for dropping it, if the message is not accepted.
#[cold]
#[inline(never)]
pub(super) fn receive(
    skb: Skb,
    device: &Device,
    header: &Header,
    source: Mac,
    net_state: &NetState,
) -> Result<(), (Skb, DropReason)> {
    let mut bytes = [0; query::ANSWER_MAX];
    let len = skb.len().min(bytes.len());
    let start = bytes
        .get_mut(..len)
        .and_then(|start| skb.copy_bits(0, start).then_some(&*start));
    let Some(start) = start else {
        return Err((skb, DropReason::Malformed));
    };
    let taken = if let Some(nonce) = query::nonce_of_query(start) {
        answer(device, header, nonce, source, net_state)
    } else if let Some((nonce, told)) = Capabilities::of_answer(start) {
        learn(device, header, nonce, &told, source, net_state)
    } else {
        let reply = echo::reply_to(header, start.first().copied());
        return_echo(&skb, device, reply.as_ref(), source, net_state)
    };
    match taken {
        Ok(()) => {
            skb.consume();
            Ok(())
        }
        Err(reason) => Err((skb, reason)),
    }
}

fn return_echo(
    request: &Skb,
    device: &Device,
    reply: Option<&Header>,
    to: Mac,
    net_state: &NetState,
) -> Result<(), DropReason> {
    let reply = reply.ok_or(DropReason::NoSocket)?;
    // The request may be too long for a reply, because a device may receive longer frames than it
    // may send.
    let mut skb = message(device, reply)?;
    // A request has at least one byte: its type.
    let rest = request.len().saturating_sub(1);
    let written = skb.put(&[echo::REPLY]) && skb.put_copy(request, 1, rest);
    if !written {
        return Err(DropReason::NoMemory);
    }
    send(skb, device, reply, to)?;
    net_state.statistics.count(Statistic::EdpInEcho);
    Ok(())
}

/// Answers a query with the capabilities that this host reports through `device`.
fn answer(
    device: &Device,
    query: &Header,
    nonce: Nonce,
    to: Mac,
    net_state: &NetState,
) -> Result<(), DropReason> {
    if !net_state.edp_peers.may_answer() {
        net_state.statistics.count(Statistic::EdpInQueriesRefused);
        return Ok(());
    }
    let config = net_state.sysctl.config();
    let host = Host {
        largest_datagram: wire::mtu(device.mtu(), false),
        largest_payload: esp::mss(device.mtu()),
        burst_length: config.burst_length,
        initial_ack_burst_length: config.initial_ack_burst_length,
        packets_to_ack: config.packets_to_ack,
        mapped: net_state.sysctl.mapped(),
        mapped_v6: route::has_ipv6(),
    };
    let header = query::answer_to(query);
    send_payload(device, &header, &host.answer(nonce), to)?;
    net_state.statistics.count(Statistic::EdpInQueries);
    Ok(())
}

/// Handles an answer to a query. Refuses an answer that matches no query of this host, and an
/// answer from a port other than 0.
fn learn(
    device: &Device,
    header: &Header,
    nonce: Nonce,
    told: &Capabilities,
    source: Mac,
    net_state: &NetState,
) -> Result<(), DropReason> {
    if header.src != 0 || !net_state.edp_peers.answer(source, device, nonce, told) {
        return Err(DropReason::NoSocket);
    }
    net_state.statistics.count(Statistic::EdpInAnswers);
    net_state.mapped_askers.wake(Awaited::Answer(source));
    Ok(())
}

/// Sends a query to the host with address `to`, through `device`. Errors are ignored: a query that
/// cannot be sent is treated like a query that is lost on the way.
pub(crate) fn ask(device: &Device, nonce: Nonce, to: Mac, net_state: &NetState) {
    let query = query::query(nonce);
    let header = Header {
        src: 0,
        dst: 0,
        len: query.len() as u16,
        has_checksum: false,
    };
    if send_payload(device, &header, &query, to).is_ok() {
        net_state.statistics.count(Statistic::EdpOutQueries);
    }
}

/// Allocates a buffer that begins with `header`, and has room for the rest of the message, whose
/// length `header` states. Fails if the message does not fit into a frame of `device`.
fn message(device: &Device, header: &Header) -> Result<Skb, DropReason> {
    if u32::from(header.len) > wire::mtu(device.mtu(), header.has_checksum) {
        return Err(DropReason::Malformed);
    }
    let room = HEADER_LEN
        .saturating_add(header.len.into())
        .saturating_add(wire::checksum_len(header.has_checksum));
    Skb::alloc(device.headroom(), room, Context::Softirq)
        .and_then(|mut skb| skb.put(&header.emit()).then_some(skb))
        .ok_or(DropReason::NoMemory)
}

fn send_payload(
    device: &Device,
    header: &Header,
    payload: &[u8],
    to: Mac,
) -> Result<(), DropReason> {
    let mut skb = message(device, header)?;
    if !skb.put(payload) {
        return Err(DropReason::NoMemory);
    }
    send(skb, device, header, to)
}

/// Appends the checksum to the message in `skb`, if `header` announces one, and sends the message
/// to `to`.
fn send(mut skb: Skb, device: &Device, header: &Header, to: Mac) -> Result<(), DropReason> {
    if header.has_checksum && !skb.append_sum(0) {
        return Err(DropReason::NoMemory);
    }
    let sent = device.send(skb, parameters::edp_type(), to);
    sent.map_err(|_| DropReason::NoMemory)
}
