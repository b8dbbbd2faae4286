// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the module under load and attack: random frames and calls, faulty wires, hours of
//! traffic, floods, thousands of connections, and allocations that fail.
//!
//! Each kind of test has a module, and a short form among the [scenarios](all). `make fuzz-frames`,
//! `make fuzz-calls`, `make faults`, `make endurance`, `make dos` and `make scale` run the long
//! forms.

pub mod call_fuzz;
pub mod denial;
pub mod endurance;
pub mod faults;
pub mod fuzz;
mod scenarios;
mod strings;
pub mod studies;
mod traffic;

pub use scenarios::all;
