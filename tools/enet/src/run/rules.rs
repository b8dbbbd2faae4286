// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rules that say for which peers and ports ESP may carry the connections of mapped sockets.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::{anyhow, ensure, Context, Error, Result};

use super::stale;

/// The module's file of rules.
const FILE: &str = "/proc/net/enet_policy";

/// Maximum number of rules in the module, for each network namespace.
const MOST: usize = 256;

/// The networks of all hosts: in the module's rules, a network has hosts of one family.
const ALL: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
];

/// The peers and the server ports to which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peers {
    /// An address and the number of its bits that count. `None` is all hosts of both families.
    network: Option<(IpAddr, u8)>,
    first: u16,
    last: u16,
}

impl Peers {
    /// Returns the networks and the ports, as the module's rules have them.
    fn networks(self) -> impl Iterator<Item = String> {
        let Self {
            network,
            first,
            last,
        } = self;
        let all = network.is_none().then_some(ALL).into_iter().flatten();
        all.chain(network)
            .map(move |(network, bits)| format!("{network}/{bits} {first}-{last}"))
    }
}

/// Returns the number of bits of an address.
fn width_of(address: IpAddr) -> u8 {
    if address.is_ipv4() {
        32
    } else {
        128
    }
}

/// Parses a number that consists of decimal digits only, without a sign.
fn number<T: FromStr>(text: &str) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    ensure!(digits, "`{text}` is no number");
    text.parse().with_context(|| format!("`{text}`"))
}

impl FromStr for Peers {
    type Err = Error;

    /// Parses `ADDRESS[/BITS][:PORT[-PORT]]`, where address or port may be missing. An IPv6 address
    /// with its bits stands in brackets if a port follows.
    fn from_str(text: &str) -> Result<Self> {
        let is_v6 = |text: &str| {
            let address = text.split_once('/').map_or(text, |(address, _)| address);
            address.parse::<Ipv6Addr>().is_ok()
        };
        let (place, ports) = match text.strip_prefix('[') {
            Some(rest) => {
                let (place, rest) = rest.split_once(']').context("no closing bracket")?;
                ensure!(is_v6(place), "only an IPv6 address stands in brackets");
                let ports = rest.strip_prefix(':');
                ensure!(
                    rest.is_empty() || ports.is_some(),
                    "no port behind the bracket"
                );
                (place, ports)
            }
            None if is_v6(text) => (text, None),
            None => match text.split_once(':') {
                Some((place, ports)) => (place, Some(ports)),
                None => (text, None),
            },
        };
        ensure!(
            !place.is_empty() || ports.is_some(),
            "neither an address nor a port"
        );
        let network = match place.split_once('/') {
            _ if place.is_empty() => None,
            Some((network, bits)) => Some((network.parse()?, number(bits)?)),
            None => {
                let address = place.parse()?;
                Some((address, width_of(address)))
            }
        };
        if let Some((network, bits)) = network {
            let width = width_of(network);
            ensure!(bits <= width, "the address has {width} bits");
        }
        let (first, last) = match ports.map(|ports| ports.split_once('-').unwrap_or((ports, ports)))
        {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (0, u16::MAX),
        };
        ensure!(first <= last, "the first port is behind the last");
        Ok(Self {
            network,
            first,
            last,
        })
    }
}

/// The peers and ports that ESP may and may not carry.
#[derive(Debug, Default, clap::Args)]
pub struct Rules {
    /// Let ESP carry only connections with these peers and server ports, for instance
    /// 10.0.0.0/24:6379 or :5432; can be repeated
    #[arg(long, value_name = "PEERS", value_parser = Peers::from_str)]
    allow: Vec<Peers>,

    /// Leave connections with these peers and server ports to TCP; can be repeated, and takes
    /// precedence over --allow
    #[arg(long, value_name = "PEERS", value_parser = Peers::from_str)]
    deny: Vec<Peers>,
}

