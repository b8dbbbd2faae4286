// SPDX-License-Identifier: GPL-2.0-only

//! Makes less common calls: calls that send or receive several messages at once, calls with control
//! data, and calls that raise SIGPIPE.

use std::io::Result;
use std::mem::{size_of, zeroed, MaybeUninit};
use std::ptr;

use libc::c_int;

use crate::prelude::*;
use crate::socket::{vector, vector_mut};

/// Calls `sendmmsg(2)` with one piece per message; returns the number of messages sent.
///
/// # Errors
/// The call's errno.
pub fn send_many(socket: &Socket, messages: &[Piece], flags: c_int) -> Result<usize> {
    let mut vectors = vector(messages);
    let mut headers: Vec<libc::mmsghdr> = vectors.iter_mut().map(header_of).collect();
    // SAFETY: The headers point to `vectors`, which is alive for the call. Good pieces are readable
    // for their lengths, and for a bad piece the kernel returns EFAULT.
    let sent = check(unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len() as u32,
            flags,
        )
    })?;
    Ok(sent as usize)
}

/// Calls `recvmmsg(2)` with one piece per message; returns the length and flags of each message.
///
/// # Errors
/// The call's errno.
pub fn receive_many(
    socket: &Socket,
    pieces: &mut [PieceMut],
    flags: c_int,
    timeout: Option<Duration>,
) -> Result<Vec<(usize, c_int)>> {
    let mut vectors = vector_mut(pieces);
    let mut headers: Vec<libc::mmsghdr> = vectors.iter_mut().map(header_of).collect();
    let mut timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // SAFETY: The headers point to `vectors`, which is alive for the call. Good pieces are writable
    // for their lengths, and for a bad piece the kernel returns EFAULT. The last argument is null
    // or points to `timeout`, which the kernel may read and write.
    let got = check(unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len() as u32,
            flags,
            timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
        )
    })?;
    let filled = headers.iter().take(got as usize);
    Ok(filled
        .map(|header| (header.msg_len as usize, header.msg_hdr.msg_flags))
        .collect())
}

fn header_of(vector: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: All-zero bytes are a valid mmsghdr.
    let mut header: libc::mmsghdr = unsafe { zeroed() };
    header.msg_hdr.msg_iov = vector;
    header.msg_hdr.msg_iovlen = 1;
    header
}

/// Encodes a control message for `sendmsg(2)`, with `excess` added to the length in its header.
pub fn control(level: c_int, kind: c_int, data: &[u8], excess: isize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let head = size_of::<libc::cmsghdr>();
    let length = (head + data.len()).wrapping_add_signed(excess);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&level.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(data);
    bytes.resize(head + data.len().next_multiple_of(size_of::<usize>()), 0);
    bytes
}

/// Calls `sendmsg(2)` with `control` as the control data, whether or not it is well formed.
///
/// # Errors
/// The call's errno.
pub fn send_control(socket: &Socket, bytes: &[u8], control: &[u8]) -> Result<usize> {
    let mut vector = vector(&[Piece::Good(bytes)]);
    // The kernel requires control data to be aligned like its header, `cmsghdr`.
    let mut aligned = vec![0u64; control.len().div_ceil(8)];
    for (word, chunk) in aligned.iter_mut().zip(control.chunks(8)) {
        let mut all = [0; 8];
        all[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_ne_bytes(all);
    }
    // SAFETY: All-zero bytes are a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = vector.as_mut_ptr();
    message.msg_iovlen = vector.len();
    message.msg_control = aligned.as_mut_ptr().cast();
    message.msg_controllen = control.len();
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: The header points to `vector` and `aligned`. Both are alive for the call, and at
    // least as long as the header says.
    let sent = check(unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) as i64 })?;
    Ok(sent as usize)
}

fn sigpipe() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` writes the whole set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

/// Runs `work` while SIGPIPE is blocked and has its default disposition. (Rust's runtime ignores
/// the signal otherwise.) Returns the result of `work`, and whether SIGPIPE was raised.
///
/// # Panics
/// If the signal's disposition or the mask cannot be changed.
pub fn with_sigpipe<T>(work: impl FnOnce() -> T) -> (T, bool) {
    let set = sigpipe();
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: The calls take integers, and pointers to the set and the time above. While SIGPIPE is
    // not ignored, this thread blocks it, and then consumes it if it is pending.
    unsafe {
        let mask = |how| libc::pthread_sigmask(how, &set, ptr::null_mut());
        assert_eq!(mask(libc::SIG_BLOCK), 0);
        assert_ne!(libc::signal(libc::SIGPIPE, libc::SIG_DFL), libc::SIG_ERR);
        let result = work();
        let came = libc::sigtimedwait(&set, ptr::null_mut(), &none) == libc::SIGPIPE;
        assert_ne!(libc::signal(libc::SIGPIPE, libc::SIG_IGN), libc::SIG_ERR);
        assert_eq!(mask(libc::SIG_UNBLOCK), 0);
        (result, came)
    }
}
