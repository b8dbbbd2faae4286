// SPDX-License-Identifier: GPL-2.0

//! Start and end of a namespace's state, and the settings that the files under `/proc/sys` show.

use crate::{
    net::{
        errno::Result,
        namespace::{Net, Operations, PerNet},
        sysctl,
    },
    pernet::NetState,
    stream::socket,
    sysctl::Settings,
};
use kernel::sync::Arc;

static OPERATIONS: Operations<NetState> = Operations::new();
static SETTINGS: sysctl::Operations<Settings> = sysctl::Operations::new();

// SAFETY: What asks for a namespace's share are socket calls, packet handlers, the listener for
// devices, files under `/proc/net` and `/proc/sys`, connections and timers. The module's
// registrations of all but the last two begin after that of `NetState` and end before it, since its
// field stands behind theirs in `Enet`; `end` ends the connections, and a socket without a
// connection asks for nothing when it is freed.
unsafe impl PerNet for NetState {
    fn operations() -> &'static Operations<Self> {
        &OPERATIONS
    }

    fn new(_net: &Net) -> Result<Self> {
        NetState::make()
    }

    fn end(&self) {
        // At module exit connections may remain whose descriptors are closed and whose peers have
        // not closed yet.
        socket::end_all(self);
    }
}

impl sysctl::PerNamespace for Settings {
    fn operations() -> &'static sysctl::Operations<Self> {
        &SETTINGS
    }

    fn of(net: &Net) -> Arc<Self> {
        NetState::of(net).sysctl.clone()
    }
}
