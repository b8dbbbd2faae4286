// SPDX-License-Identifier: GPL-2.0-only

//! Compares zero-copy sends (`MSG_ZEROCOPY`) and their completions over TCP and ESP.

use io_uring::{opcode, types::Fd};

use crate::prelude::*;
use guest::zero_copy::{completed, completed_from, is_on, none_left, switch, Copies};

behaviours! {
    connected_streams stream_zero_copy, differs(&[Difference::new("SO_ZEROCOPY", "success", "EOPNOTSUPP")]);
    stream stream_zero_copy_is_switched_on;
    connected_streams stream_zero_copy_sends_are_completed;
    connected_streams stream_zero_copy_without_the_option;
    connected_streams stream_zero_copy_beside_other_sends;
    connected_streams stream_zero_copy_of_small_messages;
    connected_streams stream_zero_copy_that_fails_is_not_completed;
    connected_streams stream_zero_copy_of_part_of_the_message;
    connected_streams stream_zero_copy_ends_with_the_connection;
    connected_streams stream_zero_copy_ends_with_disconnecting;
    connected_streams stream_zero_copy_readiness;
    connected_streams stream_zero_copy_by_uring;
    connected_streams stream_zero_copy_of_a_registered_buffer;
}

const ZEROCOPY: i32 = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;

/// Adds to the trace whether the sends were copied. On a virtual device the receiver gets a copy,
/// so both TCP and ESP report that they copied.
fn see(trace: &Trace, what: &str, copies: Copies) {
    trace.see(what, format!("{copies:?} copied"));
}

fn stream_zero_copy(trace: &Trace, (client, server): Pair) -> Outcome {
    let flagged = client.send(b"abc", libc::MSG_ZEROCOPY);
    trace.see("the flag alone does nothing", flagged);
    trace.see("SO_ZEROCOPY", client.set_so(libc::SO_ZEROCOPY, 1));
    trace.receive("what came", &server, 100, 0);
    let mut ring = Ring::new()?;
    let bytes = *b"by io_uring";
    let fd = Fd(client.as_raw_fd());
    let entry = opcode::SendZc::new(fd, bytes.as_ptr(), bytes.len() as u32).build();
    // SAFETY: The buffer lives to the end of this function. The function waits for the
    // notification, if there is one.
    unsafe { ring.start(1, entry) }?;
    let sent = ring.wait(1)?;
    trace.see("send", sent);
    let notified = io_uring::cqueue::more(sent.flags);
    trace.see("a notification follows", notified);
    if sent.result > 0 {
        trace.receive("what came by it", &server, 100, 0);
    }
    if notified {
        let notification = ring.wait(1)?;
        trace.see("it is one", io_uring::cqueue::notif(notification.flags));
    }
    Ok(())
}

fn stream_zero_copy_is_switched_on(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    trace.see("at first", is_on(&listener));
    for value in [2, -1, 0, 1] {
        trace.see(&format!("set to {value}"), switch(&listener, value));
        trace.see("is", is_on(&listener));
    }
    let client = side.dial(7)?;
    let (server, _) = listener.accept(0)?;
    trace.see("accepted", is_on(&server));
    trace.see("connected", is_on(&client));
    trace.see("its send", server.send(b"hello", ZEROCOPY));
    see(trace, "completed", completed(&server, 1)?);
    trace.see("switched off", switch(&server, 0));
    trace.see("another", server.send(b"hello", ZEROCOPY));
    acknowledged(&server)?;
    none_left(&server)
}

fn stream_zero_copy_sends_are_completed(trace: &Trace, (client, server): Pair) -> Outcome {
    switch(&client, 1)?;
    let bytes = random(3_000_000, 7);
    let mut sends = 0;
    let send = || {
        let mut left = &bytes[..];
        for length in [
            1,
            1488,
            1489,
            1490,
            4096,
            65_536,
            100_000,
            1_000_000,
            usize::MAX,
        ] {
            let (mut part, behind) = left.split_at(length.min(left.len()));
            left = behind;
            while !part.is_empty() {
                part = &part[client.send(part, ZEROCOPY)?..];
                sends += 1;
            }
        }
        Ok(())
    };
    let receive = || Ok(server.receive_all(bytes.len())?);
    let (got, ()) = beside(receive, send)?;
    trace.see("as it was", got == bytes);
    trace.see("a call each", sends);
    see(trace, "completed", completed(&client, sends)?);
    Ok(())
}

fn stream_zero_copy_without_the_option(trace: &Trace, (client, server): Pair) -> Outcome {
    let bytes = random(100_000, 7);
    let send = || {
        let mut left = &bytes[..];
        while !left.is_empty() {
            left = &left[client.send(left, ZEROCOPY)?..];
        }
        Ok(())
    };
    let mut got = vec![0; bytes.len()];
    beside(send, || Ok(server.receive_exact(&mut got)?))?;
    trace.see("as it was", got == bytes);
    acknowledged(&client)?;
    none_left(&client)
}

