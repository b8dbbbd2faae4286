// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings of a switch, and the commands that build it.

use std::fmt;

use anyhow::{ensure, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::units::{Percent, Rate, Size};

/// The namespace of the switch.
pub const SWITCH: &str = "switch";

/// The device of each host.
pub const DEVICE: &str = "eth0";

/// Bytes of an Ethernet header, which the kernel counts as part of a frame: `ETH_HLEN` of
/// `linux/if_ether.h`.
const HEADER: u32 = 14;

/// Maximum number of hosts. The number of neighbour entries grows with the square of the number of
/// hosts, and a guest's memory is small.
const MOST_HOSTS: i64 = 256;

/// The highest threshold for ECN marks that the queueing discipline `red` accepts, in bytes.
const MOST_ECN: u32 = 512 << 20;

/// Propagation delay of a link. The time to transmit a frame comes in addition.
const CABLE: &str = "1us";

/// Number of frames that may wait for a host's own link. It exceeds the number of frames that a
/// socket can have in flight.
const CABLE_QUEUE: u32 = 100_000;

/// The switch's settings.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Settings {
    /// Number of hosts on the switch, each with a namespace: h0, h1, ...
    #[arg(long, value_name = "NUMBER", default_value_t = 3, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(2..=MOST_HOSTS))]
    pub hosts: u32,

    /// Rate of each port in both directions, without preamble, check sequence and gap of the frames
    #[arg(long, value_name = "RATE", default_value = "200mbit")]
    pub rate: Rate,

    /// Rate at which hosts send to the switch, or `none` for no limit, so that bursts arrive at
    /// once [default: --rate]
    #[arg(long, value_name = "RATE", value_parser = uplink)]
    pub uplink: Option<Uplink>,

    /// Buffer of a port in bytes, a frame at least; a frame that does not fit is dropped
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "128k",
        allow_negative_numbers = true
    )]
    pub buffer: Size,

    /// Share of frames lost at random on each host's link to the switch, percent
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "0",
        allow_negative_numbers = true
    )]
    pub loss: Percent,

    /// Seed of the random losses
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub seed: u64,

    /// Mark frames (ECN, where they allow it) when a port's buffer holds more than this, which is
    /// more than a frame, as DCTCP expects
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub ecn: Option<Size>,

    /// Largest packet without its Ethernet header, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(68..=9000))]
    pub mtu: u32,
}

impl Settings {
    /// Checks that each port passes frames and can mark them.
    ///
    /// # Errors
    /// If the buffer holds no frame, or `tc` refuses the threshold of marks.
    pub fn check(&self) -> Result<()> {
        let frame = self.mtu + HEADER;
        ensure!(
            self.buffer.0 >= frame,
            "--buffer {} holds no frame: at an MTU of {} a frame has {frame} bytes, so give at least {frame}",
            self.buffer,
            self.mtu
        );
        if let Some(threshold) = self.ecn {
            // `red` averages the queue's length over two frames, so the threshold must exceed one
            // frame. It stores twice the average in 31 bits, so the threshold must not exceed
            // `MOST_ECN`.
            ensure!(
                threshold.0 > frame,
                "--ecn {threshold} is too low: at an MTU of {} a frame has {frame} bytes, and marks begin at {} or more",
                self.mtu,
                frame + 1
            );
            ensure!(
                threshold.0 < self.buffer.0,
                "--ecn {threshold} is too high: a port's buffer holds {}, so no frame would be marked",
                self.buffer
            );
            ensure!(
                threshold.0 <= MOST_ECN,
                "--ecn {threshold} is too high: give at most {}",
                Size(MOST_ECN)
            );
        }
        Ok(())
    }

    /// Returns the rate at which hosts send to the switch, if it is limited.
    pub fn sending_rate(&self) -> Option<Rate> {
        match self.uplink {
            None => Some(self.rate),
            Some(Uplink::None) => None,
            Some(Uplink::Rate(rate)) => Some(rate),
        }
    }
}

/// The rate at which hosts may send.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Uplink {
    /// The hosts' rate is not limited.
    None,
    /// Hosts send at most at this rate.
    Rate(Rate),
}

fn uplink(text: &str) -> anyhow::Result<Uplink> {
    match text {
        "none" => Ok(Uplink::None),
        rate => Ok(Uplink::Rate(rate.parse()?)),
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.hosts - 1;
        write!(
            f,
            "hosts h0 to h{last}, 10.0.0.1 to {}, on ports of {} with {} of buffer",
            address(last),
            self.rate,
            self.buffer
        )
    }
}

/// A program of iproute2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `ip`
    Ip,
    /// `bridge`
    Bridge,
    /// `tc`
    Tc,
}

/// Commands that one program runs in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The program to run.
    pub program: Program,
    /// The namespace to run in; `None` for the namespace of this process.
    pub namespace: Option<String>,
    /// The commands, one per line, in the format of `-batch`.
    pub lines: Vec<String>,
}

