// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages over a reliable stream.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use super::Transport;

/// A connected stream.
pub(super) struct Stream<S>(pub(super) S);

impl<S: Read + Write + AsFd> Transport for Stream<S> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.0.write_all(message)
    }

    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(message)
    }

    fn max_datagram(&self) -> Option<usize> {
        None
    }

    /// Nothing: a stream loses nothing, so nothing is late.
    fn discard_pending(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: AsFd> AsFd for Stream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
