//! The socket calls on EDP: sending, receiving, waiting, options.

use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};

use crate::address::{Address, AF_ENET, EPPROTO_EZDP, SOL_EP, SO_MTU};
use crate::harness::{refused, start_process, Outcome, Scenario};
use crate::lab::{await_events, eventually, Lab, EDP_MAX};
use crate::patience::patience;
use crate::socket::{Piece, PieceMut, Socket};
use crate::transfer::random;

/// The scenarios of this file.
pub const ALL: &[Scenario] = &[
    Scenario::direct("edp_sendto_recvfrom_with_addresses", send_to),
    Scenario::direct("edp_send_recv_connected", connected),
    Scenario::direct("edp_sizes_from_0_to_the_largest", sizes),
    Scenario::direct("edp_gathers_and_scatters", vectors),
    Scenario::direct("edp_msg_trunc_peek_dontwait", flags),
    Scenario::direct("edp_waits_times_out_and_polls", waiting),
    Scenario::direct("edp_keeps_datagrams_apart_and_in_order", in_order),
    Scenario::direct("edp_full_receive_buffer_drops_and_counts", full_buffer),
    Scenario::direct(
        "edp_full_send_buffer_refuses_instead_of_dropping",
        small_send_buffer,
    ),
    Scenario::direct("edp_mtu_and_statistics", options),
    Scenario::direct("edp_sender_is_known_after_its_device_is_gone", device_gone),
    Scenario::direct("edp_two_processes_of_one_host", one_host),
    Scenario::direct("edp_shutdown", shutdown),
    Scenario::guest(
        "edp_and_esp_refuse_unsupported_types_and_protocols",
        unsupported,
    ),
];

/// Receives one datagram, waiting within reason.
fn take(socket: &Socket) -> Result<(Vec<u8>, Address)> {
    await_events(socket, libc::POLLIN)?;
    let mut bytes = vec![0; 2048];
    let (length, from) = socket.receive_from(&mut bytes, libc::MSG_DONTWAIT)?;
    bytes.truncate(length);
    Ok((bytes, Address::from_bytes(&from)?))
}

fn send_to(lab: &Lab) -> Outcome {
    let (a, b) = (lab.a.edp_bound(40)?, lab.b.edp()?);
    b.bind(&lab.b.anywhere(41))?;
    ensure!(
        a.send_to(b"question", 0, &lab.a.to(&lab.b, 41))? == 8,
        "sendto"
    );
    let (bytes, from) = take(&b)?;
    ensure!(bytes == b"question", "{bytes:?} arrived");
    ensure!(from == lab.b.to(&lab.a, 40), "from {from:?}");
    // The sender's address is all it takes to answer.
    b.send_to(b"answer", 0, &from)?;
    let (bytes, from) = take(&a)?;
    ensure!(
        bytes == b"answer" && from == lab.a.to(&lab.b, 41),
        "{bytes:?} from {from:?}"
    );

    // Programs of the time leave the address length zero.
    let mut name = lab.a.to(&lab.b, 41).to_bytes();
    name[8] = 0;
    a.send_to_bytes(b"old", 0, &name)?;
    ensure!(take(&b)?.0 == b"old", "with sen_addrlen 0");

    // A socket that was never bound gets a port of its own.
    let unbound = lab.a.edp()?;
    ensure!(
        unbound.local_address()? == Address::default(),
        "an unbound name"
    );
    unbound.send_to(b"hello", 0, &lab.a.to(&lab.b, 41))?;
    let (_, from) = take(&b)?;
    let bound = unbound.local_address()?.port;
    ensure!(
        from.port != 0 && from.port == bound,
        "port {bound}, sent from {}",
        from.port
    );
    refused(
        unbound.send(b"x", 0),
        libc::EDESTADDRREQ,
        "send without a peer",
    )?;
    refused(
        unbound.peer_name(),
        libc::ENOTCONN,
        "getpeername without a peer",
    )
}

