// SPDX-License-Identifier: GPL-2.0-only

//! How long things may take in this guest.

use std::env;
use std::sync::OnceLock;
use std::time::Duration;

/// By how much the guest is slower than one with the stock kernel, as the runner says.
const VARIABLE: &str = "ENET_PATIENCE";

/// For how long an event that must come may take; only a broken module needs all of it.
pub fn patience() -> Duration {
    allow(Duration::from_secs(20))
}

/// `time`, enough for the stock kernel, for the one that is here.
pub fn allow(time: Duration) -> Duration {
    time.saturating_mul(factor())
}

/// How many times as long as in the stock kernel things may take.
pub fn factor() -> u32 {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    *FACTOR.get_or_init(|| {
        let text = env::var(VARIABLE).unwrap_or_default();
        text.parse().unwrap_or(1).max(1)
    })
}
