// SPDX-License-Identifier: GPL-2.0-only

//! Tests echo requests to EDP port 0, which packet sockets and EDP sockets send.

use guest::frame::edp;
use guest::lab::EDP_MAX;
use guest::prelude::*;

scenarios! {
    direct edp_echo_request_from_a_packet_socket_is_answered = echo;
    direct edp_echo_request_from_an_edp_socket_is_answered = echo_socket;
    direct edp_other_messages_to_port_0_are_not_answered = silence;
}

const REQUEST: u8 = 1;
const REPLY: u8 = 2;

fn echo(lab: &Lab) -> Outcome {
    let wire = lab.b.packets(ETH_P_EDP)?;
    for size in [1, 2, 33, 40, 41, 100, EDP_MAX] {
        let mut payload = random(size, size as u64);
        payload[0] = REQUEST;
        let request = edp(4711, 0, size as u16, &payload);
        wire.send(&ethernet(lab.a.mac, lab.b.mac, ETH_P_EDP, &request))?;
        let frame = wire
            .wait_for(patience(), |_| true)
            .with_context(|| format!("the reply to {size} bytes"))?;
        payload[0] = REPLY;
        let expected = ethernet(
            lab.b.mac,
            lab.a.mac,
            ETH_P_EDP,
            &edp(0, 4711, size as u16, &payload),
        );
        let (reply, padding) = frame.split_at(expected.len().min(frame.len()));
        ensure!(reply == expected, "{size} bytes: the reply is {frame:02x?}");
        ensure!(
            padding.iter().all(|&byte| byte == 0),
            "{size} bytes: padding {padding:02x?}"
        );
    }
    // The request is padded. The reply's length follows the length field, not the frame's length.
    let mut request = edp(4711, 0, 3, &[REQUEST, 7, 8]);
    request.resize(46, 0xee);
    wire.send(&ethernet(lab.a.mac, lab.b.mac, ETH_P_EDP, &request))?;
    let frame = wire.wait_for(patience(), |_| true)?;
    same(&frame[14..23], edp(0, 4711, 3, &[REPLY, 7, 8]), "reply")?;
    ensure!(!frame[23..].contains(&0xee), "the padding came back");
    Ok(())
}

fn echo_socket(lab: &Lab) -> Outcome {
    let socket = lab.b.edp_bound(70)?;
    for target in [&lab.a, &lab.b] {
        let there = lab.b.to(target, 0);
        socket.send_to(&[REQUEST, 1, 2, 3], 0, &there)?;
        await_events(&socket, libc::POLLIN)?;
        let mut bytes = [0; 16];
        let (length, from) = socket.receive_from(&mut bytes, 0)?;
        same(&bytes[..length], [REPLY, 1, 2, 3], "the reply")?;
        let from = guest::address::Address::from_bytes(&from)?;
        ensure!(from == there, "from {from:?}");
    }
    Ok(())
}

fn silence(lab: &Lab) -> Outcome {
    let wire = lab.b.packets(ETH_P_EDP)?;
    let send = |packet: &[u8]| wire.send(&ethernet(lab.a.mac, lab.b.mac, ETH_P_EDP, packet));
    for kind in [0, REPLY, 3, 0x81, 0xff] {
        send(&edp(5, 0, 4, &[kind, 1, 2, 3]))?;
    }
    // Three messages that must not be answered: one with an empty payload, one whose length exceeds
    // the frame, and a reply from port 0 to port 0. An answer to this reply could start a loop.
    send(&edp(5, 0, 0, &[]))?;
    send(&edp(5, 0, 100, &[REQUEST, 1]))?;
    send(&edp(0, 0, 2, &[REPLY, 1]))?;
    // Answers leave in order: any answer to these messages would arrive before this echo reply.
    wire.echo_comes_first(lab.a.mac, lab.b.mac, 6)
}
