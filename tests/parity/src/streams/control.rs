// SPDX-License-Identifier: GPL-2.0-only

//! Compares the control data and the flags of `sendmsg` that streams of TCP and ESP support or
//! ignore.

use super::super::moments::await_poll;
use crate::prelude::*;
use guest::calls::{control, send_control};

behaviours! {
    connected_streams stream_control_data;
    connected_streams stream_transmit_time;
    stream stream_send_with_an_address;
    connected_streams stream_error_queue_is_empty;
    connected_streams stream_msg_more_is_held_back;
    connected_streams stream_msg_more_is_sent_after_a_time;
    stream stream_msg_more_before_the_end;
    connected_streams stream_urgent_data, differs(&[Difference::new("send", "1", "EOPNOTSUPP")]);
}

fn stream_control_data(trace: &Trace, (client, server): Pair) -> Outcome {
    let socket = libc::SOL_SOCKET;
    let unknown = send_control(&client, b"a", &control(socket, 0x7777, &[0; 4], 0));
    trace.see("unknown at the socket level", unknown);
    let elsewhere = send_control(&client, b"b", &control(0x7777, 1, &[0; 4], 0));
    trace.see("at an unknown level", elsewhere);
    let long = send_control(&client, b"c", &control(0x7777, 1, &[0; 8], 64));
    trace.see("longer than there is", long);
    let short = send_control(&client, b"d", &control(0x7777, 1, &[0; 8], -20));
    trace.see("shorter than its header", short);
    let rights = control(socket, libc::SCM_RIGHTS, &[0; 4], 0);
    trace.see("rights", send_control(&client, b"e", &rights));
    let mark = |length| control(socket, libc::SO_MARK, &vec![0; length], 0);
    trace.see("a mark", send_control(&client, b"f", &mark(4)));
    trace.see("half a mark", send_control(&client, b"g", &mark(2)));
    let priority = control(socket, libc::SO_PRIORITY, &[3, 0, 0, 0], 0);
    trace.see("a priority", send_control(&client, b"h", &priority));
    acknowledged(&client)?;
    arrived(&server, 4)?;
    trace.receive("what came", &server, 100, 0);
    Ok(())
}

fn stream_transmit_time(trace: &Trace, (client, server): Pair) -> Outcome {
    const SO_TXTIME: i32 = 61;
    let socket = libc::SOL_SOCKET;
    let with_time = || send_control(&client, b"a", &control(socket, SO_TXTIME, &[1; 8], 0));
    trace.see("without SO_TXTIME", with_time());
    let clock = [libc::CLOCK_MONOTONIC.to_ne_bytes(), [0; 4]].concat();
    trace.see("SO_TXTIME", client.set_option(socket, SO_TXTIME, &clock));
    trace.see("with it", with_time());
    client.send_all(b"b")?;
    acknowledged(&client)?;
    trace.receive("what came", &server, 100, 0);
    Ok(())
}

fn stream_send_with_an_address(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    let elsewhere = client.send_to_bytes(b"abc", 0, &side.nobody(8));
    trace.see("to another address", elsewhere);
    trace.see("to no address", client.send_to_bytes(b"def", 0, &[0; 3]));
    arrived(&server, 6)?;
    trace.receive("both came", &server, 100, 0);
    Ok(())
}

fn stream_error_queue_is_empty(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"abc")?;
    arrived(&server, 3)?;
    trace.receive("with data there", &server, 10, libc::MSG_ERRQUEUE);
    trace.receive("the data", &server, 10, 0);
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.receive("at the end", &server, 10, libc::MSG_ERRQUEUE);
    Ok(())
}

/// The bytes of the first send are held back only for a limited time. A pause between the two sends
/// may be longer than that, so the test tries more than once.
fn stream_msg_more_is_held_back(trace: &Trace, (client, server): Pair) -> Outcome {
    let mut held = false;
    for _ in 0..20 {
        client.send(b"first ", libc::MSG_MORE)?;
        let early = server.poll(libc::POLLIN, std::time::Duration::from_millis(20))?;
        client.send_all(b"and last")?;
        held = early == 0;
        if held {
            break;
        }
        server.receive_exact(&mut [0; 14])?;
    }
    trace.see("the first waits for the last", held);
    trace.receive("both", &server, 14, libc::MSG_WAITALL);
    Ok(())
}

fn stream_msg_more_is_sent_after_a_time(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("send", client.send(b"alone", libc::MSG_MORE));
    await_poll(&server, libc::POLLIN)?;
    trace.receive("receive", &server, 100, 0);
    let bytes = [7; 20_000];
    trace.see("send much", client.send(&bytes, libc::MSG_MORE));
    arrived(&server, 20_000)?;
    acknowledged(&client)?;
    trace.see("all acknowledged", client.queued(libc::TIOCOUTQ));
    Ok(())
}

fn stream_msg_more_before_the_end(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    trace.see("send", client.send(b"abc", libc::MSG_MORE));
    trace.see("end", client.shutdown(libc::SHUT_WR));
    trace.receive("receive", &server, 3, libc::MSG_WAITALL);
    trace.receive("the end", &server, 10, 0);
    let (client, server) = side.stream(8)?;
    trace.see("send", client.send(b"abc", libc::MSG_MORE));
    drop(client);
    trace.receive("receive", &server, 3, libc::MSG_WAITALL);
    trace.receive("the end", &server, 10, 0);
    Ok(())
}

fn stream_urgent_data(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.receive("none there", &server, 1, libc::MSG_OOB | libc::MSG_DONTWAIT);
    trace.see("send", client.send(b"!", libc::MSG_OOB));
    Ok(())
}
