//! Attacks by whoever is on the same Ethernet, each within its bounds: `make dos` prints the figures.

use crate::denial::attacks::{
    ECHOES, EDP_NOBODY, EDP_UNREAD, FOREIGN_SYNS, FORGED, GUESSED_REQUESTS, MAPPED_SYNS, REQUESTS,
    SILENT, STRAYS, SYNS, TEASING, UNREAD, WINDOWLESS,
};
use crate::denial::{judge, make, Attack};
use crate::harness::{note, Outcome, Scenario};
use crate::lab::Lab;

/// The scenarios of this file.
pub const ALL: &[Scenario] = &[
    attack("dos_syns_from_nowhere", |lab| bounded(lab, &SYNS)),
    attack("dos_syns_of_mapped_connections", |lab| {
        bounded(lab, &MAPPED_SYNS)
    }),
    attack("dos_syns_of_mapped_connections_from_strangers", |lab| {
        bounded(lab, &FOREIGN_SYNS)
    }),
    attack("dos_packets_for_nobody", |lab| bounded(lab, &STRAYS)),
    attack("dos_guessed_acknowledgements", |lab| bounded(lab, &FORGED)),
    attack("dos_guessed_requests", |lab| {
        bounded(lab, &GUESSED_REQUESTS)
    }),
    attack("dos_requests_by_a_peer", |lab| bounded(lab, &REQUESTS)),
    attack("dos_datagrams_for_nobody", |lab| bounded(lab, &EDP_NOBODY)),
    attack("dos_datagrams_unread", |lab| bounded(lab, &EDP_UNREAD)),
    attack("dos_echo_requests", |lab| bounded(lab, &ECHOES)),
    attack("dos_a_peer_without_a_window", |lab| {
        bounded(lab, &WINDOWLESS)
    }),
    attack("dos_connections_unread", |lab| bounded(lab, &UNREAD)),
    attack("dos_announcers_that_fall_silent", |lab| {
        bounded(lab, &SILENT)
    }),
    attack("dos_announcers_again_and_again", |lab| {
        bounded(lab, &TEASING)
    }),
];

const fn attack(name: &'static str, body: fn(&Lab) -> Outcome) -> Scenario {
    Scenario::direct(name, body).counted().within(120)
}

fn bounded(lab: &Lab, attack: &Attack) -> Outcome {
    let figures = make(lab, attack)?;
    note(&format!("{figures:?}"));
    judge(attack, &figures)
}
