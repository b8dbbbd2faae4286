// SPDX-License-Identifier: GPL-2.0

//! The ends of a mapped connection, as programs know them and as a SYN tells them.

use crate::{esp, net::inet::InternetEnd};

/// The end as a SYN tells it.
pub(crate) fn to_wire(end: &InternetEnd) -> esp::InternetEnd {
    esp::InternetEnd {
        address: end.address,
        port: end.port,
    }
}

/// The end that a SYN tells.
pub(crate) fn from_wire(end: &esp::InternetEnd) -> InternetEnd {
    InternetEnd {
        address: end.address,
        port: end.port,
    }
}
