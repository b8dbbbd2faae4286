// SPDX-License-Identifier: GPL-2.0

//! Sleeping on a socket until something about it changes.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)

use super::{
    bindings,
    sock::{Guard, Protocol, Sock},
};
use crate::net::errno::prelude::*;
use core::mem::MaybeUninit;
use kernel::ffi::c_long;

/// Who is woken by one event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// Everyone who waits.
    Shared,
    /// One of those who wait, as with `accept`.
    Exclusive,
}

impl<P: Protocol> Guard<'_, P> {
    /// Sleeps, with the lock released, until `ready` holds or `timeout` (jiffies) has run down.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when the time is up, `ERESTARTSYS` or `EINTR` after a signal, `EPIPE` when another
    /// call has disconnected the socket.
    pub(crate) fn wait(
        &mut self,
        timeout: &mut c_long,
        waiter: Waiter,
        mut ready: impl FnMut(&Sock<P>, &mut P::State) -> bool,
    ) -> Result {
        {
            let (sock, state) = self.parts();
            if ready(sock, state) {
                return Ok(());
            }
            if *timeout == 0 {
                return Err(EAGAIN);
            }
        }
        let mut entry = MaybeUninit::<bindings::wait_queue_entry>::zeroed();
        let entry = entry.as_mut_ptr();
        let sk = self.sock().as_ptr();
        // SAFETY: The entry lives on this stack until it is taken off the queue below, on every
        // path. The socket has a descriptor, hence a wait queue, as long as a call is in it.
        unsafe {
            bindings::init_wait_woken(entry);
            match waiter {
                Waiter::Shared => bindings::add_wait_queue(bindings::sk_sleep(sk), entry),
                Waiter::Exclusive => {
                    bindings::add_wait_queue_exclusive(bindings::sk_sleep(sk), entry)
                }
            }
        }
        let result = loop {
            {
                let (sock, state) = self.parts();
                if ready(sock, state) {
                    break Ok(());
                }
            }
            if *timeout == 0 {
                break Err(EAGAIN);
            }
            if kernel::current!().signal_pending() {
                // SAFETY: Computes an errno from the time left.
                break Err(Error::from_errno(unsafe {
                    bindings::sock_intr_errno(*timeout)
                }));
            }
            let before = self.sock().disconnects();
            // SAFETY: The entry is on the queue with the `woken` function, which makes a wake-up
            // between the test above and the sleep count.
            *timeout = self.unlocked(|| unsafe { bindings::wait_woken(entry, *timeout) });
            if self.sock().disconnects() != before {
                break Err(EPIPE);
            }
        };
        // SAFETY: The entry is on the queue; the descriptor, and so the queue, is still there.
        unsafe { bindings::remove_wait_queue(bindings::sk_sleep(sk), entry) };
        result
    }
}
