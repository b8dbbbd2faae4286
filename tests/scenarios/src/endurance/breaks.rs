// SPDX-License-Identifier: GPL-2.0-only

//! Connections that broke, by how, and whether a cut link may have done it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use anyhow::Error;
use nix::errno::Errno;

use crate::scale::errno;

/// What an attempt to connect may say: no answer, or the server had given up when the client began.
const CONNECTING: &[i32] = &[libc::ETIMEDOUT, libc::ECONNRESET];

/// What a call on a connection may say: silence; the other end had given up; a call after the one
/// that was told so, to send and to shut down; and nothing for as long as this program waits, when
/// the other end is gone and has nothing to say.
const CONNECTED: &[i32] = &[
    libc::ETIMEDOUT,
    libc::ECONNRESET,
    libc::EPIPE,
    libc::ENOTCONN,
    libc::EAGAIN,
];

/// How far a connection had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `connect(2)` failed.
    Connecting,
    /// A later call did.
    Connected,
}

/// Counts.
#[derive(Debug, Default)]
pub struct Breaks(Mutex<BTreeMap<String, u64>>);

impl Breaks {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().expect("nobody panics meanwhile")
    }

    /// Counts a connection that broke with `error`; false if no cut link brings that.
    pub fn count(&self, stage: Stage, error: &Error) -> bool {
        let (excused, place) = match stage {
            Stage::Connecting => (CONNECTING, "connecting: "),
            Stage::Connected => (CONNECTED, ""),
        };
        match errno(error) {
            Some(number) if excused.contains(&number) => {
                let name = format!("{place}{:?}", Errno::from_raw(number));
                *self.counts().entry(name).or_default() += 1;
                true
            }
            _ => false,
        }
    }

    /// How many broke in each way.
    pub fn all(&self) -> BTreeMap<String, u64> {
        self.counts().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn error(number: i32) -> Error {
        let failed: std::io::Result<()> = Err(std::io::Error::from_raw_os_error(number));
        failed.context("a call").unwrap_err()
    }

    #[test]
    fn only_what_a_cut_brings_is_excused() {
        let breaks = Breaks::default();
        assert!(breaks.count(Stage::Connecting, &error(libc::ETIMEDOUT)));
        assert!(breaks.count(Stage::Connected, &error(libc::EPIPE)));
        assert!(!breaks.count(Stage::Connecting, &error(libc::ECONNREFUSED)));
        assert!(!breaks.count(Stage::Connected, &error(libc::EBADF)));
        assert!(!breaks.count(Stage::Connected, &anyhow::anyhow!("byte 7 is wrong")));
        let all = breaks.all();
        assert_eq!((all["connecting: ETIMEDOUT"], all["EPIPE"]), (1, 1));
    }
}
