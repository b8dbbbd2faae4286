// SPDX-License-Identifier: MIT OR Apache-2.0

//! Access to memory of a peer's process: writes, reads and atomic operations. They are calls. The
//! peer's process replies when it makes progress.

use super::{Engine, Event, LinkId, Sent, State};
use crate::calls::Answered;
use crate::link::{Done, Payload};
use crate::wire::{Atomic, Foreign, Kind, Target, CALL, HEADER};

/// Number of bytes of the reply to an atomic operation.
const OLD_VALUE: usize = 8;

impl<P: Payload> Engine<P> {
    /// Writes the bytes of `payload` to memory of the peer. The message completes once they are
    /// there.
    pub fn write(&mut self, link: LinkId, target: &Target, payload: P) -> Sent<P> {
        let Some(link) = self.usable(link) else {
            return Sent::Refused(payload);
        };
        let call = self.calls.add(self.links[link].peer, 0, None);
        let bytes = [&call.to_le_bytes()[..], &target.encode()].concat();
        let data = Done {
            payload,
            call: Some(call),
        };
        self.request(link, Kind::Write, bytes, Some(data))
    }

    /// Reads memory of the peer. The message completes by an [`Event::Answered`] with the bytes.
    pub fn read(&mut self, link: LinkId, target: &Target, payload: P) -> Sent<P> {
        let length = target.length as usize;
        self.call(link, Kind::Read, &target.encode(), length, payload)
    }

    /// Executes an atomic operation on memory of the peer. The message completes by an
    /// [`Event::Answered`] with the old value.
    pub fn execute(&mut self, link: LinkId, atomic: &Atomic, payload: P) -> Sent<P> {
        self.call(link, Kind::Atomic, &atomic.encode(), OLD_VALUE, payload)
    }

    /// Sends a call without data, whose reply has `length` bytes.
    fn call(
        &mut self,
        link: LinkId,
        kind: Kind,
        request: &[u8],
        length: usize,
        payload: P,
    ) -> Sent<P> {
        let Some(link) = self.usable(link) else {
            return Sent::Refused(payload);
        };
        let peer = self.links[link].peer;
        let call = self.calls.add(peer, length, Some(payload));
        let bytes = [&call.to_le_bytes()[..], request].concat();
        self.request(link, kind, bytes, None)
    }

    pub(super) fn request(
        &mut self,
        link: LinkId,
        kind: Kind,
        bytes: Vec<u8>,
        data: Option<Done<P>>,
    ) -> Sent<P> {
        let first = !self.links[link].has_output();
        let number = self.number(link);
        self.links[link].push_bytes(kind, bytes, data, number);
        self.start(link, first)
    }

    /// Handles a request or a reply.
    pub(super) fn serve(&mut self, link: LinkId, kind: Kind, bytes: &[u8]) -> Result<(), Foreign> {
        if kind == Kind::Detach {
            self.detach_channels(self.links[link].peer);
            return Ok(());
        }
        let is_call = matches!(kind, Kind::Read | Kind::Atomic | Kind::Reply);
        let Some((call, rest)) = bytes.split_first_chunk::<CALL>().filter(|_| is_call) else {
            return Ok(());
        };
        let call = u64::from_le_bytes(*call);
        match kind {
            Kind::Read => {
                let target = rest.first_chunk().map(Target::decode).ok_or(Foreign)?;
                let most = self.settings.block - HEADER - CALL;
                if target.length > most as u64 {
                    return Err(Foreign);
                }
                let mut data = Vec::new();
                self.windows.read(&target, &mut data).ok_or(Foreign)?;
                self.reply(link, call, data)
            }
            Kind::Atomic => {
                let atomic = Atomic::decode(rest.first_chunk().ok_or(Foreign)?)?;
                let old = self.windows.execute(&atomic).ok_or(Foreign)?;
                self.reply(link, call, old.to_le_bytes().to_vec())
            }
            Kind::Reply => {
                let peer = self.links[link].peer;
                match self.calls.answered(peer, call, rest.len()) {
                    Answered::Complete(payload) => self.events.push(Event::Answered {
                        payload,
                        data: rest.to_vec(),
                    }),
                    Answered::Later => {}
                    Answered::Unexpected => return Err(Foreign),
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Replies to a call.
    pub(super) fn reply(&mut self, link: LinkId, call: u64, data: Vec<u8>) -> Result<(), Foreign> {
        // The link fails during this round if an earlier frame was wrong. Without another link, the
        // caller is lost.
        let Some(link) = self.usable(link) else {
            return Ok(());
        };
        let bytes = [&call.to_le_bytes()[..], &data].concat();
        let first = !self.links[link].has_output();
        let number = self.number(link);
        self.links[link].push_bytes(Kind::Reply, bytes, None, number);
        if first && matches!(self.links[link].state, State::Ready(_)) {
            self.flush(link);
        }
        Ok(())
    }
}
