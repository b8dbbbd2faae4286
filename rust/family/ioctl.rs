// SPDX-License-Identifier: GPL-2.0

//! `ioctl`, called by a program or by the core.

use super::super::{
    bindings,
    options::{IntArgument, StructArgument},
    sock::Sock,
};
use super::{code, of, Operations};
use kernel::ffi::{c_int, c_uint, c_ulong};

/// Number of `ioctl` commands that belong to protocols, from `SIOCPROTOPRIVATE` on.
const OF_PROTOCOLS: c_uint = 16;

/// # Safety
///
/// Called by the core, in an `ioctl` call on a socket of `P`.
pub(super) unsafe extern "C" fn ioctl<P: Operations>(
    socket: *mut bindings::socket,
    command: c_uint,
    argument: c_ulong,
) -> c_int {
    // SAFETY: The call runs on `socket`.
    let sock = unsafe { of(socket) };
    let number = command.wrapping_sub(bindings::SIOCPROTOPRIVATE);
    if number < OF_PROTOCOLS {
        return code(P::exchange(sock, number, StructArgument::new(argument)));
    }
    code(P::ioctl(sock, command).and_then(|value| IntArgument::new(argument).write(value)))
}

/// Works like [`ioctl`], but for `io_uring`, which passes kernel memory for the result.
///
/// # Safety
///
/// Called by the core with a socket of `P` that the core holds for the call, and with memory for an
/// integer at `argument`.
pub(super) unsafe extern "C" fn answer<P: Operations>(
    sk: *mut bindings::sock,
    command: c_int,
    argument: *mut c_int,
) -> c_int {
    // SAFETY: By the caller's promise, `sk` is a socket of `P` that the core holds for the call.
    let sock = unsafe { Sock::<P>::from_raw(sk) };
    // SAFETY: By the caller's promise, there is memory for an integer at `argument`.
    answer_by(sock, command, |value| unsafe { *argument = value })
}

/// Passes the result of the `ioctl` `command` on `sock` to `write`. Returns 0 or a negative error,
/// as the core expects.
pub(in crate::net) fn answer_by<P: Operations>(
    sock: &Sock<P>,
    command: c_int,
    write: impl FnOnce(c_int),
) -> c_int {
    let answer = P::ioctl(sock, command as u32);
    code(answer.map(|value| write(c_int::try_from(value).unwrap_or(c_int::MAX))))
}
