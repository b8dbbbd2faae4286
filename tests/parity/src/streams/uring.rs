// SPDX-License-Identifier: GPL-2.0-only

//! Compares streams of TCP and ESP that are used with `io_uring`.

use std::os::fd::{FromRawFd, OwnedFd};

use io_uring::{opcode, squeue, types::Fd};

use crate::prelude::*;

behaviours! {
    connected_streams stream_uring_sends_and_receives;
    connected_streams stream_uring_receive_waits;
    stream stream_uring_receive_at_the_end;
    stream stream_uring_cancels_what_waits;
    connected_streams stream_uring_polls;
    stream stream_uring_accepts_and_connects;
    stream stream_uring_accepts_again_and_again;
    stream stream_uring_connect_refused;
    stream stream_uring_shuts_down_and_closes;
    connected_streams stream_uring_messages;
    connected_streams stream_uring_reports_more_data;
    connected_streams stream_uring_sends_all, within(90);
}

fn fd(socket: &Socket) -> Fd {
    Fd(socket.as_raw_fd())
}

fn send(socket: &Socket, bytes: &[u8], flags: i32) -> squeue::Entry {
    opcode::Send::new(fd(socket), bytes.as_ptr(), bytes.len() as u32)
        .flags(flags)
        .build()
}

fn receive(socket: &Socket, bytes: &mut [u8], flags: i32) -> squeue::Entry {
    opcode::Recv::new(fd(socket), bytes.as_mut_ptr(), bytes.len() as u32)
        .flags(flags)
        .build()
}

fn stream_uring_sends_and_receives(trace: &Trace, (client, server): Pair) -> Outcome {
    let mut ring = Ring::new()?;
    let (question, mut room) = (*b"question", [0; 20]);
    // SAFETY: The buffers live to the end of this function. The function waits for each operation
    // to complete.
    unsafe {
        trace.see("send", ring.once(send(&client, &question, 0))?);
        arrived(&server, 8)?;
        let peek = receive(&server, &mut room, libc::MSG_PEEK);
        trace.see("peek", ring.once(peek)?);
        trace.see("receive", ring.once(receive(&server, &mut room, 0))?);
        trace.bytes("it", &room[..8]);
        let write = opcode::Write::new(fd(&client), question.as_ptr(), 8).build();
        trace.see("write", ring.once(write)?);
        let read = opcode::Read::new(fd(&server), room.as_mut_ptr(), 20).build();
        trace.see("read", ring.once(read)?);
        let now = receive(&server, &mut room, libc::MSG_DONTWAIT);
        trace.see("nothing there", ring.once(now)?);
        let nothing = receive(&server, &mut room[..0], libc::MSG_DONTWAIT);
        trace.see("nothing wanted", ring.once(nothing)?);
    }
    Ok(())
}

fn stream_uring_receive_waits(trace: &Trace, (client, server): Pair) -> Outcome {
    let mut ring = Ring::new()?;
    let (mut room, mut more) = ([0; 20], [0; 6]);
    // SAFETY: The buffers live to the end of this function. The function waits for each operation
    // to complete.
    unsafe {
        ring.start(1, receive(&server, &mut room, 0))?;
        trace.see("at first", ring.look(1));
        client.send_all(b"late")?;
        trace.see("receive", ring.wait(1)?);
        trace.bytes("it", &room[..4]);
        ring.start(2, receive(&server, &mut more, libc::MSG_WAITALL))?;
        for piece in [b"abc", b"def"] {
            trace.see("not all of it yet", ring.look(2));
            client.send_all(piece)?;
            arrived(&server, 0)?;
        }
        trace.see("receive all", ring.wait(2)?);
        trace.bytes("all", &more);
    }
    Ok(())
}

fn stream_uring_receive_at_the_end(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    let mut ring = Ring::new()?;
    let mut room = [0; 20];
    // SAFETY: The buffer lives to the end of this function. The function waits for each operation
    // to complete.
    unsafe {
        ring.start(1, receive(&server, &mut room, 0))?;
        client.shutdown(libc::SHUT_WR)?;
        trace.see("the end", ring.wait(1)?);
        let (client, server) = side.stream(8)?;
        ring.start(2, receive(&server, &mut room, 0))?;
        reset(client)?;
        trace.see("a reset", ring.wait(2)?);
        trace.see("after it", ring.once(receive(&server, &mut room, 0))?);
        let late = send(&server, b"x", libc::MSG_NOSIGNAL);
        trace.see("send after it", ring.once(late)?);
    }
    Ok(())
}

