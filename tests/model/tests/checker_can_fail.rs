// SPDX-License-Identifier: GPL-2.0-only

//! Worlds with deliberate errors: the checker must find that each property is broken, with the
//! expected faults.

use esp::Config;
use esp_model::case::{Case, Close, Program, Reader, Sabotage, MS, US};
use esp_model::check::{check, Report};
use esp_model::families::Family;
use esp_model::scene::Sights;
use esp_model::world::Budget;

/// Returns a case in which each sender sends one message. `messages` has the number of packets of
/// each message.
fn case(sabotage: Option<Sabotage>, messages: &[u16]) -> Case {
    let sender = |packets: &u16| Program {
        messages: vec![*packets],
        ..Program::SILENT
    };
    let config = Config {
        burst_length: 2,
        burst_length_max: 2,
        packets_to_ack: 1,
        initial_ack_burst_length: 0,
        ..Config::default()
    };
    Case {
        configs: [config; 2],
        later: None,
        programs: messages
            .iter()
            .map(|packets| [Program::SILENT, sender(packets)])
            .collect(),
        reports_windows: false,
        records: false,
        together: false,
        priority: 0,
        open: true,
        latency: 20 * US,
        crossed: false,
        bound: 100 * MS,
        sabotage,
    }
}

fn explore(case: Case, losses: u8, duplicates: u8) -> Report {
    let family = Family {
        name: "made wrong",
        cases: vec![case],
        budget: Budget {
            losses,
            duplicates,
            reorders: 0,
            death: false,
        },
        must_see: Sights::NONE,
    };
    check(&family, 1)
}

/// Asserts that a property is broken with these numbers of losses and duplicates, and not with
/// fewer.
#[track_caller]
fn assert_caught(case: Case, property: &str, losses: u8, duplicates: u8) -> Vec<String> {
    let sound = explore(
        Case {
            sabotage: None,
            ..case.clone()
        },
        losses,
        duplicates,
    );
    assert!(
        sound.holds(),
        "the same world holds when nothing is made wrong: {sound:#?}"
    );
    let violation = explore(case, losses, duplicates)
        .violation
        .expect("a violation");
    let found = (
        violation.property,
        violation.budget.losses,
        violation.budget.duplicates,
    );
    assert_eq!(
        found,
        (property, losses, duplicates),
        "{:#?}",
        violation.trace
    );
    assert!(violation
        .trace
        .last()
        .is_some_and(|line| line.starts_with("VIOLATION")));
    violation.trace
}

#[test]
fn a_swallowed_request() {
    let trace = assert_caught(
        case(Some(Sabotage::SwallowRequests), &[4]),
        "every run ends in bounded time",
        1,
        0,
    );
    let lost: Vec<_> = trace
        .iter()
        .filter(|line| line.contains("*** LOST"))
        .collect();
    assert_eq!(lost.len(), 1, "{trace:#?}");
}

#[test]
fn a_list_that_is_never_served() {
    let trace = assert_caught(
        case(Some(Sabotage::NeverServe), &[3, 3]),
        "nothing is sent again unless something went wrong",
        0,
        0,
    );
    assert!(
        trace.iter().any(|line| line.contains("waits, 1 of 2")),
        "{trace:#?}"
    );
}

#[test]
fn a_list_that_keeps_what_need_not_wait() {
    // In this case, one sender's last packet arrives while the acknowledgement for this sender
    // waits for its turn.
    let mut wrong = case(Some(Sabotage::KeepInList), &[4, 3]);
    wrong.configs[1].initial_ack_burst_length = 1;
    assert_caught(wrong, "ACK queue, list and connections agree", 0, 0);
}

#[test]
fn a_duplicate_that_is_delivered() {
    assert_caught(
        case(Some(Sabotage::DeliverAll), &[2]),
        "bytes arrive once, in order, unaltered",
        0,
        1,
    );
}

#[test]
fn a_packet_in_place_of_another() {
    let mut wrong = case(Some(Sabotage::SendNext), &[3]);
    wrong.configs[1].initial_ack_burst_length = 1;
    assert_caught(wrong, "bytes arrive once, in order, unaltered", 0, 0);
}

#[test]
fn a_receive_queue_beyond_its_limit() {
    let mut wrong = case(Some(Sabotage::PromiseRoom), &[5]);
    wrong.programs[0][0].limit = 2;
    wrong.programs[0][0].reader = Reader::Late(20 * MS);
    assert_caught(wrong, "receive queues stay bounded", 0, 0);
}

#[test]
fn a_panic() {
    let trace = assert_caught(case(Some(Sabotage::PanicAtRequest), &[4]), "no panic", 1, 0);
    assert!(
        trace
            .iter()
            .any(|line| line.contains("made wrong on purpose")),
        "{trace:#?}"
    );
}

#[test]
fn nothing_left_to_happen() {
    assert_caught(case(Some(Sabotage::NoTimers), &[3]), "no deadlock", 1, 0);
}

#[test]
fn a_timer_that_spins() {
    assert_caught(
        case(Some(Sabotage::StoppedClock), &[2]),
        "no timer spins",
        1,
        0,
    );
}

#[test]
fn a_turn_that_is_taken() {
    assert_caught(
        case(Some(Sabotage::GrantAtOnce), &[3, 3]),
        "no window opens out of turn",
        0,
        0,
    );
}

#[test]
fn a_resend_without_need() {
    assert_caught(
        case(Some(Sabotage::HastyClock), &[3]),
        "nothing is sent again unless something went wrong",
        0,
        0,
    );
}

#[test]
fn a_window_that_is_not_told() {
    let mut wrong = case(Some(Sabotage::SendNoOptions), &[4]);
    wrong.reports_windows = true;
    wrong.configs[0] = Config {
        burst_length: 4,
        packets_to_ack: 4,
        ..wrong.configs[0]
    };
    assert_caught(
        wrong,
        "nothing is sent again unless something went wrong",
        0,
        0,
    );
}

#[test]
fn a_connection_that_fails() {
    // A SYN|ACK is sent at most five times, so the connection fails once five packets are lost.
    let mut hopeless = case(None, &[]);
    hopeless.programs = vec![[Program::SILENT, Program::SILENT]];
    hopeless.open = false;
    hopeless.bound = 60_000 * MS;
    assert!(explore(hopeless.clone(), 4, 0).holds());
    let violation = explore(hopeless, 5, 0).violation.expect("a violation");
    assert_eq!(violation.property, "no connection fails");
    assert_eq!(violation.budget.losses, 5, "{:#?}", violation.trace);
}

#[test]
fn a_family_that_does_not_show_what_it_is_for() {
    let family = Family {
        name: "too calm",
        cases: vec![case(None, &[3])],
        budget: Budget::NONE,
        must_see: Sights::REQUEST,
    };
    let report = check(&family, 1);
    assert!(report.violation.is_none());
    assert_eq!(report.missing, Sights::REQUEST);
    assert!(!report.holds());
}

#[test]
fn a_socket_whose_data_nobody_reads() {
    // Data for a closed socket is answered with a RST. This is correct, but the checker reports it.
    let mut rude = case(None, &[1]);
    rude.programs[0][0].messages = vec![1];
    rude.programs[0][1].close = Close::Abandoned;
    let violation = explore(rude, 0, 0).violation.expect("a violation");
    assert_eq!(violation.property, "no connection fails");
}
