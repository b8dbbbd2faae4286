// SPDX-License-Identifier: GPL-2.0-only

//! Tests mistakes of programs. The mistaken call fails with the right errno, and the socket still
//! works.

use guest::address::{SO_MTU, SO_STATS};
use guest::prelude::*;
use guest::socket::interface_index;

scenarios! {
    direct bad_input_wrong_family_is_eafnosupport = wrong_family;
    direct bad_input_missing_interface_is_enodev = missing_interface;
    direct bad_input_interface_that_is_down_is_enetdown = interface_down;
    direct bad_input_device_that_is_not_ethernet_is_enodev = not_ethernet;
    direct bad_input_unknown_options_are_enoprotoopt = unknown_options;
    guest bad_input_unknown_types_and_protocols = unsupported;
}

const KINDS: [i32; 2] = [libc::SOCK_DGRAM, libc::SOCK_STREAM];

fn fresh(host: &Host, kind: i32) -> Result<Socket> {
    Ok(host.namespace.within(|| Socket::new(AF_ENET, kind, 0))??)
}

/// Checks that every call that takes an address fails with `errno` if it gets the address `name`.
fn refuse_everywhere(host: &Host, name: &[u8], errno: i32, what: &str) -> Outcome {
    for kind in KINDS {
        let socket = fresh(host, kind)?;
        refused(
            socket.bind_bytes(name),
            errno,
            &format!("bind, type {kind}, {what}"),
        )?;
        refused(
            socket.connect_bytes(name),
            errno,
            &format!("connect, type {kind}, {what}"),
        )?;
    }
    let datagram = host.edp()?;
    refused(
        datagram.send_to_bytes(b"x", 0, name),
        errno,
        &format!("sendto, {what}"),
    )
}

/// Checks that both protocols still work between the hosts after refused calls.
fn still_useful(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(799)?;
    exchange(&client, &server)?;
    let (a, b) = lab.edp_pair(799)?;
    a.send(b"fine", 0)?;
    receives(&b, b"fine").context("EDP after refusals")
}

fn wrong_family(lab: &Lab) -> Outcome {
    for family in [
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_PACKET,
        27,
        29,
        0xffff,
    ] {
        let name = lab.a.to(&lab.b, 81).with_family(family);
        refuse_everywhere(
            &lab.a,
            &name,
            libc::EAFNOSUPPORT,
            &format!("family {family}"),
        )?;
    }
    // `tests/parity` covers `bind` without an address, but not `connect` without an address.
    for kind in KINDS {
        let socket = fresh(&lab.a, kind)?;
        refused(socket.connect_bytes(&[]), libc::EINVAL, "no address")?;
    }
    // Programs written for the implementation of 2006 set the address length to zero.
    let receiver = lab.b.edp_bound(81)?;
    let mut name = lab.a.to(&lab.b, 81).to_bytes();
    name[8] = 0;
    lab.a.edp()?.send_to_bytes(b"old", 0, &name)?;
    receives(&receiver, b"old").context("sen_addrlen 0")?;
    // Lengths that no Ethernet address has.
    for length in [1, 5, 7, 255] {
        let mut name = lab.a.to(&lab.b, 81).to_bytes();
        name[8] = length;
        let what = format!("connect, sen_addrlen {length}");
        refused(lab.a.esp()?.connect_bytes(&name), libc::EINVAL, &what)?;
        refused(
            lab.a.edp()?.send_to_bytes(b"x", 0, &name),
            libc::EINVAL,
            &what,
        )?;
    }
    still_useful(lab)
}

fn missing_interface(lab: &Lab) -> Outcome {
    for ifindex in [9999, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        let name = Address {
            ifindex,
            ..lab.a.to(&lab.b, 82)
        };
        let what = format!("interface {ifindex}");
        refuse_everywhere(&lab.a, &name.to_bytes(), libc::ENODEV, &what)?;
    }
    // The error is the same for the interface index 0 and for an index that no interface has.
    let name = Address {
        ifindex: 0,
        ..lab.a.to(&lab.b, 82)
    };
    refused(lab.a.esp()?.connect(&name), libc::ENODEV, "connect")?;
    refused(lab.a.edp()?.send_to(b"x", 0, &name), libc::ENODEV, "sendto")?;
    still_useful(lab)
}

