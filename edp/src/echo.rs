// SPDX-License-Identifier: GPL-2.0

//! Port 0: control messages that the protocol answers by itself.
//!
//! The first payload byte is the message's type. An echo request is returned
//! with its type changed to [`REPLY`] and every other byte as it came; it has a sum if
//! the request had one.

use super::wire::Header;

/// Type of an echo request (`EDP_ECHO_REQUEST`).
pub const REQUEST: u8 = 1;
/// Type of an echo reply (`EDP_ECHO_REPLY`).
pub const REPLY: u8 = 2;

/// The header of the answer to a control message, `None` when there is none to
/// give: another destination, another type, or an asker at port 0, where two
/// hosts would answer each other for ever.
///
/// `first_payload_byte` is `None` for an empty datagram.
#[inline]
pub fn reply_to(header: &Header, first_payload_byte: Option<u8>) -> Option<Header> {
    let asked = header.dst == 0 && header.src != 0 && first_payload_byte == Some(REQUEST);
    asked.then_some(Header {
        src: 0,
        dst: header.src,
        ..*header
    })
}
