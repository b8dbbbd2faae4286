// SPDX-License-Identifier: GPL-2.0-only

//! Tests options of TCP and IP on mapped sockets. On a connection of ESP, some options are
//! answered, and others make the socket fall back to TCP. Also tests `connect` with addresses of a
//! different family.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use guest::address::{internet, internet6, IPPROTO_ENET};
use guest::bpf;
use guest::control::{receive_into, Control};
use guest::frame::ETH_P_ALL;
use guest::mapped::stream;
use guest::mapped::{dial, is_esp, known, listener, pair, MAPPED, PLAIN};
use guest::prelude::*;

scenarios! {
    direct mapped_connection_answers_options_of_its_route_as_tcp = of_the_route;
    direct mapped_connect_refuses_addresses_of_another_family_as_tcp = other_families;
    direct mapped_client_with_an_option_that_only_tcp_honours_uses_tcp = clients;
    direct mapped_listener_with_an_option_that_only_tcp_honours_takes_no_esp = listeners;
    direct mapped_connection_of_esp_refuses_options_that_only_tcp_honours = connections;
    direct mapped_sends_of_a_corked_socket_wait_as_in_tcp = corks;
    direct mapped_reader_is_told_how_much_is_unread_as_in_tcp = unread;
    direct mapped_connection_sends_by_the_priority_of_ip_tos = tos;
    direct mapped_sender_keeps_few_unsent_bytes_as_in_tcp = unsent_limit;
}

/// `TCP_MD5SIG`, `TCP_REPAIR`, `TCP_SAVE_SYN`, `TCP_SAVED_SYN`, `IPV6_MTU` and `IPV6_ADDRFORM`.
const TCP_MD5SIG: i32 = 14;
const TCP_REPAIR: i32 = 19;
const TCP_SAVE_SYN: i32 = 27;
const TCP_SAVED_SYN: i32 = 28;
const IPV6_MTU: i32 = 24;
const IPV6_ADDRFORM: i32 = 1;
const MAPPED6: (i32, i32) = (libc::AF_INET6, IPPROTO_ENET);
const PLAIN6: (i32, i32) = (libc::AF_INET6, libc::IPPROTO_TCP);

/// Returns 10.0.0.2 as an IPv4-mapped address of IPv6.
fn far_mapped(port: u16) -> Vec<u8> {
    let mut address = [0; 16];
    address[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 2]);
    internet6(address, port)
}

fn code<T>(result: std::io::Result<T>) -> std::result::Result<T, Option<i32>> {
    result.map_err(|error| error.raw_os_error())
}

fn of_the_route(lab: &Lab) -> Outcome {
    known(lab)?;
    let mut seen = Vec::new();
    for (port, kinds) in [(800, [MAPPED, MAPPED6]), (801, [PLAIN, PLAIN6])] {
        let listener = listener(&lab.b, kinds[1], port, 4)?;
        for kind in kinds {
            let client = stream(&lab.a, kind.0, kind.1)?;
            let address = match kind.0 {
                libc::AF_INET6 => far_mapped(port),
                _ => internet([10, 0, 0, 2], port),
            };
            client.connect_bytes(&address)?;
            let (server, _) = listener.accept(0)?;
            let mapped = kind.1 == IPPROTO_ENET;
            ensure!(is_esp(&client) == mapped && is_esp(&server) == mapped);
            let size = client.int_option(libc::IPPROTO_TCP, libc::TCP_MAXSEG)?;
            ensure!(
                size == if mapped { 1489 } else { 1448 },
                "TCP_MAXSEG {size}"
            );
            let of_v6 = |name| code(client.int_option(libc::IPPROTO_IPV6, name));
            let only = client.set_int_option(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1);
            seen.push((
                code(client.int_option(libc::IPPROTO_IP, libc::IP_MTU)),
                of_v6(IPV6_MTU),
                of_v6(IPV6_ADDRFORM),
                code(only),
            ));
        }
    }
    let (mapped, plain) = seen.split_at(2);
    ensure!(mapped == plain, "mapped {mapped:?}, TCP {plain:?}");
    Ok(())
}

