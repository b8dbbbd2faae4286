// SPDX-License-Identifier: GPL-2.0-only

//! Tests packets of a device with a large MTU. A window of such packets takes more memory than a
//! buffer's limit.

use guest::held_page::{HeldPage, PAGE};
use guest::prelude::*;
use guest::socket::meminfo::{BACKLOG, DROPS};

scenarios! {
    direct large_packets_of_65535_fit_the_backlog = largest, within(120);
    direct large_packets_of_9000_fit_the_backlog = jumbo, within(120);
    direct large_packets_of_1500_fit_the_backlog = usual, within(120);
}

/// The number of bytes that a receive call takes. The call blocks on the first page of its buffer.
const TAKEN: usize = 1024 * PAGE;
/// The number of bytes that are sent after a first byte, which starts the transfer.
const SENT: usize = 8 << 20;

/// A reader owns the socket while the first packets arrive in its backlog. When the reader
/// processes these packets, the sender gets further windows. All packets of these windows arrive in
/// the backlog at once.
fn fits(lab: &Lab, mtu: u32, port: u16) -> Outcome {
    // Avoid retransmissions, except those that the wait for the reader causes.
    lab.calm()?;
    for host in [&lab.a, &lab.b] {
        host.set_mtu(mtu)?;
    }
    let (client, server) = lab.esp_pair(port)?;
    let room = HeldPage::new(TAKEN, 0)?;
    client.send_all(b"x")?;
    arrived(&server, 1)?;
    let take = || {
        let got = room.receive(&server, libc::MSG_WAITALL)?;
        ensure!(got == TAKEN, "{got} bytes");
        server.receive_all(SENT + 1 - TAKEN).context("the rest")?;
        Ok(())
    };
    let send = || client.send_all(&vec![7; SENT]).context("sending");
    let hold = || {
        room.await_sleeper()?;
        let begin = || {
            let waits = eventually("packets in the backlog", || {
                Ok(server.meminfo()?[BACKLOG] > 0)
            });
            room.release()?;
            waits
        };
        beside(begin, send).map(drop)
    };
    beside(take, hold)?;
    let (sent, got) = (client.esp_counters()?, server.esp_counters()?);
    note(&format!("client {sent:?}, server {got:?}"));
    let drops = server.meminfo()?[DROPS];
    same(
        (drops, sent.pkt_rtx, got.pkt_rx_oos),
        (0, 0, 0),
        "dropped, retransmitted, out of order",
    )
}

fn largest(lab: &Lab) -> Outcome {
    fits(lab, 65_535, 200)
}

fn jumbo(lab: &Lab) -> Outcome {
    fits(lab, 9_000, 201)
}

fn usual(lab: &Lab) -> Outcome {
    fits(lab, 1_500, 202)
}
