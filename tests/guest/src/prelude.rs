// SPDX-License-Identifier: GPL-2.0-only

//! Re-exports the names that most scenarios use.

pub use std::fs::{self, File};
pub use std::os::fd::AsRawFd;
pub use std::process::{Command, Stdio};
pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use std::thread;
pub use std::time::{Duration, Instant};

pub use anyhow::{anyhow, bail, ensure, Context, Result};
pub use nix::sys::wait::waitpid;

pub use crate::address::{Address, AF_ENET, SOL_EP};
pub use crate::device::Device;
pub use crate::frame::{ethernet, flag, EspHeader, PacketSocket, ETH_P_EDP, ETH_P_ESP};
pub use crate::harness::scenarios;
pub use crate::harness::{
    comes_next, failed_with, has_events, note, quiet, receives, refused, same, silent,
    start_outcome, start_process, succeeds, Outcome, Scenario,
};
pub use crate::knobs::Knobs;
pub use crate::lab::{
    arrived, await_events, eventually, print_mac, send_single_packets, Host, Lab, Wiring, DEVICE,
};
pub use crate::module::{self, Restore};
pub use crate::netns::Netns;
pub use crate::patience::{allow, patience};
pub use crate::socket::{check, Piece, PieceMut, Socket};
pub use crate::transfer::{
    beside, exchange, joined, random, serve, transfer, transfer_both_ways, Load,
};
