// SPDX-License-Identifier: GPL-2.0-only

//! Simulates many ESP senders behind one switch port with the real engine, without a kernel.
//!
//! Every host has a link to one store-and-forward switch, whose ports have a rate and a FIFO buffer
//! of limited bytes. All senders send to one receiver, in rounds ([`rounds`]). The engines are the
//! same as in the kernel module ([`esp::Connection`], [`esp::AckQueue`]), and [`esp_testkit`] calls
//! them as the module does. Time is simulated, and the same seed gives the same result.

pub mod agenda;
pub mod conditions;
pub mod fabric;
pub mod host;
pub mod mesh;
pub mod network;
pub mod plot;
pub mod report;
pub mod rounds;
pub mod simulation;
pub mod sizes;
pub mod streams;
pub mod studies;
