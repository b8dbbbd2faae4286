// SPDX-License-Identifier: GPL-2.0

//! A packet is removed from its queue while a cursor points to it.

use crate::net::numbered::{Cursor, Numbered, NumberedQueue};

fn take<N: Numbered>(queue: &mut NumberedQueue<N>) {
    let cursor = queue.cursor(1);
    #[cfg(misuse)]
    let _ = queue.pop(); //~ E0499
    drop::<Cursor<'_, N>>(cursor);
}
