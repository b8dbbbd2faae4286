// SPDX-License-Identifier: GPL-2.0-only

//! Makes the page `docs/performance.md`: lists the measurements, stores their results, and draws
//! the pictures.
//!
//! The test runner makes the measurements, for which it needs only [`topics`] and [`results`]. With
//! the feature `page`, the program `performance` draws the figures from the results, and writes the
//! page.

#[cfg(feature = "page")]
mod overheads;
#[cfg(feature = "page")]
pub mod page;
pub mod results;
#[cfg(feature = "page")]
mod shares;
#[cfg(feature = "page")]
mod streams;
pub mod topics;
#[cfg(feature = "page")]
mod words;
