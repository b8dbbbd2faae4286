// SPDX-License-Identifier: MIT OR Apache-2.0

//! The options of patterns between more than two hosts.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{ensure, Result};
use clap::{Args, Command, FromArgMatches as _};

use super::hosts::HostArgs;
use super::location::Location;
use crate::measuring::Measuring;
use crate::picture_file;
use crate::sizes::{parse_ranges, split_unit};

/// The heading, in the help, of the options for patterns of many participants.
const MANY: &str =
    "Many participants (one-many, many-one, all-to-all, bisection, loaded-latency, esp-params)";

/// The longest pause that option `--pause` accepts, milliseconds. The limit is needed because a
/// server that receives nothing for a time (option `--give-up`) gives up, even during a pause.
const MOST_PAUSE: i64 = 1000;

/// The maximum number of values in one range, such as `1-8`. No run has time for so many.
const MOST: u32 = 1024;

/// A coordinator's options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's host, if the only client is this host.
    pub connect: Option<String>,
    /// The port of servers that are named without a port.
    pub port: u16,
    /// The time limit for all attempts to reach a server, or a host by ssh.
    pub wait: Duration,
    /// The interface for the processes that the coordinator starts.
    pub interface: Option<String>,
    /// Options of the measurement and of its report.
    pub measuring: Measuring,
    /// Options that choose the participants and their work.
    pub group: GroupArgs,
}

/// Options of patterns of more than two participants.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = MANY)]
pub struct GroupArgs {
    /// Coordinate the servers on these hosts: HOST or HOST:PORT, separated by commas
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub peers: Vec<String>,

    /// Coordinate processes in these network namespaces of this host, which use --interface
    /// [default: eth0]; a name may be repeated
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub netns: Vec<String>,

    /// Take part in network namespace NETNS; the coordinator starts this
    #[arg(long, value_name = "NETNS", num_args = 0..=1, require_equals = true, hide = true)]
    pub participant: Option<Option<String>>,

    /// Seed of the random choice of the server or of the pairs [default: random]
    #[arg(long, value_name = "NUMBER", conflicts_with = "server_index")]
    pub seed: Option<u64>,

    /// Rate of the server's link in bit/s, to report goodput as a share of it: 200M, 1G, 2.5G
    #[arg(long, value_name = "RATE")]
    pub rate: Option<Rate>,

    /// Options of participants that ssh starts on other hosts.
    #[command(flatten)]
    pub hosts: HostArgs,

    /// Options of the participants' work.
    #[command(flatten)]
    pub many: ManyArgs,
}

/// Options of patterns of many participants, which may be processes or hosts.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = MANY)]
pub struct ManyArgs {
    /// Numbers of clients, such as 1,2,4 or 1-4; N clients need N + 1 participants [default:
    /// one-many, many-one: all but the server; esp-params: 1]
    #[arg(long, value_name = "NUMBERS")]
    pub clients: Option<Numbers>,

    /// Which participant is the server, from 0 [default: one of N + 1 at random]
    #[arg(long, value_name = "INDEX")]
    pub server_index: Option<usize>,

    /// TCP's congestion controls to measure, such as cubic,reno,dctcp [default: the system's]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub congestion: Vec<String>,

    /// loaded-latency: milliseconds from a reply to the next call [default: 0]
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u32).range(..=MOST_PAUSE))]
    pub pause: Option<u32>,

    /// esp-params: values of burst_length [default: 1,2,4,8,12,16,21,24,32,48,64]
    #[arg(long, value_name = "NUMBERS")]
    pub burst: Option<Numbers>,

    /// esp-params: values of packets_to_ack [default: 1,2,4,6,8,10,12,16,24,32,48]
    #[arg(long, value_name = "NUMBERS")]
    pub ack: Option<Numbers>,

    /// Draw the goodput over clients or sizes, or for esp-params as a heat map, into a file whose
    /// name ends in .svg or .png
    #[arg(long, value_name = "FILE", value_parser = picture_file::parse_path)]
    pub plot: Option<PathBuf>,
}

impl GroupArgs {
    /// Parses a command line that has only options of patterns between more than two hosts.
    ///
    /// # Errors
    ///
    /// Fails if the line has other options, or a wrong value.
    pub(crate) fn parse_from<'a>(
        line: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, clap::Error> {
        // clap needs to know `server` and `connect`, because some of these options conflict with
        // them.
        let others = ["server", "connect"].map(|name| clap::Arg::new(name).long(name));
        let command = Self::augment_args(Command::new("group").no_binary_name(true).args(others));
        Self::from_arg_matches(&command.try_get_matches_from(line)?)
    }

