// SPDX-License-Identifier: GPL-2.0-only

//! A network card with several queues, as servers have it: QEMU's emulation of Intel's 82576 with the stock driver igb.

use crate::harness::growth;
use crate::netns::finish;
use crate::prelude::*;
use crate::scenarios::receive_steering::{spread_over_four, steer};

scenarios! {
    guest igb_carries_both_protocols = carries, cards;
    guest igb_spreads_connections_over_its_transmit_queues = spreads, cards;
    guest igb_steers_connections_to_four_processors = steers, cards;
}

const PORT: u16 = 890;

/// Two hosts with a card each. The driver goes with this value.
struct Cards {
    hosts: [(Netns, String); 2],
}

impl Cards {
    fn new() -> Result<Self> {
        finish(Command::new("modprobe").arg("igb"), "")?;
        let mut names = Vec::new();
        eventually("two cards", || {
            names = cards()?;
            Ok(names.len() == 2)
        })?;
        let mut hosts = Vec::new();
        for name in names {
            let host = Netns::create()?;
            let to = host.path();
            finish(
                Command::new("ip").args(["link", "set", &name, "netns", &to]),
                "",
            )?;
            hosts.push((host, name));
        }
        let hosts = hosts.try_into().ok().context("two hosts")?;
        let cards = Self { hosts };
        for (host, name) in &cards.hosts {
            host.ip(&format!("link set {name} up\n"))?;
        }
        Ok(cards)
    }

    fn devices(&self) -> Result<[Device<'_>; 2]> {
        let [a, b] = &self.hosts;
        Ok([Device::ready(&a.0, &a.1)?, Device::ready(&b.0, &b.1)?])
    }

    /// Packets that the first host's card has sent, by queue.
    fn sent_by_queue(&self) -> Result<Vec<u64>> {
        let (host, name) = &self.hosts[0];
        let text = host.run("ethtool", &["-S", name])?;
        let counts = text.lines().filter_map(|line| {
            let (key, value) = line.trim().split_once(": ")?;
            let queue = key.strip_prefix("tx_queue_")?;
            queue.ends_with("_packets").then(|| value.parse())
        });
        Ok(counts.collect::<Result<_, _>>()?)
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        // The cards are in the hosts, and the driver takes them away there.
        if let Err(error) = finish(Command::new("modprobe").args(["-r", "igb"]), "") {
            note(&format!("removing igb: {error:#}"));
        }
    }
}

/// The names of the devices of the driver igb.
fn cards() -> Result<Vec<String>> {
    let place = "/sys/class/net";
    let mut names = Vec::new();
    for entry in fs::read_dir(place).context(place)? {
        let entry = entry?;
        let driver = fs::read_link(entry.path().join("device/driver"));
        if driver.is_ok_and(|driver| driver.ends_with("igb")) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The card's rules put all of a protocol that is not IP into one queue.
fn steers() -> Outcome {
    let cards = Cards::new()?;
    for (host, name) in &cards.hosts {
        steer(host, name)?;
    }
    let [near, far] = cards.devices()?;
    spread_over_four(&near, &far, PORT)
}

fn carries() -> Outcome {
    let cards = Cards::new()?;
    let [near, far] = cards.devices()?;
    near.carries_both_protocols_to(&far, 1500)
}

fn spreads() -> Outcome {
    const CONNECTIONS: u16 = 16;
    const ROUNDS: usize = 20;
    let cards = Cards::new()?;
    let [near, far] = cards.devices()?;
    let before = cards.sent_by_queue()?;
    ensure!(before.len() >= 2, "{} transmit queues", before.len());
    for number in 0..CONNECTIONS {
        let (client, server) = near.stream_to(&far, PORT + number)?;
        for _ in 0..ROUNDS {
            exchange(&client, &server)?;
        }
    }
    let least = u64::from(CONNECTIONS) * ROUNDS as u64 / 8;
    // The driver reads the card's counters when it likes.
    let mut sent = Vec::new();
    let spread = eventually("packets in two queues", || {
        sent = growth(&before, &cards.sent_by_queue()?);
        Ok(sent.iter().filter(|count| **count >= least).count() >= 2)
    });
    note(&format!("{sent:?} packets by queue"));
    spread
}
