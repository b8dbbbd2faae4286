// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls: requests to a peer's process that wait for its reply.

use std::collections::HashMap;

/// A call that is not complete.
#[derive(Debug)]
struct Call<P> {
    /// The index of the called peer.
    peer: usize,
    /// Number of bytes that the reply must have.
    length: usize,
    /// The message of Open MPI, unless a link still has it.
    payload: Option<P>,
    /// Whether the reply has arrived.
    answered: bool,
}

/// The effect of a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Answered<P> {
    /// The call is complete.
    Complete(P),
    /// The call is complete once its link has finished with the message.
    Later,
    /// There is no such call, or its reply has another length.
    Unexpected,
}

/// The calls that are not complete, by number. A call is complete once the peer has replied and no
/// link has the call's message any more.
#[derive(Debug)]
pub struct Calls<P> {
    next: u64,
    open: HashMap<u64, Call<P>>,
}

impl<P> Default for Calls<P> {
    fn default() -> Self {
        Self {
            next: 0,
            open: HashMap::new(),
        }
    }
}

impl<P> Calls<P> {
    /// Adds a call to `peer`, whose reply will have `length` bytes. Without `payload`, a link will
    /// [finish](Self::finished) with the message. Returns the call's number.
    pub fn add(&mut self, peer: usize, length: usize, payload: Option<P>) -> u64 {
        self.next += 1;
        let call = Call {
            peer,
            length,
            payload,
            answered: false,
        };
        self.open.insert(self.next, call);
        self.next
    }

    /// Handles a reply of `length` bytes that `peer` has sent.
    pub fn answered(&mut self, peer: usize, number: u64, length: usize) -> Answered<P> {
        let Some(call) = self.open.get_mut(&number) else {
            return Answered::Unexpected;
        };
        if (call.peer, call.length, call.answered) != (peer, length, false) {
            return Answered::Unexpected;
        }
        call.answered = true;
        match call.payload.take() {
            Some(payload) => {
                self.open.remove(&number);
                Answered::Complete(payload)
            }
            None => Answered::Later,
        }
    }

    /// Takes the message of a call from its link, which has sent it. Returns the message if the
    /// call is complete.
    pub fn finished(&mut self, number: u64, payload: P) -> Option<P> {
        match self.open.get_mut(&number) {
            Some(call) if !call.answered => {
                call.payload = Some(payload);
                None
            }
            _ => {
                self.open.remove(&number);
                Some(payload)
            }
        }
    }

    /// Removes a call whose message was never sent.
    pub fn forget(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// Removes the calls to `peer`, and returns the messages that no link has.
    pub fn abandon(&mut self, peer: usize) -> Vec<P> {
        let mut gone = Vec::new();
        self.open.retain(|_, call| {
            let stays = call.peer != peer;
            if !stays {
                gone.extend(call.payload.take());
            }
            stays
        });
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_complete_after_its_reply_and_its_message() {
        let mut calls = Calls::default();
        let read = calls.add(1, 8, Some("read"));
        let (first, second) = (calls.add(1, 0, None), calls.add(1, 0, None));
        assert_eq!(calls.answered(1, read, 8), Answered::Complete("read"));
        assert_eq!(calls.answered(1, first, 0), Answered::Later);
        assert_eq!(calls.finished(first, "write"), Some("write"));
        assert_eq!(calls.finished(second, "write"), None);
        assert_eq!(calls.answered(1, second, 0), Answered::Complete("write"));
        assert!(calls.open.is_empty());
    }

    #[test]
    fn a_reply_that_nobody_waits_for_is_unexpected() {
        let mut calls = Calls::default();
        let read = calls.add(1, 8, Some("read"));
        assert_eq!(calls.answered(2, read, 8), Answered::Unexpected);
        assert_eq!(calls.answered(1, read, 9), Answered::Unexpected);
        assert_eq!(calls.answered(1, read + 1, 8), Answered::Unexpected);
        let write = calls.add(1, 0, None);
        assert_eq!(calls.answered(1, write, 0), Answered::Later);
        assert_eq!(calls.answered(1, write, 0), Answered::Unexpected);
        calls.add(2, 8, Some("other"));
        assert_eq!(calls.abandon(1), ["read"]);
        assert_eq!(calls.answered(1, read, 8), Answered::Unexpected);
        assert_eq!(calls.open.len(), 1);
    }
}
