// SPDX-License-Identifier: GPL-2.0

//! The windows that a sender makes use of. Choices beyond the theses:
//!
//! * Both windows, behind an acknowledgement and behind an announcement, are those that
//!   the receiver granted last, and the [`Config`]'s until it has granted any.
//! * A timeout means that unscheduled packets were lost. So it halves the number of packets
//!   that may follow announcements, and each grant gives one packet back.

use super::super::config::Config;
use super::super::wire::Grant;

/// The last grant, and how much of it the sender uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Granted {
    grant: Grant,
    /// The most packets of it that follow announcements.
    most_unscheduled: u8,
    /// Many others send to the receiver, which has granted nothing yet.
    crowded: bool,
}

impl Default for Granted {
    fn default() -> Self {
        Self {
            grant: Grant::default(),
            most_unscheduled: u8::MAX,
            crowded: false,
        }
    }
}

impl Granted {
    /// The receiver grants windows.
    #[inline]
    pub(super) fn take(&mut self, grant: Grant) {
        self.grant = grant;
        self.most_unscheduled = self.most_unscheduled.saturating_add(1);
    }

    /// Packets that may be on their way behind the last acknowledgement that opened a window.
    #[inline]
    pub(super) fn window(&self, config: &Config) -> u16 {
        if self.grant.window > 0 && config.is_adaptive() {
            u16::from(self.grant.window).min(config.burst_length_max)
        } else {
            config.window()
        }
    }

    /// Packets that may follow an announcement that is not acknowledged.
    #[inline]
    pub(super) fn unscheduled(&self, config: &Config) -> u16 {
        let least = config.initial_ack_burst_length;
        if self.is_short(config) {
            0
        } else if config.is_adaptive() {
            least.max(self.grant.start.min(self.most_unscheduled).into())
        } else {
            least
        }
    }

    /// The receiver has told that many send to it.
    pub(super) fn set_crowded(&mut self) {
        self.crowded = true;
    }

    /// Whether an announcement is to be short, since nothing may follow it.
    #[inline]
    pub(super) fn is_short(&self, config: &Config) -> bool {
        let none = if self.grant.window > 0 {
            self.grant.start == 0
        } else {
            self.crowded
        };
        none && config.is_adaptive()
    }

    /// A timeout found an announcement unacknowledged.
    pub(super) fn halve_unscheduled(&mut self) {
        if self.grant.start > 0 {
            self.most_unscheduled = self.most_unscheduled.min(self.grant.start) / 2;
        }
    }
}
