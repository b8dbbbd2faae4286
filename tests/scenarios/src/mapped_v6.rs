// SPDX-License-Identifier: GPL-2.0-only

//! Tests mapped sockets that connect to neighbours by IPv6, at global, unique local and link-local
//! addresses.

use std::net::Ipv6Addr;

use super::error_queue::has;
use super::mapped_first::{answer, asked};
use super::mapped_objections::waits_for_keys;
use guest::address::{internet, internet6, IPPROTO_ENET};
use guest::lab::NOBODY;
use guest::mapped::{
    addresses, answer_to, is_esp, learn, listener, make_known, option, option6, rule, stream,
    MAPPED,
};
use guest::prelude::*;

scenarios! {
    direct mapped_v6_connections_have_the_names_of_tcp = names;
    direct mapped_v6_first_connection_resolves_the_neighbour = resolves;
    direct mapped_v6_first_connection_solicits_the_host_once_and_alone = solicits;
    direct mapped_v6_listeners_take_what_those_of_tcp_take = listeners;
    direct mapped_v6_destinations_that_tcp_decides_about = left_to_tcp;
    direct mapped_v6_connections_behind_a_gateway_or_ipsec_use_tcp = routes;
    direct mapped_v6_syn_of_a_stranger_is_refused = stranger;
    direct mapped_v6_connection_follows_a_moved_neighbour = moved;
    direct mapped_v6_host_of_an_older_version_gets_no_syn = older_host;
    direct mapped_v6_connections_obey_the_rules = rules;
    direct mapped_v6_socket_keeps_the_device_of_a_link_local_peer_as_tcp_does = keeps_device;
}

const SIX: (i32, i32) = (libc::AF_INET6, IPPROTO_ENET);
const PLAIN6: (i32, i32) = (libc::AF_INET6, libc::IPPROTO_TCP);

/// Prefixes of the hosts' global, unique local and link-local addresses. The addresses of host `a`
/// end in 1, and the addresses of `b` in 2.
const PREFIXES: [&str; 3] = ["2001:db8::", "fd00::", "fe80::"];

/// Encodes a `struct sockaddr_in6`. `scope` is the interface index of a link-local address, or 0.
fn name(address: &str, port: u16, scope: u32) -> Result<Vec<u8>> {
    let mut name = internet6(address.parse::<Ipv6Addr>()?.octets(), port);
    name[24..28].copy_from_slice(&scope.to_ne_bytes());
    Ok(name)
}

/// Gives each host an address of each of [`PREFIXES`].
fn prepare(lab: &Lab) -> Outcome {
    addresses(lab)?;
    for (host, number) in [(&lab.a, 1), (&lab.b, 2)] {
        for prefix in ["2001:db8::", "fe80::"] {
            (host.namespace).ip(&format!(
                "address add {prefix}{number}/64 dev {DEVICE} nodad\n"
            ))?;
        }
    }
    Ok(())
}

/// Connects `host` to `to`.
fn dial(host: &Host, kind: (i32, i32), to: &[u8]) -> Result<Socket> {
    let client = stream(host, kind.0, kind.1)?;
    client.connect_bytes(to).context("connect")?;
    Ok(client)
}

/// Checks that ESP carries a connection if `by_esp` is true, and TCP otherwise.
fn carried(client: &Socket, server: &Socket, by_esp: bool) -> Outcome {
    for end in [client, server] {
        ensure!(is_esp(end) == by_esp, "ESP is {}", !by_esp);
    }
    exchange(client, server)
}

/// Returns the addresses that calls report for a connection: `getsockname` and `getpeername` at
/// both ends, and `accept`. Checks the ports, and sets them to zero.
fn names_of(listener: &Socket, client: &Socket, port: u16, by_esp: bool) -> Result<Vec<Vec<u8>>> {
    let (server, from) = listener.accept(0)?;
    carried(client, &server, by_esp)?;
    let mut names = vec![client.local_name()?, server.peer_name()?, from];
    let own = u16::from_be_bytes([names[0][2], names[0][3]]);
    names.extend([client.peer_name()?, server.local_name()?]);
    for (name, port) in names.iter_mut().zip([own, own, own, port, port]) {
        same(&name[2..4], &port.to_be_bytes()[..], "a port")?;
        name[2..4].fill(0);
    }
    Ok(names)
}