fn connected(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(42)?;
    ensure!(a.peer_address()? == lab.a.to(&lab.b, 42), "getpeername");
    let own = a.local_address()?;
    ensure!(
        own.port == 42 && own.ifindex == lab.a.ifindex,
        "getsockname {own:?}"
    );
    a.send(b"one", 0)?;
    b.send(b"two", 0)?;
    ensure!(
        take(&b)?.0 == b"one" && take(&a)?.0 == b"two",
        "other datagrams"
    );

    // A connected socket hears only its peer.
    let stranger = lab.b.edp_bound(43)?;
    stranger.send_to(b"intruder", 0, &lab.b.to(&lab.a, 42))?;
    b.send(b"friend", 0)?;
    let (bytes, _) = take(&a)?;
    ensure!(
        bytes == b"friend",
        "{:?} came through",
        String::from_utf8_lossy(&bytes)
    );
    refused(
        a.receive(&mut [0; 8], libc::MSG_DONTWAIT),
        libc::EAGAIN,
        "more datagrams",
    )?;

    // It may still address another, and connect again.
    a.send_to(b"aside", 0, &lab.a.to(&lab.b, 43))?;
    ensure!(
        take(&stranger)?.0 == b"aside",
        "sendto of a connected socket"
    );
    a.connect(&lab.a.to(&lab.b, 43))
        .context("connecting again")?;
    a.send(b"new peer", 0)?;
    ensure!(take(&stranger)?.0 == b"new peer", "send to the new peer");

    // Like UDP's, it lets go of its peer, and then hears everybody.
    a.connect_bytes(&[0; 16]).context("connect to AF_UNSPEC")?;
    refused(a.peer_name(), libc::ENOTCONN, "getpeername without a peer")?;
    refused(a.send(b"x", 0), libc::EDESTADDRREQ, "send without a peer")?;
    b.send(b"anyone", 0)?;
    ensure!(take(&a)?.0 == b"anyone", "a datagram after letting go");

    let fresh = lab.a.edp()?;
    fresh.connect(&lab.a.to(&lab.b, 42))?;
    let own = fresh.local_address()?;
    ensure!(own.port != 0, "connect did not bind: {own:?}");
    Ok(())
}

fn sizes(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(44)?;
    for size in [
        0,
        1,
        2,
        39,
        40,
        41,
        45,
        46,
        47,
        100,
        1024,
        EDP_MAX - 1,
        EDP_MAX,
    ] {
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
    refused(
        a.send_message(&pieces, 0, &[]),
        libc::EMSGSIZE,
        "one byte too many in pieces",
    )?;
    refused(
        b.receive(&mut [0; 8], libc::MSG_DONTWAIT),
        libc::EAGAIN,
        "an oversize datagram",
    )
}

fn vectors(lab: &Lab) -> Outcome {
    let (a, b) = (lab.a.edp_bound(45)?, lab.b.edp_bound(45)?);
    let whole = random(1000, 45);
    let pieces = [&whole[..3], &[], &whole[3..700], &whole[700..]].map(Piece::Good);
    let there = lab.a.to(&lab.b, 45).to_bytes();
    ensure!(a.send_message(&pieces, 0, &there)? == 1000, "sendmsg");
    await_events(&b, libc::POLLIN)?;
    let mut got = vec![0; 1200];
    let (first, rest) = got.split_at_mut(10);
    let (second, third) = rest.split_at_mut(500);
    let mut pieces = [first, second, third].map(PieceMut::Good);
    let received = b.receive_message(&mut pieces, 0)?;
    ensure!(received.length == 1000 && got[..1000] == whole, "recvmsg");
    ensure!(
        Address::from_bytes(&received.name)? == lab.b.to(&lab.a, 45),
        "msg_name"
    );
    ensure!(
        received.flags & libc::MSG_TRUNC == 0,
        "flags {:#x}",
        received.flags
    );
    Ok(())
}

fn flags(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(46)?;
    let mut room = [0; 4];
    let mut read = |flags| -> Result<(usize, bool)> {
        let received = b.receive_message(&mut [PieceMut::Good(&mut room)], flags)?;
        ensure!(&room == b"long", "{room:?} was read");
        Ok((received.length, received.flags & libc::MSG_TRUNC != 0))
    };
    a.send(b"longer than the room", 0)?;
    await_events(&b, libc::POLLIN)?;
    ensure!(read(libc::MSG_PEEK)? == (4, true), "peek, truncated");
    ensure!(
        read(libc::MSG_PEEK | libc::MSG_TRUNC)? == (20, true),
        "peek with MSG_TRUNC"
    );
    ensure!(read(libc::MSG_TRUNC)? == (20, true), "MSG_TRUNC");
    a.send(b"long again", 0)?;
    await_events(&b, libc::POLLIN)?;
    ensure!(read(0)? == (4, true), "truncated");
    // What did not fit is gone with its datagram.
    refused(
        b.receive(&mut [0; 8], libc::MSG_DONTWAIT),
        libc::EAGAIN,
        "the rest",
    )?;
    refused(
        a.send(b"x", libc::MSG_OOB),
        libc::EOPNOTSUPP,
        "send with MSG_OOB",
    )
}

fn waiting(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(47)?;
    let mut bytes = [0; 16];
    b.set_timeout(libc::SO_RCVTIMEO, Duration::from_millis(50))?;
    refused(
        b.receive(&mut bytes, 0),
        libc::EAGAIN,
        "recv with a time limit",
    )?;
    b.set_timeout(libc::SO_RCVTIMEO, Duration::ZERO)?;
    b.set_nonblocking(true)?;
    refused(
        b.receive(&mut bytes, 0),
        libc::EAGAIN,
        "recv without waiting",
    )?;
    b.set_nonblocking(false)?;
    let idle = b.poll(libc::POLLIN | libc::POLLOUT, Duration::ZERO)?;
    ensure!(idle == libc::POLLOUT, "events {idle:#x} when idle");
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = [0; 16];
            b.receive(&mut bytes, 0)
                .map(|length| bytes[..length].to_vec())
        });
        a.send(b"wake up", 0)?;
        let got = reader
            .join()
            .map_err(|_| anyhow!("the reader panicked"))??;
        ensure!(got == b"wake up", "{got:?}");
        Ok::<_, anyhow::Error>(())
    })?;
    a.send(b"seven..", 0)?;
    a.send(b"and more", 0)?;
    await_events(&b, libc::POLLIN)?;
    let ready = b.poll(libc::POLLIN | libc::POLLOUT, Duration::ZERO)?;
    ensure!(ready == libc::POLLIN | libc::POLLOUT, "events {ready:#x}");
    let next = b.queued(libc::FIONREAD)?;
    ensure!(
        next == 7,
        "FIONREAD is {next}, the next datagram has 7 bytes"
    );
    ensure!(
        b.receive(&mut bytes, 0)? == 7 && take(&b)?.0 == b"and more",
        "order"
    );
    ensure!(b.queued(libc::FIONREAD)? == 0, "FIONREAD of nothing");
    Ok(())
}

