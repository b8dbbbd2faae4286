// SPDX-License-Identifier: GPL-2.0-only

//! Tunnels and link aggregation: VXLAN and LACP.

use guest::device::await_carrier;
use guest::harness::growth;
use guest::meminfo::give_back;
use guest::meminfo::slabs;
use guest::prelude::*;

scenarios! {
    direct vxlan_carries_both_protocols = vxlan;
    direct queued_datagrams_keep_nothing_of_their_tunnel = queued;
    guest lacp_spreads_connections_over_its_ports = lacp, within(120);
}

const PORT: u16 = 870;

fn vxlan(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    for (host, own, other) in [(&lab.a, 1, 2), (&lab.b, 2, 1)] {
        host.namespace.ip(&format!(
            "link add vx0 address 02:00:00:00:01:0{own} type vxlan id 42 dstport 4789 dev eth0 \
             local 10.0.0.{own} remote 10.0.0.{other}\nlink set vx0 up\n"
        ))?;
    }
    let near = Device::ready(&lab.a.namespace, "vx0")?;
    let far = Device::ready(&lab.b.namespace, "vx0")?;
    // The tunnel's MTU is smaller than the MTU of `eth0`, through which the tunnel sends.
    near.carries_both_protocols_to(&far, 1450)
}

/// Returns the number of bytes in the kernel's `kmalloc-*` caches. Leaves out `kmalloc-cg-*`, whose
/// memory is charged to control groups.
fn allocated() -> Result<i64> {
    let sizes = || -> Result<Vec<(String, i64)>> {
        let all = slabs()?.into_iter();
        Ok(all
            .filter(|(name, _)| name.starts_with("kmalloc-") && !name.starts_with("kmalloc-cg"))
            .collect())
    };
    for (name, _) in sizes()? {
        give_back(&name)?;
    }
    Ok(sizes()?.iter().map(|(_, bytes)| bytes).sum())
}

/// A tunnel device in external mode gives each packet its own `struct metadata_dst`. The structure
/// has at least 200 bytes and is charged to no process, so queued packets must not keep it.
fn queued(lab: &Lab) -> Outcome {
    const SOCKETS: u16 = 32;
    const EACH: u16 = 128;
    const LEAST: i64 = 200;
    lab.give_ip_addresses()?;
    lab.a.namespace.ip(
        "link add vx0 address 02:00:00:00:01:01 type vxlan id 42 dstport 4789 dev eth0 \
         local 10.0.0.1 remote 10.0.0.2\n",
    )?;
    (lab.b.namespace)
        .ip("link add vx0 address 02:00:00:00:01:02 type vxlan external dstport 4789\n")?;
    for host in [&lab.a, &lab.b] {
        host.namespace
            .ip("link set vx0 addrgenmode none\nlink set vx0 up\n")?;
    }
    let near = Device::ready(&lab.a.namespace, "vx0")?;
    let far = Device::ready(&lab.b.namespace, "vx0")?;
    let sender = near.edp(PORT)?;
    let receivers: Vec<_> = (0..SOCKETS)
        .map(|number| far.edp(PORT + number))
        .collect::<Result<_>>()?;
    let before = allocated()?;
    for (number, receiver) in (0..).zip(&receivers) {
        for count in 1..=EACH {
            sender.send_to(b"kept", 0, &near.to(&far, PORT + number))?;
            eventually("a datagram", || {
                Ok(receiver.edp_counters()?.pkt_rx >= u32::from(count))
            })?;
        }
    }
    let packets = i64::from(SOCKETS) * i64::from(EACH);
    let mut more = 0;
    eventually("the tunnel's memory", || {
        more = allocated()? - before;
        Ok(more < packets * LEAST / 2)
    })
    .with_context(|| format!("{packets} queued datagrams keep {more} bytes"))
}

/// Returns the number of frames that a port has sent.
fn sent(host: &Netns, port: &str) -> Result<u64> {
    // A line of `/proc/net/dev` has the name, then eight receive counters, then the number of bytes
    // sent, and then the number of frames sent.
    const FRAMES: usize = 9;
    let text = host.proc_net("dev")?;
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    let line = lines.find(|(name, _)| *name == port);
    let numbers = line.with_context(|| format!("no {port} in {text}"))?.1;
    let frames = numbers.split_whitespace().nth(FRAMES);
    Ok(frames.context("a short line")?.parse()?)
}

/// Returns the aggregator of `port`, or `None` until the link partner uses the port.
fn aggregator(host: &Netns, port: &str) -> Result<Option<String>> {
    let text = host.run("ip", &["-details", "link", "show", port])?;
    let words: Vec<_> = text.split_whitespace().collect();
    let behind = |name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        words.get(place + 1).map(|word| (*word).to_owned())
    };
    let partner = behind("ad_partner_oper_port_state").unwrap_or_default();
    // Bits 4 and 5 of the partner's state are set once the partner collects and distributes frames.
    let state: u32 = partner.parse().unwrap_or(0);
    Ok(behind("ad_aggregator_id").filter(|_| state & 0x30 == 0x30))
}

/// With `encap3+4`, a bond chooses a frame's port by the hash that the socket has set in the
/// frame's buffer. ESP's sockets set a hash, as TCP's do.
fn lacp() -> Outcome {
    const CONNECTIONS: u16 = 32;
    let (a, b) = (Netns::create()?, Netns::create()?);
    for (host, number) in [(&a, 1), (&b, 2)] {
        host.ip(&format!(
            "link add bond0 address 02:00:00:00:00:0{number} type bond mode 802.3ad miimon 20 lacp_rate fast \
             xmit_hash_policy encap3+4\n"
        ))?;
    }
    a.ip(&format!(
        "link add port0 type veth peer name port0 netns {path}\n\
         link add port1 type veth peer name port1 netns {path}\n",
        path = b.path()
    ))?;
    for host in [&a, &b] {
        host.ip("link set port0 master bond0\nlink set port1 master bond0\nlink set bond0 up\n")?;
    }
    for host in [&a, &b] {
        await_carrier(host, "bond0")?;
        eventually("both ports in one aggregator", || {
            let of = ["port0", "port1"].map(|port| aggregator(host, port));
            let [first, second] = of;
            let first = first?;
            Ok(first.is_some() && first == second?)
        })?;
    }
    let near = Device::ready(&a, "bond0")?;
    let far = Device::ready(&b, "bond0")?;
    let count = || Ok::<_, anyhow::Error>([sent(&a, "port0")?, sent(&a, "port1")?]);
    let mut pairs = Vec::new();
    let mut spread = [0, 0];
    for number in 0..CONNECTIONS {
        let (client, server) = near.stream_to(&far, PORT + number)?;
        exchange(&client, &server)?;
        let before = count()?;
        for _ in 0..50 {
            exchange(&client, &server)?;
        }
        let used = growth(&before, &count()?);
        // Apart from the connection's frames there are only frames of LACP, at most one per second
        // and port.
        let (most, least) = (used[0].max(used[1]), used[0].min(used[1]));
        ensure!(most >= 50 && least < 10, "one connection used {used:?}");
        spread[usize::from(used[1] > used[0])] += 1;
        pairs.push((client, server));
    }
    note(&format!("{spread:?} of {CONNECTIONS} connections by port"));
    ensure!(
        spread.iter().all(|count| *count >= CONNECTIONS / 8),
        "{spread:?} of {CONNECTIONS} connections by port"
    );
    let (client, server) = &pairs[0];
    transfer_both_ways(client, server, Load::SMALL)
}