fn other_families(lab: &Lab) -> Outcome {
    known(lab)?;
    let _listener = listener(&lab.b, MAPPED6, 802, 4)?;
    let long = |mut address: Vec<u8>| {
        address.resize(28, 0);
        address
    };
    let v4 = || internet([10, 0, 0, 2], 802);
    for (mapped, plain, address) in [
        (MAPPED6, PLAIN6, v4()),
        (MAPPED6, PLAIN6, long(v4())),
        (MAPPED, PLAIN, far_mapped(802)),
    ] {
        let [mapped, plain] = [mapped, plain].map(|kind| -> Result<_> {
            let client = stream(&lab.a, kind.0, kind.1)?;
            Ok(code(client.connect_bytes(&address)))
        });
        let (mapped, plain) = (mapped?, plain?);
        ensure!(mapped == plain, "mapped {mapped:?}, TCP {plain:?}");
        ensure!(plain.is_err(), "TCP connects");
    }
    Ok(())
}

/// Encodes a `struct tcp_md5sig`, a key for the peer 10.0.0.`number`.
fn key(number: u8) -> Vec<u8> {
    const ADDRESS: usize = 128;
    let mut key = internet([10, 0, 0, number], 0);
    key.resize(ADDRESS + 8 + 80, 0);
    key[ADDRESS + 2] = 6;
    key[ADDRESS + 8..ADDRESS + 14].copy_from_slice(b"secret");
    key
}

fn sign(socket: &Socket, number: u8) -> std::io::Result<()> {
    socket.set_option(libc::IPPROTO_TCP, TCP_MD5SIG, &key(number))
}

fn clients(lab: &Lab) -> Outcome {
    known(lab)?;
    // TCP needs the key at both ends.
    let signed = stream(&lab.b, PLAIN.0, PLAIN.1)?;
    sign(&signed, 1).context("TCP_MD5SIG")?;
    signed.bind_bytes(&internet([0; 4], 803))?;
    signed.listen(4)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    sign(&client, 2).context("TCP_MD5SIG")?;
    client.connect_bytes(&internet([10, 0, 0, 2], 803))?;
    let (server, _) = signed.accept(0)?;
    exchange(&client, &server)?;
    // The option `TCP_MAXSEG` sets a smaller segment size.
    let listener = listener(&lab.b, MAPPED, 804, 4)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.set_int_option(libc::IPPROTO_TCP, libc::TCP_MAXSEG, 500)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 804))?;
    ensure!(!is_esp(&client), "TCP_MAXSEG is not honoured");
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)?;
    // `TCP_REPAIR` restores a saved connection, so `connect` sends no packet.
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.set_int_option(libc::IPPROTO_TCP, TCP_REPAIR, 1)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 804))?;
    ensure!(!is_esp(&client), "TCP_REPAIR is not honoured");
    // `TCP_SAVE_SYN` keeps the TCP and IP headers of a SYN for the program. ESP's SYN has neither,
    // so TCP connects.
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.set_int_option(libc::IPPROTO_TCP, TCP_SAVE_SYN, 1)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 804))?;
    ensure!(!is_esp(&client), "TCP_SAVE_SYN is not honoured");
    // With `TCP_FASTOPEN_CONNECT` TCP sends no SYN before the first byte, if it needs no cookie.
    lab.a.sysctl("net/ipv4/tcp_fastopen", "5")?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.set_int_option(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 804))?;
    ensure!(!is_esp(&client), "TCP_FASTOPEN_CONNECT is not honoured");
    ensure!(lab.a.counter("MappedTcpOption")? == 5);
    Ok(())
}

