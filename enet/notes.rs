// SPDX-License-Identifier: GPL-2.0

//! The values that the protocols store with a buffer while it waits.

use crate::{
    address::Address,
    net::{
        device::Mac,
        numbered::Numbered,
        skb::{Note, Words},
    },
};

/// Of a received frame: the sender.
#[derive(Clone, Copy)]
pub(crate) struct Origin(pub(crate) Address);

impl Note for Origin {
    #[inline]
    fn to_words(self) -> Words {
        let Address { port, ifindex, mac } = self.0;
        [mac.to_bits() << 16 | u64::from(port), ifindex.into()]
    }

    #[inline]
    fn from_words([end, ifindex]: Words) -> Self {
        Origin(Address {
            port: end as u16,
            ifindex: ifindex as u32,
            mac: Mac::from_bits(end >> 16),
        })
    }
}

/// Of a packet in the write queue.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    /// Sequence number.
    pub(crate) seq: u16,
    /// Flags of the packet's last transmission, 0 before the first.
    pub(crate) flags: u8,
}

impl Note for Kept {
    #[inline]
    fn to_words(self) -> Words {
        [u64::from(self.flags) << 16 | u64::from(self.seq), 0]
    }

    #[inline]
    fn from_words([word, _]: Words) -> Self {
        Kept {
            seq: word as u16,
            flags: (word >> 16) as u8,
        }
    }
}

impl Numbered for Kept {
    #[inline]
    fn number(&self) -> u16 {
        self.seq
    }
}

/// Of a buffer in a stream's receive queue: bytes of it that a reader has taken.
#[derive(Clone, Copy, Default)]
pub(crate) struct Taken(pub(crate) u32);

impl Note for Taken {
    #[inline]
    fn to_words(self) -> Words {
        [self.0.into(), 0]
    }

    #[inline]
    fn from_words([bytes, _]: Words) -> Self {
        Taken(bytes as u32)
    }
}
