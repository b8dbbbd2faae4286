// SPDX-License-Identifier: GPL-2.0-only

//! The families of small cases that are checked.
//!
//! A family combines a few parameters with a few programs. The family's bound is close to the
//! duration of its longest run, so that a slower recovery is noticed. Most of the bound is the
//! retransmission timer's 10, 20 and 40 ms for three successive losses. Where connections are
//! opened, the handshake's 200, 400 and 800 ms are added.

mod connection;
mod senders;

use esp::ack_queue::IDLE;
use esp::{Config, Nanos};

use crate::case::{Begin, Case, Close, Program, Reader, MS, US};
use crate::scene::Sights;
use crate::world::Budget;

/// How many cases are checked, and how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scale {
    /// Some cases of each family, with one loss and one duplicate. Checking them takes seconds,
    /// even without optimization.
    Quick,
    /// Small cases of each family.
    Small,
    /// The small cases and larger ones. Checking them takes long.
    Deep,
}

impl Scale {
    /// Returns the first values of a list: `quick` of them at the scale `Quick`, `small` of them at
    /// `Small`, and all of them at `Deep`.
    fn of<T>(self, quick: usize, small: usize, all: &[T]) -> &[T] {
        let n = match self {
            Self::Quick => quick,
            Self::Small => small,
            Self::Deep => all.len(),
        };
        all.get(..n).unwrap_or(all)
    }
}

/// A set of similar cases, which are checked together.
#[derive(Clone, Debug)]
pub struct Family {
    /// The family's name.
    pub name: &'static str,
    /// The family's cases.
    pub cases: Vec<Case>,
    /// The faults that may happen in a run.
    pub budget: Budget,
    /// The events that have to occur in some run. Without them the family would prove nothing.
    pub must_see: Sights,
}

/// The faults that small cases must survive, in every placement.
pub const FULL: Budget = Budget {
    losses: 3,
    duplicates: 1,
    reorders: 0,
    death: false,
};

/// Upper bound of the duration of most runs, in nanoseconds.
const USUAL: Nanos = 100 * MS;
/// Upper bound of the duration of runs that begin with a handshake, in nanoseconds.
const WITH_HANDSHAKE: Nanos = 1_500 * MS;

/// Upper bound of the duration of runs whose reader makes room late, and only for one packet at a
/// time, in nanoseconds.
const WITH_SLOW_READER: Nanos = 500 * MS;
/// Upper bound of the duration of runs whose reader is slightly late, in nanoseconds.
const WITH_LATE_READER: Nanos = 200 * MS;

/// Nanoseconds within which the other senders must be done after one sender has died, in runs
/// without other faults.
const AFTER_DEATH: Nanos = IDLE + MS;

const SLEEPS: Reader = Reader::AtOnce { sleeps: true };
const POLLS: Reader = Reader::AtOnce { sleeps: false };

fn config(burst_length: u16, packets_to_ack: u16, initial_ack_burst_length: u16) -> Config {
    Config {
        burst_length,
        burst_length_max: burst_length,
        packets_to_ack,
        initial_ack_burst_length,
        ..Config::default()
    }
}

/// Returns all combinations of parameters that are in range.
fn grid(bursts: &[u16], acks: &[u16], initials: &[u16]) -> Vec<Config> {
    let mut all = Vec::new();
    for burst in bursts {
        for ack in acks.iter().filter(|ack| *ack <= burst) {
            for initial in initials.iter().filter(|initial| *initial <= burst) {
                all.push(config(*burst, *ack, *initial));
            }
        }
    }
    all
}

fn writes(messages: &[u16]) -> Program {
    Program {
        messages: messages.to_vec(),
        ..Program::SILENT
    }
}

/// Returns a program that writes the first message after it has read `first` bytes, and each
/// further one after `each` more bytes.
fn answers(first: u16, each: u16, messages: &[u16]) -> Program {
    Program {
        begin: Begin { first, each },
        ..writes(messages)
    }
}

fn reads(reader: Reader, program: Program) -> Program {
    Program { reader, ..program }
}

fn limited(limit: u32, program: Program) -> Program {
    Program { limit, ..program }
}

fn closes(close: Close, program: Program) -> Program {
    Program { close, ..program }
}

/// Returns a case of open connections, each with the programs of its receiver and its sender.
fn open(config: Config, programs: Vec<[Program; 2]>) -> Case {
    Case {
        configs: [config; 2],
        later: None,
        programs,
        reports_windows: false,
        records: false,
        together: false,
        priority: 0,
        open: true,
        latency: 20 * US,
        crossed: false,
        bound: USUAL,
        sabotage: None,
    }
}

fn to_be_opened(config: Config, programs: Vec<[Program; 2]>) -> Case {
    Case {
        open: false,
        bound: WITH_HANDSHAKE,
        ..open(config, programs)
    }
}

fn family(name: &'static str, must_see: Sights, cases: Vec<Case>) -> Family {
    Family {
        name,
        cases,
        budget: FULL,
        must_see,
    }
}

/// Returns all families.
pub fn families(scale: Scale) -> Vec<Family> {
    let all = [
        connection::handshake,
        connection::crossed_handshake,
        connection::transfer,
        connection::far,
        connection::short_queue,
        connection::slow_reader,
        connection::records,
        connection::reverse,
        connection::unequal,
        connection::told,
        connection::granted,
        connection::changed,
        connection::close,
        senders::two_senders,
        senders::three_senders,
        senders::order,
        senders::two_ways,
        senders::lives,
        senders::dying_sender,
        senders::dying_and_losses,
        senders::overtaken,
        connection::selective,
    ];
    let mut families: Vec<_> = all.iter().map(|family| family(scale)).collect();
    if scale == Scale::Quick {
        for family in &mut families {
            family.budget.losses = family.budget.losses.min(1);
            family.budget.reorders = family.budget.reorders.min(1);
        }
    }
    families
}