fn in_order(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(48)?;
    for round in 0..50u32 {
        for number in 0..20u32 {
            let size = 4 + (round * 20 + number) as usize % 900;
            let mut bytes = vec![round as u8; size];
            bytes[..4].copy_from_slice(&(round * 20 + number).to_be_bytes());
            a.send(&bytes, 0)?;
        }
        for number in 0..20u32 {
            let (bytes, _) = take(&b)?;
            let size = 4 + (round * 20 + number) as usize % 900;
            ensure!(
                bytes.len() == size,
                "{} bytes instead of {size}",
                bytes.len()
            );
            ensure!(
                bytes[..4] == (round * 20 + number).to_be_bytes(),
                "out of order"
            );
        }
    }
    Ok(())
}

fn full_buffer(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(49)?;
    b.set_int_option(libc::SOL_SOCKET, libc::SO_RCVBUF, 4096)?;
    for number in 0..100u8 {
        a.send(&[number; 1000], 0)?;
    }
    // pkt_tx, tx_err, pkt_rx, pkt_rx_drop
    eventually("all 100 datagrams accounted for", || {
        let stats = b.counters(4)?;
        Ok(stats[2] + stats[3] == 100)
    })
    .with_context(|| format!("{:?}", b.counters(4)))?;
    let stats = b.counters(4)?;
    ensure!(stats[3] > 0 && stats[2] > 0, "{stats:?}");
    ensure!(
        stats[2] < 20,
        "{} datagrams of 1000 bytes fit into 4096 bytes",
        stats[2]
    );
    // The first ones are kept, the later ones dropped.
    for number in 0..stats[2] as u8 {
        let (bytes, _) = take(&b)?;
        ensure!(bytes == [number; 1000], "datagram {number} is another");
    }
    refused(
        b.receive(&mut [0; 8], libc::MSG_DONTWAIT),
        libc::EAGAIN,
        "more than counted",
    )?;
    a.send(b"room again", 0)?;
    ensure!(take(&b)?.0 == b"room again", "after reading");
    Ok(())
}

fn small_send_buffer(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(50)?;
    // A slow link keeps what it is given for a while, so the buffer fills.
    let slow = ["tbf", "rate", "1mbit", "burst", "2kb", "limit", "1mb"];
    lab.a.queue("add", &slow)?;
    a.set_int_option(libc::SOL_SOCKET, libc::SO_SNDBUF, 4608)?;
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
    // A blocking sender waits for room instead.
    for number in 0..20u32 {
        a.send(&[number as u8; 1000], 0)?;
    }
    for number in 0..20 {
        ensure!(
            take(&b)?.0[0] == number,
            "datagram {number} of a blocking sender"
        );
    }
    Ok(())
}