/// Alternates copied and zero-copy sends. At first no packet can leave, and later all packets can.
fn stream_zero_copy_beside_other_sends(trace: &Trace, (client, server): Pair) -> Outcome {
    switch(&client, 1)?;
    let bytes = random(500_000, 7);
    let mut sends = 0;
    let send = || {
        let mut left = &bytes[..];
        let mut turn = 0_usize;
        while !left.is_empty() {
            let length = [100, 3000, 1, 1489, 20_000, 700, 64_000][turn % 7].min(left.len());
            let flags = [
                0,
                ZEROCOPY,
                ZEROCOPY,
                0,
                libc::MSG_MORE,
                ZEROCOPY | libc::MSG_MORE,
            ][turn % 6];
            let sent = client.send(&left[..length], flags | libc::MSG_NOSIGNAL)?;
            sends += u32::from(flags & libc::MSG_ZEROCOPY != 0);
            left = &left[sent..];
            turn += 1;
        }
        client.send(b".", 0)?;
        Ok(())
    };
    let receive = || Ok(server.receive_all(bytes.len() + 1)?);
    let (got, ()) = beside(receive, send)?;
    trace.see("as it was", got[..bytes.len()] == bytes);
    completed(&client, sends)?;
    Ok(())
}

fn stream_zero_copy_of_small_messages(trace: &Trace, (client, server): Pair) -> Outcome {
    switch(&client, 1)?;
    let bytes = random(2000, 7);
    let send = || {
        let mut done = 0;
        for (turn, byte) in bytes.iter().enumerate() {
            let sent = client.send(std::slice::from_ref(byte), ZEROCOPY)?;
            anyhow::ensure!(sent == 1);
            // The socket has room for the completions of some sends, but not of all. So completions
            // are read after every 50 sends.
            if turn % 50 == 49 {
                completed_from(&client, done, 50)?;
                done += 50;
            }
        }
        Ok(())
    };
    let receive = || Ok(server.receive_all(bytes.len())?);
    let (got, ()) = beside(receive, send)?;
    trace.see("as it was", got == bytes);
    Ok(())
}

