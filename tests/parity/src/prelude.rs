// SPDX-License-Identifier: GPL-2.0-only

//! Re-exports the names that most behaviours use. A behaviour is a test that runs over two
//! protocols.

pub use guest::asleep::{asleep, crowd};
pub use guest::prelude::*;
pub use guest::uring::Ring;

pub(crate) use super::behaviours;
pub use super::moments::{acknowledged, reset, see_end};
pub use super::{Difference, Pair, Side, Trace};
