// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over ESP's streams that receives by a ring of mapped memory, so that a program
//! that polls receives without system calls.

use std::io;

use anyhow::{Context as _, Result};
use sockaddr_en::{EspStream, ReceiveRing};

use super::esp::Esp;
use super::kind::Kind;
use super::packets::Packets;
use super::polled::Waits;
use super::stream;
use super::streams::pair;
use super::{Context, Transport};

/// The size of a ring in bytes, which holds the longest message that a polled dialogue sends.
const SIZE: usize = 1 << 20;

pub(super) const KIND: Kind = Kind {
    polled: true,
    ..Kind::new(
        "esp-ring",
        "PF_ENET streams, received by a mapped ring",
        |context| pair::<Esp>(context, boxed),
    )
};

fn boxed(socket: EspStream, context: &Context) -> Result<Box<dyn Transport>> {
    let waits = Waits::limit(&socket, context)?;
    let ring = ReceiveRing::new(&socket, SIZE).context("making a ring of 1 MiB")?;
    let stream = stream::boxed(socket, context)?;
    Ok(Box::new(Ringed {
        stream,
        ring,
        waits,
    }))
}

/// A stream that sends by calls, and receives by a ring.
struct Ringed {
    stream: Box<dyn Transport>,
    ring: ReceiveRing,
    waits: Waits,
}

impl Transport for Ringed {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.send(message)
    }

    fn send_record(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.send_record(message)
    }

    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < message.len() {
            let (ring, rest) = (&mut self.ring, &mut message[filled..]);
            match self.waits.receive(&self.stream, || ring.read(rest))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => filled += length,
            }
        }
        Ok(())
    }

    fn try_send(&mut self, rest: &[u8]) -> io::Result<usize> {
        self.stream.try_send(rest)
    }

    fn try_recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.ring.read(buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => Ok(length),
        }
    }

    fn packets(&self) -> io::Result<Option<Packets>> {
        self.stream.packets()
    }
}

as_fd!([] Ringed, ring);
