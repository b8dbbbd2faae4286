// SPDX-License-Identifier: GPL-2.0-only

//! Tests stacked devices as endpoints: VLANs, bonds, bridges, macvlans. None of these devices has
//! an IP address.

use guest::bpf;
use guest::device::await_carrier;
use guest::frame::ETH_P_ALL;
use guest::prelude::*;
use guest::transfer::transfer_while;

scenarios! {
    direct vlans_keep_the_same_ports_apart = vlans;
    direct vlan_within_a_vlan_carries_a_stream = vlan_in_vlan;
    direct vlan_maps_a_sockets_priority_to_that_of_its_frames = vlan_priority;
    direct vlan_with_its_tag_in_the_header_reaches_its_own_address = vlan_header;
    direct device_that_needs_longer_headers_keeps_its_streams = longer_headers;
    guest bond_fails_over_under_a_stream = bond;
    guest bridge_with_several_ports_is_an_endpoint = bridge;
    direct macvlans_of_one_parent_reach_each_other_and_outside = macvlans;
    direct sockets_tied_to_a_device_receive_from_no_other = tied;
}

const LOAD: Load = Load::of(1 << 20, 40_000, 850);

fn vlans(lab: &Lab) -> Outcome {
    let names = [Some(10), Some(20), None]
        .map(|id| id.map_or("eth0".to_owned(), |id| format!("eth0.{id}")));
    for host in [&lab.a, &lab.b] {
        host.namespace.ip(
            "link add link eth0 name eth0.10 type vlan id 10\nlink set eth0.10 up\n\
             link add link eth0 name eth0.20 type vlan id 20\nlink set eth0.20 up\n",
        )?;
    }
    let mut ends = Vec::new();
    for name in &names {
        let near = Device::ready(&lab.a.namespace, name)?;
        let far = Device::ready(&lab.b.namespace, name)?;
        same(near.mac, lab.a.mac, "a VLAN's address")?;
        ends.push((near, far, near.edp(850)?, far.edp(850)?, far.listener(850)?));
    }
    for (index, (near, far, datagrams, far_datagrams, listener)) in ends.iter().enumerate() {
        datagrams.send_to(&[index as u8], 0, &near.to(far, 850))?;
        let mut got = [0; 8];
        let (length, from) = far_datagrams.receive_from(&mut got, 0)?;
        ensure!(got[..length] == [index as u8], "another datagram came");
        let from = guest::address::Address::from_bytes(&from)?;
        ensure!(from.ifindex == far.ifindex, "it came by {}", from.ifindex);
        let client = near.namespace.within(Socket::esp)??;
        client.connect(&near.to(far, 850))?;
        let (server, _) = listener.accept(0)?;
        transfer_both_ways(
            &client,
            &server,
            Load {
                seed: index as u64,
                ..LOAD
            },
        )?;
        for (other, (_, _, near, far, listener)) in ends.iter().enumerate() {
            for socket in [near, far, listener] {
                quiet(
                    socket,
                    &format!("{} while {} was used", names[other], names[index]),
                )?;
            }
        }
    }
    Ok(())
}

fn vlan_in_vlan(lab: &Lab) -> Outcome {
    for host in [&lab.a, &lab.b] {
        host.namespace.ip(
            "link add link eth0 name outer type vlan proto 802.1ad id 10\nlink set outer up\n\
             link add link outer name inner type vlan id 20\nlink set inner up\n",
        )?;
    }
    let near = Device::ready(&lab.a.namespace, "inner")?;
    let far = Device::ready(&lab.b.namespace, "inner")?;
    let (client, server) = near.stream_to(&far, 851)?;
    transfer_both_ways(&client, &server, LOAD)
}

