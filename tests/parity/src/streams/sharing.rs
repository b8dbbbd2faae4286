// SPDX-License-Identifier: GPL-2.0-only

//! Compares connections of TCP and ESP that several descriptors, processes or threads use: `dup`,
//! `fork`, `exec`, `SCM_RIGHTS`, threads.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use nix::sys::signal::{kill, Signal};
use nix::sys::socket::{
    recvmsg, sendmsg, socketpair, AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags,
    SockFlag, SockType,
};
use nix::sys::wait::WaitStatus;
use nix::unistd::{dup, pipe, read, write};

use super::super::moments::await_poll;
use crate::prelude::*;
use guest::asleep::alias;

behaviours! {
    connected_streams stream_last_descriptor_closes;
    connected_streams stream_shutdown_reaches_all_descriptors;
    connected_streams stream_forked_process_holds_the_connection;
    connected_streams stream_killed_process_ends_the_connection;
    connected_streams stream_killed_process_with_unread_data;
    stream stream_killed_listener;
    stream stream_exec_closes_or_keeps;
    connected_streams stream_served_by_another_program;
    connected_streams stream_descriptor_passed_on;
    connected_streams stream_descriptor_lost_in_a_message;
    connected_streams stream_closed_under_a_reader;
    connected_streams stream_readers_share_a_stream;
}

fn copy(socket: &Socket) -> anyhow::Result<OwnedFd> {
    dup(socket.as_fd()).context("dup")
}

fn stream_last_descriptor_closes(trace: &Trace, (client, server): Pair) -> Outcome {
    let second = copy(&client)?;
    drop(client);
    trace.see("the second writes", write(&second, b"hello"));
    trace.receive("server reads", &server, 100, 0);
    trace.poll("nothing has ended", &server)?;
    drop(second);
    trace.receive("the end", &server, 100, 0);
    Ok(())
}

fn stream_shutdown_reaches_all_descriptors(trace: &Trace, (client, server): Pair) -> Outcome {
    let second = copy(&client)?;
    trace.see("shutdown", client.shutdown(libc::SHUT_WR));
    trace.see("the second writes", write(&second, b"hello"));
    trace.receive("the end", &server, 100, 0);
    Ok(())
}

fn stream_forked_process_holds_the_connection(trace: &Trace, (client, server): Pair) -> Outcome {
    let (wait, go) = pipe()?;
    let child = start_process(|| {
        let sent = client.send(b"from the child", 0);
        let told = read(&wait, &mut [0]);
        i32::from(sent.is_err() || told.is_err())
    })?;
    drop(client);
    trace.receive("server reads", &server, 14, libc::MSG_WAITALL);
    trace.poll("nothing has ended", &server)?;
    write(&go, b"!")?;
    let status = waitpid(child, None)?;
    trace.see("the child", matches!(status, WaitStatus::Exited(_, 0)));
    trace.receive("the end", &server, 100, 0);
    Ok(())
}

/// Starts a process that keeps its inherited descriptors open and does nothing until it is killed.
fn held() -> anyhow::Result<nix::unistd::Pid> {
    start_process(|| loop {
        nix::unistd::pause();
    })
}

fn murder(child: nix::unistd::Pid) -> Outcome {
    kill(child, Signal::SIGKILL)?;
    waitpid(child, None)?;
    Ok(())
}

fn stream_killed_process_ends_the_connection(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"last words")?;
    let child = held()?;
    drop(client);
    trace.receive("what was sent", &server, 10, libc::MSG_WAITALL);
    trace.poll("nothing has ended", &server)?;
    murder(child)?;
    trace.receive("the end", &server, 10, 0);
    Ok(())
}

fn stream_killed_process_with_unread_data(trace: &Trace, (client, server): Pair) -> Outcome {
    let child = held()?;
    server.send_all(b"unread")?;
    acknowledged(&server)?;
    drop(client);
    murder(child)?;
    trace.poll_until("server", &server, libc::POLLHUP)?;
    see_end(trace, "server", &server, "rrs");
    Ok(())
}

fn stream_killed_listener(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let child = held()?;
    drop(listener);
    let client = side.dial(7)?;
    client.send_all(b"x")?;
    acknowledged(&client)?;
    murder(child)?;
    trace.poll_until("client", &client, libc::POLLHUP)?;
    see_end(trace, "client", &client, "rs");
    let late = side.socket(&side.lab.a)?;
    trace.see("connect", late.connect_bytes(&side.far(7)));
    trace.see("listen anew", side.listener(7, 4).is_ok());
    Ok(())
}

fn keep_open(socket: &Socket, keep: bool) -> Outcome {
    let flags = if keep {
        FdFlag::empty()
    } else {
        FdFlag::FD_CLOEXEC
    };
    fcntl(socket, FcntlArg::F_SETFD(flags)).context("F_SETFD")?;
    Ok(())
}

