// SPDX-License-Identifier: GPL-2.0

//! `socket(PF_ENET, type, protocol)`.

use crate::net::errno::prelude::*;
use crate::{
    datagram,
    net::family::{Family, NewSocket, SOCK_SEQPACKET},
    stream,
};

const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const EPPROTO_EDP: i32 = 0;
const EPPROTO_EZDP: i32 = 1;
const EPPROTO_ESP: i32 = 0;

/// The socket family.
pub(crate) struct Enet;

impl Family for Enet {
    fn create(new: NewSocket<'_>, protocol: i32) -> Result {
        match (new.kind(), protocol) {
            (SOCK_DGRAM, EPPROTO_EDP) => datagram::socket::create(new, protocol, false),
            (SOCK_DGRAM, EPPROTO_EZDP) => datagram::socket::create(new, protocol, true),
            (SOCK_STREAM | SOCK_SEQPACKET, EPPROTO_ESP) => stream::socket::create(new, protocol),
            (_, ..0) => Err(EINVAL),
            (SOCK_DGRAM | SOCK_STREAM | SOCK_SEQPACKET, _) => Err(EPROTONOSUPPORT),
            _ => Err(ESOCKTNOSUPPORT),
        }
    }
}
