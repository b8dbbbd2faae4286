// SPDX-License-Identifier: GPL-2.0-only

//! Compares the calls of 32-bit programs on a 64-bit kernel with the calls of 64-bit programs.

use std::time::{SystemTime, UNIX_EPOCH};

use guest::address::{
    EDP_SO_CHECKSUM, EPPROTO_EZDP, EP_SO_ZEROCOPY, ESP_SO_CHECKSUM, ESP_SO_USER_TIMEOUT,
    SOL_EP_2006,
};
use guest::control::Control;
use guest::mapped::{dial, known, listener, MAPPED};
use guest::prelude::*;

use crate::ia32::{End, Room};

scenarios! {
    direct compat_options_read_alike = options_read;
    direct compat_options_are_set_alike = options_set;
    direct compat_times_have_four_bytes = times;
    direct compat_filter_cuts_datagrams = filter;
    direct compat_ioctls_answer_alike = ioctls;
    direct compat_streams_connect_and_carry = streams;
    direct compat_datagrams_have_control_messages = control_messages;
    direct compat_notice_of_a_send_in_place = notice;
    direct compat_mapped_sockets_answer_alike = mapped;
}

/// The number of bytes of a buffer for an option's value.
const ROOM: usize = 128;
/// `SO_RCVTIMEO` and `SO_SNDTIMEO` of x86, whose values have two `long`s.
const TIMES: [i32; 2] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];
/// `EP_RECVERR`.
const EP_RECVERR: i32 = 3;
/// `SO_EE_ORIGIN_ZEROCOPY`.
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;

/// Replaces the error of `result` by its errno, so that two results can be compared.
fn plain<T>(result: std::io::Result<T>) -> std::result::Result<T, Option<i32>> {
    result.map_err(|error| error.raw_os_error())
}

/// Reads all options of `levels`, except the options in `but`, by 32-bit and by 64-bit calls.
/// Compares the results of both calls. Returns the number of options that exist.
fn compare_options(
    room: &mut Room,
    what: &str,
    socket: &Socket,
    levels: &[i32],
    but: &[(i32, i32)],
) -> Result<usize> {
    let mut found = 0;
    for &level in levels {
        for name in (0..100).filter(|&name| !but.contains(&(level, name))) {
            let wide = plain(socket.option(level, name, ROOM, ROOM as i32));
            let narrow = plain(room.option(socket, level, name, ROOM));
            found += usize::from(wide.is_ok());
            same(
                narrow,
                wide,
                &format!("{what}: option {name} of level {level}"),
            )?;
        }
    }
    Ok(found)
}

fn options_read(lab: &Lab) -> Outcome {
    let mut room = Room::new()?;
    let (client, server) = lab.esp_pair(620)?;
    let listener = lab.b.esp_listener(621, 1)?;
    let (datagrams, _other) = lab.edp_pair(620)?;
    let records = lab
        .a
        .namespace
        .within(|| Socket::new(AF_ENET, libc::SOCK_SEQPACKET, 0))??;
    let but = TIMES.map(|name| (libc::SOL_SOCKET, name));
    for (what, socket, least) in [
        ("client", &client, 40),
        ("server", &server, 40),
        ("listener", &listener, 40),
        ("datagrams", &datagrams, 40),
        ("records", &records, 40),
    ] {
        let levels = [libc::SOL_SOCKET, SOL_EP, SOL_EP_2006];
        let found = compare_options(&mut room, what, socket, &levels, &but)?;
        ensure!(found >= least, "{what}: only {found} options");
    }
    Ok(())
}

