// SPDX-License-Identifier: MIT OR Apache-2.0

//! An Open MPI component that carries messages over ESP: `mpirun --mca btl esp,self`.
//!
//! | module | contents |
//! |---|---|
//! | [`component`], [`parameters`], [`module`] | the component's symbol, its parameters, and the functions that Open MPI calls |
//! | [`remote`], [`registration`] | the module for one-sided calls, and registered memory |
//! | [`fragment`] | messages as Open MPI's descriptors |
//! | [`driver`] | the engine's lock, and the callbacks into Open MPI after unlock |
//! | [`engine`], [`link`](mod@link), [`calls`], [`channel`] | connections to peers, in safe code that is independent of Open MPI |
//! | [`card`], [`pairs`], [`reach`], [`interfaces`] | which interfaces of two processes are connected |
//! | [`transport`], [`wire`], [`seen`] | sockets, and the protocol on them |

mod calls;
mod card;
mod channel;
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
mod registration;
mod remote;
mod seen;
mod transport;
mod windows;
mod wire;
