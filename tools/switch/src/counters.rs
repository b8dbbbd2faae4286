// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads how many frames each port sent, dropped and marked. The numbers come from the counters of
//! the kernel's queues.

use std::fmt;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::plan::{self, Program, Settings};
use crate::programs;
use crate::units::{Percent, Rate, Size};

/// The counters of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The namespace to which the port leads.
    pub host: String,
    /// Bytes of frames sent to the host, with their Ethernet headers.
    pub sent_bytes: u64,
    /// Number of frames sent to the host.
    pub sent_packets: u64,
    /// Number of frames for the host that were dropped because the buffer was full.
    pub dropped_packets: u64,
    /// Number of frames for the host that were marked (ECN).
    pub marked_packets: u64,
    /// Number of frames from the host that were lost at random on the host's link.
    pub lost_packets: u64,
}

/// The settings and the counters of all ports.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The rate of each port, in bits per second.
    pub rate: Rate,
    /// The rate at which each host may send, in bits per second; `None` if it is not limited.
    pub uplink: Option<Rate>,
    /// The size of the buffer of each port, in bytes.
    pub buffer: Size,
    /// The share of frames that are lost on links, in percent.
    pub loss: Percent,
    /// The counters, by host.
    pub ports: Vec<Port>,
}

/// A queue, as printed by `tc -s -j qdisc`.
#[derive(Debug, Deserialize)]
struct Queue {
    kind: String,
    dev: String,
    bytes: u64,
    packets: u64,
    drops: u64,
    #[serde(default)]
    marked: u64,
}

/// Reads the counters, which count from the creation of the switch.
///
/// # Errors
/// If `tc` fails, or a port does not exist.
pub fn read(settings: &Settings) -> Result<Report> {
    let show = ["-s", "-j", "qdisc", "show"];
    let queues: Vec<Queue> = programs::ask(Program::Tc, plan::SWITCH, &show)?;
    let mut ports = Vec::new();
    for number in 0..settings.hosts {
        let mut port = of_port(&queues, number)?;
        // Each query starts a process, so the hosts are queried only if their links can lose
        // frames.
        if settings.loss.0 > 0.0 {
            let queues: Vec<Queue> = programs::ask(Program::Tc, &port.host, &show)?;
            let cable = queues.iter().find(|queue| queue.kind == "netem");
            port.lost_packets = cable.context("a host has lost its cable")?.drops;
        }
        ports.push(port);
    }
    Ok(Report {
        rate: settings.rate,
        uplink: settings.sending_rate(),
        buffer: settings.buffer,
        loss: settings.loss,
        ports,
    })
}

fn of_port(queues: &[Queue], number: u32) -> Result<Port> {
    let device = plan::port(number);
    let of_kind = |kind: &str| {
        queues
            .iter()
            .find(|queue| queue.dev == device && queue.kind == kind)
    };
    let tbf = of_kind("tbf").with_context(|| {
        format!("port {device} has lost its queue: make the switch anew with 'enet-switch down' and 'up'")
    })?;
    Ok(Port {
        host: plan::host(number),
        sent_bytes: tbf.bytes,
        sent_packets: tbf.packets,
        dropped_packets: tbf.drops,
        marked_packets: of_kind("red").map_or(0, |red| red.marked),
        lost_packets: 0,
    })
}

impl Report {
    /// Returns the counts since `baseline`.
    pub fn since(mut self, baseline: &[Port]) -> Self {
        for port in &mut self.ports {
            let Some(then) = baseline.iter().find(|then| then.host == port.host) else {
                continue;
            };
            port.sent_bytes = port.sent_bytes.wrapping_sub(then.sent_bytes);
            port.sent_packets = port.sent_packets.wrapping_sub(then.sent_packets);
            port.dropped_packets = port.dropped_packets.wrapping_sub(then.dropped_packets);
            port.marked_packets = port.marked_packets.wrapping_sub(then.marked_packets);
            port.lost_packets = port.lost_packets.wrapping_sub(then.lost_packets);
        }
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<6} {:>14} {:>12} {:>9} {:>9} {:>9}",
            "host", "sent bytes", "frames", "dropped", "marked", "lost"
        )?;
        for port in &self.ports {
            writeln!(
                f,
                "{:<6} {:>14} {:>12} {:>9} {:>9} {:>9}",
                port.host,
                port.sent_bytes,
                port.sent_packets,
                port.dropped_packets,
                port.marked_packets,
                port.lost_packets
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUES: &str = r#"[
        {"kind":"noqueue","handle":"0:","dev":"br0","root":true,"refcnt":2,"options":{},"bytes":0,"packets":0,
         "drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0},
        {"kind":"tbf","handle":"1:","dev":"p0","root":true,"refcnt":2,"options":{"rate":25000000},"bytes":1514,
         "packets":1,"drops":7,"overlimits":0,"requeues":0,"backlog":0,"qlen":0},
        {"kind":"red","handle":"10:","dev":"p0","parent":"1:1","options":{},"bytes":1514,"packets":1,"drops":7,
         "overlimits":3,"requeues":0,"backlog":0,"qlen":0,"marked":3,"early":0,"pdrop":7,"other":0}]"#;

    #[test]
    fn counters_are_those_of_the_ports_own_queues() {
        let queues: Vec<Queue> = serde_json::from_str(QUEUES).unwrap();
        let port = of_port(&queues, 0).unwrap();
        let wanted = Port {
            host: "h0".to_owned(),
            sent_bytes: 1514,
            sent_packets: 1,
            dropped_packets: 7,
            marked_packets: 3,
            lost_packets: 0,
        };
        assert_eq!(port, wanted);
        assert!(of_port(&queues, 1).is_err());
    }

    #[test]
    fn reset_counts_from_zero() {
        let port = |dropped_packets| Port {
            host: "h0".to_owned(),
            dropped_packets,
            ..Port::default()
        };
        let report = Report {
            rate: Rate(1_000_000),
            uplink: None,
            buffer: Size(1),
            loss: Percent(0.0),
            ports: vec![port(9)],
        };
        assert_eq!(report.since(&[port(4)]).ports, [port(5)]);
    }
}
