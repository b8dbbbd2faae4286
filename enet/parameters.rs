// SPDX-License-Identifier: GPL-2.0

//! The module's parameters.

use crate::net::errno::prelude::*;
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};

static FAMILY: AtomicU16 = AtomicU16::new(28);
static EDP_TYPE: AtomicU16 = AtomicU16::new(0x88b5);
static ESP_TYPE: AtomicU16 = AtomicU16::new(0x88b6);

/// The numbers in force.
#[derive(Clone, Copy)]
pub(crate) struct Parameters {
    pub(crate) family: u16,
    pub(crate) edp_type: u16,
    pub(crate) esp_type: u16,
}

/// Below this an Ethernet type is a frame's length (IEEE 802.3, clause 3.2.6).
const LEAST_ETHERTYPE: u16 = 0x600;

/// Sets the numbers, once, at load.
///
/// # Errors
///
/// `EINVAL` for Ethernet types that are equal or are lengths; the log says so.
pub(crate) fn set(family: u16, edp_type: u16, esp_type: u16) -> Result<Parameters> {
    if edp_type == esp_type || edp_type < LEAST_ETHERTYPE || esp_type < LEAST_ETHERTYPE {
        pr_err!("edp_type and esp_type must differ and be 0x0600 or more\n");
        return Err(EINVAL);
    }
    FAMILY.store(family, Relaxed);
    EDP_TYPE.store(edp_type, Relaxed);
    ESP_TYPE.store(esp_type, Relaxed);
    Ok(Parameters {
        family,
        edp_type,
        esp_type,
    })
}

/// Number of the socket family.
#[inline]
pub(crate) fn family() -> u16 {
    FAMILY.load(Relaxed)
}

/// Ethernet type of EDP frames, host order.
#[inline]
pub(crate) fn edp_type() -> u16 {
    EDP_TYPE.load(Relaxed)
}

/// Ethernet type of ESP frames, host order.
#[inline]
pub(crate) fn esp_type() -> u16 {
    ESP_TYPE.load(Relaxed)
}
