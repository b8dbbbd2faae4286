// SPDX-License-Identifier: MIT OR Apache-2.0

//! Prints a script that completes netgauge's command line in a shell.

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Command};
use clap_complete::{generate, Shell};

/// The program's name in the completions.
const PROGRAM: &str = "netgauge";

const EXAMPLES: &str = include_str!("help/completions.txt");

/// Arguments of `completions`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints the completions of `whole`, the definition of the command line.
    ///
    /// # Errors
    ///
    /// Fails with the writer's error.
    pub fn run(&self, whole: Command) -> Result<ExitCode> {
        // The completions are generated into memory and then printed, because the generator panics
        // if it cannot write.
        let mut out = io::stdout().lock();
        match out
            .write_all(&script(self.shell, whole))
            .and_then(|()| out.flush())
        {
            // A reader such as `head` may close the pipe early, which is not an error.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(error).context("writing the completions")
            }
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

fn script(shell: Shell, whole: Command) -> Vec<u8> {
    let mut script = Vec::new();
    generate(shell, &mut without_internal(&whole), PROGRAM, &mut script);
    script
}

/// Returns the definition of the command line without hidden options. The generators would
/// otherwise offer these options to users.
fn without_internal(whole: &Command) -> Command {
    let options = whole.get_arguments().filter(|option| !option.is_hide_set());
    Command::new(PROGRAM)
        .version(env!("CARGO_PKG_VERSION"))
        .args(options.cloned())
        .subcommands(whole.get_subcommands().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, ValueEnum as _};

    use crate::cli::Cli;

    #[test]
    fn every_shell_learns_options_and_subcommands() {
        for &shell in Shell::value_variants() {
            let script = String::from_utf8(script(shell, Cli::command())).unwrap();
            for word in ["give-up", "congestion", "completions"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
            for option in ["participant", "stdio"] {
                let offered = ["--", "-l "].map(|mark| format!("{mark}{option}"));
                let offered = offered.iter().any(|option| script.contains(option));
                assert!(!offered, "{shell} offers --{option}");
            }
        }
    }
}
