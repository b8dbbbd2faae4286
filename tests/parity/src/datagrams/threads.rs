// SPDX-License-Identifier: GPL-2.0-only

//! Compares UDP and EDP when many threads and processes use one socket.

use super::super::sockets::waiting::receives_shut_down;
use crate::prelude::*;

behaviours! {
    connected_datagrams datagram_threads_receive_one_each;
    connected_datagrams datagram_threads_send_by_one_socket;
    connected_datagrams datagram_shutdown_beside_receives_that_wait;
    datagram datagram_fork_shares_a_socket;
}

fn datagram_threads_receive_one_each(trace: &Trace, (a, b): Pair) -> Outcome {
    let got = crowd(
        libc::SYS_recvfrom,
        4,
        || {
            let mut bytes = [0; 10];
            b.receive(&mut bytes, 0)
                .map(|length| bytes[..length].to_vec())
        },
        |_| {
            for number in 0..4u8 {
                a.send(&[number, number], 0)?;
            }
            Ok(())
        },
    )?;
    let mut all = got.into_iter().collect::<std::io::Result<Vec<_>>>()?;
    all.sort_unstable();
    trace.see("each got one", format!("{all:?}"));
    trace.receive("no other", &b, 10, libc::MSG_DONTWAIT);
    Ok(())
}

fn datagram_threads_send_by_one_socket(trace: &Trace, (a, b): Pair) -> Outcome {
    thread::scope(|scope| {
        let send = |number: u8| {
            let a = &a;
            scope.spawn(move || -> Result<()> {
                for _ in 0..20 {
                    a.send(&[number; 5], 0)?;
                }
                Ok(())
            })
        };
        let all: Vec<_> = (0..4).map(send).collect();
        all.into_iter().try_for_each(|thread| joined(thread)?)
    })?;
    let mut counts = [0; 4];
    for _ in 0..80 {
        let mut bytes = [9; 10];
        let length = b.receive(&mut bytes, 0)?;
        if bytes[..length].iter().all(|byte| *byte == bytes[0]) && length == 5 {
            counts[usize::from(bytes[0])] += 1;
        }
    }
    trace.see("whole datagrams of each", format!("{counts:?}"));
    Ok(())
}

fn datagram_shutdown_beside_receives_that_wait(trace: &Trace, (a, b): Pair) -> Outcome {
    receives_shut_down(trace, &b)?;
    trace.receive("receive", &a, 10, 0);
    Ok(())
}

fn datagram_fork_shares_a_socket(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    let child = start_process(|| {
        let answer = b
            .receive(&mut [0; 10], 0)
            .and_then(|_| b.send(b"from the child", 0));
        i32::from(answer.is_err())
    })?;
    drop(b);
    a.send(b"go", 0)?;
    let status = waitpid(child, None)?;
    trace.see("the child ends", format!("{status:?}").contains(", 0)"));
    trace.receive("receive", &a, 100, 0);
    trace.see("the port is free", side.bound(&side.lab.b, 7).is_ok());
    Ok(())
}
