// SPDX-License-Identifier: MIT OR Apache-2.0

//! `enet completions`.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell to complete in
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints the completion script for the shell.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn run(&self) -> Result<()> {
        output::print(&script(self.shell)?)
    }
}

fn script(shell: Shell) -> Result<String> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "enet", &mut text);
    Ok(String::from_utf8(text)?)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_completes_subcommands_and_options() {
        for shell in Shell::value_variants() {
            let text = script(*shell).unwrap();
            for word in ["ss", "ping", "exporter", "interface"] {
                assert!(text.contains(word), "{shell} misses {word}");
            }
        }
    }
}
