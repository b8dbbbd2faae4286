// SPDX-License-Identifier: GPL-2.0-only

//! Makes socket calls with arguments that no library would pass: invalid pointers and wrong
//! lengths.

use std::io::Result;
use std::mem::zeroed;
use std::ptr;

use libc::{c_int, c_ulong, c_void, socklen_t};

use crate::prelude::*;
use crate::socket::NOWHERE;

/// Where a pointer argument points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// A null pointer.
    Null,
    /// A pointer to memory that the process may not access.
    Nowhere,
    /// A pointer to 128 zero bytes.
    Zeroes,
}

const ROOM: usize = 128;

impl Pointer {
    /// Runs `call` with the pointer, which is valid for at most [`ROOM`] bytes.
    fn with<T>(self, call: impl FnOnce(*mut c_void) -> T) -> T {
        let mut zeroes = [0u64; ROOM / 8];
        call(match self {
            Self::Null => ptr::null_mut(),
            Self::Nowhere => NOWHERE,
            Self::Zeroes => zeroes.as_mut_ptr().cast(),
        })
    }
}

fn bounded(length: i32) -> socklen_t {
    assert!(length <= ROOM as i32, "the kernel would go past the room");
    length as socklen_t
}

/// Calls `setsockopt(2)`.
///
/// # Errors
/// The call's errno, as for every function here.
pub fn set_option(
    socket: &Socket,
    level: i32,
    name: i32,
    value: Pointer,
    length: i32,
) -> Result<()> {
    let length = bounded(length);
    value.with(|value| {
        // SAFETY: The value is readable for `length` bytes, or is memory that the kernel refuses to
        // access.
        check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) }).map(drop)
    })
}

/// Calls `getsockopt(2)`; `length` is the initial length, or `None` for an invalid pointer to the
/// length.
///
/// # Errors
/// The call's errno.
pub fn get_option(
    socket: &Socket,
    level: i32,
    name: i32,
    value: Pointer,
    length: Option<i32>,
) -> Result<()> {
    let mut claimed = length.map(bounded);
    let claimed = claimed.as_mut().map_or(NOWHERE.cast(), ptr::from_mut);
    value.with(|value| {
        // SAFETY: The value is writable for the length passed, or is memory that the kernel refuses
        // to access. `claimed` points to a writable length, or to memory that the kernel refuses to
        // access.
        check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value, claimed) })
            .map(drop)
    })
}

/// The calls that take an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// `bind(2)`.
    Bind,
    /// `connect(2)`.
    Connect,
    /// `sendto(2)`, of one byte.
    SendTo,
    /// `sendmsg(2)`, of one byte.
    SendMessage,
}

/// Makes a call that takes an address, with any pointer and length.
///
/// # Errors
/// The call's errno.
pub fn take_name(socket: &Socket, call: Taking, name: Pointer, length: i32) -> Result<()> {
    let fd = socket.as_raw_fd();
    // The kernel refuses a length above 128, the size of sockaddr_storage, or truncates it to 128.
    let length = length as socklen_t;
    let byte = [0u8];
    name.with(|name| {
        // SAFETY: The kernel reads at most 128 bytes of a name. These bytes are readable, or the
        // kernel refuses to access them. The byte and the message live across the calls.
        check(unsafe {
            match call {
                Taking::Bind => i64::from(libc::bind(fd, name.cast(), length)),
                Taking::Connect => i64::from(libc::connect(fd, name.cast(), length)),
                Taking::SendTo => {
                    let flags = libc::MSG_NOSIGNAL;
                    libc::sendto(fd, byte.as_ptr().cast(), 1, flags, name.cast(), length) as i64
                }
                Taking::SendMessage => {
                    let mut vector = libc::iovec {
                        iov_base: byte.as_ptr().cast_mut().cast(),
                        iov_len: 1,
                    };
                    let mut message: libc::msghdr = zeroed();
                    message.msg_name = name;
                    message.msg_namelen = length;
                    message.msg_iov = &mut vector;
                    message.msg_iovlen = 1;
                    libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL) as i64
                }
            }
        })
        .map(drop)
    })
}

