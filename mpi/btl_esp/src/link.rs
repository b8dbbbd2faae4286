// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection to a peer by one interface: its state, its queued output and its received input.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Instant;

use crate::card::Card;
use crate::input::{Blocks, Input, Received, Room};
use crate::transport::Stream;
use crate::wire::{Foreign, Header, Kind, HEADER, HELLO, TARGET};

/// A message of Open MPI that a link carries.
pub trait Payload {
    /// Returns the bytes to send, in at most two parts.
    fn parts(&self) -> [&[u8]; 2];
}

/// The state of a link.
#[derive(Debug)]
pub enum State {
    /// The link is not connected. The first message connects the link.
    Idle,
    /// `connect` has been in progress since this time.
    Connecting(Stream, Instant),
    /// The hello was sent. The bytes are the part of the answer that has arrived.
    Greeting(Stream, Vec<u8>),
    /// The peer refused, because it is opening a connection itself. The peer's connection will
    /// arrive.
    Awaiting,
    /// The link is connected, and frames are sent and received on it.
    Ready(Stream),
    /// The connection broke. It is not opened again.
    Failed,
}

/// A message with which a link has finished.
#[derive(Debug)]
pub struct Done<P> {
    /// The message.
    pub payload: P,
    /// The number of the call that the message belongs to.
    pub call: Option<u64>,
}

/// The part of a frame that only requests and replies have.
#[derive(Debug)]
struct Request {
    /// The bytes behind the header. They end with the first part of the message, if there is one.
    bytes: Vec<u8>,
    /// The number of the call that the message belongs to.
    call: Option<u64>,
}

/// A frame to be sent.
#[derive(Debug)]
struct Frame<P> {
    header: [u8; HEADER],
    /// `None` for messages, whose frames stay small, and for control frames.
    request: Option<Box<Request>>,
    /// The message that the frame carries, if any.
    payload: Option<P>,
    protected: bool,
    written: usize,
}

/// Number of parts of a frame.
const PARTS: usize = 3;

impl<P: Payload> Frame<P> {
    fn parts(&self) -> [&[u8]; PARTS] {
        let [first, second] = self.payload.as_ref().map_or([&[][..]; 2], Payload::parts);
        match &self.request {
            None => [&self.header, first, second],
            Some(request) => [&self.header, &request.bytes, second],
        }
    }

    fn length(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }
}

impl<P> Frame<P> {
    /// Returns whether the frame is about its connection alone.
    fn is_control(&self) -> bool {
        self.payload.is_none() && self.request.is_none()
    }

    fn finish(self) -> Option<Done<P>> {
        let call = self.request.and_then(|request| request.call);
        self.payload.map(|payload| Done { payload, call })
    }
}

/// The number of unacknowledged messages from which on a link does not [take](Link::is_free) more
/// at once. Acknowledgements are only received when Open MPI lets the component make progress.
const MOST_UNACKNOWLEDGED: usize = 256;

/// Maximum number of frames that one system call sends.
const BATCH: usize = 8;

/// A connection to a peer.
#[derive(Debug)]
pub struct Link<P> {
    /// The index of the peer in the engine's table of peers.
    pub peer: usize,
    /// The index of the local interface.
    pub module: usize,
    /// The index of the peer's interface.
    pub remote: usize,
    /// The description of the peer's interface, if it is known.
    pub card: Option<Card>,
    /// The link's state.
    pub state: State,
    output: VecDeque<Frame<P>>,
    unacknowledged: VecDeque<Frame<P>>,
    /// Number of protected frames (frames that are kept until they are acknowledged) that the peer
    /// has acknowledged.
    acknowledged: u64,
    /// Whether an unprotected frame (one that is not kept for retransmission) was written after the
    /// peer's most recent acknowledgement. If so, it is unknown whether that frame was delivered.
    exposed: bool,
    /// `arrived` is the number of protected frames that have arrived. `confirmed` is the number of
    /// these frames that this end has acknowledged.
    arrived: u64,
    confirmed: u64,
    input: Input,
}

