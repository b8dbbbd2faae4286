// SPDX-License-Identifier: GPL-2.0-only

//! Tests how the module is loaded, used and unloaded, when it refuses to unload, and its
//! parameters.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use guest::frame::ETH_P_ALL;
use guest::prelude::*;
use guest::relay::Mode;

scenarios! {
    guest module_loads_by_modprobe_and_unloads = load_and_unload;
    guest module_loads_by_socket_call = autoload;
    guest module_stays_while_a_socket_is_open = refuse_unload;
    guest module_loads_and_unloads_20_times = load_often;
    guest module_parameter_family = other_family;
    guest module_parameters_ethertypes = other_types;
    guest module_parameters_are_in_sysfs = shown_parameters;
    guest module_unloads_after_connections_on_a_dead_link = unload_after_cut, within(90);
    guest module_refuses_invalid_parameters = clashing_parameters;
}

fn load_and_unload() -> Outcome {
    let _restore = Restore;
    module::unload()?;
    ensure!(!module::loaded(), "the module is still there");
    ensure!(!registered()?, "the protocols are still registered");
    module::load(&[])?;
    ensure!(
        registered()?,
        "the protocols are not in /proc/net/protocols"
    );
    Socket::edp().context("EDP socket")?;
    Socket::esp().context("ESP socket")?;
    module::unload()?;
    ensure!(
        !registered()?,
        "the protocols are registered after unloading"
    );
    Ok(())
}

/// Returns whether `/proc/net/protocols` lists both protocols.
fn registered() -> anyhow::Result<bool> {
    let text = std::fs::read_to_string("/proc/net/protocols")?;
    let names: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    Ok(names.contains(&"EDP") && names.contains(&"ESP"))
}

fn autoload() -> Outcome {
    let _restore = Restore;
    for kind in [libc::SOCK_DGRAM, libc::SOCK_STREAM] {
        module::unload()?;
        drop(Socket::new(AF_ENET, kind, 0).context("socket(28) with the module not loaded")?);
        ensure!(module::loaded(), "a socket came, but no module");
    }
    Ok(())
}

fn refuse_unload() -> Outcome {
    for kind in [libc::SOCK_DGRAM, libc::SOCK_STREAM] {
        let socket = Socket::new(AF_ENET, kind, 0)?;
        ensure!(
            module::references()? > 0,
            "an open socket holds no reference"
        );
        refused(module::try_unload(), libc::EWOULDBLOCK, "delete_module")?;
        drop(socket);
        module::await_unused()?;
    }
    let _restore = Restore;
    module::unload()
}

