// SPDX-License-Identifier: GPL-2.0-only

//! Runs the fault matrix: every kind of traffic over every kind of faulty wire. Each cell is a
//! scenario.

mod cell;
mod traffic;
mod wires;

pub use cell::Cell;
pub use traffic::Traffic;
pub use wires::{Way, Wire, ALL_AT_ONCE, LOSS_30, TWICE_AND_LATE};

use guest::harness::Scenario;

/// Returns the whole matrix, ordered by wire, then by direction, then by kind of traffic. The best
/// wire comes first.
///
/// The scenarios are leaked, because their names must live as long as the program.
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
                cells.push(&*Box::leak(Box::new(Cell::scenario(
                    name,
                    Box::leak(Box::new(cell)),
                ))));
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
