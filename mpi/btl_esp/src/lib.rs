// SPDX-License-Identifier: MIT OR Apache-2.0

//! An Open MPI component that carries messages over ESP: `mpirun --mca btl esp,self`.
//!
//! | module | has |
//! |---|---|
//! | [`component`], [`parameters`], [`module`] | what Open MPI loads, sets and calls |
//! | [`fragment`] | messages as Open MPI's descriptors |
//! | [`driver`] | the engine's lock, and the callbacks into Open MPI outside of it |
//! | [`engine`], [`link`](mod@link) | connections to peers, in safe code that knows nothing of Open MPI |
//! | [`card`], [`pairs`], [`reach`], [`interfaces`] | which interfaces talk to which |
//! | [`transport`], [`wire`], [`seen`] | sockets, and what is said on them |

mod card;
pub mod component;
mod driver;
mod engine;
mod ffi;
mod fragment;
mod input;
mod interfaces;
mod link;
mod module;
mod pairs;
mod parameters;
mod reach;
mod seen;
mod transport;
mod windows;
mod wire;