fn load_often() -> Outcome {
    let _restore = Restore;
    for round in 0..20 {
        module::unload().with_context(|| format!("round {round}"))?;
        module::load(&[]).with_context(|| format!("round {round}"))?;
        let host = Host::alone([2, 0, 0, 0, 0, 9])?;
        exchange_on_one_host(&host, AF_ENET).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// Sends a datagram and a stream from a host to its own address, with the given family number.
fn exchange_on_one_host(host: &Host, family: i32) -> Outcome {
    let here = host.here(700).with_family(family);
    let there = host.to(host, 700).with_family(family);
    host.namespace.within(|| -> Outcome {
        let receiver = Socket::new(family, libc::SOCK_DGRAM, 0)?;
        receiver.bind_bytes(&here)?;
        let sender = Socket::new(family, libc::SOCK_DGRAM, 0)?;
        sender.send_to_bytes(b"datagram", 0, &there)?;
        let mut bytes = [0; 64];
        receiver.set_timeout(libc::SO_RCVTIMEO, patience())?;
        let (length, from) = receiver.receive_from(&mut bytes, 0)?;
        ensure!(&bytes[..length] == b"datagram", "another datagram came");
        Address::from_bytes_of(&from, family)?;

        let listener = Socket::new(family, libc::SOCK_STREAM, 0)?;
        listener.bind_bytes(&here)?;
        listener.listen(1)?;
        let client = Socket::new(family, libc::SOCK_STREAM, 0)?;
        client.connect_bytes(&there)?;
        let (server, from) = listener.accept(0)?;
        Address::from_bytes_of(&from, family)?;
        client.send_all(b"stream")?;
        server.receive_exact(&mut bytes[..6])?;
        ensure!(&bytes[..6] == b"stream", "other bytes came");
        Ok(())
    })?
}

fn other_family() -> Outcome {
    let _restore = Restore;
    // The number of AF_MCTP, which is free because Debian's cloud kernel has no module for this
    // family.
    let family = 45;
    module::unload()?;
    module::load(&[&format!("family={family}")])?;
    refused(Socket::edp(), libc::EAFNOSUPPORT, "family 28 meanwhile")?;
    let host = Host::alone([2, 0, 0, 0, 0, 9])?;
    exchange_on_one_host(&host, family)?;
    let socket = host
        .namespace
        .within(|| Socket::new(family, libc::SOCK_DGRAM, 0))??;
    refused(
        socket.bind_bytes(&host.here(5).with_family(AF_ENET)),
        libc::EAFNOSUPPORT,
        "bind with family 28 in the address",
    )
}

fn other_types() -> Outcome {
    let _restore = Restore;
    let (edp_type, esp_type) = (0x9a10u16, 0x9a11u16);
    module::unload()?;
    module::load(&[
        &format!("edp_type={edp_type}"),
        &format!("esp_type={esp_type}"),
    ])?;
    let lab = Lab::new(Wiring::Direct)?;
    let wire = PacketSocket::open(&lab.b.namespace, DEVICE, ETH_P_ALL)?;
    let is =
        |ethertype: u16| move |frame: &[u8]| frame.get(12..14) == Some(&ethertype.to_be_bytes());

    let (a, b) = lab.edp_pair(31)?;
    a.send(b"typed", 0)?;
    let mut bytes = [0; 8];
    receives(&b, b"typed")?;
    wire.wait_for(patience(), is(edp_type))
        .context("an EDP frame of the new type")?;

    let (client, server) = lab.esp_pair(31)?;
    client.send_all(b"typed")?;
    server.receive_exact(&mut bytes[..5])?;
    wire.wait_for(patience(), is(esp_type))
        .context("an ESP frame of the new type")?;
    Ok(())
}

/// sysfs shows the given values, and the defaults of other parameters. Every user can read the
/// parameters, and no user can write them.
fn shown_parameters() -> Outcome {
    let _restore = Restore;
    for (given, shown) in [
        (&[][..], ["28", "34997", "34998", "0"]),
        (
            &["family=45", "esp_type=0x9a11", "ssocks=27"],
            ["45", "34997", "39441", "27"],
        ),
    ] {
        module::unload()?;
        module::load(given)?;
        let directory = Path::new("/sys/module/enet/parameters");
        ensure!(directory.read_dir()?.count() == shown.len(), "other files");
        for (name, value) in ["family", "edp_type", "esp_type", "ssocks"]
            .iter()
            .zip(shown)
        {
            let path = directory.join(name);
            let found = fs::read_to_string(&path).context(*name)?;
            ensure!(found.trim() == value, "{given:?}: {name} is {found:?}");
            let mode = path.metadata()?.permissions().mode() & 0o777;
            ensure!(mode == 0o444, "{name} has the mode {mode:o}");
        }
    }
    Ok(())
}

/// Connections may outlive their descriptors. The module can be unloaded once they have ended, even
/// if frames still arrive.
fn unload_after_cut() -> Outcome {
    let _restore = Restore;
    let lab = Lab::new(Wiring::Switched)?;
    let listener = lab.b.esp_listener(710, 4)?;
    let (client, server) = lab.esp_pair_through(&listener, 710)?;
    lab.relay().set_mode(Mode::Hold);
    client.send_all(&[1; 5000])?;
    server.send_all(&[2; 5000])?;
    drop((client, server, listener));
    let mut tries = 0;
    while let Err(error) = module::try_unload() {
        ensure!(
            error.raw_os_error() == Some(libc::EWOULDBLOCK) && tries < 600,
            "the module does not go: {error}"
        );
        tries += 1;
        thread::sleep(Duration::from_millis(100));
    }
    lab.relay().set_mode(Mode::Forward);
    let wire = lab.a.packets(ETH_P_ESP)?;
    for _ in 0..100 {
        wire.send(&ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, &[0; 60]))?;
    }
    ensure!(!module::loaded(), "the module is still there");
    module::load(&[])?;
    exchange_on_one_host(&lab.a, AF_ENET)
}

fn clashing_parameters() -> Outcome {
    let _restore = Restore;
    module::unload()?;
    for parameters in [
        // A family in use, a family out of range, one Ethernet type for both protocols, and a frame
        // length as Ethernet type.
        &["family=2"][..],
        &["family=4711"],
        &["ssocks=2"],
        &["ssocks=28"],
        &["ssocks=4711"],
        &["edp_type=0x88b5", "esp_type=0x88b5"],
        &["edp_type=100"],
    ] {
        ensure!(
            module::load(parameters).is_err(),
            "the module loaded with {parameters:?}"
        );
        ensure!(!module::loaded(), "{parameters:?} left the module behind");
    }
    module::load(&[]).context("loading properly afterwards")
}
