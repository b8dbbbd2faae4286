// SPDX-License-Identifier: GPL-2.0

//! The life of an ESP connection outside its engine: where it comes from, how it ended, and what it
//! counts for when its descriptor is closed.

use super::accept::{Offspring, SharedQueue};
use crate::net::errno::prelude::*;
use crate::net::limits;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Memory of a connection beside the data in its write queue, bytes, rounded up.
const CONNECTION: usize = 4096;

/// Memory of all connections whose descriptors are closed, bytes. The limit is the machine's, as
/// TCP's is: a namespace more does not raise it.
static ORPHANED: AtomicUsize = AtomicUsize::new(0);

/// The queue that a half-open child is in, until it is connected or over.
pub(super) struct Parent<P: Offspring>(SharedQueue<P>);

impl<P: Offspring> Parent<P> {
    /// The queue `queue`.
    pub(super) fn new(queue: SharedQueue<P>) -> Self {
        Parent(queue)
    }

    /// The queue.
    pub(super) fn queue(&self) -> &SharedQueue<P> {
        &self.0
    }
}

/// The life.
pub(super) struct Life<P: Offspring> {
    /// Of a half-open child.
    parent: Option<Parent<P>>,
    /// Why the connection ended, if every later call is to report it.
    ended: Option<Error>,
    /// The connection's part of [`ORPHANED`], bytes.
    orphaned: usize,
}

impl<P: Offspring> Life<P> {
    /// Of a connection that a call opens.
    pub(super) fn new() -> Self {
        Life {
            parent: None,
            ended: None,
            orphaned: 0,
        }
    }

    /// Makes the connection a half-open child.
    pub(super) fn set_parent(&mut self, parent: Parent<P>) {
        self.parent = Some(parent);
    }

    /// The queue that a half-open child is in.
    pub(super) fn parent(&self) -> Option<&Parent<P>> {
        self.parent.as_ref()
    }

    /// The queue that a half-open child was in.
    pub(super) fn take_parent(&mut self) -> Option<Parent<P>> {
        self.parent.take()
    }

    /// Whether `accept` can be given the connection, as far as it is a half-open child.
    pub(super) fn can_be_accepted(&self) -> bool {
        let parent = self.parent.as_ref();
        parent.is_none_or(|parent| parent.queue().lock().has_room())
    }

    /// Has every later call report `error`.
    pub(super) fn end_with(&mut self, error: Error) {
        self.ended = Some(error);
    }

    /// The error that every call reports.
    pub(super) fn ended(&self) -> Option<Error> {
        self.ended
    }

    /// Counts a connection whose descriptor is closed and which goes on without, with `queued`
    /// bytes of memory in its write queue. `false` if all of these hold a 32nd of the machine's
    /// memory already: no descriptors bound their number, and a peer that does not read lets them
    /// live.
    pub(super) fn count_orphan(&mut self, queued: usize) -> bool {
        let bytes = queued.saturating_add(CONNECTION);
        if ORPHANED.fetch_add(bytes, Relaxed) > limits::memory_size() / 32 {
            ORPHANED.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.orphaned = bytes;
        true
    }
}

impl<P: Offspring> Drop for Life<P> {
    fn drop(&mut self) {
        // Every processor that closes connections would wait for the counter's cache line.
        if self.orphaned != 0 {
            ORPHANED.fetch_sub(self.orphaned, Relaxed);
        }
    }
}
