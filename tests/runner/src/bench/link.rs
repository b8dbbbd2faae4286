// SPDX-License-Identifier: GPL-2.0-only

//! Sets up the link between the two hosts of the benchmark, and chooses whether its devices cut and
//! join large packets.

use anyhow::{ensure, Result};

use crate::commands::Commands;
use crate::qemu::Wire;

/// A kind of link between client and server. In streams, the client is the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Link {
    /// A veth pair with the default settings, which passes a large packet whole.
    Usual,
    /// A veth pair with the default settings, except for an MTU of 9000.
    Jumbo,
    /// A veth pair for which the kernel cuts large packets in software, as for a device without
    /// segmentation offload.
    Cut,
    /// Like `Cut`, but the receiver joins the packets again (GRO).
    Joined,
    /// Like `Usual`, but ESP has checksums.
    Summed,
    /// Like `Joined`, but ESP has checksums.
    SummedJoined,
    /// Two virtio-net devices without offloads, between which QEMU passes frames.
    Virtio,
    /// Like `Virtio`, but the receiver joins packets.
    VirtioJoined,
    /// Like `Cut`, but one packet of a thousand is lost.
    Lossy,
    /// Like `Cut`, but one packet of a hundred is late, so that others overtake it.
    Late,
    /// Like `Virtio`, with the losses of `Lossy`.
    VirtioLossy,
    /// Like `Virtio`, with the late packets of `Late`.
    VirtioLate,
}

/// The wire between two devices of the guest, which `Virtio` and `VirtioJoined` use.
pub const WIRE: Wire = Wire::Within(["02:00:00:00:01:01", "02:00:00:00:01:02"]);

/// Gives each host one of the virtio-net devices, unless the hosts already have them.
const VIRTIO: &str = "{ ip -n b link show eth1 >/dev/null 2>&1 || { modprobe virtio_pci && modprobe virtio_net && \
    for try in $(seq 100); do [ -e /sys/class/net/eth0 ] && [ -e /sys/class/net/eth1 ] && break; usleep 100000; done; \
    ip link set eth0 netns a && ip link set eth1 netns b && \
    ip -n a address add 10.0.1.1/24 dev eth0 && ip -n b address add 10.0.1.2/24 dev eth1 && \
    ip -n a link set eth0 up && ip -n b link set eth1 up && sleep 3; }; }";

impl Link {
    /// Returns whether the hosts have virtio-net devices.
    fn is_virtio(self) -> bool {
        matches!(
            self,
            Self::Virtio | Self::VirtioJoined | Self::VirtioLossy | Self::VirtioLate
        )
    }

    /// Returns the client's device and the server's.
    fn devices(self) -> [&'static str; 2] {
        if self.is_virtio() {
            ["eth0", "eth1"]
        } else {
            ["veth0", "veth0"]
        }
    }

    /// Returns the options with which netgauge's client reaches the server (see `guest/init`).
    pub fn to_server(self) -> String {
        let [device, _] = self.devices();
        let address = if self.is_virtio() {
            "10.0.1.2"
        } else {
            "10.0.0.2"
        };
        format!("--connect {address} --interface {device}")
    }

    /// Returns netgauge's arguments that name both ends, for a process that runs client and server
    /// (see `guest/init`).
    pub fn ends(self) -> String {
        let [client, server] = self.devices();
        format!("a/{client} b/{server}")
    }

    /// Returns the arguments of `ethtool -K` at the sender and at the receiver.
    fn features(self) -> [&'static str; 2] {
        const WHOLE: &str = "tso on gso on tx-sctp-segmentation on";
        const CUT: &str = "tso off gso off tx-sctp-segmentation off";
        match self {
            Self::Usual | Self::Jumbo | Self::Summed => [WHOLE, "gro off"],
            Self::Cut | Self::Lossy | Self::Late => [CUT, "gro off"],
            Self::Joined | Self::SummedJoined => [CUT, "gro on"],
            // Only GRO is set, because the guest's virtio-net devices cannot segment packets.
            Self::Virtio | Self::VirtioLossy | Self::VirtioLate => ["gro off"; 2],
            Self::VirtioJoined => ["gro on"; 2],
        }
    }

    fn mtu(self) -> u32 {
        match self {
            Self::Jumbo => 9000,
            _ => 1500,
        }
    }

    /// Returns the value of `esp.checksum`.
    fn checksum(self) -> u8 {
        matches!(self, Self::Summed | Self::SummedJoined).into()
    }

    /// Returns the faults of the link from the client to the server, as arguments of netem.
    fn faults(self) -> Option<&'static str> {
        match self {
            Self::Lossy | Self::VirtioLossy => Some("loss 0.1%"),
            // netem sends 99 % of the packets at once, and the others after the delay.
            Self::Late | Self::VirtioLate => Some("delay 20us reorder 99%"),
            _ => None,
        }
    }

    /// Sets up both hosts' devices, and turns ESP's checksums on or off.
    ///
    /// # Errors
    /// If the guest ends, or a device does not support the settings.
    pub fn set_up(self, guest: &mut Commands) -> Result<()> {
        let [client, server] = self.devices();
        let [sender, receiver] = self.features();
        let (mtu, checksum) = (self.mtu(), self.checksum());
        let each = [("a", client, sender), ("b", server, receiver)].map(|(host, device, features)| {
            format!(
                "ip netns exec {host} ethtool -K {device} {features} && ip -n {host} link set {device} mtu {mtu} && \
                 ip netns exec {host} sh -c 'echo {checksum} > /proc/sys/esp/checksum'"
            )
        });
        let mut commands = each.join(" && ");
        if self.is_virtio() {
            commands = format!("{VIRTIO} && {commands}");
        }
        // Remove the faults of the link before, if it had any.
        commands += &format!(" && {{ tc -n a qdisc del dev {client} root 2>/dev/null || true; }}");
        if let Some(faults) = self.faults() {
            let netem = format!("netem limit 10000 {faults}");
            commands += &format!(" && tc -n a qdisc add dev {client} root {netem}");
        }
        let ended = guest.ask(&format!("! {commands}"))?;
        ensure!(ended.status == 0, "setting up {self:?}: {}", ended.text);
        Ok(())
    }
}
