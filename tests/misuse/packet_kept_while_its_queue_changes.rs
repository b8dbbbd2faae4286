// SPDX-License-Identifier: GPL-2.0

//! A packet found by its number is used after it may have left the queue.

use crate::net::numbered::{Numbered, NumberedQueue};

fn pop_under_a_borrow<N: Numbered>(queue: &mut NumberedQueue<N>) {
    let found = queue.seek(1);
    #[cfg(misuse)]
    let _ = queue.pop(); //~ E0499
    drop(found);
}
