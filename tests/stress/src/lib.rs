// SPDX-License-Identifier: GPL-2.0-only

//! What the module does under load and attack: frames and calls at random, wires with faults, hours
//! of traffic, floods, thousands of connections, allocations that fail.
//!
//! Each campaign has a module, and a short form among the [scenarios](all). `make fuzz-frames`,
//! `make fuzz-calls`, `make faults`, `make endurance`, `make dos` and `make scale` run the long
//! ones.

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
