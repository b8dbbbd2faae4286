// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line of the program `enet`.

use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::completions::CompletionsArgs;
use crate::exporter::ExporterArgs;
use crate::output;
use crate::ping::PingArgs;
use crate::run::{MapArgs, RunArgs, UnmapArgs};
use crate::ss::SsArgs;
use crate::stats::StatsArgs;

const EXAMPLES: &str = "\
Examples:
  Does a host answer? If not, the last line says why:
    enet ping 10.0.0.2
    enet ping 02:00:00:00:00:02%eth0

  Listening sockets, and established streams to port 2805:
    enet ss -l
    enet ss --state established --port 2805

  Counters that are not zero, each with its meaning:
    enet stats

  A program of TCP over ESP, to the hosts that speak it, on one port alone:
    enet run --allow :6379 -- redis-server --bind 0.0.0.0

  Metrics for Prometheus:
    enet exporter --listen 127.0.0.1:9817

Exit status: 0 on success, 2 for a wrong command line. ping: 0 if the host answered, 1 if not, 2 for
an error; run: the command's, 127 if there is none of that name, 126 if it cannot be started, 125 for
an error of enet's own or a wrong command line; other commands: 1 for an error.";

/// Lists PF_ENET sockets, explains counters, finds out why a host does not answer, and runs
/// programs of TCP over ESP.
#[derive(Debug, Parser)]
#[command(name = "enet", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List ESP and EDP sockets
    Ss(SsArgs),
    /// Send EDP echo requests, and find out why there is no answer
    Ping(PingArgs),
    /// Print the module's counters with their meaning
    Stats(StatsArgs),
    /// Serve counters and numbers of sockets to Prometheus
    Exporter(ExporterArgs),
    /// Run a command whose TCP sockets are mapped: ESP carries its connections to hosts that have
    /// ESP
    Run(RunArgs),
    /// Map the TCP sockets of a control group, until enet unmap
    Map(MapArgs),
    /// End enet map
    Unmap(UnmapArgs),
    /// Print the completions of the command line for a shell
    Completions(CompletionsArgs),
}

/// Runs the command line of this process, and returns the exit status.
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => cli.run(),
        Err(error) => {
            let runs = env::args_os().nth(1).is_some_and(|verb| verb == "run");
            let statuses = if runs {
                (RUN_FAILURE, RUN_FAILURE)
            } else {
                (2, 1)
            };
            answer(&error, statuses)
        }
    }
}

/// Exit status for errors of `enet run` itself, such as a wrong command line. `env` and `timeout`
/// use the same status, because the commands that they run seldom exit with it.
const RUN_FAILURE: u8 = 125;

/// Prints the parser's message, or the help that the command line asks for, and returns the exit
/// status: `wrong_line` for a wrong command line, and `failure` if help cannot be written.
fn answer(error: &clap::Error, (wrong_line, failure): (u8, u8)) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    if error.use_stderr() {
        return ExitCode::from(wrong_line);
    }
    let outcome = output::unless_closed(printed);
    finish(outcome.map(|()| ExitCode::SUCCESS), failure)
}

/// Returns the exit status. If `outcome` is an error, prints it, and returns `failure`.
fn finish(outcome: Result<ExitCode>, failure: u8) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        output::message(format_args!("{error:#}"));
        ExitCode::from(failure)
    })
}

impl Cli {
    /// Runs the command, prints its error, and returns the exit status.
    fn run(&self) -> ExitCode {
        let done = |outcome: Result<()>| outcome.map(|()| ExitCode::SUCCESS);
        let (outcome, failure) = match &self.verb {
            Verb::Ss(arguments) => (done(arguments.run()), 1),
            Verb::Ping(arguments) => (arguments.run(), 2),
            Verb::Stats(arguments) => (done(arguments.run()), 1),
            Verb::Exporter(arguments) => (done(arguments.run()), 1),
            Verb::Run(arguments) => (arguments.run(), RUN_FAILURE),
            Verb::Map(arguments) => (done(arguments.run()), 1),
            Verb::Unmap(arguments) => (done(arguments.run()), 1),
            Verb::Completions(arguments) => (done(arguments.run()), 1),
        };
        finish(outcome, failure)
    }
}
