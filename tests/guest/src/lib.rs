// SPDX-License-Identifier: GPL-2.0-only

//! The library for scenarios, which test the module in a booted guest.
//!
//! The library has sockets, network namespaces, the devices between namespaces, and functions that
//! encode and decode frames. Its switches and relays lose, delay and damage frames. Its harness
//! runs each scenario in a process of its own. The scenarios are in `tests/scenarios`,
//! `tests/parity` and `tests/stress`, and the program that runs them is in `tests/suite`.

pub mod address;
pub mod asleep;
pub mod bpf;
pub mod calls;
pub mod capture;
pub mod channel;
pub mod contention;
pub mod control;
pub mod crowd;
pub mod device;
pub mod frame;
pub mod harness;
pub mod held_page;
pub mod kernel_log;
pub mod knobs;
pub mod lab;
pub mod links;
pub mod mapped;
pub mod meminfo;
pub mod memory;
pub mod module;
pub mod netgauge;
pub mod netns;
pub mod packet_ring;
pub mod patience;
pub mod polling;
pub mod prelude;
pub mod priority;
pub mod privilege;
pub mod processor;
pub mod program;
pub mod raw_calls;
pub mod relay;
pub mod setting;
pub mod socket;
pub mod stamps;
pub mod station;
pub mod switch;
pub mod team;
pub mod tracer;
pub mod transfer;
pub mod tun;
pub mod uring;
pub mod vhost;
pub mod zero_copy;