fn stream_exec_closes_or_keeps(side: &Side<'_>, trace: &Trace) -> Outcome {
    for (port, keep, what) in [(7, false, "close-on-exec"), (8, true, "kept")] {
        let (client, server) = side.stream(port)?;
        keep_open(&client, keep)?;
        // `cat` ends when its input ends.
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cat")?;
        drop(client);
        if keep {
            server.send_all(b"x")?;
            acknowledged(&server)?;
            trace.poll(what, &server)?;
        } else {
            trace.poll_until(what, &server, libc::POLLRDHUP)?;
        }
        drop(child.stdin.take());
        child.wait()?;
        trace.poll_until(&format!("{what}, at the end"), &server, libc::POLLRDHUP)?;
    }
    Ok(())
}

/// In this test the connection is the standard input and output of another program. inetd starts
/// its servers in this way.
fn stream_served_by_another_program(trace: &Trace, (client, server): Pair) -> Outcome {
    let server = OwnedFd::from(server);
    let output = server.try_clone()?;
    let mut child = Command::new("cat")
        .stdin(Stdio::from(server))
        .stdout(Stdio::from(output))
        .spawn()
        .context("cat")?;
    client.send_all(b"hello, cat")?;
    trace.receive("it answers", &client, 10, libc::MSG_WAITALL);
    client.shutdown(libc::SHUT_WR)?;
    trace.receive("it ends", &client, 10, 0);
    trace.see("well", child.wait()?.success());
    Ok(())
}

fn courier() -> anyhow::Result<(OwnedFd, OwnedFd)> {
    let (family, flags) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
    socketpair(family, SockType::Stream, None, flags).context("socketpair")
}

fn hand_over(way: &OwnedFd, socket: &Socket) -> Outcome {
    let descriptors = [socket.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let bytes = [IoSlice::new(b"!")];
    sendmsg::<()>(way.as_raw_fd(), &bytes, &rights, MsgFlags::empty(), None)?;
    Ok(())
}

fn stream_descriptor_passed_on(trace: &Trace, (client, server): Pair) -> Outcome {
    let (from, to) = courier()?;
    hand_over(&from, &server)?;
    drop(server);
    client.send_all(b"on the way")?;
    acknowledged(&client)?;
    trace.poll("nothing has ended", &client)?;
    let mut byte = [0];
    let mut room = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([i32; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(to.as_raw_fd(), &mut room, Some(&mut space), flags)?;
    let number = message
        .cmsgs()?
        .find_map(|control| match control {
            ControlMessageOwned::ScmRights(all) => all.first().copied(),
            _ => None,
        })
        .context("no descriptor came")?;
    // SAFETY: The kernel has just made this descriptor, and nothing else owns it.
    let server = unsafe { OwnedFd::from_raw_fd(number) };
    let mut got = [0; 20];
    trace.see("what came meanwhile", read(&server, &mut got));
    trace.see("it writes", write(&server, b"arrived"));
    trace.receive("client reads", &client, 7, libc::MSG_WAITALL);
    drop(server);
    trace.receive("the end", &client, 10, 0);
    Ok(())
}

fn stream_descriptor_lost_in_a_message(trace: &Trace, (client, server): Pair) -> Outcome {
    let (from, to) = courier()?;
    hand_over(&from, &server)?;
    drop(server);
    trace.see("send", client.send(b"hello", 0));
    acknowledged(&client)?;
    drop((from, to));
    trace.poll_until("nobody read it", &client, libc::POLLHUP)?;
    see_end(trace, "client", &client, "rrs");
    Ok(())
}

fn stream_closed_under_a_reader(trace: &Trace, (client, server): Pair) -> Outcome {
    let other = alias(&server);
    let read = || other.receive(&mut [0; 10], 0);
    let (_, got, ()) = asleep(libc::SYS_recvfrom, read, |sleeper| {
        drop(server);
        trace.see("it goes on waiting", sleeper.sleeps()?);
        Ok(client.send_all(b"hello")?)
    })?;
    trace.see("read", got);
    trace.receive("then it ends", &client, 10, 0);
    Ok(())
}

fn stream_readers_share_a_stream(trace: &Trace, (client, server): Pair) -> Outcome {
    let second = Socket::from(copy(&server)?);
    let read = || second.receive(&mut [0; 3], 0);
    let (_, got, ()) = asleep(libc::SYS_recvfrom, read, |_| {
        client.send_all(b"abc")?;
        arrived(&server, 0)?;
        client.send_all(b"def")?;
        await_poll(&server, libc::POLLIN)
    })?;
    trace.see("one", got);
    trace.receive("the other", &server, 10, 0);
    Ok(())
}
