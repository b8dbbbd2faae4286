// SPDX-License-Identifier: MIT OR Apache-2.0

//! The family number, which the module's parameter `family` can change.

use std::fmt;

use crate::constants::AF_ENET;

/// Address family number of PF_ENET on this host.
///
/// Constructors without one take [`Family::ENET`]. Where the module was loaded with another
/// number (`modprobe enet family=29`), the constructors whose names end in `_with` take it:
///
/// ```no_run
/// use sockaddr_en::{Address, EspListener, Family};
///
/// let listener = EspListener::bind_with(Family::new(29), Address::any(2805))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Family(u16);

impl Family {
    /// [`AF_ENET`], 28: what the module registers by default.
    pub const ENET: Self = Self(AF_ENET);

    /// The family the module was told to register.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number, host byte order.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl Default for Family {
    fn default() -> Self {
        Self::ENET
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
