// SPDX-License-Identifier: GPL-2.0-only

//! Tests datagrams with a checksum.

use guest::address::{EDP_SO_CHECKSUM, SO_MTU};
use guest::frame::{edp, edp_summed};
use guest::prelude::*;

scenarios! {
    direct edp_sums_on_the_wire = on_the_wire;
    direct edp_sums_that_are_wrong_are_counted = wrong;
    direct edp_sums_of_every_size = sizes;
    direct edp_sums_option = option;
}

fn sum(socket: &Socket) -> Result<()> {
    Ok(socket.set_int_option(SOL_EP, EDP_SO_CHECKSUM, 1)?)
}

fn option(lab: &Lab) -> Outcome {
    let socket = lab.a.edp_bound(710)?;
    let get = || socket.int_option(SOL_EP, EDP_SO_CHECKSUM);
    ensure!(get()? == 0, "{} at first", get()?);
    for (value, room) in [(1, 1490), (0, 1494)] {
        socket.set_int_option(SOL_EP, EDP_SO_CHECKSUM, value)?;
        ensure!(get()? == value, "{} after {value}", get()?);
        let most = socket.int_option(SOL_EP, SO_MTU)?;
        ensure!(most == room, "EDP_SO_MTU is {most}");
    }
    for value in [2, -1] {
        let set = socket.set_int_option(SOL_EP, EDP_SO_CHECKSUM, value);
        refused(set, libc::EINVAL, &format!("{value}"))?;
    }
    let short = socket.set_option(SOL_EP, EDP_SO_CHECKSUM, &[1, 0]);
    refused(short, libc::EINVAL, "two bytes")?;
    for name in [SO_MTU, 99] {
        let set = socket.set_int_option(SOL_EP, name, 1);
        refused(set, libc::ENOPROTOOPT, &format!("option {name}"))?;
    }
    Ok(())
}

fn on_the_wire(lab: &Lab) -> Outcome {
    let wire = lab.b.packets(ETH_P_EDP)?;
    let socket = lab.a.edp_bound(711)?;
    sum(&socket)?;
    let there = lab.a.to(&lab.b, 712);
    for size in [0, 1, 5, 100, 1490] {
        let payload = random(size, size as u64);
        socket.send_to(&payload, 0, &there)?;
        let (first, rest) = payload.split_at(size / 2);
        socket.send_to(first, libc::MSG_MORE, &there)?;
        socket.send(rest, 0)?;
        let expected = edp_summed(711, 712, &payload);
        let expected = ethernet(lab.b.mac, lab.a.mac, ETH_P_EDP, &expected);
        for kind in ["one send", "two sends"] {
            let frame = wire.wait_for(patience(), |_| true)?;
            ensure!(
                frame.starts_with(&expected),
                "{size} bytes, {kind}: {frame:02x?}"
            );
        }
    }
    // An echo reply has a checksum if the request had one.
    for size in [1, 5, 100, 1490] {
        let mut payload = random(size, size as u64);
        payload[0] = 1;
        let request = edp_summed(5, 0, &payload);
        wire.send(&ethernet(lab.a.mac, lab.b.mac, ETH_P_EDP, &request))?;
        payload[0] = 2;
        let reply = ethernet(lab.b.mac, lab.a.mac, ETH_P_EDP, &edp_summed(0, 5, &payload));
        let frame = wire.wait_for(patience(), |_| true)?;
        ensure!(frame.starts_with(&reply), "echo of {size}: {frame:02x?}");
    }
    Ok(())
}

fn wrong(lab: &Lab) -> Outcome {
    let wire = lab.b.packets(ETH_P_EDP)?;
    let socket = lab.a.edp_bound(713)?;
    let send = |packet: &[u8]| wire.send(&ethernet(lab.a.mac, lab.b.mac, ETH_P_EDP, packet));
    let whole = edp_summed(5, 713, b"with a sum");
    // Flips one bit of each byte, one byte after the other, including the bytes of the ports and
    // the length.
    for place in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        send(&damaged)?;
    }
    // The checksum is missing, in whole or in part.
    for there in 0..4 {
        send(&whole[..whole.len() - 4 + there])?;
    }
    // A damaged echo request is not answered.
    let mut nowhere = edp_summed(5, 0, &[1, 1]);
    nowhere[7] ^= 4;
    send(&nowhere)?;
    send(&whole)?;
    // Two datagrams are accepted: one with padding after the checksum, and one without a checksum.
    send(&[&whole[..], &[0xee; 20]].concat())?;
    send(&edp(5, 713, 5, b"plain"))?;
    let mut bytes = [0; 64];
    for expected in [&b"with a sum"[..], b"with a sum", b"plain"] {
        let got = socket.receive(&mut bytes, 0)?;
        ensure!(&bytes[..got] == expected, "{:?}", &bytes[..got]);
    }
    silent(&socket, "a damaged datagram")?;
    // A flipped bit in either byte of the length makes the length exceed the frame.
    lab.a.await_counter("EdpInMalformed", 2 + 4)?;
    lab.a
        .await_counter("EdpInCsumErrors", whole.len() as u32 - 2 + 1)?;
    ensure!(lab.a.counter("EdpInEcho")? == 0, "a damaged echo request");
    ensure!(lab.a.counter("EdpInNoSocket")? == 0, "a damaged port");
    Ok(())
}

fn sizes(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(714)?;
    let mut got = vec![0; 40_000];
    // A host remembers its peer's limit for a minute. The MTUs descend, so that a remembered limit
    // is never lower than the limit under test.
    for (mtu, most) in [(65_535, 32_767), (9000, 8994), (1500, 1494)] {
        lab.set_mtu(mtu)?;
        for (summed, most) in [(0, most), (1, most - 4)] {
            for socket in [&a, &b] {
                socket.set_int_option(SOL_EP, EDP_SO_CHECKSUM, summed)?;
            }
            let room = a.int_option(SOL_EP, SO_MTU)?;
            ensure!(room == most as i32, "EDP_SO_MTU is {room} at {mtu}");
            for size in [0, 1, most - 1, most] {
                let payload = random(size, mtu.into());
                for (from, to) in [(&a, &b), (&b, &a)] {
                    from.send(&payload, 0)
                        .with_context(|| format!("{size} bytes at {mtu}"))?;
                    let length = to.receive(&mut got, 0)?;
                    ensure!(got[..length] == payload, "{size} bytes came as {length}");
                }
            }
            refused(a.send(&vec![0; most + 1], 0), libc::EMSGSIZE, "one more")?;
        }
    }
    Ok(())
}
