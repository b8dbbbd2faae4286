// SPDX-License-Identifier: GPL-2.0-only

//! Some cases of every family, with every placement of a loss and a duplicate. The program
//! `esp-model` checks more cases.

use esp_model::check::check;
use esp_model::families::{families, Scale};

#[test]
fn every_family_holds() {
    for family in families(Scale::Quick) {
        let report = check(&family, 1);
        assert!(report.holds(), "{}: {report:#?}", family.name);
        assert!(report.longest > 0 && report.ends > 0 && report.states > family.cases.len());
    }
}
