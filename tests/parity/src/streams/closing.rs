// SPDX-License-Identifier: GPL-2.0-only

//! Compares `close` over TCP and ESP: with all data read, with unread data, and with `SO_LINGER`.

use nix::sys::wait::WaitStatus;
use nix::unistd::{pipe, read, write};

use super::super::moments::SOON;
use crate::prelude::*;

behaviours! {
    connected_streams stream_close_is_a_clean_end;
    connected_streams stream_close_delivers_queued_data;
    stream stream_close_with_unread_data_resets;
    connected_streams stream_close_with_unread_data_after_a_reply;
    connected_streams stream_close_with_unread_data_after_the_end;
    connected_streams stream_close_with_no_linger_time_resets;
    connected_streams stream_close_with_no_linger_time_drops_data;
    connected_streams stream_close_lingers_until_acknowledged;
    stream stream_close_lingers_no_longer_than_its_timeout, within(120);
    stream stream_process_end_does_not_linger, within(120);
    stream stream_close_does_not_wait, within(120);
    connected_streams stream_sending_to_a_closed_peer = to_closed;
    connected_streams stream_sending_to_a_closed_peer_that_wrote;
}

fn stream_close_is_a_clean_end(trace: &Trace, (client, server): Pair) -> Outcome {
    drop(client);
    trace.poll_until("server", &server, libc::POLLRDHUP)?;
    trace.receive("read", &server, 10, 0);
    trace.receive("read again", &server, 10, 0);
    trace.pending_error("no error", &server);
    trace.see("the peer's name", server.peer_name().map(|_| ()));
    Ok(())
}

fn stream_close_delivers_queued_data(trace: &Trace, (client, server): Pair) -> Outcome {
    let bytes = guest::transfer::random(40_000, 7);
    client.send_all(&bytes)?;
    drop(client);
    let got = server.receive_all(bytes.len())?;
    trace.see("all came", got == bytes);
    trace.receive("the end", &server, 10, 0);
    Ok(())
}

fn stream_close_with_unread_data_resets(side: &Side<'_>, trace: &Trace) -> Outcome {
    for (port, order) in [(7, "rrse"), (8, "ssre"), (9, "errs")] {
        let (client, server) = side.stream(port)?;
        client.send_all(b"unread")?;
        arrived(&server, 6)?;
        acknowledged(&client)?;
        drop(server);
        trace.poll_until("client", &client, libc::POLLHUP)?;
        see_end(trace, order, &client, order);
        trace.poll("client at last", &client)?;
    }
    Ok(())
}

fn stream_close_with_unread_data_after_a_reply(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"request and more")?;
    arrived(&server, 16)?;
    server.receive(&mut [0; 7], 0)?;
    server.send_all(b"reply")?;
    arrived(&client, 5)?;
    acknowledged(&client)?;
    drop(server);
    trace.poll_until("client", &client, libc::POLLHUP)?;
    trace.see("queued", client.queued(libc::FIONREAD));
    trace.receive("the reply", &client, 3, 0);
    trace.receive("the rest of it", &client, 100, libc::MSG_WAITALL);
    see_end(trace, "client", &client, "rrs");
    Ok(())
}

fn stream_close_with_unread_data_after_the_end(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"unread")?;
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("server", &server, libc::POLLRDHUP)?;
    acknowledged(&client)?;
    drop(server);
    trace.poll_until("client", &client, libc::POLLHUP)?;
    see_end(trace, "client", &client, "rrs");
    Ok(())
}

fn stream_close_with_no_linger_time_resets(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"last words")?;
    arrived(&server, 10)?;
    acknowledged(&client)?;
    reset(client)?;
    trace.poll_until("server", &server, libc::POLLHUP)?;
    trace.receive("what came before", &server, 100, 0);
    see_end(trace, "server", &server, "rrs");
    Ok(())
}

fn stream_close_with_no_linger_time_drops_data(trace: &Trace, (client, server): Pair) -> Outcome {
    client.set_nonblocking(true)?;
    while client.send(&[7; 65536], 0).is_ok() {}
    reset(client)?;
    trace.poll_until("server", &server, libc::POLLHUP)?;
    let mut some = vec![0; 65536];
    let error = loop {
        if let Err(error) = server.receive(&mut some, 0) {
            break error;
        }
    };
    trace.see("after what had come", std::io::Result::<()>::Err(error));
    trace.receive("then", &server, 10, 0);
    Ok(())
}

fn stream_close_lingers_until_acknowledged(trace: &Trace, (client, server): Pair) -> Outcome {
    client.set_linger(Some(50))?;
    client.send_all(b"last words")?;
    let start = Instant::now();
    drop(client);
    trace.see("soon", start.elapsed() < SOON);
    trace.receive("all is there", &server, 100, libc::MSG_DONTWAIT);
    trace.receive("the end too", &server, 100, libc::MSG_DONTWAIT);
    Ok(())
}

fn stream_close_lingers_no_longer_than_its_timeout(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    client.set_linger(Some(1))?;
    side.cut_wire(true)?;
    client.send_all(b"last words")?;
    let start = Instant::now();
    drop(client);
    let took = start.elapsed();
    // The kernel measures the wait in jiffies. After a late tick, it advances them by several at
    // once, so the wait may be shorter than a second.
    trace.see("a second", took > Duration::from_millis(500));
    trace.see("not for ever", took < SOON);
    side.cut_wire(false)?;
    trace.receive("it goes on without us", &server, 10, libc::MSG_WAITALL);
    trace.receive("the end too", &server, 100, 0);
    Ok(())
}

fn stream_process_end_does_not_linger(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    client.set_linger(Some(50))?;
    let (wait, go) = pipe()?;
    // The child process has a copy of the descriptor, and closes it last.
    let child = start_process(|| i32::from(read(&wait, &mut [0]).is_err()))?;
    side.cut_wire(true)?;
    client.send_all(b"last words")?;
    drop(client);
    let start = Instant::now();
    write(&go, b"!")?;
    trace.see("ended", exited(waitpid(child, None)?));
    trace.see("at once", start.elapsed() < SOON);
    side.cut_wire(false)?;
    trace.receive("it goes on without us", &server, 10, libc::MSG_WAITALL);
    trace.receive("the end too", &server, 100, 0);
    Ok(())
}

fn stream_close_does_not_wait(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    side.cut_wire(true)?;
    client.send_all(b"last words")?;
    let start = Instant::now();
    drop(client);
    trace.see("at once", start.elapsed() < SOON);
    side.cut_wire(false)?;
    trace.receive("it goes on without us", &server, 10, libc::MSG_WAITALL);
    trace.receive("the end too", &server, 100, 0);
    Ok(())
}

fn to_closed(trace: &Trace, (client, server): Pair) -> Outcome {
    drop(client);
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.see("the first goes", server.send(b"x", libc::MSG_NOSIGNAL));
    trace.poll_until("its answer is a reset", &server, libc::POLLERR)?;
    see_end(trace, "server", &server, "rsse");
    Ok(())
}

fn stream_sending_to_a_closed_peer_that_wrote(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"last words")?;
    drop(client);
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.see("the first goes", server.send(b"x", libc::MSG_NOSIGNAL));
    trace.poll_until("its answer is a reset", &server, libc::POLLERR)?;
    trace.receive("what came before", &server, 100, 0);
    see_end(trace, "server", &server, "rres");
    Ok(())
}

fn exited(status: WaitStatus) -> bool {
    matches!(status, WaitStatus::Exited(_, 0))
}
