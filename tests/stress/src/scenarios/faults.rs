// SPDX-License-Identifier: GPL-2.0-only

//! Runs the cells of the fault matrix that have the most faults at once. `make faults` runs the
//! whole matrix.

use crate::faults::{Cell, Traffic, Way, ALL_AT_ONCE, LOSS_30, TWICE_AND_LATE};
use guest::harness::Scenario;

/// The scenarios of this file.
pub const ALL: &[Scenario] = &[
    Cell::scenario(
        "faults_dialogue_at_30_percent_loss_both_ways",
        &Cell {
            wire: &LOSS_30,
            way: Way::Both,
            traffic: Traffic::Dialogue,
        },
    ),
    Cell::scenario(
        "faults_bulk_both_ways_through_all_faults_at_once",
        &Cell {
            wire: &ALL_AT_ONCE,
            way: Way::Both,
            traffic: Traffic::BothWays,
        },
    ),
    Cell::scenario(
        "faults_bulk_when_30_percent_of_the_answers_are_lost",
        &Cell {
            wire: &LOSS_30,
            way: Way::Back,
            traffic: Traffic::Bulk,
        },
    ),
    Cell::scenario(
        "faults_50_connections_through_all_faults_at_once",
        &Cell {
            wire: &ALL_AT_ONCE,
            way: Way::Both,
            traffic: Traffic::Many,
        },
    ),
    Cell::scenario(
        "faults_connection_storm_when_frames_are_doubled_and_late",
        &Cell {
            wire: &TWICE_AND_LATE,
            way: Way::Both,
            traffic: Traffic::Storm,
        },
    ),
];
