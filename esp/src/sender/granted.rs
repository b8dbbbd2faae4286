// SPDX-License-Identifier: GPL-2.0

//! The windows that a sender uses. Choices beyond Reinhardt 2006 and Treydte 2007:
//!
//! * Both windows, the one after an acknowledgement and the one after an announcement, come from
//!   the last grant. Before the first grant, they come from the [`Config`].
//! * A connection without masks takes no wide grants: the more packets are in flight, the fewer
//!   blind frames does a forger need.
//! * A timeout indicates that unscheduled packets were lost. So a timeout halves the number of
//!   packets that may follow announcements. Each grant raises this number by one.

use super::super::config::Config;
use super::super::wire::{Grant, Header, MOST_NARROW};

/// The last grant, and the part of it that the sender uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Granted {
    grant: Grant,
    /// Upper bound of the number of packets that may follow an announcement.
    most_unscheduled: u8,
    /// The largest grant that our SYN or SYN|ACK advertised.
    advertised: u16,
    /// Whether forged packets cannot pass for the receiver's, so that windows may be large.
    safe: bool,
    /// Whether the receiver reported many senders, and has granted nothing yet.
    crowded: bool,
}

impl Default for Granted {
    fn default() -> Self {
        Self {
            grant: Grant::default(),
            most_unscheduled: u8::MAX,
            advertised: 0,
            safe: false,
            crowded: false,
        }
    }
}

impl Granted {
    /// Notes the largest grant that our SYN or SYN|ACK advertises.
    pub(super) fn advertise(&mut self, largest: u16) {
        self.advertised = largest;
    }

    /// Sets whether forged packets cannot pass for the receiver's.
    pub(super) fn set_safe(&mut self, safe: bool) {
        self.safe = safe;
    }

    /// Returns whether the receiver may send wide grants.
    #[inline]
    fn takes_wide(&self) -> bool {
        self.safe && self.advertised > MOST_NARROW
    }

    /// Takes the grant that `header` carries.
    #[inline]
    pub(super) fn take(&mut self, header: &Header) {
        if let Some(grant) = header.grant(self.takes_wide()) {
            self.grant = grant;
        }
        self.most_unscheduled = self.most_unscheduled.saturating_add(1);
    }

    /// Returns the maximum number of packets that may follow the last acknowledgement that opened a
    /// window.
    #[inline]
    pub(super) fn window(&self, config: &Config) -> u16 {
        if self.grant.window > 0 && config.is_adaptive() {
            self.grant
                .window
                .min(config.burst_length_max)
                .min(self.advertised.max(MOST_NARROW))
        } else {
            config.window()
        }
    }

    /// Returns the maximum number of packets that may follow an unacknowledged announcement.
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

    /// Notes that the receiver reported many senders.
    pub(super) fn set_crowded(&mut self) {
        self.crowded = true;
    }

    /// Returns whether announcements are short, because nothing may follow them.
    #[inline]
    pub(super) fn is_short(&self, config: &Config) -> bool {
        let none = if self.grant.window > 0 {
            self.grant.start == 0
        } else {
            self.crowded
        };
        none && config.is_adaptive()
    }

    /// Halves the number of packets that may follow announcements, because an announcement was
    /// unacknowledged at a timeout.
    pub(super) fn halve_unscheduled(&mut self) {
        if self.grant.start > 0 {
            self.most_unscheduled = self.most_unscheduled.min(self.grant.start) / 2;
        }
    }
}
