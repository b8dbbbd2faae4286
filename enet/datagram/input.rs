// SPDX-License-Identifier: GPL-2.0

//! Receives EDP frames, and queues their datagrams for the readers of sockets.

use super::{control, ring, sock::Edp};
use crate::{
    address::{sender, Address},
    edp::wire::{Header, HEADER_LEN},
    events,
    net::{
        device::Device, namespace::PerNet, packet_type::Handler, rcu, skb::Skb, sock::Sock,
        softirq::Softirq, trace::DropReason,
    },
    pernet::NetState,
    skb_cb::Origin,
    statistics::Statistic,
};

/// The handler of EDP's Ethernet type.
pub(crate) struct Frames;

/// Drops a frame that reaches no socket.
#[cold]
#[inline(never)]
fn refuse(skb: Skb, device: &Device, header: Option<&Header>, reason: DropReason) {
    events::edp_drop(&skb, device, None, header, reason);
    skb.refuse(None, reason);
}

impl Handler for Frames {
    fn receive(mut skb: Skb, device: &Device, section: &rcu::Read, softirq: Softirq<'_>) {
        let net_state = NetState::of_within(device.net(), section);
        let Some(source) = sender(&skb, device) else {
            let header = Header::parse(skb.head());
            return refuse(skb, device, header.as_ref(), DropReason::NotOurs);
        };
        let header = skb
            .header::<HEADER_LEN>()
            .and_then(|bytes| Header::parse(&bytes));
        let payload = header.and_then(|h| h.payload_len(skb.len().saturating_sub(HEADER_LEN)));
        let (Some(header), Some(len)) = (header, payload) else {
            return refuse(skb, device, header.as_ref(), DropReason::Malformed);
        };
        let whole = HEADER_LEN.saturating_add(len);
        if header.has_checksum && skb.mask_behind(whole) != Some(0) {
            return refuse(skb, device, Some(&header), DropReason::Checksum);
        }
        if !skb.trim(whole) {
            return refuse(skb, device, Some(&header), DropReason::NoMemory);
        }
        if header.dst == 0 {
            skb.pull(HEADER_LEN);
            return match control::receive(skb, device, &header, source, net_state) {
                Ok(()) => {}
                Err((skb, reason)) => refuse(skb, device, Some(&header), reason),
            };
        }
        let ifindex = device.index();
        let found = net_state
            .edp_ports
            .sockets
            .find_best(header.dst.into(), section, |sock| {
                if !sock.accepts_device(ifindex) {
                    return None;
                }
                let fitness = sock
                    .shared()
                    .fitness(header.dst, ifindex, source, header.src)?;
                Some(fitness.saturating_add(u32::from(sock.bound_device() != 0)))
            });
        let Some(sock) = found else {
            return refuse(skb, device, Some(&header), DropReason::NoSocket);
        };
        skb.set_note(Origin(Address {
            mac: source,
            port: header.src,
            ifindex,
        }));
        queue(sock, skb, device, &header, net_state, softirq);
    }
}

/// Queues a datagram for the reader of `sock`.
#[inline]
fn queue(
    sock: &Sock<Edp>,
    mut skb: Skb,
    device: &Device,
    header: &Header,
    net_state: &NetState,
    softirq: Softirq<'_>,
) {
    let stats = &sock.shared().stats;
    sock.note_arrival(&skb);
    // As in UDP, a filter sees the header, and may truncate the payload.
    let kept = sock.filter(&mut skb, HEADER_LEN);
    skb.pull(HEADER_LEN);
    let queued = if kept && sock.shared().ring.is_set() {
        ring::put(sock, skb, softirq).map_err(|skb| {
            sock.count_drop();
            (skb, DropReason::ReceiveBuffer)
        })
    } else if kept {
        sock.queue_datagram(skb)
    } else {
        sock.count_drop();
        Err((skb, DropReason::Filter))
    };
    match queued {
        Ok(()) => {
            stats.pkt_rx.count();
            net_state.statistics.count(Statistic::EdpInDatagrams);
        }
        Err((skb, reason)) => {
            stats.pkt_rx_drop.count();
            events::edp_drop(&skb, device, Some(sock), Some(header), reason);
            skb.refuse(Some(sock), reason);
        }
    }
}