/// The VLAN device's egress map turns `SO_PRIORITY` into the 802.1p priority, which switches use to
/// prefer frames.
fn vlan_priority(lab: &Lab) -> Outcome {
    for host in [&lab.a, &lab.b] {
        host.namespace.ip(
            "link add link eth0 name eth0.10 type vlan id 10 egress-qos-map 5:3 6:4\nlink set eth0.10 up\n",
        )?;
    }
    let near = Device::ready(&lab.a.namespace, "eth0.10")?;
    let far = Device::ready(&lab.b.namespace, "eth0.10")?;
    let (client, server) = near.stream_to(&far, 855)?;
    let (from, to) = (near.edp(855)?, far.edp(855)?);
    let set = |socket: &Socket, priority| socket.set_so(libc::SO_PRIORITY, priority);
    for (priority, mapped) in [(5, 3), (6, 4), (4, 0)] {
        set(&client, priority)?;
        set(&from, priority)?;
        let wire = lab.b.packets(ETH_P_ALL)?;
        bpf::attach_for_tag(wire.socket(), (mapped << 13) | 10)?;
        let payload = [b'0' + mapped as u8; 60];
        client.send_all(&payload)?;
        server.receive_exact(&mut [0; 60])?;
        from.send_to(&payload, 0, &near.to(&far, 855))?;
        await_events(&to, libc::POLLIN)?;
        to.receive(&mut [0; 60], 0)?;
        for protocol in [ETH_P_ESP, ETH_P_EDP] {
            let ours = |frame: &[u8]| {
                frame.get(12..14) == Some(&protocol.to_be_bytes()) && frame.ends_with(&payload)
            };
            wire.wait_for(patience(), ours).with_context(|| {
                format!("{protocol:#x}: socket priority {priority}, 802.1p {mapped}")
            })?;
        }
    }
    Ok(())
}

/// Without `reorder_hdr`, and without offload in the lower device, the tag is part of the header
/// that the VLAN device makes.
fn vlan_header(lab: &Lab) -> Outcome {
    for host in [&lab.a, &lab.b] {
        host.namespace
            .run("ethtool", &["-K", "eth0", "txvlan", "off"])?;
        host.namespace.ip(
            "link add link eth0 name tagged type vlan id 10 reorder_hdr off\nlink set tagged up\n",
        )?;
    }
    let near = Device::ready(&lab.a.namespace, "tagged")?;
    let far = Device::ready(&lab.b.namespace, "tagged")?;
    let (client, server) = near.stream_to(&near, 852).context("to itself")?;
    exchange(&client, &server)?;
    let receiver = near.edp(852)?;
    near.edp(853)?.send_to(b"self", 0, &near.to(&near, 852))?;
    await_events(&receiver, libc::POLLIN)?;
    let (client, server) = near.stream_to(&far, 853).context("across")?;
    transfer_both_ways(&client, &server, LOAD)
}

/// A bond that gets a port with a longer header needs more headroom from then on. Buffers that were
/// allocated earlier have too little.
fn longer_headers(lab: &Lab) -> Outcome {
    lab.b.namespace.ip("link add link eth0 name tagged address 02:00:00:00:00:32 type macvlan mode bridge\nlink set tagged up\n")?;
    lab.a.namespace.ip(
        "link add bond0 address 02:00:00:00:00:31 type bond mode active-backup miimon 100 fail_over_mac none\n\
         link add port0 type veth peer name far0\nlink set far0 up\n\
         link set port0 master bond0\nlink set bond0 up\n",
    )?;
    lab.a
        .namespace
        .ip("link add hub type bridge\nlink set far0 master hub\nlink set hub up\n")?;
    let near = Device::ready(&lab.a.namespace, "bond0")?;
    let hub = Device::ready(&lab.a.namespace, "hub")?;
    let (client, server) = near.stream_to(&hub, 854)?;
    let message = guest::transfer::random(1 << 20, 854);
    let send = || client.send_all(&message).context("the sender");
    let grow = || {
        eventually("full buffers", || {
            Ok(client.queued(libc::TIOCOUTQ)? > 50_000)
        })?;
        lab.a.namespace.ip(
            "link add link eth0 name long0 type vlan proto 802.1ad id 7\nlink set long0 up\n\
             link add link long0 name long1 type vlan id 8\nlink set long1 up\n\
             link add link long1 name long2 type vlan id 9\n\
             link set long2 master bond0\n",
        )?;
        comes_next(&server, &message)
    };
    beside(send, grow)?;
    exchange(&client, &server)?;
    drop((client, server));
    lab.a.namespace.ip("link del bond0\nlink del hub\n")
}

