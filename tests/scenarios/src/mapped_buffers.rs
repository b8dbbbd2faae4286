// SPDX-License-Identifier: GPL-2.0-only

//! Tests a send buffer of a mapped socket that grows while a writer waits for room.

use guest::asleep::thread_id;
use guest::mapped::{known, pair, MAPPED};
use guest::prelude::*;
use guest::priority::first_of_all;
use guest::processor::run_on;
use guest::transfer::fill;

scenarios! {
    direct mapped_writer_continues_when_its_send_buffer_grows = larger_buffer;
}

/// The writer and the thread that raises the limit run on the same processor. The writer has the
/// higher priority, so it runs as soon as anything wakes it.
fn larger_buffer(lab: &Lab) -> Outcome {
    known(lab)?;
    let [client, server] = pair(lab, MAPPED, 872)?;
    server.set_so(libc::SO_RCVBUF, 0)?;
    client.set_so(libc::SO_SNDBUF, 0)?;
    fill(&client)?;
    let number = AtomicUsize::new(0);
    beside(
        || {
            run_on(0)?;
            first_of_all()?;
            number.store(thread_id() as usize, Ordering::Relaxed);
            client.send(&[1; 1000], 0)?;
            Ok(())
        },
        || {
            run_on(0)?;
            eventually("the writer sleeps", || {
                let path = format!("/proc/self/task/{}/stat", number.load(Ordering::Relaxed));
                Ok(fs::read_to_string(path).is_ok_and(|stat| stat.contains(") S ")))
            })?;
            client.set_so(libc::SO_SNDBUF, 200_000)?;
            Ok(())
        },
    )?;
    Ok(())
}
