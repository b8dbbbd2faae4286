// SPDX-License-Identifier: GPL-2.0-only

//! Names that most behaviours use.

pub use super::asleep::{asleep, crowd};
pub use super::moments::{acknowledged, reset, see_end};
pub use super::uring::Ring;
pub use super::{Difference, Pair, Side, Trace};
pub use crate::prelude::*;
