// SPDX-License-Identifier: GPL-2.0

//! EDP: datagram sockets.

pub(crate) mod control;
pub(crate) mod cork;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod peers;
pub(crate) mod sock;
pub(crate) mod socket;
pub(crate) mod zerocopy;
