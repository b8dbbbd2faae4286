// SPDX-License-Identifier: GPL-2.0-only

//! What surrounds one step of a world: the time, what is sent meanwhile, and what is noted about
//! it.

use std::ops::BitOr;

use esp::{flags, Header, Nanos};
use esp_testkit::Span;

use crate::case::{Case, Sabotage};
use crate::fault::Fault;

/// A packet that a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// The host it is for.
    pub to: u8,
    /// The host it is from.
    pub from: u8,
    /// The packet. Its payload is not bytes, but tells which bytes of which stream they are.
    pub packet: esp_testkit::Packet<Span>,
}

/// Things that runs came by. A family of cases names those without which it would prove nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sights(pub u32);

impl Sights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// A retransmission request left.
    pub const REQUEST: Self = Self(1);
    /// A hold left: an acknowledgement that opens no window.
    pub const HOLD: Self = Self(2);
    /// A RST left.
    pub const RESET: Self = Self(4);
    /// Data, a SYN or a FIN left again.
    pub const RESENT: Self = Self(8);
    /// A connection waited for its turn.
    pub const WAITED: Self = Self(16);
    /// Two waited at once.
    pub const WAITED_TWO: Self = Self(32);
    /// A turn was taken from a silent sender.
    pub const OVERRUN: Self = Self(64);
    /// A receiver withheld its window for want of room.
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

    /// Those of `self` that are not in `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Their names.
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

/// When every world begins: a clock never reads 0, which the engine may take for "never".
pub const EPOCH: Nanos = 1_000_000_000_000;

/// The trace of a run, if one is kept.
#[derive(Debug, Default)]
pub struct Log(Option<Vec<String>>);

impl Log {
    /// A log that keeps what it is told.
    pub fn kept() -> Self {
        Self(Some(Vec::new()))
    }

    /// Its lines.
    pub fn into_lines(self) -> Vec<String> {
        self.0.unwrap_or_default()
    }

    /// Adds a line, which is made only if it is kept.
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

/// One step's surroundings.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The time, in nanoseconds.
    pub now: Nanos,
    /// Whether the programs run yet.
    pub awake: bool,
    /// Nothing has gone wrong so far, and nothing need be sent twice: see [`Case::is_smooth`].
    pub calm: bool,
    /// A packet comes once more, late.
    pub echoed: bool,
    /// The sender host that is dead.
    pub dead: Option<u8>,
    /// What is run.
    pub case: &'a Case,
    /// Packets sent, in order.
    pub out: Vec<Packet>,
    /// The first property broken.
    pub fault: Option<Fault>,
    /// What was come by.
    pub sights: Sights,
    /// The trace.
    pub log: &'a mut Log,
}

impl Scene<'_> {
    /// Something must not be.
    pub fn fail(&mut self, fault: Fault) {
        self.log.note(self.now, || format!("VIOLATION: {fault}"));
        self.fault.get_or_insert(fault);
    }

    /// Whether this is made wrong on purpose.
    pub fn is_made_wrong(&self, how: Sabotage) -> bool {
        self.case.sabotage == Some(how)
    }

    /// Something was come by.
    pub fn see(&mut self, sight: Sights) {
        self.sights = self.sights | sight;
    }
}

/// A host as it is called in traces.
pub fn host_name(host: u8) -> String {
    match host {
        0 => "receiver".into(),
        n => format!("sender {n}"),
    }
}

/// A header in words.
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
