// SPDX-License-Identifier: GPL-2.0-only

//! Tests mapped sockets (`IPPROTO_ENET`) whose connections TCP carries. `tests/parity` compares
//! their calls with TCP's.

use guest::address::{internet, internet6, IPPROTO_ENET};
use guest::mapped::{addresses, far6, stream};
use guest::prelude::*;
use guest::relay::Mode;

scenarios! {
    direct mapped_sockets_and_plain_ones_talk = with_plain;
    guest mapped_sockets_hold_the_module_and_closed_ones_do_not = hold_the_module, within(90);
    direct mapped_socket_keeps_its_calls = keeps_its_calls;
    direct mapped_protocol_is_of_streams_only = streams_only;
}

/// `SOL_TCP` and `TCP_ULP`.
const TCP_ULP: (i32, i32) = (libc::IPPROTO_TCP, 31);
const IPV6_ADDRFORM: i32 = 1;

/// Gives both hosts IPv4 and IPv6 addresses, and makes TCP carry the connections of mapped sockets.
fn by_tcp(lab: &Lab) -> Outcome {
    addresses(lab)?;
    for host in [&lab.a, &lab.b] {
        Knobs(&host.namespace).set("mapped", 0)?;
    }
    Ok(())
}

/// Connects a client of `a` to a listener of `b`, and returns the client and the accepted socket.
/// `connects` is the client's family and protocol, and `listens` is the listener's family and
/// protocol.
pub fn connect(
    lab: &Lab,
    listens: (i32, i32),
    connects: (i32, i32),
    port: u16,
) -> Result<[Socket; 2]> {
    let listener = stream(&lab.b, listens.0, listens.1)?;
    listener.bind_bytes(&match listens.0 {
        libc::AF_INET6 => internet6([0; 16], port),
        _ => internet([0; 4], port),
    })?;
    listener.listen(1)?;
    let client = stream(&lab.a, connects.0, connects.1)?;
    client
        .connect_bytes(&match connects.0 {
            libc::AF_INET6 => internet6(far6(2), port),
            _ => internet([10, 0, 0, 2], port),
        })
        .context("connect")?;
    let (server, from) = listener.accept(0).context("accept")?;
    same(&from, &server.peer_name()?, "getpeername and accept")?;
    same(&client.local_name()?[2..4], &from[2..4], "the port")?;
    Ok([client, server])
}

fn with_plain(lab: &Lab) -> Outcome {
    by_tcp(lab)?;
    let (plain, mapped) = (libc::IPPROTO_TCP, IPPROTO_ENET);
    let mut port = 900;
    for (listens, connects) in [(mapped, plain), (plain, mapped), (mapped, mapped)] {
        for (from, to) in [
            (libc::AF_INET, libc::AF_INET),
            (libc::AF_INET6, libc::AF_INET6),
            (libc::AF_INET, libc::AF_INET6),
        ] {
            port += 1;
            let told = format!("{from}/{connects} to {to}/{listens}");
            let [client, server] =
                connect(lab, (to, listens), (from, connects), port).context(told.clone())?;
            exchange(&client, &server).context(told)?;
            for socket in [&client, &server] {
                let protocol = socket.so(libc::SO_PROTOCOL)?;
                ensure!(protocol == plain, "SO_PROTOCOL is {protocol}");
            }
        }
    }
    Ok(())
}

fn hold_the_module() -> Outcome {
    let _restore = Restore;
    let lab = Lab::new(Wiring::Switched)?;
    by_tcp(&lab)?;
    for host in [&lab.a, &lab.b] {
        // The switch forwards frames unchanged, and no device behind it completes TCP's checksums.
        (host.namespace).run("ethtool", &["-K", DEVICE, "tx", "off"])?;
    }
    let mapped = (libc::AF_INET, IPPROTO_ENET);
    let idle = stream(&lab.a, libc::AF_INET6, IPPROTO_ENET)?;
    refused(module::try_unload(), libc::EWOULDBLOCK, "delete_module")?;
    drop(idle);
    module::await_unused()?;
    let [client, server] = connect(&lab, mapped, mapped, 910)?;
    refused(module::try_unload(), libc::EWOULDBLOCK, "delete_module")?;
    // TCP must deliver the bytes that are unacknowledged when both ends close.
    lab.relay().set_mode(Mode::Hold);
    client.send_all(&[1; 5000])?;
    server.send_all(&[2; 5000])?;
    drop((client, server));
    let mut tries = 0;
    while let Err(error) = module::try_unload() {
        ensure!(
            error.raw_os_error() == Some(libc::EWOULDBLOCK) && tries < 100,
            "the module does not go: {error}"
        );
        tries += 1;
        thread::sleep(Duration::from_millis(100));
    }
    let orphans = lab.a.namespace.run("ss", &["-tan"])?;
    ensure!(orphans.contains("FIN-WAIT-1"), "no connection: {orphans}");
    lab.relay().set_mode(Mode::Forward);
    // A program that creates a mapped socket loads the module again.
    ensure!(!module::loaded(), "the module is still there");
    drop(stream(&lab.a, libc::AF_INET, IPPROTO_ENET)?);
    ensure!(module::loaded(), "the socket is of another module");
    Ok(())
}

fn keeps_its_calls(lab: &Lab) -> Outcome {
    by_tcp(lab)?;
    let mapped = (libc::AF_INET6, IPPROTO_ENET);
    let [client, server] = connect(lab, mapped, (libc::AF_INET, IPPROTO_ENET), 920)?;
    for socket in [&client, &server] {
        let tls = socket.set_option(TCP_ULP.0, TCP_ULP.1, b"tls\0");
        refused(tls, libc::ENOENT, "TCP_ULP")?;
    }
    let family = server.set_int_option(libc::IPPROTO_IPV6, IPV6_ADDRFORM, libc::AF_INET);
    refused(family, libc::ENOENT, "IPV6_ADDRFORM")?;
    exchange(&client, &server)?;
    drop((client, server));
    module::await_unused()
}

fn streams_only(lab: &Lab) -> Outcome {
    for family in [libc::AF_INET, libc::AF_INET6] {
        let datagrams = lab
            .a
            .namespace
            .within(|| Socket::new(family, libc::SOCK_DGRAM, IPPROTO_ENET))?;
        refused(datagrams, libc::EPROTONOSUPPORT, "a datagram socket")?;
    }
    Ok(())
}
