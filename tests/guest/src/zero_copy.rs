// SPDX-License-Identifier: GPL-2.0-only

//! Switches zero-copy sends on and off, and reads the reports of their completion.

use std::io::Result;

use crate::address::EP_SO_ZEROCOPY;
use crate::control::receive_with_control;
use crate::prelude::*;

/// `SO_EE_ORIGIN_ZEROCOPY` of `linux/errqueue.h`.
const ORIGIN_ZEROCOPY: u8 = 5;
/// `SO_EE_CODE_ZEROCOPY_COPIED`.
const CODE_COPIED: u8 = 1;
/// `EP_RECVERR`.
const EP_RECVERR: i32 = 3;

/// Sets whether `MSG_ZEROCOPY` is honoured on `socket`: by `SO_ZEROCOPY`, or by the option of ESP
/// and EDP.
///
/// # Errors
/// The call's errno.
pub fn switch(socket: &Socket, value: i32) -> Result<()> {
    let (level, name) = option(socket)?;
    socket.set_int_option(level, name, value)
}

/// Returns the option that says whether `MSG_ZEROCOPY` is honoured: 1 or 0.
///
/// # Errors
/// The call's errno.
pub fn is_on(socket: &Socket) -> Result<i32> {
    let (level, name) = option(socket)?;
    socket.int_option(level, name)
}

fn option(socket: &Socket) -> Result<(i32, i32)> {
    Ok(match socket.so(libc::SO_DOMAIN)? {
        AF_ENET => (SOL_EP, EP_SO_ZEROCOPY),
        _ => (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
    })
}

/// Consecutive sends whose memory the kernel no longer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number of the first of these sends.
    pub first: u32,
    /// The number of the last of these sends.
    pub last: u32,
    /// Whether the kernel copied the bytes of these sends.
    pub copied: bool,
}

/// Returns the next completion, if there is one.
///
/// # Errors
/// If the error queue has something else, or a malformed report.
pub fn completion(socket: &Socket) -> anyhow::Result<Option<Completion>> {
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let (length, flags, control) = match receive_with_control(socket, flags, 256) {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(None),
        other => other?,
    };
    ensure!(
        length == 0 && flags & libc::MSG_ERRQUEUE != 0 && control.len() == 1,
        "{length} bytes, flags {flags:#x}, {control:?}"
    );
    let kind = match socket.so(libc::SO_DOMAIN)? {
        AF_ENET => (SOL_EP, EP_RECVERR),
        libc::AF_INET6 => (libc::SOL_IPV6, libc::IPV6_RECVERR),
        _ => (libc::SOL_IP, libc::IP_RECVERR),
    };
    let found = (control[0].level, control[0].kind);
    ensure!(found == kind, "level and kind {found:?}");
    // struct sock_extended_err: errno (4 bytes); origin, type, code and padding (1 byte each); info
    // and data (4 bytes each).
    let report = control[0].data.first_chunk::<16>().context("too short")?;
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| report[at + i]));
    ensure!(
        word(0) == 0 && report[4] == ORIGIN_ZEROCOPY && report[5] == 0,
        "{report:?}"
    );
    Ok(Some(Completion {
        first: word(8),
        last: word(12),
        copied: report[6] & CODE_COPIED != 0,
    }))
}

/// Waits until each of the sends 0 to `count` - 1 has been completed once; returns whether all,
/// some or none of them were copied.
///
/// # Errors
/// If one of these sends is not completed, or another send is completed.
pub fn completed(socket: &Socket, count: u32) -> anyhow::Result<Copies> {
    completed_from(socket, 0, count)
}

/// Works like [`completed`], but for `count` sends from the number `from` on.
///
/// # Errors
/// As [`completed`].
pub fn completed_from(socket: &Socket, from: u32, count: u32) -> anyhow::Result<Copies> {
    let mut seen = vec![None; count as usize];
    while seen.contains(&None) {
        let Some(got) = completion(socket)? else {
            let events = socket.poll(0, patience())?;
            ensure!(
                events & libc::POLLERR != 0,
                "no completion but of {seen:?} (events {events:#x})"
            );
            continue;
        };
        ensure!(got.first <= got.last, "{got:?}");
        for number in got.first..=got.last {
            let place = number
                .checked_sub(from)
                .and_then(|place| seen.get_mut(place as usize));
            let place = place.with_context(|| format!("{got:?} of {count} from {from} on"))?;
            ensure!(place.is_none(), "{number} once more, by {got:?}");
            *place = Some(got.copied);
        }
    }
    none_left(socket)?;
    Ok(
        match seen.iter().filter(|one| **one == Some(true)).count() {
            0 => Copies::None,
            all if all == seen.len() => Copies::All,
            _ => Copies::Some,
        },
    )
}

/// Whether the kernel copied all, some or none of a number of sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// The kernel copied none of the sends.
    None,
    /// The kernel copied some of the sends.
    Some,
    /// The kernel copied all of the sends.
    All,
}

/// Checks that there is no completion.
///
/// # Errors
/// If there is one.
pub fn none_left(socket: &Socket) -> anyhow::Result<()> {
    let more = completion(socket)?;
    ensure!(more.is_none(), "one more: {more:?}");
    Ok(())
}