impl<P: Payload> Link<P> {
    /// Returns a link that is not connected.
    pub fn new(peer: usize, module: usize, remote: usize, card: Option<Card>) -> Self {
        Self {
            peer,
            module,
            remote,
            card,
            state: State::Idle,
            output: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            acknowledged: 0,
            exposed: false,
            arrived: 0,
            confirmed: 0,
            input: Input::default(),
        }
    }

    /// Resets the counts of an earlier connection. Queued output is kept.
    pub fn reset(&mut self) {
        self.acknowledged = 0;
        self.exposed = false;
        self.arrived = 0;
        self.confirmed = 0;
        self.input = Input::default();
    }

    /// Returns whether output is queued.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Returns whether the link is connected and has output queued.
    pub fn is_blocked(&self) -> bool {
        self.has_output() && matches!(self.state, State::Ready(_))
    }

    /// Returns two values: whether there is input, and whether there is room for output. If
    /// `poll(2)` fails or the link is not connected, both values are true.
    pub fn readiness(&self) -> (bool, bool) {
        match &self.state {
            State::Ready(stream) => stream.readiness().unwrap_or((true, true)),
            _ => (true, true),
        }
    }

    /// Queues a message or a put. The payload of a put begins with the put's target.
    pub fn push(&mut self, kind: Kind, tag: u8, payload: P, number: Option<u64>) {
        let length = match kind {
            Kind::Put => TARGET,
            _ => payload.parts().iter().map(|part| part.len()).sum(),
        };
        let header = Header {
            length: u32::try_from(length).expect("a message is limited to btl_esp_max_send_size"),
            tag,
            kind,
            protected: number.is_some(),
            number: number.unwrap_or(0),
        };
        self.output.push_back(Frame {
            header: header.encode(),
            request: None,
            payload: Some(payload),
            protected: number.is_some(),
            written: 0,
        });
    }

    /// Queues a frame with `bytes` and, if the frame is a write, the message with the data.
    pub fn push_bytes(
        &mut self,
        kind: Kind,
        mut bytes: Vec<u8>,
        data: Option<Done<P>>,
        number: Option<u64>,
    ) {
        let header = Header {
            length: u32::try_from(bytes.len()).expect("requests and replies are limited"),
            tag: 0,
            kind,
            protected: number.is_some(),
            number: number.unwrap_or(0),
        };
        let (payload, call) = data.map_or((None, None), |data| (Some(data.payload), data.call));
        if let Some(payload) = &payload {
            // Messages of Open MPI's one-sided calls have no bytes there.
            bytes.extend(payload.parts()[0]);
        }
        self.output.push_back(Frame {
            header: header.encode(),
            request: Some(Box::new(Request { bytes, call })),
            payload,
            protected: number.is_some(),
            written: 0,
        });
    }

    /// Queues a frame without payload.
    pub fn push_control(&mut self, kind: Kind, number: u64) {
        self.output.push_back(Frame {
            header: Header::control(kind, number).encode(),
            request: None,
            payload: None,
            protected: false,
            written: 0,
        });
    }

    /// Queues an acknowledgement if one is due. Returns whether an acknowledgement was queued.
    pub fn acknowledge(&mut self) -> bool {
        let due = self.arrived > self.confirmed;
        if due {
            self.confirmed = self.arrived;
            self.push_control(Kind::Acknowledgement, self.arrived);
        }
        due
    }

