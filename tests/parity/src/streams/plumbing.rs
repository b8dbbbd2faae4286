// SPDX-License-Identifier: GPL-2.0-only

//! Compares transfers that the kernel makes between files, pipes and sockets of TCP and ESP:
//! `sendfile`, `splice`, `tee`, `vmsplice`.

use std::io::{IoSlice, Read, Write};
use std::os::fd::OwnedFd;

use nix::fcntl::{splice, tee, vmsplice, SpliceFFlags};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::sendfile::sendfile;
use nix::unistd::{pipe, read, write};

use crate::prelude::*;

behaviours! {
    connected_streams stream_sendfile = whole_file;
    connected_streams stream_sendfile_refused;
    connected_streams stream_sendfile_behind_msg_more = behind_more;
    connected_streams stream_splice_from_a_pipe;
    stream stream_splice_into_a_pipe;
    connected_streams stream_splice_blocking_and_nonblocking;
    stream stream_splice_at_the_end;
    stream stream_splice_through_two_streams;
    connected_streams stream_splice_of_memory;
    connected_streams stream_splice_into_a_full_stream;
}

const NONE: SpliceFFlags = SpliceFFlags::empty();

fn file_of(bytes: &[u8]) -> anyhow::Result<File> {
    let mut file = File::from(memfd_create("contents", MFdFlags::empty())?);
    file.write_all(bytes)?;
    Ok(file)
}

/// Receives exactly `length` bytes.
fn receive(socket: &Socket, length: usize) -> anyhow::Result<Vec<u8>> {
    socket.receive_all(length).context("receiving")
}

fn whole_file(trace: &Trace, (client, server): Pair) -> Outcome {
    let bytes = random(300_000, 7);
    let file = file_of(&bytes)?;
    let send = || {
        let mut offset = 0;
        while (offset as usize) < bytes.len() {
            let sent = sendfile(&client, &file, Some(&mut offset), 1 << 20).context("sendfile")?;
            anyhow::ensure!(sent > 0, "the file ended early");
        }
        Ok(offset)
    };
    let (offset, got) = beside(send, || receive(&server, bytes.len()))?;
    trace.see("offset", offset);
    trace.see("as it was", got == bytes);
    let mut offset = 100;
    trace.see("a part", sendfile(&client, &file, Some(&mut offset), 50));
    trace.see("offset behind it", offset);
    trace.see("as it was", receive(&server, 50)? == bytes[100..150]);
    trace.see("nothing", sendfile(&client, &file, Some(&mut offset), 0));
    let mut end = bytes.len() as i64;
    trace.see(
        "at the file's end",
        sendfile(&client, &file, Some(&mut end), 50),
    );
    Ok(())
}

/// A program sends a header, announces more, and sends a file behind it, as web servers do.
fn behind_more(trace: &Trace, (client, server): Pair) -> Outcome {
    for (header, body) in [
        (1, 1),
        (200, 4096),
        (1400, 200),
        (1489, 20_000),
        (5000, 30_000),
    ] {
        let bytes = random(header + body, 8);
        let file = file_of(&bytes[header..])?;
        let send = || {
            client
                .send(&bytes[..header], libc::MSG_MORE)
                .context("header")?;
            let mut offset = 0;
            while (offset as usize) < body {
                let sent = sendfile(&client, &file, Some(&mut offset), body).context("body")?;
                anyhow::ensure!(sent > 0, "the file ended early");
            }
            Ok(())
        };
        let ((), got) = beside(send, || receive(&server, bytes.len()))?;
        trace.see("as it was", got == bytes);
    }
    Ok(())
}

fn stream_sendfile_refused(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"abc")?;
    arrived(&server, 3)?;
    let file = file_of(b"hello")?;
    trace.see("out of a socket", sendfile(&file, &server, None, 3));
    trace.see("between sockets", sendfile(&client, &server, None, 3));
    let mut offset = 0;
    client.shutdown(libc::SHUT_WR)?;
    let (late, signal) =
        guest::calls::with_sigpipe(|| sendfile(&client, &file, Some(&mut offset), 5));
    trace.see("after the end", late);
    trace.see("SIGPIPE", signal);
    trace.see("offset", offset);
    Ok(())
}