/// Returns the namespace of host `number`.
pub fn host(number: u32) -> String {
    format!("h{number}")
}

/// Returns the switch's device that leads to host `number`.
pub fn port(number: u32) -> String {
    format!("p{number}")
}

/// Returns the namespaces of a switch with `hosts` hosts.
pub fn namespaces(hosts: u32) -> Vec<String> {
    let mut all: Vec<_> = (0..hosts).map(host).collect();
    all.push(SWITCH.to_owned());
    all
}

/// Returns the IP address of host `number`; the prefix is 16 bits long.
fn address(number: u32) -> String {
    let station = number + 1;
    format!("10.0.{}.{}", station >> 8, station & 0xff)
}

/// Returns the Ethernet address of host `number`: the bytes 02:00:00:00, then the number plus one
/// in two bytes.
fn mac(number: u32) -> String {
    let station = number + 1;
    format!("02:00:00:00:{:02x}:{:02x}", station >> 8, station & 0xff)
}

/// Returns all commands that build the switch, in order.
pub fn steps(settings: &Settings) -> Vec<Step> {
    let names = namespaces(settings.hosts);
    let mut steps = vec![
        Step {
            program: Program::Ip,
            namespace: None,
            lines: names
                .iter()
                .map(|name| format!("netns add {name}"))
                .collect(),
        },
        in_switch(Program::Ip, links(settings)),
        in_switch(Program::Bridge, forwarding(settings)),
        in_switch(Program::Tc, buffers(settings)),
    ];
    for number in 0..settings.hosts {
        let in_host = |program, lines| Step {
            program,
            namespace: Some(host(number)),
            lines,
        };
        steps.push(in_host(Program::Ip, station(settings, number)));
        steps.push(in_host(Program::Tc, vec![cable(settings, number)]));
    }
    steps
}

fn in_switch(program: Program, lines: Vec<String>) -> Step {
    Step {
        program,
        namespace: Some(SWITCH.to_owned()),
        lines,
    }
}

/// Returns the commands for the bridge and its ports. Spanning tree and the ports' own IPv6 are
/// off, so that only the hosts' frames pass.
fn links(settings: &Settings) -> Vec<String> {
    let mtu = settings.mtu;
    let mut lines = vec![
        format!("link add br0 mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"),
        "link set br0 addrgenmode none".to_owned(),
    ];
    for number in 0..settings.hosts {
        let (port, host, mac) = (port(number), host(number), mac(number));
        lines.push(format!(
            "link add {port} mtu {mtu} type veth peer name {DEVICE} mtu {mtu} address {mac} netns {host}"
        ));
        lines.push(format!("link set {port} addrgenmode none"));
        lines.push(format!("link set {port} master br0 up"));
    }
    lines.push("link set br0 up".to_owned());
    lines
}

/// Returns the commands that add a forwarding entry for each host, so that no frame is flooded to
/// other ports.
fn forwarding(settings: &Settings) -> Vec<String> {
    (0..settings.hosts)
        .map(|number| format!("fdb add {} dev {} master static", mac(number), port(number)))
        .collect()
}

/// Returns the commands that set the rate and buffer of each port towards its host.
///
/// `tbf` sends a frame when it has enough tokens, by a high-resolution timer, and its queue counts
/// bytes. It can save up tokens for two frames: the tokens for one frame let it send at all, and
/// the tokens for the other frame make up for a late timer. With marking, the queue is `red`. `red`
/// averages over two frames, the fewest that it supports. Both thresholds are equal, and `nodrop`
/// keeps `red` from dropping frames that fit.
fn buffers(settings: &Settings) -> Vec<String> {
    let Settings { rate, buffer, .. } = settings;
    let (bits, bytes) = (rate.0, buffer.0);
    let frame = settings.mtu + HEADER;
    let burst = 2 * frame;
    let mut lines = Vec::new();
    for number in 0..settings.hosts {
        let port = port(number);
        lines.push(format!(
            "qdisc add dev {port} root handle 1: tbf rate {bits}bit burst {burst} limit {bytes}"
        ));
        if let Some(Size(threshold)) = settings.ecn {
            let packets = threshold / frame + 1;
            lines.push(format!(
                "qdisc add dev {port} parent 1:1 handle 10: red limit {bytes} min {threshold} max {threshold} \
                 avpkt {frame} burst {packets} bandwidth {bits}bit probability 1 ecn nodrop"
            ));
        }
    }
    lines
}