    /// Refuses the options of patterns between more than two hosts, for a command line without such
    /// a pattern. In the error, `why` follows the option's name.
    ///
    /// # Errors
    ///
    /// Fails if one of these options is given.
    pub fn refuse(&self, why: &str) -> Result<()> {
        let many = &self.many;
        for (given, option) in [
            (self.seed.is_some(), "--seed"),
            (self.rate.is_some(), "--rate"),
            (many.clients.is_some(), "--clients"),
            (many.server_index.is_some(), "--server-index"),
            (!many.congestion.is_empty(), "--congestion"),
            (many.pause.is_some(), "--pause"),
            (many.burst.is_some(), "--burst"),
            (many.ack.is_some(), "--ack"),
            (many.plot.is_some(), "--plot"),
        ] {
            ensure!(!given, "{option} {why}");
        }
        Ok(())
    }

    /// Returns the locations of the participants. With option --connect, the server is on host
    /// `connect`, and the client is here.
    ///
    /// # Errors
    ///
    /// Fails if a server is named twice, because one server cannot be two participants at once.
    /// Also fails if the file of hosts cannot be used.
    pub fn locations(&self, connect: Option<&str>, port: u16) -> Result<Vec<Location>> {
        if let Some(host) = connect {
            return Ok(vec![Location::server(host, port)?, Location::Here]);
        }
        let mut locations: Vec<Location> = Vec::new();
        for peer in &self.peers {
            let place = Location::server(peer, port)?;
            ensure!(
                !locations.contains(&place),
                "{place} is named twice in --peers: a server takes one part at a time"
            );
            locations.push(place);
        }
        locations.extend(self.hosts.locations()?);
        locations.extend(self.netns.iter().cloned().map(Location::Namespace));
        Ok(locations)
    }
}

/// Numbers from 1, ascending and without repetition: `1,2,4`, `1-8`, `1-8,16`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(pub Vec<u32>);

impl Numbers {
    /// Returns the powers of two below `most`, and `most`.
    pub fn doubling(most: u32) -> Self {
        let powers = (0..u32::BITS).map(|power| 1 << power);
        let mut numbers: Vec<u32> = powers.take_while(|number| *number < most).collect();
        numbers.push(most);
        Self(numbers)
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = text.parse::<u32>().ok().filter(|_| digits);
            parsed
                .filter(|number| (1..=32767).contains(number))
                .ok_or_else(|| format!("`{text}` is not a number from 1 to 32767"))
        };
        let mut numbers: Vec<u32> = Vec::new();
        for (from, to) in parse_ranges(text, "one", number)? {
            if to - from >= MOST {
                return Err(format!("`{from}-{to}` is too long: at most {MOST} numbers"));
            }
            numbers.extend(from..=to);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Self(numbers))
    }
}

/// A link's rate, bit/s; k, M and G are powers of 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, factor) = split_unit(text, 1000);
        let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let number = digits.parse::<f64>().ok().filter(|_| plain);
        number
            .map(|number| number * factor as f64)
            .filter(|rate| (1.0..=1e15).contains(rate))
            .map(|rate| Self(rate.round() as u64))
            .ok_or_else(|| format!("`{text}` is not a rate: write bit/s, as in 200M or 2.5G"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_lists_and_ranges() {
        let numbers = |text: &str| text.parse::<Numbers>().map(|numbers| numbers.0);
        assert_eq!(numbers("1,2,4").unwrap(), [1, 2, 4]);
        assert_eq!(numbers("3-5,1,4").unwrap(), [1, 3, 4, 5]);
        assert_eq!(numbers("7-7").unwrap(), [7]);
        assert_eq!(numbers("32767").unwrap(), [32767]);
        for text in [
            "", "0", "1,", "-", "1-", "5-3", "x", "32768", "+1", "1-32767",
        ] {
            assert!(numbers(text).is_err(), "{text}");
        }
    }

    #[test]
    fn doubling_ends_with_the_last() {
        assert_eq!(Numbers::doubling(1).0, [1]);
        assert_eq!(Numbers::doubling(7).0, [1, 2, 4, 7]);
        assert_eq!(Numbers::doubling(8).0, [1, 2, 4, 8]);
    }

    #[test]
    fn rates_are_decimal() {
        let rate = |text: &str| text.parse::<Rate>().map(|rate| rate.0);
        assert_eq!(rate("200M"), Ok(200_000_000));
        assert_eq!(rate("2.5G"), Ok(2_500_000_000));
        assert_eq!(rate("64k"), Ok(64_000));
        assert_eq!(rate("1000"), Ok(1000));
        for text in ["", "M", "0", "-1M", "1e9", "inf", "200 M", "1T"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
