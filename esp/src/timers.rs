// SPDX-License-Identifier: GPL-2.0

//! The times of the protocol, its timers, and the watch over a silent peer.
//!
//! No timer runs here. A connection computes each [`Timer`]'s deadline when it is
//! asked, and the caller arms one timer for the earliest. Early expiry is a no-op.

/// Nanoseconds of a clock that never goes back.
pub type Nanos = u64;

/// The timers of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The sender retransmits, or probes the peer for its window.
    Retransmission,
    /// The receiver probes for packets that do not arrive (R4).
    Request,
    /// A delayed acknowledgement leaves without data to carry it.
    DelayedAck,
    /// The peer is silent: it is probed, or gone.
    Liveness,
    /// The peer of an orphan does not come to an end.
    Orphan,
}

impl Timer {
    /// The timers in the order in which they are run.
    pub(super) const ALL: [Self; 5] = [
        Self::Retransmission,
        Self::Request,
        Self::DelayedAck,
        Self::Liveness,
        Self::Orphan,
    ];
}

pub(super) const MICROSECOND: Nanos = 1_000;
pub(super) const MILLISECOND: Nanos = 1_000_000;
pub(super) const SECOND: Nanos = 1_000_000_000;

/// How long the final acknowledgement of a transmission, which opens no
/// window, waits for data to carry it: a round of a hundred dialogues in turn takes
/// less. It is well below the least retransmission timeout, 10 ms, by which a sender
/// notices that its last packet was lost.
pub(super) const ACK_DELAY: Nanos = 4 * MILLISECOND;

/// Retransmission timeout before any round trip was measured.
pub(super) const RETRANSMIT_INITIAL: Nanos = 200 * MILLISECOND;
/// Its upper bound; the lower one is configured.
pub(super) const RETRANSMIT_MAX: Nanos = 2 * SECOND;

/// Lower bound of the time after which a sender whose window is closed, with all
/// it sent acknowledged, asks whether it has missed its opening.
pub(super) const WINDOW_PROBE_MIN: Nanos = 50 * MILLISECOND;

/// How long a frame may be in flight, queues and switches included. A sender whose packets have
/// become too large sends nothing for so long before it probes.
pub(super) const FRAME_LIFE: Nanos = 500 * MILLISECOND;

/// Timeout of the first SYN and SYN|ACK.
pub(super) const HANDSHAKE_TIMEOUT: Nanos = 200 * MILLISECOND;
/// A SYN is sent this often; with the doubling the last timeout ends after
/// 12.6 s.
pub(super) const SYN_TRIES: u8 = 6;
/// A SYN|ACK is sent this often, the last timeout ends after 6.2 s.
pub(super) const SYN_ACK_TRIES: u8 = 5;

/// Lower bound of the time before the first probe for what does not come, as
/// long as no packet was seen to follow an acknowledgement: a full packet at
/// 12 Mbit/s.
pub(super) const REQUEST_INITIAL: Nanos = MILLISECOND;

/// Upper bound of the time between two such probes, unless twice the measured
/// or the configured round trip time is longer.
pub(super) const REQUEST_MAX: Nanos = 100 * MILLISECOND;

/// How long a packet may wait in the receiver's port behind those of others, at
/// most: so much later a probe leaves while others are heard.
pub(super) const PORT_DELAY: Nanos = 20 * MILLISECOND;

/// The least time between challenge ACKs, as Linux has it (`tcp_invalid_ratelimit`): frames that
/// forge their causes make no flood.
pub(super) const CHALLENGE_INTERVAL: Nanos = 500 * MILLISECOND;

/// How long a connection whose socket is closed waits for the peer's FIN after its own is
/// acknowledged.
pub(super) const ORPHAN_WAIT: Nanos = 10 * SECOND;

/// How long a connection whose socket is closed goes on with a peer that answers, has room, and yet
/// acknowledges nothing of what it is sent: some thirty retransmissions.
pub(super) const ORPHAN_STUCK: Nanos = 60 * SECOND;

/// How long a connection whose socket is closed goes on with a peer that answers, but has no room
/// for anything: about as long as TCP's backed-off probes go on for an orphan.
pub(super) const ORPHAN_HELD: Nanos = 300 * SECOND;

/// A configured time as [`Nanos`].
#[inline]
pub(super) fn from_micros(micros: u32) -> Nanos {
    Nanos::from(micros).saturating_mul(MICROSECOND)
}

