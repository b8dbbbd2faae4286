// SPDX-License-Identifier: GPL-2.0-only

//! Compares `SO_RCVLOWAT` over TCP and ESP, the number of bytes that must be queued for a stream to
//! be readable. Also compares `SO_SNDLOWAT`, which is fixed.

use super::super::epoll::{events, Epoll};
use super::super::Shown;
use crate::prelude::*;
use guest::asleep::POLL;

use events::{EDGE, IN, OUT, RDHUP};

behaviours! {
    connected_streams stream_low_water_poll;
    connected_streams stream_low_water_edge;
    connected_streams stream_low_water_receive = receive;
    connected_streams stream_low_water_receive_time_limit;
    connected_streams stream_low_water_above_the_requested_length;
    connected_streams stream_low_water_and_the_end;
    connected_streams stream_low_water_lowered_wakes;
    stream stream_low_water_is_inherited;
    connected_streams stream_low_water_of_sending_is_fixed;
}

fn set(socket: &Socket, mark: i32) -> std::io::Result<()> {
    socket.set_so(libc::SO_RCVLOWAT, mark)
}

fn mark(socket: &Socket) -> std::io::Result<i32> {
    socket.so(libc::SO_RCVLOWAT)
}

fn stream_low_water_poll(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("at first", mark(&server));
    trace.see("set", set(&server, 10));
    trace.see("then", mark(&server));
    client.send_all(b"12345")?;
    arrived(&server, 5)?;
    trace.poll("five", &server)?;
    client.send_all(b"67890")?;
    trace.poll_until("ten", &server, libc::POLLIN)?;
    trace.receive("one of them", &server, 1, libc::MSG_DONTWAIT);
    trace.poll("nine", &server)?;
    trace.receive("what is there", &server, 100, libc::MSG_DONTWAIT);
    trace.see("none", set(&server, 0));
    trace.see("is one", mark(&server));
    Ok(())
}

fn stream_low_water_edge(trace: &Trace, (client, server): Pair) -> Outcome {
    set(&server, 10)?;
    let epoll = Epoll::of(&server, IN | OUT | RDHUP | EDGE)?;
    trace.epoll("at first", &epoll)?;
    client.send_all(b"12345")?;
    arrived(&server, 5)?;
    trace.epoll("five are no edge", &epoll)?;
    client.send_all(b"67890")?;
    trace.epoll_next("ten are", &epoll)?;
    client.send_all(b"1")?;
    trace.epoll_next("and more", &epoll)?;
    trace.receive("ten", &server, 10, 0);
    client.send_all(b"2")?;
    arrived(&server, 2)?;
    trace.epoll("two are none", &epoll)
}

fn receive(trace: &Trace, (client, server): Pair) -> Outcome {
    set(&server, 10)?;
    client.send_all(b"12345")?;
    arrived(&server, 5)?;
    let call = || server.receive(&mut [0; 100], 0);
    let (slept, value, still) = asleep(libc::SYS_recvfrom, call, |reader| {
        let still = reader.sleeps()?;
        client.send_all(b"67890 and more of it")?;
        Ok(still)
    })?;
    trace.see("slept with five", slept && still);
    trace.see("then", value.map(|got| got >= 10).shown());
    Ok(())
}

fn stream_low_water_receive_time_limit(trace: &Trace, (client, server): Pair) -> Outcome {
    set(&server, 10)?;
    server.set_timeout(libc::SO_RCVTIMEO, Duration::from_millis(100))?;
    client.send_all(b"12345")?;
    arrived(&server, 5)?;
    trace.receive("what there is in the end", &server, 100, 0);
    trace.receive("nothing", &server, 100, 0);
    Ok(())
}

fn stream_low_water_above_the_requested_length(trace: &Trace, (client, server): Pair) -> Outcome {
    set(&server, 10)?;
    client.send_all(b"12345")?;
    arrived(&server, 5)?;
    trace.receive("fewer were asked for", &server, 3, 0);
    trace.receive("at once", &server, 100, libc::MSG_DONTWAIT);
    Ok(())
}

fn stream_low_water_and_the_end(trace: &Trace, (client, server): Pair) -> Outcome {
    set(&server, 10)?;
    client.send_all(b"12345")?;
    arrived(&server, 5)?;
    let call = || server.receive(&mut [0; 100], libc::MSG_PEEK);
    let _ = trace.sleeping("a look", libc::SYS_recvfrom, call, |_| {
        Ok(client.shutdown(libc::SHUT_WR)?)
    })?;
    trace.poll("the end", &server)?;
    trace.receive("what there was", &server, 100, 0);
    trace.receive("the end", &server, 100, 0);
    Ok(())
}

fn stream_low_water_lowered_wakes(trace: &Trace, (client, server): Pair) -> Outcome {
    set(&server, 10)?;
    client.send_all(b"12345")?;
    arrived(&server, 5)?;
    let call = || {
        server
            .poll(libc::POLLIN, patience())
            .map(super::super::events_text)
    };
    let _ = trace.sleeping("poll", POLL, call, |_| Ok(set(&server, 5)?))?;
    Ok(())
}

fn stream_low_water_is_inherited(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(197, 4)?;
    set(&listener, 7)?;
    let client = side.dial(197)?;
    let (server, _) = listener.accept(0)?;
    trace.see("the accepted one's", mark(&server));
    trace.see("the client's", mark(&client));
    trace.poll("a listener has no use for it", &listener)?;
    let _other = side.dial(197)?;
    trace.poll_until("one connection is enough", &listener, libc::POLLIN)
}

fn stream_low_water_of_sending_is_fixed(trace: &Trace, (client, _server): Pair) -> Outcome {
    trace.see("get", client.so(libc::SO_SNDLOWAT));
    trace.see("set", client.set_so(libc::SO_SNDLOWAT, 10));
    Ok(())
}
