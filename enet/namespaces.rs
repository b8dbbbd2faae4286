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

// SAFETY: Socket calls, packet handlers, the listener for devices and neighbours, files under
// `/proc/net` and `/proc/sys`, connections and timers ask for the state of a namespace. The first
// four are registered by fields of `Enet` before the field for `NetState`, so their registrations
// end before the registration of `NetState`. `end` ends the connections and their timers. A socket
// without a connection does not ask for the state when it is freed.
unsafe impl PerNet for NetState {
    fn operations() -> &'static Operations<Self> {
        &OPERATIONS
    }

    fn new(_net: &Net) -> Result<Self> {
        NetState::make()
    }

    fn end(&self) {
        // At module exit, connections may remain after their descriptors were closed, because their
        // peers have not closed yet.
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
