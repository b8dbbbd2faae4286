// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receives the input of a connection. Frames are received into blocks of memory. A put is a write
//! into this process's memory; most of its data is received directly into that memory.

use std::io;

use crate::seen::Seen;
use crate::transport::Stream;
use crate::windows::Windows;
use crate::wire::{Foreign, Header, Kind, Target, ATOMIC, CALL, DETACH, HEADER, TARGET};

/// Maximum number of free blocks that are kept for reuse.
const KEPT: usize = 32;

/// The maximum number of bytes that one call receives into a block while a window (memory that
/// peers may write into) is open. The limit is higher if the current frame lacks more bytes.
/// Without the limit, a block would also receive data for the window, which would have to be
/// copied.
const NEAR: usize = 4 << 10;

/// A pool of memory blocks into which frames are received.
#[derive(Debug)]
pub struct Blocks {
    size: usize,
    free: Vec<Vec<u8>>,
}

impl Blocks {
    /// Returns an empty pool of blocks of `size` bytes.
    pub const fn new(size: usize) -> Self {
        Self {
            size,
            free: Vec::new(),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_else(|| vec![0; self.size])
    }

    /// Gives a block back to the pool.
    pub fn give(&mut self, block: Vec<u8>) {
        if self.free.len() < KEPT && block.len() == self.size {
            self.free.push(block);
        }
    }
}

/// The state that decides where the data of a put goes.
#[derive(Debug)]
pub struct Room<'a> {
    /// The memory that is open to peers.
    pub windows: &'a mut Windows,
    /// The numbered frames that this peer's connections have delivered.
    pub seen: &'a Seen,
}