fn options_set(lab: &Lab) -> Outcome {
    let mut room = Room::new()?;
    let (stream, datagrams) = (lab.a.esp()?, lab.a.edp()?);
    let of_streams = [
        (libc::SOL_SOCKET, libc::SO_SNDBUF, 20_000, 40_000),
        (libc::SOL_SOCKET, libc::SO_RCVBUF, 20_000, 40_000),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 100, 100),
        (libc::SOL_SOCKET, libc::SO_PRIORITY, 3, 3),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1, 1),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 16, 16),
        (SOL_EP, ESP_SO_USER_TIMEOUT, 2000, 2000),
        (SOL_EP, ESP_SO_CHECKSUM, 1, 1),
        (SOL_EP, EP_SO_ZEROCOPY, 1, 1),
    ];
    let of_datagrams = [
        (SOL_EP, EDP_SO_CHECKSUM, 1, 1),
        (SOL_EP, EP_SO_ZEROCOPY, 1, 1),
    ];
    let of = |socket, options: &[(i32, i32, i32, i32)]| {
        let each = options.iter().map(move |&option| (socket, option));
        each.collect::<Vec<_>>()
    };
    let all = [of(&stream, &of_streams), of(&datagrams, &of_datagrams)].concat();
    for (socket, (level, name, value, wanted)) in all {
        let before = socket.int_option(level, name)?;
        ensure!(before != wanted, "option {name} of {level} is {before}");
        room.set_option(socket, level, name, &i32::to_ne_bytes(value))
            .with_context(|| format!("setting option {name} of level {level}"))?;
        let what = format!("option {name} of level {level}");
        same(socket.int_option(level, name)?, wanted, &what)?;
    }
    for (name, value, errno) in [
        (EDP_SO_CHECKSUM, &[2, 0, 0, 0][..], libc::EINVAL),
        (EDP_SO_CHECKSUM, &[1, 0, 0], libc::EINVAL),
        (99, &[1, 0, 0, 0], libc::ENOPROTOOPT),
    ] {
        let result = room.set_option(&datagrams, SOL_EP, name, value);
        refused(result, errno, &format!("option {name}, {value:?}"))?;
    }
    Ok(())
}

fn times(lab: &Lab) -> Outcome {
    let mut room = Room::new()?;
    for socket in [lab.a.esp()?, lab.a.edp()?] {
        for name in TIMES {
            // 2 s and 500,000 us
            let narrow = [2i32, 500_000].map(i32::to_ne_bytes).concat();
            room.set_option(&socket, libc::SOL_SOCKET, name, &narrow)?;
            let wide = socket.option(libc::SOL_SOCKET, name, ROOM, ROOM as i32)?;
            same(
                &wide,
                &[2i64, 500_000].map(i64::to_ne_bytes).concat(),
                "wide",
            )?;
            let read = room.option(&socket, libc::SOL_SOCKET, name, ROOM)?;
            same(&read, &narrow, "narrow")?;
        }
    }
    Ok(())
}

/// The value of `SO_ATTACH_FILTER` contains a pointer to the filter's program. The pointer has 4
/// bytes in a 32-bit program.
fn filter(lab: &Lab) -> Outcome {
    let mut room = Room::new()?;
    let (a, b) = lab.edp_pair(622)?;
    // BPF_RET | BPF_K: keep 8 bytes, which are EDP's header and two bytes of payload.
    room.attach_filter(&b, &[(0x06, [0, 0], 8)])?;
    a.send(b"long", 0)?;
    await_events(&b, libc::POLLIN)?;
    let got = room.receive_message(&b, &[16], 0)?;
    same(&got.bytes[..], &b"lo"[..], "the datagram")
}

fn ioctls(lab: &Lab) -> Outcome {
    const SIOCINQ: u32 = 0x541b;
    const SIOCOUTQ: u32 = 0x5411;
    const SIOCOUTQNSD: u32 = 0x894b;
    const SIOCATMARK: u32 = 0x8905;
    const UNKNOWN: u32 = 0x5499;
    let mut room = Room::new()?;
    let (client, server) = lab.esp_pair(623)?;
    let (a, b) = lab.edp_pair(623)?;
    client.send_all(b"seven..")?;
    a.send(b"five.", 0)?;
    arrived(&server, 7)?;
    await_events(&b, libc::POLLIN)?;
    let number = |bytes: Vec<u8>| i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    for (what, socket) in [("stream", &server), ("datagrams", &b), ("idle", &client)] {
        for request in [SIOCINQ, SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK, UNKNOWN] {
            let narrow = plain(room.ioctl(socket, request, &[0xff; 4]).map(number));
            let wide = plain(socket.queued(request.into()));
            same(narrow, wide, &format!("{what}: request {request:#x}"))?;
        }
    }
    let waiting = number(room.ioctl(&server, SIOCINQ, &[0; 4])?);
    same(waiting, 7, "bytes that wait")?;
    let waiting = number(room.ioctl(&b, SIOCINQ, &[0; 4])?);
    same(waiting, 5, "bytes that wait")?;
    // a `struct ifreq` has 32 bytes in 32-bit programs, and 40 in 64-bit programs
    let mut request = [0; 32];
    request[..DEVICE.len()].copy_from_slice(DEVICE.as_bytes());
    for socket in [&server, &b] {
        let answer = room.ioctl(socket, libc::SIOCGIFHWADDR as u32, &request)?;
        same(&answer[18..24], &lab.b.mac[..], "the Ethernet address")?;
        let answer = room.ioctl(socket, libc::SIOCGIFINDEX as u32, &request)?;
        same(
            number(answer[16..].to_vec()),
            lab.b.ifindex as i32,
            "the index",
        )?;
        let result = room.ioctl(socket, libc::SIOCGIFADDR as u32, &request);
        refused(result, libc::ENOTTY, "the IP address")?;
    }
    Ok(())
}

