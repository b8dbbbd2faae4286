// SPDX-License-Identifier: GPL-2.0

//! The parts of a [channel](super::channel) that other connections lack: its domain, and the
//! message that arrives.

use crate::{
    esp::messages::{Place, MESSAGE_LEN},
    net::{
        region::Regions,
        skb::{Buffer, Skb},
    },
};
use kernel::sync::Arc;

/// The domain of a channel.
pub(crate) struct Domain {
    pub(super) regions: Arc<Regions>,
    /// Whether the domain was made for this socket's descriptor.
    pub(super) is_own: bool,
}

impl Domain {
    /// Returns the same domain, for another socket.
    pub(super) fn share(&self) -> Self {
        Domain {
            regions: self.regions.clone(),
            is_own: false,
        }
    }
}

/// Reads the header of a message, from offset `start` of `buffer` on. Returns `None` if the header
/// is not complete, or breaks the rules.
pub(in crate::stream) fn place_at(buffer: &Buffer, start: usize) -> Option<Place> {
    let mut header = [0; MESSAGE_LEN];
    let whole = buffer.copy_bits(start, &mut header);
    whole.then(|| Place::read(&header)).flatten()
}

/// The rest of a message, of which a part has arrived.
pub(super) struct Rest {
    /// Where the rest goes.
    pub(super) place: Place,
    /// The header of a put, which is queued for the program after the last byte.
    pub(super) header: Option<Skb>,
}
