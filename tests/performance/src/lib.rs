// SPDX-License-Identifier: GPL-2.0-only

//! `docs/performance.md`: what is measured for it, the results, and the page with its pictures.
//!
//! The runner measures, and needs no more than [`topics`] and [`results`]; with the feature `page`
//! the program `performance` draws the figures from what was measured, and writes the page.

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