/// Returns the commands for a host: its device, and static neighbour entries of all hosts, so that
/// no host needs ARP.
///
/// `gso_max_segs 1` makes each packet one frame. Otherwise the kernel would pass TCP's data over
/// the link in packets of many frames.
fn station(settings: &Settings, own: u32) -> Vec<String> {
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("link set {DEVICE} addrgenmode none"),
        format!("link set {DEVICE} gso_max_segs 1 up"),
        format!("address add {}/16 dev {DEVICE}", address(own)),
    ];
    let others = (0..settings.hosts).filter(|number| *number != own);
    lines.extend(others.map(|number| {
        format!(
            "neighbour add {} lladdr {} dev {DEVICE} nud permanent",
            address(number),
            mac(number)
        )
    }));
    lines
}

/// Returns the command for the link that a host's frames pass on their way to the switch.
///
/// Like a network card that has sent a frame, `netem` also releases the frame from its socket's
/// account. Otherwise a frame in the switch's buffer would still count as queued in the sender, and
/// TCP would hold back the next frame. A real sender cannot know which frames wait in a switch.
fn cable(settings: &Settings, number: u32) -> String {
    let mut line =
        format!("qdisc add dev {DEVICE} root handle 1: netem limit {CABLE_QUEUE} delay {CABLE}");
    if let Some(rate) = settings.sending_rate() {
        line += &format!(" rate {}bit", rate.0);
    }
    if settings.loss.0 > 0.0 {
        // Each host has a seed of its own. With the same seed, all hosts would lose the same
        // frames.
        let seed = settings.seed.wrapping_add(u64::from(number) << 32);
        line += &format!(" loss random {}% seed {seed}", settings.loss.0);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            hosts: 3,
            rate: Rate(200_000_000),
            uplink: None,
            buffer: Size(131_072),
            loss: Percent(0.0),
            seed: 1,
            ecn: None,
            mtu: 1500,
        }
    }

    #[test]
    fn a_buffer_holds_a_frame_and_marks_begin_above_one() {
        let with = |buffer, ecn: Option<u32>, mtu| Settings {
            buffer: Size(buffer),
            ecn: ecn.map(Size),
            mtu,
            ..settings()
        };
        let refused = |settings: Settings| settings.check().unwrap_err().to_string();
        settings().check().unwrap();
        with(1514, None, 1500).check().unwrap();
        with(18_028, Some(9015), 9000).check().unwrap();
        let error = refused(with(9014, Some(9015), 9000));
        assert!(error.contains("no frame would be marked"), "{error}");
        for buffer in [0, 1, 1513] {
            let error = refused(with(buffer, None, 1500));
            assert!(error.contains("at least 1514"), "{error}");
        }
        for ecn in [0, 1514] {
            let error = refused(with(131_072, Some(ecn), 1500));
            assert!(error.contains("1515 or more"), "{error}");
        }
        let error = refused(with(u32::MAX, Some(u32::MAX - 1), 1500));
        assert!(error.contains("at most 512m"), "{error}");
    }

    #[test]
    fn stations_beyond_one_byte_have_addresses() {
        assert_eq!(
            (address(0), mac(0)),
            ("10.0.0.1".into(), "02:00:00:00:00:01".into())
        );
        assert_eq!(
            (address(255), mac(255)),
            ("10.0.1.0".into(), "02:00:00:00:01:00".into())
        );
    }

    #[test]
    fn buffer_counts_bytes_and_burst_is_two_frames() {
        assert_eq!(
            buffers(&settings())[1],
            "qdisc add dev p1 root handle 1: tbf rate 200000000bit burst 3028 limit 131072"
        );
    }

    #[test]
    fn marking_keeps_the_buffer() {
        let marking = Settings {
            ecn: Some(Size(30_720)),
            ..settings()
        };
        let lines = buffers(&marking);
        assert_eq!(lines.len(), 6);
        assert!(
            lines[1].contains("red limit 131072 min 30720 max 30720"),
            "{}",
            lines[1]
        );
        assert!(lines[1].ends_with("ecn nodrop"), "{}", lines[1]);
    }

    #[test]
    fn cable_has_the_ports_rate_unless_told_otherwise() {
        assert!(cable(&settings(), 0).ends_with("delay 1us rate 200000000bit"));
        let free = Settings {
            uplink: Some(Uplink::None),
            ..settings()
        };
        assert!(cable(&free, 0).ends_with("delay 1us"));
    }

    #[test]
    fn loss_differs_between_hosts() {
        let lossy = Settings {
            loss: Percent(0.05),
            ..settings()
        };
        let [a, b] = [cable(&lossy, 0), cable(&lossy, 1)];
        assert!(a.contains(" loss random 0.05% seed "), "{a}");
        assert_ne!(a, b);
    }

    #[test]
    fn everybody_knows_everybody_else() {
        let lines = station(&settings(), 1);
        let known: Vec<_> = lines
            .iter()
            .filter(|line| line.contains("neighbour"))
            .collect();
        assert_eq!(known.len(), 2);
        assert!(!known.iter().any(|line| line.contains("10.0.0.2 ")));
    }
}