fn listeners(lab: &Lab) -> Outcome {
    known(lab)?;
    // For the first listener the key is set before `listen`, and for the second one after it.
    for (port, before) in [(805, true), (806, false)] {
        let listener = stream(&lab.b, MAPPED.0, MAPPED.1)?;
        listener.bind_bytes(&internet([0; 4], port))?;
        if before {
            sign(&listener, 1)?;
        }
        listener.listen(4)?;
        if !before {
            sign(&listener, 1)?;
        }
        let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
        client.set_nonblocking(true)?;
        let to = internet([10, 0, 0, 2], port);
        refused(client.connect_bytes(&to), libc::EINPROGRESS, "connect")?;
        // The client has no key, so TCP drops its SYNs, and ESP is refused.
        eventually("ESP is refused", || {
            client.poll(libc::POLLOUT, Duration::ZERO)?;
            Ok(lab.a.counter("MappedTcpRefused")? == if before { 1 } else { 2 })
        })?;
    }
    let listener = listener(&lab.b, MAPPED, 808, 4)?;
    listener.set_int_option(libc::IPPROTO_TCP, TCP_SAVE_SYN, 1)?;
    let client = dial(&lab.a, MAPPED, 808)?;
    let (server, _) = listener.accept(0)?;
    ensure!(
        !is_esp(&client) && !is_esp(&server),
        "no SYN of TCP to save"
    );
    let saved = server.option(libc::IPPROTO_TCP, TCP_SAVED_SYN, 128, 128)?;
    ensure!(
        saved.len() >= 40 && saved[0] >> 4 == 4,
        "the SYN is {saved:?}"
    );
    Ok(())
}

fn connections(lab: &Lab) -> Outcome {
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 807, 4)?;
    let client = dial(&lab.a, MAPPED, 807)?;
    let (server, _) = listener.accept(0)?;
    for end in [&client, &server] {
        ensure!(is_esp(end));
        refused(sign(end, 9), libc::EOPNOTSUPP, "TCP_MD5SIG")?;
        let repair = end.set_int_option(libc::IPPROTO_TCP, TCP_REPAIR, 1);
        refused(repair, libc::EOPNOTSUPP, "TCP_REPAIR")?;
        let segments = end.set_int_option(libc::IPPROTO_TCP, libc::TCP_MAXSEG, 500);
        refused(segments, libc::EOPNOTSUPP, "TCP_MAXSEG")?;
    }
    exchange(&client, &server)
}

/// Returns how many bytes have arrived. A virtual device delivers them within the sender's call, so
/// there is nothing to wait for.
fn arrived(server: &Socket) -> std::result::Result<usize, Option<i32>> {
    code(server.receive(&mut [0; 4096], libc::MSG_DONTWAIT))
}

fn corks(lab: &Lab) -> Outcome {
    known(lab)?;
    let path = lab.a.namespace.within(|| {
        let path = std::env::temp_dir().join("corked");
        File::create(&path)?.write_all(&[b'f'; 100])?;
        Ok::<_, std::io::Error>(path)
    })??;
    let file = File::open(&path)?;
    let mut seen = Vec::new();
    for (kind, port) in [(MAPPED, 810), (PLAIN, 811)] {
        let [client, server] = pair(lab, kind, port)?;
        let set = |name, value| client.set_int_option(libc::IPPROTO_TCP, name, value);
        let mut steps = Vec::new();
        set(libc::TCP_CORK, 1)?;
        client.send_all(&[b'a'; 10])?;
        steps.push(("corked", arrived(&server)));
        let mut offset = 0;
        // SAFETY: Both descriptors are open, and the offset is writable.
        let sent =
            unsafe { libc::sendfile(client.as_raw_fd(), file.as_raw_fd(), &mut offset, 100) };
        ensure!(sent == 100, "sendfile sent {sent}");
        steps.push(("a file behind it", arrived(&server)));
        set(libc::TCP_CORK, 0)?;
        steps.push(("uncorked", arrived(&server)));
        client.send_all(&[b'b'; 20])?;
        steps.push(("not corked", arrived(&server)));
        set(libc::TCP_CORK, 1)?;
        client.send_all(&[b'c'; 30])?;
        steps.push(("corked again", arrived(&server)));
        set(libc::TCP_NODELAY, 1)?;
        steps.push(("TCP_NODELAY", arrived(&server)));
        client.send_all(&[b'd'; 40])?;
        steps.push(("still corked", arrived(&server)));
        client.shutdown(libc::SHUT_WR)?;
        steps.push(("shut down", arrived(&server)));
        seen.push(steps);
    }
    same(&seen[0], &seen[1], "mapped, compared with TCP")?;
    ensure!(seen[1][2] == ("uncorked", Ok(110)), "TCP {:?}", seen[1]);
    Ok(())
}

