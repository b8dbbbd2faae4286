// SPDX-License-Identifier: GPL-2.0

//! Tests streams in encapsulated frames: tunnels, labels, tags. Each encapsulation runs over a
//! device that segments everything, over one with the offloads of common cards, and over one
//! without offloads.

use guest::harness::remark;
use guest::patience::factor;
use guest::prelude::*;
use guest::processor;

use super::macsec;

/// How the frames of a stream are wrapped.
#[derive(Debug)]
enum Encapsulation {
    /// The device `in0` wraps the frames. These lines for `ip` create it on each host. `OWN` and
    /// `OTHER` stand for the numbers of the host and of its peer.
    Device(&'static str),
    /// Traffic control pushes a label onto each frame that leaves, and pops it from each frame that
    /// arrives.
    Label,
    /// MACsec encrypts the frames.
    Secured,
}

const VXLAN: Encapsulation = Encapsulation::Device(
    "link add in0 address 02:00:00:00:01:0OWN type vxlan id 42 dstport 4789 dev eth0 \
     local 10.0.0.OWN remote 10.0.0.OTHER\n",
);
const VXLAN_WITHOUT_SUMS: Encapsulation = Encapsulation::Device(
    "link add in0 address 02:00:00:00:01:0OWN type vxlan id 42 dstport 4789 dev eth0 \
     local 10.0.0.OWN remote 10.0.0.OTHER noudpcsum\n",
);
const GENEVE: Encapsulation = Encapsulation::Device(
    "link add in0 address 02:00:00:00:01:0OWN type geneve id 42 remote 10.0.0.OTHER\n",
);
const GRETAP: Encapsulation = Encapsulation::Device(
    "link add in0 address 02:00:00:00:01:0OWN type gretap local 10.0.0.OWN remote 10.0.0.OTHER\n",
);
const GRETAP_WITH_SUMS: Encapsulation = Encapsulation::Device(
    "link add in0 address 02:00:00:00:01:0OWN type gretap local 10.0.0.OWN remote 10.0.0.OTHER csum\n",
);
const IP6GRETAP: Encapsulation = Encapsulation::Device(
    "link add in0 address 02:00:00:00:01:0OWN type ip6gretap local fd00::OWN remote fd00::OTHER\n",
);
const QINQ: Encapsulation = Encapsulation::Device(
    "link add link eth0 name out0 type vlan proto 802.1ad id 10\nlink set out0 up\n\
     link add link out0 name in0 type vlan id 20\n",
);

/// The packets that a host's device segments by itself.
#[derive(Clone, Copy, Debug)]
enum Offloads {
    /// The device segments everything, like a veth pair.
    All,
    /// The device segments packets of tunnels, but not packets of SCTP or ESP. Both protocols need
    /// the device's feature `tx-sctp-segmentation`.
    Common,
    /// The device has no offloads. It segments nothing, computes no checksums, and accepts only
    /// packets whose bytes are contiguous.
    None,
}

impl Offloads {
    /// Returns the arguments of `ethtool -K DEVICE`.
    const fn features(self) -> &'static [&'static str] {
        // A veth device does no GRO for packets of a peer that segments TCP.
        match self {
            Self::All => &[],
            Self::Common => &["tx-sctp-segmentation", "off", "tso", "off"],
            Self::None => &[
                "tx-sctp-segmentation",
                "off",
                "tx-udp_tnl-segmentation",
                "off",
                "tx-udp_tnl-csum-segmentation",
                "off",
                "tx-gre-segmentation",
                "off",
                "tx-gre-csum-segmentation",
                "off",
                "tx",
                "off",
                "sg",
                "off",
                "tso",
                "off",
                "txvlan",
                "off",
                "rxvlan",
                "off",
            ],
        }
    }
}

macro_rules! table {
    ($($name:literal = $encapsulation:ident;)*) => {
        /// Scenarios of each encapsulation over each kind of device.
        pub const TABLE: &[Scenario] = &[$(
            Scenario::direct(
                concat!("streams_in_", $name, "_over_a_device_with_all_offloads"),
                |lab| clean(lab, &$encapsulation, Offloads::All),
            ),
            Scenario::direct(
                concat!("streams_in_", $name, "_over_a_common_card"),
                |lab| clean(lab, &$encapsulation, Offloads::Common),
            ),
            Scenario::direct(
                concat!("streams_in_", $name, "_over_a_device_without_offloads"),
                |lab| clean(lab, &$encapsulation, Offloads::None),
            ),
        )*];
    };
}

const LABEL: Encapsulation = Encapsulation::Label;
const MACSEC: Encapsulation = Encapsulation::Secured;

