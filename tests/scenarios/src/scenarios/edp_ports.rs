//! Who may hold which EDP port, and who hears what arrives there.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{ensure, Context};

use crate::harness::{note, refused, Outcome, Scenario};
use crate::lab::{await_events, Lab};
use crate::patience::factor;
use crate::transfer::beside;

/// The scenarios of this file.
pub const ALL: &[Scenario] = &[
    Scenario::direct("edp_and_esp_port_conflicts", conflicts),
    Scenario::direct("edp_and_esp_choose_free_ports", free_ports),
    Scenario::direct("edp_ports_of_two_interfaces_are_apart", two_interfaces),
    Scenario::direct("edp_port_changes_do_not_hide_other_sockets", port_changes).within(150),
];

/// A second device on host a, with its index.
fn second_device(lab: &Lab) -> anyhow::Result<u32> {
    lab.a
        .namespace
        .ip("link add eth1 address 02:00:00:00:00:11 type veth peer name far1\nlink set eth1 up\nlink set far1 up\n")?;
    let index = lab
        .a
        .namespace
        .within(|| crate::socket::interface_index("eth1"))??;
    Ok(index)
}

fn conflicts(lab: &Lab) -> Outcome {
    let other = second_device(lab)?;
    for kind in [libc::SOCK_DGRAM, libc::SOCK_STREAM] {
        let socket = || {
            let made = lab
                .a
                .namespace
                .within(|| crate::socket::Socket::new(crate::address::AF_ENET, kind, 0))??;
            Ok::<_, anyhow::Error>(made)
        };
        let (any, eth0) = (lab.a.anywhere(60), lab.a.here(60));
        let eth1 = crate::address::Address {
            ifindex: other,
            ..eth0
        };
        // Same number: taken when either is bound to all interfaces or both to the same.
        for (holder, refusals, grants) in [
            (any, &[any, eth0, eth1][..], &[][..]),
            (eth0, &[any, eth0][..], &[eth1][..]),
            (eth1, &[any, eth1][..], &[eth0][..]),
        ] {
            let held = socket()?;
            held.bind(&holder)?;
            for name in refusals {
                let what = format!("type {kind}: {name:?} beside {holder:?}");
                refused(socket()?.bind(name), libc::EADDRINUSE, &what)?;
            }
            for name in grants {
                socket()?
                    .bind(name)
                    .with_context(|| format!("type {kind}: {name:?} beside {holder:?}"))?;
            }
            socket()?.bind(&any.port(61)).context("another port")?;
            drop(held);
            socket()?
                .bind(&holder)
                .context("a port that was given back")?;
        }
        let twice = socket()?;
        twice.bind(&eth0)?;
        refused(twice.bind(&eth0.port(62)), libc::EINVAL, "bind twice")?;
    }
    // The two protocols' ports are apart.
    let (datagram, stream) = (lab.a.edp_bound(63)?, lab.a.esp()?);
    stream
        .bind(&lab.a.here(63))
        .context("the same number in ESP")?;
    drop(datagram);
    Ok(())
}

fn free_ports(lab: &Lab) -> Outcome {
    let sockets = (0..200)
        .map(|number| {
            let socket = if number % 2 == 0 {
                lab.a.edp()?
            } else {
                lab.a.esp()?
            };
            socket.bind(&lab.a.here(0))?;
            Ok(socket)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    for parity in 0..2 {
        let mut ports = std::collections::HashSet::new();
        for socket in sockets.iter().skip(parity).step_by(2) {
            let port = socket.local_address()?.port;
            ensure!(port != 0, "port 0 was given");
            ensure!(ports.insert(port), "port {port} was given twice");
        }
    }
    // The address in bind is ignored, whatever it says.
    let socket = lab.a.edp()?;
    socket
        .bind(&lab.a.to(&lab.b, 64))
        .context("bind with a foreign address in it")?;
    ensure!(socket.local_address()?.port == 64, "the port");
    Ok(())
}

fn two_interfaces(lab: &Lab) -> Outcome {
    let other = second_device(lab)?;
    let on_eth0 = lab.a.edp_bound(65)?;
    let on_eth1 = lab.a.edp()?;
    on_eth1.bind(&crate::address::Address {
        ifindex: other,
        ..lab.a.here(65)
    })?;
    lab.b
        .edp()?
        .send_to(b"for eth0", 0, &lab.b.to(&lab.a, 65))?;
    await_events(&on_eth0, libc::POLLIN)?;
    refused(
        on_eth1.receive(&mut [0; 8], libc::MSG_DONTWAIT),
        libc::EAGAIN,
        "eth1's socket",
    )?;
    // Leaving by the other interface than the one it is bound to would put the wrong sender on the frame.
    let there = crate::address::Address {
        ifindex: other,
        ..lab.a.to(&lab.b, 65)
    };
    ensure!(
        on_eth0.send_to(b"x", 0, &there).is_err(),
        "a socket bound to eth0 sent through eth1"
    );
    Ok(())
}

/// The module keeps ports in a table of 1024 buckets. One socket moves between two of them, without a pause; a datagram for
/// another socket in one of these may arrive while the first one moves.
fn port_changes(lab: &Lab) -> Outcome {
    const BUCKETS: u16 = 1024;
    let (datagrams, moves_at_least) = (100_000 / factor(), 100 / factor());
    let port = 50_000;
    // The only two ports that are free: one in the receiver's bucket, and one in another.
    let free = [port + BUCKETS, port + 9 * BUCKETS + 1];
    let receiver = lab.a.edp_bound(port)?;
    let others = (49_152..=65_535).filter(|other| *other != port && !free.contains(other));
    let _others = others
        .map(|port| lab.a.edp_bound(port))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mover = lab.a.edp()?;
    let sender = lab.b.edp()?;
    let (nobody, there) = (lab.a.to_nobody(1), lab.b.to(&lab.a, port));
    let over = AtomicBool::new(false);
    let moves = || {
        let mut seen = [0u32; 2];
        while !over.load(Relaxed) {
            mover.send_to(b"x", 0, &nobody)?;
            let port = mover.local_address()?.port;
            let which = free.iter().position(|free| *free == port);
            seen[which.context("a port that was taken")?] += 1;
            mover.connect_bytes(&[0; 16])?;
        }
        Ok(seen)
    };
    let sends = || {
        let mut bytes = [0; 1];
        for _ in 0..datagrams {
            sender.send_to(b"x", 0, &there)?;
            // Not all are read; what does not fit is counted apart.
            let _ = receiver.receive(&mut bytes, libc::MSG_DONTWAIT);
        }
        over.store(true, Relaxed);
        Ok(())
    };
    let (seen, ()) = beside(moves, sends)?;
    note(&format!(
        "the other socket had the two ports {seen:?} times"
    ));
    ensure!(
        seen.iter().all(|times| *times > moves_at_least),
        "the other socket did not move: {seen:?}"
    );
    let missed = lab.a.counter("EdpInNoSocket")?;
    ensure!(
        missed == 0,
        "{missed} of {datagrams} datagrams did not find their socket"
    );
    Ok(())
}
