// SPDX-License-Identifier: MIT OR Apache-2.0

//! The options of patterns of more than two.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{bail, ensure, Result};
use clap::Args;

use super::esp_params::{Grid, ParamsPlan};
use super::one_many::{ManyPlan, Medium};
use super::participants::Place;
use crate::picture;
use crate::transport::Kind;

/// The most numbers of one range: far above what a run has time for.
const MOST: u32 = 1024;

/// Options of patterns of more than two.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Many participants (one-many, esp-params)")]
pub struct GroupArgs {
    /// Coordinate the servers on these hosts: HOST or HOST:PORT, with commas between
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub peers: Vec<String>,

    /// Coordinate processes in these network namespaces of this host, by --interface [default:
    /// eth0]; a name may come several times
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub netns: Vec<String>,

    /// Take part in network namespace NETNS; the coordinator starts this
    #[arg(long, value_name = "NETNS", num_args = 0..=1, require_equals = true, hide = true)]
    pub participant: Option<Option<String>>,

    /// Numbers of clients, as 1,2,4 or 1-4; N clients need N + 1 participants [default: one-many:
    /// all but the server; esp-params: 1]
    #[arg(long, value_name = "NUMBERS")]
    pub clients: Option<Numbers>,

    /// Which participant is the server, from 0 [default: one of N + 1 at random]
    #[arg(long, value_name = "INDEX")]
    pub server_index: Option<usize>,

    /// What the choice of the server depends on, for the same one again [default: random]
    #[arg(long, value_name = "NUMBER", conflicts_with = "server_index")]
    pub seed: Option<u64>,

    /// Rate of the server's link in bit/s, to give goodput as a share of: 200M, 1G, 2.5G
    #[arg(long, value_name = "RATE")]
    pub rate: Option<Rate>,

    /// one-many: TCP's congestion controls to measure, as cubic,reno,dctcp [default: the system's]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub congestion: Vec<String>,

    /// esp-params: values of burst_length [default: 1,2,4,8,12,16,21,24,32,48,64]
    #[arg(long, value_name = "NUMBERS")]
    pub burst: Option<Numbers>,

    /// esp-params: values of packets_to_ack [default: 1,2,4,6,8,10,12,16,24,32,48]
    #[arg(long, value_name = "NUMBERS")]
    pub ack: Option<Numbers>,

    /// esp-params: draw the goodput as a heat map, SVG or PNG by the name's end
    #[arg(long, value_name = "FILE", value_parser = picture::parse_path)]
    pub plot: Option<PathBuf>,
}

impl GroupArgs {
    /// Who takes part. `connect` is the server of option --connect, whose client is here.
    ///
    /// # Errors
    ///
    /// Nobody is named, or somebody twice who cannot be in two places.
    pub fn places(&self, connect: Option<&str>, port: u16) -> Result<Vec<Place>> {
        if let Some(host) = connect {
            let server = Place::Server {
                host: host.to_owned(),
                port,
            };
            return Ok(vec![server, Place::Here]);
        }
        let mut places: Vec<Place> = Vec::new();
        for peer in &self.peers {
            let place = parse_peer(peer, port)?;
            ensure!(
                !places.contains(&place),
                "{place} is named twice in --peers: a server takes one part at a time"
            );
            places.push(place);
        }
        places.extend(self.netns.iter().cloned().map(Place::Namespace));
        Ok(places)
    }

