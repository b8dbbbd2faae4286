// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line of netgauge, and the options that its parser returns.

use std::env;
use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure, Result};
use clap::builder::TypedValueParser as _;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgGroup, CommandFactory as _, FromArgMatches as _, Parser};

use crate::command::Command;
use crate::group::coordinator::args::{GroupArgs, Options};
use crate::group::coordinator::location::server_address;
use crate::measuring::{self, Measuring, DEFAULT_PORT};
use crate::pair::args::PatternArgs;
use crate::pair::client::{ClientOptions, Planned};
use crate::pair::Plan;
use crate::pattern_command;
use crate::registry::{self, Pattern};
use crate::server::ServerOptions;
use crate::transport::kinds;

/// The default number of warm-up rounds of patterns between two hosts.
pub(crate) const DEFAULT_WARMUP: u32 = 10;

/// The heading of this file's options in the help; other headings are in [`crate::measuring`].
const SIDES: &str = "Two sides";

/// The options that make this netgauge the measuring side, instead of a server.
const MEASURING_SIDES: [&str; 4] = ["connect", "peers", "hostfile", "netns"];

const USAGE: &str = include_str!("help/usage.txt");

const EXAMPLES: &str = include_str!("help/netgauge.txt");

/// Measures latency and throughput between two hosts, and compares transports.
///
/// One netgauge waits as the server, another measures as the client. For patterns of many
/// participants, each host runs a server or a process, or each network namespace of this host runs
/// a process. One netgauge coordinates the participants.
#[derive(Clone, Debug, Parser)]
#[command(version, override_usage = USAGE, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group(ArgGroup::new("side").required(true).args(["server", "connect", "peers", "hostfile", "netns", "participant"])))]
pub struct Cli {
    /// A subcommand, which runs instead of a measurement with the options below.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Serve clients until killed; the server obeys every host that reaches its port, see --listen
    #[arg(help_heading = SIDES, long)]
    pub server: bool,

    /// Measure with the server on this host: HOST or HOST:PORT
    #[arg(help_heading = SIDES, long, value_name = "HOST")]
    pub connect: Option<String>,

    /// Patterns: names separated by commas, or `all`
    #[arg(
        help_heading = measuring::MEASURE,
        short = 'x',
        long = "pattern",
        value_name = "NAMES",
        default_value = "one-one"
    )]
    pub pattern: String,

    /// Options of the measurement and of its report.
    #[command(flatten)]
    pub measuring: Measuring,

    /// Interface of this end, for all transports but unix and tipc: raw, edp and esp need an
    /// Ethernet interface, the others use its IP address [default: the one that leads to the peer]
    #[arg(help_heading = measuring::LINKS, long, value_name = "NAME")]
    pub interface: Option<String>,

    /// TCP port of the server's control connection; with 0, a server takes a free port
    #[arg(help_heading = SIDES, long, default_value_t = DEFAULT_PORT)]
    pub port: u16,

    /// Server: address to listen on [default: all]
    #[arg(help_heading = SIDES, long, value_name = "ADDRESS", conflicts_with_all = MEASURING_SIDES)]
    pub listen: Option<IpAddr>,

    /// Server: end after the first client
    #[arg(help_heading = SIDES, long, conflicts_with_all = MEASURING_SIDES)]
    pub once: bool,

    /// Client: seconds to wait for a server that is not up yet; coordinator: also seconds to wait
    /// for a host to answer through ssh
    #[arg(help_heading = SIDES, long, value_name = "SECONDS", default_value = "10",
          value_parser = clap::value_parser!(u16).map(measuring::seconds))]
    pub wait: Duration,

    /// Options that only some patterns between two hosts have.
    #[command(flatten)]
    pub pattern_args: PatternArgs,

    /// Options of patterns between more than two hosts.
    #[command(flatten)]
    pub group: GroupArgs,
}

/// The part of an error message that names the internal option `--participant`. clap lists this
/// option for a command line that lacks `--server`, `--connect` and the like.
const INTERNAL_SIDE: &str = "|--participant[=<NETNS>]";

/// Options that netgauge passes to its own processes. They are not for users.
const INTERNAL: [&str; 2] = ["--participant", "--stdio"];

/// Removes internal options from an error. Such options may be in two places: the list of missing
/// options, and the suggestion for a mistyped option.
fn without_internal(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) {
        let named = missing
            .iter()
            .map(|argument| argument.replace(INTERNAL_SIDE, ""))
            .collect();
        error.insert(ContextKind::InvalidArg, ContextValue::Strings(named));
    }
    if let Some(ContextValue::String(option)) = error.get(ContextKind::SuggestedArg) {
        if INTERNAL.contains(&&option[..]) {
            error.remove(ContextKind::SuggestedArg);
        }
    }
    error
}

