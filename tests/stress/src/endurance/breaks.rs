// SPDX-License-Identifier: GPL-2.0-only

//! Counts broken connections by errno, and decides whether a cut link can have broken them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use anyhow::Error;
use nix::errno::Errno;

use guest::crowd::errno;

/// Errnos with which a cut may end an attempt to connect. `ETIMEDOUT` means that there was no
/// answer, and `ECONNRESET` that the server gave up before the client's first data.
const CONNECTING: &[i32] = &[libc::ETIMEDOUT, libc::ECONNRESET];

/// Errnos with which a cut may end a call on a connection. `ETIMEDOUT` means that there was no
/// answer. `ECONNRESET` means that the other end reset the connection. `EPIPE` and `ENOTCONN` come
/// from a send or shutdown after `ETIMEDOUT` or `ECONNRESET` was reported. `EAGAIN` means that the
/// time limit of this program's sockets has expired, because the other end is gone and this end has
/// nothing to send.
const CONNECTED: &[i32] = &[
    libc::ETIMEDOUT,
    libc::ECONNRESET,
    libc::EPIPE,
    libc::ENOTCONN,
    libc::EAGAIN,
];

/// The stage that a connection had reached when it broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `connect(2)` failed.
    Connecting,
    /// A later call failed.
    Connected,
}

/// Broken connections, counted by errno.
#[derive(Debug, Default)]
pub struct Breaks(Mutex<BTreeMap<String, u64>>);

impl Breaks {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().expect("nobody panics meanwhile")
    }

    /// Counts a connection that broke with `error`. Returns `false` if a cut link cannot cause this
    /// error at this stage.
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

    /// Returns the number of connections that broke, by errno.
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
    fn only_errors_of_a_cut_link_are_excused() {
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
