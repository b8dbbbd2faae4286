// SPDX-License-Identifier: MIT OR Apache-2.0

//! Patterns of more than two.
//!
//! A coordinator has a control connection to every participant and tells each what to do
//! ([`orders`]); it takes no part in the traffic itself. A participant is a `netgauge --server` on
//! its host, or a process that the coordinator starts, here or by ssh ([`start`]). What a
//! participant does is in [`part`], and its traffic in [`rounds`] and [`exchange`].
//!
//! ```text
//! coordinator                 server                          clients
//! one_many, esp_params        part: listens, accepts,         part: connect,
//!   meeting                     rounds::receive                 rounds::send
//!     participants  --orders-->
//!
//! coordinator                 members
//! many_one, all               part: listen, connect, accept,
//!   mesh                        exchange::exchange
//!     participants  --orders-->
//! ```
//!
//! One measurement is a [`meeting`]: the clients connect to the server, rounds of one or more
//! sizes follow, and all leave. [`one_many`] makes one per transport and number of clients,
//! [`esp_params`] one per pair of [`parameters`]. Or it is a [`mesh`], whose members send to each
//! other: [`many_one`] and [`all`] make those.

pub mod all;
pub mod args;
pub mod coordinator;
pub mod esp_params;
pub mod exchange;
pub mod figures;
#[cfg(feature = "pictures")]
pub mod heat_map;
pub mod hosts;
pub mod many_one;
pub mod meeting;
pub mod mesh;
pub mod one_many;
pub mod orders;
pub mod parameters;
pub mod part;
pub mod participants;
pub(crate) mod print;
mod print_all;
mod recorded;
pub mod rounds;
pub mod signals;
pub mod start;
