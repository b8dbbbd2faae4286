// SPDX-License-Identifier: GPL-2.0-only

//! Compares TCP and ESP when many threads and processes use one stream.

use super::super::sockets::waiting::receives_shut_down;
use super::super::Shown;
use crate::prelude::*;
use guest::asleep::alias;

behaviours! {
    stream stream_threads_read_one_stream;
    connected_streams stream_threads_write_one_stream;
    stream stream_threads_work_both_ways;
    stream stream_threads_accept_one_connection_each;
    connected_streams stream_threads_woken_by_one_packet;
    stream stream_threads_open_and_close;
    stream stream_threads_query_during_a_transfer;
    stream stream_close_beside_a_send_that_waits;
    stream stream_close_beside_an_accept_that_waits;
    connected_streams stream_shutdown_beside_receives_that_wait;
    stream stream_shutdown_beside_accepts_that_wait;
    connected_streams stream_shutdown_amid_a_transfer;
    connected_streams stream_receiver_closes_amid_a_transfer;
    stream stream_fork_shares_a_listener;
}

/// Receives to the end of the stream. Returns the number of bytes, and how often each byte value
/// came.
fn drain(socket: &Socket) -> Result<(usize, [usize; 256])> {
    let mut buffer = vec![0; 5000];
    let (mut total, mut counts) = (0, [0; 256]);
    loop {
        let got = socket.receive(&mut buffer, 0).context("receiving")?;
        if got == 0 {
            return Ok((total, counts));
        }
        total += got;
        for byte in &buffer[..got] {
            counts[usize::from(*byte)] += 1;
        }
    }
}

/// Runs `work` in `count` threads, and passes each thread its number.
fn threads<T: Send>(count: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        all.into_iter().map(|thread| joined(thread)?).collect()
    })
}

fn stream_threads_read_one_stream(side: &Side<'_>, trace: &Trace) -> Outcome {
    const TOTAL: usize = 400_000;
    let (a, b) = side.stream(7)?;
    let send = || {
        a.send_all(&vec![1; TOTAL])?;
        a.shutdown(libc::SHUT_WR)?;
        Ok(())
    };
    let (read, ()) = beside(|| threads(4, |_| Ok(drain(&b)?.0)), send)?;
    trace.see("bytes read by all", read.iter().sum::<usize>());
    trace.see("threads that saw the end", read.len());
    Ok(())
}

fn stream_threads_write_one_stream(trace: &Trace, (a, b): Pair) -> Outcome {
    let send = || {
        threads(4, |number| {
            for _ in 0..100 {
                a.send_all(&[number as u8; 1000])?;
            }
            Ok(())
        })?;
        a.shutdown(libc::SHUT_WR)?;
        Ok(())
    };
    let ((total, counts), ()) = beside(|| drain(&b), send)?;
    trace.see("bytes", total);
    for (number, count) in counts[..4].iter().enumerate() {
        trace.see(&format!("of thread {number}"), *count);
    }
    Ok(())
}

fn stream_threads_work_both_ways(side: &Side<'_>, trace: &Trace) -> Outcome {
    const EACH: usize = 150_000;
    let (a, b) = side.stream(7)?;
    let end = |socket: &Socket| -> Result<usize> {
        let running = AtomicUsize::new(2);
        let totals = threads(4, |number| {
            if number % 2 == 0 {
                socket.send_all(&vec![9; EACH])?;
                // The last writer to finish shuts down the sending half.
                if running.fetch_sub(1, Ordering::SeqCst) == 1 {
                    socket.shutdown(libc::SHUT_WR)?;
                }
                return Ok(0);
            }
            Ok(drain(socket)?.0)
        })?;
        Ok(totals.iter().sum())
    };
    let (at_a, at_b) = beside(|| end(&a), || end(&b))?;
    trace.see("bytes at one end", at_a);
    trace.see("bytes at the other", at_b);
    Ok(())
}

