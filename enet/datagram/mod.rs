// SPDX-License-Identifier: GPL-2.0

//! EDP: datagram sockets.

pub(crate) mod control;
mod cork;
pub(crate) mod input;
mod output;
pub(crate) mod peers;
mod ring;
pub(crate) mod sock;
pub(crate) mod socket;
mod zerocopy;
