// SPDX-License-Identifier: GPL-2.0-only

//! What surrounds the ESP engine in a host, for programs that test it without a kernel.
//!
//! The engine decides and owns no memory. A [`Socket`] has its queues, a [`Device`] the ACK queue
//! with its list, and [`Host`] calls the engine in the order in which the kernel module does
//! (`enet/esp_input.rs`, `enet/esp_connection.rs`). Packets carry any [`Payload`]: bytes, or the
//! place of bytes in a stream. A [`Pair`] is two hosts on a wire that is stepped, so that a lost
//! packet is one line of a test.
//!
//! The tests of `esp/`, its benchmark, the fuzz targets, the model checker and the simulation use
//! these.

pub mod host;
pub mod pair;
pub mod payload;
pub mod socket;

pub use host::{Device, Host};
pub use pair::Pair;
pub use payload::{Payload, Span};
pub use socket::{Packet, Socket};
