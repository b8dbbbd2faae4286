// SPDX-License-Identifier: GPL-2.0

//! A packet that was found by its sequence number is used after another call may have removed it
//! from the queue.

use crate::net::seq_queue::{SeqQueue, Sequenced};

fn pop_under_a_borrow<N: Sequenced>(queue: &mut SeqQueue<N>) {
    let found = queue.seek(1);
    #[cfg(misuse)]
    let _ = queue.pop(); //~ E0499
    drop(found);
}