impl Cli {
    /// Parses the command line of this process.
    ///
    /// # Errors
    ///
    /// Fails if the line is wrong, or if it asks for help.
    pub fn read() -> Result<Self, clap::Error> {
        let line = env::args_os().collect();
        Self::parse_line(line).map_err(without_internal)
    }

    /// Parses a command line, in which a pattern may be a subcommand.
    ///
    /// # Errors
    ///
    /// Fails if the line is wrong, or if it asks for help.
    pub fn parse_line(line: Vec<OsString>) -> Result<Self, clap::Error> {
        let Some(pattern) = pattern_command::named(&line) else {
            return Self::try_parse_from(line);
        };
        let mut command = pattern_command::command(Self::command(), pattern);
        let matches = command.try_get_matches_from_mut(pattern_command::spelt_out(line))?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    /// Returns the options of this command line that a server needs.
    pub fn server_options(&self) -> ServerOptions {
        ServerOptions {
            interface: self.interface.clone(),
            give_up: self.measuring.give_up,
            once: self.once,
        }
    }

    /// Returns the patterns between two hosts that option -x names.
    ///
    /// # Errors
    ///
    /// Fails if a pattern is unknown.
    pub fn patterns(&self) -> Result<Vec<&'static Pattern>> {
        if self.pattern == "all" {
            return Ok(registry::pair_patterns().collect());
        }
        let names = self.pattern.split(',').map(registry::find);
        names.collect::<Result<_>>().map_err(|error| {
            anyhow!(
                "{error}; or of many: {}",
                registry::names_of_group_patterns()
            )
        })
    }

    /// Checks the command line of a server.
    ///
    /// # Errors
    ///
    /// Fails if an option is given that a server does not have.
    pub fn check_server(&self) -> Result<()> {
        ensure!(
            self.measuring.sockets.is_default(),
            "options of sockets are the client's to say, and hold on the server too"
        );
        self.group
            .refuse("is the coordinator's to say, not a server's")
    }

    /// Returns the options of this command line that a coordinator needs.
    ///
    /// # Errors
    ///
    /// Fails if the command line has an option that only two-host patterns accept.
    pub fn coordinator_options(&self) -> Result<Options> {
        self.pattern_args.refuse()?;
        Ok(Options {
            connect: self.connect.clone(),
            port: self.port,
            wait: self.wait,
            interface: self.interface.clone(),
            measuring: self.measuring.clone(),
            group: self.group.clone(),
        })
    }

    /// Returns the options of this command line that a client of the server on `host` needs.
    ///
    /// # Errors
    ///
    /// Fails if a transport or a pattern is unknown, or if the options conflict.
    pub fn client_options(&self, host: &str) -> Result<ClientOptions> {
        self.group
            .refuse("is for patterns of many participants: choose one with -x, or leave it out")?;
        let transports = self.measuring.transports()?;
        let all = self.measuring.is_all();
        if !all {
            kinds::check(&self.measuring.sockets, &transports)?;
        }
        let patterns = self.patterns()?;
        let names: Vec<_> = patterns.iter().map(|pattern| pattern.info.name).collect();
        self.pattern_args.check(&names)?;
        let sets_up = names.contains(&"setup");
        if sets_up && self.pattern != "all" && !self.measuring.sockets.is_default() {
            bail!("setup makes its connections as the system does: leave options of sockets out");
        }
        if self.measuring.mode != "all" && self.pattern != "all" {
            // With `-m all` or `-x all`, an unsuitable transport is no error: the run leaves it
            // out, and the report gives the reason.
            for pattern in &patterns {
                for kind in &transports {
                    pattern.pair()?.suits(kind)?;
                    self.pattern_args.suits(pattern.info.name, kind)?;
                }
            }
        }
        if self.port == 0 {
            bail!("port 0 is nobody's: give the server's with --port");
        }
        let (host, port) = server_address(host, self.port)?;
        let planned = |pattern: &'static Pattern| {
            let info = &pattern.info;
            let plan = Plan {
                sizes: self.measuring.sizes(info),
                tests: self.measuring.tests(info),
                warmup: self.measuring.warmup.unwrap_or(DEFAULT_WARMUP),
                percentiles: self.measuring.percentiles.clone(),
                args: self.pattern_args,
            };
            Ok(Planned {
                pattern: info,
                work: pattern.pair()?,
                plan,
            })
        };
        let options = ClientOptions {
            host: host.to_owned(),
            port,
            wait: self.wait,
            transports,
            patterns: patterns.into_iter().map(planned).collect::<Result<_>>()?,
            interface: self.interface.clone(),
            measuring: self.measuring.clone(),
        };
        options.check()?;
        Ok(options)
    }
}

