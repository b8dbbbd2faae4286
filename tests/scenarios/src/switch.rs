// SPDX-License-Identifier: GPL-2.0-only

//! Tests the program `enet-switch`, on whose behaviour other scenarios rely.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use guest::lab::MTU;
use guest::prelude::*;
use guest::switch::Switch;

scenarios! {
    guest switch_drops_frames_beyond_its_buffer = buffer, needs_icount;
    guest switch_loses_frames_at_random = loss, needs_icount;
    guest switch_prints_into_a_closed_pipe_without_a_panic = closed_pipe;
}

/// An Ethernet type without a receiver. The switch forwards frames of any type.
const NOBODYS: u16 = 0x4e47;

const FRAME: usize = 14 + MTU;

/// The number of whole frames that a port's buffer of 128 KiB holds.
const HELD: usize = (128 << 10) / FRAME;

/// Sends `count` full frames from the second host to the first host.
fn flood(switch: &Switch, count: usize) -> Outcome {
    let [receiver, sender] = &switch.hosts[..] else {
        anyhow::bail!("two hosts are needed");
    };
    let socket = sender.packets(NOBODYS)?;
    let frame = ethernet(receiver.mac, sender.mac, NOBODYS, &[0; MTU]);
    for _ in 0..count {
        socket.send(&frame)?;
    }
    Ok(())
}

/// At 1 Mbit/s a frame takes 12 ms, so the flood is over before the port has sent many frames.
fn buffer() -> Outcome {
    let switch = Switch::up(2, &["--rate", "1mbit", "--uplink", "none"])?;
    let flooded = 2 * HELD;
    flood(&switch, flooded)?;
    eventually("all frames sent or dropped", || {
        let port = &switch.ports()?[0];
        Ok(port.sent_packets + port.dropped_packets == flooded as u64)
    })?;
    let port = &switch.ports()?[0];
    ensure!(
        (HELD as u64..HELD as u64 + 40).contains(&port.sent_packets),
        "a buffer for {HELD} frames took {} of {flooded}",
        port.sent_packets
    );
    switch.down()
}

fn loss() -> Outcome {
    let switch = Switch::up(2, &["--rate", "100mbit", "--loss", "10%"])?;
    flood(&switch, 1000)?;
    eventually("all frames sent or lost", || {
        let ports = switch.ports()?;
        Ok(ports[0].sent_packets + ports[0].dropped_packets + ports[1].lost_packets == 1000)
    })?;
    let lost = switch.ports()?[1].lost_packets;
    // The bounds are five standard deviations to either side of the mean.
    ensure!(
        (52..148).contains(&lost),
        "{lost} of 1000 frames were lost, not about 100"
    );
    switch.ensure_no_drops()?;
    switch.down()
}

fn closed_pipe() -> Outcome {
    let switch = Switch::up(2, &["--rate", "100mbit"])?;
    for arguments in [&["drops"][..], &["drops", "--json"]] {
        let (reader, writer) = UnixStream::pair()?;
        drop(reader);
        let output = Command::new("enet-switch")
            .args(arguments)
            .stdout(OwnedFd::from(writer))
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && said.is_empty(),
            "{arguments:?}: {}: {said}",
            output.status
        );
    }
    switch.down()
}