fn piped(bytes: &[u8]) -> anyhow::Result<(OwnedFd, OwnedFd)> {
    let ends = pipe()?;
    write(&ends.1, bytes)?;
    Ok(ends)
}

fn stream_splice_from_a_pipe(trace: &Trace, (client, server): Pair) -> Outcome {
    let (out, _in) = piped(b"through a pipe")?;
    trace.see("some", splice(&out, None, &client, None, 7, NONE));
    trace.see(
        "the rest",
        splice(&out, None, &client, None, 100, SpliceFFlags::SPLICE_F_MOVE),
    );
    arrived(&server, 14)?;
    trace.receive("receive", &server, 100, 0);
    let now = SpliceFFlags::SPLICE_F_NONBLOCK;
    trace.see("an empty pipe", splice(&out, None, &client, None, 100, now));
    drop(_in);
    trace.see(
        "a pipe that ended",
        splice(&out, None, &client, None, 100, NONE),
    );
    let (out, _in) = piped(b"more comes")?;
    let more = SpliceFFlags::SPLICE_F_MORE;
    trace.see("more to come", splice(&out, None, &client, None, 100, more));
    client.shutdown(libc::SHUT_WR)?;
    trace.receive("it comes", &server, 10, libc::MSG_WAITALL);
    write(&_in, b"late")?;
    let (late, signal) =
        guest::calls::with_sigpipe(|| splice(&out, None, &client, None, 100, NONE));
    trace.see("after the end", late);
    trace.see("SIGPIPE", signal);
    let mut offset = 0;
    let at = splice(&out, None, &client, Some(&mut offset), 100, NONE);
    trace.see("at an offset", at);
    Ok(())
}

fn stream_splice_into_a_pipe(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    let (out, into) = pipe()?;
    client.send_all(b"through a pipe")?;
    arrived(&server, 14)?;
    trace.see("some", splice(&server, None, &into, None, 7, NONE));
    trace.see("still queued", server.queued(libc::FIONREAD));
    trace.see("the rest", splice(&server, None, &into, None, 100, NONE));
    let mut bytes = [0; 100];
    let length = read(&out, &mut bytes)?;
    trace.bytes("what came", &bytes[..length]);
    trace.see(
        "to another socket",
        splice(&server, None, &client, None, 1, NONE),
    );
    let mut offset = 0;
    let at = splice(&server, Some(&mut offset), &into, None, 100, NONE);
    trace.see("at an offset", at);
    trace.see("none", splice(&server, None, &into, None, 0, NONE));
    let fresh = side.socket(&side.lab.a)?;
    trace.see("unconnected", splice(&fresh, None, &into, None, 100, NONE));
    Ok(())
}

fn stream_splice_blocking_and_nonblocking(trace: &Trace, (client, server): Pair) -> Outcome {
    let (out, into) = pipe()?;
    for (what, flags) in [
        ("plain", NONE),
        ("SPLICE_F_NONBLOCK", SpliceFFlags::SPLICE_F_NONBLOCK),
    ] {
        let call = || splice(&server, None, &into, None, 100, flags);
        let (_, got, ()) = asleep(libc::SYS_splice, call, |sleeper| {
            trace.see(&format!("{what}: it waits"), sleeper.sleeps()?);
            Ok(client.send_all(b"late")?)
        })?;
        trace.see(what, got);
    }
    read(&out, &mut [0; 100])?;
    server.set_nonblocking(true)?;
    trace.see(
        "a socket that does not wait",
        splice(&server, None, &into, None, 100, NONE),
    );
    server.set_nonblocking(false)?;
    let limit = std::time::Duration::from_millis(50);
    server.set_timeout(libc::SO_RCVTIMEO, limit)?;
    trace.see(
        "a time limit",
        splice(&server, None, &into, None, 100, NONE),
    );
    Ok(())
}

