// SPDX-License-Identifier: GPL-2.0

//! What a [channel](super::channel) has beyond a connection with records: its domain, and the state
//! of the message that is arriving.

use crate::{
    esp::messages::Place,
    net::{region::Regions, skb::Skb},
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

/// The rest of a message, of which a part has arrived.
pub(super) struct Rest {
    /// Where the rest goes.
    pub(super) place: Place,
    /// The header of a put, which is queued for the program after the last byte.
    pub(super) header: Option<Skb>,
}
