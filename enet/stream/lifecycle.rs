// SPDX-License-Identifier: GPL-2.0

//! The parts of an ESP connection's life outside its engine: the connection's place in a listener's
//! queue, its final error, and its accounting as an orphan.

use super::accept::{Offspring, SharedQueue};
use crate::net::errno::prelude::*;
use crate::net::limits;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Memory of a connection in bytes, rounded up, apart from the data in its write queue.
const CONNECTION: usize = 4096;

/// Memory of all orphans (connections without a descriptor), in bytes. The limit on this memory
/// applies to the whole machine, as in TCP, so further namespaces do not raise the limit.
static ORPHANED: AtomicUsize = AtomicUsize::new(0);

/// The listener's queue that a half-open child is in, until the child is established or has ended.
pub(super) struct Parent<P: Offspring>(SharedQueue<P>);

impl<P: Offspring> Parent<P> {
    /// Creates a half-open child's reference to `queue`.
    pub(super) fn new(queue: SharedQueue<P>) -> Self {
        Parent(queue)
    }

    /// Returns the queue.
    pub(super) fn queue(&self) -> &SharedQueue<P> {
        &self.0
    }
}

/// The state of a connection's life outside its engine.
pub(super) struct Life<P: Offspring> {
    /// The listener's queue, if the connection is a half-open child.
    parent: Option<Parent<P>>,
    /// The error that every later call reports, if the connection ended with one.
    ended: Option<Error>,
    /// The connection's share of [`ORPHANED`], in bytes.
    orphaned: usize,
}

impl<P: Offspring> Life<P> {
    /// Creates the state for a connection that a call opens.
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

    /// Returns the listener's queue, if the connection is a half-open child.
    pub(super) fn parent(&self) -> Option<&Parent<P>> {
        self.parent.as_ref()
    }

    /// Removes and returns the listener's queue, if the connection is a half-open child.
    pub(super) fn take_parent(&mut self) -> Option<Parent<P>> {
        self.parent.take()
    }

    /// Returns whether the connection, if it is a half-open child, can enter the accept queue.
    pub(super) fn can_be_accepted(&self) -> bool {
        let parent = self.parent.as_ref();
        parent.is_none_or(|parent| parent.queue().lock().has_room())
    }

    /// Makes every later call report `error`.
    pub(super) fn end_with(&mut self, error: Error) {
        self.ended = Some(error);
    }

    /// Returns the error that every call reports, if the connection ended with one.
    pub(super) fn ended(&self) -> Option<Error> {
        self.ended
    }

    /// Counts a new orphan with `queued` bytes of memory in its write queue. Returns `false` if
    /// orphans already hold a 32nd of the machine's memory. The limit is needed because no limit of
    /// descriptors applies to orphans, and a peer that does not read keeps them alive.
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
        // This check avoids contention for the counter between processors that close connections.
        if self.orphaned != 0 {
            ORPHANED.fetch_sub(self.orphaned, Relaxed);
        }
    }
}