fn names(lab: &Lab) -> Outcome {
    prepare(lab)?;
    let mut port = 700;
    for ((from, to), number) in [((&lab.a, &lab.b), 2), ((&lab.b, &lab.a), 1)] {
        for prefix in PREFIXES {
            for bound in [false, true] {
                // A link-local address needs a scope, from the address itself or from the device
                // that the socket is bound to.
                let is_local = prefix == "fe80::" && !bound;
                let scope = if is_local { from.ifindex } else { 0 };
                let mut results = Vec::new();
                for kind in [PLAIN6, SIX] {
                    port += 1;
                    let address = name(&format!("{prefix}{number}"), port, scope)?;
                    let listener = listener(to, kind, port, 4)?;
                    let client = stream(from, kind.0, kind.1)?;
                    if bound {
                        let device = format!("{DEVICE}\0");
                        let (level, option) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
                        client.set_option(level, option, device.as_bytes())?;
                    }
                    client.connect_bytes(&address)?;
                    let names = names_of(&listener, &client, port, kind == SIX);
                    results.push(names.with_context(|| format!("{prefix}{number}"))?);
                    if kind == SIX {
                        let table = from.namespace.proc_net("enet_mapped")?;
                        let end = format!("[{prefix}{number}]:{port}");
                        ensure!(table.contains(&end), "no {end} in {table}");
                    }
                }
                same(&results[1], &results[0], "names")?;
            }
        }
    }
    Ok(())
}

fn resolves(lab: &Lab) -> Outcome {
    prepare(lab)?;
    for (round, prefix) in (1..).zip(PREFIXES) {
        // Neither host knows the other's address.
        for host in [&lab.a, &lab.b] {
            (host.namespace).ip(&format!("neigh flush dev {DEVICE}\n"))?;
        }
        let listener = listener(&lab.b, SIX, 720, 4)?;
        let scope = if prefix == "fe80::" { lab.a.ifindex } else { 0 };
        let client = dial(&lab.a, SIX, &name(&format!("{prefix}2"), 720, scope)?)?;
        let (server, _) = listener.accept(0)?;
        carried(&client, &server, true).context(prefix)?;
        same(lab.a.counter("MappedWaits")?, round, "waits")?;
    }
    // No host has this address, so `connect` fails with TCP's error.
    let client = stream(&lab.a, SIX.0, SIX.1)?;
    let connected = client.connect_bytes(&name("fd00::77", 720, 0)?);
    ensure!(connected.is_err(), "nobody answered");
    same(lab.a.counter("MappedTcpNeighbour")?, 1, "neighbours")?;
    // While the neighbour is being resolved, `getsockname` returns the same address as with TCP.
    let mut names = Vec::new();
    for kind in [PLAIN6, SIX] {
        let client = stream(&lab.a, kind.0, kind.1)?;
        client.set_nonblocking(true)?;
        let connected = client.connect_bytes(&name("fe80::77", 720, lab.a.ifindex)?);
        refused(connected, libc::EINPROGRESS, "connect")?;
        let mut name = client.local_name()?;
        name[2..4].fill(0);
        names.push(name);
    }
    same(&names[1], &names[0], "names")
}