table! {
    "vxlan" = VXLAN;
    "vxlan_without_sums" = VXLAN_WITHOUT_SUMS;
    "geneve" = GENEVE;
    "gretap" = GRETAP;
    "gretap_with_sums" = GRETAP_WITH_SUMS;
    "ip6gretap" = IP6GRETAP;
    "mpls" = LABEL;
    "qinq" = QINQ;
    "macsec" = MACSEC;
}

scenarios! {
    direct packets_of_a_labelled_run_have_their_own_headers = labelled;
    direct runs_out_of_a_tunnel_are_cut_behind_a_bridge = bridged;
}

const PORT: u16 = 880;

/// Two loads. Each send call of the first load fills several packets, and each of the second fits
/// one packet.
const LOADS: [Load; 2] = [Load::of(1 << 20, 40_000, 880), Load::of(1 << 18, 700, 881)];

/// Returns `lines` for the host with the number `own`, whose peer has the number `other`.
fn lines_of(lines: &str, own: u8, other: u8) -> String {
    let lines = lines.replace("OWN", &own.to_string());
    lines.replace("OTHER", &other.to_string())
}

/// Gives both hosts IPv4 and IPv6 addresses, with permanent neighbour entries.
fn give_addresses(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    lab.give_ip6_addresses()?;
    lab.give_ip6_neighbours()
}

/// Sets features of a device.
fn set(host: &Host, device: &str, features: &[&str]) -> Outcome {
    let arguments = [&["-K", device], features].concat();
    host.namespace.run("ethtool", &arguments).map(drop)
}

/// Makes traffic control push a label onto the ESP frames that leave `host`, and pop it from the
/// ESP frames that arrive.
fn label(host: &Host) -> Outcome {
    // Load `mpls_gso`, a soft dependency of `act_mpls` that not every system records.
    guest::netns::finish(Command::new("modprobe").arg("mpls_gso"), "")?;
    let esp = format!("{ETH_P_ESP:#06x}");
    let tc = |line: String| {
        let words: Vec<_> = line.split_whitespace().collect();
        host.namespace.run("tc", &words).map(drop)
    };
    tc(format!("qdisc add dev {DEVICE} clsact"))?;
    tc(format!(
        "filter add dev {DEVICE} egress protocol {esp} matchall action mpls push protocol mpls_uc label 5"
    ))?;
    tc(format!(
        "filter add dev {DEVICE} ingress protocol mpls_uc matchall action mpls pop protocol {esp}"
    ))
}

impl Encapsulation {
    /// Sets the encapsulation up on both hosts. Returns the name of the device that streams use.
    fn set_up(&self, lab: &Lab) -> Result<&'static str> {
        Ok(match self {
            Self::Device(lines) => {
                give_addresses(lab)?;
                for (host, own, other) in [(&lab.a, 1, 2), (&lab.b, 2, 1)] {
                    host.namespace.ip(&lines_of(lines, own, other))?;
                    // A gretap has a queue. When a processor sends a frame, it also sends the
                    // queued frames of another processor, so frames may get out of order. A single
                    // neighbour solicitation or multicast report from a worker has this effect. So
                    // the device gets no queue.
                    host.namespace
                        .ip("link set in0 addrgenmode none\nlink set in0 up\n")?;
                    let without = ["qdisc", "replace", "dev", "in0", "root", "noqueue"];
                    host.namespace.run("tc", &without)?;
                }
                "in0"
            }
            Self::Label => {
                label(&lab.a)?;
                label(&lab.b)?;
                DEVICE
            }
            Self::Secured => {
                macsec::secure_both(lab)?;
                "sec0"
            }
        })
    }
}

/// Sets the protocol's timers so high that even a busy machine causes no retransmission.
fn wait_long(host: &Host) -> Outcome {
    let knobs = Knobs(&host.namespace);
    knobs.set("retransmission_time_min", 1_000_000)?;
    knobs.set("round_trip_time", 1_000_000)
}

