// SPDX-License-Identifier: GPL-2.0-only

//! Families of one connection.

use esp::Config;

use super::{
    answers, closes, config, family, grid, limited, open, reads, to_be_opened, writes, Family,
    Scale, POLLS, SLEEPS, USUAL, WITH_HANDSHAKE, WITH_LATE_READER, WITH_SLOW_READER,
};
use crate::case::{Case, Close, Program, Reader, MS, US};
use crate::scene::Sights;
use crate::world::Budget;

/// Cases whose connections are opened, carry a message in each direction, and are closed.
pub fn handshake(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let messages: [(&[u16], &[u16]); 5] = [
        (&[], &[2]),
        (&[1], &[]),
        (&[], &[]),
        (&[1], &[1]),
        (&[2], &[2]),
    ];
    for (receiver, sender) in scale.of(2, 4, &messages) {
        for [receives, sends] in [[Close::Never, Close::Never], [Close::Ended, Close::Written]] {
            let programs = [
                closes(receives, writes(receiver)),
                closes(sends, writes(sender)),
            ];
            cases.push(to_be_opened(config(2, 1, 1), vec![programs]));
        }
    }
    family("handshake", Sights::RESENT | Sights::RESET, cases)
}

/// Cases in which both ends open each connection simultaneously. Each connection carries a message
/// in each direction, and is closed.
pub fn crossed_handshake(scale: Scale) -> Family {
    let Family { mut cases, .. } = handshake(scale);
    for case in &mut cases {
        case.crossed = true;
    }
    family("crossed handshake", Sights::RESENT, cases)
}

/// Cases with messages of 1 to 5 packets, to test the flags TXS, TXF and RRQ.
pub fn transfer(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let messages: [&[u16]; 11] = [
        &[3],
        &[5],
        &[1],
        &[2],
        &[4],
        &[1, 1],
        &[2, 1],
        &[1, 3],
        &[1, 1, 1],
        &[3, 2],
        &[5, 5],
    ];
    for config in grid(scale.of(2, 4, &[2, 3, 1, 4]), &[1, 2], &[0, 1]) {
        for messages in scale.of(2, 10, &messages) {
            for reader in [SLEEPS, POLLS] {
                cases.push(open(
                    config,
                    vec![[reads(reader, Program::SILENT), writes(messages)]],
                ));
            }
        }
    }
    family("transfer", Sights::REQUEST | Sights::RESENT, cases)
}

/// Cases with a round trip that is longer than the delay of an acknowledgement.
pub fn far(scale: Scale) -> Family {
    let mut cases = Vec::new();
    for config in grid(scale.of(1, 2, &[2, 3, 1, 4]), &[1, 2], &[0, 1]) {
        for messages in scale.of(1, 2, &[&[3][..], &[1, 2], &[5]]) {
            let receiver = answers(Program::bytes(1), 0, &[1]);
            cases.push(Case {
                latency: 3 * MS,
                bound: 3 * USUAL,
                ..open(config, vec![[receiver, writes(messages)]])
            });
        }
    }
    family("far", Sights::REQUEST | Sights::RESENT, cases)
}

/// Cases in which a send call sleeps until the write queue has room, so that one message becomes
/// several transmissions.
pub fn short_queue(scale: Scale) -> Family {
    let mut cases = Vec::new();
    for config in grid(scale.of(1, 2, &[2, 4, 3]), &[1, 2], &[0, 1]) {
        for send_room in [1, 2] {
            for messages in scale.of(1, 3, &[&[3][..], &[1, 2], &[5], &[3, 3]]) {
                let sender = Program {
                    send_room,
                    ..writes(messages)
                };
                cases.push(open(config, vec![[Program::SILENT, sender]]));
            }
        }
    }
    family("short queue", Sights::RESENT, cases)
}

/// Cases with receive buffers of 1 to 4 packets, whose readers are late or read packet by packet.
pub fn slow_reader(scale: Scale) -> Family {
    let mut cases = Vec::new();
    for config in grid(scale.of(1, 3, &[2, 3, 1, 4]), &[1, 2], &[0, 1]) {
        for limit in scale.of(2, 3, &[1, 2, 4, 3]) {
            for reader in [Reader::Late(30 * MS), Reader::Paced(500 * US)] {
                for messages in scale.of(1, 2, &[&[4][..], &[2, 1], &[5]]) {
                    let receiver = reads(reader, limited(*limit, Program::SILENT));
                    cases.push(Case {
                        bound: WITH_SLOW_READER,
                        ..open(config, vec![[receiver, writes(messages)]])
                    });
                }
            }
        }
    }
    family(
        "slow reader",
        Sights::REQUEST | Sights::CONGESTED | Sights::HOLD,
        cases,
    )
}

