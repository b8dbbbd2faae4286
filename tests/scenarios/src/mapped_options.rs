// SPDX-License-Identifier: GPL-2.0-only

//! Options of TCP and IP on mapped sockets: options that a connection of ESP answers, and options
//! that make a connection fall back to TCP. Also addresses of another family.

use guest::address::{internet, internet6, IPPROTO_ENET};
use guest::mapped::stream;
use guest::mapped::{dial, is_esp, known, listener, MAPPED, PLAIN};
use guest::prelude::*;

scenarios! {
    direct mapped_connection_answers_options_of_its_route_as_tcp = of_the_route;
    direct mapped_connect_refuses_addresses_of_another_family_as_tcp = other_families;
    direct mapped_client_with_an_option_that_only_tcp_honours_uses_tcp = clients;
    direct mapped_listener_with_an_option_that_only_tcp_honours_takes_no_esp = listeners;
    direct mapped_connection_of_esp_refuses_options_that_only_tcp_honours = connections;
}

/// `TCP_MD5SIG`, `TCP_REPAIR`, `IPV6_MTU` and `IPV6_ADDRFORM`.
const TCP_MD5SIG: i32 = 14;
const TCP_REPAIR: i32 = 19;
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
    // Both ends of TCP need the key.
    let signed = stream(&lab.b, PLAIN.0, PLAIN.1)?;
    sign(&signed, 1).context("TCP_MD5SIG")?;
    signed.bind_bytes(&internet([0; 4], 803))?;
    signed.listen(4)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    sign(&client, 2).context("TCP_MD5SIG")?;
    client.connect_bytes(&internet([10, 0, 0, 2], 803))?;
    let (server, _) = signed.accept(0)?;
    exchange(&client, &server)?;
    // An option that sets a smaller segment size.
    let listener = listener(&lab.b, MAPPED, 804, 4)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.set_int_option(libc::IPPROTO_TCP, libc::TCP_MAXSEG, 500)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 804))?;
    ensure!(!is_esp(&client), "TCP_MAXSEG is not honoured");
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)?;
    // `TCP_REPAIR` restores a connection from an image, so no packet leaves.
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.set_int_option(libc::IPPROTO_TCP, TCP_REPAIR, 1)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 804))?;
    ensure!(!is_esp(&client), "TCP_REPAIR is not honoured");
    ensure!(lab.a.counter("MappedTcpOption")? == 3);
    Ok(())
}

fn listeners(lab: &Lab) -> Outcome {
    known(lab)?;
    // The key is set before `listen`, and after it.
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