fn interface_down(lab: &Lab) -> Outcome {
    let (a, _b) = lab.edp_pair(83)?;
    lab.a.link("down")?;
    let there = lab.a.to(&lab.b, 84).to_bytes();
    refused(lab.a.esp()?.connect_bytes(&there), libc::ENETDOWN, "ESP")?;
    refused(lab.a.edp()?.connect_bytes(&there), libc::ENETDOWN, "EDP")?;
    refused(
        lab.a.edp()?.send_to_bytes(b"x", 0, &there),
        libc::ENETDOWN,
        "sendto",
    )?;
    refused(a.send(b"x", 0), libc::ENETDOWN, "send, connected")?;
    for kind in KINDS {
        let what = format!("bind, type {kind}");
        refused(
            fresh(&lab.a, kind)?.bind(&lab.a.here(84)),
            libc::ENETDOWN,
            &what,
        )?;
    }
    lab.a.link("up")?;
    eventually("the device working again", || {
        Ok(a.send(b"x", 0).is_ok() && lab.a.esp()?.bind(&lab.a.here(85)).is_ok())
    })?;
    still_useful(lab)
}

fn not_ethernet(lab: &Lab) -> Outcome {
    let lo = lab.a.namespace.within(|| interface_index("lo"))??;
    let name = Address {
        ifindex: lo,
        ..lab.a.to(&lab.b, 86)
    };
    refuse_everywhere(&lab.a, &name.to_bytes(), libc::ENODEV, "loopback")?;
    still_useful(lab)
}

fn unknown_options(lab: &Lab) -> Outcome {
    for kind in KINDS {
        let socket = fresh(&lab.a, kind)?;
        socket.bind(&lab.a.here(0))?;
        let what = |call: &str, name: i32| format!("{call}, type {kind}, option {name}");
        for name in [0, 5, 99, -1] {
            refused(
                socket.int_option(SOL_EP, name),
                libc::ENOPROTOOPT,
                &what("get", name),
            )?;
            refused(
                socket.set_int_option(SOL_EP, name, 1),
                libc::ENOPROTOOPT,
                &what("set", name),
            )?;
        }
        // Known options that cannot be set.
        for name in [SO_MTU, SO_STATS] {
            refused(
                socket.set_int_option(SOL_EP, name, 1),
                libc::ENOPROTOOPT,
                &what("set", name),
            )?;
            refused(
                socket.option(SOL_EP, name, 4, -1),
                libc::EINVAL,
                &what("get, length -1,", name),
            )?;
        }
        for level in [libc::SOL_TCP, libc::SOL_UDP, 0, 286] {
            let what = format!("get, type {kind}, level {level}");
            refused(socket.int_option(level, 1), libc::EOPNOTSUPP, &what)?;
        }
        // A buffer that is too short for the answer gets the start of it, as with the kernel's own
        // options. A longer buffer is not filled.
        let short = socket.option(SOL_EP, SO_STATS, 8, 8)?;
        same(short.len(), 8, "bytes of statistics")?;
        let size = if kind == libc::SOCK_DGRAM { 16 } else { 32 };
        let all = socket.option(SOL_EP, SO_STATS, 64, 64)?;
        same(all.len(), size, "bytes of statistics")?;
    }
    still_useful(lab)
}

/// Tests socket types and protocols that only other families support. `tests/parity` covers the
/// types and protocols that no family supports.
fn unsupported() -> Outcome {
    for (kind, protocol, errno) in [
        (libc::SOCK_DGRAM, 2, libc::EPROTONOSUPPORT),
        (libc::SOCK_DGRAM, 255, libc::EPROTONOSUPPORT),
        (libc::SOCK_STREAM, 1, libc::EPROTONOSUPPORT),
        (libc::SOCK_STREAM, 6, libc::EPROTONOSUPPORT),
        (libc::SOCK_RAW, 0, libc::ESOCKTNOSUPPORT),
    ] {
        let what = format!("type {kind}, protocol {protocol}");
        refused(Socket::new(AF_ENET, kind, protocol), errno, &what)?;
    }
    Ok(())
}
