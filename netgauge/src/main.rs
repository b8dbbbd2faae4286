// SPDX-License-Identifier: MIT OR Apache-2.0

//! Network benchmark: transports times patterns.

use std::io;
use std::process::ExitCode;

use anyhow::{anyhow, Context as _, Result};
use netgauge::cli::{is_wrong_line, wrong_line, Cli};
use netgauge::group::coordinator::Coordinator;
use netgauge::group::signals::{is_interrupted, Signals};
use netgauge::group::start::participate;
use netgauge::pattern::{self, Pattern};
use netgauge::transport::mpi;
use netgauge::watch::{Watch, INTERRUPTED};
use netgauge::{client, server};

/// Exit status of a wrong command line, as the parser has it.
const WRONG_LINE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::read();
    let result = run(&cli);
    if matches!(result, Ok(code) if code == ExitCode::SUCCESS) {
        mpi::leave();
    }
    result.unwrap_or_else(|error| {
        eprintln!("netgauge: {error:#}");
        if is_interrupted(&error) {
            ExitCode::from(INTERRUPTED)
        } else if is_wrong_line(&error) {
            ExitCode::from(WRONG_LINE)
        } else {
            ExitCode::FAILURE
        }
    })
}

fn run(cli: &Cli) -> Result<ExitCode> {
    sockaddr_en::set_family(cli.measuring.family);
    if let Some(command) = &cli.command {
        return command.run();
    }
    if let Some(namespace) = &cli.group.participant {
        let stdio = cli.group.hosts.stdio;
        participate(namespace.as_deref(), stdio, &cli.server_options())?;
        return Ok(ExitCode::SUCCESS);
    }
    if cli.server {
        return serve(cli);
    }
    match (
        pattern::many(&cli.pattern).map_err(wrong_line)?,
        &cli.connect,
    ) {
        (Some(pattern), _) => coordinate(cli, pattern),
        (None, Some(host)) => measure(cli, host),
        (None, None) => {
            // One that there is not is no pattern of two either.
            cli.patterns().map_err(wrong_line)?;
            Err(wrong_line(anyhow!(
                "{} is measured between two: name the server with --connect, or with -x one of {}",
                cli.pattern,
                pattern::names_of_many()
            )))
        }
    }
}

fn coordinate(cli: &Cli, pattern: &Pattern) -> Result<ExitCode> {
    let coordinator = Coordinator::new(cli, pattern).map_err(wrong_line)?;
    let complete = coordinator.run(Signals::catch()?)?;
    Ok(ExitCode::from(u8::from(!complete)))
}

fn serve(cli: &Cli) -> Result<ExitCode> {
    cli.check_server().map_err(wrong_line)?;
    let listener = server::listen(cli.listen, cli.port)?;
    eprintln!(
        "netgauge: waiting for clients on port {}",
        listener.local_addr()?.port()
    );
    server::serve(&listener, &cli.server_options())?;
    Ok(ExitCode::SUCCESS)
}

fn measure(cli: &Cli, host: &str) -> Result<ExitCode> {
    let options = cli.client_options(host).map_err(wrong_line)?;
    for remark in options.remarks() {
        eprintln!("netgauge: {remark}");
    }
    let sizes = options.patterns.iter().map(|(_, plan)| plan.sizes.len());
    let sizes = sizes.sum::<usize>() * options.transports.len();
    let format = cli.measuring.format;
    let watch = Watch::begin(sizes as u64, format)?;
    let report = client::run(&options, &*watch);
    watch.end();
    let report = report?;
    let written = report.write(format, &mut io::stdout().lock());
    written.context("writing the report")?;
    format.tell(&report.left_out, &report.errors());
    Ok(ExitCode::from(u8::from(!report.is_complete())))
}