#[cfg(test)]
mod group_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measuring::DEFAULT_ETHERTYPE;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("netgauge").chain(line.split_whitespace()))
    }

    fn client(line: &str) -> ClientOptions {
        parse(line).unwrap().client_options("10.0.0.2").unwrap()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_is_in_a_group_of_the_help() {
        let command = Cli::command();
        let lab = command.find_subcommand("lab").unwrap();
        let options = command.get_arguments().chain(lab.get_arguments());
        for option in options.filter(|option| !option.is_hide_set() && !option.is_positional()) {
            assert!(option.get_help_heading().is_some(), "{option:?}");
        }
    }

    #[test]
    fn one_side_has_to_be_chosen() {
        assert_eq!(
            parse("").unwrap_err().kind(),
            ErrorKind::MissingRequiredArgument
        );
        assert_eq!(
            parse("--server --connect 10.0.0.2").unwrap_err().kind(),
            ErrorKind::ArgumentConflict
        );
        assert!(parse("--server").unwrap().server);
        assert_eq!(parse("--connect h").unwrap().connect.as_deref(), Some("h"));
    }

    #[test]
    fn a_server_may_be_named_with_its_port() {
        let of = |host: &str| {
            let options = parse("--connect h --port 99").unwrap().client_options(host);
            options.map(|options| (options.host, options.port))
        };
        assert_eq!(of("h").unwrap(), ("h".to_owned(), 99));
        assert_eq!(of("h:2806").unwrap(), ("h".to_owned(), 2806));
        assert_eq!(of("[fd00::1]:7").unwrap(), ("fd00::1".to_owned(), 7));
        for text in ["", ":1", "h:x", "h:+1"] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains("HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn a_subcommand_stands_alone() {
        let cli = parse("completions bash").unwrap();
        assert!(matches!(cli.command, Some(Command::Completions(_))));
        assert!(parse("--server").unwrap().command.is_none());
        assert!(parse("--server completions bash").is_err());
        assert!(parse("completions bash --server").is_err());
    }

    #[test]
    fn a_pattern_is_a_subcommand() {
        let line = |text: &str| text.split_whitespace().map(OsString::from).collect();
        let parse = |text| Cli::parse_line(line(text));
        let cli = parse("netgauge flood --eor --connect h -m tcp").unwrap();
        assert_eq!(cli.pattern, "flood");
        assert!(cli.pattern_args.eor && cli.command.is_none());
        let cli = parse("netgauge incast --clients 1,2 --netns a,b,c").unwrap();
        let pattern = registry::find_group(&cli.pattern).unwrap().unwrap();
        assert_eq!(pattern.info.name, "one-many");
        // A pattern's subcommand refuses the options of other patterns, as -x does.
        let cli = parse("netgauge one-one --block 1M --connect h").unwrap();
        let error = cli.client_options("h").err().unwrap().to_string();
        assert!(
            error.contains("--block is an option of pattern bulk"),
            "{error}"
        );
        let error = parse("netgauge flood -x bulk --connect h").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
        let help = parse("netgauge flood --help").unwrap_err().to_string();
        assert!(
            help.contains("Usage: netgauge flood --connect <HOST>"),
            "{help}"
        );
        assert!(
            !help.contains("--block") && !help.contains("completions"),
            "{help}"
        );
    }

    #[test]
    fn defaults_are_those_in_the_help() {
        let options = client("--connect 10.0.0.2");
        assert_eq!(options.port, 2805);
        assert_eq!(options.measuring.ethertype, DEFAULT_ETHERTYPE);
        assert_eq!(
            options
                .transports
                .iter()
                .map(|kind| kind.name)
                .collect::<Vec<_>>(),
            ["tcp"]
        );
        let Planned { pattern, plan, .. } = &options.patterns[0];
        assert_eq!(pattern.name, "one-one");
        assert_eq!((plan.sizes.len(), plan.tests, plan.warmup), (17, 100, 10));
    }

    #[test]
    fn the_originals_options() {
        let options = client("-m tcp,udp,raw,edp,esp -x one-one -s 1-1024 -c 7 -g 2 --connect h");
        assert_eq!(options.transports.len(), 5);
        let Planned { plan, .. } = &options.patterns[0];
        assert_eq!(plan.tests, 7);
        assert_eq!(
            (plan.sizes.first(), plan.sizes.last()),
            (Some(&1), Some(&1024))
        );
        assert!(plan.sizes.contains(&91), "{:?}", plan.sizes);
    }

    #[test]
    fn all_means_all_and_each_pattern_has_its_defaults() {
        let options = client("-m all -x all --connect h");
        assert_eq!(options.transports.len(), kinds::all().len());
        let Planned { pattern, plan, .. } = &options.patterns[1];
        assert_eq!((pattern.name, plan.tests), ("bulk", 10));
        assert_eq!(plan.sizes, [16 << 20]);
    }

    #[test]
    fn an_interface_for_what_goes_by_none_is_remarked() {
        let remarks = client("-m tcp,unix,tipc --interface eth0 --connect h").remarks();
        assert_eq!(remarks, ["--interface means nothing to unix, tipc"]);
        for line in [
            "-m tcp --interface eth0 --connect h",
            "-m unix --connect h",
            "-m all --interface eth0 --connect h",
        ] {
            assert!(client(line).remarks().is_empty(), "{line}");
        }
        let remarks = client("-m all --busy-poll 9 --connect h").remarks();
        assert!(remarks[0].contains("--busy-poll is for"), "{remarks:?}");
    }

    #[test]
    fn mistakes_are_answered_with_what_to_write() {
        let unknown = |line| {
            parse(line)
                .unwrap()
                .client_options("h")
                .err()
                .unwrap()
                .to_string()
        };
        assert!(unknown("-m tpc --connect h").contains("choose from tcp"));
        let ring = unknown("-x ring --connect h");
        assert!(ring.contains("choose from one-one"), "{ring}");
        assert!(ring.contains("or of many: one-many, many-one"), "{ring}");
        assert!(unknown("-s 1G --connect h").contains("lower -s"));
        assert!(unknown("--port 0 --connect h").contains("--port"));
        let records = unknown("-m tcp,tcp-zerocopy -x flood --eor --connect h");
        assert!(
            records.contains("tcp-zerocopy keeps no records apart") && records.contains("tcp, udp"),
            "{records}"
        );
        for line in [
            "-s 0 --connect h",
            "-s 8-1 --connect h",
            "-c 0 --connect h",
            "-g 0 --connect h",
            "-g 1001 --connect h",
            "-g 4294967295 --connect h",
            "--loss-timeout 0 --connect h",
            "--give-up 0 --connect h",
            "--ethertype 0x05ff --connect h",
            "--ethertype x --connect h",
            "--format xml --connect h",
            "--percentiles 100 --connect h",
            "--once --connect h",
            "--once --peers a,b -x one-many",
            "--listen 10.0.0.1 --netns a,b -x one-many",
            "-x bulk --block 65M --connect h",
            "-x bulk --block 0 --connect h",
            "--ssh ssh --connect h",
            "--remote-program netgauge --netns a,b -x one-many",
            "--ssh ssh --server",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn options_of_patterns_of_many_are_refused_elsewhere() {
        for option in [
            "--seed 1",
            "--rate 1G",
            "--clients 2",
            "--server-index 0",
            "--congestion dctcp",
            "--burst 4",
            "--ack 4",
            #[cfg(feature = "pictures")]
            "--plot x.svg",
        ] {
            let name = option.split(' ').next().unwrap();
            let cli = parse(&format!("--connect h {option}")).unwrap();
            let error = cli.client_options("h").err().unwrap().to_string();
            let expected = format!("{name} is for patterns of many");
            assert!(error.contains(&expected), "{error}");
            let cli = parse(&format!("--server {option}")).unwrap();
            let error = cli.check_server().unwrap_err().to_string();
            let expected = format!("{name} is the coordinator's");
            assert!(error.contains(&expected), "{error}");
        }
        parse("--server").unwrap().check_server().unwrap();
    }

    #[test]
    fn ethernet_types_are_hexadecimal_or_decimal() {
        assert_eq!(
            parse("--server --ethertype 0x88B7")
                .unwrap()
                .measuring
                .ethertype,
            0x88B7
        );
        assert_eq!(
            parse("--server --ethertype 35000")
                .unwrap()
                .measuring
                .ethertype,
            35000
        );
        assert_eq!(
            parse("--server").unwrap().measuring.ethertype,
            DEFAULT_ETHERTYPE
        );
    }
}