/// A configured time as [`Nanos`].
#[inline]
pub(super) fn from_millis(millis: u32) -> Nanos {
    Nanos::from(millis).saturating_mul(MILLISECOND)
}

/// Whether a timer has expired.
#[inline]
pub(super) fn is_due(at: Option<Nanos>, now: Nanos) -> bool {
    at.is_some_and(|at| at <= now)
}

/// The earlier of two deadlines.
#[inline]
pub(super) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, None) => a,
        (None, b) => b,
    }
}

/// The least number of probes before a peer that owes an answer is gone.
const LEAST_INTERVALS: Nanos = 15;

/// Silence before the first probe of a peer that owes nothing.
const IDLE_FIRST: Nanos = 30 * SECOND;

/// The least patience that can be configured.
const LEAST_PATIENCE: Nanos = 15 * MILLISECOND;

/// How a silent peer is asked for a sign of life.
struct Pace {
    /// Time from probe to probe.
    interval: Nanos,
    /// Unanswered probes after which the peer is gone, one interval later.
    limit: u32,
}

impl Pace {
    /// For a peer that owes an answer: after `patience` of silence it is gone. With
    /// 15 s it is probed each second.
    fn active(patience: Nanos) -> Self {
        let interval = Self::interval(patience);
        let intervals = patience.checked_div(interval).unwrap_or(LEAST_INTERVALS);
        Self {
            interval,
            limit: u32::try_from(intervals)
                .unwrap_or(u32::MAX)
                .saturating_sub(1),
        }
    }

    #[inline]
    fn interval(patience: Nanos) -> Nanos {
        (patience.max(LEAST_PATIENCE) / LEAST_INTERVALS).min(SECOND)
    }

    /// For a peer that owes nothing: it is probed half as often, and has a third more
    /// time from the first probe on. With 15 s that makes 50 s in all.
    fn idle(patience: Nanos) -> Self {
        let active = Self::active(patience);
        Self {
            interval: active.interval.saturating_mul(2),
            limit: active.limit.saturating_add(1).saturating_mul(2) / 3,
        }
    }
}

/// Tells a peer that is gone from one that is slow.
///
/// Retransmission cannot: a sender with a full window and a receiver between two packets wait for
/// the peer and send nothing on their own. So silence itself is measured, and the peer is probed
/// after [`Pace::interval`]. Probes count, not time: the first timers of a machine that was
/// suspended all see a long silence. A peer that answers is alive, however long it withholds its
/// window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Liveness {
    /// When the silence began.
    since: Nanos,
    /// Probes in that time.
    probes: u32,
    /// When the last of these was due.
    probed: Nanos,
    /// A probe is to be sent.
    probe: bool,
}

impl Liveness {
    /// The peer gave a sign of life, or now first owes one.
    #[inline]
    pub(super) fn restart(&mut self, now: Nanos) {
        self.since = now;
        self.probes = 0;
        self.probe = false;
    }

    /// Whether a probe for a sign of life is to be sent.
    #[inline]
    pub(super) fn has_probe(&self) -> bool {
        self.probe
    }

    /// Whether a probe for a sign of life is to be sent. The next call says no.
    #[inline]
    pub(super) fn take_probe(&mut self) -> bool {
        core::mem::take(&mut self.probe)
    }

    fn pace(active: bool, patience: Nanos) -> Pace {
        if active {
            Pace::active(patience)
        } else {
            Pace::idle(patience)
        }
    }

    /// When the next probe, or the end, is due. `active`: something is
    /// outstanding.
    #[inline]
    pub(super) fn deadline(&self, active: bool, patience: Nanos) -> Nanos {
        if self.probes > 0 {
            let pace = Self::pace(active, patience);
            return self.probed.saturating_add(pace.interval);
        }
        self.since.saturating_add(if active {
            Pace::interval(patience)
        } else {
            IDLE_FIRST
        })
    }

    /// The deadline has passed. `true` if the peer is gone.
    pub(super) fn expire(&mut self, active: bool, patience: Nanos, now: Nanos) -> bool {
        if self.probes >= Self::pace(active, patience).limit {
            return true;
        }
        self.probes = self.probes.saturating_add(1);
        self.probed = now;
        self.probe = true;
        false
    }
}