/// Returns the solicitations from `source`: the neighbour that each one asks for, and the Ethernet
/// address that it was sent to.
fn solicitations(wire: &PacketSocket, source: Ipv6Addr) -> Vec<(Ipv6Addr, [u8; 6])> {
    const ICMPV6: u8 = 58;
    const SOLICITATION: u8 = 135;
    let mut frame = [0; 4096];
    let mut found = Vec::new();
    while let Ok(length) = wire.take(&mut frame) {
        let frame = &frame[..length];
        let has = |at: usize, bytes: &[u8]| frame.get(at..at + bytes.len()) == Some(bytes);
        if has(20, &[ICMPV6]) && has(22, &source.octets()) && has(54, &[SOLICITATION]) {
            let target: Option<&[u8; 16]> = frame.get(62..).and_then(|rest| rest.first_chunk());
            found.extend(
                target
                    .zip(frame.first_chunk())
                    .map(|(ip, to)| (Ipv6Addr::from(*ip), *to)),
            );
        }
    }
    found
}

fn solicits(lab: &Lab) -> Outcome {
    const ETH_P_IPV6: u16 = 0x86dd;
    prepare(lab)?;
    let wire = lab.b.packets(ETH_P_IPV6)?;
    let client = stream(&lab.a, SIX.0, SIX.1)?;
    client.set_nonblocking(true)?;
    let to_nobody = client.connect_bytes(&name("fd00::77", 725, 0)?);
    refused(to_nobody, libc::EINPROGRESS, "connect")?;
    let listener = listener(&lab.b, SIX, 725, 4)?;
    let client = dial(&lab.a, SIX, &name("fd00::2", 725, 0)?)?;
    carried(&client, &listener.accept(0)?.0, true)?;
    // The core's own solicitations come from the link-local address. Only the module's solicitation
    // comes from `fd00::1`, and only the neighbour that exists gets one.
    let wanted = vec![("fd00::2".parse()?, lab.b.mac)];
    let seen = solicitations(&wire, "fd00::1".parse()?);
    same(seen, wanted, "solicitations")
}

