// SPDX-License-Identifier: GPL-2.0

//! The sender of a received frame.

use crate::net::{
    device::{Device, Mac},
    skb::Buffer,
};

/// The sender of a frame from one host to this host; `None` if it is anything else.
#[inline]
pub(crate) fn sender(skb: &Buffer, device: &Device) -> Option<Mac> {
    if !device.is_ethernet() || !skb.is_for_this_host() {
        return None;
    }
    skb.source().filter(|source| !source.is_group())
}
