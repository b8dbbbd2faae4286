// SPDX-License-Identifier: GPL-2.0-only

//! Runs netgauge's server and client on the hosts of a lab.

use std::process::{Child, Output};

use serde_json::Value;

use crate::netns::finish;
use crate::prelude::*;
use crate::program::{start, wait_for_word};

/// All transports that netgauge's option `-m` takes.
pub const TRANSPORTS: [&str; 15] = [
    "tcp",
    "udp",
    "raw",
    "edp",
    "esp",
    "esp-records",
    "esp-ring",
    "edp-ring",
    "unix",
    "tipc",
    "tcp-zerocopy",
    "esp-zerocopy",
    "edp-zerocopy",
    "tcp-splice",
    "esp-splice",
];

/// netgauge's server on a host; dropping this value ends it.
#[derive(Debug)]
pub struct Server(Child);

impl Server {
    /// Starts the server, and waits until it listens.
    ///
    /// # Errors
    /// If it does not start.
    pub fn on(host: &Host) -> Result<Self> {
        let mut command = Command::new("netgauge");
        command.args(["--server", "--interface", DEVICE]);
        let mut server = Self(start((host, command), Stdio::null(), Stdio::null())?);
        // The server's later output is not needed.
        drop(wait_for_word(&mut server.0, "waiting for clients")?);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The error is ignored: `kill` fails if the server has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a client of the server on 10.0.0.2 until it exits.
///
/// # Errors
/// If it cannot be started.
pub fn client(host: &Host, options: &str) -> Result<Output> {
    let mut command = Command::new("netgauge");
    command
        .args(["--connect", "10.0.0.2", "--interface", DEVICE])
        .args(["--format", "json"])
        .args(options.split_whitespace());
    host.namespace
        .within(|| command.output())?
        .context("starting netgauge")
}

/// Parses a client's report.
///
/// # Errors
/// If the client printed no report; the message has its standard error.
pub fn report(output: &Output) -> Result<Value> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).with_context(|| format!("no report: {stderr}"))
}

/// Lets TIPC use the host's device.
///
/// # Errors
/// If there is no TIPC.
pub fn enable_bearer(host: &Host) -> Outcome {
    let arguments = ["bearer", "enable", "media", "eth", "device", DEVICE];
    host.namespace.run("tipc", &arguments)?;
    Ok(())
}

/// Makes the two hosts of a lab TIPC neighbours.
///
/// # Errors
/// If the link between them does not come up.
pub fn join_by_tipc(lab: &Lab) -> Outcome {
    finish(Command::new("modprobe").arg("tipc"), "")?;
    for host in [&lab.a, &lab.b] {
        enable_bearer(host)?;
    }
    for host in [&lab.a, &lab.b] {
        eventually("TIPC's link", || {
            let links = host.namespace.run("tipc", &["link", "list"])?;
            // TIPC's broadcast link is up even without a peer, so it does not count.
            let mut to_hosts = links.lines().filter(|link| link.contains(DEVICE));
            Ok(to_hosts.any(|link| link.trim_end().ends_with(": up")))
        })?;
    }
    Ok(())
}