fn stream_threads_accept_one_connection_each(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 16)?;
    let mut clients = Vec::new();
    let accepted = crowd(
        libc::SYS_accept4,
        4,
        || listener.accept(0),
        |_| {
            for number in 0..4u8 {
                let client = side.dial(7)?;
                client.send(&[number], 0)?;
                clients.push(client);
            }
            Ok(())
        },
    )?;
    let mut all = Vec::new();
    for result in accepted {
        let (server, _) = result.context("accept")?;
        let mut byte = [0];
        server.receive(&mut byte, 0)?;
        all.push(byte[0]);
    }
    all.sort_unstable();
    trace.see("each got one", format!("{all:?}"));
    listener.set_nonblocking(true)?;
    trace.see("no other", listener.accept(0));
    Ok(())
}

fn stream_threads_woken_by_one_packet(trace: &Trace, (a, b): Pair) -> Outcome {
    let read = crowd(
        libc::SYS_recvfrom,
        3,
        || {
            let mut byte = [0];
            b.receive(&mut byte, 0).map(|length| (length, byte[0]))
        },
        |_| {
            a.send(b"1", 0)?;
            a.send(b"23", 0)?;
            Ok(())
        },
    )?;
    let mut all = read.into_iter().collect::<std::io::Result<Vec<_>>>()?;
    all.sort_unstable();
    trace.see("each read one byte", format!("{all:?}"));
    trace.receive("nothing is left", &b, 1, libc::MSG_DONTWAIT);
    Ok(())
}

fn stream_threads_open_and_close(side: &Side<'_>, trace: &Trace) -> Outcome {
    const ROUNDS: usize = 20;
    let listener = side.listener(7, 64)?;
    let serve = || {
        threads(4, |_| {
            for _ in 0..ROUNDS {
                let (server, _) = listener.accept(0)?;
                let byte = server.receive_all(3)?;
                server.send_all(&byte)?;
            }
            Ok(())
        })
    };
    let call = || {
        // To make a socket, `side.socket` moves the calling thread into the host's network
        // namespace and back. The sockets are made here, so that the threads need not do this.
        let sockets: Vec<Socket> = (0..4 * ROUNDS)
            .map(|_| side.socket(&side.lab.a))
            .collect::<Result<_>>()?;
        let sockets = &sockets;
        let answered = threads(4, |number| {
            let mut answered = 0;
            for socket in &sockets[number * ROUNDS..(number + 1) * ROUNDS] {
                socket.connect_bytes(&side.far(7))?;
                socket.send_all(b"abc")?;
                let byte = socket.receive_all(3)?;
                answered += usize::from(&byte == b"abc");
                socket.shutdown(libc::SHUT_RDWR)?;
            }
            Ok(answered)
        })?;
        Ok(answered.iter().sum::<usize>())
    };
    let (_, answered) = beside(serve, call)?;
    trace.see("connections that answered", answered);
    Ok(())
}

fn stream_threads_query_during_a_transfer(side: &Side<'_>, trace: &Trace) -> Outcome {
    const TOTAL: usize = 300_000;
    let (a, b) = side.stream(7)?;
    let (name, peer) = (a.local_name()?, a.peer_name()?);
    let done = AtomicUsize::new(0);
    let ask = || {
        threads(2, |_| {
            let mut rounds = 0;
            while done.load(Ordering::SeqCst) == 0 || rounds == 0 {
                ensure!(a.local_name()? == name, "another name");
                ensure!(a.peer_name()? == peer, "another peer");
                a.set_so(libc::SO_SNDBUF, 20_000 + rounds % 2)?;
                failed_with(&a, 0)?;
                a.queued(libc::TIOCOUTQ)?;
                a.poll(libc::POLLIN | libc::POLLOUT, std::time::Duration::ZERO)?;
                rounds += 1;
            }
            Ok(())
        })
    };
    let flow = || {
        let send = || {
            let sent = a.send_all(&vec![5; TOTAL]);
            done.store(1, Ordering::SeqCst);
            sent?;
            a.shutdown(libc::SHUT_WR)?;
            Ok(())
        };
        let ((total, _), ()) = beside(|| drain(&b), send)?;
        Ok(total)
    };
    let (_, total) = beside(ask, flow)?;
    trace.see("bytes", total);
    Ok(())
}

