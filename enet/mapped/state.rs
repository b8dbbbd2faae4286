// SPDX-License-Identifier: GPL-2.0

//! What is kept with the companion of a mapped socket.

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

/// Who serves a mapped socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// TCP alone: it is idle, or its connection or listener is TCP's.
    Tcp,
    /// ESP's SYN has left, and the program does not know yet.
    Connecting,
    /// ESP: it is decided.
    Esp,
    /// Both listen.
    Listening,
}

/// Bytes of the longest address that is kept: `struct sockaddr_in6`.
const NAME_MAX: usize = 28;

/// An attempt to connect that TCP may have to repeat.
pub(super) struct Attempt {
    name: [u8; NAME_MAX],
    len: usize,
    /// The destination as ESP has it.
    pub(super) to: crate::address::Address,
    /// With what `connect` fails, since another call has given the attempt up: TCP does not repeat
    /// it.
    given_up: Option<Error>,
}

impl Attempt {
    /// One to the address that a program passed.
    pub(super) fn new(name: &[u8], to: crate::address::Address) -> Self {
        let mut kept = [0; NAME_MAX];
        for (to, byte) in kept.iter_mut().zip(name) {
            *to = *byte;
        }
        Attempt {
            name: kept,
            len: name.len().min(NAME_MAX),
            to,
            given_up: None,
        }
    }

    /// Has `connect` fail with `error`, and TCP not repeat the attempt.
    pub(super) fn give_up(&mut self, error: Error) {
        self.given_up.get_or_insert(error);
    }

    /// Whether no call has given the attempt up.
    ///
    /// # Errors
    ///
    /// With what `connect` fails then.
    pub(super) fn stands(&self) -> Result {
        self.given_up.map_or(Ok(()), Err)
    }

    /// The address that the program passed.
    pub(super) fn name(&self) -> &[u8] {
        self.name.get(..self.len).unwrap_or(&self.name)
    }
}

/// The record.
pub(crate) struct Record {
    phase: AtomicU8,
    /// The connection came by `accept`.
    accepted: bool,
    /// `connect` has said that there is a connection.
    told: AtomicBool,
    /// TCP's SYN has left in the place of ESP's, and no `connect` has been told since.
    switched: AtomicBool,
    /// Whom `accept` asks first.
    turn: AtomicBool,
    /// Held by whoever decides; sleeps.
    attempt: Pin<KBox<Mutex<Option<Attempt>>>>,
}

impl Record {
    /// Of a socket that is TCP's so far, or of a connection that ESP has accepted.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(accepted: bool) -> Result<Self> {
        let phase = if accepted { Phase::Esp } else { Phase::Tcp };
        Ok(Record {
            phase: AtomicU8::new(phase as u8),
            accepted,
            told: AtomicBool::new(accepted),
            switched: AtomicBool::new(false),
            turn: AtomicBool::new(false),
            attempt: KBox::pin_init(new_mutex!(None), GFP_KERNEL_ACCOUNT)?,
        })
    }

    /// Who serves the socket.
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Acquire) {
            phase if phase == Phase::Connecting as u8 => Phase::Connecting,
            phase if phase == Phase::Esp as u8 => Phase::Esp,
            phase if phase == Phase::Listening as u8 => Phase::Listening,
            _ => Phase::Tcp,
        }
    }

    /// Says who serves the socket from now on.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Release);
    }

    /// Keeps others from deciding.
    pub(super) fn decide(&self) -> Guard<'_, Option<Attempt>, MutexBackend> {
        self.attempt.lock()
    }

    /// Whether the connection came by `accept`.
    pub(super) fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Whether `connect` has said that there is a connection; from now on it has.
    pub(super) fn tell(&self) -> bool {
        self.told.swap(true, Relaxed)
    }

    /// A new attempt: `connect` has said nothing yet.
    pub(super) fn tell_again(&self) {
        self.told.store(false, Relaxed);
        self.switched.store(false, Relaxed);
    }

    /// TCP's SYN has left in the place of ESP's.
    pub(super) fn note_switch(&self) {
        self.switched.store(true, Relaxed);
    }

    /// Whether that has happened, and this is the first `connect` to be told.
    pub(super) fn take_switch(&self) -> bool {
        self.switched.swap(false, Relaxed)
    }

    /// Whether `accept` asks TCP first this time.
    pub(super) fn take_turn(&self) -> bool {
        self.turn.fetch_xor(true, Relaxed)
    }
}

/// The end as a SYN tells it.
impl From<InternetEnd> for esp::InternetEnd {
    fn from(end: InternetEnd) -> Self {
        esp::InternetEnd {
            address: end.address,
            port: end.port,
        }
    }
}

/// The end that a SYN tells.
impl From<esp::InternetEnd> for InternetEnd {
    fn from(end: esp::InternetEnd) -> Self {
        InternetEnd {
            address: end.address,
            port: end.port,
        }
    }
}