fn options(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(51)?;
    ensure!(
        a.int_option(SOL_EP, SO_MTU)? == EDP_MAX as i32,
        "EDP_SO_MTU"
    );
    lab.a.set_mtu(1000)?;
    let mtu = a.int_option(SOL_EP, SO_MTU)?;
    ensure!(mtu == 994, "EDP_SO_MTU is {mtu} with a device MTU of 1000");
    refused(
        a.send(&[0; 995], 0),
        libc::EMSGSIZE,
        "995 bytes with an MTU of 1000",
    )?;
    a.send(&[0; 994], 0)?;
    take(&b)?;
    b.send(&[], 0)?;
    take(&a)?;
    ensure!(
        a.counters(4)? == [1, 0, 1, 0],
        "a counted {:?}",
        a.counters(4)?
    );
    ensure!(
        b.counters(4)? == [1, 0, 1, 0],
        "b counted {:?}",
        b.counters(4)?
    );
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
    refused(
        b.send_to(b"x", 0, &from),
        libc::ENODEV,
        "answering through the lost device",
    )?;
    // Host a lost its end of the cable, too, and has a socket bound to it.
    refused(
        a.send_to(b"x", 0, &lab.a.to(&lab.b, 52)),
        libc::ENODEV,
        "sending from the other end",
    )
}

fn one_host(lab: &Lab) -> Outcome {
    let server = lab.a.edp_bound(53)?;
    let wire = lab.b.packets(crate::frame::ETH_P_EDP)?;
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
    // A switch would not return such a frame, so it must not reach the wire: the first frame there is a later one.
    lab.a.edp()?.send_to(b"outside", 0, &lab.a.to(&lab.b, 9))?;
    let frame = wire.wait_for(patience(), |_| true)?;
    ensure!(
        frame[20..27] == *b"outside",
        "a frame to the own address was on the wire"
    );
    Ok(())
}

fn shutdown(lab: &Lab) -> Outcome {
    let (a, b) = lab.edp_pair(54)?;
    refused(
        lab.a.edp()?.shutdown(libc::SHUT_WR),
        libc::ENOTCONN,
        "shutdown unconnected",
    )?;
    a.shutdown(libc::SHUT_WR)?;
    refused(
        a.send(b"x", libc::MSG_NOSIGNAL),
        libc::EPIPE,
        "send after shutdown",
    )?;
    b.send(b"still heard", 0)?;
    ensure!(take(&a)?.0 == b"still heard", "the other half");
    thread::scope(|scope| {
        let reader = scope.spawn(|| b.receive(&mut [0; 4], 0));
        b.shutdown(libc::SHUT_RD)?;
        let got = reader
            .join()
            .map_err(|_| anyhow!("the reader panicked"))??;
        ensure!(got == 0, "a reader was woken with {got} bytes");
        Ok(())
    })
}

fn unsupported() -> Outcome {
    let socket = |kind, protocol| Socket::new(AF_ENET, kind, protocol);
    refused(
        socket(libc::SOCK_DGRAM, EPPROTO_EZDP),
        libc::EPROTONOSUPPORT,
        "EPPROTO_EZDP",
    )?;
    for (kind, protocol) in [
        (libc::SOCK_DGRAM, 2),
        (libc::SOCK_DGRAM, 255),
        (libc::SOCK_STREAM, 1),
        (libc::SOCK_STREAM, 6),
    ] {
        let what = format!("type {kind}, protocol {protocol}");
        refused(socket(kind, protocol), libc::EPROTONOSUPPORT, &what)?;
    }
    for kind in [libc::SOCK_RAW, libc::SOCK_SEQPACKET, libc::SOCK_RDM] {
        refused(
            socket(kind, 0),
            libc::ESOCKTNOSUPPORT,
            &format!("type {kind}"),
        )?;
    }
    for kind in [libc::SOCK_DGRAM, libc::SOCK_STREAM] {
        refused(Socket::pair(AF_ENET, kind), libc::EOPNOTSUPP, "socketpair")?;
    }
    let datagram = Socket::edp()?;
    refused(
        datagram.listen(1),
        libc::EOPNOTSUPP,
        "listen on a datagram socket",
    )?;
    refused(
        datagram.accept(0),
        libc::EOPNOTSUPP,
        "accept on a datagram socket",
    )
}
