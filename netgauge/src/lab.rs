// SPDX-License-Identifier: MIT OR Apache-2.0

//! `netgauge lab`: a switch and hosts on it, made of network namespaces of this machine for the
//! length of a run.

use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{ensure, Context as _, Result};
use clap::{Args, Parser as _};
use enet_switch::plan::Settings;
use enet_switch::Temporary;
use sockaddr_en::EspSocket;

use crate::cli::{wrong_line, Cli};
use crate::group::args::{ManyArgs, Numbers, Rate};
use crate::group::coordinator::Coordinator;
use crate::group::plan::Parts;
use crate::group::signals::Signals;
use crate::measuring::Measuring;
use crate::pattern::{self, Pattern};
use crate::report::Format;
use crate::transport::explain_family;

const EXAMPLES: &str = include_str!("help/lab.txt");

/// Arguments of `lab`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LabArgs {
    /// What the hosts do
    #[arg(value_name = "PATTERN", value_parser = parse_pattern)]
    pub pattern: &'static Pattern,

    /// What is measured, and how it is reported.
    #[command(flatten)]
    pub measuring: Measuring,

    /// What participants do.
    #[command(flatten)]
    pub many: ManyArgs,

    /// Draw no picture [default: draw netgauge-PATTERN.svg in this directory]
    #[arg(long, conflicts_with = "plot")]
    pub no_plot: bool,

    /// What they are connected by.
    #[command(flatten, next_help_heading = "The switch")]
    pub switch: Settings,
}

fn parse_pattern(name: &str) -> Result<&'static Pattern, String> {
    let found = pattern::of_many().find(|pattern| pattern.name == name);
    found.ok_or_else(|| format!("choose from {}", pattern::names_of_many()))
}

impl LabArgs {
    /// Makes the lab, measures in it, and takes it away.
    ///
    /// # Errors
    ///
    /// Something is missing on this machine, or as the pattern itself.
    pub fn run(&self) -> Result<ExitCode> {
        sockaddr_en::set_family(self.measuring.family);
        let cli = self.cli()?;
        let coordinator = Coordinator::new(&cli, self.pattern).map_err(wrong_line)?;
        self.ensure_able()?;
        let mut signals = Signals::catch()?;
        let built = Temporary::up(&self.switch);
        // A signal ends the programs that build it, too, and is the better reason.
        signals.check()?;
        let lab = built.context("the lab could not be built")?;
        if self.measuring.format == Format::Table {
            say(format_args!("lab: {}", self.switch))?;
        }
        let complete = coordinator.run(signals)?;
        if self.measuring.format == Format::Table {
            let drops = enet_switch::drops()?;
            let sum = |of: fn(&enet_switch::counters::Port) -> u64| -> u64 {
                drops.ports.iter().map(of).sum()
            };
            say(format_args!(
                "lab: of {} frames the ports dropped {}, and cables lost {}",
                sum(|port| port.sent_packets + port.dropped_packets + port.lost_packets),
                sum(|port| port.dropped_packets),
                sum(|port| port.lost_packets)
            ))?;
        }
        lab.down()?;
        if let Some(path) = &cli.group.many.plot {
            eprintln!("netgauge: the picture is {}", path.display());
        }
        Ok(ExitCode::from(u8::from(!complete)))
    }

    /// The command line that has the same in namespaces that are there.
    fn cli(&self) -> Result<Cli> {
        let hosts = Temporary::hosts(&self.switch);
        let pattern = self.pattern.name;
        let mut cli =
            Cli::try_parse_from(["netgauge", "-x", pattern, "--netns", &hosts.join(",")])?;
        cli.measuring = self.measuring.clone();
        cli.group.seed = Some(self.switch.seed);
        cli.group.rate = Some(Rate(self.switch.rate.0));
        cli.group.many = self.many.clone();
        let many = &mut cli.group.many;
        if many.clients.is_none() && self.pattern.parts() == Some(Parts::Clients) {
            many.clients = Some(Numbers::doubling(self.switch.hosts - 1));
        }
        if many.plot.is_none() && !self.no_plot && cfg!(feature = "pictures") {
            many.plot = Some(PathBuf::from(format!("netgauge-{pattern}.svg")));
        }
        Ok(cli)
    }

