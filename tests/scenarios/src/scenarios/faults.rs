// SPDX-License-Identifier: GPL-2.0-only

//! The cells of the fault matrix with the most faults at once. `make faults` runs the whole matrix.

use crate::faults::{Cell, Traffic, Way, Wire, ALL_AT_ONCE, LOSS_30, TWICE_AND_LATE};
use crate::harness::scenarios;

scenarios! {
    faulty faults_dialogue_at_30_percent_loss_both_ways = cell(&LOSS_30, Way::Both, Traffic::Dialogue);
    faulty faults_bulk_both_ways_through_all_faults_at_once = cell(&ALL_AT_ONCE, Way::Both, Traffic::BothWays);
    faulty faults_bulk_when_30_percent_of_the_answers_are_lost = cell(&LOSS_30, Way::Back, Traffic::Bulk);
    faulty faults_50_connections_through_all_faults_at_once = cell(&ALL_AT_ONCE, Way::Both, Traffic::Many);
    faulty faults_connection_storm_when_frames_are_doubled_and_late = cell(&TWICE_AND_LATE, Way::Both, Traffic::Storm);
}

const fn cell(wire: &'static Wire, way: Way, traffic: Traffic) -> Cell {
    Cell { wire, way, traffic }
}
