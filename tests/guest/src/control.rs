// SPDX-License-Identifier: GPL-2.0-only

//! Sends and receives control messages, by `sendmsg(2)` and `recvmsg(2)`.

use std::io::Result;
use std::mem::zeroed;

use crate::prelude::*;

/// A control message, which accompanies the data of `sendmsg(2)` or `recvmsg(2)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// `cmsg_level`.
    pub level: i32,
    /// `cmsg_type`.
    pub kind: i32,
    /// The control message's data, which follow its header.
    pub data: Vec<u8>,
}

/// Receives at most 2048 bytes and all control messages; returns the number of bytes, `msg_flags`
/// and the control messages.
///
/// # Errors
/// The call's errno.
pub fn receive_with_control(
    socket: &Socket,
    flags: i32,
    room: usize,
) -> Result<(usize, i32, Vec<Control>)> {
    receive_into(socket, &mut [0; 2048], flags, room)
}

/// Works like [`receive_with_control`], but receives into `bytes`.
///
/// # Errors
/// The call's errno.
pub fn receive_into(
    socket: &Socket,
    bytes: &mut [u8],
    flags: i32,
    room: usize,
) -> Result<(usize, i32, Vec<Control>)> {
    let mut control = [0u64; 64];
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: All-zero bytes are a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = room.min(size_of_val(&control));
    // SAFETY: `message` points to `vector` and `control`. Their memory is writable for the lengths
    // in `message`.
    let got = check(unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, flags) as i64 })?;
    let mut found = Vec::new();
    // SAFETY: The kernel has filled the control buffer with whole entries, up to `msg_controllen`.
    // The macros walk them, and an entry's data follow its header for the length that the header
    // gives.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&message);
        while let Some(entry) = next.as_ref() {
            let length = entry.cmsg_len - libc::CMSG_LEN(0) as usize;
            found.push(Control {
                level: entry.cmsg_level,
                kind: entry.cmsg_type,
                data: std::slice::from_raw_parts(libc::CMSG_DATA(next), length).to_vec(),
            });
            next = libc::CMSG_NXTHDR(&message, next);
        }
    }
    Ok((got as usize, message.msg_flags, found))
}

/// Sends `bytes` with one control message. If `length` is given, it replaces the correct length in
/// the message's header.
///
/// # Errors
/// The call's errno.
pub fn send_with_control(
    socket: &Socket,
    bytes: &[u8],
    control: &Control,
    length: Option<usize>,
) -> Result<usize> {
    let mut room = [0u64; 64];
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let data = control.data.len() as u32;
    // SAFETY: All-zero bytes are a valid msghdr. The control buffer is larger than any entry in
    // use, so the entry's header and data lie inside it. The buffers live across the call, which
    // only reads them.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut vector;
        message.msg_iovlen = 1;
        message.msg_control = room.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(data) as usize;
        let entry = libc::CMSG_FIRSTHDR(&message);
        (*entry).cmsg_level = control.level;
        (*entry).cmsg_type = control.kind;
        (*entry).cmsg_len = length.unwrap_or(libc::CMSG_LEN(data) as usize);
        std::ptr::copy_nonoverlapping(
            control.data.as_ptr(),
            libc::CMSG_DATA(entry),
            control.data.len(),
        );
        check(libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) as i64)?
    };
    Ok(sent as usize)
}
