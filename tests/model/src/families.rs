// SPDX-License-Identifier: GPL-2.0-only

//! The checked families of small cases.
//!
//! A family combines a few parameters with a few programs. Its bound is close to the duration of
//! its longest run, so that a slower recovery is noticed. Most of it is the retransmission timer's
//! 10, 20 and 40 ms for three successive losses, and the handshake's 200, 400 and 800 ms where
//! connections are opened.

use esp::ack_queue::IDLE;
use esp::{Config, Nanos};

use crate::case::{Begin, Case, Close, Program, Reader, MS, US};
use crate::scene::Sights;
use crate::world::Budget;

/// The size of the cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scale {
    /// Some cases of each family, with one loss and one duplicate: seconds, even without
    /// optimization.
    Quick,
    /// Small cases.
    Small,
    /// Larger cases, too: takes long.
    Deep,
}

impl Scale {
    /// Returns the first values of a list, fewer at the smaller scales.
    fn of<T>(self, quick: usize, small: usize, all: &[T]) -> &[T] {
        let n = match self {
            Self::Quick => quick,
            Self::Small => small,
            Self::Deep => all.len(),
        };
        all.get(..n).unwrap_or(all)
    }
}

/// Cases of one kind.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// Its cases.
    pub cases: Vec<Case>,
    /// The faults of a run.
    pub budget: Budget,
    /// The sights without which the family would prove nothing.
    pub must_see: Sights,
}

/// The faults that small cases must survive, in every placement.
pub const FULL: Budget = Budget {
    losses: 3,
    duplicates: 1,
    reorders: 0,
    death: false,
};

/// Bound of most runs, in nanoseconds.
const USUAL: Nanos = 100 * MS;
/// Bound of runs that begin with a handshake.
const WITH_HANDSHAKE: Nanos = 1_500 * MS;

/// Bound of runs whose reader makes room late, for each packet separately.
const WITH_SLOW_READER: Nanos = 500 * MS;
/// Bound of runs whose reader is slightly late.
const WITH_LATE_READER: Nanos = 200 * MS;

/// Bound of the other senders if one sender dies and nothing else goes wrong.
const AFTER_DEATH: Nanos = IDLE + MS;

const SLEEPS: Reader = Reader::AtOnce { sleeps: true };
const POLLS: Reader = Reader::AtOnce { sleeps: false };

fn config(burst_length: u16, packets_to_ack: u16, initial_ack_burst_length: u16) -> Config {
    Config {
        burst_length,
        burst_length_max: burst_length,
        packets_to_ack,
        initial_ack_burst_length,
        ..Config::default()
    }
}

/// Returns all combinations of parameters that are in range.
fn grid(bursts: &[u16], acks: &[u16], initials: &[u16]) -> Vec<Config> {
    let mut all = Vec::new();
    for burst in bursts {
        for ack in acks.iter().filter(|ack| *ack <= burst) {
            for initial in initials.iter().filter(|initial| *initial <= burst) {
                all.push(config(*burst, *ack, *initial));
            }
        }
    }
    all
}

fn writes(messages: &[u16]) -> Program {
    Program {
        messages: messages.to_vec(),
        ..Program::SILENT
    }
}

/// Returns a program that writes each message after reading a number of bytes.
fn answers(first: u16, each: u16, messages: &[u16]) -> Program {
    Program {
        begin: Begin { first, each },
        ..writes(messages)
    }
}

fn reads(reader: Reader, program: Program) -> Program {
    Program { reader, ..program }
}

fn limited(limit: u32, program: Program) -> Program {
    Program { limit, ..program }
}

fn closes(close: Close, program: Program) -> Program {
    Program { close, ..program }
}

/// Returns a case of open connections, each with the programs of its receiver and its sender.
fn open(config: Config, programs: Vec<[Program; 2]>) -> Case {
    Case {
        configs: [config; 2],
        later: None,
        programs,
        told: false,
        records: false,
        together: false,
        priority: 0,
        open: true,
        latency: 20 * US,
        crossed: false,
        bound: USUAL,
        sabotage: None,
    }
}

fn to_be_opened(config: Config, programs: Vec<[Program; 2]>) -> Case {
    Case {
        open: false,
        bound: WITH_HANDSHAKE,
        ..open(config, programs)
    }
}

fn family(name: &'static str, must_see: Sights, cases: Vec<Case>) -> Family {
    Family {
        name,
        cases,
        budget: FULL,
        must_see,
    }
}