/// In this test a bond has two cables to a bridge. First the active cable is pulled, then the other
/// one.
fn bond() -> Outcome {
    let (a, b) = (Netns::create()?, Netns::create()?);
    a.ip(&format!(
        "link add bond0 address 02:00:00:00:00:01 type bond mode active-backup miimon 20\n\
         link add port0 type veth peer name far0 netns {path}\n\
         link add port1 type veth peer name far1 netns {path}\n\
         link set port0 master bond0\nlink set port1 master bond0\nlink set bond0 up\n",
        path = b.path()
    ))?;
    b.ip(
        "link add br0 address 02:00:00:00:00:02 type bridge\nlink set br0 up\n\
         link set far0 master br0 up\nlink set far1 master br0 up\n",
    )?;
    let near = Device::ready(&a, "bond0")?;
    let far = Device::ready(&b, "br0")?;
    let active = || -> Result<String> {
        let text = a.run("ip", &["-details", "link", "show", "bond0"])?;
        let mut words = text.split_whitespace();
        words.find(|word| *word == "active_slave");
        Ok(words.next().unwrap_or_default().to_owned())
    };
    eventually("an active port", || Ok(active()?.starts_with("port")))?;
    let (client, server) = near.stream_to(&far, 855)?;
    let (idle, idles_peer) = near.stream_to(&far, 856)?;
    let load = Load {
        total: 6 << 20,
        ..LOAD
    };
    let pull = |received: &AtomicUsize| {
        for _ in 0..4 {
            let before = received.load(Ordering::Relaxed);
            eventually("progress", || Ok(received.load(Ordering::Relaxed) > before))?;
            let port = active()?;
            let far = port.replace("port", "far");
            b.ip(&format!("link set {far} down\n"))?;
            eventually("another active port", || {
                let now = active()?;
                Ok(now.starts_with("port") && now != port)
            })?;
            b.ip(&format!("link set {far} up\n"))?;
            await_carrier(&a, &port)?;
            eventually("both ports usable", || {
                let text = a.run("ip", &["-details", "link", "show", &port])?;
                Ok(text.contains("mii_status UP"))
            })?;
        }
        Ok(())
    };
    transfer_while(&client, &server, load, pull)?;
    exchange(&idle, &idles_peer)?;
    drop((client, server, idle, idles_peer));
    Ok(())
}

/// Tests three hosts on a bridge, which is itself a fourth host.
fn bridge() -> Outcome {
    let hub = Netns::create()?;
    hub.ip(
        "link add br0 address 02:00:00:00:01:00 type bridge\nlink set br0 up\nlink set lo up\n",
    )?;
    let hosts = [at_port(&hub, 1)?, at_port(&hub, 2)?, at_port(&hub, 3)?];
    let center = Device::ready(&hub, "br0")?;
    let mut ends = Vec::new();
    for host in &hosts {
        ends.push(Device::ready(host, DEVICE)?);
    }
    let streams = |index: usize| -> Result<_> {
        let (end, next, port) = (ends[index], ends[(index + 1) % 3], 860 + index as u16);
        Ok([
            end.stream_to(&center, port).context("to the bridge")?,
            center.stream_to(&end, port).context("from the bridge")?,
            end.stream_to(&next, port).context("across the bridge")?,
        ])
    };
    let [first, second, third] = [streams(0)?, streams(1)?, streams(2)?];
    let within = [center
        .stream_to(&center, 869)
        .context("within the bridge")?];
    let all_work = |streams: &[&[(Socket, Socket)]]| -> Outcome {
        for (index, (client, server)) in streams.iter().copied().flatten().enumerate() {
            exchange(client, server).with_context(|| format!("stream {index}"))?;
        }
        Ok(())
    };
    all_work(&[&first, &second, &third, &within])?;
    // A bridge whose address was set keeps this address, even if a port's address is lower.
    hub.ip("link add low0 address 00:00:00:00:01:01 type dummy\nlink set low0 master br0 up\n")?;
    ports_hear_nothing(&hub, &center, &ends[0])?;
    // After a port is removed, the other ports must still work. The second host's last stream leads
    // to the removed port, so that stream is left out.
    hub.ip("link del port3\n")?;
    all_work(&[&first, &second[..2], &within]).context("without a port")?;
    bridge_changes_its_address(&hub)
}

/// Makes a host whose cable leads to the port `number` of the bridge.
fn at_port(hub: &Netns, number: u8) -> Result<Netns> {
    let host = Netns::create()?;
    host.ip(&format!(
        "link add eth0 address 02:00:00:00:01:0{number} type veth peer name port{number} netns {}\nlink set eth0 up\n",
        hub.path()
    ))?;
    hub.ip(&format!("link set port{number} master br0 up\n"))?;
    Ok(host)
}

