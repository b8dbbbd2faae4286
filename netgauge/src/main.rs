// SPDX-License-Identifier: MIT OR Apache-2.0

//! Network benchmark: transports times patterns.

use std::io;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use netgauge::cli::Cli;
use netgauge::progress::Bar;
use netgauge::{client, server};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.connect {
        Some(host) => measure(&cli, host),
        None => serve(&cli),
    };
    result.unwrap_or_else(|error| {
        eprintln!("netgauge: {error:#}");
        ExitCode::FAILURE
    })
}

fn serve(cli: &Cli) -> Result<ExitCode> {
    let listener = server::listen(cli.listen, cli.port)?;
    eprintln!(
        "netgauge: waiting for clients on port {}",
        listener.local_addr()?.port()
    );
    server::serve(&listener, &cli.server_options())?;
    Ok(ExitCode::SUCCESS)
}

fn measure(cli: &Cli, host: &str) -> Result<ExitCode> {
    let options = cli.client_options(host)?;
    let sizes: usize = options
        .patterns
        .iter()
        .map(|(_, plan)| plan.sizes.len())
        .sum();
    let bar = Bar::new((sizes * options.transports.len()) as u64);
    let report = client::run(&options, &bar);
    bar.finish();
    let report = report?;
    report
        .write(cli.format, &mut io::stdout().lock())
        .context("writing the report")?;
    if report.is_complete() {
        return Ok(ExitCode::SUCCESS);
    }
    for run in &report.runs {
        if let netgauge::report::Outcome::Failed { error } = &run.outcome {
            eprintln!("netgauge: {}, {}: {error}", run.transport, run.pattern);
        }
    }
    Ok(ExitCode::FAILURE)
}
