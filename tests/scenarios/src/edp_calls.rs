// SPDX-License-Identifier: GPL-2.0-only

//! Tests the socket calls on EDP: sending, receiving, waiting, options.

use sockaddr_en::EdpStats;

use guest::address::SO_MTU;
use guest::lab::EDP_MAX;
use guest::prelude::*;

scenarios! {
    direct edp_sizes_from_0_to_the_largest = sizes;
    direct edp_keeps_datagrams_apart_and_in_order = in_order;
    direct edp_full_receive_buffer_drops_and_counts = full_buffer;
    direct edp_full_send_buffer_refuses_instead_of_dropping = small_send_buffer;
    direct edp_mtu_and_statistics = options;
    direct edp_sender_is_known_after_its_device_is_gone = device_gone;
    direct edp_two_processes_of_one_host = one_host;
}

/// Waits for one datagram, and receives it.
fn take(socket: &Socket) -> Result<(Vec<u8>, Address)> {
    await_events(socket, libc::POLLIN)?;
    let mut bytes = vec![0; 2048];
    let (length, from) = socket.receive_from(&mut bytes, libc::MSG_DONTWAIT)?;
    bytes.truncate(length);
    Ok((bytes, Address::from_bytes(&from)?))
}

fn sizes(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(44)?;
    let largest = [EDP_MAX - 1, EDP_MAX];
    for size in [0, 1, 2, 39, 40, 41, 45, 46, 47, 100, 1024]
        .into_iter()
        .chain(largest)
    {
        let sent = random(size, size as u64);
        ensure!(a.send(&sent, 0)? == size, "send of {size} bytes");
        let (got, _) = take(&b).with_context(|| format!("{size} bytes"))?;
        ensure!(
            got == sent,
            "{size} bytes sent, {} arrived or changed",
            got.len()
        );
    }
    for size in [EDP_MAX + 1, 1500, 65_535, 65_536, 1 << 20] {
        refused(
            a.send(&vec![0; size], 0),
            libc::EMSGSIZE,
            &format!("{size} bytes"),
        )?;
    }
    let pieces = [&[1; EDP_MAX][..], &[2; 1]].map(Piece::Good);
    refused(a.send_message(&pieces, 0, &[]), libc::EMSGSIZE, "in pieces")?;
    silent(&b, "an oversize datagram")
}

fn in_order(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(48)?;
    let datagram = |number: u32| {
        let mut bytes = vec![number as u8; 4 + number as usize % 900];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes
    };
    for round in 0..50u32 {
        let numbers = round * 20..(round + 1) * 20;
        for number in numbers.clone() {
            a.send(&datagram(number), 0)?;
        }
        for number in numbers {
            ensure!(take(&b)?.0 == datagram(number), "not datagram {number}");
        }
    }
    Ok(())
}

fn full_buffer(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(49)?;
    b.set_so(libc::SO_RCVBUF, 4096)?;
    for number in 0..100u8 {
        a.send(&[number; 1000], 0)?;
    }
    eventually("all 100 datagrams accounted for", || {
        let stats = b.edp_counters()?;
        Ok(stats.pkt_rx + stats.pkt_rx_drop == 100)
    })
    .with_context(|| format!("{:?}", b.edp_counters()))?;
    let stats = b.edp_counters()?;
    let kept = stats.pkt_rx;
    ensure!(kept > 0 && stats.pkt_rx_drop > 0, "{stats:?}");
    ensure!(
        kept < 20,
        "{kept} datagrams of 1000 bytes fit into 4096 bytes"
    );
    // The receive buffer keeps the datagrams that arrived first, and the others are dropped.
    for number in 0..kept as u8 {
        let (bytes, _) = take(&b)?;
        ensure!(bytes == [number; 1000], "datagram {number} is another");
    }
    silent(&b, "more than counted")?;
    a.send(b"room again", 0)?;
    ensure!(take(&b)?.0 == b"room again", "after reading");
    Ok(())
}