/// A bridge receives the frames of its ports, so a socket that is bound to a port receives none.
fn ports_hear_nothing(hub: &Netns, center: &Device<'_>, end: &Device<'_>) -> Outcome {
    let on_port = Device::named(hub, "port1")?.edp(869)?;
    let on_bridge = center.edp(868)?;
    end.edp(868)?.send_to(b"hello", 0, &end.to(center, 868))?;
    await_events(&on_bridge, libc::POLLIN)?;
    quiet(&on_port, "the port's socket")
}

/// A bridge without a set address takes the lowest address of its ports. When the bridge's address
/// changes, its streams end with an error.
fn bridge_changes_its_address(hub: &Netns) -> Outcome {
    hub.ip(
        "link add br1 type bridge\nlink add high1 address 02:00:00:00:02:09 type dummy\n\
         link set high1 master br1 up\nlink set br1 up\n",
    )?;
    let changing = Device::named(hub, "br1")?;
    let (client, server) = changing.stream_to(&changing, 867)?;
    exchange(&client, &server)?;
    hub.ip("link add low1 address 02:00:00:00:02:01 type dummy\nlink set low1 master br1 up\n")?;
    for socket in [&client, &server] {
        refused(socket.receive(&mut [0; 4], 0), libc::ECONNABORTED, "recv")?;
    }
    Ok(())
}

fn macvlans(lab: &Lab) -> Outcome {
    let other = Netns::create()?;
    lab.a.namespace.ip(&format!(
        "link add link eth0 name mac1 address 02:00:00:00:00:41 type macvlan mode bridge\nlink set mac1 up\n\
         link add link eth0 name mac2 address 02:00:00:00:00:42 type macvlan mode bridge\nlink set mac2 up\n\
         link add link eth0 name mac3 address 02:00:00:00:00:43 netns {} type macvlan mode bridge\n",
        other.path()
    ))?;
    other.ip("link set mac3 up\n")?;
    let first = Device::ready(&lab.a.namespace, "mac1")?;
    let second = Device::ready(&lab.a.namespace, "mac2")?;
    let third = Device::ready(&other, "mac3")?;
    let outside = Device::ready(&lab.b.namespace, "eth0")?;
    let parent = Device::ready(&lab.a.namespace, "eth0")?;
    let heard = parent.edp(870)?;
    for (from, to, what) in [
        (&first, &second, "from one to the other of one host"),
        (&second, &third, "to one in another namespace"),
        (&third, &first, "and back"),
        (&first, &outside, "to the outside"),
        (&outside, &second, "from the outside"),
        (&outside, &third, "from the outside to another namespace"),
        (&first, &first, "to itself"),
    ] {
        let (client, server) = from.stream_to(to, 870).context(what)?;
        transfer(
            &client,
            &server,
            Load {
                total: 300_000,
                ..LOAD
            },
        )
        .context(what)?;
        let receiver = to.edp(871)?;
        from.edp(872)?
            .send_to(b"hello", 0, &from.to(to, 871))
            .context(what)?;
        await_events(&receiver, libc::POLLIN).context(what)?;
    }
    quiet(&heard, "the parent")?;
    drop(other);
    Ok(())
}

/// `SO_BINDTODEVICE` restricts both received and sent frames to the device.
fn tied(lab: &Lab) -> Outcome {
    lab.a.namespace.ip("link add link eth0 name mac1 address 02:00:00:00:00:41 type macvlan mode bridge\nlink set mac1 up\n")?;
    let near = Device::ready(&lab.a.namespace, "mac1")?;
    let main = Device::ready(&lab.a.namespace, "eth0")?;
    let far = Device::ready(&lab.b.namespace, "eth0")?;
    let tie =
        |socket: &Socket| socket.set_option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"mac1\0");
    let datagrams = lab.a.edp()?;
    tie(&datagrams)?;
    datagrams.bind(&lab.a.anywhere(875))?;
    let listener = lab.a.esp()?;
    tie(&listener)?;
    listener.bind(&lab.a.anywhere(875))?;
    listener.listen(4)?;
    let sender = far.edp(876)?;
    sender.send_to(b"by eth0", 0, &far.to(&main, 875))?;
    refused(
        lab.b.esp()?.connect(&far.to(&main, 875)),
        libc::ECONNREFUSED,
        "connect by another device",
    )?;
    sender.send_to(b"mac1", 0, &far.to(&near, 875))?;
    receives(&datagrams, b"mac1")?;
    let client = lab.b.esp_connected(&far.to(&near, 875))?;
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)?;
    drop((client, server, listener, datagrams));
    lab.a.namespace.ip("link del mac1\n")
}
