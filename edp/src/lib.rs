// SPDX-License-Identifier: GPL-2.0

//! Ethernet Datagram Protocol: its wire format and its decisions.
//!
//! Nothing here owns memory, takes a lock or knows a clock. The same sources
//! are built by cargo, where they are tested, and inside the kernel module,
//! where a panic would be a kernel BUG: so no function here can panic.
//!
//! * [`wire`]: the header's six bytes, and the sum that may follow the payload.
//! * [`echo`], [`query`]: what is answered on port 0; [`rate`]: how often.
//! * [`peers`]: what other hosts have answered.
//! * [`ports`]: when a port is taken and which free one is given out; the
//!   Ethernet Streaming Protocol uses the same rules.

#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
// Inside the module this is a private part of one large crate, which need not
// use all that a library offers.
#![cfg_attr(MODULE, allow(dead_code, unused_imports, unreachable_pub))]

pub mod echo;
pub mod peers;
pub mod ports;
pub mod query;
pub mod rate;
pub mod wire;
