// SPDX-License-Identifier: GPL-2.0

//! A packet is removed from its queue while a cursor points to it.

use crate::net::seq_queue::{Cursor, SeqQueue, Sequenced};

fn take<N: Sequenced>(queue: &mut SeqQueue<N>) {
    let cursor = queue.cursor(1);
    #[cfg(misuse)]
    let _ = queue.pop(); //~ E0499
    drop::<Cursor<'_, N>>(cursor);
}
