// SPDX-License-Identifier: GPL-2.0-only

//! A QEMU plugin for `make bench OPTIONS=--memory`. Besides instructions, it counts loads and
//! stores, locked instructions, steps of repeated string instructions, and misses of a modelled
//! cache with two levels.
//!
//! QEMU loads the plugin with `-plugin file=libqemu_memory.so,socket=PATH`. The plugin counts from
//! the guest's first instruction, and listens at PATH. A line with a hexadecimal address makes the
//! instruction at this address the mark, if QEMU has not translated the instruction yet. After any
//! line, the plugin answers with a line of JSON. The answer has the totals at each execution of the
//! mark since the previous line. The runner marks the first instruction of a system call that no
//! other program makes. The guest makes that call before and after a measurement, so the measured
//! programs need no changes. The time between measurements does not count, because the guest then
//! waits for the runner, and the guest's clock runs ahead.
//!
//! The crate `qemu-plugin` of crates.io has no release for the plugin interface of Debian's QEMU
//! 10.0. Its release for the later interface needs a newer Rust than Debian's. So `qemu.rs`
//! declares the few functions that the plugin needs.

// Only QEMU calls the functions that count, so they are dead code in tests.
#![cfg_attr(test, allow(dead_code))]

mod cache;
mod instruction;
#[cfg(not(test))]
mod qemu;
mod strings;
