// SPDX-License-Identifier: GPL-2.0-only

//! Attacks on a host from its own Ethernet. Each attack measures the cost of one frame, the share
//! of a stream's goodput that remains, and the host's peak memory. Run them in a guest whose clock
//! counts instructions.

use guest::prelude::*;

pub mod attacks;
pub mod blind;
mod dialer;
mod flood;
pub mod slowing;
pub mod victim;

pub use attacks::{Attack, ALL};

/// The figures of an attack; a figure that does not apply is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// The cost of one frame of the attack, in instructions.
    pub cost: Option<f64>,
    /// The share of a stream's goodput that remains during the attack.
    pub share: Option<f64>,
    /// The largest amount that the host held or sent: the number of sockets, of bytes, or of
    /// replies to one frame.
    pub held: Option<f64>,
}

/// The bounds of an attack's figures.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The largest cost of one frame, in instructions.
    pub cost: f64,
    /// The smallest share of a stream's goodput that must remain during the attack, from 0 to 1.
    pub share: f64,
    /// The largest amount that the host may hold or send.
    pub held: f64,
    /// The unit of `held`.
    pub of: &'static str,
}

/// Makes an attack and returns its figures.
///
/// # Errors
/// If the host misbehaves, or a call fails.
pub fn make(lab: &Lab, attack: &Attack) -> Result<Figures> {
    let figures = (attack.make)(lab)?;
    lab.await_no_sockets()?;
    Ok(figures)
}

/// Checks that an attack stayed within its bounds.
///
/// # Errors
/// If it did not.
pub fn judge(attack: &Attack, figures: &Figures) -> Result<()> {
    let Bounds {
        cost,
        share,
        held,
        of,
    } = attack.bounds;
    let Figures {
        cost: costs,
        share: keeps,
        held: holds,
    } = *figures;
    ensure!(
        costs.is_none_or(|costs| costs <= cost),
        "a frame costs {costs:?} instructions, more than {cost}"
    );
    ensure!(
        keeps.is_none_or(|keeps| keeps >= share),
        "a stream beside it keeps {keeps:?} of its goodput, less than {share}"
    );
    ensure!(
        holds.is_none_or(|holds| holds <= held),
        "it was {holds:?} {of}, more than {held}"
    );
    Ok(())
}

/// Prints a table of all attacks.
///
/// # Errors
/// If an attack is not within its bounds.
pub fn print(lab: &Lab) -> Result<()> {
    println!(
        "{} frames per second where a stream is beside them; each figure with its bound\n",
        flood::RATE
    );
    println!(
        "{:<44} | {:>17} | {:>11} | held or answered",
        "attack", "instructions each", "share kept"
    );
    let mut verdict = Ok(());
    for attack in ALL {
        let figures = make(lab, attack)?;
        let Bounds {
            cost,
            share,
            held,
            of,
        } = attack.bounds;
        let pair = |figure: Option<f64>, bound: f64, digits: usize| {
            figure.map_or_else(
                || "-".to_owned(),
                |figure| format!("{figure:.digits$} ({bound:.digits$})"),
            )
        };
        println!(
            "{:<44} | {:>17} | {:>11} | {}",
            attack.what,
            pair(figures.cost, cost, 0),
            pair(figures.share, share, 2),
            match figures.held {
                Some(_) => format!("{} {of}", pair(figures.held, held, 1)),
                None => "-".to_owned(),
            }
        );
        verdict = verdict.and(judge(attack, &figures));
    }
    verdict = verdict.and(print_guesses(lab));
    verdict.and(print_slowings(lab))
}

/// Prints how many packets with guessed numbers each attack needs.
fn print_guesses(lab: &Lab) -> Result<()> {
    println!(
        "\n{:<44} | {:>17} | {:>17} | frames (computed)",
        "blind attack", "numbers accepted", "computed"
    );
    let mut verdict = Ok(());
    for guess in blind::ALL {
        let found = guess.make(lab)?;
        lab.await_no_sockets()?;
        let expected = guess.expected();
        println!(
            "{:<44} | {:>17} | {:>17} | {:.0} ({:.0})",
            guess.name(),
            found.to_string(),
            expected.to_string(),
            found.frames(),
            expected.frames()
        );
        verdict = verdict.and(guess.judge(found));
    }
    verdict
}

/// Prints the share of a stream's goodput that remains while the stream receives forged packets.
fn print_slowings(lab: &Lab) -> Result<()> {
    println!(
        "\n{:<44} | {:>11} at {} frames per second",
        "forged packets for the stream itself",
        "share kept",
        slowing::RATE
    );
    let mut verdict = Ok(());
    for slowing in slowing::ALL {
        let share = slowing.share(lab)?;
        lab.await_no_sockets()?;
        println!("{:<44} | {share:.2} ({:.2})", slowing.what, slowing::LEAST);
        verdict = verdict.and(slowing.judge(share));
    }
    verdict
}
