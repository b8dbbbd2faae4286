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
    /// Returns the client's device and the server's.
    fn devices(self) -> [&'static str; 2] {
        match self {
            Self::Virtio | Self::VirtioJoined => ["eth0", "eth1"],
            _ => ["veth0", "veth0"],
        }
    }

    /// Returns the options with which netgauge's client reaches the server (see `guest/init`).
    pub fn to_server(self) -> String {
        let [device, _] = self.devices();
        let address = match self {
            Self::Virtio | Self::VirtioJoined => "10.0.1.2",
            _ => "10.0.0.2",
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
            Self::Cut => [CUT, "gro off"],
            Self::Joined | Self::SummedJoined => [CUT, "gro on"],
            // Only GRO is set, because the guest's virtio-net devices cannot segment packets.
            Self::Virtio => ["gro off"; 2],
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
        if matches!(self, Self::Virtio | Self::VirtioJoined) {
            commands = format!("{VIRTIO} && {commands}");
        }
        let ended = guest.ask(&format!("! {commands}"))?;
        ensure!(ended.status == 0, "setting up {self:?}: {}", ended.text);
        Ok(())
    }
}
