// SPDX-License-Identifier: GPL-2.0-only

//! Collects the figures of a run, and formats them as tables.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::fuzz::honest::Exchanged;
use crate::fuzz::lanes::Lane;
use crate::fuzz::mutation::Mutation;
use crate::fuzz::talk::State;
use crate::fuzz::wrap::Wrap;

/// The figures of a run of the fuzzer.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of hostile frames, by mutation and by the state of the targeted socket.
    pub frames: BTreeMap<(Mutation, State), u64>,
    /// Number of hostile frames, by lane (the kind of buffer that the host gets).
    pub lanes: BTreeMap<Lane, u64>,
    /// Number of hostile frames, by the headers around them: bare, tagged, or in a tunnel.
    pub wraps: BTreeMap<Wrap, u64>,
    /// Number of hostile frames that the packet sockets refused.
    pub refused: u64,
    /// Number of valid frames that were forwarded.
    pub valid: u64,
    /// Number of valid frames that were in tags or tunnels.
    pub wrapped: u64,
    /// Three counts of the programs: connections begun, connections accepted, and the sum of stream
    /// bytes and datagrams received.
    pub programs: [u64; 3],
    /// Number of failed calls of programs, by call and errno.
    pub failures: BTreeMap<(&'static str, i32), u64>,
    /// The traffic that the honest host exchanged.
    pub honest: Exchanged,
    /// The module's counters summed over both attacked hosts, before and after the run.
    pub counters: BTreeMap<String, [u64; 2]>,
    /// Number of objects in use in each protocol's slab cache, before and after the run.
    pub slabs: BTreeMap<String, [u64; 2]>,
    /// The duration of the run.
    pub took: Duration,
}

impl Report {
    /// Returns the number of all hostile frames.
    pub fn total(&self) -> u64 {
        self.frames.values().sum()
    }

    /// Returns the number of hostile frames, by the headers around them.
    pub fn wraps(&self) -> [(Wrap, u64); Wrap::ALL.len()] {
        Wrap::ALL.map(|wrap| (wrap, self.wraps.get(&wrap).copied().unwrap_or(0)))
    }

    /// Returns the number of hostile frames, by the state of the targeted socket.
    pub fn states(&self) -> [(State, u64); State::ALL.len()] {
        State::ALL.map(|state| {
            let aimed = self.frames.iter().filter(|((_, at), _)| *at == state);
            (state, aimed.map(|(_, count)| count).sum())
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:<16}", "hostile frames")?;
        for state in State::ALL {
            write!(out, "{:>13}", format!("{state:?}").to_lowercase())?;
        }
        writeln!(out, "{:>11}", "all")?;
        for kind in Mutation::ALL {
            write!(out, "{:<16}", format!("{kind:?}").to_lowercase())?;
            let count = |state| self.frames.get(&(kind, state)).copied().unwrap_or(0);
            for state in State::ALL {
                write!(out, "{:>13}", count(state))?;
            }
            writeln!(out, "{:>11}", State::ALL.map(count).iter().sum::<u64>())?;
        }
        write!(out, "{:<16}", "all")?;
        for (_, count) in self.states() {
            write!(out, "{count:>13}")?;
        }
        writeln!(out, "{:>11}\n", self.total())?;
        for (lane, count) in &self.lanes {
            write!(out, "{} {count}, ", format!("{lane:?}").to_lowercase())?;
        }
        writeln!(out, "not taken {}", self.refused)?;
        for (wrap, count) in &self.wraps {
            write!(out, "{} {count}, ", format!("{wrap:?}").to_lowercase())?;
        }
        writeln!(out, "{} of them valid in tags or tunnels", self.wrapped)?;
        let rate = self.total() as f64 / self.took.as_secs_f64();
        writeln!(
            out,
            "{} valid frames passed; {:.1} s, {rate:.0} hostile frames per second",
            self.valid,
            self.took.as_secs_f64()
        )?;
        let [begun, accepted, received] = self.programs;
        writeln!(
            out,
            "programs: {begun} connections begun, {accepted} accepted, {received} bytes and datagrams received"
        )?;
        for ((call, errno), count) in &self.failures {
            writeln!(
                out,
                "  {call}: {:?} {count}",
                nix::errno::Errno::from_raw(*errno)
            )?;
        }
        let Exchanged {
            connections,
            bytes,
            datagrams,
        } = self.honest;
        writeln!(
            out,
            "honest host: {connections} connections, {bytes} bytes, {datagrams} datagrams, all intact\n"
        )?;
        for (what, table) in [("counter", &self.counters), ("objects in use", &self.slabs)] {
            writeln!(out, "{what:<20}{:>12}{:>12}", "before", "after")?;
            for (name, [before, after]) in table {
                writeln!(out, "{name:<20}{before:>12}{after:>12}")?;
            }
        }
        Ok(())
    }
}
