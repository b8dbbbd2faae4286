// SPDX-License-Identifier: GPL-2.0

//! Ethernet Datagram Protocol: its wire format and its decisions.
//!
//! Nothing here owns memory, takes a lock or reads a clock. Cargo builds these sources for tests,
//! and the kernel module contains them, too. A panic there would be a kernel BUG, so no function
//! here can panic.
//!
//! * [`wire`]: the header's six bytes, and the checksum that may follow the payload.
//! * [`echo`], [`query`]: the answers on port 0; [`rate`]: their rate limit.
//! * [`peers`]: a cache of other hosts' answers.
//! * [`ports`]: when ports conflict, and how a free one is chosen. The Ethernet Streaming Protocol
//!   uses the same rules.

#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
// The kernel module includes this code in one large crate, which does not use all of the code.
#![cfg_attr(MODULE, allow(dead_code, unused_imports, unreachable_pub))]

pub mod echo;
pub mod peers;
pub mod ports;
pub mod query;
pub mod rate;
pub mod wire;