fn streams(lab: &Lab) -> Outcome {
    let mut room = Room::new()?;
    let (listening, client) = (lab.b.esp()?, lab.a.esp()?);
    room.bind(&listening, &lab.b.here(624).to_bytes())?;
    listening.listen(1)?;
    room.connect(&client, &lab.a.to(&lab.b, 624).to_bytes())?;
    let (server, name) = listening.accept(0)?;
    same(room.name(&server, End::Peer)?, name, "the peer's name")?;
    for socket in [&client, &server] {
        same(
            room.name(socket, End::Own)?,
            socket.local_name()?,
            "own name",
        )?;
        same(
            room.name(socket, End::Peer)?,
            socket.peer_name()?,
            "peer's name",
        )?;
    }
    let bytes = random(20_000, 624);
    let sent = room.send_message(&client, &[], &[&bytes[..1], &bytes[1..]], &[], 0)?;
    same(sent, bytes.len(), "bytes sent")?;
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        let message = room.receive_message(&server, &[7, 5000], 0)?;
        ensure!(
            !message.bytes.is_empty(),
            "the end after {} bytes",
            got.len()
        );
        got.extend_from_slice(&message.bytes);
    }
    ensure!(got == bytes, "the bytes changed on the way");
    let result = room.receive_message(&server, &[1], libc::MSG_DONTWAIT);
    refused(
        result.map(|message| message.bytes),
        libc::EAGAIN,
        "nothing waits",
    )
}

fn control_messages(lab: &Lab) -> Outcome {
    let mut room = Room::new()?;
    let (a, b) = (lab.a.edp()?, lab.b.edp_bound(625)?);
    b.set_so(libc::SO_TIMESTAMP, 1)?;
    let of = |level, kind, data: &[u8]| Control {
        level,
        kind,
        data: data.to_vec(),
    };
    let priority = of(libc::SOL_SOCKET, libc::SO_PRIORITY, &3i32.to_ne_bytes());
    let there = lab.a.to(&lab.b, 625).to_bytes();
    let before = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let sent = room.send_message(&a, &there, &[b"one ", b"datagram"], &[priority], 0)?;
    same(sent, 12, "bytes sent")?;
    let wrong = of(SOL_EP, 99, &[0; 4]);
    let again = room.send_message(
        &a,
        &there,
        &[b"none"],
        &[of(libc::SOL_SOCKET, 99, &[0; 4])],
        0,
    );
    refused(again, libc::EINVAL, "an unknown control message")?;
    let foreign = room.send_message(&a, &there, &[b"ignored"], &[wrong], 0)?;
    same(foreign, 7, "bytes with a message of another level")?;
    await_events(&b, libc::POLLIN)?;
    let got = room.receive_message(&b, &[3, 32], 0)?;
    let after = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    same(&got.bytes[..], &b"one datagram"[..], "the datagram")?;
    let truncated = room.receive_message(&b, &[3], 0)?;
    same(
        &truncated.bytes[..],
        &b"ign"[..],
        "the second one, truncated",
    )?;
    let is_truncated = truncated.flags & libc::MSG_TRUNC as u32 != 0;
    ensure!(is_truncated, "flags {:#x}", truncated.flags);
    same(Address::from_bytes(&got.name)?.mac, lab.a.mac, "the sender")?;
    // two numbers of 4 bytes: seconds and microseconds
    let [stamp] = &got.control[..] else {
        bail!("not one control message: {got:?}");
    };
    let kind = (stamp.level, stamp.kind, stamp.data.len());
    same(
        kind,
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP, 8),
        "time stamp",
    )?;
    let seconds = u32::from_ne_bytes(stamp.data[..4].try_into()?);
    let in_time = (before..=after).contains(&u64::from(seconds));
    ensure!(in_time, "stamped at {seconds}, not in {before}..={after}");
    Ok(())
}