    /// The server's index where it is fixed, with `connect` as above.
    fn server(&self, connect: Option<&str>, participants: usize) -> Result<Option<usize>> {
        if let Some(index) = self.server_index {
            ensure!(
                index < participants,
                "there is no participant {index}: the last one is {}",
                participants.saturating_sub(1)
            );
        }
        Ok(match (self.server_index, connect) {
            (None, Some(_)) => Some(0),
            (index, _) => index,
        })
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| fastrand::u64(..))
    }

    /// What `one-many` is to measure.
    ///
    /// # Errors
    ///
    /// The options do not go together.
    pub fn many_plan(
        &self,
        kinds: &[&'static Kind],
        rounds: RoundsPlan,
        connect: Option<&str>,
        participants: usize,
    ) -> Result<ManyPlan> {
        for (given, option) in [
            (self.burst.is_some(), "--burst"),
            (self.ack.is_some(), "--ack"),
            (self.plot.is_some(), "--plot"),
        ] {
            ensure!(!given, "{option} is for esp-params");
        }
        let clients = match &self.clients {
            Some(numbers) => numbers.0.clone(),
            None => vec![u32::try_from(participants.saturating_sub(1))?],
        };
        for count in &clients {
            check_count(*count, participants)?;
        }
        let mut media = Vec::new();
        for kind in kinds {
            let streams = super::part::stream_kind(kind)?;
            let choice = self.congestion.iter().filter(|_| streams.congestion);
            let mut names: Vec<Option<String>> = choice.cloned().map(Some).collect();
            if names.is_empty() {
                names.push(None);
            }
            media.extend(
                names
                    .into_iter()
                    .map(|congestion| Medium { kind, congestion }),
            );
        }
        ensure!(
            self.congestion.is_empty() || media.iter().any(|medium| medium.congestion.is_some()),
            "--congestion is for tcp: add it to -m"
        );
        Ok(ManyPlan {
            media,
            clients: clients.iter().map(|count| *count as usize).collect(),
            rounds,
            server: self.server(connect, participants)?,
            seed: self.seed(),
            rate: self.rate.map(|rate| rate.0),
        })
    }

    /// What `esp-params` is to measure.
    ///
    /// # Errors
    ///
    /// The options do not go together.
    pub fn params_plan(
        &self,
        rounds: RoundsPlan,
        connect: Option<&str>,
        participants: usize,
    ) -> Result<ParamsPlan> {
        ensure!(
            self.congestion.is_empty(),
            "--congestion is for one-many over tcp"
        );
        let clients = match self.clients.as_ref().map(|numbers| &numbers.0[..]) {
            None => 1,
            Some([count]) => *count,
            Some(_) => bail!("esp-params measures one number of clients: give --clients one"),
        };
        check_count(clients, participants)?;
        let [size] = rounds.sizes[..] else {
            bail!("esp-params measures one size: give -s one");
        };
        let or = |numbers: &Option<Numbers>, default: &[u32]| match numbers {
            Some(numbers) => numbers.0.clone(),
            None => default.to_vec(),
        };
        let grid = Grid {
            burst_length: or(&self.burst, &[1, 2, 4, 8, 12, 16, 21, 24, 32, 48, 64]),
            packets_to_ack: or(&self.ack, &[1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 48]),
        };
        ensure!(
            grid.cells().next().is_some(),
            "every value of --ack is above every one of --burst: no packet would ever be acknowledged in time"
        );
        Ok(ParamsPlan {
            grid,
            clients: clients as usize,
            size,
            tests: rounds.tests,
            warmup: rounds.warmup,
            server: self.server(connect, participants)?,
            seed: self.seed(),
            rate: self.rate.map(|rate| rate.0),
            plot: self.plot.clone(),
        })
    }
}

/// Which rounds are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundsPlan {
    /// Bytes that each client sends in a round, ascending.
    pub sizes: Vec<u64>,
    /// Rounds per size.
    pub tests: u32,
    /// Rounds before them that do not count.
    pub warmup: u32,
}

fn check_count(clients: u32, participants: usize) -> Result<()> {
    ensure!(
        (clients as usize) < participants,
        "{clients} clients and their server are {} participants: {participants} are named",
        clients + 1
    );
    Ok(())
}

/// Numbers from 1, ascending and each once: `1,2,4`, `1-8`, `1-8,16`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(pub Vec<u32>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = text.parse().ok().filter(|_| digits);
            parsed
                .filter(|number| (1..=32767).contains(number))
                .ok_or_else(|| format!("`{text}` is not a number from 1 to 32767"))
        };
        let mut numbers: Vec<u32> = Vec::new();
        for item in text.split(',') {
            match item.split_once('-') {
                None => numbers.push(number(item)?),
                Some((from, to)) => {
                    let (from, to) = (number(from)?, number(to)?);
                    if from > to {
                        return Err(format!("`{item}` goes down: write the smaller one first"));
                    }
                    if to - from >= MOST {
                        return Err(format!("`{item}` is too long: at most {MOST} numbers"));
                    }
                    numbers.extend(from..=to);
                }
            }
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
        let (digits, factor) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
            Some(b'm' | b'M') => (&text[..text.len() - 1], 1e6),
            Some(b'g' | b'G') => (&text[..text.len() - 1], 1e9),
            _ => (text, 1.0),
        };
        let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let number = digits.parse::<f64>().ok().filter(|_| plain);
        number
            .map(|number| number * factor)
            .filter(|rate| (1.0..=1e15).contains(rate))
            .map(|rate| Self(rate.round() as u64))
            .ok_or_else(|| format!("`{text}` is not a rate: write bit/s, as in 200M or 2.5G"))
    }
}

/// HOST, HOST:PORT, `[IPv6]:PORT`, or an IPv6 address alone.
fn parse_peer(text: &str, default: u16) -> Result<Place> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, port.strip_prefix(':').or(Some(""))),
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = match port {
        None => default,
        Some(port) => port.parse().unwrap_or(0),
    };
    ensure!(
        !host.is_empty() && port != 0,
        "`{text}` is no participant: write HOST, HOST:PORT or [IPv6]:PORT"
    );
    Ok(Place::Server {
        host: host.to_owned(),
        port,
    })
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

    #[test]
    fn peers_are_hosts_with_or_without_ports() {
        let peer = |text: &str| parse_peer(text, 2805).map(|place| place.to_string());
        assert_eq!(peer("node7").unwrap(), "node7:2805");
        assert_eq!(peer("10.0.0.1:99").unwrap(), "10.0.0.1:99");
        assert_eq!(peer("fd00::1").unwrap(), "[fd00::1]:2805");
        assert_eq!(peer("[fd00::1]").unwrap(), "[fd00::1]:2805");
        assert_eq!(peer("[fd00::1]:99").unwrap(), "[fd00::1]:99");
        for text in ["", ":99", "a:", "a:0", "a:x", "[fd00::1]x", "[]:1"] {
            assert!(peer(text).is_err(), "{text}");
        }
    }
}
