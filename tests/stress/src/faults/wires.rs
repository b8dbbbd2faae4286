// SPDX-License-Identifier: GPL-2.0-only

//! Lists the wires of the fault matrix, with their faults.

use std::time::Duration;

use guest::patience::factor;
use guest::relay::Faults;

/// The directions of a wire that have faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Forth,
    /// From the server to the client.
    Back,
    /// Both directions.
    Both,
}

impl Way {
    const EACH: &'static [Self] = &[Self::Forth, Self::Back, Self::Both];

    /// Returns the directions' name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forth => "forth",
            Self::Back => "back",
            Self::Both => "both",
        }
    }
}

/// A wire and its faults.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    /// The wire's name, which describes its faults.
    pub name: &'static str,
    /// The faults in each direction that has faults.
    pub faults: Faults,
}

const fn losing(name: &'static str, loss: f64) -> Wire {
    Wire {
        name,
        faults: Faults {
            loss,
            ..Faults::NONE
        },
    }
}

/// A wire without faults.
pub const CLEAN: Wire = losing("clean", 0.0);
/// A wire that loses 30 % of the frames.
pub const LOSS_30: Wire = losing("loss 30 %", 0.3);
/// A wire that reorders and duplicates frames.
pub const TWICE_AND_LATE: Wire = Wire {
    name: "twice and late",
    faults: Faults {
        duplicate: 0.05,
        reorder: 0.05,
        ..Faults::NONE
    },
};
/// A slow wire with jitter that has all faults at once.
pub const ALL_AT_ONCE: Wire = Wire {
    name: "all at once",
    faults: Faults {
        loss: 0.05,
        duplicate: 0.05,
        reorder: 0.05,
        corrupt: 0.05,
        fcs: true,
        delay: Duration::from_millis(1),
        jitter: Duration::from_millis(2),
    },
};

impl Wire {
    /// All wires of the fault matrix.
    pub const ALL: &'static [Self] = &[
        CLEAN,
        losing("loss 0.1 %", 0.001),
        losing("loss 1 %", 0.01),
        losing("loss 5 %", 0.05),
        LOSS_30,
        Self {
            name: "duplication 5 %",
            faults: Faults {
                duplicate: 0.05,
                ..Faults::NONE
            },
        },
        Self {
            name: "reordering 5 %",
            faults: Faults {
                reorder: 0.05,
                ..Faults::NONE
            },
        },
        Self {
            name: "corruption 5 %",
            faults: Faults {
                corrupt: 0.05,
                fcs: true,
                ..Faults::NONE
            },
        },
        Self {
            name: "delay 5 ms",
            faults: Faults {
                delay: Duration::from_millis(5),
                ..Faults::NONE
            },
        },
        Self {
            name: "jitter 5 ms",
            faults: Faults {
                jitter: Duration::from_millis(5),
                ..Faults::NONE
            },
        },
        TWICE_AND_LATE,
        ALL_AT_ONCE,
    ];

    /// Returns the directions in which the wire's faults are tested.
    pub fn ways(&self) -> &'static [Way] {
        if self.name == CLEAN.name {
            &[Way::Both]
        } else {
            Way::EACH
        }
    }

    /// Returns the faults from the client to the server, and back.
    pub fn faults(&self, way: Way) -> [Faults; 2] {
        match way {
            Way::Forth => [self.faults, Faults::NONE],
            Way::Back => [Faults::NONE, self.faults],
            Way::Both => [self.faults; 2],
        }
    }

    /// Returns whether handshakes may fail on this wire; clients then connect again. A handshake
    /// may time out if the loss is high. In a much slower kernel, it may time out on any wire,
    /// because the wire is slower too, but the timeouts are the same. All other connections must
    /// succeed at the first attempt.
    pub fn may_refuse(&self) -> bool {
        self.faults.loss >= LOSS_30.faults.loss || factor() > 1
    }
}
