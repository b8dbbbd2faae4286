// SPDX-License-Identifier: GPL-2.0

//! The peers and server ports for which mapped sockets may use ESP, by control group.
//!
//! The rules of a group apply to sockets that its processes created; the rules of group 0 apply to
//! the whole namespace. A deny rule overrides all allow rules. If a group has allow rules, one of
//! them must match.

use crate::net::errno::prelude::*;
use crate::net::{bh_lock::BhLock, sock::RawSock};
use core::{fmt, net::IpAddr, ops::RangeInclusive};
use kernel::static_lock_class;

/// Maximum number of rules in a namespace.
const MOST: usize = 256;

/// A rule that allows or denies ESP for some hosts and server ports.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// The number of the control group to which the rule applies; 0 for all groups.
    group: u64,
    allows: bool,
    network: IpAddr,
    /// Number of leading bits of `network` that are compared. If it is 0, the rule applies to all
    /// hosts of the family of `network`.
    bits: u8,
    /// The server ports to which the rule applies.
    ports: RangeInclusive<u16>,
}

impl Rule {
    fn is_about(&self, peer: IpAddr, port: u16) -> bool {
        if !self.ports.contains(&port) {
            return false;
        }
        // A shift by the whole width, which is the shift of a rule with 0 bits, leaves nothing to
        // compare.
        let rest = |width: u32| width.saturating_sub(self.bits.into());
        match (peer, self.network) {
            (IpAddr::V4(peer), IpAddr::V4(network)) => {
                let differing = peer.to_bits() ^ network.to_bits();
                differing.checked_shr(rest(32)).unwrap_or(0) == 0
            }
            (IpAddr::V6(peer), IpAddr::V6(network)) => {
                let differing = peer.to_bits() ^ network.to_bits();
                differing.checked_shr(rest(128)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Returns whether the rule allows ESP with particular hosts. A rule for all hosts says for
    /// which ports ESP may be used, but not which hosts support ESP.
    fn names_hosts(&self) -> bool {
        self.allows && self.bits > 0
    }

    /// Parses `allow|deny ADDRESS/BITS FIRST-LAST GROUP`.
    pub(super) fn parse<'a>(word: &str, mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let allows = match word {
            "allow" => true,
            "deny" => false,
            _ => return None,
        };
        let (network, bits) = words.next()?.split_once('/')?;
        let (first, last) = words.next()?.split_once('-')?;
        let network: IpAddr = network.parse().ok()?;
        // A rule with an IPv4-mapped IPv6 address is rejected. It would match no peer, because IPv4
        // peers are compared in IPv4 form.
        if network.to_canonical() != network {
            return None;
        }
        let width = if network.is_ipv4() { 32 } else { 128 };
        let rule = Rule {
            group: words.next()?.parse().ok()?,
            allows,
            network,
            bits: bits.parse().ok().filter(|bits| *bits <= width)?,
            ports: first.parse().ok()?..=last.parse().ok()?,
        };
        (words.next().is_none() && !rule.ports.is_empty()).then_some(rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.allows { "allow" } else { "deny" };
        let (first, last) = (self.ports.start(), self.ports.end());
        write!(
            f,
            "{word} {}/{} {first}-{last} {}",
            self.network, self.bits, self.group
        )
    }
}

/// Whether ESP may carry a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// ESP must not carry the connection.
    Denied,
    /// ESP may carry the connection, because no rule is against it.
    Allowed,
    /// ESP may carry the connection, and a rule names the peer's network.
    Named,
}

/// The rules of a namespace, grouped by control group.
pub(crate) struct Rules(BhLock<KVec<Rule>>);

impl Rules {
    /// Creates an empty list.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Rules(BhLock::new(KVec::new(), static_lock_class!())?))
    }

    /// Returns whether ESP may carry a connection of `sock` with `peer` to the server port `port`,
    /// and whether a rule names the peer's network.
    pub(crate) fn judge(&self, sock: &RawSock, peer: IpAddr, port: u16) -> Verdict {
        let rules = self.0.lock();
        let mut verdict = Verdict::Allowed;
        for rules in rules.chunk_by(|one, other| one.group == other.group) {
            let applies = rules
                .first()
                .is_some_and(|rule| rule.group == 0 || sock.is_in_group(rule.group));
            if !applies {
                continue;
            }
            let mut about = rules.iter().filter(|rule| rule.is_about(peer, port));
            if about.clone().any(Rule::names_hosts) {
                verdict = Verdict::Named;
            }
            let allowed = match rules.iter().any(|rule| rule.allows) {
                true => about.clone().all(|rule| rule.allows) && about.next().is_some(),
                false => about.next().is_none(),
            };
            if !allowed {
                return Verdict::Denied;
            }
        }
        verdict
    }

    /// Returns whether ESP may carry a connection of `sock` with `peer` to the server port `port`.
    pub(crate) fn allow(&self, sock: &RawSock, peer: IpAddr, port: u16) -> bool {
        self.judge(sock, peer, port) != Verdict::Denied
    }

    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// `ENOSPC`, `ENOMEM`.
    pub(super) fn add(&self, rule: Rule) -> Result {
        // The first rule allocates space for all rules, so that nothing is allocated with the lock
        // held.
        let mut room = KVec::new();
        if self.0.lock().capacity() == 0 {
            room = KVec::with_capacity(MOST, GFP_KERNEL_ACCOUNT)?;
        }
        let mut rules = self.0.lock();
        if rules.capacity() == 0 {
            core::mem::swap(&mut *rules, &mut room);
        }
        let place = rules
            .iter()
            .rposition(|other| other.group == rule.group)
            .map_or(rules.len(), |last| last.saturating_add(1));
        let added = rules.insert_within_capacity(place, rule);
        drop(rules);
        added.map_err(|_| ENOSPC)
    }

    /// Removes the rules of the control group with the number `group`.
    pub(super) fn flush(&self, group: u64) {
        self.0.lock().retain(|rule| rule.group != group);
    }

    /// Returns the rule with number `index` in storage order, if there is one.
    pub(super) fn get(&self, index: usize) -> Option<Rule> {
        self.0.lock().get(index).cloned()
    }
}