fn listeners(lab: &Lab) -> Outcome {
    prepare(lab)?;
    make_known(lab)?;
    let (six, four) = (name("fd00::2", 730, 0)?, internet([10, 0, 0, 2], 730));
    // A listener at `::` accepts clients of both families. With `IPV6_V6ONLY` it accepts only IPv6
    // clients.
    for only in [0, 1] {
        let listener = stream(&lab.b, SIX.0, SIX.1)?;
        listener.set_int_option(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, only)?;
        listener.bind_bytes(&internet6([0; 16], 730))?;
        listener.listen(4)?;
        let client = dial(&lab.a, SIX, &six)?;
        carried(&client, &listener.accept(0)?.0, true)?;
        let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
        let connected = client.connect_bytes(&four);
        if only == 1 {
            refused(connected, libc::ECONNREFUSED, "IPv4")?;
        } else {
            connected?;
            carried(&client, &listener.accept(0)?.0, true)?;
        }
    }
    // ESP also carries the connection of a client with `IPV6_V6ONLY`.
    let both = listener(&lab.b, SIX, 730, 4)?;
    let client = stream(&lab.a, SIX.0, SIX.1)?;
    client.set_int_option(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    client.connect_bytes(&six)?;
    carried(&client, &both.accept(0)?.0, true)?;
    drop(both);
    // A listener that is bound to one address refuses connections to other addresses.
    let one = stream(&lab.b, SIX.0, SIX.1)?;
    one.bind_bytes(&six)?;
    one.listen(4)?;
    let client = dial(&lab.a, SIX, &six)?;
    carried(&client, &one.accept(0)?.0, true)?;
    for (kind, to) in [(SIX, name("2001:db8::2", 730, 0)?), (MAPPED, four)] {
        let client = stream(&lab.a, kind.0, kind.1)?;
        refused(client.connect_bytes(&to), libc::ECONNREFUSED, "elsewhere")?;
    }
    drop(one);
    // An IPv4 listener refuses IPv6 clients.
    let _four = listener(&lab.b, MAPPED, 730, 4)?;
    let client = stream(&lab.a, SIX.0, SIX.1)?;
    refused(client.connect_bytes(&six), libc::ECONNREFUSED, "IPv6")
}

fn left_to_tcp(lab: &Lab) -> Outcome {
    prepare(lab)?;
    make_known(lab)?;
    let before = lab.a.counter("EspActiveOpens")?;
    let _listener = listener(&lab.a, SIX, 740, 16)?;
    // A link-local address without a device, a link-local address with a wrong device, a multicast
    // group, an unreachable network, own addresses, and an address that is too short.
    let other = lab.a.ifindex + 1000;
    let mut cases = vec![
        name("fe80::2", 740, 0)?,
        name("fe80::2", 740, other)?,
        name("ff02::1", 740, lab.a.ifindex)?,
        name("2001:db8:77::1", 740, 0)?,
        name("fd00::1", 740, 0)?,
        name("::1", 740, 0)?,
        name("::", 740, 0)?,
    ];
    cases.push(name("fd00::2", 740, 0)?[..20].to_vec());
    for to in cases {
        let outcome = |kind: (i32, i32)| -> Result<i32> {
            let client = stream(&lab.a, kind.0, kind.1)?;
            Ok(code(client.connect_bytes(&to)))
        };
        same(outcome(SIX)?, outcome(PLAIN6)?, &format!("{to:?}"))?;
    }
    same(lab.a.counter("EspActiveOpens")?, before, "SYNs of ESP")?;
    // The program may set flow labels, which ESP does not have. So TCP carries the connection.
    let far = listener(&lab.b, SIX, 741, 4)?;
    let client = stream(&lab.a, SIX.0, SIX.1)?;
    client.set_int_option(libc::IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1)?;
    client.connect_bytes(&name("fd00::2", 741, 0)?)?;
    carried(&client, &far.accept(0)?.0, false)?;
    // The client binds an address that its host does not have, as a transparent proxy does.
    let routes = lab.a.counter("MappedTcpRoute")?;
    let client = stream(&lab.a, SIX.0, SIX.1)?;
    client.set_int_option(libc::IPPROTO_IPV6, IPV6_FREEBIND, 1)?;
    client.bind_bytes(&name("fd00::55", 0, 0)?)?;
    client.set_nonblocking(true)?;
    let connected = client.connect_bytes(&name("fd00::2", 741, 0)?);
    refused(connected, libc::EINPROGRESS, "connect")?;
    same(lab.a.counter("MappedTcpRoute")?, routes + 1, "routes")?;
    same(lab.a.counter("EspActiveOpens")?, before, "SYNs of ESP")
}

const IPV6_FLOWINFO_SEND: i32 = 33;
const IPV6_FREEBIND: i32 = 78;

fn code(result: std::io::Result<()>) -> i32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0)
}

fn routes(lab: &Lab) -> Outcome {
    prepare(lab)?;
    make_known(lab)?;
    (lab.b.namespace).ip(&format!(
        "address add 2001:db8:5::2/128 dev {DEVICE} nodad\n"
    ))?;
    (lab.a.namespace).ip(&format!(
        "route add 2001:db8:5::/64 via fd00::2 dev {DEVICE}\n"
    ))?;
    let listener = listener(&lab.b, SIX, 750, 4)?;
    let connect = |address: &str, by_esp: bool| -> Outcome {
        let client = dial(&lab.a, SIX, &name(address, 750, 0)?)?;
        carried(&client, &listener.accept(0)?.0, by_esp).context(address.to_string())
    };
    connect("fd00::2", true)?;
    connect("2001:db8:5::2", false)?;
    same(lab.a.counter("MappedTcpRoute")?, 1, "routes")?;
    // Without the gateway, the same address belongs to a neighbour.
    (lab.a.namespace).ip(&format!("route replace 2001:db8:5::/64 dev {DEVICE}\n"))?;
    connect("2001:db8:5::2", true)?;
    if !has("xfrm_user")? {
        return Ok(());
    }
    let policy = "src fd00::/64 dst fd00::/64 dir out action allow";
    (lab.b.namespace).ip(&format!("xfrm policy add {policy}\n"))?;
    connect("fd00::2", false)?;
    (lab.b.namespace).ip("xfrm policy flush\n")?;
    let client = stream(&lab.a, SIX.0, SIX.1)?;
    waits_for_keys(
        lab,
        &client,
        &name("fd00::2", 750, 0)?,
        "src fd00::1 dst fd00::2",
    )
}