fn unread(lab: &Lab) -> Outcome {
    /// `TCP_INQ`, and the type of its control message.
    const TCP_INQ: i32 = 36;
    known(lab)?;
    let mut seen = Vec::new();
    for (kind, port) in [(MAPPED, 812), (PLAIN, 813)] {
        let [client, server] = pair(lab, kind, port)?;
        let mut steps = Vec::new();
        let mut read = |bytes: usize, flags| -> Outcome {
            let (length, flags, controls) = receive_into(&server, &mut vec![0; bytes], flags, 64)?;
            steps.push((length, flags, controls));
            Ok(())
        };
        client.send_all(&[1; 100])?;
        read(10, 0)?;
        server.set_int_option(libc::IPPROTO_TCP, TCP_INQ, 1)?;
        read(20, 0)?;
        read(30, libc::MSG_PEEK)?;
        read(70, 0)?;
        client.shutdown(libc::SHUT_WR)?;
        server.poll(libc::POLLRDHUP, patience())?;
        read(10, 0)?;
        server.set_int_option(libc::IPPROTO_TCP, TCP_INQ, 0)?;
        read(10, 0)?;
        seen.push(steps);
    }
    same(&seen[0], &seen[1], "mapped, compared with TCP")?;
    let left = |count: u32| Control {
        level: libc::IPPROTO_TCP,
        kind: TCP_INQ,
        data: count.to_ne_bytes().to_vec(),
    };
    ensure!(seen[0][1] == (20, 0, vec![left(70)]), "{:?}", seen[0]);
    Ok(())
}

/// `IP_TOS` sets the socket's priority, even after the socket has connected. The VLAN device writes
/// a corresponding priority into the tag, which the scenario reads on the wire.
fn tos(lab: &Lab) -> Outcome {
    for (host, number) in [(&lab.a, 1), (&lab.b, 2)] {
        (host.namespace).ip(&format!(
            "link add link {DEVICE} name vlan type vlan id 10 egress-qos-map 6:4\n\
             address add 10.0.0.{number}/24 dev vlan\nlink set vlan up\n"
        ))?;
        Device::ready(&host.namespace, "vlan")?;
    }
    let listener = listener(&lab.b, MAPPED, 814, 4)?;
    let mut carried = None;
    eventually("ESP carries a connection", || {
        let client = dial(&lab.a, MAPPED, 814)?;
        let (server, _) = listener.accept(0)?;
        carried = is_esp(&client).then_some((client, server));
        Ok(carried.is_some())
    })?;
    let (client, server) = carried.context("no connection")?;
    for (tos, mapped) in [(0x10, 4), (0, 0)] {
        client.set_int_option(libc::IPPROTO_IP, libc::IP_TOS, tos)?;
        let wire = lab.b.packets(ETH_P_ALL)?;
        bpf::attach_for_tag(wire.socket(), (mapped << 13) | 10)?;
        let payload = [b'0' + mapped as u8; 60];
        client.send_all(&payload)?;
        server.receive_exact(&mut [0; 60])?;
        wire.wait_for(patience(), |frame| frame.ends_with(&payload))
            .with_context(|| format!("IP_TOS {tos:#x}, 802.1p {mapped}"))?;
    }
    Ok(())
}

const TCP_NOTSENT_LOWAT: i32 = 25;
/// `SIOCOUTQNSD`: the number of bytes that were never sent.
const UNSENT: libc::c_ulong = 0x894b;
/// The length of a send call, and the limit of unsent bytes.
const CHUNK: usize = 4096;
const LIMIT: i32 = 4 * CHUNK as i32;

