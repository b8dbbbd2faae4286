// SPDX-License-Identifier: MIT OR Apache-2.0

//! The halves of a stream, which different tasks can own.

use std::io::{self, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::EspStream;

/// The read half of a stream.
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<EspStream>);

/// The write half of a stream. Dropping this half shuts down the stream's sending direction.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<EspStream>,
    /// Whether dropping this half shuts down the sending direction.
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
    /// Rejoins the halves of a stream.
    ///
    /// # Errors
    ///
    /// Returns both halves if they belong to different streams.
    pub fn reunite(self, mut other: OwnedWriteHalf) -> Result<EspStream, (Self, OwnedWriteHalf)> {
        if !Arc::ptr_eq(&self.0, &other.stream) {
            return Err((self, other));
        }
        other.ends = false;
        drop(other);
        Ok(Arc::into_inner(self.0).unwrap_or_else(|| unreachable!("a stream has two halves")))
    }

    /// Returns the whole stream.
    pub fn stream(&self) -> &EspStream {
        &self.0
    }
}

impl OwnedWriteHalf {
    /// Returns the whole stream.
    pub fn stream(&self) -> &EspStream {
        &self.stream
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.ends {
            // The error is ignored: it means that the connection has already ended.
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

    /// Does nothing: no data is buffered here.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Shuts down the sending direction.
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
