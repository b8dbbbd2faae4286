// SPDX-License-Identifier: MIT OR Apache-2.0

//! Patterns between more than two hosts.
//!
//! A [`coordinator`] has a control connection to every participant, and sends [orders](net::orders)
//! to the participants. The coordinator takes no part in the traffic. A participant is a `netgauge
//! --server` on its host, or a process that the coordinator [starts](coordinator::start), here or
//! by ssh. In each participant, a [`worker`] carries the orders out. The traffic between
//! participants is in [`net`].
//!
//! ```text
//! coordinator                 member 0, a server or one of many     the other members
//! patterns, esp_params        worker: listens, connects, accepts    worker: the same
//!   mesh                        exchange::Exchange                    exchange::Exchange
//!     remotes  --orders-->        or rpc::run                           or rpc::run
//! ```
//!
//! One measurement is a [mesh](coordinator::mesh): its members connect, do rounds of one or more
//! sizes, and leave. [Patterns](coordinator::patterns) make one mesh per transport and number of
//! clients, and [`esp_params`](coordinator::esp_params) makes one per pair of ESP's parameters.

pub mod coordinator;
pub mod net;
pub mod worker;
