// SPDX-License-Identifier: GPL-2.0-only

//! Model checking of the ESP engine.
//!
//! A [`world::World`] is one receiver host and up to three sender hosts behind one switch. Each end
//! of each connection is the engine that the kernel module runs, [`esp::Connection`], each host
//! gives turns by [`esp::AckQueue`], and all that surrounds them is determined: the programs, the
//! clock, which jumps to the next arrival or timer, the wire, which is first in, first out. Open is
//! the fate of every packet that is sent: it passes, is lost, or arrives twice, within a budget of
//! faults per run. stateright explores every way to spend that budget. Runs are finite, since
//! budgets are and time is bounded; so "every run ends" is checked as: no run gets stuck, and none
//! goes on for longer than a stated time.

pub mod case;
pub mod check;
pub mod endpoint;
pub mod families;
pub mod fault;
pub mod host;
pub mod model;
pub mod scene;
pub mod world;