fn stream_uring_cancels_what_waits(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    let listener = side.listener(8, 4)?;
    let mut ring = Ring::new()?;
    let mut room = [0; 20];
    let accept =
        || opcode::Accept::new(fd(&listener), std::ptr::null_mut(), std::ptr::null_mut()).build();
    // SAFETY: The buffer lives to the end of this function. The function waits for each operation
    // to complete.
    unsafe {
        ring.start(1, receive(&server, &mut room, 0))?;
        trace.see("cancel", ring.once(opcode::AsyncCancel::new(1).build())?);
        trace.see("the receive", ring.wait(1)?);
        ring.start(2, accept())?;
        trace.see("cancel", ring.once(opcode::AsyncCancel::new(2).build())?);
        trace.see("the accept", ring.wait(2)?);
        client.send_all(b"abc")?;
        trace.see(
            "nothing is lost",
            ring.once(receive(&server, &mut room, 0))?,
        );
    }
    Ok(())
}

fn stream_uring_polls(trace: &Trace, (client, server): Pair) -> Outcome {
    let mut ring = Ring::new()?;
    let poll = |events: i16| opcode::PollAdd::new(fd(&server), events as u32).build();
    let events =
        |completion: guest::uring::Completion| super::super::events_text(completion.result as i16);
    // SAFETY: A poll operation has no pointers to memory.
    unsafe {
        trace.see("to write", events(ring.once(poll(libc::POLLOUT))?));
        ring.start(1, poll(libc::POLLIN))?;
        trace.see("to read, at first", ring.look(1));
        client.send_all(b"abc")?;
        trace.see("to read", events(ring.wait(1)?));
        ring.start(2, poll(libc::POLLRDHUP))?;
        trace.see("the end, at first", ring.look(2));
        client.shutdown(libc::SHUT_WR)?;
        trace.see("the end", events(ring.wait(2)?));
    }
    Ok(())
}

/// Takes ownership of the descriptor that an operation returned.
fn descriptor(completion: guest::uring::Completion) -> Option<OwnedFd> {
    // SAFETY: The kernel has just returned this descriptor, and nothing else owns it.
    (completion.result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(completion.result) })
}

fn stream_uring_accepts_and_connects(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.socket(&side.lab.a)?;
    let mut ring = Ring::new()?;
    let to = side.far(7);
    let (mut name, mut length) = ([0u64; 16], 128);
    // SAFETY: The addresses live to the end of this function. The function waits for each operation
    // to complete.
    unsafe {
        let accept = opcode::Accept::new(fd(&listener), name.as_mut_ptr().cast(), &mut length);
        ring.start(1, accept.flags(libc::SOCK_CLOEXEC).build())?;
        trace.see("accept, at first", ring.look(1));
        let connect =
            || opcode::Connect::new(fd(&client), to.as_ptr().cast(), to.len() as u32).build();
        trace.see("connect", ring.once(connect())?);
        let server = descriptor(ring.wait(1)?);
        trace.see("accept", server.is_some());
        trace.see("length of the name", length);
        trace.see("connect again", ring.once(connect())?);
        client.send_all(b"abc")?;
        let mut room = [0; 10];
        if let Some(server) = &server {
            trace.see("the stream works", nix::unistd::read(server, &mut room));
        }
    }
    Ok(())
}

fn stream_uring_accepts_again_and_again(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let mut ring = Ring::new()?;
    let mut clients = Vec::new();
    // SAFETY: The operation has no pointers to memory.
    unsafe { ring.start(1, opcode::AcceptMulti::new(fd(&listener)).build()) }?;
    for _ in 0..3 {
        clients.push(side.dial(7)?);
        let completion = ring.wait(1)?;
        trace.see("accepted", descriptor(completion).is_some());
        trace.see("more will be", io_uring::cqueue::more(completion.flags));
    }
    // SAFETY: The operation has no pointers to memory.
    let cancelled = unsafe { ring.once(opcode::AsyncCancel::new(1).build()) }?;
    trace.see("cancel", cancelled);
    trace.see("at last", ring.wait(1)?);
    Ok(())
}

