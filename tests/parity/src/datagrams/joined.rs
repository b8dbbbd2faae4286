// SPDX-License-Identifier: GPL-2.0-only

//! Compares datagram sockets of UDP and EDP that are used with files, pipes and `io_uring`, or by
//! file calls.

use std::io::Write;

use io_uring::{opcode, types::Fd};
use nix::fcntl::{splice, tee, SpliceFFlags};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::sendfile::sendfile;
use nix::unistd::{pipe, read, write};

use super::super::moments::deliver;
use super::super::streams::files::{aio_once, see_no_file, PREAD, PWRITE};
use crate::prelude::*;

behaviours! {
    datagram datagram_sendfile;
    connected_datagrams datagram_splice_from_a_pipe;
    connected_datagrams datagram_splice_into_a_pipe;
    connected_datagrams datagram_splice_msg_more;
    connected_datagrams datagram_read_and_write;
    connected_datagrams datagram_file_calls;
    connected_datagrams datagram_aio;
    datagram datagram_uring_sends_and_receives;
    connected_datagrams datagram_uring_cancels_and_polls;
    connected_datagrams datagram_uring_messages;
}

const NONE: SpliceFFlags = SpliceFFlags::empty();
const NOW: i32 = libc::MSG_DONTWAIT;

fn datagram_sendfile(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    let mut file = File::from(memfd_create("contents", MFdFlags::empty())?);
    file.write_all(b"the contents of a file")?;
    let mut offset = 4;
    trace.see("a part", sendfile(&a, &file, Some(&mut offset), 8));
    trace.receive("one datagram", &b, 100, 0);
    trace.see(
        "more than there is",
        sendfile(&a, &file, Some(&mut offset), 1000),
    );
    trace.receive("one datagram", &b, 100, 0);
    trace.receive("no other", &b, 100, NOW);
    let fresh = side.socket(&side.lab.a)?;
    let mut start = 0;
    trace.see("unconnected", sendfile(&fresh, &file, Some(&mut start), 8));
    Ok(())
}

fn datagram_splice_from_a_pipe(trace: &Trace, (a, b): Pair) -> Outcome {
    let (out, into) = pipe()?;
    write(&into, b"through a pipe")?;
    trace.see("a part", splice(&out, None, &a, None, 7, NONE));
    trace.receive("one datagram", &b, 100, 0);
    trace.see("the rest", splice(&out, None, &a, None, 100, NONE));
    trace.receive("one datagram", &b, 100, 0);
    Ok(())
}

fn datagram_splice_into_a_pipe(trace: &Trace, (a, b): Pair) -> Outcome {
    let ((out, into), (copy_out, copy_into)) = (pipe()?, pipe()?);
    deliver(&a, &b, b"first")?;
    deliver(&a, &b, b"second")?;
    deliver(&a, &b, b"third")?;
    trace.see("one", splice(&b, None, &into, None, 100, NONE));
    trace.see("a part of one", splice(&b, None, &into, None, 3, NONE));
    trace.see("tee", tee(&out, &copy_into, 100, NONE));
    let mut bytes = [0; 100];
    let length = read(&out, &mut bytes)?;
    trace.bytes("what came", &bytes[..length]);
    let length = read(&copy_out, &mut bytes)?;
    trace.bytes("the copy", &bytes[..length]);
    trace.receive("the third", &b, 100, NOW);
    b.set_nonblocking(true)?;
    trace.see("none", splice(&b, None, &into, None, 100, NONE));
    Ok(())
}

fn datagram_splice_msg_more(trace: &Trace, (a, b): Pair) -> Outcome {
    let (out, into) = pipe()?;
    write(&into, b"one two")?;
    let more = SpliceFFlags::SPLICE_F_MORE;
    trace.see("begin", splice(&out, None, &a, None, 4, more));
    trace.receive("not yet", &b, 100, NOW);
    trace.see("end", splice(&out, None, &a, None, 3, NONE));
    trace.receive("one datagram", &b, 100, 0);
    Ok(())
}

fn datagram_read_and_write(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.see("write", write(&a, b"hello"));
    let mut bytes = [0; 10];
    trace.see("read", read(&b, &mut bytes));
    trace.bytes("what was read", &bytes[..5]);
    b.set_nonblocking(true)?;
    trace.see("nothing there", read(&b, &mut bytes));
    Ok(())
}

