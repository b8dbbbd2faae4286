// SPDX-License-Identifier: MIT OR Apache-2.0

//! The program `netgauge`: reads the command line and runs the role that it names.

#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use anyhow::{anyhow, Result};
use clap::CommandFactory as _;
use netgauge::cli::Cli;
use netgauge::group::coordinator::{Coordinator, GroupPattern};
use netgauge::host::{ensure_interface, explain_descriptors};
use netgauge::messages::tell;
use netgauge::pair::client;
use netgauge::participate::participate;
use netgauge::pattern::PatternInfo;
use netgauge::registry::{self, Kind};
use netgauge::server;
use netgauge::signals::{is_interrupted, Signals};
use netgauge::transport::mpi;
use netgauge::watch::{watched, INTERRUPTED};
use netgauge::wrong_line::{is_wrong_line, wrong_line};

/// Exit status for a wrong command line.
const WRONG_LINE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return answer(&error),
    };
    let result = run(&cli).map_err(explain_descriptors);
    if matches!(result, Ok(code) if code == ExitCode::SUCCESS) {
        mpi::leave();
    }
    result.unwrap_or_else(|error| {
        tell(format_args!("{error:#}"));
        if is_interrupted(&error) {
            ExitCode::from(INTERRUPTED)
        } else if is_wrong_line(&error) {
            ExitCode::from(WRONG_LINE)
        } else {
            ExitCode::FAILURE
        }
    })
}

/// Prints the parser's message, or the help that the command line asks for, and returns the exit
/// status.
fn answer(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    match printed {
        _ if error.use_stderr() => ExitCode::from(WRONG_LINE),
        // A reader such as `head` may close the pipe early, which is not an error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            tell(format_args!("writing the output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn run(cli: &Cli) -> Result<ExitCode> {
    sockaddr_en::set_family(cli.measuring.family);
    if let Some(command) = &cli.command {
        return command.run(Cli::command());
    }
    if let Some(namespace) = &cli.group.participant {
        let stdio = cli.group.hosts.stdio;
        participate(namespace.as_deref(), stdio, &cli.server_options())?;
        return Ok(ExitCode::SUCCESS);
    }
    if cli.server {
        return serve(cli);
    }
    let many = registry::find_group(&cli.pattern).map_err(wrong_line)?;
    match (many.map(|one| (&one.info, one.kind)), &cli.connect) {
        (Some((info, Kind::Group(work))), _) => coordinate(cli, info, work),
        (_, Some(host)) => measure(cli, host),
        (_, None) => {
            // An unknown pattern is reported here, so the error below is only for known patterns.
            cli.patterns().map_err(wrong_line)?;
            Err(wrong_line(anyhow!(
                "{} is measured between two: name the server with --connect, or with -x one of {}",
                cli.pattern,
                registry::names_of_group_patterns()
            )))
        }
    }
}

fn coordinate(
    cli: &Cli,
    pattern: &PatternInfo,
    work: &'static dyn GroupPattern,
) -> Result<ExitCode> {
    let options = cli.coordinator_options().map_err(wrong_line)?;
    let coordinator = Coordinator::new(options, pattern, work).map_err(wrong_line)?;
    let complete = coordinator.run(Signals::catch()?)?;
    Ok(ExitCode::from(u8::from(!complete)))
}

fn serve(cli: &Cli) -> Result<ExitCode> {
    cli.check_server().map_err(wrong_line)?;
    if let Some(name) = &cli.interface {
        ensure_interface(name)?;
    }
    let listener = server::listen(cli.listen, cli.port)?;
    let port = listener.local_addr()?.port();
    tell(format_args!("waiting for clients on port {port}"));
    server::serve(&listener, &cli.server_options())?;
    Ok(ExitCode::SUCCESS)
}

fn measure(cli: &Cli, host: &str) -> Result<ExitCode> {
    let options = cli.client_options(host).map_err(wrong_line)?;
    for remark in options.remarks() {
        tell(format_args!("{remark}"));
    }
    let sizes = options.patterns.iter().map(|one| one.plan.sizes.len());
    let sizes = sizes.sum::<usize>() * options.transports.len();
    watched(sizes, cli.measuring.format, |progress| {
        client::run(&options, progress)
    })
}