fn stream_uring_connect_refused(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    let mut ring = Ring::new()?;
    let to = side.far(7);
    let connect = || opcode::Connect::new(fd(&client), to.as_ptr().cast(), to.len() as u32).build();
    // SAFETY: The address lives to the end of this function. The function waits for each operation
    // to complete.
    unsafe {
        trace.see("connect", ring.once(connect())?);
        trace.pending_error("pending", &client);
        let listener = side.listener(7, 4)?;
        trace.see("connect again", ring.once(connect())?);
        drop(listener);
    }
    Ok(())
}

fn stream_uring_shuts_down_and_closes(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    let mut ring = Ring::new()?;
    // SAFETY: The operations have no pointers to memory.
    unsafe {
        let shutdown = opcode::Shutdown::new(fd(&client), libc::SHUT_WR).build();
        trace.see("shutdown", ring.once(shutdown)?);
        trace.receive("the end", &server, 10, 0);
        let fresh = side.socket(&side.lab.a)?;
        let shutdown = opcode::Shutdown::new(fd(&fresh), libc::SHUT_WR).build();
        trace.see("shutdown unconnected", ring.once(shutdown)?);
        let raw = std::os::fd::IntoRawFd::into_raw_fd(OwnedFd::from(server));
        trace.see("close", ring.once(opcode::Close::new(Fd(raw)).build())?);
    }
    trace.receive("the other end", &client, 10, 0);
    Ok(())
}

fn stream_uring_messages(trace: &Trace, (client, server): Pair) -> Outcome {
    let mut ring = Ring::new()?;
    let (mut first, mut second) = (*b"hello ", *b"world");
    let mut vector = [&mut first[..], &mut second[..]].map(|bytes| libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    });
    // SAFETY: All-zero bytes are a valid `msghdr`, which is plain data. It points to the vector,
    // and the vector to the two buffers. All of these live to the end of this function. The
    // function waits for each operation to complete.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = vector.as_mut_ptr();
        message.msg_iovlen = 2;
        let sent = opcode::SendMsg::new(fd(&client), &message).build();
        trace.see("send", ring.once(sent)?);
        arrived(&server, 11)?;
        let received = opcode::RecvMsg::new(fd(&server), &mut message).build();
        trace.see("receive", ring.once(received)?);
        trace.see("length of the name", message.msg_namelen);
        trace.see("flags", message.msg_flags);
    }
    trace.bytes("first", &first);
    trace.bytes("second", &second);
    Ok(())
}

/// `IORING_CQE_F_SOCK_NONEMPTY` reports that more data are queued, so that a program reads again at
/// once.
fn stream_uring_reports_more_data(trace: &Trace, (client, server): Pair) -> Outcome {
    let mut ring = Ring::new()?;
    let mut room = [0; 4];
    client.send_all(b"hello")?;
    arrived(&server, 5)?;
    for what in ["some", "the rest"] {
        // SAFETY: The buffer lives to the end of this function. The function waits for the
        // operation to complete.
        let got = unsafe { ring.once(receive(&server, &mut room, 0)) }?;
        trace.see(what, got);
        let more = io_uring::cqueue::sock_nonempty(got.flags);
        trace.see("more is there", more);
    }
    Ok(())
}

/// Sends more bytes than both buffers hold. The operation continues by itself while the reader
/// makes room.
fn stream_uring_sends_all(trace: &Trace, (client, server): Pair) -> Outcome {
    let mut ring = Ring::new()?;
    let bytes = guest::transfer::random(8_000_000, 7);
    let mut got = vec![0; bytes.len()];
    // SAFETY: The buffer lives to the end of this function. The function waits for the operation to
    // complete.
    unsafe { ring.start(1, send(&client, &bytes, libc::MSG_WAITALL)) }?;
    server.receive_exact(&mut got)?;
    trace.see("sent", ring.wait(1)?);
    trace.see("as it was", got == bytes);
    Ok(())
}