    /// Sends as much as the kernel accepts, and moves completed messages to `done`.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn flush(&mut self, done: &mut Vec<Done<P>>) -> io::Result<()> {
        let State::Ready(stream) = &self.state else {
            return Ok(());
        };
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); PARTS * BATCH];
            let mut count = 0;
            let mut bytes = 0;
            for frame in self.output.iter().take(BATCH) {
                let mut skip = frame.written;
                for part in frame.parts() {
                    let rest = &part[skip.min(part.len())..];
                    skip = skip.saturating_sub(part.len());
                    if !rest.is_empty() {
                        slices[count] = IoSlice::new(rest);
                        count += 1;
                        bytes += rest.len();
                    }
                }
            }
            let sent = stream.send(&slices[..count])?;
            let mut left = sent;
            while let Some(frame) = self.output.front_mut() {
                let missing = frame.length() - frame.written;
                if left < missing {
                    frame.written += left;
                    break;
                }
                left -= missing;
                let frame = self.output.pop_front().expect("it was there just now");
                if frame.protected {
                    self.unacknowledged.push_back(frame);
                } else if !frame.is_control() {
                    self.exposed = true;
                    done.extend(frame.finish());
                }
            }
            if sent < bytes {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether a message that is queued now would be the next to be sent, and few messages
    /// are unacknowledged.
    pub fn is_free(&self) -> bool {
        matches!(self.state, State::Ready(_))
            && self.output.is_empty()
            && self.unacknowledged.len() < MOST_UNACKNOWLEDGED
    }

    /// Returns and removes the message that was queued last, if the kernel has accepted no byte of
    /// it.
    pub fn take_back(&mut self) -> Option<P> {
        if self.output.back()?.written > 0 {
            return None;
        }
        self.output.pop_back()?.payload
    }

    /// Handles the peer's acknowledgement of `count` protected frames of this connection.
    ///
    /// # Errors
    ///
    /// [`Foreign`] if fewer than `count` protected frames were sent.
    pub fn acknowledged(&mut self, count: u64, done: &mut Vec<Done<P>>) -> Result<(), Foreign> {
        while self.acknowledged < count {
            let frame = self.unacknowledged.pop_front().ok_or(Foreign)?;
            self.acknowledged += 1;
            done.extend(frame.finish());
        }
        self.exposed = false;
        Ok(())
    }

    /// Returns whether this link still has every frame that the peer may lack.
    pub fn is_recoverable(&self) -> bool {
        !self.exposed
    }

    /// Moves the messages that the peer may lack to `other`. An unprotected message that was sent
    /// only in part is still queued in this link, so it is moved too.
    pub fn hand_over(&mut self, other: &mut Self) {
        for mut frame in self.unacknowledged.drain(..).chain(self.output.drain(..)) {
            if !frame.is_control() {
                frame.written = 0;
                other.output.push_back(frame);
            }
        }
    }

    /// Returns and removes all messages that were not sent.
    pub fn abandon(&mut self) -> Vec<Done<P>> {
        let frames = self.unacknowledged.drain(..).chain(self.output.drain(..));
        frames.filter_map(Frame::finish).collect()
    }

    /// Receives available bytes.
    ///
    /// # Errors
    ///
    /// If the connection is broken, or the peer violates the protocol.
    pub fn receive(&mut self, blocks: &mut Blocks, room: &mut Room<'_>) -> io::Result<Received> {
        let State::Ready(stream) = &self.state else {
            return Ok(Received::default());
        };
        self.input.receive(stream, blocks, room)
    }

    /// Returns whether a put has arrived in part.
    #[cfg(test)]
    pub fn is_amid_put(&self) -> bool {
        self.input.is_amid_put()
    }

    /// Counts a protected frame that has arrived.
    pub fn count_arrival(&mut self) {
        self.arrived += 1;
    }
}

/// Reads the missing rest of a greeting of `length` bytes. Returns `None` while the greeting is
/// incomplete.
///
/// # Errors
///
/// If the connection is broken or closed.
pub fn read_greeting(
    stream: &Stream,
    bytes: &mut Vec<u8>,
    length: usize,
) -> io::Result<Option<()>> {
    let mut buffer = [0; HELLO];
    let missing = length - bytes.len();
    match stream.receive(&mut buffer[..missing])? {
        None => Ok(None),
        Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(count) => {
            bytes.extend_from_slice(&buffer[..count]);
            Ok((bytes.len() == length).then_some(()))
        }
    }
}
