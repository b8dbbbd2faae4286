// SPDX-License-Identifier: GPL-2.0

//! Port 0: control messages that the protocol answers itself.
//!
//! The first payload byte is the message's type. The answer to an echo request has the type
//! [`REPLY`] and otherwise the same bytes. The answer has a checksum if the request had one.

use super::wire::Header;

/// Type of an echo request (`EDP_ECHO_REQUEST`).
pub const REQUEST: u8 = 1;
/// Type of an echo reply (`EDP_ECHO_REPLY`).
pub const REPLY: u8 = 2;

/// Returns the header of the answer to a control message, or `None` if the message is not an echo
/// request to port 0. A request from port 0 is not answered either, because two hosts could
/// otherwise answer each other for ever.
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
