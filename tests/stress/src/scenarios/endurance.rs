// SPDX-License-Identifier: GPL-2.0-only

//! Makes mixed traffic over a link that is cut. `make endurance` runs it for an hour, between two
//! guests.

use crate::endurance::rehearse;
use guest::prelude::*;

scenarios! {
    switched endurance_of_mixed_traffic_while_the_link_is_cut = half_a_minute, within(200);
}

fn half_a_minute(lab: &Lab) -> Outcome {
    let seed = fastrand::u64(..);
    note(&format!("seed {seed}"));
    let report = rehearse(lab, seed)?;
    ensure!(report.cuts == 5, "{report:?}");
    // On a busy machine, or in the debug kernel, a run opens as few as a twentieth of the usual
    // number of connections.
    ensure!(report.connections >= 5, "{report:?}");
    // The last cut must break connections: it is longer than the time for which a connection
    // survives without an answer.
    ensure!(report.broken > 0, "{report:?}");
    module::await_unused()?;
    module::reload()
}