fn stream_zero_copy_that_fails_is_not_completed(trace: &Trace, (client, server): Pair) -> Outcome {
    switch(&client, 1)?;
    let bad = |pieces: &[Piece<'_>]| client.send_message(pieces, ZEROCOPY, &[]);
    trace.see("unreadable", bad(&[Piece::Bad(100)]));
    trace.see("many unreadable pages", bad(&[Piece::Bad(1_000_000)]));
    trace.see("nothing", client.send(b"", ZEROCOPY));
    trace.see("urgent otherwise", client.send(b"a", ZEROCOPY).is_ok());
    see(trace, "completed", completed(&client, 1)?);
    trace.receive("received", &server, 10, 0);
    client.shutdown(libc::SHUT_WR)?;
    trace.see("after the end", client.send(b"late", ZEROCOPY));
    none_left(&client)
}

/// A call that accepts only part of its bytes counts as one send.
fn stream_zero_copy_of_part_of_the_message(trace: &Trace, (client, server): Pair) -> Outcome {
    switch(&client, 1)?;
    client.set_nonblocking(true)?;
    let bytes = random(1 << 20, 7);
    let (mut sends, mut sent) = (0, Vec::new());
    let (mut refusals, mut refused) = (0, Ok(()));
    // Packets that leave between two calls may make room for one more, so the loop ends only after
    // two refusals in a row.
    while refusals < 2 {
        match client.send(&bytes, ZEROCOPY) {
            Ok(length) => {
                sends += 1;
                sent.extend_from_slice(&bytes[..length]);
                refusals = 0;
            }
            Err(error) => {
                refused = Err(error);
                refusals += 1;
            }
        }
    }
    trace.see("at last, twice", refused);
    let got = server.receive_all(sent.len())?;
    trace.see("as it was", got == sent);
    see(trace, "completed", completed(&client, sends)?);
    client.set_nonblocking(false)?;
    trace.see("one more", client.send(b"more", ZEROCOPY));
    see(trace, "completed", completed_from(&client, sends, 1)?);
    Ok(())
}

/// Sends more bytes than the peer accepts. Then the peer resets the connection.
fn stream_zero_copy_ends_with_the_connection(trace: &Trace, (client, server): Pair) -> Outcome {
    let sends = fill(&client)?;
    trace.see("a part is there", sends > 0);
    reset(server)?;
    trace.poll_until("a reset", &client, libc::POLLHUP)?;
    completed(&client, sends)?;
    trace.see("its error", client.send(b"late", ZEROCOPY));
    none_left(&client)
}

fn stream_zero_copy_ends_with_disconnecting(trace: &Trace, (client, server): Pair) -> Outcome {
    let sends = fill(&client)?;
    // The family of this name is `AF_UNSPEC`, which disconnects.
    trace.see("disconnected", client.connect_bytes(&[0; 16]));
    completed(&client, sends)?;
    drop(server);
    Ok(())
}

/// Makes zero-copy sends until one is refused, and returns their number. The bytes are static, so
/// callers need not wait for the completions.
fn fill(client: &Socket) -> anyhow::Result<u32> {
    static BYTES: [u8; 100_000] = [7; 100_000];
    switch(client, 1)?;
    client.set_nonblocking(true)?;
    let mut sends = 0;
    while client.send(&BYTES, ZEROCOPY).is_ok() {
        sends += 1;
    }
    Ok(sends)
}

fn stream_zero_copy_readiness(trace: &Trace, (client, server): Pair) -> Outcome {
    const SO_SELECT_ERR_QUEUE: i32 = 45;
    switch(&client, 1)?;
    trace.poll("before", &client)?;
    trace.see("send", client.send(b"hello", ZEROCOPY));
    trace.poll_until("a completion", &client, libc::POLLERR)?;
    trace.see("no error", client.so(libc::SO_ERROR));
    client.set_so(SO_SELECT_ERR_QUEUE, 1)?;
    trace.poll("wanted", &client)?;
    trace.see("sends go on", client.send(b"!", 0));
    trace.receive("received", &server, 6, libc::MSG_WAITALL);
    server.send_all(b"answer")?;
    trace.receive("and so do receives", &client, 6, libc::MSG_WAITALL);
    see(trace, "completed", completed(&client, 1)?);
    trace.poll("after", &client)?;
    trace.see(
        "a blocking look",
        client.receive(&mut [0; 10], libc::MSG_ERRQUEUE),
    );
    let timeout = Duration::from_millis(10);
    client.set_timeout(libc::SO_RCVTIMEO, timeout)?;
    trace.see("nothing else", client.receive(&mut [0; 10], 0));
    Ok(())
}

/// `io_uring` sends without copying even if the socket's option is off.
fn stream_zero_copy_by_uring(trace: &Trace, (client, server): Pair) -> Outcome {
    let mut ring = Ring::new()?;
    let bytes = random(2_000_000, 7);
    let fd = Fd(client.as_raw_fd());
    let entry = opcode::SendZc::new(fd, bytes.as_ptr(), bytes.len() as u32)
        .flags(libc::MSG_WAITALL)
        .build();
    // SAFETY: The buffer lives to the end of this function. The function waits for the
    // notification.
    unsafe { ring.start(1, entry) }?;
    let got = server.receive_all(bytes.len())?;
    let sent = ring.wait(1)?;
    trace.see("sent", sent);
    trace.see("a notification follows", io_uring::cqueue::more(sent.flags));
    let notification = ring.wait(1)?;
    trace.see("it is one", io_uring::cqueue::notif(notification.flags));
    trace.see("as it was", got == bytes);
    none_left(&client)
}

/// The ring holds the pages of a registered buffer, and the packets hold no references of their
/// own. After each zero-copy send, this test sends copied bytes. These may join such a packet,
/// which then needs a reference to each of its pages.
fn stream_zero_copy_of_a_registered_buffer(trace: &Trace, (connected, accepted): Pair) -> Outcome {
    const PART: usize = 30_000;
    const PARTS: usize = 20;
    let bytes = random(PART * PARTS, 7);
    let mut ring = Ring::new()?;
    // SAFETY: The buffer outlives the ring, since the ring is dropped before it.
    unsafe { ring.register(&bytes) }?;
    let fd = Fd(accepted.as_raw_fd());
    let send = || {
        for part in bytes.chunks(PART) {
            let entry = opcode::SendZc::new(fd, part.as_ptr(), part.len() as u32)
                .buf_index(Some(0))
                .flags(libc::MSG_WAITALL)
                .build();
            // SAFETY: The buffer lives to the end of this function. The loop waits for both
            // completions of the operation.
            unsafe { ring.start(1, entry) }?;
            let sent = ring.wait(1)?;
            anyhow::ensure!(sent.result as usize == PART, "{sent:?}");
            accepted.send_all(b"copied")?;
            anyhow::ensure!(io_uring::cqueue::notif(ring.wait(1)?.flags));
        }
        Ok(())
    };
    let receive = || {
        let mut whole = true;
        let mut got = vec![0; PART + 6];
        for part in bytes.chunks(PART) {
            connected.receive_exact(&mut got)?;
            whole &= got[..PART] == *part && &got[PART..] == b"copied";
        }
        Ok(whole)
    };
    let (whole, ()) = beside(receive, send)?;
    trace.see("as it was", whole);
    none_left(&accepted)
}
