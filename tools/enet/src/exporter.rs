// SPDX-License-Identifier: MIT OR Apache-2.0

//! `enet exporter`: serves metrics to Prometheus.

use anyhow::{Context, Result};
use clap::Args;

use crate::endpoint::Names;
use crate::http::Answer;
use crate::listen::Listen;
use crate::sockets::{self, Protocol};
use crate::{counters, mapped, metrics, output, proc_file, server};

/// Arguments of `exporter`.
#[derive(Debug, Args)]
pub struct ExporterArgs {
    /// Address or name, and port to listen on; :PORT is all addresses
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9817")]
    listen: Listen,

    /// Print the metrics once, instead of serving them
    #[arg(long, conflicts_with = "listen")]
    once: bool,
}

impl ExporterArgs {
    /// Prints the metrics once, or serves them until the process is killed.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the module's files have an unknown format.
    pub fn run(&self) -> Result<()> {
        if self.once {
            return output::print(&metrics()?);
        }
        let listeners = self.listen.bind()?;
        for listener in &listeners {
            let address = listener.local_addr().context("the address of the server")?;
            output::message(format_args!("serving metrics at http://{address}/metrics"));
        }
        match server::serve(&listeners, answer).context("serving metrics")? {}
    }
}

fn answer() -> Answer {
    match metrics() {
        Ok(text) => Answer::metrics(text),
        Err(error) => Answer::failure(&format!("{error:#}")),
    }
}

fn metrics() -> Result<String> {
    // The module may be loaded later, so its absence is a metric and not an error.
    if !proc_file::module_is_loaded() {
        return Ok(metrics::without_module());
    }
    collect()
}

fn collect() -> Result<String> {
    let counters = counters::parse(&proc_file::read(proc_file::ENET)?)?;
    let mut names = Names::default();
    let mut all = Vec::new();
    for protocol in Protocol::ALL {
        let text = proc_file::read(protocol.name())?;
        all.extend(sockets::parse(protocol, &text, &mut names)?);
    }
    Ok(metrics::print(
        &proc_file::module_version(),
        &counters,
        &all,
        &mapped::sums()?,
    ))
}