fn stream_close_beside_a_send_that_waits(side: &Side<'_>, trace: &Trace) -> Outcome {
    const TOTAL: usize = 8 << 20;
    let (a, b) = side.stream(7)?;
    let other = alias(&a);
    let bytes = vec![3; TOTAL];
    let (slept, sent, (total, _)) = asleep(
        libc::SYS_sendto,
        || other.send(&bytes, 0),
        |_| {
            drop(a);
            drain(&b)
        },
    )?;
    trace.see("it waited", slept);
    trace.see("it sends all", sent);
    trace.see("and all is received", total);
    Ok(())
}

fn stream_close_beside_an_accept_that_waits(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let other = alias(&listener);
    let (slept, accepted, client) = asleep(
        libc::SYS_accept4,
        || other.accept(0),
        |_| {
            drop(listener);
            side.dial(7)
        },
    )?;
    trace.see("it waited", slept);
    trace.see("it accepts", accepted.shown());
    client.send(b"hello", 0)?;
    trace.receive("which receives", &accepted?.0, 10, 0);
    // The sleeping `accept` kept the listener open, and has returned. So the listener is closed
    // now.
    let late = side.socket(&side.lab.a)?;
    trace.see("connect then", late.connect_bytes(&side.far(7)));
    Ok(())
}

fn stream_shutdown_beside_receives_that_wait(trace: &Trace, (_a, b): Pair) -> Outcome {
    receives_shut_down(trace, &b)
}

fn stream_shutdown_beside_accepts_that_wait(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let got = crowd(
        libc::SYS_accept4,
        3,
        || listener.accept(0).map(drop),
        |_| {
            listener.shutdown(libc::SHUT_RDWR)?;
            Ok(())
        },
    )?;
    for result in got {
        trace.see("one accepts", result);
    }
    trace.see("another accept", listener.accept(0));
    let late = side.socket(&side.lab.a)?;
    trace.see("connect then", late.connect_bytes(&side.far(7)));
    Ok(())
}

/// Sends until a call fails. Returns the number of bytes that were accepted, and the error.
fn send_on(socket: &Socket) -> (usize, std::io::Error) {
    let chunk = vec![8; 10_000];
    let mut total = 0;
    loop {
        match socket.send(&chunk, libc::MSG_NOSIGNAL) {
            Ok(sent) => total += sent,
            Err(error) => return (total, error),
        }
    }
}

fn stream_shutdown_amid_a_transfer(trace: &Trace, (a, b): Pair) -> Outcome {
    let receive = || {
        let some = b.receive_all(100_000)?;
        a.shutdown(libc::SHUT_WR)?;
        Ok(drain(&b)?.0 + some.len())
    };
    let (received, (sent, error)) = beside(receive, || Ok(send_on(&a)))?;
    trace.see("all that was taken is received", received == sent);
    trace.see("the sender's error", std::io::Result::<()>::Err(error));
    trace.see("the other half", b.send(b"works", 0));
    trace.receive("receive", &a, 10, 0);
    Ok(())
}

fn stream_receiver_closes_amid_a_transfer(trace: &Trace, (a, b): Pair) -> Outcome {
    let receive = move || {
        b.receive_all(100_000)?;
        // Wait for bytes that this end never reads. Closing it with unread data resets the
        // connection.
        await_events(&b, libc::POLLIN)?;
        drop(b);
        Ok(())
    };
    let ((), (_, error)) = beside(receive, || Ok(send_on(&a)))?;
    trace.see("the sender's error", std::io::Result::<()>::Err(error));
    trace.see("the next", a.send(b"x", libc::MSG_NOSIGNAL));
    trace.receive("receive", &a, 10, 0);
    trace.poll("poll", &a)
}

fn stream_fork_shares_a_listener(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let mut children = Vec::new();
    for _ in 0..2 {
        children.push(start_process(|| {
            let serve = || -> Result<()> {
                let (server, _) = listener.accept(0)?;
                server.send_all(b"hello")?;
                Ok(())
            };
            i32::from(serve().is_err())
        })?);
    }
    drop(listener);
    for _ in 0..2 {
        let client = side.dial(7)?;
        trace.receive("receive", &client, 100, 0);
        trace.receive("the end", &client, 100, 0);
    }
    for child in children {
        trace.see(
            "a child ends",
            format!("{:?}", waitpid(child, None)?).contains(", 0)"),
        );
    }
    let late = side.socket(&side.lab.a)?;
    trace.see("connect then", late.connect_bytes(&side.far(7)));
    Ok(())
}