fn stream_splice_at_the_end(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    let (_out, into) = pipe()?;
    client.send_all(b"last words")?;
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.see("data", splice(&server, None, &into, None, 100, NONE));
    trace.see("the end", splice(&server, None, &into, None, 100, NONE));
    let (client, server) = side.stream(8)?;
    reset(client)?;
    trace.poll_until("a reset", &server, libc::POLLERR)?;
    trace.see(
        "after a reset",
        splice(&server, None, &into, None, 100, NONE),
    );
    trace.see("after that", splice(&server, None, &into, None, 100, NONE));
    Ok(())
}

/// In this test a proxy splices from one stream into a pipe, and from the pipe into another stream.
/// The proxy keeps a copy by `tee`.
fn stream_splice_through_two_streams(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (from, proxy_in) = side.stream(7)?;
    let (proxy_out, to) = side.stream(8)?;
    let bytes = random(400_000, 7);
    let ((out, into), (copy_out, copy_into)) = (pipe()?, pipe()?);
    let ends = || {
        from.send_all(&bytes)?;
        from.shutdown(libc::SHUT_WR)?;
        Ok(())
    };
    let proxy = || {
        let mut copy = Vec::new();
        let mut some = vec![0; 65536];
        loop {
            let there = splice(
                &proxy_in,
                None,
                &into,
                None,
                65536,
                SpliceFFlags::SPLICE_F_MOVE,
            )?;
            if there == 0 {
                proxy_out.shutdown(libc::SHUT_WR)?;
                return Ok(copy);
            }
            let mut left = there;
            while left > 0 {
                let teed = tee(&out, &copy_into, left, NONE)?;
                let mut kept = 0;
                while kept < teed {
                    kept += read(&copy_out, &mut some)?;
                    copy.extend_from_slice(&some[..kept.min(some.len())]);
                }
                anyhow::ensure!(kept == teed, "{kept} of {teed} bytes teed");
                let mut on = teed;
                while on > 0 {
                    on -= splice(
                        &out,
                        None,
                        &proxy_out,
                        None,
                        on,
                        SpliceFFlags::SPLICE_F_MOVE,
                    )?;
                }
                left -= teed;
            }
        }
    };
    let (copy, ((), got)) = beside(proxy, || beside(ends, || receive(&to, bytes.len())))?;
    trace.see("as it was", got == bytes);
    trace.see("the copy too", copy == bytes);
    trace.receive("the end", &to, 10, 0);
    Ok(())
}

fn stream_splice_of_memory(trace: &Trace, (client, server): Pair) -> Outcome {
    let (out, into) = pipe()?;
    let bytes = random(10_000, 7);
    let slices = [IoSlice::new(&bytes[..5000]), IoSlice::new(&bytes[5000..])];
    trace.see("vmsplice", vmsplice(&into, &slices, NONE));
    let mut left = bytes.len();
    while left > 0 {
        left -= splice(&out, None, &client, None, left, NONE)?;
    }
    trace.see("as it was", receive(&server, bytes.len())? == bytes);
    Ok(())
}

fn stream_splice_into_a_full_stream(trace: &Trace, (client, server): Pair) -> Outcome {
    let (out, into) = pipe()?;
    let (mut out, mut into) = (File::from(out), File::from(into));
    client.set_nonblocking(true)?;
    let chunk = random(4096, 7);
    let mut sent = 0;
    let refused = loop {
        into.write_all(&chunk)?;
        match splice(&out, None, &client, None, chunk.len(), NONE) {
            Ok(length) if length == chunk.len() => sent += length,
            Ok(length) => {
                sent += length;
                out.read_exact(&mut vec![0; chunk.len() - length])?;
            }
            Err(error) => break error,
        }
    };
    trace.see("at last", nix::Result::<()>::Err(refused));
    client.shutdown(libc::SHUT_WR)?;
    let mut got = 0;
    let mut some = vec![0; 65536];
    loop {
        match server.receive(&mut some, 0)? {
            0 => break,
            length => got += length,
        }
    }
    trace.see("all came", got == sent);
    Ok(())
}
