// SPDX-License-Identifier: GPL-2.0

//! Ethernet Streaming Protocol: its wire format and a deterministic engine for
//! one connection.
//!
//! Nothing here owns memory, takes a lock or reads a clock. The caller owns the queues, passes in
//! packets and the time, and asks for packets to send; [`Connection`] decides. Cargo builds the
//! same sources for tests on a simulated wire, and the kernel module builds them in. A panic there
//! would be a kernel BUG, so no function here can panic.
//!
//! The protocol is defined in Reinhardt 2006, and its flow control in Treydte 2007. Each file lists
//! its choices where both theses are silent. The files are [`connection`] (handshake, end and
//! resets), `sender` (windows and retransmission), `receiver` (acknowledgements and requests),
//! [`records`] (messages that keep their bounds), `timers` (liveness), and [`ack_queue`] (the order
//! of many senders).

#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
// In the kernel module, this code is a private part of one large crate, which does not use all of
// it.
#![cfg_attr(MODULE, allow(dead_code, unused_imports, unreachable_pub))]

pub mod ack_queue;
mod bits;
pub mod config;
pub mod connection;
pub mod cookie;
mod masks;
pub mod messages;
pub mod options;
pub mod outcome;
mod peer_window;
mod receiver;
pub mod records;
mod rtt;
mod sender;
mod seq;
pub mod state;
mod timers;
pub mod wire;

pub use self::ack_queue::{AckQueue, Demand, List, Slot, Verdict};
pub use self::config::{Config, Selective, Stats, LARGEST_GRANT};
pub use self::connection::Connection;
pub use self::options::{
    Advertised, InternetEnd, Mapped, Options, MAPPED_LEN, NONCE_LEN, OPTIONS_LEN, OPTIONS_MAX,
    RECORDS_LEN,
};
pub use self::outcome::{DropReason, Outcome, Room, Transmit, WriteQueue};
pub use self::seq::Seq;
pub use self::state::{Failure, State};
pub use self::timers::Nanos;
pub use self::wire::{
    flags, mss, reset_for, Grant, Header, CHECKSUM_LEN, HEADER_LEN, MISSING_MOST, MOST_NARROW,
};
