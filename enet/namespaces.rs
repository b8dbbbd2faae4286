// SPDX-License-Identifier: GPL-2.0

//! The beginning and the end of a namespace's share.

use crate::{
    esp_socket,
    net::{
        errno::Result,
        namespace::{Net, Operations, PerNet},
    },
    space::Space,
};

static OPERATIONS: Operations<Space> = Operations::new();

// SAFETY: What asks for a namespace's share are socket calls, packet handlers, the listener for devices,
// files, connections and timers. The module's registrations of the first four end before that of `Space`,
// whose field stands behind theirs in `Enet`; `end` ends the connections, and a socket without a
// connection asks for nothing when it is freed.
unsafe impl PerNet for Space {
    fn operations() -> &'static Operations<Self> {
        &OPERATIONS
    }

    fn new(net: &Net) -> Result<Self> {
        Space::make(net)
    }

    fn end(&self) {
        // At module exit connections may be left whose descriptors are closed and whose peers have
        // not yet said goodbye.
        esp_socket::end_all(self);
    }
}
