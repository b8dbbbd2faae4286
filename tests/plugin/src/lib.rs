// SPDX-License-Identifier: GPL-2.0-only

//! A plugin of QEMU's for `make bench OPTIONS=--memory`. It counts what instructions alone do not
//! tell: loads and stores, locked instructions, steps of repeated string instructions, and misses
//! of a modelled cache of two levels.
//!
//! QEMU loads it with `-plugin file=libqemu_memory.so,socket=PATH`. It counts from the guest's
//! first instruction on, and listens at PATH. A line with a hexadecimal address there makes the
//! instruction at that address a mark, if QEMU has not translated it by then; after any line it
//! sends the totals at each mark that was executed since the line before, as a line of JSON. The
//! runner marks the first instruction of a system call that no other program makes, and the guest
//! makes that call before and after a measurement. So no measured program needs to know, and the
//! time between measurements is left out, in which the guest's clock runs ahead while the guest
//! waits for the runner.
//!
//! The crate `qemu-plugin` of crates.io has releases for the interfaces before and after that of
//! Debian's QEMU 10.0, and the latter needs a newer Rust than Debian's; so the few functions that
//! are needed are declared in `qemu.rs`.

// QEMU alone calls the functions that count; no test does.
#![cfg_attr(test, allow(dead_code))]

mod cache;
mod instruction;
#[cfg(not(test))]
mod qemu;
mod strings;
