// SPDX-License-Identifier: GPL-2.0-only

//! The fault matrix: every kind of traffic over every kind of bad wire. Each cell is a scenario of
//! its own.

mod cell;
mod traffic;
mod wires;

pub use cell::{Cell, FIGURES, LIMIT};
pub use traffic::Traffic;
pub use wires::{Way, Wire, ALL_AT_ONCE, LOSS_30, TWICE_AND_LATE};

use crate::harness::Scenario;

/// The whole matrix: wires from good to bad, on each the directions, in each the kinds of traffic.
///
/// A scenario's name lives as long as the program, so these do too.
pub fn matrix() -> Vec<&'static Scenario> {
    let mut cells = Vec::new();
    for wire in Wire::ALL {
        for way in wire.ways() {
            for &traffic in Traffic::ALL {
                let cell = Cell {
                    wire,
                    way: *way,
                    traffic,
                };
                let name: &'static str = cell.name().leak();
                cells.push(&*Box::leak(Box::new(Scenario::faulty(name, cell))));
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        let cells = matrix();
        let names: HashSet<_> = cells.iter().map(|cell| cell.name).collect();
        assert_eq!(names.len(), cells.len());
    }
}
