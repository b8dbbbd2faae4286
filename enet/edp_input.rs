// SPDX-License-Identifier: GPL-2.0

//! EDP frames that come in.

use crate::{
    address::Address,
    edp::{
        self,
        wire::{Header, HEADER_LEN},
    },
    edp_output::fits,
    events,
    net::{
        device::{Device, Mac},
        namespace::PerNet,
        packet_type::Handler,
        rcu,
        skb::{Context, Skb},
        softirq::Softirq,
        trace::DropReason,
    },
    notes::Origin,
    parameters,
    sender::sender,
    space::Space,
    statistics::Statistic,
};

/// Takes the frames of EDP's Ethernet type.
pub(crate) struct Frames;

/// Throws a frame away that reaches no socket.
#[cold]
#[inline(never)]
fn refuse(skb: Skb, device: &Device, header: Option<&Header>, reason: DropReason) {
    events::edp_drop(&skb, device, None, header, reason);
    skb.refuse(None, reason);
}

impl Handler for Frames {
    fn receive(mut skb: Skb, device: &Device, section: &rcu::Read, _softirq: Softirq<'_>) {
        let space = Space::of_within(device.net(), section);
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
        if !skb.trim(HEADER_LEN.saturating_add(len)) {
            return refuse(skb, device, Some(&header), DropReason::NoMemory);
        }
        if header.dst == 0 {
            skb.pull(HEADER_LEN);
            return control(skb, device, &header, source, space);
        }
        let ifindex = device.index();
        let found = space
            .edp_ports
            .sockets
            .find_best(header.dst.into(), section, |sock| {
                if !sock.hears(ifindex) {
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
        let stats = &sock.shared().stats;
        sock.note_arrival(&skb);
        // As with UDP, a filter sees the header, and what it leaves of the payload is received.
        let kept = sock.filter(&mut skb, HEADER_LEN);
        skb.pull(HEADER_LEN);
        let queued = if kept {
            sock.queue_datagram(skb)
        } else {
            sock.count_drop();
            Err((skb, DropReason::Filter))
        };
        match queued {
            Ok(()) => {
                stats.pkt_rx.count();
                space.statistics.count(Statistic::EdpInDatagrams);
            }
            Err((skb, reason)) => {
                stats.pkt_rx_drop.count();
                events::edp_drop(&skb, device, Some(sock), Some(&header), reason);
                skb.refuse(Some(sock), reason);
            }
        }
    }
}

/// Answers an echo request; other control messages are unknown.
fn control(skb: Skb, device: &Device, header: &Header, source: Mac, space: &Space) {
    let mut kind = [0];
    let kind = skb.copy_bits(0, &mut kind).then_some(kind[0]);
    let Some(reply) = edp::echo::reply_to(header, kind) else {
        return refuse(skb, device, Some(header), DropReason::NoSocket);
    };
    // A device may take in longer frames than it is to send.
    if fits(device, skb.len()).is_err() {
        return refuse(skb, device, Some(header), DropReason::Malformed);
    }
    if echo(&skb, device, &reply, source).is_some() {
        space.statistics.count(Statistic::EdpInEcho);
        skb.consume();
    } else {
        refuse(skb, device, Some(header), DropReason::NoMemory);
    }
}

fn echo(request: &Skb, device: &Device, reply: &Header, to: Mac) -> Option<()> {
    let len = request.len();
    let mut skb = Skb::alloc(
        device.headroom(),
        HEADER_LEN.saturating_add(len),
        Context::Softirq,
    )?;
    (skb.put(&reply.emit()) && skb.put(&[edp::echo::REPLY])).then_some(())?;
    skb.put_copy(request, 1, len.saturating_sub(1))
        .then_some(())?;
    device.send(skb, parameters::edp_type(), to).ok()
}
