// SPDX-License-Identifier: GPL-2.0

//! EDP frames that come in.

use crate::{
    edp,
    net::{
        device::{Device, Mac},
        namespace::PerNet,
        packet_type::Handler,
        rcu,
        skb::{Context, Note, Skb},
    },
    parameters,
    space::{Refused, Space},
};

/// Takes the frames of EDP's Ethernet type.
pub(crate) struct Frames;

/// Whether a frame is a whole one from one host to this host; otherwise counted.
#[inline]
pub(crate) fn acceptable(skb: &Skb, device: &Device, refused: &Refused) -> bool {
    let ours = device.is_ethernet() && skb.is_for_this_host() && !skb.source().is_group();
    if !ours {
        refused.not_ours.count();
    }
    ours
}

impl Handler for Frames {
    fn receive(mut skb: Skb, device: &Device) {
        let space = Space::of(device.net());
        let refused = &space.edp_refused;
        if !acceptable(&skb, device, refused) {
            return;
        }
        let header = skb
            .header::<{ edp::wire::HEADER_LEN }>()
            .and_then(|bytes| edp::wire::Header::parse(&bytes));
        let payload =
            header.and_then(|h| h.payload_len(skb.len().saturating_sub(edp::wire::HEADER_LEN)));
        let (Some(header), Some(len)) = (header, payload) else {
            refused.malformed.count();
            return;
        };
        let source = skb.source();
        skb.pull(edp::wire::HEADER_LEN);
        if !skb.trim(len) {
            refused.no_memory.count();
            return;
        }
        if header.dst == 0 {
            control(&mut skb, device, &header, source, space);
            return;
        }
        let section = rcu::Read::enter();
        let found = space.edp_ports.find(header.dst.into(), &section, |sock| {
            sock.shared()
                .takes(header.dst, device.index(), source, header.src)
        });
        let Some(sock) = found else {
            refused.no_socket.count();
            return;
        };
        skb.set_note(Note {
            mac: source.0,
            port: header.src,
            ifindex: device.index(),
            ..Note::default()
        });
        let stats = &sock.shared().stats;
        match sock.queue_datagram(skb) {
            Ok(()) => stats.pkt_rx.count(),
            Err(_) => stats.pkt_rx_drop.count(),
        }
    }
}

/// Answers an echo request; other control messages are unknown.
fn control(skb: &mut Skb, device: &Device, header: &edp::wire::Header, source: Mac, space: &Space) {
    let mut kind = [0];
    let kind = skb.copy_bits(0, &mut kind).then_some(kind[0]);
    let Some(reply) = edp::echo::reply_to(header, kind) else {
        space.edp_refused.no_socket.count();
        return;
    };
    if echo(skb, device, &reply, source).is_some() {
        space.edp_echoed.count();
    } else {
        space.edp_refused.no_memory.count();
    }
}

fn echo(request: &mut Skb, device: &Device, reply: &edp::wire::Header, to: Mac) -> Option<()> {
    let len = request.len();
    let mut skb = Skb::alloc(
        device.headroom(),
        edp::wire::HEADER_LEN + len,
        Context::Softirq,
    )?;
    (skb.put(&reply.emit()) && skb.put(&[edp::echo::REPLY])).then_some(())?;
    skb.put_copy(request, 1, len.saturating_sub(1))
        .then_some(())?;
    device.send(skb, parameters::edp_type(), to).ok()
}
