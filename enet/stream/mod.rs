// SPDX-License-Identifier: GPL-2.0

//! ESP: sockets of reliable streams and of records.

pub(crate) mod accept;
pub(crate) mod ack_queue;
pub(crate) mod bytes;
pub(crate) mod cookies;
pub(crate) mod device;
pub(crate) mod input;
pub(crate) mod lifecycle;
pub(crate) mod options;
pub(crate) mod out_of_order;
pub(crate) mod outcome;
pub(crate) mod output;
pub(crate) mod receive;
pub(crate) mod records;
pub(crate) mod runs;
pub(crate) mod send_queue;
pub(crate) mod sock;
pub(crate) mod socket;
pub(crate) mod splice;
