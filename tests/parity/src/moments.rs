// SPDX-License-Identifier: GPL-2.0-only

//! Waits for events that a program cannot see directly, such as the arrival of data or the end of a
//! connection.

use guest::socket::meminfo::RMEM_ALLOC;
use std::time::Duration;

use anyhow::{ensure, Result};

use super::Trace;
pub use guest::lab::arrived;
use guest::lab::eventually;
use guest::patience::patience;
use guest::socket::Socket;

/// Waits until the peer's host has acknowledged all bytes sent.
///
/// # Errors
/// If it has not acknowledged them within [`patience`].
pub fn acknowledged(socket: &Socket) -> Result<()> {
    eventually("acknowledgement of everything", || {
        Ok(socket.queued(libc::TIOCOUTQ)? == 0)
    })
}

/// Sends `pieces`, each in a packet of its own. A piece is sent only after the previous one was
/// acknowledged.
///
/// # Errors
/// The errno of a call that failed.
pub fn send_apart(socket: &Socket, pieces: &[&[u8]]) -> Result<()> {
    for piece in pieces {
        socket.send_all(piece)?;
        acknowledged(socket)?;
    }
    Ok(())
}

/// Sends a datagram over a connected pair and waits until it is queued at the other end.
///
/// # Errors
/// If the datagram was not sent, or is not queued within [`patience`].
pub fn deliver(from: &Socket, to: &Socket, bytes: &[u8]) -> Result<()> {
    let before = to.meminfo()?[RMEM_ALLOC];
    let sent = from.send(bytes, 0)?;
    ensure!(sent == bytes.len(), "{sent} bytes of a datagram were sent");
    eventually("a datagram", || Ok(to.meminfo()?[RMEM_ALLOC] > before))
}

/// Resets a connection by closing it with a linger time of 0.
///
/// # Errors
/// The errno of `setsockopt(2)`.
pub fn reset(socket: Socket) -> Result<()> {
    Ok(socket.set_linger(Some(0))?)
}

/// Adds to the trace the results of the calls that reveal a connection's end: sending (`s`),
/// receiving (`r`) and `SO_ERROR` (`e`). `order` gives the order of these calls.
pub fn see_end(trace: &Trace, who: &str, socket: &Socket, order: &str) {
    for (index, way) in order.chars().enumerate() {
        let what = |call: &str| format!("{who}, {call} ({})", index + 1);
        match way {
            's' => trace.see(&what("send"), socket.send(b"x", libc::MSG_NOSIGNAL)),
            'r' => trace.receive(&what("receive"), socket, 100, libc::MSG_DONTWAIT),
            _ => trace.pending_error(&what("SO_ERROR"), socket),
        }
    }
}

/// Waits until `poll(2)` reports `events`, without adding to the trace.
///
/// # Errors
/// If `poll(2)` does not report them within [`patience`].
pub fn await_poll(socket: &Socket, events: i16) -> Result<()> {
    let found = socket.poll(events, patience())?;
    ensure!(found & events != 0, "poll: {found:#x}, not {events:#x}");
    Ok(())
}

/// The longest time that a non-blocking call may take on a machine of any speed.
pub const SOON: Duration = Duration::from_secs(30);
