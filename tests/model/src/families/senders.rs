// SPDX-License-Identifier: GPL-2.0-only

//! Families of several connections that share the ACK queue of a receiver.

use super::{
    answers, closes, config, family, grid, limited, open, reads, to_be_opened, writes, Family,
    Scale, AFTER_DEATH, FULL,
};
use crate::case::{Case, Close, Program, Reader, MS};
use crate::scene::Sights;
use crate::world::Budget;

/// Cases with two senders in the ACK queue.
pub fn two_senders(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let messages: [[&[u16]; 2]; 6] = [
        [&[2], &[2]],
        [&[3], &[3]],
        [&[1], &[4]],
        [&[2, 1], &[2]],
        [&[4], &[4]],
        [&[5], &[3]],
    ];
    for config in grid(scale.of(1, 3, &[2, 1, 3, 4]), &[1, 2], &[0, 1]) {
        for each in scale.of(2, 4, &messages) {
            let programs = each.map(|messages| [Program::SILENT, writes(messages)]);
            cases.push(open(config, programs.to_vec()));
        }
    }
    family(
        "two senders",
        Sights::REQUEST | Sights::WAITED | Sights::HOLD,
        cases,
    )
}

/// Cases with three senders in the ACK queue.
pub fn three_senders(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let messages: [[&[u16]; 3]; 5] = [
        [&[2], &[2], &[2]],
        [&[1], &[3], &[2]],
        [&[3], &[3], &[3]],
        [&[1, 1], &[2], &[4]],
        [&[5], &[3], &[1]],
    ];
    for config in grid(scale.of(1, 2, &[1, 2, 3]), &[1, 2], &[0, 1]) {
        for each in scale.of(1, 2, &messages) {
            let programs = each.map(|messages| [Program::SILENT, writes(messages)]);
            cases.push(open(config, programs.to_vec()));
        }
    }
    family(
        "three senders",
        Sights::REQUEST | Sights::WAITED_TWO | Sights::HOLD,
        cases,
    )
}

/// Cases that test the order in which the ACK queue acknowledges connections: with a short
/// transmission among long ones, with connections of one host, and with a socket that has a
/// priority.
pub fn order(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let late = answers(Program::bytes(1), 0, &[1]);
    let messages: [[&[u16]; 3]; 4] = [
        [&[4], &[3], &[2]],
        [&[5], &[2, 2], &[1, 2]],
        [&[3], &[3], &[3]],
        [&[6], &[5], &[2, 2]],
    ];
    for config in grid(scale.of(1, 1, &[2, 1, 3]), &[1], &[0, 1]) {
        for each in scale.of(1, 1, &messages) {
            for (together, priority) in [(false, 0), (true, 0), (false, 6), (true, 7)] {
                let programs = each.map(|messages| [Program::SILENT, writes(messages)]);
                cases.push(Case {
                    together,
                    priority,
                    ..open(config, programs.to_vec())
                });
            }
        }
        // The second connection begins when the ACK queue has already let the first one
        // acknowledge.
        for together in [false, true] {
            let programs = vec![
                [late.clone(), writes(&[5])],
                [writes(&[1]), answers(Program::bytes(1), 0, &[3])],
            ];
            cases.push(Case {
                together,
                ..open(config, programs)
            });
        }
    }
    family(
        "order of turns",
        Sights::REQUEST | Sights::WAITED_TWO | Sights::HOLD,
        cases,
    )
}

/// Cases of the ACK queue in which data flows in both directions or a reader makes room late.
pub fn two_ways(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let late = reads(Reader::Late(2 * MS), limited(2, Program::SILENT));
    let pairs = [
        vec![[answers(1, 0, &[1]), writes(&[2])]; 2],
        vec![
            [late.clone(), writes(&[3])],
            [Program::SILENT, writes(&[3])],
        ],
        vec![
            [writes(&[2]), writes(&[2])],
            [Program::SILENT, writes(&[2])],
        ],
        vec![[late, writes(&[3])]; 2],
    ];
    for config in grid(scale.of(1, 2, &[2, 1, 3]), &[1, 2], &[0, 1]) {
        for programs in scale.of(2, 4, &pairs) {
            cases.push(open(config, programs.clone()));
        }
    }
    family(
        "queue both ways",
        Sights::REQUEST | Sights::WAITED | Sights::HOLD | Sights::CONGESTED,
        cases,
    )
}

/// Cases with two connections, from opening to closing.
pub fn lives(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let parameters = [
        config(2, 1, 1),
        config(1, 1, 0),
        config(2, 2, 0),
        config(3, 2, 1),
    ];
    for config in scale.of(1, 2, &parameters) {
        for messages in scale.of(1, 1, &[&[2][..], &[1, 2], &[3]]) {
            let programs = [
                closes(Close::Ended, Program::SILENT),
                closes(Close::Written, writes(messages)),
            ];
            cases.push(to_be_opened(*config, vec![programs; 2]));
        }
    }
    family(
        "whole lives",
        Sights::REQUEST | Sights::WAITED | Sights::RESET,
        cases,
    )
}

/// Cases with several senders, one of which dies when it sends one of its packets. The bound is the
/// time within which the other senders must be done.
pub fn dying_sender(scale: Scale) -> Family {
    let mut cases = Vec::new();
    for senders in [2, 3] {
        for config in grid(scale.of(1, 2, &[2, 1, 3]), &[1, 2], &[0, 1]) {
            for messages in scale.of(1, 2, &[&[3][..], &[5], &[2, 2]]) {
                cases.push(Case {
                    bound: AFTER_DEATH,
                    ..open(config, vec![[Program::SILENT, writes(messages)]; senders])
                });
            }
        }
    }
    Family {
        budget: Budget {
            losses: 0,
            duplicates: 0,
            reorders: 0,
            death: true,
        },
        ..family("dying sender", Sights::WAITED | Sights::OVERRUN, cases)
    }
}

/// Cases in which a sender dies and other faults occur, too.
pub fn dying_and_losses(scale: Scale) -> Family {
    let mut cases = Vec::new();
    for config in grid(scale.of(1, 2, &[2, 1, 3]), &[1], &[0, 1]) {
        for senders in scale.of(1, 1, &[2, 3]) {
            cases.push(open(
                config,
                vec![[Program::SILENT, writes(&[3])]; *senders],
            ));
        }
    }
    let budget = Budget {
        death: true,
        ..FULL
    };
    Family {
        budget,
        ..family(
            "dying and losses",
            Sights::WAITED | Sights::OVERRUN | Sights::REQUEST,
            cases,
        )
    }
}

/// Cases with reordered packets, without selective retransmission.
pub fn overtaken(scale: Scale) -> Family {
    let mut cases = Vec::new();
    for config in grid(scale.of(1, 2, &[3, 2, 4]), &[1, 2], &[1]) {
        for messages in scale.of(1, 3, &[&[4][..], &[1, 2], &[2, 2]]) {
            cases.push(open(config, vec![[Program::SILENT, writes(messages)]]));
        }
    }
    let budget = Budget {
        losses: 1,
        duplicates: 1,
        reorders: 2,
        death: false,
    };
    Family {
        budget,
        ..family("overtaken", Sights::REQUEST | Sights::RESENT, cases)
    }
}