/// Opening, a message in both directions, closing.
fn handshake(scale: Scale) -> Family {
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

/// Both ends open the connection at once; then a message in both directions, and closing.
fn crossed_handshake(scale: Scale) -> Family {
    let Family { mut cases, .. } = handshake(scale);
    for case in &mut cases {
        case.crossed = true;
    }
    family("crossed handshake", Sights::RESENT, cases)
}

/// Messages of 1 to 5 packets: TXS, TXF, RRQ.
fn transfer(scale: Scale) -> Family {
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

/// A round trip longer than the delayed acknowledgement.
fn far(scale: Scale) -> Family {
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

/// Send calls that sleep for room: one message becomes several transmissions.
fn short_queue(scale: Scale) -> Family {
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

/// Receive buffers of 1 to 4 packets, read late or packet by packet.
fn slow_reader(scale: Scale) -> Family {
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

/// Records of 1 to 4 packets in both directions, through buffers shorter than a record, read late
/// and at once. The connections are opened with the option, and closed.
fn records(scale: Scale) -> Family {
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

/// Data in both directions: at once, in answer, and alternating.
fn reverse(scale: Scale) -> Family {
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

/// Hosts with different parameters, and a request timer shorter than the round trip.
fn unequal(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let hasty = |config| Config {
        round_trip_time: 10,
        ..config
    };
    let pairs = [
        // burst_length and packets_to_ack of the receiver, burst_length of the sender
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

/// Hosts with different parameters that report their windows to each other. The wire may lose,
/// duplicate or delay the SYN and the SYN|ACK.
fn told(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let pairs = [
        // burst_length, packets_to_ack and initial_ack_burst_length of the receiver; of the sender
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
                    told: true,
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

/// Hosts whose windows are granted. No wire is slow, so windows grow to their maximum.
fn granted(scale: Scale) -> Family {
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
                    told: true,
                    bound: WITH_LATE_READER,
                    ..open(config, programs.collect())
                });
            }
        }
        // The receiver's window becomes fixed while larger ones are in use.
        let fixed = Config {
            burst_length_max: *burst,
            ..config
        };
        for at in scale.of(1, 2, &[30 * US, 70 * US, 50 * US, 110 * US]) {
            for messages in scale.of(1, 2, &[&[5][..], &[3, 3]]) {
                cases.push(Case {
                    later: Some((*at, [fixed, config])),
                    told: true,
                    bound: WITH_LATE_READER,
                    ..open(config, vec![[Program::SILENT, writes(messages)]])
                });
            }
        }
    }
    family("granted windows", Sights::REQUEST | Sights::RESENT, cases)
}

/// Parameters that change on both hosts during a transfer.
fn changed(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let changes = [
        [config(4, 2, 1), config(1, 1, 0)],
        [config(1, 1, 0), config(4, 2, 1)],
        [config(4, 1, 0), config(2, 2, 0)],
        [config(2, 1, 1), config(3, 1, 0)],
    ];
    for [before, after] in scale.of(2, 3, &changes) {
        // From before the arrival of the first acknowledgement to the end.
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

/// Closing: either end first, both at once, one never, and with close(2).
fn close(scale: Scale) -> Family {
    let mut cases = Vec::new();
    let pairs = [
        // the receiver, the sender
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
                    // The data has no reader, so a RST is correct.
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

/// Two senders in the ACK queue.
fn two_senders(scale: Scale) -> Family {
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

/// Three senders in the ACK queue.
fn three_senders(scale: Scale) -> Family {
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

/// The order of turns: a short transmission among long ones, connections of one host, a socket with
/// a priority.
fn order(scale: Scale) -> Family {
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
        // The second connection begins when the first has had turns.
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

/// The ACK queue with data in the other direction, and with readers that make room late.
fn two_ways(scale: Scale) -> Family {
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

/// Two connections from opening to closing.
fn lives(scale: Scale) -> Family {
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

/// A sender that dies among others, at any of its packets. The bound is that of the others.
fn dying_sender(scale: Scale) -> Family {
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

/// A dying sender together with other faults.
fn dying_and_losses(scale: Scale) -> Family {
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

/// Reordered packets, without selective retransmission.
fn overtaken(scale: Scale) -> Family {
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

/// Selective retransmission at one end or both: packets are kept behind a hole, lost, duplicated
/// and reordered.
fn selective(scale: Scale) -> Family {
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
                                selective,
                                ..config
                            }),
                            told: true,
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

/// Returns all families.
pub fn families(scale: Scale) -> Vec<Family> {
    let all = [
        handshake,
        crossed_handshake,
        transfer,
        far,
        short_queue,
        slow_reader,
        records,
        reverse,
        unequal,
        told,
        granted,
        changed,
        close,
        two_senders,
        three_senders,
        order,
        two_ways,
        lives,
        dying_sender,
        dying_and_losses,
        overtaken,
        selective,
    ];
    let mut families: Vec<_> = all.iter().map(|family| family(scale)).collect();
    if scale == Scale::Quick {
        for family in &mut families {
            family.budget.losses = family.budget.losses.min(1);
            family.budget.reorders = family.budget.reorders.min(1);
        }
    }
    families
}
