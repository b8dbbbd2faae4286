// SPDX-License-Identifier: GPL-2.0

//! ESP: sockets for reliable streams and for records.

mod accept;
pub(crate) mod ack_queue;
mod bytes;
mod channel;
mod cookies;
mod deliver;
pub(crate) mod device;
mod domain;
pub(crate) mod input;
mod lifecycle;
pub(crate) mod marks;
pub(crate) mod options;
mod out_of_order;
pub(crate) mod outcome;
mod output;
mod pieces;
mod receive;
mod records;
mod ring;
pub(crate) mod runs;
mod send_queue;
pub(crate) mod sock;
pub(crate) mod socket;
mod splice;
