// SPDX-License-Identifier: MIT OR Apache-2.0

//! The orders that set up a measurement between more than two hosts, and the traffic of the
//! measurement.

pub mod exchange;
pub mod flows;
pub mod links;
pub mod orders;
pub mod rounds;
pub mod rpc;
