// SPDX-License-Identifier: GPL-2.0-only

//! Tests the isolation of namespaces: a host sees only its own devices, ports and traffic.

use guest::frame::ETH_P_ALL;
use guest::prelude::*;

scenarios! {
    guest namespaces_do_not_reach_each_others_ports = unreachable;
    direct namespaces_hold_the_same_port_each = same_port;
    guest namespaces_see_their_own_devices_only = own_devices;
    direct own_address_never_reaches_the_wire = own_address;
}

/// Two hosts without a wire between them cannot reach each other, even with the same addresses,
/// port numbers and interface numbers.
fn unreachable() -> Outcome {
    let mac = [2, 0, 0, 0, 0, 5];
    let (here, there) = (Host::alone(mac)?, Host::alone(mac)?);
    same(here.ifindex, there.ifindex, "the hosts' devices")?;
    let (mine, theirs) = (here.edp_bound(200)?, there.edp_bound(200)?);
    let their_listener = there.esp_listener(201, 4)?;
    here.edp()?.send_to(b"mine", 0, &here.to(&here, 200))?;
    await_events(&mine, libc::POLLIN)?;
    silent(&theirs, "the other host's socket")?;
    // Only the other host has a listener.
    refused(
        here.esp()?.connect(&here.to(&here, 201)),
        libc::ECONNREFUSED,
        "connect to the port of another host",
    )?;
    their_listener.set_nonblocking(true)?;
    refused(their_listener.accept(0), libc::EAGAIN, "the other host")?;
    let listed = here.namespace.proc_net("esp")?;
    ensure!(
        listed.lines().count() <= 1,
        "another host's sockets are listed: {listed}"
    );
    for host in [&here, &there] {
        drop(host.edp_bound(202)?);
    }
    drop((mine, theirs, their_listener));
    here.await_no_sockets()?;
    there.await_no_sockets()
}

fn same_port(lab: &Lab) -> Outcome {
    let (a, b) = (lab.a.edp_bound(203)?, lab.b.edp_bound(203)?);
    let outside = lab.b.edp()?;
    outside.send_to(b"for a", 0, &lab.b.to(&lab.a, 203))?;
    await_events(&a, libc::POLLIN)?;
    silent(&b, "b hears a's datagram")?;
    let listeners = [lab.a.esp_listener(203, 4)?, lab.b.esp_listener(203, 4)?];
    let client = lab.b.esp_connected(&lab.b.to(&lab.a, 203))?;
    serve(&listeners[0], &client)?;
    quiet(&listeners[1], "b's listener")
}

fn own_devices() -> Outcome {
    let (here, there) = (
        Host::alone([2, 0, 0, 0, 0, 5])?,
        Host::alone([2, 0, 0, 0, 0, 6])?,
    );
    there
        .namespace
        .ip("link add eth7 index 777 type veth peer name far7\nlink set eth7 up\n")?;
    let foreign = Address {
        ifindex: 777,
        ..here.to(&there, 204)
    };
    there.edp()?.bind(&Address {
        mac: [0; 6],
        ..foreign
    })?;
    refused(here.edp()?.bind(&foreign), libc::ENODEV, "bind of EDP")?;
    refused(here.esp()?.bind(&foreign), libc::ENODEV, "bind of ESP")?;
    refused(here.esp()?.connect(&foreign), libc::ENODEV, "connect")?;
    refused(here.edp()?.send_to(b"x", 0, &foreign), libc::ENODEV, "send")
}

fn own_address(lab: &Lab) -> Outcome {
    let wire = lab.b.packets(ETH_P_ALL)?;
    let listener = lab.a.esp_listener(205, 4)?;
    let client = lab.a.esp_connected(&lab.a.to(&lab.a, 205))?;
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)?;
    drop((client, server));
    lab.a.edp()?.send_to(b"marker", 0, &lab.a.to(&lab.b, 205))?;
    let is_ours = |frame: &[u8]| matches!(frame.get(12..14), Some([0x88, 0xb5 | 0xb6]));
    let frame = wire.wait_for(patience(), is_ours)?;
    ensure!(frame[20..26] == *b"marker", "on the wire: {frame:02x?}");
    Ok(())
}
