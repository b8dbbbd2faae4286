// SPDX-License-Identifier: GPL-2.0-only

//! Tests network cards: Intel's 82576 with several queues, as QEMU emulates it, with the stock
//! driver igb; and virtio-net, the card of virtual machines, whose speed can be set.

use crate::receive_steering::{spread_over_four, steer};
use guest::address::ESP_SO_CHECKSUM;
use guest::harness::growth;
use guest::netns::finish;
use guest::prelude::*;

scenarios! {
    guest igb_carries_both_protocols = carries, needs_cards;
    guest igb_spreads_connections_over_its_transmit_queues = spreads, needs_cards;
    guest igb_steers_connections_to_four_processors = steers, needs_cards;
    guest esp_connections_have_checksums_from_10_gigabits_on = by_speed, needs_smp;
}

const PORT: u16 = 890;

/// Two hosts with a card each. Dropping this value removes the driver.
struct Cards {
    driver: &'static str,
    hosts: [(Netns, String); 2],
}

impl Cards {
    fn new() -> Result<Self> {
        Self::of("igb")
    }

    fn of(driver: &'static str) -> Result<Self> {
        finish(Command::new("modprobe").arg(driver), "")?;
        let mut names = Vec::new();
        eventually("two cards", || {
            names = cards(driver)?;
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
        let cards = Self { driver, hosts };
        for (host, name) in &cards.hosts {
            host.ip(&format!("link set {name} up\n"))?;
        }
        Ok(cards)
    }

    fn devices(&self) -> Result<[Device<'_>; 2]> {
        let [a, b] = &self.hosts;
        Ok([Device::ready(&a.0, &a.1)?, Device::ready(&b.0, &b.1)?])
    }

    /// Returns the number of packets that the first host's card has sent, by queue.
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
        // The cards are in the hosts' namespaces, where the driver's removal removes them.
        if let Err(error) = finish(Command::new("modprobe").args(["-r", self.driver]), "") {
            note(&format!("removing {}: {error:#}", self.driver));
        }
    }
}

/// Returns the names of the devices of a driver.
fn cards(driver: &str) -> Result<Vec<String>> {
    let place = "/sys/class/net";
    let mut names = Vec::new();
    for entry in fs::read_dir(place).context(place)? {
        let entry = entry?;
        let path = fs::read_link(entry.path().join("device/driver"));
        if path.is_ok_and(|path| path.ends_with(driver)) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Without a rule, the card receives all packets of a protocol other than IP in one queue.
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
    // The driver reads the card's counters only from time to time.
    let mut sent = Vec::new();
    let spread = eventually("packets in two queues", || {
        sent = growth(&before, &cards.sent_by_queue()?);
        Ok(sent.iter().filter(|count| **count >= least).count() >= 2)
    });
    note(&format!("{sent:?} packets by queue"));
    spread
}

/// The speed of the client's device decides whether the client asks for checksums, unless a
/// parameter or the program decides.
fn by_speed() -> Outcome {
    finish(Command::new("modprobe").arg("virtio_pci"), "")?;
    let cards = Cards::of("virtio_net")?;
    let (host, name) = &cards.hosts[0];
    let knobs = Knobs(host);
    let mut port = PORT;
    let mut has_sums = || -> Result<bool> {
        port += 1;
        let [near, far] = cards.devices()?;
        let (client, server) = near.stream_to(&far, port)?;
        exchange(&client, &server)?;
        let [one, other] = [&client, &server].map(|end| end.int_option(SOL_EP, ESP_SO_CHECKSUM));
        let (one, other) = (one?, other?);
        ensure!(one == other, "{one} at the client, {other} at the server");
        Ok(one == 1)
    };
    // The card reports no speed until a speed is set.
    same(has_sums()?, false, "checksums at an unknown speed")?;
    for (speed, sums) in [
        (1000, false),
        (10_000, true),
        (2500, false),
        (100_000, true),
    ] {
        host.run(
            "ethtool",
            &["-s", name, "speed", &speed.to_string(), "duplex", "full"],
        )?;
        // A real link goes down and up when its speed changes.
        host.ip(&format!("link set {name} down\nlink set {name} up\n"))?;
        same(has_sums()?, sums, &format!("checksums at {speed} Mbit/s"))?;
    }
    knobs.set("checksum", 0)?;
    same(has_sums()?, false, "checksums switched off")?;
    knobs.set("checksum", 2)?;
    same(has_sums()?, true, "checksums at 100 Gbit/s again")
}
