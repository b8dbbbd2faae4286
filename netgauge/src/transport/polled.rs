// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that never block in the socket, but wait in `poll(2)`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{recv, send, MsgFlags};

use super::options::limit_calls;
use super::options::SocketOptions;
use super::Context;

/// Where a socket's calls wait, in the socket or in `poll(2)`, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    /// The time limit of a call that waits.
    pub(super) most: Duration,
    /// Whether a sending call that finds no room waits in `poll(2)`, not in the socket.
    pub(super) polls_to_send: bool,
    /// Whether a receiving call that finds no data waits in `poll(2)`, not in the socket.
    pub(super) polls_to_receive: bool,
}

impl Waits {
    /// Returns where the calls of a socket with these options wait. Each call waits for at most
    /// `most`.
    pub(super) fn of(options: &SocketOptions, most: Duration) -> Self {
        Self {
            most,
            polls_to_send: options.polls_to_send(),
            polls_to_receive: options.polls_to_receive(),
        }
    }

    /// Sets the timeouts of a connected stream's blocking calls to `context.give_up`. Returns where
    /// the stream's calls wait.
    pub(super) fn limit(socket: &impl AsFd, context: &Context) -> io::Result<Self> {
        limit_calls(socket, Some(context.give_up))?;
        Ok(Self::of(&context.options, context.give_up))
    }

    /// Returns the value for calls that wait in the socket. Each call waits for at most `most`.
    pub(super) fn blocking(most: Duration) -> Self {
        Self::of(&SocketOptions::default(), most)
    }

    /// Makes `call`, which sends without blocking. While there is no room, waits in `poll(2)` and
    /// repeats `call`.
    pub(super) fn send<T>(
        &self,
        fd: &impl AsFd,
        call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        polled(fd, PollFlags::POLLOUT, self.most, call)
    }

    /// Makes `call`, which receives without blocking. While there is no data, waits in `poll(2)`
    /// and repeats `call`.
    pub(super) fn receive<T>(
        &self,
        fd: &impl AsFd,
        call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        polled(fd, PollFlags::POLLIN, self.most, call)
    }
}

/// Waits until `fd` has one of `events`, has ended or has failed. Returns the events of `fd`, or
/// none if `timeout` passed first.
pub(super) fn wait(fd: &impl AsFd, events: PollFlags, timeout: Duration) -> io::Result<PollFlags> {
    let deadline = Instant::now() + timeout;
    let mut fds = [PollFd::new(fd.as_fd(), events)];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // The time is rounded up, because a wait that ends before the deadline would be repeated at
        // once.
        let milliseconds = left.as_nanos().div_ceil(1_000_000);
        let left = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, left) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            Ok(0) => return Ok(PollFlags::empty()),
            Ok(_) => return Ok(fds[0].revents().unwrap_or(events)),
        }
    }
}

/// Repeats `call`, which does not block, while it fails with `WouldBlock`. Waits for `events`
/// before each repetition. Fails with `WouldBlock` after `timeout`.
fn polled<T>(
    fd: &impl AsFd,
    events: PollFlags,
    timeout: Duration,
    mut call: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut deadline = None;
    loop {
        let blocked = match call() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => error,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => return result,
        };
        let now = Instant::now();
        let left = deadline
            .get_or_insert(now + timeout)
            .saturating_duration_since(now);
        // The time is checked even if no wait has timed out. If `fd` has an error that `call` does
        // not return, every wait ends at once, so the loop would otherwise be endless.
        if left.is_zero() || wait(fd, events, left)?.is_empty() {
            return Err(blocked);
        }
    }
}

/// Sends as many bytes as the socket takes without waiting.
pub(super) fn try_send(fd: &impl AsFd, data: &[u8]) -> io::Result<usize> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    Ok(send(fd.as_fd().as_raw_fd(), data, flags)?)
}

/// Receives data that has arrived.
pub(super) fn try_recv(fd: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(recv(
        fd.as_fd().as_raw_fd(),
        buffer,
        MsgFlags::MSG_DONTWAIT,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::is_timeout;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    #[test]
    fn a_call_that_would_block_succeeds_when_the_peer_makes_room() {
        let (one, mut two) = UnixStream::pair().unwrap();
        let message = vec![7; 4 << 20];
        let patience = Duration::from_secs(60);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut got = vec![0; message.len()];
                two.read_exact(&mut got).unwrap();
                assert_eq!(got, message);
                two.write_all(b"x").unwrap();
            });
            let mut sent = 0;
            while sent < message.len() {
                let rest = &message[sent..];
                sent +=
                    polled(&one, PollFlags::POLLOUT, patience, || try_send(&one, rest)).unwrap();
            }
            let mut byte = [0];
            let call = || try_recv(&one, &mut byte);
            assert_eq!(polled(&one, PollFlags::POLLIN, patience, call).unwrap(), 1);
            assert_eq!(&byte, b"x");
        });
    }

    #[test]
    fn a_call_that_never_succeeds_times_out_despite_events() {
        let (one, two) = UnixStream::pair().unwrap();
        drop(two);
        let mut calls = 0;
        let call = || -> io::Result<()> {
            calls += 1;
            // If the time limit ends the calls, there are far fewer of them than this.
            assert!(calls < 10_000_000, "it goes on for ever");
            Err(io::ErrorKind::WouldBlock.into())
        };
        let error = polled(&one, PollFlags::POLLIN, Duration::from_millis(5), call);
        assert!(is_timeout(&error.unwrap_err()));
    }

    #[test]
    fn silence_is_a_timeout_and_the_end_is_reported() {
        let (one, two) = UnixStream::pair().unwrap();
        let mut byte = [0];
        let short = Duration::from_millis(5);
        let error = polled(&one, PollFlags::POLLIN, short, || try_recv(&one, &mut byte));
        assert!(is_timeout(&error.unwrap_err()));
        drop(two);
        let end = polled(&one, PollFlags::POLLIN, short, || try_recv(&one, &mut byte));
        assert_eq!(end.unwrap(), 0);
    }
}
