// SPDX-License-Identifier: GPL-2.0

//! EDP's port 0: echo requests and queries that are answered, and the answers to our own queries.

use crate::{
    edp::{
        echo,
        query::{self, Capabilities, Host, Nonce},
        wire::{self, Header, HEADER_LEN},
    },
    esp,
    net::{
        device::{Device, Mac},
        skb::{Context, Skb},
        trace::DropReason,
    },
    parameters,
    pernet::NetState,
    statistics::Statistic,
};

/// Takes a message for port 0, of which the header is gone.
///
/// # Errors
///
/// The message, if it is of no use, and the reason.
#[cold]
#[inline(never)]
pub(crate) fn receive(
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
    // A device may take in longer frames than it is to send.
    let mut skb = message(device, reply)?;
    // A request has its type at least.
    let rest = request.len().saturating_sub(1);
    let written = skb.put(&[echo::REPLY]) && skb.put_copy(request, 1, rest);
    if !written {
        return Err(DropReason::NoMemory);
    }
    send(skb, device, reply, to)?;
    net_state.statistics.count(Statistic::EdpInEcho);
    Ok(())
}

/// Answers a query with what hosts are told that send by `device`.
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
    };
    let header = query::answer_to(query);
    send_payload(device, &header, &host.answer(nonce), to)?;
    net_state.statistics.count(Statistic::EdpInQueries);
    Ok(())
}

/// Takes an answer, if the module asked for it: from its port 0.
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
    Ok(())
}

/// Asks the host with address `to`, which `device` leads to. Nobody waits: an error is like a lost
/// query.
pub(crate) fn ask(device: &Device, nonce: Nonce, to: Mac, net_state: &NetState) {
    let query = query::query(nonce);
    let header = Header {
        src: 0,
        dst: 0,
        len: query.len() as u16,
        summed: false,
    };
    if send_payload(device, &header, &query, to).is_ok() {
        net_state.statistics.count(Statistic::EdpOutQueries);
    }
}

/// A buffer with `header` and room for the message that it states, if that leaves by `device` in
/// one frame.
fn message(device: &Device, header: &Header) -> Result<Skb, DropReason> {
    if u32::from(header.len) > wire::mtu(device.mtu(), header.summed) {
        return Err(DropReason::Malformed);
    }
    let room = HEADER_LEN
        .saturating_add(header.len.into())
        .saturating_add(wire::sum_len(header.summed));
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

/// Sends a whole message, but for its sum.
fn send(mut skb: Skb, device: &Device, header: &Header, to: Mac) -> Result<(), DropReason> {
    if header.summed && !skb.append_sum(0) {
        return Err(DropReason::NoMemory);
    }
    let sent = device.send(skb, parameters::edp_type(), to);
    sent.map_err(|_| DropReason::NoMemory)
}
