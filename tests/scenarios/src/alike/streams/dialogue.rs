//! The plain dialogue: what most programs do and nothing else.

use super::super::{Side, Trace};
use crate::harness::{Outcome, Scenario};

/// The behaviours of this file.
pub const ALL: &[Scenario] = &[
    Scenario::stream("stream_dialogue", dialogue),
    Scenario::stream("stream_connect_to_an_unused_port", nobody_listens),
];

fn dialogue(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    trace.poll("client at first", &client)?;
    trace.poll("server at first", &server)?;
    let _ = trace.call("client sends", client.send(b"question", 0));
    trace.poll_until("server has something to read", &server, libc::POLLIN)?;
    trace.receive("server reads", &server, 100, 0);
    let _ = trace.call("server answers", server.send(b"answer", 0));
    trace.receive("client reads", &client, 100, 0);
    drop(client);
    trace.receive("server at the end", &server, 100, 0);
    trace.poll("server after the end", &server)?;
    Ok(())
}

fn nobody_listens(side: &Side<'_>, trace: &Trace) -> Outcome {
    let client = side.socket(&side.lab.a)?;
    let _ = trace.call("connect", client.connect_bytes(&side.far(7)));
    trace.poll("afterwards", &client)?;
    trace.pending_error("pending", &client);
    let _ = trace.call("send", client.send(b"x", libc::MSG_NOSIGNAL));
    trace.receive("receive", &client, 1, 0);
    Ok(())
}