impl Rules {
    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Returns the lines that set the rules in the module for control group `group`.
    fn lines(&self, group: u64) -> impl Iterator<Item = String> + '_ {
        let allow = self.allow.iter().map(|peers| ("allow", peers));
        let deny = self.deny.iter().map(|peers| ("deny", peers));
        // Deny rules come first because sockets may connect between two lines: an allow rule must
        // not take effect before the deny rules that restrict it.
        deny.chain(allow).flat_map(move |(word, peers)| {
            (peers.networks()).map(move |network| format!("{word} {network} {group}\n"))
        })
    }

    /// Stores the rules for a control group in the module. They replace the group's earlier rules.
    /// If the module refuses a rule, all rules of the group are removed. If it refuses because it
    /// has too many, the rules of groups that no longer exist are removed first, and the rule is
    /// tried again.
    ///
    /// # Errors
    /// If this user lacks `CAP_NET_ADMIN`, or there are too many rules.
    pub fn keep(&self, group: u64) -> Result<()> {
        forget(group)?;
        let mut lines = self.lines(group);
        let kept = lines.try_for_each(|line| {
            let written = match write(&line) {
                // An error is ignored because the first error is the one to report.
                Err(error) if is_full(&error) && stale::forget().is_ok() => write(&line),
                written => written,
            };
            let line = line.trim_end();
            written
                .map_err(explain)
                .with_context(|| format!("the rule `{line}`"))
        });
        if kept.is_err() {
            // An error is ignored because the first error is the one to report.
            let _ = forget(group);
        }
        kept
    }
}

/// Returns the numbers of the control groups that have rules, in no order.
///
/// # Errors
/// If the module's rules cannot be read.
pub fn groups() -> Result<Vec<u64>> {
    let text = match fs::read_to_string(FILE) {
        Ok(text) => text,
        // Without the module there are no rules.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context(FILE),
    };
    Ok(groups_of(&text))
}

/// Returns the groups of some rules. Group 0 is no control group: its rules are the namespace's.
fn groups_of(text: &str) -> Vec<u64> {
    let last = |line: &str| line.split_whitespace().next_back()?.parse().ok();
    text.lines()
        .filter_map(last)
        .filter(|group| *group != 0)
        .collect()
}

/// Removes the module's rules for a control group.
///
/// # Errors
/// The errors of [`Rules::keep`].
pub fn forget(group: u64) -> Result<()> {
    write(&format!("flush {group}\n")).map_err(explain)
}

fn write(line: &str) -> io::Result<()> {
    fs::write(FILE, line)
}

fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSPC)
}

fn explain(error: io::Error) -> Error {
    if is_full(&error) {
        anyhow!("{FILE} is full: a network namespace has {MOST} rules at most")
    } else {
        anyhow!(error).context(format!("writing {FILE}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_networks_and_ports() {
        let read = |text: &str| {
            let networks = text.parse::<Peers>().ok()?.networks();
            Some(networks.collect::<Vec<_>>().join(", "))
        };
        for (text, wanted) in [
            ("10.0.0.1", "10.0.0.1/32 0-65535"),
            ("10.0.0.0/24", "10.0.0.0/24 0-65535"),
            ("10.0.0.0/24:6379", "10.0.0.0/24 6379-6379"),
            (":5432-5440", "0.0.0.0/0 5432-5440, ::/0 5432-5440"),
            ("0.0.0.0/0:80", "0.0.0.0/0 80-80"),
            ("::/0", "::/0 0-65535"),
            ("fd00::1", "fd00::1/128 0-65535"),
            ("fd00::/64", "fd00::/64 0-65535"),
            ("[fd00::/64]:6379", "fd00::/64 6379-6379"),
            ("[fd00::1]:80-90", "fd00::1/128 80-90"),
        ] {
            assert_eq!(read(text).as_deref(), Some(wanted), "{text}");
        }
        for text in [
            "",
            ":",
            "10.0.0",
            "10.0.0.1/33",
            ":9-8",
            ":65536",
            ":+5",
            ":5-",
            "10.0.0.0/+8",
            "fd00::/129",
            "[fd00::1",
            "[fd00::1]80",
            "[10.0.0.1]:80",
            "a",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn rules_name_their_groups() {
        let text = "allow 10.0.0.0/24 6379-6379 0\ndeny fd00::/64 0-65535 978\n";
        assert_eq!(groups_of(text), [978]);
    }

    #[test]
    fn lines_forbid_first() {
        let rules = Rules {
            allow: vec![":80".parse().unwrap()],
            deny: vec!["10.0.0.9".parse().unwrap()],
        };
        let lines: Vec<_> = rules.lines(7).collect();
        let wanted = [
            "deny 10.0.0.9/32 0-65535 7\n",
            "allow 0.0.0.0/0 80-80 7\n",
            "allow ::/0 80-80 7\n",
        ];
        assert_eq!(lines, wanted);
    }
}