fn small_send_buffer(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(50)?;
    // A slow link holds frames for a while, so the send buffer fills.
    let slow = ["tbf", "rate", "1mbit", "burst", "2kb", "limit", "1mb"];
    lab.a.queue("add", &slow)?;
    a.set_so(libc::SO_SNDBUF, 4608)?;
    let (mut taken, mut refusals) = (0u32, 0);
    for number in 0..200u32 {
        let mut bytes = [0; 1000];
        bytes[..4].copy_from_slice(&taken.to_be_bytes());
        match a.send(&bytes, libc::MSG_DONTWAIT) {
            Ok(_) => taken += 1,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => refusals += 1,
            Err(error) => return Err(error).with_context(|| format!("datagram {number}")),
        }
    }
    ensure!(
        refusals > 0,
        "200 datagrams of 1000 bytes fit into 4608 bytes"
    );
    for number in 0..taken {
        let (bytes, _) = take(&b)?;
        ensure!(
            bytes[..4] == number.to_be_bytes(),
            "datagram {number} was lost"
        );
    }
    await_events(&a, libc::POLLOUT).context("writable again")?;
    // A blocking sender waits for room instead of failing.
    for number in 0..20u32 {
        a.send(&[number as u8; 1000], 0)?;
    }
    for number in 0..20 {
        same(take(&b)?.0[0], number, "a blocking sender's datagram")?;
    }
    Ok(())
}

fn options(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(51)?;
    same(a.largest_payload()?, EDP_MAX as i32, "EDP_SO_MTU")?;
    lab.a.set_mtu(1000)?;
    let mtu = a.int_option(SOL_EP, SO_MTU)?;
    ensure!(mtu == 994, "EDP_SO_MTU is {mtu} with a device MTU of 1000");
    refused(a.send(&[0; 995], 0), libc::EMSGSIZE, "995 bytes of 1000")?;
    a.send(&[0; 994], 0)?;
    take(&b)?;
    b.send(&[], 0)?;
    take(&a)?;
    let one_each_way = EdpStats {
        pkt_tx: 1,
        pkt_rx: 1,
        ..EdpStats::default()
    };
    for socket in [&a, &b] {
        let counted = socket.edp_counters()?;
        ensure!(counted == one_each_way, "{counted:?}");
    }
    Ok(())
}

fn device_gone(lab: &Lab) -> Outcome {
    let (a, b) = (lab.a.edp_bound(52)?, lab.b.edp()?);
    b.bind(&lab.b.anywhere(52))?;
    a.send_to(b"last message", 0, &lab.a.to(&lab.b, 52))?;
    await_events(&b, libc::POLLIN)?;
    let from = lab.b.to(&lab.a, 52);
    lab.b.namespace.ip("link del eth0\n")?;
    let (bytes, sender) = take(&b)?;
    ensure!(bytes == b"last message", "{bytes:?}");
    ensure!(sender == from, "from {sender:?}");
    refused(b.send_to(b"x", 0, &from), libc::ENODEV, "an answer by it")?;
    // The removal of host b's end of the veth pair also removed host a's end, to which socket `a`
    // is bound.
    refused(
        a.send_to(b"x", 0, &lab.a.to(&lab.b, 52)),
        libc::ENODEV,
        "sending from the other end",
    )
}

fn one_host(lab: &Lab) -> Outcome {
    let server = lab.a.edp_bound(53)?;
    let wire = lab.b.packets(guest::frame::ETH_P_EDP)?;
    let there = lab.a.to(&lab.a, 53);
    let client = lab.a.edp()?;
    let child = start_process(|| {
        let asked = client.send_to(b"neighbour?", 0, &there).is_ok();
        let _ = client.set_timeout(libc::SO_RCVTIMEO, patience());
        let mut bytes = [0; 16];
        match client.receive_from(&mut bytes, 0) {
            Ok((5, from))
                if asked && Address::from_bytes(&from).is_ok_and(|from| from == there) =>
            {
                0
            }
            _ => 1,
        }
    })?;
    let (bytes, from) = take(&server)?;
    ensure!(bytes == b"neighbour?", "{bytes:?}");
    ensure!(
        from.mac == lab.a.mac && from.ifindex == lab.a.ifindex,
        "from {from:?}"
    );
    server.send_to(b"here!", 0, &from)?;
    let ended = nix::sys::wait::waitpid(child, None)?;
    ensure!(
        matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0)),
        "the other process ended with {ended:?}"
    );
    // A switch would not return a frame to the port from which it came. So the module must not send
    // a frame for its own host to the wire. The datagram sent here must be the first frame on the
    // wire.
    lab.a.edp()?.send_to(b"outside", 0, &lab.a.to(&lab.b, 9))?;
    let frame = wire.wait_for(patience(), |_| true)?;
    ensure!(
        frame[20..27] == *b"outside",
        "a frame to the own address was on the wire"
    );
    Ok(())
}
