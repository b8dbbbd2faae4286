// SPDX-License-Identifier: GPL-2.0-only

//! Makes many hosts on a switch, by the program `enet-switch`. Each port of the switch has a rate
//! and a small buffer.

use serde::Deserialize;

use crate::netns::finish;
use crate::prelude::*;

/// The switch and its hosts, which are removed when this value is dropped.
#[derive(Debug)]
pub struct Switch {
    /// The hosts, 10.0.0.1 and so on.
    pub hosts: Vec<Host>,
}

/// The counters of a port, as `enet-switch drops --json` prints them.
#[derive(Clone, Debug, Deserialize)]
pub struct Port {
    /// Number of frames sent to the host.
    pub sent_packets: u64,
    /// Number of frames for the host that were dropped because the buffer was full.
    pub dropped_packets: u64,
    /// Number of frames from the host that were lost at random.
    pub lost_packets: u64,
}

fn enet_switch(arguments: &[&str]) -> Result<String> {
    finish(Command::new("enet-switch").args(arguments), "")
}

impl Switch {
    /// Makes a switch with this many hosts, and passes `arguments` to `enet-switch up`. If a killed
    /// scenario has left a switch behind, that switch is removed first.
    ///
    /// # Errors
    /// If the program fails, with its message.
    pub fn up(hosts: u32, arguments: &[&str]) -> Result<Self> {
        enet_switch(&["down"])?;
        let number = hosts.to_string();
        enet_switch(&[&["up", "--hosts", &number], arguments].concat())?;
        let hosts = (0..hosts)
            .map(|number| {
                let namespace = Netns::open(&format!("/run/netns/h{number}"))?;
                let [high, low] = u16::try_from(number + 1)?.to_be_bytes();
                Host::named(namespace, [2, 0, 0, 0, high, low])
            })
            .collect::<Result<_>>();
        match hosts {
            Ok(hosts) => Ok(Self { hosts }),
            Err(error) => {
                enet_switch(&["down"])?;
                Err(error)
            }
        }
    }

    /// Returns the hosts as an array of `N`.
    ///
    /// # Errors
    /// If their number is not `N`.
    pub fn hosts<const N: usize>(&self) -> Result<&[Host; N]> {
        Ok(self.hosts.as_slice().try_into()?)
    }

    /// Returns the counters of all ports, by host.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn ports(&self) -> Result<Vec<Port>> {
        #[derive(Deserialize)]
        struct Report {
            ports: Vec<Port>,
        }
        let text = enet_switch(&["drops", "--json"])?;
        let report: Report = serde_json::from_str(&text).context("the switch's counters")?;
        same(report.ports.len(), self.hosts.len(), "ports")?;
        Ok(report.ports)
    }

    /// Checks that no port dropped a frame.
    ///
    /// # Errors
    /// If one did; the message lists the drops of each port.
    pub fn ensure_no_drops(&self) -> Outcome {
        for (number, port) in self.ports()?.iter().enumerate() {
            ensure!(
                port.dropped_packets == 0,
                "the port of h{number} dropped {} frames and sent {}",
                port.dropped_packets,
                port.sent_packets
            );
        }
        Ok(())
    }

    /// Checks that no socket of the module is left on any host, and removes the switch.
    ///
    /// # Errors
    /// If one is left.
    pub fn down(self) -> Outcome {
        for host in &self.hosts {
            host.await_no_sockets()?;
        }
        Ok(())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // The error is ignored: the next [`Switch::up`] removes a switch that is left behind.
        let _ = enet_switch(&["down"]);
    }
}