/// Moves all loads both ways, and checks that no packet is lost, overtakes another or is
/// retransmitted. In the debug kernel an acknowledgement may take so long that a timer retransmits
/// a packet; then the packet must arrive twice.
fn transfer_clean(near: &Device<'_>, far: &Device<'_>) -> Outcome {
    for (number, load) in LOADS.into_iter().enumerate() {
        let (client, server) = near.stream_to(far, PORT + number as u16)?;
        transfer_both_ways(&client, &server, load)?;
        let ends = [client.esp_counters()?, server.esp_counters()?];
        let [a, b] = &ends;
        let in_order = ends.iter().all(|end| end.seq_lost == 0 && end.arq_tx == 0);
        let none_lost = a.pkt_rtx == b.pkt_rx_oos && b.pkt_rtx == a.pkt_rx_oos;
        ensure!(
            in_order && none_lost,
            "{} bytes a call: {ends:?}",
            load.chunk
        );
        if a.pkt_rtx + b.pkt_rtx > 0 {
            ensure!(factor() > 1, "{} bytes a call: {ends:?}", load.chunk);
            remark(&format!("the timer sent again: {ends:?}"));
        }
    }
    Ok(())
}

fn clean(lab: &Lab, encapsulation: &Encapsulation, offloads: Offloads) -> Outcome {
    // Use one processor. Tunnels and MACsec queue received frames on each processor separately, so
    // frames of two processors could overtake each other.
    let _alone = processor::alone()?;
    for host in [&lab.a, &lab.b] {
        wait_long(host)?;
    }
    let name = encapsulation.set_up(lab)?;
    for host in [&lab.a, &lab.b] {
        if !offloads.features().is_empty() {
            set(host, DEVICE, offloads.features())?;
        }
    }
    let near = Device::ready(&lab.a.namespace, name)?;
    let far = Device::ready(&lab.b.namespace, name)?;
    transfer_clean(&near, &far).context("as devices are by default")?;
    for gro in ["off", "on"] {
        for host in [&lab.a, &lab.b] {
            set(host, DEVICE, &["gro", gro])?;
            set(host, name, &["gro", gro])?;
        }
        transfer_clean(&near, &far).with_context(|| format!("GRO {gro}"))?;
    }
    for host in [&lab.a, &lab.b] {
        Knobs(&host.namespace).set("checksum", 1)?;
    }
    transfer_clean(&near, &far).context("GRO on, with checksums")
}

/// The frame that the driver gets must begin with the outermost header, and not with stale bytes of
/// the buffer.
fn labelled(lab: &Lab) -> Outcome {
    const PACKETS: usize = 6;
    label(&lab.a)?;
    label(&lab.b)?;
    let (client, server) = lab.esp_pair(PORT)?;
    send_single_packets(&lab.a.namespace)?;
    let wire = lab.b.packets(guest::frame::ETH_P_ALL)?;
    client.send_all(&[7; 10_000])?;
    let mut begin = ethernet(lab.b.mac, lab.a.mac, 0x8847, &[]);
    // The packet has one label. Its bottom-of-stack bit, the last bit of these bytes, is set.
    begin.extend_from_slice(&[0, 0, 0x51]);
    for number in 0..PACKETS {
        let frame = wire.wait_for(patience(), |frame| frame.len() > 1000)?;
        ensure!(
            frame.starts_with(&begin),
            "packet {number} begins with {:02x?}, not {begin:02x?}",
            &frame[..begin.len()]
        );
    }
    let mut there = vec![0; 10_000];
    server.receive_exact(&mut there)?;
    ensure!(there == [7; 10_000], "other bytes came");
    Ok(())
}

/// In this test a run (several packets in one buffer) leaves the tunnel with a validated checksum.
/// Then the run is sent by a device that takes only single packets.
fn bridged(lab: &Lab) -> Outcome {
    let Encapsulation::Device(lines) = &VXLAN else {
        bail!("no device");
    };
    give_addresses(lab)?;
    for (host, own, other) in [(&lab.a, 1, 2), (&lab.b, 2, 1)] {
        host.namespace.ip(&lines_of(lines, own, other))?;
        host.namespace.ip("link set in0 up\n")?;
    }
    let behind = Netns::create()?;
    let place = behind.path();
    lab.b.namespace.ip(&format!(
        "link add port0 mtu 1450 type veth peer name {DEVICE} mtu 1450 netns {place}\n\
         link add br0 type bridge\nlink set br0 up\nlink set in0 master br0\n\
         link set port0 master br0\nlink set port0 up\n"
    ))?;
    behind.ip(&format!("link set {DEVICE} up\n"))?;
    let single = ["tx-sctp-segmentation", "off"];
    set(&lab.b, "port0", &single)?;
    let near = Device::ready(&lab.a.namespace, "in0")?;
    let far = Device::ready(&behind, DEVICE)?;
    eventually("the bridge forwards", || {
        let state = lab.b.namespace.run("bridge", &["link", "show"])?;
        Ok(state.matches("state forwarding").count() == 2)
    })?;
    let (client, server) = near.stream_to(&far, PORT)?;
    transfer_both_ways(&client, &server, LOADS[0])
}
