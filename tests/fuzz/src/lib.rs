// SPDX-License-Identifier: GPL-2.0-only

//! Fuzz targets: functions that accept any bytes and panic if a property does not hold.
//!
//! libFuzzer calls the targets from the programs in `fuzz/`; `tests/corpus.rs` calls them with
//! every file of `fuzz/corpus`.

mod ack_queue;
mod calls;
mod forged;
mod pair;
mod wire;

pub use ack_queue::esp_ack_queue;
pub use calls::esp_calls;
pub use forged::esp_forged;
pub use pair::esp_pair;
pub use wire::{edp_wire, esp_wire};

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets, each with the name of its program and of its corpus.
pub const ALL: [(&str, Target); 6] = [
    ("edp_wire", edp_wire),
    ("esp_wire", esp_wire),
    ("esp_calls", esp_calls),
    ("esp_pair", esp_pair),
    ("esp_forged", esp_forged),
    ("esp_ack_queue", esp_ack_queue),
];