/// Cases with records of 1 to 4 packets in both directions, through buffers that are shorter than a
/// record. The readers read late or at once. The connections are opened with the option for
/// records, and closed.
pub fn records(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let messages: [&[u16]; 6] = [&[2, 1], &[3], &[1, 1, 2], &[1, 3], &[4], &[2, 2]];
    for config in grid(scale.of(1, 2, &[2, 3, 1, 4]), &[1, 2], &[0, 1]) {
        for messages in scale.of(2, 4, &messages) {
            for limit in scale.of(1, 2, &[1, 1_000, 2]) {
                for reader in [SLEEPS, Reader::Late(2 * MS)] {
                    let receiver = reads(reader, limited(*limit, Program::SILENT));
                    cases.push(Case {
                        bound: WITH_LATE_READER,
                        ..open(config, vec![[receiver, writes(messages)]])
                    });
                }
            }
        }
        let both = [
            closes(Close::Ended, reads(SLEEPS, answers(0, 0, &[2]))),
            closes(Close::Written, writes(&[1, 2])),
        ];
        cases.push(open(config, vec![both]));
    }
    for case in &mut cases {
        case.records = true;
    }
    family("records", Sights::REQUEST | Sights::RESENT, cases)
}

/// Cases with data in both directions: sent at the same time, sent in answer, or sent by turns.
pub fn reverse(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let two = Program::bytes(2);
    let pairs = [
        [writes(&[2]), writes(&[2])],
        [answers(1, 0, &[1]), writes(&[3])],
        [answers(two, 0, &[2]), writes(&[2])],
        [
            answers(two, two, &[1, 1]),
            answers(0, Program::bytes(1), &[2, 2]),
        ],
        [writes(&[3]), writes(&[3])],
    ];
    for config in grid(scale.of(1, 2, &[2, 3, 1, 4]), &[1, 2], &[0, 1]) {
        for [receiver, sender] in scale.of(2, 4, &pairs) {
            for reader in [SLEEPS, POLLS] {
                cases.push(open(
                    config,
                    vec![[
                        reads(reader, receiver.clone()),
                        reads(reader, sender.clone()),
                    ]],
                ));
            }
        }
    }
    family("reverse data", Sights::REQUEST, cases)
}

/// Cases in which the hosts have different parameters, and the request timer is shorter than the
/// round trip.
pub fn unequal(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let hasty = |config| Config {
        round_trip_time: 10,
        ..config
    };
    let pairs = [
        // The receiver's burst_length and packets_to_ack, and the sender's burst_length.
        (1, 1, 4),
        (4, 2, 1),
        (2, 1, 4),
        (4, 1, 2),
        (2, 2, 3),
        (3, 2, 2),
    ];
    for (burst, ack, sender) in scale.of(2, 4, &pairs) {
        for limit in scale.of(1, 2, &[2, 1_000, 1, 3]) {
            for reader in [SLEEPS, Reader::Late(2 * MS)] {
                for messages in scale.of(1, 2, &[&[4][..], &[2, 2], &[5]]) {
                    let programs = [
                        reads(reader, limited(*limit, Program::SILENT)),
                        writes(messages),
                    ];
                    cases.push(Case {
                        configs: [hasty(config(*burst, *ack, 0)), config(*sender, 1, 1)],
                        bound: WITH_LATE_READER,
                        ..open(config(1, 1, 0), vec![programs])
                    });
                }
            }
        }
    }
    family("unequal hosts", Sights::REQUEST | Sights::CONGESTED, cases)
}

/// Cases in which hosts with different parameters report their windows to each other. The wire may
/// lose, duplicate or delay the SYN and the SYN|ACK.
pub fn told(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let pairs = [
        // The receiver's and then the sender's burst_length, packets_to_ack and
        // initial_ack_burst_length.
        [(4, 4, 0), (1, 1, 0)],
        [(4, 4, 1), (2, 1, 0)],
        [(1, 1, 0), (4, 2, 1)],
        [(2, 1, 1), (4, 4, 2)],
        [(5, 5, 2), (3, 3, 0)],
        [(3, 2, 0), (5, 4, 3)],
    ];
    for each in scale.of(2, 4, &pairs) {
        let configs = each.map(|(burst, ack, initial)| config(burst, ack, initial));
        for (limit, reader) in [(1_000, SLEEPS), (2, Reader::Late(2 * MS))] {
            for messages in scale.of(1, 2, &[&[4][..], &[2, 2], &[5]]) {
                let receiver = reads(reader, limited(limit, writes(&[2])));
                let programs = vec![[receiver, writes(messages)]];
                let case = Case {
                    configs,
                    reports_windows: true,
                    bound: WITH_LATE_READER,
                    ..open(configs[0], programs)
                };
                cases.push(case.clone());
                cases.push(Case {
                    open: false,
                    bound: WITH_HANDSHAKE,
                    ..case
                });
            }
        }
    }
    family("told windows", Sights::REQUEST | Sights::RESENT, cases)
}

