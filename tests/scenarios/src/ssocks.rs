// SPDX-License-Identifier: GPL-2.0-only

//! Tests the family `ssocks`: its sockets are mapped sockets of IPv4, with another number in their
//! addresses.

use guest::address::{internet, internet6};
use guest::mapped::{dial, is_esp, known, stream, PLAIN};
use guest::prelude::*;
use guest::privilege::without_capabilities;

scenarios! {
    guest ssocks_streams_are_carried_by_esp = by_esp;
    guest ssocks_streams_to_other_hosts_are_carried_by_tcp = by_tcp;
    guest ssocks_is_a_number_in_proc = in_proc;
    guest ssocks_refuses_what_it_has_not = refusals;
    guest ssocks_connects_again = again;
    guest ssocks_is_absent_by_default = absent;
}

/// The number that DRBD's tools take without the file.
const SSOCKS: i32 = 27;
const FILE: &str = "/proc/net/af_ssocks/family";

/// Returns the address that a program passes, or gets, for 10.0.0.`number`.
fn name(number: u8, port: u16) -> Vec<u8> {
    let mut name = internet([10, 0, 0, number], port);
    name[..2].copy_from_slice(&(SSOCKS as u16).to_ne_bytes());
    name
}

/// Loads the module with the family, and makes two hosts that know each other.
fn lab() -> anyhow::Result<Lab> {
    module::unload()?;
    module::load(&[&format!("ssocks={SSOCKS}")])?;
    let lab = Lab::new(Wiring::Direct)?;
    known(&lab)?;
    Ok(lab)
}

fn make(host: &Host) -> anyhow::Result<Socket> {
    stream(host, SSOCKS, 0)
}

/// Returns a listener of `b` at 10.0.0.2.
fn listens(lab: &Lab, port: u16) -> anyhow::Result<Socket> {
    let listener = make(&lab.b)?;
    listener.bind_bytes(&name(2, port)).context("bind")?;
    listener.listen(4)?;
    Ok(listener)
}

/// Checks a connection from `a`: its names, its carrier, and bytes in both directions.
fn check_pair(client: &Socket, (server, from): (&Socket, &[u8]), port: u16, esp: bool) -> Outcome {
    let own = client.local_name()?;
    let chosen = u16::from_be_bytes([own[2], own[3]]);
    ensure!(chosen != 0 && own == name(1, chosen), "own name {own:?}");
    ensure!(client.peer_name()? == name(2, port));
    ensure!(server.local_name()? == name(2, port));
    ensure!(server.peer_name()? == own);
    ensure!(from == own, "accept: {from:?}");
    ensure!(
        is_esp(client) == esp && is_esp(server) == esp,
        "the wrong carrier"
    );
    exchange(client, server)
}

fn by_esp() -> Outcome {
    let _restore = Restore;
    let lab = lab()?;
    let listener = listens(&lab, 940)?;
    ensure!(listener.local_name()? == name(2, 940));
    for bound in [false, true] {
        let client = make(&lab.a)?;
        if bound {
            client.bind_bytes(&name(1, 0))?;
        }
        client.connect_bytes(&name(2, 940))?;
        let (server, from) = listener.accept(0)?;
        check_pair(&client, (&server, &from), 940, true)?;
    }
    // The listener accepts mapped sockets of AF_INET, too, and TCP's.
    for (kind, esp) in [(guest::mapped::MAPPED, true), (PLAIN, false)] {
        let client = dial(&lab.a, kind, 940)?;
        let (server, from) = listener.accept(0)?;
        ensure!(is_esp(&server) == esp, "the wrong carrier");
        ensure!(from[..2] == name(1, 0)[..2], "accept: {from:?}");
        exchange(&client, &server)?;
    }
    Ok(())
}

fn by_tcp() -> Outcome {
    let _restore = Restore;
    let lab = lab()?;
    Knobs(&lab.b.namespace).set("mapped", 0)?;
    let listener = listens(&lab, 941)?;
    let client = make(&lab.a)?;
    client.connect_bytes(&name(2, 941))?;
    let (server, from) = listener.accept(0)?;
    check_pair(&client, (&server, &from), 941, false)
}

fn in_proc() -> Outcome {
    let _restore = Restore;
    let lab = lab()?;
    for namespace in [&lab.a.namespace, &lab.b.namespace] {
        let text = namespace.within(|| fs::read_to_string(FILE))??;
        ensure!(text == format!("{SSOCKS}\n"), "{text:?}");
    }
    Ok(())
}

fn refusals() -> Outcome {
    let _restore = Restore;
    let lab = lab()?;
    let of = |kind, protocol| (lab.a.namespace).within(|| Socket::new(SSOCKS, kind, protocol));
    refused(of(libc::SOCK_DGRAM, 0)?, libc::ESOCKTNOSUPPORT, "datagrams")?;
    refused(
        of(libc::SOCK_STREAM, libc::IPPROTO_UDP)?,
        libc::EPROTONOSUPPORT,
        "UDP",
    )?;
    of(libc::SOCK_STREAM, libc::IPPROTO_TCP)?.context("TCP's number")?;
    let of_a_user = without_capabilities(|| Socket::new(SSOCKS, libc::SOCK_STREAM, 0))?;
    refused(of_a_user, libc::EPERM, "a program without capabilities")?;
    let socket = make(&lab.a)?;
    let six = internet6([0; 16], 5);
    for other in [&internet([10, 0, 0, 1], 0), &six] {
        refused(socket.bind_bytes(other), libc::EAFNOSUPPORT, "bind")?;
        refused(socket.connect_bytes(other), libc::EAFNOSUPPORT, "connect")?;
    }
    for length in [0, 1, 2, 8, 15] {
        let short = &name(2, 5)[..length];
        refused(socket.bind_bytes(short), libc::EINVAL, "bind, short")?;
        refused(socket.connect_bytes(short), libc::EINVAL, "connect, short")?;
    }
    refused(
        socket.connect_bytes(&name(2, 5)),
        libc::ECONNREFUSED,
        "connect to a closed port",
    )
}

/// A program disconnects with `AF_UNSPEC`, as with TCP, and connects again.
fn again() -> Outcome {
    let _restore = Restore;
    let lab = lab()?;
    let listener = listens(&lab, 942)?;
    let client = make(&lab.a)?;
    for _ in 0..2 {
        client.connect_bytes(&name(2, 942))?;
        let (server, from) = listener.accept(0)?;
        check_pair(&client, (&server, &from), 942, true)?;
        client.connect_bytes(&[0; 16]).context("AF_UNSPEC")?;
    }
    Ok(())
}

fn absent() -> Outcome {
    refused(
        Socket::new(SSOCKS, libc::SOCK_STREAM, 0),
        libc::EAFNOSUPPORT,
        "socket",
    )?;
    ensure!(!std::path::Path::new(FILE).exists(), "{FILE} exists");
    Ok(())
}