/// The kernel reports the completion of an EZDP send in the error queue.
fn notice(lab: &Lab) -> Outcome {
    let mut room = Room::new()?;
    let a = (lab.a.namespace).within(|| Socket::new(AF_ENET, libc::SOCK_DGRAM, EPPROTO_EZDP))??;
    let b = lab.b.edp_bound(626)?;
    room.connect(&a, &lab.a.to(&lab.b, 626).to_bytes())?;
    same(
        room.send_message(&a, &[], &[b"in place"], &[], 0)?,
        8,
        "sent",
    )?;
    await_events(&b, libc::POLLIN)?;
    same(
        &room.receive_message(&b, &[32], 0)?.bytes[..],
        &b"in place"[..],
        "received",
    )?;
    await_events(&a, libc::POLLERR)?;
    let report = room.receive_message(&a, &[32], libc::MSG_ERRQUEUE)?;
    let [report] = &report.control[..] else {
        bail!("not one report: {report:?}");
    };
    same((report.level, report.kind), (SOL_EP, EP_RECVERR), "report")?;
    same(report.data[4], SO_EE_ORIGIN_ZEROCOPY, "origin")?;
    let numbers = &report.data[8..16];
    same(numbers, &[0; 8][..], "the first send to the first one")
}

/// Compares the options of sockets, TCP and IP on a connection that ESP carries.
fn mapped(lab: &Lab) -> Outcome {
    known(lab)?;
    let mut room = Room::new()?;
    let listening = listener(&lab.b, MAPPED, 627, 1)?;
    let client = dial(&lab.a, MAPPED, 627)?;
    let (server, _) = listening.accept(0)?;
    same(lab.a.counter("MappedActiveOpens")?, 1, "ESP's connections")?;
    let mut but = TIMES.map(|name| (libc::SOL_SOCKET, name)).to_vec();
    // These options are left out. The values of `TCP_INFO` and `TCP_TIMESTAMP` change from call to
    // call, and `TCP_ZEROCOPY_RECEIVE` (35) does more than read a value.
    for name in [libc::TCP_INFO, libc::TCP_TIMESTAMP, 35] {
        but.push((libc::SOL_TCP, name));
    }
    let levels = [libc::SOL_SOCKET, libc::SOL_TCP, libc::SOL_IP];
    for (what, socket) in [
        ("client", &client),
        ("server", &server),
        ("listener", &listening),
    ] {
        let found = compare_options(&mut room, what, socket, &levels, &but)?;
        ensure!(found >= 60, "{what}: only {found} options");
    }
    for socket in [&client, &server] {
        room.set_option(
            socket,
            libc::SOL_TCP,
            libc::TCP_NODELAY,
            &1i32.to_ne_bytes(),
        )?;
        same(
            socket.int_option(libc::SOL_TCP, libc::TCP_NODELAY)?,
            1,
            "TCP_NODELAY",
        )?;
        let narrow = [1i32, 0].map(i32::to_ne_bytes).concat();
        room.set_option(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &narrow)?;
        let read = room.option(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, ROOM)?;
        same(&read, &narrow, "SO_RCVTIMEO")?;
    }
    same(
        room.send_message(&client, &[], &[b"by ", b"ESP"], &[], 0)?,
        6,
        "sent",
    )?;
    arrived(&server, 6)?;
    same(
        room.ioctl(&server, 0x541b, &[0; 4])?,
        6i32.to_ne_bytes().to_vec(),
        "SIOCINQ",
    )?;
    let got = room.receive_message(&server, &[2, 30], 0)?;
    same(&got.bytes[..], &b"by ESP"[..], "received")
}
