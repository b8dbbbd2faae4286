// SPDX-License-Identifier: GPL-2.0-only

//! A mask is a number that is XORed into the checksums of ESP's packets. It is different for each
//! connection, and changes when sequence numbers wrap. So a frame of an earlier connection or wrap
//! has a different mask, and is dropped. Packets keep their masks when they are merged into runs
//! (several packets in one buffer), cut out of runs, and forwarded.

use super::esp_cookies::await_cookies;
use guest::address::ESP_SO_CHECKSUM;
use guest::frame::ETH_P_ALL;
use guest::patience::factor;
use guest::prelude::*;
use guest::relay::Mode;

scenarios! {
    direct masks_have_frames_of_an_earlier_wrap_dropped = earlier_wrap, within(120);
    direct masks_have_frames_of_an_earlier_connection_dropped = earlier_connection, within(180);
    direct masks_change_with_the_wraps_of_runs = runs_across_wraps, within(120);
    direct masks_are_not_used_behind_a_cookie = behind_a_cookie;
    switched masks_do_not_hide_that_the_peer_has_forgotten = forgotten;
    guest masks_are_kept_by_a_bridge_that_forwards_runs = bridge, within(120);
    direct masks_are_kept_within_a_tunnel_with_checksums = tunnel, within(120);
}

/// A small MTU, so that sequence numbers wrap after few bytes.
const SMALL_MTU: u32 = 128;
/// The number of payload bytes of a full packet with a checksum, at [`SMALL_MTU`].
const SMALL: usize = 113;

/// Returns a connection with checksums to `port`. The client's port is `own`, or any port if `own`
/// is 0.
fn pair(lab: &Lab, own: u16, port: u16) -> Result<[Socket; 2]> {
    let listener = lab.b.esp_listener(port, 1)?;
    let client = lab.a.esp()?;
    client.set_int_option(SOL_EP, ESP_SO_CHECKSUM, 1)?;
    if own != 0 {
        client.bind(&lab.a.here(own))?;
    }
    client.connect(&lab.a.to(&lab.b, port)).context("connect")?;
    let (server, _) = listener.accept(0).context("accept")?;
    Ok([client, server])
}

/// Sends `message`, which fits one packet. Returns the frame that arrives at the receiver's host
/// `at`.
fn frame_of(at: &Host, from: &Socket, to: &Socket, message: &[u8]) -> Result<Vec<u8>> {
    let ear = at.packets(ETH_P_ESP)?;
    from.send_all(message)?;
    let frame = ear.wait_for(patience(), |frame| {
        EspHeader::of_frame(frame).is_some_and(|header| header.length == message.len() as u16)
    })?;
    comes_next(to, message)?;
    Ok(frame)
}

/// Sends packets from `from` until the next packet will have the sequence number `number`.
fn advance(at: &Host, from: &Socket, to: &Socket, number: u16) -> Outcome {
    let frame = frame_of(at, from, to, b"where")?;
    let last = EspHeader::of_frame(&frame).context("no ESP")?.sequence;
    let packets = number.wrapping_sub(last.wrapping_add(1));
    let bytes = random(usize::from(packets) * SMALL, 5);
    let mut got = vec![0; bytes.len()];
    beside(
        || Ok(from.send_all(&bytes)?),
        || Ok(to.receive_exact(&mut got)?),
    )?;
    ensure!(got == bytes, "other bytes came");
    Ok(())
}

/// Sends the old `frame` again when the receiver expects its sequence number. The receiver must
/// drop the frame, and accept the packet that is sent after it.
fn repeat(lab: &Lab, frame: &[u8], client: &Socket, server: &Socket) -> Outcome {
    let before = lab.b.counter("EspInCsumErrors")?;
    lab.a.packets(ETH_P_ESP)?.send(frame)?;
    let fresh = frame_of(&lab.b, client, server, b"fresh")?;
    let number = |frame: &[u8]| EspHeader::of_frame(frame).map(|header| header.sequence);
    same(
        number(&fresh),
        number(frame),
        "the number of the frame that came next",
    )?;
    let wrong = lab.b.counter("EspInCsumErrors")? - before;
    same(wrong, 1, "frames with wrong checksums")
}

fn earlier_wrap(lab: &Lab) -> Outcome {
    lab.set_mtu(SMALL_MTU)?;
    let [client, server] = pair(lab, 0, 950)?;
    let stale = frame_of(&lab.b, &client, &server, b"stale!")?;
    let header = EspHeader::of_frame(&stale).context("no ESP")?;
    advance(&lab.b, &client, &server, header.sequence)?;
    repeat(lab, &stale, &client, &server)?;
    transfer_both_ways(&client, &server, Load::SMALL)
}

