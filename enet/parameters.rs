// SPDX-License-Identifier: GPL-2.0

//! The module's parameters.

use crate::net::{errno::prelude::*, parameter::parameter};

parameter! {
    static FAMILY = parameter("family", 28, "Number of the socket family (default 28)");
}
parameter! {
    static EDP_TYPE = parameter("edp_type", 0x88b5, "Ethernet type of EDP frames (default 0x88B5)");
}
parameter! {
    static ESP_TYPE = parameter("esp_type", 0x88b6, "Ethernet type of ESP frames (default 0x88B6)");
}
parameter! {
    static SSOCKS = parameter(
        "ssocks",
        0,
        "Number of the family ssocks, 27 by custom; its sockets are mapped ones (default 0: none)"
    );
}

/// The least valid Ethernet type. Smaller values are frame lengths (IEEE 802.3, clause 3.2.6).
const LEAST_ETHERTYPE: u16 = 0x600;

/// Checks the module's parameters.
///
/// # Errors
///
/// `EINVAL` if the Ethernet types of EDP and ESP are equal, if one of them is a frame length, or if
/// the two families have the same number. A log message explains the error.
pub(crate) fn check() -> Result {
    let (edp_type, esp_type) = (edp_type(), esp_type());
    if edp_type == esp_type || edp_type < LEAST_ETHERTYPE || esp_type < LEAST_ETHERTYPE {
        pr_err!("edp_type and esp_type must differ and be 0x0600 or more\n");
        return Err(EINVAL);
    }
    if ssocks() == Some(family()) {
        pr_err!("ssocks and family must differ\n");
        return Err(EINVAL);
    }
    Ok(())
}

/// Returns the number of the socket family.
#[inline]
pub(crate) fn family() -> u16 {
    FAMILY.value()
}

/// Returns the number of the family `ssocks`, or `None` if the family is not wanted.
pub(crate) fn ssocks() -> Option<u16> {
    Some(SSOCKS.value()).filter(|family| *family != 0)
}

/// Returns the Ethernet type of EDP frames, in host order.
#[inline]
pub(crate) fn edp_type() -> u16 {
    EDP_TYPE.value()
}

/// Returns the Ethernet type of ESP frames, in host order.
#[inline]
pub(crate) fn esp_type() -> u16 {
    ESP_TYPE.value()
}
