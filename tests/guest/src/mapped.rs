// SPDX-License-Identifier: GPL-2.0-only

//! Makes mapped sockets. A mapped socket has an Internet family and the protocol `IPPROTO_ENET`,
//! and TCP or ESP serves it. Also gives the hosts IP addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::address::{internet, internet6, ESP_SO_CHECKSUM, IPPROTO_ENET};
use crate::prelude::*;

/// Family and protocol of a mapped socket.
pub const MAPPED: (i32, i32) = (libc::AF_INET, IPPROTO_ENET);
/// Family and protocol of a plain TCP socket.
pub const PLAIN: (i32, i32) = (libc::AF_INET, libc::IPPROTO_TCP);

/// Gives each host an IPv4 and an IPv6 address: `a` 10.0.0.1 and fd00::1, `b` 10.0.0.2 and fd00::2.
pub fn addresses(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    lab.give_ip6_addresses()
}

/// Returns the address fd00::`number`.
pub fn far6(number: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[0] = 0xfd;
    address[15] = number;
    address
}

/// Makes a stream socket of `host`.
pub fn stream(host: &Host, family: i32, protocol: i32) -> Result<Socket> {
    host.namespace
        .within(|| Socket::new(family, libc::SOCK_STREAM, protocol))?
        .with_context(|| format!("a socket of family {family}, protocol {protocol}"))
}

/// Makes each host learn that the other accepts mapped connections, by a first connection in each
/// direction. Each connection sends the query from whose answer its host learns this. Neither waits
/// for the answer, so TCP carries both.
///
/// # Errors
/// When a call fails, or a host gets no answer to its query.
pub fn make_known(lab: &Lab) -> Outcome {
    learn(&lab.a, (&lab.b, 2))?;
    learn(&lab.b, (&lab.a, 1))
}

/// Makes `from` learn that the host `to` accepts mapped connections. The address of `to` is
/// 10.0.0.`number`.
///
/// # Errors
/// When a call fails, or `from` gets no answer to its query.
pub fn learn(from: &Host, (to, number): (&Host, u8)) -> Outcome {
    let knobs = Knobs(&from.namespace);
    let wait = knobs.get("mapped_wait")?;
    knobs.set("mapped_wait", 0)?;
    let _listener = listener(to, MAPPED, 99, 1)?;
    let client = stream(from, MAPPED.0, MAPPED.1)?;
    client.connect_bytes(&internet([10, 0, 0, number], 99))?;
    from.await_counter("EdpInAnswers", 1)?;
    ensure!(from.counter("MappedTcpUnknown")? == 1, "nobody was asked");
    knobs.set("mapped_wait", wait)
}

/// Gives the hosts addresses, and makes each learn that the other accepts mapped connections.
///
/// # Errors
/// When a call fails.
pub fn known(lab: &Lab) -> Outcome {
    addresses(lab)?;
    make_known(lab)
}

/// Makes a listener of `host` on all addresses.
///
/// # Errors
/// When a call fails.
pub fn listener(host: &Host, kind: (i32, i32), port: u16, backlog: i32) -> Result<Socket> {
    let listener = stream(host, kind.0, kind.1)?;
    listener.bind_bytes(&match kind.0 {
        libc::AF_INET6 => internet6([0; 16], port),
        _ => internet([0; 4], port),
    })?;
    listener.listen(backlog)?;
    Ok(listener)
}

/// Connects from `host` to `b`. Returns the client's socket.
///
/// # Errors
/// When a call fails.
pub fn dial(host: &Host, kind: (i32, i32), port: u16) -> Result<Socket> {
    let client = stream(host, kind.0, kind.1)?;
    client
        .connect_bytes(&internet([10, 0, 0, 2], port))
        .context("connect")?;
    Ok(client)
}

/// Returns a mapped socket of `host` that has begun to connect to `port` of `to`, and does not
/// block.
///
/// # Errors
/// When a call fails, or the connection is already open.
pub fn begin(host: &Host, to: [u8; 4], port: u16) -> Result<Socket> {
    let client = stream(host, MAPPED.0, MAPPED.1)?;
    client.set_nonblocking(true)?;
    let begun = client.connect_bytes(&internet(to, port));
    refused(begun, libc::EINPROGRESS, "connect")?;
    Ok(client)
}

/// Returns a connection from `a` to a listener of `b`: the client, and the accepted socket. If
/// `kind` is [`MAPPED`], ESP carries the connection, otherwise TCP.
///
/// # Errors
/// When a call fails, or the wrong protocol carries the connection.
pub fn pair(lab: &Lab, kind: (i32, i32), port: u16) -> Result<[Socket; 2]> {
    let listener = listener(&lab.b, kind, port, 4)?;
    let client = dial(&lab.a, kind, port)?;
    let (server, _) = listener.accept(0)?;
    let ends = [client, server];
    let mapped = kind == MAPPED;
    ensure!(
        ends.iter().all(|end| is_esp(end) == mapped),
        "the wrong protocol carries it"
    );
    Ok(ends)
}

/// Returns whether ESP carries the connection. Only then does the socket have ESP's options.
pub fn is_esp(socket: &Socket) -> bool {
    socket.int_option(SOL_EP, ESP_SO_CHECKSUM).is_ok()
}

/// Encodes the SYN option that names both ends of a mapped connection. The ends are `from` with
/// port 5000 and `to` with `port`.
pub fn option(from: [u8; 4], to: [u8; 4], port: u16) -> Vec<u8> {
    let [from, to] = [from, to].map(|ip| Ipv4Addr::from(ip).to_ipv6_mapped());
    option6(from, to, port)
}

/// Works like [`option`] for addresses of IPv6.
pub fn option6(from: Ipv6Addr, to: Ipv6Addr, port: u16) -> Vec<u8> {
    let end = |ip: Ipv6Addr, port: u16| [&ip.octets()[..], &port.to_be_bytes()].concat();
    [vec![8, 36], end(from, 5000), end(to, port)].concat()
}

/// Sends a SYN with `options` from host `a` by a packet socket, and returns the answer's flags.
///
/// # Errors
/// If no answer arrives.
pub fn answer_to(lab: &Lab, options: &[u8], from: u16, to: u16) -> Result<u8> {
    let wire = lab.a.packets(ETH_P_ESP)?;
    let packet = EspHeader::syn(from, to, options).packet(options);
    wire.send(&ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, &packet))?;
    let answer = wire.wait_for_esp(|header| header.destination == from)?;
    Ok(answer.flags)
}

/// The file of the rules that say which connections ESP may carry.
pub const POLICY: &str = "/proc/net/enet_policy";

/// Writes a rule, or a command about rules, to `host`'s policy.
///
/// # Errors
/// The errno of the write.
pub fn rule(host: &Host, line: &str) -> Outcome {
    (host.namespace).within(|| fs::write(POLICY, line))??;
    Ok(())
}