fn earlier_connection(lab: &Lab) -> Outcome {
    lab.set_mtu(SMALL_MTU)?;
    let [client, server] = pair(lab, 952, 951)?;
    let stale = frame_of(&lab.b, &client, &server, b"stale!")?;
    let header = EspHeader::of_frame(&stale).context("no ESP")?;
    client.set_linger(Some(0))?;
    drop((client, server));
    lab.a.await_no_sockets()?;
    lab.b.await_no_sockets()?;
    let [client, server] = pair(lab, 952, 951)?;
    advance(&lab.a, &server, &client, header.acknowledgement)?;
    advance(&lab.b, &client, &server, header.sequence)?;
    repeat(lab, &stale, &client, &server)?;
    transfer_both_ways(&client, &server, Load::SMALL)
}

/// Sequence numbers wrap during each of three transfers. In the first, runs (several packets in one
/// buffer) arrive whole. In the second, they are cut for the sender's device. In the third, the
/// receiver's device merges packets into runs.
fn runs_across_wraps(lab: &Lab) -> Outcome {
    lab.set_mtu(SMALL_MTU)?;
    // Sequence numbers wrap after 65,536 packets: twice here, or once on a slow kernel.
    let packets = if factor() == 1 { 150_000 } else { 80_000 };
    type Features<'a> = &'a [(&'a Host, &'a str, &'a str)];
    let ways: [(u16, Features<'_>); 3] = [
        (953, &[]),
        (954, &[(&lab.a, "tx-sctp-segmentation", "off")]),
        (955, &[(&lab.a, "tso", "off"), (&lab.b, "gro", "on")]),
    ];
    for (port, features) in ways {
        for (host, feature, value) in features {
            host.namespace
                .run("ethtool", &["-K", DEVICE, feature, value])?;
        }
        let [client, server] = pair(lab, 0, port)?;
        let bytes = random(packets * SMALL, 6);
        let mut got = vec![0; bytes.len()];
        beside(
            || Ok(client.send_all(&bytes)?),
            || Ok(server.receive_exact(&mut got)?),
        )?;
        ensure!(got == bytes, "other bytes came");
        let wrong = lab.a.counter("EspInCsumErrors")? + lab.b.counter("EspInCsumErrors")?;
        same(wrong, 0, &format!("wrong checksums with {features:?}"))?;
    }
    Ok(())
}

/// A cookie has no room for the nonce from which the masks are computed, so the connection's
/// checksums have no masks.
fn behind_a_cookie(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(956, 1)?;
    let wire = lab.a.packets(ETH_P_ESP)?;
    await_cookies(&lab.b, &wire, 956)?;
    let client = lab.a.esp()?;
    client.set_int_option(SOL_EP, ESP_SO_CHECKSUM, 1)?;
    client.connect(&lab.a.to(&lab.b, 956)).context("connect")?;
    client.send_all(b"first")?;
    let (server, _) = listener.accept(0).context("accept")?;
    comes_next(&server, b"first")?;
    let frame = frame_of(&lab.b, &client, &server, b"plain!")?;
    let header = EspHeader::of_frame(&frame).context("no ESP")?;
    same(header.mask_in(&frame), Some(0), "the mask")?;
    transfer_both_ways(&client, &server, Load::SMALL)
}

/// Ends the client's connection. No packet about this reaches the server.
fn forget(lab: &Lab, client: Socket) -> Outcome {
    lab.relay().set_mode(Mode::Cut);
    client.set_linger(Some(0))?;
    drop(client);
    lab.a.await_no_sockets()?;
    lab.relay().settle()?;
    lab.relay().set_mode(Mode::Forward);
    Ok(())
}

/// A host that has forgotten a connection does not know the connection's masks. The peer still
/// accepts a reset from that host. A server also accepts a new SYN from a client that has forgotten
/// the old connection.
fn forgotten(lab: &Lab) -> Outcome {
    let [client, server] = pair(lab, 958, 957)?;
    exchange(&client, &server)?;
    forget(lab, client)?;
    server.send_all(b"for nobody")?;
    let received = server.receive(&mut [0; 8], 0);
    refused(received, libc::ECONNRESET, "a host that has forgotten")?;
    drop(server);
    lab.b.await_no_sockets()?;

    let [client, server] = pair(lab, 958, 957)?;
    exchange(&client, &server)?;
    forget(lab, client)?;
    let [again, other] = pair(lab, 958, 957).context("a client that comes back")?;
    let received = server.receive(&mut [0; 8], 0);
    refused(received, libc::ECONNRESET, "what the client has forgotten")?;
    exchange(&again, &other)
}

/// Returns the number of frames with several packets that the packet socket `ear` has received, and
/// the number of all frames.
fn runs(ear: &PacketSocket) -> (u32, u32) {
    let (mut runs, mut frames) = (0, 0);
    let mut bytes = vec![0; 1 << 17];
    while let Ok(length) = ear.take(&mut bytes) {
        runs += u32::from(length > 1514);
        frames += 1;
    }
    (runs, frames)
}

/// Makes a host at a bridge. The bridge's port merges the packets that arrive from the host (GRO).
fn at_port(hub: &Netns, number: u8) -> Result<Host> {
    let (host, port) = (Netns::create()?, format!("p{number}"));
    let mac = [2, 0, 0, 0, 0, number];
    hub.add_veth((&port, None), ((DEVICE, Some(mac)), &host))?;
    hub.ip(&format!("link set {port} master br0\nlink set {port} up\n"))?;
    hub.run("ethtool", &["-K", &port, "gro", "on"])?;
    host.ip("link set lo up\nlink set eth0 up\n")?;
    let host = Host::named(host, mac)?;
    host.namespace.await_carrier(host.ifindex)?;
    Ok(host)
}

/// Single packets arrive at a bridge, which merges them into runs. The runs leave the bridge whole,
/// or are cut again.
fn bridge() -> Outcome {
    let hub = Netns::create()?;
    hub.ip("link add br0 type bridge\nlink set br0 up\n")?;
    let (a, b) = (at_port(&hub, 1)?, at_port(&hub, 2)?);
    send_single_packets(&a.namespace)?;
    // A veth device does no GRO for packets of a peer that segments TCP.
    a.namespace.run("ethtool", &["-K", DEVICE, "tso", "off"])?;
    for (port, whole) in [(960, "on"), (961, "off")] {
        hub.run("ethtool", &["-K", "p2", "tx-sctp-segmentation", whole])?;
        let listener = b.esp_listener(port, 1)?;
        let client = a.esp()?;
        client.set_int_option(SOL_EP, ESP_SO_CHECKSUM, 1)?;
        client.connect(&a.to(&b, port)).context("connect")?;
        let (server, _) = listener.accept(0)?;
        let [within, at_b] = [
            PacketSocket::open(&hub, "p1", ETH_P_ALL)?,
            b.packets(ETH_P_ESP)?,
        ];
        transfer(&client, &server, Load::of(4 << 20, 100_000, 7))?;
        let (joined, frames) = runs(&within);
        ensure!(
            joined * 4 > frames,
            "the bridge joined {joined} of {frames}"
        );
        let (arrived, frames) = runs(&at_b);
        ensure!(
            (arrived > 0) == (whole == "on"),
            "{arrived} runs of {frames} came, whole {whole}"
        );
        let wrong = a.counter("EspInCsumErrors")? + b.counter("EspInCsumErrors")?;
        same(wrong, 0, &format!("wrong checksums, whole {whole}"))?;
    }
    Ok(())
}

/// A packet that arrives through a tunnel has two validated checksums: the tunnel's outer checksum,
/// and the packet's own. When the tunnel's headers are removed, the packet's own checksum must be
/// the only one that counts as validated.
fn tunnel(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    for (host, own, other) in [(&lab.a, 1, 2), (&lab.b, 2, 1)] {
        host.namespace
            .run("ethtool", &["-K", DEVICE, "tso", "off", "gro", "on"])?;
        host.namespace.ip(&format!(
            "link add vx0 address 02:00:00:00:01:0{own} type vxlan id 42 dstport 4789 dev eth0 \
             local 10.0.0.{own} remote 10.0.0.{other} udpcsum\nlink set vx0 up\n"
        ))?;
        host.namespace
            .run("ethtool", &["-K", "vx0", "tx-sctp-segmentation", "off"])?;
    }
    let near = Device::ready(&lab.a.namespace, "vx0")?;
    let far = Device::ready(&lab.b.namespace, "vx0")?;
    let listener = far.listener(962)?;
    let client = near.namespace.within(Socket::esp)??;
    client.set_int_option(SOL_EP, ESP_SO_CHECKSUM, 1)?;
    client.connect(&near.to(&far, 962)).context("connect")?;
    let (server, _) = listener.accept(0)?;
    let ear = PacketSocket::open(&lab.b.namespace, "vx0", ETH_P_ESP)?;
    transfer_both_ways(&client, &server, Load::of(1 << 20, 100_000, 8))?;
    let (joined, frames) = runs(&ear);
    ensure!(joined > 0, "none of {frames} frames was joined");
    let wrong = lab.a.counter("EspInCsumErrors")? + lab.b.counter("EspInCsumErrors")?;
    same(wrong, 0, "wrong checksums")
}
