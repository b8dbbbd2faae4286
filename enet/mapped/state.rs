// SPDX-License-Identifier: GPL-2.0

//! The state of a mapped socket that is stored with its companion, the ESP socket that shares the
//! descriptor.

use crate::net::errno::prelude::*;
use crate::{esp, net::inet::InternetEnd};
use core::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};
use kernel::{
    init::InPlaceInit,
    new_mutex,
    sync::{
        lock::{mutex::MutexBackend, Guard},
        Mutex,
    },
};

/// The protocol that serves a mapped socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// TCP alone: the socket is idle, or TCP has the connection or the listener.
    Tcp,
    /// No SYN has been sent yet, because the attempt waits for the host's answer to a query, or for
    /// the host's Ethernet address.
    Asking,
    /// ESP's SYN has been sent, and the choice of the protocol is still open.
    Connecting,
    /// TCP's SYN has been sent because the host refused ESP's or did not answer a query, and TCP
    /// is still connecting.
    Fallback,
    /// ESP has the connection, and the choice is final.
    Esp,
    /// Both protocols listen.
    Listening,
}

/// Number of bytes of the longest address that is stored: `struct sockaddr_in6`.
const NAME_MAX: usize = 28;

/// The times, in nanoseconds, at which the waits of an attempt to connect end; 0 for a wait that
/// has not begun.
#[derive(Clone, Copy, Default)]
pub(super) struct Deadlines {
    /// The end of the wait for the host's Ethernet address.
    pub(super) neighbour: u64,
    /// The end of the wait for the host's answer to a query.
    pub(super) answer: u64,
}

/// An attempt to connect that TCP may have to repeat.
pub(super) struct Attempt {
    name: [u8; NAME_MAX],
    len: usize,
    /// The destination as an ESP address, if its Ethernet address is known; otherwise the default
    /// address.
    pub(super) to: crate::address::Address,
    /// Whether TCP's SYN was sent because the host did not answer a query in time.
    pub(super) silent: bool,
    pub(super) deadlines: Deadlines,
    /// Whether TCP's socket was bound to a port for this attempt, because the program asked for the
    /// socket's name.
    pub(super) has_port: bool,
    /// If another call has abandoned the attempt, the error that `connect` returns. TCP then does
    /// not repeat the attempt.
    given_up: Option<Error>,
}

impl Attempt {
    /// Creates an attempt for the address that a program passed.
    pub(super) fn new(name: &[u8], to: crate::address::Address) -> Self {
        let mut kept = [0; NAME_MAX];
        for (to, byte) in kept.iter_mut().zip(name) {
            *to = *byte;
        }
        Attempt {
            name: kept,
            len: name.len().min(NAME_MAX),
            to,
            silent: false,
            deadlines: Deadlines::default(),
            has_port: false,
            given_up: None,
        }
    }

    /// Abandons the attempt: `connect` fails with `error`, and TCP does not repeat it.
    pub(super) fn give_up(&mut self, error: Error) {
        self.given_up.get_or_insert(error);
    }

    /// Checks that no call has abandoned the attempt.
    ///
    /// # Errors
    ///
    /// Fails if a call has abandoned the attempt, with the error that `connect` returns.
    pub(super) fn stands(&self) -> Result {
        self.given_up.map_or(Ok(()), Err)
    }

    /// Returns the address that the program passed.
    pub(super) fn name(&self) -> &[u8] {
        self.name.get(..self.len).unwrap_or(&self.name)
    }
}

/// The state of a mapped socket.
pub(crate) struct Record {
    phase: AtomicU8,
    /// Whether a listener accepted this connection over ESP.
    accepted: AtomicBool,
    /// Whether the program knows that the connection is open: `connect` has reported it, or the
    /// program has shut a half of it.
    told: AtomicBool,
    /// Whether the next `accept` asks TCP before ESP.
    turn: AtomicBool,
    /// The attempt to connect, if there is one. The protocol is chosen with this mutex held.
    attempt: Pin<KBox<Mutex<Option<Attempt>>>>,
}

impl Record {
    /// Creates the state of a socket that TCP serves so far or, if `accepted`, of a connection
    /// accepted over ESP.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(accepted: bool) -> Result<Self> {
        let phase = if accepted { Phase::Esp } else { Phase::Tcp };
        Ok(Record {
            phase: AtomicU8::new(phase as u8),
            accepted: AtomicBool::new(accepted),
            told: AtomicBool::new(accepted),
            turn: AtomicBool::new(false),
            attempt: KBox::pin_init(new_mutex!(None), GFP_KERNEL_ACCOUNT)?,
        })
    }

    /// Returns the phase, which determines the protocol that serves the socket.
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Acquire) {
            phase if phase == Phase::Asking as u8 => Phase::Asking,
            phase if phase == Phase::Connecting as u8 => Phase::Connecting,
            phase if phase == Phase::Fallback as u8 => Phase::Fallback,
            phase if phase == Phase::Esp as u8 => Phase::Esp,
            phase if phase == Phase::Listening as u8 => Phase::Listening,
            _ => Phase::Tcp,
        }
    }

    /// Sets the protocol that serves the socket from now on.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Release);
    }

    /// Locks the choice of the protocol (the decision).
    pub(super) fn decide(&self) -> Guard<'_, Option<Attempt>, MutexBackend> {
        self.attempt.lock()
    }

    /// Returns whether a listener accepted this connection over ESP.
    pub(super) fn is_accepted(&self) -> bool {
        self.accepted.load(Relaxed)
    }

    /// Sets `told`. Returns whether it was set before.
    pub(super) fn tell(&self) -> bool {
        self.told.swap(true, Relaxed)
    }

    /// Returns whether the program knows that the connection is open.
    pub(super) fn is_told(&self) -> bool {
        self.told.load(Relaxed)
    }

    /// Prepares for a new attempt to connect, which `connect` has not reported yet, and which
    /// replaces a connection that a listener had accepted.
    pub(super) fn begin_attempt(&self) {
        self.told.store(false, Relaxed);
        self.accepted.store(false, Relaxed);
    }

    /// Returns whether `accept` asks TCP before ESP this time.
    pub(super) fn take_turn(&self) -> bool {
        self.turn.fetch_xor(true, Relaxed)
    }
}

/// Converts an end of a connection to the format that a SYN contains.
impl From<InternetEnd> for esp::InternetEnd {
    fn from(end: InternetEnd) -> Self {
        esp::InternetEnd {
            address: end.address,
            port: end.port,
        }
    }
}

/// Converts an end of a connection from the format that a SYN contains.
impl From<esp::InternetEnd> for InternetEnd {
    fn from(end: esp::InternetEnd) -> Self {
        InternetEnd {
            address: end.address,
            port: end.port,
        }
    }
}
