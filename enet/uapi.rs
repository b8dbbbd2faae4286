// SPDX-License-Identifier: GPL-2.0

//! The numbers of the user interface, which are the same as in `af_enet.h`.

/// Protocol number of `AF_INET` and `AF_INET6` for streams that behave like TCP's. Protocol numbers
/// on the wire end at 255. Above that, the kernel accepts the numbers up to 262 and uses only 256
/// and 262 itself, so this number is free.
pub(crate) const IPPROTO_ENET: u16 = 259;
/// Level of socket options of both protocols: "EP" in ASCII.
pub(crate) const SOL_EP: i32 = 0x4550;
/// The level in the first C header, of 2006. Linux has since given this number to a different
/// protocol.
const SOL_EP_2006: i32 = 285;
/// Control message of the level [`SOL_EP`]: a report from the error queue.
pub(crate) const EP_RECVERR: i32 = 3;

/// Option of the level [`SOL_EP`]. It has the number of `SO_ZEROCOPY`, which the kernel refuses on
/// sockets of this family.
pub(crate) const EP_SO_ZEROCOPY: i32 = 60;

/// Option of the level [`SOL_EP`]: the size of the ring in which a program receives without calls.
pub(crate) const EP_SO_RECEIVE_RING: i32 = 61;

/// Option of the level [`SOL_EP`]: the descriptor whose regions are the memory of a channel's puts.
pub(crate) const EP_SO_DOMAIN: i32 = 62;

/// Returns whether `level` is one of the two levels at which both protocols have their options.
pub(crate) fn is_own_level(level: i32) -> bool {
    level == SOL_EP || level == SOL_EP_2006
}
