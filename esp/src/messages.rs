// SPDX-License-Identifier: GPL-2.0

//! Messages: the records of a channel.
//!
//! A *channel* is a connection with [records](super::records) whose records begin with a header.
//! Both ends announce this in the option of records, and a connection between a channel and a
//! socket without one is refused. The sending program writes the header, the receiving host obeys
//! it:
//!
//! ```text
//! offset  length  field, big-endian
//!      0       1  operation: 1 send, 2 put
//!      1       1  flags: bit 0, the put completes at the receiver, too
//!      2       2  0
//!      4       4  immediate data, which is the programs'
//!      8       8  key of the region of memory that a put goes to
//!     16       8  offset in the region, bytes
//! ```
//!
//! * A *send* is queued for the receiving program, header included. Its last three fields are the
//!   programs'.
//! * The bytes of a *put* behind the header go to the receiving program's memory, without the
//!   program. If the flag is set, the header alone is queued for the program once all bytes of the
//!   put are in their place.
//! * The packets of a put are acknowledged after their bytes are in their place. So a put whose
//!   packets are all acknowledged is complete.
//! * A message with another header, or one that does not fit into its first packet, breaks the
//!   rules. So does a put to memory for which there is no key, or beyond its end. The receiver then
//!   ends the connection with a RST.

use super::connection::Connection;
use super::outcome::Outcome;
use super::state::Failure;

/// Number of bytes of a message's header.
pub const MESSAGE_LEN: usize = 24;

/// The operation of a message that is queued for the program.
const SEND: u8 = 1;
/// The operation of a message whose bytes go to a region.
const PUT: u8 = 2;
/// The flag of a put that completes at the receiver, too.
const TELLS: u8 = 1;

/// Where the bytes of a message behind its header go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To the queue from which the program receives, behind the header.
    Queue,
    /// To a region of the program's memory.
    Region(Put),
}

/// A put, or the rest of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key of the region.
    pub key: u64,
    /// Where the next byte goes: offset in the region, in bytes.
    pub offset: u64,
    /// Whether the header is queued for the program after the last byte.
    pub tells: bool,
}

impl Place {
    /// Reads the header of a message. Returns `None` if the header breaks the rules.
    pub fn read(header: &[u8; MESSAGE_LEN]) -> Option<Self> {
        let (start, rest) = header.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_first_chunk::<8>()?;
        let (offset, _) = rest.split_first_chunk::<8>()?;
        let &[operation, flags, 0, 0, ..] = start else {
            return None;
        };
        match (operation, flags) {
            (SEND, 0) => Some(Place::Queue),
            (PUT, 0 | TELLS) => Some(Place::Region(Put {
                key: u64::from_be_bytes(*key),
                offset: u64::from_be_bytes(*offset),
                tells: flags == TELLS,
            })),
            _ => None,
        }
    }
}

impl Put {
    /// Returns the put that is left once `bytes` bytes are in their place. An offset beyond all
    /// memory stays there.
    #[must_use]
    pub fn after(self, bytes: usize) -> Self {
        Put {
            offset: self.offset.saturating_add(bytes as u64),
            ..self
        }
    }
}

impl Connection {
    /// Ends the connection because a message of the peer's breaks the rules: with a RST, and
    /// nothing of the message is to be queued.
    #[cold]
    pub fn refuse_message(&mut self, outcome: &mut Outcome) {
        self.break_off(Failure::Reset, outcome);
    }
}