fn stranger(lab: &Lab) -> Outcome {
    prepare(lab)?;
    make_known(lab)?;
    let _listener = listener(&lab.b, SIX, 760, 4)?;
    let address = |text: &str| text.parse::<Ipv6Addr>();
    let (own, far) = (address("fd00::1")?, address("fd00::2")?);
    let knows = |mac| {
        let mac = print_mac(mac);
        (lab.b.namespace).ip(&format!(
            "neigh replace fd00::1 lladdr {mac} dev {DEVICE} nud permanent\n"
        ))
    };
    knows(lab.a.mac)?;
    let right = option6(own, far, 760);
    ensure!(answer_to(lab, &right, 3000, 760)? & flag::SYN != 0);
    let wrong = [
        // Four wrong clients: another host's address, the server's own, an IPv4-mapped one, and the
        // unspecified one. Then four wrong servers: another host's address, a multicast group, the
        // loopback address, and an IPv4-mapped one.
        option6(address("fd00::99")?, far, 760),
        option6(far, far, 760),
        option6(address("::ffff:10.0.0.1")?, far, 760),
        option6(Ipv6Addr::UNSPECIFIED, far, 760),
        option6(own, address("fd00::99")?, 760),
        option6(own, address("ff02::1")?, 760),
        option6(own, address("::1")?, 760),
        option6(own, address("::ffff:10.0.0.2")?, 760),
    ];
    let refuses = |first: u16, wrong: &[Vec<u8>]| -> Outcome {
        for (port, options) in (first..).zip(wrong) {
            let flags = answer_to(lab, options, port, 760)?;
            ensure!(flags & flag::RST != 0, "SYN {port}: {flags:#x}");
        }
        Ok(())
    };
    refuses(3001, &wrong)?;
    let count = wrong.len() as u32;
    same(lab.b.counter("MappedInForeign")?, count, "refused")?;
    // These addresses are behind a gateway, although the neighbour table has entries for them.
    let mac = print_mac(lab.a.mac);
    (lab.b.namespace).ip(&format!(
        "neigh replace 2001:db8:77::1 lladdr {mac} dev {DEVICE} nud permanent\n\
         route add 2001:db8:77::/64 via fd00::1 dev {DEVICE}\n\
         neigh replace 10.9.0.1 lladdr {mac} dev {DEVICE} nud permanent\n\
         route add 10.9.0.0/24 via 10.0.0.1 dev {DEVICE}\n"
    ))?;
    let beyond = [
        option6(address("2001:db8:77::1")?, far, 760),
        option([10, 9, 0, 1], [10, 0, 0, 2], 760),
    ];
    refuses(3050, &beyond)?;
    let count = count + beyond.len() as u32;
    // From now on, the client's IP address belongs to another host.
    knows(NOBODY)?;
    ensure!(answer_to(lab, &right, 3100, 760)? & flag::RST != 0);
    same(lab.b.counter("MappedInForeign")?, count + 1, "refused")
}

