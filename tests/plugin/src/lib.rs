// SPDX-License-Identifier: GPL-2.0-only

//! A QEMU plugin for `make bench OPTIONS=--memory`. Besides instructions, it counts loads and
//! stores, locked instructions, steps of repeated string instructions, and misses of a modelled
//! cache with two levels.
//!
//! QEMU loads the plugin with `-plugin file=libqemu_memory.so,socket=PATH`. The plugin counts from
//! the guest's first instruction, and listens at PATH. The runner connects there and sends lines. A
//! line may contain the hexadecimal address of an instruction that QEMU has not translated yet.
//! From then on, the plugin records its totals whenever the guest executes this instruction, called
//! the mark. The plugin answers each line with the totals recorded since the previous line, as a
//! line of JSON.
//!
//! The runner marks the first instruction of a system call that no other program makes. The guest
//! makes that call before and after each measurement, so the measured programs need no changes.
//! Counts from outside these pairs of calls are not used, because the guest then waits for the
//! runner while its clock runs ahead.
//!
//! The crate `qemu-plugin` of crates.io has no release for the plugin interface of Debian's QEMU
//! 10.0. Its release for the later interface needs a newer Rust than Debian's. So `qemu.rs`
//! declares the few functions that the plugin needs.

// Only QEMU calls the counting functions, so they are dead code in tests.
#![cfg_attr(test, allow(dead_code))]

mod cache;
mod instruction;
#[cfg(not(test))]
mod qemu;
mod strings;
