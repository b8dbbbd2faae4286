// SPDX-License-Identifier: MIT OR Apache-2.0

//! The halves of a stream, each for a task of its own.

use std::io::{self, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::EspStream;

/// The reading half of a stream.
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<EspStream>);

/// The writing half of a stream. Dropping it ends that direction.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<EspStream>,
    /// Whether the direction ends when this is dropped.
    ends: bool,
}

pub(super) fn split(stream: EspStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Arc::new(stream);
    let write = OwnedWriteHalf {
        stream: stream.clone(),
        ends: true,
    };
    (OwnedReadHalf(stream), write)
}

impl OwnedReadHalf {
    /// Puts the stream together again; gives both halves back if they are of two streams.
    ///
    /// # Errors
    ///
    /// The halves.
    pub fn reunite(self, mut other: OwnedWriteHalf) -> Result<EspStream, (Self, OwnedWriteHalf)> {
        if !Arc::ptr_eq(&self.0, &other.stream) {
            return Err((self, other));
        }
        other.ends = false;
        drop(other);
        Ok(Arc::into_inner(self.0).unwrap_or_else(|| unreachable!("a stream has two halves")))
    }

    /// The stream.
    pub fn stream(&self) -> &EspStream {
        &self.0
    }
}

impl OwnedWriteHalf {
    /// The stream.
    pub fn stream(&self) -> &EspStream {
        &self.stream
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.ends {
            // A connection that is over has no direction to end.
            let _ = self.stream.get_ref().shutdown(Shutdown::Write);
        }
    }
}

impl AsyncWrite for OwnedWriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream
            .poll_writing(context, |mut stream| stream.write(data))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream
            .poll_writing(context, |mut stream| stream.write_vectored(data))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: nothing is held back.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the direction.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.get_ref().shutdown(Shutdown::Write))
    }
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_reading(context, buffer)
    }
}