fn datagram_file_calls(trace: &Trace, (_a, b): Pair) -> Outcome {
    see_no_file(trace, &b)
}

fn datagram_aio(trace: &Trace, (a, b): Pair) -> Outcome {
    let mut bytes = *b"hello";
    trace.see("write", aio_once(&a, PWRITE, &mut bytes, 0));
    let mut got = [0; 10];
    trace.see("read", aio_once(&b, PREAD, &mut got, 0));
    trace.bytes("what was read", &got[..5]);
    Ok(())
}

fn datagram_uring_sends_and_receives(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    let mut ring = Ring::new()?;
    let (bytes, to) = (*b"hello", side.far(7));
    let (mut small, mut room) = ([0; 3], [0; 10]);
    let send = || opcode::Send::new(Fd(a.as_raw_fd()), bytes.as_ptr(), 5);
    let receive = |room: &mut [u8]| {
        opcode::Recv::new(Fd(b.as_raw_fd()), room.as_mut_ptr(), room.len() as u32)
    };
    // SAFETY: The buffers and the address live to the end of this function. The function waits for
    // each operation to complete.
    unsafe {
        trace.see("send", ring.once(send().build())?);
        trace.see("receive", ring.once(receive(&mut room).build())?);
        let addressed = send().dest_addr(to.as_ptr().cast());
        let entry = addressed.dest_addr_len(to.len() as u32).build();
        trace.see("send to an address", ring.once(entry)?);
        trace.see("cut off", ring.once(receive(&mut small).build())?);
        ring.start(1, receive(&mut room).build())?;
        trace.see("nothing at first", ring.look(1));
        trace.see("send", ring.once(send().build())?);
        trace.see("receive", ring.wait(1)?);
        let now = receive(&mut room).flags(NOW).build();
        trace.see("nothing there", ring.once(now)?);
        let zero = opcode::SendZc::new(Fd(a.as_raw_fd()), bytes.as_ptr(), 5).build();
        ring.start(2, zero)?;
        let sent = ring.wait(2)?;
        trace.see("send without a copy", sent);
        if sent.result > 0 {
            trace.receive("it comes", &b, 100, 0);
        }
        if io_uring::cqueue::more(sent.flags) {
            trace.see("a notification", ring.wait(2)?.flags & 8 != 0);
        }
    }
    Ok(())
}

fn datagram_uring_cancels_and_polls(trace: &Trace, (a, b): Pair) -> Outcome {
    let mut ring = Ring::new()?;
    let mut room = [0; 10];
    // SAFETY: The buffer lives to the end of this function. The function waits for the operations
    // to complete.
    unsafe {
        let fd = Fd(b.as_raw_fd());
        ring.start(1, opcode::Recv::new(fd, room.as_mut_ptr(), 10).build())?;
        trace.see("cancel", ring.once(opcode::AsyncCancel::new(1).build())?);
        trace.see("the receive", ring.wait(1)?);
        ring.start(2, opcode::PollAdd::new(fd, libc::POLLIN as u32).build())?;
        trace.see("nothing at first", ring.look(2));
        a.send(b"hello", 0)?;
        let events = ring.wait(2)?.result as i16;
        trace.see("something", super::super::events_text(events));
        trace.receive("nothing is lost", &b, 100, 0);
        ring.start(3, opcode::Recv::new(fd, room.as_mut_ptr(), 10).build())?;
        trace.see("shutdown", b.shutdown(libc::SHUT_RD));
        trace.see("a receive that waited", ring.wait(3)?);
    }
    Ok(())
}

fn datagram_uring_messages(trace: &Trace, (a, b): Pair) -> Outcome {
    let mut ring = Ring::new()?;
    let mut bytes = *b"hello";
    let mut name = [0u64; 16];
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: All-zero bytes are a valid `msghdr`, which is plain data. It points to values that
    // live to the end of this function. The function waits for each operation to complete.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut vector;
        message.msg_iovlen = 1;
        let sent = opcode::SendMsg::new(Fd(a.as_raw_fd()), &message).build();
        trace.see("send", ring.once(sent)?);
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = 128;
        let received = opcode::RecvMsg::new(Fd(b.as_raw_fd()), &mut message).build();
        trace.see("receive", ring.once(received)?);
        trace.see("length of the name", message.msg_namelen);
        trace.see("flags", message.msg_flags);
    }
    Ok(())
}