/// The calls that return an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giving {
    /// `getsockname(2)`.
    Own,
    /// `getpeername(2)`.
    Peer,
    /// `recvfrom(2)`.
    Sender,
}

/// Makes a call that returns an address, with `claimed` as the length of the buffer. Returns the
/// bytes written and the length that the kernel reported.
///
/// # Errors
/// The call's errno.
pub fn give_name(socket: &Socket, call: Giving, claimed: i32) -> Result<(Vec<u8>, i32)> {
    // This pattern shows which bytes the kernel has written.
    let mut room = [0xa5u8; ROOM];
    let mut length = bounded(claimed);
    let name = room.as_mut_ptr().cast();
    let mut byte = [0u8; 64];
    // SAFETY: `room` is writable for the length passed, or the length is negative and refused.
    // `byte` and `length` live across the call.
    check(unsafe {
        match call {
            Giving::Own => i64::from(libc::getsockname(socket.as_raw_fd(), name, &mut length)),
            Giving::Peer => i64::from(libc::getpeername(socket.as_raw_fd(), name, &mut length)),
            Giving::Sender => libc::recvfrom(
                socket.as_raw_fd(),
                byte.as_mut_ptr().cast(),
                byte.len(),
                0,
                name,
                &mut length,
            ) as i64,
        }
    })?;
    // Search from the end, because the bytes of a port may equal the pattern's byte.
    let written = room.iter().rposition(|byte| *byte != 0xa5);
    let written = written.map_or(0, |last| last + 1);
    Ok((room[..written].to_vec(), length as i32))
}

/// Calls `getsockname(2)` with an unreadable length.
///
/// # Errors
/// The call's errno.
pub fn own_name_to_nowhere(socket: &Socket) -> Result<()> {
    // SAFETY: The kernel refuses to access either pointer.
    check(unsafe { libc::getsockname(socket.as_raw_fd(), NOWHERE.cast(), NOWHERE.cast()) })
        .map(drop)
}

/// Calls `sendmsg(2)` or `recvmsg(2)` with `count` empty vector entries.
///
/// # Errors
/// The errno of the call.
pub fn message_of(socket: &Socket, count: usize, sends: bool) -> Result<i64> {
    let mut vector: Vec<libc::iovec> = (0..count)
        .map(|_| libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        })
        .collect();
    // SAFETY: All-zero bytes are a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = vector.as_mut_ptr();
    message.msg_iovlen = count;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: The message points to `vector`, whose entries are empty.
    check(unsafe {
        if sends {
            libc::sendmsg(socket.as_raw_fd(), &message, flags) as i64
        } else {
            libc::recvmsg(socket.as_raw_fd(), &mut message, flags) as i64
        }
    })
}

/// Calls `ioctl(2)` on 128 bytes that begin with `argument`; returns these bytes as they are
/// afterwards.
///
/// # Errors
/// The call's errno.
pub fn ioctl(socket: &Socket, request: c_ulong, argument: &[u8]) -> Result<Vec<u8>> {
    let mut room = [0u64; ROOM / 8];
    // SAFETY: The slice covers exactly `room`, which is accessed only through it. Every bit pattern
    // is a valid u8.
    let bytes = unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), ROOM) };
    bytes[..argument.len()].copy_from_slice(argument);
    // SAFETY: The requests in use read and write at most an ifreq or a time, which are smaller than
    // the buffer.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request, bytes.as_mut_ptr()) })?;
    Ok(bytes.to_vec())
}

/// Calls `ioctl(2)` with an invalid pointer.
///
/// # Errors
/// The call's errno.
pub fn ioctl_nowhere(socket: &Socket, request: c_ulong) -> Result<()> {
    // SAFETY: The kernel refuses to access the pointer.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request, NOWHERE) }).map(drop)
}

/// Calls `fcntl(2)` with an integer.
///
/// # Errors
/// The call's errno.
pub fn fcntl(socket: &Socket, command: c_int, argument: c_int) -> Result<c_int> {
    // SAFETY: The commands in use take an integer or no argument.
    check(unsafe { libc::fcntl(socket.as_raw_fd(), command, argument) }).map(|value| value as c_int)
}
