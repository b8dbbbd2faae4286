// SPDX-License-Identifier: GPL-2.0-only

//! Model checking of the ESP engine.
//!
//! A [`world::World`] is one receiver host and up to three sender hosts around one switch. Each end
//! of each connection is the engine of the kernel module, [`esp::Connection`]. In each host, the
//! module's [`esp::AckQueue`] decides which connection may acknowledge next. The environment of the
//! engines and queues is deterministic. It consists of the programs, of a clock that jumps to the
//! next arrival or timer, and of a wire that is a FIFO. Only the fates of packets vary: within a
//! budget of faults per run, a packet passes, is lost, or arrives twice. The model checker,
//! stateright, explores every way to spend the budget. Runs are finite, since budgets are finite
//! and time is bounded. The property "every run ends" therefore means that no run gets stuck or
//! exceeds a stated time.

pub mod case;
pub mod check;
pub mod endpoint;
pub mod families;
pub mod fault;
pub mod host;
pub mod model;
pub mod scene;
pub mod world;