/// After an address has moved to another host, an open connection stays, and a new connection goes
/// to the new host.
fn moved(lab: &Lab) -> Outcome {
    prepare(lab)?;
    make_known(lab)?;
    let listener = listener(&lab.b, SIX, 770, 4)?;
    let to = name("fd00::2", 770, 0)?;
    let first = dial(&lab.a, SIX, &to)?;
    let (server, _) = listener.accept(0)?;
    carried(&first, &server, true)?;
    let mac = print_mac(NOBODY);
    (lab.a.namespace).ip(&format!(
        "neigh replace fd00::2 lladdr {mac} dev {DEVICE} nud permanent\n"
    ))?;
    exchange(&first, &server)?;
    let wire = lab.b.packets(ETH_P_EDP)?;
    let second = stream(&lab.a, SIX.0, SIX.1)?;
    second.set_nonblocking(true)?;
    refused(second.connect_bytes(&to), libc::EINPROGRESS, "connect")?;
    let is_query = |frame: &[u8]| frame.starts_with(&NOBODY);
    wire.wait_for(patience(), is_query).context("a query")?;
    // The open connection also stays when its own address is removed, as with IPv4.
    (lab.a.namespace).ip(&format!("address del fd00::1/64 dev {DEVICE}\n"))?;
    exchange(&first, &server)
}

fn older_host(lab: &Lab) -> Outcome {
    prepare(lab)?;
    let mac = print_mac(NOBODY);
    (lab.a.namespace).ip(&format!(
        "neigh replace fd00::99 lladdr {mac} dev {DEVICE} nud permanent\n"
    ))?;
    Knobs(&lab.a.namespace).set("mapped_wait", 100_000)?;
    rule(&lab.a, "allow fd00::99/128 0-65535 0\n")?;
    // Host `b` answers for the station, like a host with an older module: the answer does not
    // announce mapped connections of IPv6.
    let wire = lab.b.packets(ETH_P_EDP)?;
    let client = stream(&lab.a, SIX.0, SIX.1)?;
    client.set_nonblocking(true)?;
    let begun = client.connect_bytes(&name("fd00::99", 780, 0)?);
    refused(begun, libc::EINPROGRESS, "connect")?;
    let nonce = asked(&wire)?;
    wire.send(&answer(lab, NOBODY, nonce))?;
    eventually("TCP connects", || {
        client.poll(libc::POLLOUT, Duration::ZERO)?;
        Ok(lab.a.counter("MappedTcpPeer")? == 1)
    })?;
    same(lab.a.counter("EspActiveOpens")?, 0, "SYNs of ESP")
}

fn rules(lab: &Lab) -> Outcome {
    prepare(lab)?;
    learn(&lab.a, (&lab.b, 2))?;
    let listener = listener(&lab.b, SIX, 790, 4)?;
    let cases = [
        ("allow fd00::/64 790-790 0", [true, false]),
        ("allow 2001:db8::/32 0-65535 0", [false, true]),
        ("allow 10.0.0.0/24 0-65535 0", [false, false]),
        ("deny fd00::2/128 0-65535 0", [false, true]),
        ("deny 10.0.0.0/24 0-65535 0", [true, true]),
        // A network of 0 bits is all hosts of one family.
        ("allow 0.0.0.0/0 790-790 0", [false, false]),
        ("deny 0.0.0.0/0 790-790 0", [true, true]),
        ("allow ::/0 790-790 0", [true, true]),
        ("deny ::/0 790-790 0", [false, false]),
    ];
    // A client remembers the server's refusal for a while, and makes no attempt by ESP until then.
    // So only the first rule is tested at the server.
    for (host, cases) in [(&lab.a, &cases[..]), (&lab.b, &cases[..1])] {
        for &(line, by_esp) in cases {
            // The server's rules name addresses of its clients.
            let line = match host.mac == lab.b.mac {
                true => line.replace("fd00::2/", "fd00::1/"),
                false => line.to_string(),
            };
            rule(host, &format!("{line}\n"))?;
            for (address, by_esp) in ["fd00::2", "2001:db8::2"].iter().zip(by_esp) {
                let client = dial(&lab.a, SIX, &name(address, 790, 0)?)?;
                let carried = carried(&client, &listener.accept(0)?.0, by_esp);
                carried.with_context(|| format!("{line}: {address}"))?;
            }
            same(
                host.namespace.proc_net("enet_policy")?.trim_end(),
                &line,
                "rules",
            )?;
            rule(host, "flush 0\n")?;
        }
    }
    rules_of_v4(lab)
}

