// SPDX-License-Identifier: GPL-2.0

//! `/proc/net/enet_mapped`: the carriers of mapped sockets' connections.
//! `/proc/net/enet_policy`: the rules that decide whether ESP may carry a connection.
//! `/proc/net/af_ssocks/family`: the number of the family `ssocks`, where DRBD's tools read it.

use super::{carriers::Carrier, policy::Rule};
use crate::net::errno::prelude::*;
use crate::{
    esp,
    net::{
        namespace::{Net, PerNet},
        procfs::{Edit, Full, Output, Place, Show, Table, Text},
    },
    parameters,
    pernet::NetState,
};
use core::{
    fmt::{self, Write},
    net::Ipv6Addr,
};
use kernel::{c_str, str::CStr};

/// Formats an end in the form that the tools use: `10.0.0.1:80`.
struct Named(esp::InternetEnd);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Text::<56>::new();
        let address = Ipv6Addr::from(self.0.address);
        match address.to_ipv4_mapped() {
            Some(address) => write!(text, "{address}:{}", self.0.port)?,
            None => write!(text, "[{address}]:{}", self.0.port)?,
        }
        f.pad(text.as_str())
    }
}

/// The directory of [`SsocksFile`].
pub(crate) const SSOCKS: &CStr = c_str!("af_ssocks");

/// The file `/proc/net/af_ssocks/family`, which exists only if the family does.
pub(crate) struct SsocksFile;

static SSOCKS_TABLE: Table<SsocksFile> = Table::new();

impl Show for SsocksFile {
    const NAME: &'static CStr = c_str!("af_ssocks/family");

    fn table() -> &'static Table<Self> {
        &SSOCKS_TABLE
    }

    fn show(_net: &Net, place: &mut Place, out: &mut Output) -> Result<(), Full> {
        if let (0, Some(family)) = (place.part, parameters::ssocks()) {
            out.line(format_args!("{family}"))?;
            place.next_part();
        }
        Ok(())
    }
}

/// The file `/proc/net/enet_mapped`.
pub(crate) struct MappedFile;

static MAPPED: Table<MappedFile> = Table::new();

impl MappedFile {
    fn row(inode: u64, carrier: &Carrier, out: &mut Output) -> Result<(), Full> {
        let reason = carrier.reason();
        match carrier {
            Carrier::Esp(own, peer) => out.line(format_args!(
                "{inode:>10} {:<7} {reason:<14} {:<21} {:<21}",
                "esp",
                Named(*own),
                Named(*peer)
            )),
            _ => out.line(format_args!(
                "{inode:>10} {:<7} {reason:<14} {:<21} {:<21}",
                "tcp", "-", "-"
            )),
        }
    }
}

impl Show for MappedFile {
    const NAME: &'static CStr = c_str!("enet_mapped");

    fn table() -> &'static Table<Self> {
        &MAPPED
    }

    fn show(net: &Net, place: &mut Place, out: &mut Output) -> Result<(), Full> {
        if place.part == 0 {
            out.line(format_args!(
                "{:>10} {:<7} {:<14} {:<21} {:<21}",
                "inode", "carrier", "reason", "local", "remote"
            ))?;
            place.next_part();
        }
        let connections = &NetState::of(net).mapped_connections;
        // `place.part` is the next inode number, or 0 before the header is written. The inode
        // numbers of sockets fit into 32 bits and are never 0.
        while let Some((inode, carrier)) = connections.from(place.part.into()) {
            Self::row(inode, &carrier, out)?;
            match u32::try_from(inode)
                .ok()
                .and_then(|inode| inode.checked_add(1))
            {
                Some(next) => place.part = next,
                None => break,
            }
        }
        Ok(())
    }
}

/// The file `/proc/net/enet_policy`.
pub(crate) struct PolicyFile;

static POLICY: Table<PolicyFile> = Table::new();

impl Show for PolicyFile {
    const NAME: &'static CStr = c_str!("enet_policy");

    fn table() -> &'static Table<Self> {
        &POLICY
    }

    fn show(net: &Net, place: &mut Place, out: &mut Output) -> Result<(), Full> {
        let rules = &NetState::of(net).mapped_rules;
        loop {
            let Some(rule) = rules.get(place.part as usize) else {
                return Ok(());
            };
            out.line(format_args!("{rule}"))?;
            place.next_part();
        }
    }
}

impl Edit for PolicyFile {
    fn edit(net: &Net, text: &[u8]) -> Result {
        let line = core::str::from_utf8(text).map_err(|_| EINVAL)?;
        let rules = &NetState::of(net).mapped_rules;
        let mut words = line.split_ascii_whitespace();
        match words.next().ok_or(EINVAL)? {
            "flush" => {
                let group = words.next().ok_or(EINVAL)?.parse().map_err(|_| EINVAL)?;
                if words.next().is_some() {
                    return Err(EINVAL);
                }
                rules.flush(group);
                Ok(())
            }
            word => rules.add(Rule::parse(word, words).ok_or(EINVAL)?),
        }
    }
}
