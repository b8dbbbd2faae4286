//! The scenarios, a file per theme.

mod bad_input;
mod edp_calls;
mod edp_echo;
mod edp_ports;
mod esp_bulk;
mod esp_calls;
mod esp_connections;
mod esp_faults;
mod esp_vanish;
mod hostile_frames;
mod isolation;
mod library;
mod module;
mod proc_files;

use crate::harness::Scenario;

/// All scenarios, in the order in which they run.
pub fn all() -> Vec<&'static Scenario> {
    [
        module::ALL,
        edp_calls::ALL,
        edp_ports::ALL,
        edp_echo::ALL,
        esp_connections::ALL,
        esp_calls::ALL,
        bad_input::ALL,
        hostile_frames::ALL,
        isolation::ALL,
        library::ALL,
        proc_files::ALL,
        esp_bulk::ALL,
        esp_faults::ALL,
        esp_vanish::ALL,
    ]
    .into_iter()
    .flatten()
    .collect()
}
