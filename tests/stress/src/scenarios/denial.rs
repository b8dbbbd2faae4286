// SPDX-License-Identifier: GPL-2.0-only

//! Makes attacks from the same Ethernet, and checks that each attack stays within its bounds. `make
//! dos` prints the figures.

use crate::denial::attacks::{
    ECHOES, EDP_NOBODY, EDP_UNREAD, FOREIGN_SYNS, FORGED, GUESSED_REQUESTS, MAPPED_SYNS, REQUESTS,
    SILENT, STRAYS, SYNS, TEASING, UNREAD, WINDOWLESS,
};
use crate::denial::blind::{self, Aim};
use crate::denial::slowing;
use crate::denial::{judge, make, Attack};
use guest::prelude::*;

scenarios! {
    direct dos_syns_from_nowhere = |lab| bounded(lab, &SYNS), needs_icount, within(120);
    direct dos_syns_of_mapped_connections = |lab| bounded(lab, &MAPPED_SYNS), needs_icount, within(120);
    direct dos_syns_of_mapped_connections_from_strangers = |lab| bounded(lab, &FOREIGN_SYNS), needs_icount, within(120);
    direct dos_packets_for_nobody = |lab| bounded(lab, &STRAYS), needs_icount, within(120);
    direct dos_guessed_acknowledgements = |lab| bounded(lab, &FORGED), needs_icount, within(120);
    direct dos_guessed_requests = |lab| bounded(lab, &GUESSED_REQUESTS), needs_icount, within(120);
    direct dos_requests_by_a_peer = |lab| bounded(lab, &REQUESTS), needs_icount, within(120);
    direct dos_datagrams_for_nobody = |lab| bounded(lab, &EDP_NOBODY), needs_icount, within(120);
    direct dos_datagrams_unread = |lab| bounded(lab, &EDP_UNREAD), needs_icount, within(120);
    direct dos_echo_requests = |lab| bounded(lab, &ECHOES), needs_icount, within(120);
    direct dos_a_peer_without_a_window = |lab| bounded(lab, &WINDOWLESS), needs_icount, within(120);
    direct dos_connections_unread = |lab| bounded(lab, &UNREAD), needs_icount, within(120);
    direct dos_announcers_that_fall_silent = |lab| bounded(lab, &SILENT), needs_icount, within(120);
    direct dos_announcers_again_and_again = |lab| bounded(lab, &TEASING), needs_icount, within(120);
    direct dos_blind_resets_need_the_exact_number = |lab| guessed(lab, Aim::Reset), needs_icount, within(400);
    direct dos_blind_data_need_both_numbers = |lab| guessed(lab, Aim::Inject), needs_icount, within(400);
    direct dos_blind_acknowledgements_need_both_numbers = |lab| guessed(lab, Aim::Free), needs_icount, within(400);
    direct dos_blind_packets_do_not_slow_a_stream_down = slowed, needs_icount, within(400);
}

/// Makes every attack that guesses numbers and whose goal is `aim`.
fn guessed(lab: &Lab, aim: Aim) -> Outcome {
    let mut verdict = Ok(());
    for guess in blind::ALL.iter().filter(|guess| guess.aim() == aim) {
        let found = guess.make(lab)?;
        let frames = found.frames();
        note(&format!("{}: {found}, {frames:.0} frames", guess.name()));
        verdict = verdict.and(guess.judge(found));
    }
    verdict
}

fn slowed(lab: &Lab) -> Outcome {
    let mut verdict = Ok(());
    for slowing in slowing::ALL {
        let share = slowing.share(lab)?;
        note(&format!("{}: {share:.3}", slowing.what));
        verdict = verdict.and(slowing.judge(share));
    }
    verdict
}

fn bounded(lab: &Lab, attack: &Attack) -> Outcome {
    let figures = make(lab, attack)?;
    note(&format!("{figures:?}"));
    judge(attack, &figures)
}