    /// Is a run without esp no use?
    fn wants_esp(&self) -> Result<bool> {
        if self.pattern.parts() == Some(Parts::Grid) {
            return Ok(true);
        }
        // Of all transports, it is left out where it does not work.
        let named = self.measuring.transports()?;
        Ok(!self.measuring.is_all() && named.iter().any(|kind| kind.name.starts_with("esp")))
    }

    /// Says what is missing before anything is made.
    fn ensure_able(&self) -> Result<()> {
        ensure!(
            nix::unistd::geteuid().is_root(),
            "a lab is made of network namespaces, which is root's to do: run it as root"
        );
        if !self.wants_esp()? {
            return Ok(());
        }
        match EspSocket::new() {
            Ok(_) => Ok(()),
            Err(error) => Err(explain_family(error)).context("esp, which -m can leave out"),
        }
    }
}

/// Prints a line of the report; whoever was to read it may be gone.
fn say(line: fmt::Arguments<'_>) -> Result<()> {
    writeln!(io::stdout(), "{line}").context("writing the report")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    fn parse(line: &str) -> Result<LabArgs, clap::Error> {
        let words = ["netgauge", "lab"]
            .into_iter()
            .chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| match cli.command {
            Some(Command::Lab(lab)) => *lab,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn the_lab_is_what_the_command_line_would_say() {
        let lab = parse("one-many --hosts 8 --rate 1gbit --buffer 128k -m esp,tcp").unwrap();
        let cli = lab.cli().unwrap();
        assert_eq!(cli.pattern, "one-many");
        assert_eq!(cli.group.netns.join(","), "h0,h1,h2,h3,h4,h5,h6,h7");
        assert_eq!(cli.group.rate, Some(Rate(1_000_000_000)));
        assert_eq!(cli.group.seed, Some(1));
        assert_eq!(cli.group.many.clients, Some(Numbers(vec![1, 2, 4, 7])));
        let picture = || PathBuf::from("netgauge-one-many.svg");
        let expected = cfg!(feature = "pictures").then(picture);
        assert_eq!(cli.group.many.plot, expected);
        assert_eq!(cli.measuring.transports().unwrap().len(), 2);
        Coordinator::new(&cli, lab.pattern).map(drop).unwrap();
    }

    #[test]
    fn esp_is_needed_where_it_is_named() {
        for (line, needed) in [
            ("one-many -m tcp,esp", true),
            ("one-many -m tcp", false),
            ("one-many -m all", false),
            ("esp-params", true),
            ("esp-params -m all", true),
        ] {
            let lab = parse(&format!("{line} --hosts 2")).unwrap();
            assert_eq!(lab.wants_esp().unwrap(), needed, "{line}");
            Coordinator::new(&lab.cli().unwrap(), lab.pattern)
                .map(drop)
                .unwrap();
        }
    }

    #[test]
    fn what_is_said_is_kept() {
        let lab = parse("many-one --hosts 4 --clients 3 --seed 9 --no-plot -s 1K -c 2").unwrap();
        let cli = lab.cli().unwrap();
        assert_eq!(cli.group.many.clients, Some(Numbers(vec![3])));
        assert_eq!(
            (cli.group.seed, cli.group.many.plot.clone()),
            (Some(9), None)
        );
        assert!(cli.measuring.size.is_some());
        let lab = parse("bisection --hosts 2 --no-plot").unwrap();
        assert_eq!(lab.cli().unwrap().group.many.clients, None);
    }

    #[test]
    fn mistakes_are_answered_with_what_to_write() {
        let error = parse("ring --hosts 8").unwrap_err().to_string();
        assert!(error.contains("one-many, many-one, all-to-all"), "{error}");
        for line in [
            "",
            "one-many --hosts 1",
            "one-many --rate 1",
            "one-many --no-plot --plot x.svg",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
