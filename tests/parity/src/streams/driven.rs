// SPDX-License-Identifier: GPL-2.0-only

//! Compares signal-driven I/O over TCP and ESP: `F_SETOWN`, `F_SETSIG` and `O_ASYNC`.

use super::super::signals::Driven;
use super::waiting::small_stream;
use crate::prelude::*;
use guest::processor;
use guest::transfer::fill;

behaviours! {
    connected_streams stream_signal_for_data;
    stream stream_signal_for_the_end;
    stream stream_signal_for_a_connection;
    stream stream_signal_for_a_connect = connect;
    stream stream_signal_for_a_refusal;
    connected_streams stream_signal_for_a_reset;
    stream stream_signal_for_room;
    stream stream_signal_omitted_for_a_sleeping_reader;
}

fn stream_signal_for_data(trace: &Trace, (client, server): Pair) -> Outcome {
    let driven = Driven::new(&server)?;
    trace.signals("nothing", &driven);
    for round in 1..=3 {
        client.send_all(b"data")?;
        trace.signals_until(&format!("data {round}"), &driven, "POLL_IN");
    }
    trace.receive("all of it", &server, 100, 0);
    trace.signals("reading is no news", &driven);
    trace.see("send", server.send(b"answer", 0));
    trace.receive("the answer", &client, 100, 0);
    trace.signals("nor is writing with room", &driven);
    Ok(())
}

fn stream_signal_for_the_end(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(131)?;
    let driven = Driven::new(&server)?;
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("half", &server, libc::POLLRDHUP)?;
    trace.signals_until("the peer's half", &driven, "POLL_IN");

    let (client, server) = side.stream(132)?;
    server.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the other half", &client, libc::POLLRDHUP)?;
    let driven = Driven::new(&server)?;
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("both", &server, libc::POLLHUP)?;
    trace.signals_until("the last half", &driven, "POLL_HUP");
    Ok(())
}

fn stream_signal_for_a_connection(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(133, 4)?;
    let driven = Driven::new(&listener)?;
    trace.signals("nobody", &driven);
    let client = side.dial(133)?;
    trace.signals_until("one", &driven, "POLL_IN");
    let (server, _) = listener.accept(0)?;
    trace.signals("accepting is no news", &driven);
    // An accepted socket does not inherit signal-driven I/O.
    client.send_all(b"data")?;
    trace.receive("data", &server, 10, 0);
    trace.signals("the child is silent", &driven);
    Ok(())
}

fn connect(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(134, 4)?;
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    let driven = Driven::new(&client)?;
    trace.see("connect", client.connect_bytes(&side.far(134)));
    trace.signals_until("connected", &driven, "POLL_OUT");
    trace.poll("so it is", &client)?;
    drop(listener);
    Ok(())
}

fn stream_signal_for_a_refusal(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    client.set_nonblocking(true)?;
    let driven = Driven::new(&client)?;
    trace.see("connect", client.connect_bytes(&side.far(135)));
    trace.signals_until("refused", &driven, "POLL_ERR");
    Ok(())
}

fn stream_signal_for_a_reset(trace: &Trace, (client, server): Pair) -> Outcome {
    server.send_all(b"never read")?;
    trace.poll_until("it came", &client, libc::POLLIN)?;
    let driven = Driven::new(&server)?;
    drop(client);
    trace.signals_until("reset", &driven, "POLL_ERR");
    Ok(())
}

fn stream_signal_for_room(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = small_stream(side, 137)?;
    let full = fill(&client)?;
    let driven = Driven::new(&client)?;
    trace.poll("full", &client)?;
    trace.signals("nothing", &driven);
    server.receive_all(full)?;
    trace.signals_until("room", &driven, "POLL_OUT");
    trace.see("send", client.send(b"x", 0));
    Ok(())
}

fn stream_signal_omitted_for_a_sleeping_reader(side: &Side<'_>, trace: &Trace) -> Outcome {
    // The softirq wakes the reader before it checks whether the reader sleeps. On another processor
    // the reader could already be awake at the time of the check. So both run on one processor.
    processor::stay()?;
    let (client, server) = side.stream(138)?;
    let driven = Driven::new(&server)?;
    let call = || server.receive(&mut [0; 10], 0);
    // The sleeping call gets the data. So the kernel sends no signal, which would only interrupt
    // that call.
    let _ = trace.sleeping("receive", libc::SYS_recvfrom, call, |_| {
        Ok(client.send_all(b"data")?)
    })?;
    if !processor::has_softirq_tasks()? {
        trace.signals("none", &driven);
    }
    client.send_all(b"more")?;
    trace.signals_until("awake again", &driven, "POLL_IN");
    Ok(())
}
