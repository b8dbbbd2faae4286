// SPDX-License-Identifier: MIT OR Apache-2.0

//! Patterns of more than two.
//!
//! A coordinator has a control connection to every participant and tells each what to do
//! ([`orders`]); it takes no part in the traffic itself. A participant is a `netgauge --server` on
//! its host, or a process that the coordinator starts, here or by ssh ([`start`]). What a
//! participant does is in [`part`], and its traffic in [`exchange`] and [`questions`].
//!
//! ```text
//! coordinator                 member 0, a server or one of many     the other members
//! patterns, esp_params        part: listens, connects, accepts      part: the same
//!   mesh                        exchange::exchange                    exchange::exchange
//!     participants  --orders-->   or questions::ask                     or questions::ask
//! ```
//!
//! One measurement is a [`mesh`]: its members connect, do rounds of one or more sizes, and leave.
//! [`patterns`] make one per transport and number of clients, [`esp_params`] one per pair of
//! [`parameters`].

pub mod args;
pub mod coordinator;
pub mod esp_params;
pub mod exchange;
pub mod figures;
pub mod flows;
#[cfg(feature = "pictures")]
pub mod heat_map;
pub mod hosts;
pub mod links;
pub mod mesh;
pub mod orders;
pub mod parameters;
pub mod part;
pub mod participants;
pub mod patterns;
pub mod plan;
pub(crate) mod print;
pub mod questions;
pub mod report;
pub mod rounds;
pub mod signals;
pub mod start;