/// Sends until the socket takes no more. Returns the number of bytes sent.
fn fill(sender: &Socket) -> Result<usize> {
    let mut sent = 0;
    loop {
        match sender.send(&[b'x'; CHUNK], libc::MSG_DONTWAIT) {
            Ok(length) => sent += length,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(sent),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tests a connection whose receiver does not read for a while. `sender` has the limit.
fn keeps_few_unsent(sender: &Socket, receiver: &Socket, mapped: bool) -> Outcome {
    let limit = |bytes| sender.set_int_option(libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes);
    let writable = || sender.poll(libc::POLLOUT, Duration::ZERO);
    // The limit binds, and not the send buffer.
    sender.set_so(libc::SO_SNDBUFFORCE, 4 << 20)?;
    let mut sent = fill(sender)?;
    let unsent = sender.queued(UNSENT)?;
    // A send call that begins below the limit may end above it. TCP also appends to its last
    // buffer, which has up to 64 KiB.
    let above = if mapped { CHUNK as i32 } else { 1 << 16 };
    ensure!(
        (LIMIT..=LIMIT + above).contains(&unsent),
        "{unsent} bytes are unsent"
    );
    same(writable()?, 0, "events at the limit")?;
    // A higher limit makes the socket writable, and more bytes wait.
    limit(64 * LIMIT)?;
    same(writable()?, libc::POLLOUT, "events below a higher limit")?;
    sent += fill(sender)?;
    let more = sender.queued(UNSENT)?;
    ensure!(more > unsent + above, "{more} bytes without the limit");
    limit(LIMIT)?;
    same(writable()?, 0, "events above the limit")?;
    let refused_send = sender.send(&[0], libc::MSG_DONTWAIT | libc::MSG_EOR);
    refused(refused_send.map(drop), libc::EAGAIN, "send")?;
    // The program is woken when half of the limit is left.
    beside(
        || {
            receiver.receive_all(sent)?;
            Ok(())
        },
        || {
            await_events(sender, libc::POLLOUT)?;
            let left = sender.queued(UNSENT)?;
            ensure!(2 * left < LIMIT, "woken with {left} unsent bytes");
            Ok(())
        },
    )?;
    // A call that blocks waits for the limit again and again, and ends.
    let bytes = random(1 << 20, 815);
    let (got, ()) = beside(
        || Ok(receiver.receive_all(bytes.len())?),
        || Ok(sender.send_all(&bytes)?),
    )?;
    ensure!(got == bytes, "wrong bytes");
    Ok(())
}

fn unsent_limit(lab: &Lab) -> Outcome {
    known(lab)?;
    for (kind, port) in [(PLAIN, 815), (MAPPED, 816)] {
        let listener = listener(&lab.b, kind, port, 4)?;
        listener.set_int_option(libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT, LIMIT)?;
        let client = stream(&lab.a, kind.0, kind.1)?;
        client.set_int_option(libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT, LIMIT)?;
        client.connect_bytes(&internet([10, 0, 0, 2], port))?;
        let (server, _) = listener.accept(0)?;
        let mapped = kind == MAPPED;
        ensure!(is_esp(&client) == mapped, "the wrong protocol");
        for (sender, receiver) in [(&client, &server), (&server, &client)] {
            let limit = sender.int_option(libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT)?;
            same(limit, LIMIT, "the limit")?;
            keeps_few_unsent(sender, receiver, mapped)
                .with_context(|| format!("mapped {mapped}, port {port}"))?;
        }
    }
    // A connection has the limit of its namespace if the program has set none.
    lab.a
        .sysctl("net/ipv4/tcp_notsent_lowat", &LIMIT.to_string())?;
    let [client, _server] = pair(lab, MAPPED, 817)?;
    fill(&client)?;
    let unsent = client.queued(UNSENT)?;
    let most = LIMIT + CHUNK as i32;
    ensure!((LIMIT..=most).contains(&unsent), "{unsent} bytes by sysctl");
    Ok(())
}
