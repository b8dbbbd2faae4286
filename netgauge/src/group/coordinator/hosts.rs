// SPDX-License-Identifier: MIT OR Apache-2.0

//! Participants that ssh starts on other hosts: the options, and the file that names the hosts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context as _, Result};
use clap::Args;

use super::location::Location;

/// The command that calls ssh. The options make ssh notice when a host is gone. They also keep ssh
/// from asking for a password, because no user could answer.
const SSH: &str = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5";

/// The options that conflict with `--hostfile`, because they choose participants in other ways.
const OTHERS: [&str; 4] = ["server", "connect", "peers", "netns"];

/// Options of participants that ssh starts on other hosts.
#[derive(Clone, Debug, Args)]
pub struct HostArgs {
    /// Coordinate processes that ssh starts on the hosts which this file names, one a line; `#`
    /// begins a comment
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,

    /// --hostfile: command that reaches a host; the host's name and a command line for its shell
    /// are appended
    #[arg(long, value_name = "COMMAND", default_value = SSH, value_parser = parse_ssh,
          conflicts_with_all = OTHERS)]
    pub ssh: Ssh,

    /// --hostfile: path of netgauge on the other hosts
    #[arg(long, value_name = "PATH", default_value = "netgauge", conflicts_with_all = OTHERS)]
    pub remote_program: String,

    /// Take part by standard input and output; the coordinator starts this by ssh
    #[arg(long, requires = "participant", hide = true)]
    pub stdio: bool,
}

impl HostArgs {
    /// Returns the hosts of the file that option --hostfile names. Returns no hosts if the option
    /// is not given.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or if it names no hosts.
    pub fn locations(&self) -> Result<Vec<Location>> {
        let Some(path) = &self.hostfile else {
            return Ok(Vec::new());
        };
        let text = fs::read_to_string(path)
            .with_context(|| format!("{}: a file with a host a line is wanted", path.display()))?;
        let hosts = parse(&text, path)?;
        Ok(hosts.into_iter().map(Location::Ssh).collect())
    }
}

/// The words of a command that reaches a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh(pub(super) Vec<String>);

fn parse_ssh(text: &str) -> Result<Ssh, String> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(Ssh(words)),
        _ => Err("write a command, as in \"ssh -p 2222\"; quotes go in pairs".to_owned()),
    }
}

/// Parses hosts, one a line.
fn parse(text: &str, path: &Path) -> Result<Vec<String>> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(host) = words.next() else { continue };
        if let Some(more) = words.next() {
            bail!(
                "{}:{number}: `{more}` after `{host}`: a line has one host and nothing else",
                path.display()
            );
        }
        ensure!(
            !host.starts_with('-'),
            "{}:{number}: `{host}` is no host: options of ssh belong to --ssh",
            path.display()
        );
        hosts.push(host.to_owned());
    }
    ensure!(!hosts.is_empty(), "{}: it names no host", path.display());
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Result<Vec<String>> {
        parse(text, Path::new("hosts"))
    }

    #[test]
    fn a_line_is_a_host() {
        let text = "# the rack\nnode0\n\n  node1 # the slow one\nroot@node2\nnode1";
        assert_eq!(
            hosts(text).unwrap(),
            ["node0", "node1", "root@node2", "node1"]
        );
    }

    #[test]
    fn a_wrong_host_is_reported_with_its_line() {
        for (text, expected) in [
            ("node0\nnode1 slots=2\n", "hosts:2: `slots=2` after `node1`"),
            (
                "-oProxyCommand=x\n",
                "hosts:1: `-oProxyCommand=x` is no host",
            ),
            ("# nobody\n\n", "names no host"),
            ("", "names no host"),
        ] {
            let error = hosts(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn ssh_is_split_into_words_as_by_a_shell() {
        let ssh = |text| parse_ssh(text).map(|ssh| ssh.0);
        assert_eq!(ssh("ssh -p 2222").unwrap(), ["ssh", "-p", "2222"]);
        assert_eq!(ssh("'my ssh' -v").unwrap(), ["my ssh", "-v"]);
        for text in ["", " ", "ssh '"] {
            assert!(ssh(text).is_err(), "{text}");
        }
        assert_eq!(ssh(SSH).unwrap().len(), 7);
    }
}