impl Room<'_> {
    /// Returns the memory for the missing rest of a put. Returns `None` if another connection has
    /// delivered the whole put. In that case the program may own the memory again, so the memory
    /// must not be written to.
    fn of(&mut self, put: &Put) -> io::Result<Option<&mut [u8]>> {
        if put.header.protected && self.seen.contains(put.header.number) {
            return Ok(None);
        }
        let memory = self.windows.memory(&put.target, put.received);
        memory.map(Some).ok_or_else(|| {
            let what = "it writes to memory that is not open to it";
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }
}

/// The result of a receive.
#[derive(Debug, Default)]
pub struct Received {
    /// The memory that holds the received bytes; empty if no bytes were received.
    pub block: Vec<u8>,
    /// Headers of complete frames, each with the offset of its bytes in the block. The data of a
    /// put or a write is in its target already.
    pub frames: Vec<(Header, usize)>,
    /// The numbers of the calls of the complete writes, in the order of their frames.
    pub writes: Vec<u64>,
    /// Whether bytes were received, even if they are only a part of a frame.
    pub progress: bool,
    /// Whether the peer has closed the stream.
    pub ended: bool,
}

/// A put or a write whose data has not arrived completely.
#[derive(Debug)]
struct Put {
    header: Header,
    /// The number of the call, if it is a write.
    call: u64,
    target: Target,
    received: u64,
}

impl Put {
    /// Decodes the bytes of a frame of the kind `header.kind`, which has the right length.
    fn decode(header: Header, bytes: &[u8]) -> Option<Self> {
        let (call, bytes) = match header.kind {
            Kind::Put => (0, bytes),
            Kind::Write => {
                let (call, bytes) = bytes.split_first_chunk()?;
                (u64::from_le_bytes(*call), bytes)
            }
            _ => return None,
        };
        Some(Self {
            header,
            call,
            target: Target::decode(bytes.first_chunk()?),
            received: 0,
        })
    }

    fn missing(&self) -> u64 {
        self.target.length - self.received
    }

    /// Reports a put whose data is complete.
    fn finish(self, received: &mut Received) {
        if self.header.kind == Kind::Write {
            received.writes.push(self.call);
        }
        received.frames.push((self.header, 0));
    }
}

/// Returns whether a frame of the kind has so many bytes.
fn is_right_length(header: &Header) -> bool {
    let length = header.length as usize;
    match header.kind {
        Kind::Send => true,
        Kind::Acknowledgement | Kind::End => length == 0,
        Kind::Put => length == TARGET,
        Kind::Write | Kind::Read => length == CALL + TARGET,
        Kind::Atomic => length == CALL + ATOMIC,
        Kind::Reply => length >= CALL,
        Kind::Detach => length == DETACH,
    }
}

/// Received bytes of an incomplete frame. `block` is empty while there are no such bytes.
#[derive(Debug, Default)]
pub struct Input {
    block: Vec<u8>,
    length: usize,
    put: Option<Put>,
}

impl Input {
    /// Receives available bytes.
    ///
    /// # Errors
    ///
    /// If the connection is broken, or the peer violates the protocol.
    pub fn receive(
        &mut self,
        stream: &Stream,
        blocks: &mut Blocks,
        room: &mut Room<'_>,
    ) -> io::Result<Received> {
        if let Some(put) = self.put.take() {
            return self.receive_put(put, stream, blocks, room);
        }
        let mut received = Received::default();
        if self.block.is_empty() {
            self.block = blocks.take();
        }
        let end = if room.windows.is_empty() {
            self.block.len()
        } else {
            self.block.len().min(self.length + self.missing().max(NEAR))
        };
        match stream.receive(&mut self.block[self.length..end])? {
            None => {}
            Some(0) => received.ended = true,
            Some(count) => {
                self.length += count;
                received.progress = true;
            }
        }
        let start = self.parse(&mut received, room)?;
        if start > 0 {
            let rest = start..self.length;
            received.block = std::mem::take(&mut self.block);
            self.length = rest.len();
            if !rest.is_empty() {
                self.block = blocks.take();
                self.block[..rest.len()].copy_from_slice(&received.block[rest]);
            }
        } else if self.length == 0 {
            blocks.give(std::mem::take(&mut self.block));
        }
        Ok(received)
    }

    /// Receives data of a put.
    fn receive_put(
        &mut self,
        mut put: Put,
        stream: &Stream,
        blocks: &mut Blocks,
        room: &mut Room<'_>,
    ) -> io::Result<Received> {
        let mut received = Received::default();
        let count = match room.of(&put)? {
            Some(memory) => stream.receive(memory)?,
            None => {
                let mut block = blocks.take();
                let length = put.missing().min(block.len() as u64) as usize;
                let count = stream.receive(&mut block[..length]);
                blocks.give(block);
                count?
            }
        };
        received.ended = count == Some(0);
        let count = count.unwrap_or(0) as u64;
        received.progress = count > 0;
        put.received += count;
        if put.missing() == 0 {
            put.finish(&mut received);
        } else {
            self.put = Some(put);
        }
        Ok(received)
    }

    /// Returns whether a put has arrived in part.
    #[cfg(test)]
    pub fn is_amid_put(&self) -> bool {
        self.put.is_some()
    }

    /// Returns the number of missing bytes of the current frame; 0 if its header has not arrived.
    fn missing(&self) -> usize {
        let header = self.block[..self.length].first_chunk().map(Header::decode);
        match header {
            Some(Ok(header)) => (HEADER + header.length as usize).saturating_sub(self.length),
            _ => 0,
        }
    }

    /// Finds complete frames. Returns the offset at which the last of them ends. If an incomplete
    /// put follows, returns the offset at which the received part of the put ends.
    fn parse(&mut self, received: &mut Received, room: &mut Room<'_>) -> io::Result<usize> {
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut start = 0;
        while let Some(header) = self.block[start..self.length].first_chunk::<HEADER>() {
            let header = Header::decode(header).map_err(wrong)?;
            let bytes = start + HEADER;
            let end = bytes + header.length as usize;
            if end - start > self.block.len() || !is_right_length(&header) {
                return Err(wrong(Foreign));
            }
            if end > self.length {
                break;
            }
            start = end;
            if !matches!(header.kind, Kind::Put | Kind::Write) {
                received.frames.push((header, bytes));
                continue;
            }
            let put = Put::decode(header, &self.block[bytes..end]);
            let mut put = put.expect("its length was checked");
            let memory = room.of(&put)?;
            let here = put.missing().min((self.length - start) as u64) as usize;
            if let Some(memory) = memory {
                memory[..here].copy_from_slice(&self.block[start..start + here]);
            }
            put.received = here as u64;
            start += here;
            if put.missing() > 0 {
                self.put = Some(put);
                break;
            }
            put.finish(received);
        }
        Ok(start)
    }
}