/// A socket of either family has the rules of IPv4 where its peer's address is one of IPv4.
fn rules_of_v4(lab: &Lab) -> Outcome {
    // The server has refused connections to other ports, which the client remembers.
    let listener = listener(&lab.b, SIX, 791, 4)?;
    for (line, by_esp) in [
        ("allow ::/0 0-65535 0\n", false),
        ("deny ::/0 0-65535 0\n", true),
        ("allow 0.0.0.0/0 0-65535 0\n", true),
        ("deny 0.0.0.0/0 0-65535 0\n", false),
    ] {
        rule(&lab.a, line)?;
        for (kind, to) in [
            (MAPPED, internet([10, 0, 0, 2], 791)),
            (SIX, name("::ffff:10.0.0.2", 791, 0)?),
        ] {
            let client = dial(&lab.a, kind, &to)?;
            let carried = carried(&client, &listener.accept(0)?.0, by_esp);
            carried.with_context(|| format!("{line}: {kind:?}"))?;
        }
        rule(&lab.a, "flush 0\n")?;
    }
    Ok(())
}

/// Returns the device that a socket is bound to, and the scope of its own address. The second value
/// is an error number if the socket has no peer, and otherwise the scope of the peer's address.
fn device_of(socket: &Socket) -> Result<[i32; 3]> {
    let scope = |name: Vec<u8>| -> Result<i32> { Ok(i32::from_ne_bytes(name[24..28].try_into()?)) };
    let peer = match socket.peer_name() {
        Ok(name) => scope(name)?,
        Err(error) => -error.raw_os_error().unwrap_or(0),
    };
    let bound = socket.so(libc::SO_BINDTOIFINDEX)?;
    Ok([bound, scope(socket.local_name()?)?, peer])
}

/// Returns what a client and an accepted socket tell of the device, during their connection and
/// after the peer has reset it, and the results of the client's further calls.
fn devices_of(lab: &Lab, kind: (i32, i32), port: u16) -> Result<Vec<[i32; 3]>> {
    let by_esp = kind == SIX;
    let listener = listener(&lab.b, kind, port, 4)?;
    let own = lab.a.ifindex;
    let (with, without) = (name("fe80::2", port, own)?, name("fe80::2", port, 0)?);
    let mut seen = Vec::new();
    let client = dial(&lab.a, kind, &with)?;
    for resets_server in [true, false] {
        let (server, _) = listener.accept(0)?;
        carried(&client, &server, by_esp)?;
        seen.extend([device_of(&client)?, device_of(&server)?]);
        let (first, other) = match resets_server {
            true => (server, &client),
            false => (client.duplicate()?, &server),
        };
        // A reset ends the connection.
        first.set_linger(Some(0))?;
        match resets_server {
            true => drop(first),
            false => first.connect_bytes(&[0; 16])?,
        }
        await_events(other, libc::POLLHUP)?;
        seen.push(device_of(other)?);
        same(other.pending_error()?, libc::ECONNRESET, "SO_ERROR")?;
        if resets_server {
            client.connect_bytes(&[0; 16])?;
            seen.push(device_of(&client)?);
            // The socket stays on the device, so an address needs none, and another one is refused.
            let elsewhere = name("fe80::2", port, own + 1000)?;
            refused(client.connect_bytes(&elsewhere), libc::EINVAL, "elsewhere")?;
            client.connect_bytes(&without).context("without a device")?;
        }
    }
    Ok(seen)
}

fn keeps_device(lab: &Lab) -> Outcome {
    prepare(lab)?;
    make_known(lab)?;
    let mapped = devices_of(lab, SIX, 795)?;
    let plain = devices_of(lab, PLAIN6, 796)?;
    same(&mapped, &plain, "devices")?;
    let index = i32::try_from(lab.a.ifindex)?;
    same(plain[0], [index; 3], "devices of a client")
}