/// Cases in which receivers grant larger windows to their senders. The wires are fast, so the
/// windows grow to their maximum.
pub fn granted(scale: Scale) -> Family {
    let mut cases = Vec::new();
    for (burst, ack, initial, most) in scale.of(
        2,
        4,
        &[(1, 1, 0, 4), (2, 1, 1, 3), (2, 2, 0, 5), (1, 1, 1, 2)],
    ) {
        let config = Config {
            burst_length_max: *most,
            ..config(*burst, *ack, *initial)
        };
        let sends: [&[&[u16]]; 3] = [&[&[5]], &[&[2, 3]], &[&[3], &[3]]];
        for senders in sends {
            for (limit, reader) in [(1_000, SLEEPS), (4, Reader::Late(2 * MS))] {
                let receiver = reads(reader, limited(limit, Program::SILENT));
                let programs = senders
                    .iter()
                    .map(|messages| [receiver.clone(), writes(messages)]);
                cases.push(Case {
                    reports_windows: true,
                    bound: WITH_LATE_READER,
                    ..open(config, programs.collect())
                });
            }
        }
        // While larger windows are in use, the receiver's parameters change so that it grants no
        // more windows.
        let fixed = Config {
            burst_length_max: *burst,
            ..config
        };
        for at in scale.of(1, 2, &[30 * US, 70 * US, 50 * US, 110 * US]) {
            for messages in scale.of(1, 2, &[&[5][..], &[3, 3]]) {
                cases.push(Case {
                    later: Some((*at, [fixed, config])),
                    reports_windows: true,
                    bound: WITH_LATE_READER,
                    ..open(config, vec![[Program::SILENT, writes(messages)]])
                });
            }
        }
    }
    family("granted windows", Sights::REQUEST | Sights::RESENT, cases)
}

/// Cases in which the parameters of both hosts change during the transfer.
pub fn changed(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let changes = [
        [config(4, 2, 1), config(1, 1, 0)],
        [config(1, 1, 0), config(4, 2, 1)],
        [config(4, 1, 0), config(2, 2, 0)],
        [config(2, 1, 1), config(3, 1, 0)],
    ];
    for [before, after] in scale.of(2, 3, &changes) {
        // The parameters change at one of these times, which range from before the arrival of the
        // first acknowledgement to the end.
        for at in scale.of(
            2,
            4,
            &[
                30 * US,
                50 * US,
                70 * US,
                300 * US,
                10 * US,
                90 * US,
                110 * US,
            ],
        ) {
            for (limit, reader) in [(1_000, SLEEPS), (3, Reader::Late(2 * MS))] {
                let receiver = reads(reader, limited(limit, Program::SILENT));
                for senders in scale.of(1, 1, &[1, 2]) {
                    cases.push(Case {
                        later: Some((*at, [*after; 2])),
                        bound: WITH_LATE_READER,
                        ..open(*before, vec![[receiver.clone(), writes(&[5])]; *senders])
                    });
                }
            }
        }
    }
    family("changed", Sights::REQUEST | Sights::CONGESTED, cases)
}

/// Cases in which connections are closed: by either end first, by both ends simultaneously, by one
/// end only, and with close(2).
pub fn close(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let pairs = [
        // Each pair says when the receiver closes its end, and when the sender closes its end.
        [Close::Ended, Close::Written],
        [Close::Written, Close::Ended],
        [Close::Written, Close::Written],
        [Close::Ended, Close::Abandoned],
        [Close::Never, Close::Written],
    ];
    for [receives, sends] in pairs {
        for messages in scale.of(2, 3, &[&[][..], &[1], &[3], &[2, 2]]) {
            for answer in scale.of(2, 2, &[&[][..], &[1], &[3]]) {
                if sends == Close::Abandoned && !answer.is_empty() {
                    // This combination is left out: after close(2), no program reads the answer, so
                    // a RST would be correct and no fault.
                    continue;
                }
                let programs = [
                    closes(receives, writes(answer)),
                    closes(sends, writes(messages)),
                ];
                cases.push(open(config(2, 1, 1), vec![programs]));
            }
        }
    }
    family("close", Sights::RESET, cases)
}

/// Cases with selective retransmission at one end or both: packets that arrive out of order are
/// kept until the missing ones arrive. Packets are lost, duplicated and reordered.
pub fn selective(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let ends = [[true, true], [true, false], [false, true]];
    for config in grid(scale.of(1, 3, &[4, 6, 2, 3]), &[1, 2], &[1]) {
        for ends in scale.of(1, 3, &ends) {
            for messages in scale.of(1, 4, &[&[5][..], &[1, 2], &[2, 2], &[3], &[1, 1, 1]]) {
                for records in [false, true] {
                    for close in [Close::Never, Close::Written] {
                        let reverse = answers(Program::bytes(1), 0, &[1]);
                        let sender = closes(close, writes(messages));
                        cases.push(Case {
                            configs: ends.map(|selective| Config {
                                selective: selective.into(),
                                ..config
                            }),
                            reports_windows: true,
                            records,
                            ..open(config, vec![[reverse, sender]])
                        });
                    }
                }
            }
        }
    }
    let budget = Budget {
        losses: 2,
        duplicates: 1,
        reorders: 1,
        death: false,
    };
    Family {
        budget,
        ..family("selective", Sights::REQUEST | Sights::RESENT, cases)
    }
}
