// SPDX-License-Identifier: MIT OR Apache-2.0

//! The network of a measurement between more than two hosts: the orders that set it up, and its
//! traffic.

pub mod exchange;
pub mod flows;
pub mod links;
pub mod orders;
pub mod rounds;
pub mod rpc;
