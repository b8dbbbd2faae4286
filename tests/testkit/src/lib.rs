// SPDX-License-Identifier: GPL-2.0-only

//! The parts of a host around the ESP engine, for programs that test the engine without a kernel.
//!
//! The engine only makes decisions. It owns no memory, so a [`Socket`] has the queues of a socket,
//! and a [`Device`] has the ACK queue with its lists. [`Host`] calls the engine in the order in
//! which the kernel module does (`enet/stream/input.rs`, `enet/stream/outcome.rs`). Packets carry
//! any [`Payload`]: bytes, or only the position of bytes in a stream. A [`Pair`] is two hosts on a
//! simulated wire that the test steps, so that losing a packet takes one line of a test.
//!
//! Users: the tests of `esp/`, its benchmark, the fuzz targets, the model checker and the
//! simulation.

pub mod host;
pub mod pair;
pub mod payload;
pub mod socket;

pub use host::{Device, Host};
pub use pair::Pair;
pub use payload::{Payload, Span};
pub use socket::{Packet, Socket};
