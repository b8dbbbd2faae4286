// SPDX-License-Identifier: GPL-2.0-only

//! The environment of one step of a world: the time, the packets sent, and the observations.

use std::ops::BitOr;

use esp::{flags, Header, Nanos};
use esp_testkit::Span;

use crate::case::{Case, Sabotage};
use crate::fault::Fault;

/// A packet that a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// The destination host.
    pub to: u8,
    /// The source host.
    pub from: u8,
    /// The packet. Its payload is not bytes but their positions in a stream.
    pub packet: esp_testkit::Packet<Span>,
}

/// Events that occurred in runs. A family of cases names the events without which it would prove
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sights(pub u32);

impl Sights {
    /// No event.
    pub const NONE: Self = Self(0);
    /// A retransmission request was sent.
    pub const REQUEST: Self = Self(1);
    /// A hold was sent: an acknowledgement that opens no window.
    pub const HOLD: Self = Self(2);
    /// A RST was sent.
    pub const RESET: Self = Self(4);
    /// Data, a SYN or a FIN was retransmitted.
    pub const RESENT: Self = Self(8);
    /// A connection waited for its turn to acknowledge.
    pub const WAITED: Self = Self(16);
    /// Two connections waited for their turn to acknowledge at the same time.
    pub const WAITED_TWO: Self = Self(32);
    /// A sender was silent, so the ACK queue ended its turn.
    pub const OVERRUN: Self = Self(64);
    /// A receiver withheld its window for lack of room.
    pub const CONGESTED: Self = Self(128);

    const NAMES: [(Self, &'static str); 8] = [
        (Self::REQUEST, "request"),
        (Self::RESENT, "resend"),
        (Self::HOLD, "hold"),
        (Self::WAITED, "wait"),
        (Self::WAITED_TWO, "wait2"),
        (Self::OVERRUN, "overrun"),
        (Self::CONGESTED, "congested"),
        (Self::RESET, "rst"),
    ];

    /// Returns the events of `self` that are not in `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the events' names.
    pub fn names(self) -> String {
        let names: Vec<_> = Self::NAMES
            .iter()
            .filter(|(sight, _)| self.0 & sight.0 != 0)
            .map(|(_, name)| *name)
            .collect();
        names.join(" ")
    }
}

impl BitOr for Sights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The start time of every world. It is not 0, because the engine may treat the time 0 as "never".
pub const EPOCH: Nanos = 1_000_000_000_000;

/// The trace of a run, if one is kept.
#[derive(Debug, Default)]
pub struct Log(Option<Vec<String>>);

impl Log {
    /// Returns a log that keeps its lines.
    pub fn kept() -> Self {
        Self(Some(Vec::new()))
    }

    /// Returns the log's lines.
    pub fn into_lines(self) -> Vec<String> {
        self.0.unwrap_or_default()
    }

    /// Adds a line. `line` is called only if the log keeps its lines.
    pub fn note(&mut self, now: Nanos, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(format!(
                "{:>12.3} ms  {}",
                (now - EPOCH) as f64 / 1e6,
                line()
            ));
        }
    }
}

/// The environment of one step.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The time, in nanoseconds.
    pub now: Nanos,
    /// Whether the programs have started.
    pub awake: bool,
    /// Whether no fault has happened so far and [`Case::is_smooth`] holds, so that no packet needs
    /// to be sent twice.
    pub calm: bool,
    /// Whether the fate of any packet so far was [`Fate::Echo`](crate::world::Fate::Echo).
    pub echoed: bool,
    /// The number of the sender host that has died, if any.
    pub dead: Option<u8>,
    /// The case that is being explored.
    pub case: &'a Case,
    /// The packets that the hosts have sent in this step, in order.
    pub out: Vec<Packet>,
    /// The first fault, if there was one.
    pub fault: Option<Fault>,
    /// The events that occurred in this step.
    pub sights: Sights,
    /// The trace.
    pub log: &'a mut Log,
}

impl Scene<'_> {
    /// Records a fault.
    pub fn fail(&mut self, fault: Fault) {
        self.log.note(self.now, || format!("VIOLATION: {fault}"));
        self.fault.get_or_insert(fault);
    }

    /// Returns whether the deliberate error `how` is active.
    pub fn is_made_wrong(&self, how: Sabotage) -> bool {
        self.case.sabotage == Some(how)
    }

    /// Records an event.
    pub fn see(&mut self, sight: Sights) {
        self.sights = self.sights | sight;
    }
}

/// Returns a host's name in traces.
pub fn host_name(host: u8) -> String {
    match host {
        0 => "receiver".into(),
        n => format!("sender {n}"),
    }
}

/// Formats a header.
pub fn describe(header: &Header) -> String {
    let names = [
        (flags::SYN, "SYN"),
        (flags::FIN, "FIN"),
        (flags::RST, "RST"),
        (flags::ACK, "ACK"),
        (flags::RRQ, "RRQ"),
        (flags::TXS, "TXS"),
        (flags::TXF, "TXF"),
    ];
    let set: Vec<_> = names
        .iter()
        .filter(|(bit, _)| header.has(*bit))
        .map(|(_, name)| *name)
        .collect();
    format!(
        "seq {} ack {} len {} {}",
        header.seq.0,
        header.ack.0,
        header.len,
        set.join("|")
    )
}
