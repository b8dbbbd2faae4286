// SPDX-License-Identifier: MIT OR Apache-2.0

//! `netgauge lab`: a switch with hosts, made of network namespaces of this machine for one run.

use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure, Context as _, Result};
use clap::Args;
use enet_switch::plan::Settings;
use enet_switch::Temporary;
use sockaddr_en::EspSocket;

use crate::group::coordinator::args::{GroupArgs, ManyArgs, Numbers, Options, Rate};
use crate::group::coordinator::plan::Roles;
use crate::group::coordinator::Coordinator;
use crate::measuring::{Measuring, DEFAULT_PORT, DEFAULT_WAIT};
use crate::messages::tell;
use crate::registry::{self, Kind, Pattern};
use crate::report::format::Format;
use crate::signals::Signals;
use crate::transport::explain_family;
use crate::wrong_line::wrong_line;

const EXAMPLES: &str = include_str!("help/lab.txt");

/// Arguments of `lab`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LabArgs {
    /// Pattern of the traffic between the hosts
    #[arg(value_name = "PATTERN", value_parser = parse_pattern)]
    pub pattern: &'static Pattern,

    /// Options of the measurement and of its report.
    #[command(flatten)]
    pub measuring: Measuring,

    /// Options of the participants' work.
    #[command(flatten)]
    pub many: ManyArgs,

    /// Draw no picture [default: draw netgauge-PATTERN.svg in this directory]
    #[arg(long, conflicts_with = "plot")]
    pub no_plot: bool,

    /// The switch and the links.
    #[command(flatten, next_help_heading = "The switch")]
    pub switch: Settings,
}

fn parse_pattern(name: &str) -> Result<&'static Pattern, String> {
    let found = registry::group_patterns().find(|pattern| pattern.info.is_called(name));
    found.ok_or_else(|| format!("choose from {}", registry::names_of_group_patterns()))
}

impl LabArgs {
    /// Makes the lab, measures in it, and removes it.
    ///
    /// # Errors
    ///
    /// Fails if this machine does not meet the requirements, or if the pattern failed.
    pub fn run(&self) -> Result<ExitCode> {
        sockaddr_en::set_family(self.measuring.family);
        self.switch.check().map_err(wrong_line)?;
        let options = self.options()?;
        let plot = options.group.many.plot.clone();
        let coordinator = self.coordinator(options)?;
        self.ensure_able()?;
        let mut signals = Signals::catch()?;
        let built = Temporary::up(&self.switch);
        // The signal is checked before `built`, because a signal also ends the programs that build
        // the lab. In that case, the interruption is the better error to report.
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
        if let Some(path) = &plot {
            tell(format_args!("the picture is {}", path.display()));
        }
        Ok(ExitCode::from(u8::from(!complete)))
    }

    fn coordinator(&self, options: Options) -> Result<Coordinator> {
        let Kind::Group(work) = self.pattern.kind else {
            bail!("{} is a pattern of two", self.pattern.info.name);
        };
        Coordinator::new(options, &self.pattern.info, work).map_err(wrong_line)
    }

    /// Returns the options of a coordinator whose participants are the lab's hosts.
    fn options(&self) -> Result<Options> {
        let pattern = self.pattern.info.name;
        let hosts = Temporary::hosts(&self.switch).join(",");
        let mut group = GroupArgs::parse_from(["--netns", &hosts])?;
        group.seed = Some(self.switch.seed);
        group.rate = Some(Rate(self.switch.rate.0));
        group.many = self.many.clone();
        let many = &mut group.many;
        if many.clients.is_none() && self.pattern.roles() == Some(Roles::Clients) {
            many.clients = Some(Numbers::doubling(self.switch.hosts - 1));
        }
        if many.plot.is_none() && !self.no_plot && cfg!(feature = "pictures") {
            many.plot = Some(PathBuf::from(format!("netgauge-{pattern}.svg")));
        }
        Ok(Options {
            connect: None,
            port: DEFAULT_PORT,
            wait: DEFAULT_WAIT,
            interface: None,
            measuring: self.measuring.clone(),
            group,
        })
    }

    /// Returns whether the run needs ESP, for its pattern or for a transport that `-m` names.
    fn wants_esp(&self) -> Result<bool> {
        if self.pattern.roles() == Some(Roles::Grid) {
            return Ok(true);
        }
        // With `-m all`, ESP is not required: the run leaves it out if it does not work.
        let named = self.measuring.transports()?;
        Ok(!self.measuring.is_all() && named.iter().any(|kind| kind.name.starts_with("esp")))
    }

    /// Checks the requirements before anything is made.
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

/// Prints a line of the report. Returns an error instead of panicking if the reader has closed the
/// pipe.
fn say(line: fmt::Arguments<'_>) -> Result<()> {
    writeln!(io::stdout(), "{line}").context("writing the report")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    use crate::cli::Cli;
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
        let options = lab.options().unwrap();
        assert_eq!(lab.pattern.info.name, "one-many");
        assert_eq!(options.group.netns.join(","), "h0,h1,h2,h3,h4,h5,h6,h7");
        assert_eq!(options.group.rate, Some(Rate(1_000_000_000)));
        assert_eq!(options.group.seed, Some(1));
        assert_eq!(options.group.many.clients, Some(Numbers(vec![1, 2, 4, 7])));
        let picture = || PathBuf::from("netgauge-one-many.svg");
        let expected = cfg!(feature = "pictures").then(picture);
        assert_eq!(options.group.many.plot, expected);
        assert_eq!(options.measuring.transports().unwrap().len(), 2);
        lab.coordinator(options).map(drop).unwrap();
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
            lab.coordinator(lab.options().unwrap()).map(drop).unwrap();
        }
    }

    #[test]
    fn given_options_are_kept() {
        let lab = parse("many-one --hosts 4 --clients 3 --seed 9 --no-plot -s 1K -c 2").unwrap();
        let options = lab.options().unwrap();
        assert_eq!(options.group.many.clients, Some(Numbers(vec![3])));
        assert_eq!(
            (options.group.seed, options.group.many.plot.clone()),
            (Some(9), None)
        );
        assert!(options.measuring.size.is_some());
        let lab = parse("bisection --hosts 2 --no-plot").unwrap();
        assert_eq!(lab.options().unwrap().group.many.clients, None);
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
