// SPDX-License-Identifier: GPL-2.0-only

//! Prints the tables of `make scale`: the measured costs of many connections over ESP and over TCP.

use std::collections::BTreeMap;

use clap::ValueEnum;

use crate::strings::costs;
use guest::crowd::{churn, port_rests, Crowd, Protocol, BOTH};
use guest::meminfo::{free_memory, slabs};
use guest::prelude::*;

/// The measurement to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Study {
    /// The kernel memory of both ends of a connection.
    Memory,
    /// The instructions that a message, and opening and closing a connection, cost while other
    /// connections are open.
    Cost,
    /// Instructions per message on 100 connections, used one after the other, for `make bench`.
    Turns,
    /// The instructions that it costs the kernel to set or copy a byte, for `make bench`.
    Strings,
    /// A minute in which connections are opened and closed at a rate.
    Churn,
    /// The time for which a port stays taken after its connection has closed.
    Ports,
}

/// The numbers of connections that are open during the measurement.
const CROWDS: [usize; 4] = [1, 100, 1000, 10_000];

/// The number of connections that take turns in a dialogue.
const IN_TURN: usize = 100;

/// The largest allowed ratio of two costs of half a round trip over ESP: the cost with the most
/// open connections, divided by the cost with a single connection.
const DEAREST: f64 = 1.03;

/// The number of connections that are opened and closed per second, and the number of seconds.
const RATE: u32 = 1000;
const SECONDS: u32 = 60;

/// Prints a table; fails if ESP misses a bound of `docs/scale.md`.
///
/// # Errors
/// If a call fails, or a figure is out of bounds.
pub fn run(study: Study) -> Result<()> {
    let lab = Lab::new(Wiring::Direct)?;
    lab.give_ip_addresses()?;
    match study {
        Study::Memory => memory(&lab),
        Study::Cost => cost(&lab),
        Study::Turns => turns(&lab),
        Study::Strings => strings(),
        Study::Churn => churning(&lab),
        Study::Ports => ports(&lab),
    }?;
    lab.await_no_sockets()
}

fn memory(lab: &Lab) -> Result<()> {
    const COUNT: usize = 10_000;
    println!("Kernel memory, bytes per connection, both ends, {COUNT} open and idle\n");
    for (protocol, port) in BOTH.into_iter().zip(2860..) {
        // Memory that is allocated only once has to be allocated before the measurement.
        drop(Crowd::open(lab, protocol, port, 10)?);
        let (slabs_before, free_before) = (slabs()?, free_memory()?);
        let crowd = Crowd::open(lab, protocol, port, COUNT)?;
        let (slabs_after, free_after) = (slabs()?, free_memory()?);
        let each = |bytes: i64| bytes as f64 / COUNT as f64;
        let grown: BTreeMap<_, _> = slabs_after
            .iter()
            .map(|(name, after)| (name, after - slabs_before.get(name).unwrap_or(&0)))
            .filter(|(_, bytes)| each(*bytes) >= 8.0)
            .collect();
        let total: i64 = grown.values().sum();
        println!(
            "{protocol}: {:.0} in objects, {:.0} less free in all",
            each(total),
            each(free_before - free_after)
        );
        for (name, bytes) in grown {
            println!("       {name:<24} {:>7.0}", each(bytes));
        }
        ensure!(crowd.pairs.len() == COUNT, "connections were lost");
    }
    Ok(())
}

fn cost(lab: &Lab) -> Result<()> {
    println!("Instructions, both ends together, while so many connections are open\n");
    println!("               |       half a round trip of 1 byte       | open, 6 bytes");
    println!("          open | on one at a time       | on 100 in turn | each way, close");
    for (protocol, port) in BOTH.into_iter().zip(2860..) {
        let mut alone = None;
        let mut crowd = Crowd::open(lab, protocol, port, 1)?;
        // Warm up, because the first use costs more.
        crowd.half_round_trip(1, 100)?;
        churn(lab, protocol, port + 100, RATE, 100)?;
        for count in CROWDS {
            crowd.grow(lab, protocol, port, count)?;
            let half = crowd.half_round_trip(20.min(count), 100)?;
            let turns = match count {
                1 => "-".to_owned(),
                _ => format!("{:.0}", crowd.half_round_trip_in_turn(IN_TURN, 20)?),
            };
            // Connections start without pauses. In a pause the guest would be idle, and its clock
            // would advance without instructions.
            let made = churn(lab, protocol, port + 100, 1_000_000_000, 500)?;
            let each = made.took.as_nanos() as f64 / 500.0;
            let ratio = half / *alone.get_or_insert(half);
            println!("{protocol:>5} {count:>8} | {half:>13.0}  ({ratio:.3}) | {turns:>14} | {each:>15.0}");
            ensure!(
                protocol == Protocol::Tcp || ratio <= DEAREST,
                "a half round trip among {count} costs {ratio:.3} of one alone, more than {DEAREST}"
            );
        }
    }
    Ok(())
}

/// Prints a line per protocol for a program to read: the protocol's name, and the instructions of
/// half a round trip.
fn turns(lab: &Lab) -> Result<()> {
    for (protocol, port) in BOTH.into_iter().zip(2860..) {
        let crowd = Crowd::open(lab, protocol, port, IN_TURN)?;
        // Warm up, because the first use costs more.
        crowd.half_round_trip_in_turn(IN_TURN, 5)?;
        let half = crowd.half_round_trip_in_turn(IN_TURN, 20)?;
        println!("{protocol} {half:.0}");
    }
    Ok(())
}

/// Prints a line for each function that sets or copies memory, for a program to read.
fn strings() -> Result<()> {
    for (name, cost) in costs()? {
        println!("{name} {cost:.3}");
    }
    Ok(())
}

fn churning(lab: &Lab) -> Result<()> {
    println!(
        "{RATE} connections per second for {SECONDS} s to one host, the client closes first\n"
    );
    println!("         made | then refused a port | took, s | latest start, ms");
    for (protocol, port) in BOTH.into_iter().zip(2860..) {
        let ended = churn(lab, protocol, port, RATE, RATE * SECONDS)?;
        println!(
            "{protocol:>5} {:>7} | {:>19} | {:>7.2} | {:>16.3}",
            ended.made,
            if ended.without_port { "yes" } else { "no" },
            ended.took.as_secs_f64(),
            ended.latest.as_secs_f64() * 1e3
        );
        ensure!(
            protocol == Protocol::Tcp || ended.made == RATE * SECONDS,
            "ESP was refused a port"
        );
    }
    Ok(())
}

fn ports(lab: &Lab) -> Result<()> {
    println!("How long the client's port stays taken after it has closed, s\n");
    println!("        the peer closes too | the peer does not close");
    for (protocol, port) in BOTH.into_iter().zip(2860..) {
        let limit = Duration::from_secs(200);
        let rested = |both, port| {
            let rested = port_rests(lab, protocol, port, both, limit)?;
            Ok::<_, anyhow::Error>(rested.map_or("over 200".to_owned(), |time| {
                format!("{:.3}", time.as_secs_f64())
            }))
        };
        let (both, one) = (rested(true, port)?, rested(false, port + 100)?);
        println!("{protocol:>5} {both:>21} | {one:>23}");
    }
    Ok(())
}
