// SPDX-License-Identifier: MIT OR Apache-2.0

//! The network of a measurement among many: the orders that set it up, and the traffic in it.

pub mod exchange;
pub mod flows;
pub mod links;
pub mod orders;
pub mod rounds;
pub mod rpc;
