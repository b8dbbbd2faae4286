// SPDX-License-Identifier: GPL-2.0

//! Numbers of the user interface, as `af_enet.h` has them.

/// Protocol number of `AF_INET` and `AF_INET6`: streams that are TCP's. The kernel uses 256 and 262
/// of the numbers beyond those of IP, and takes up to 262.
pub(crate) const IPPROTO_ENET: u16 = 259;
/// Level of socket options of both protocols: "EP".
pub(crate) const SOL_EP: i32 = 0x4550;
/// The level in the first header of 2006. Linux has given the number to another protocol since.
const SOL_EP_2006: i32 = 285;
/// Control message of that level: a report of the error queue.
pub(crate) const EP_RECVERR: i32 = 3;

/// Option of that level: `SO_ZEROCOPY`, by its number, which the kernel lets nobody set on other
/// families' sockets.
pub(crate) const EP_SO_ZEROCOPY: i32 = 60;

/// Whether `level` is one of both protocols' options.
pub(crate) fn is_own_level(level: i32) -> bool {
    level == SOL_EP || level == SOL_EP_2006
}
