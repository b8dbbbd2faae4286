// SPDX-License-Identifier: GPL-2.0-only

//! Compares TCP and ESP in the dialogue of most programs: a question and its answer.

use crate::prelude::*;

behaviours! {
    connected_streams stream_dialogue;
}

fn stream_dialogue(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.poll("client at first", &client)?;
    trace.poll("server at first", &server)?;
    trace.see("client sends", client.send(b"question", 0));
    trace.poll_until("server has something to read", &server, libc::POLLIN)?;
    trace.receive("server reads", &server, 100, 0);
    trace.see("server answers", server.send(b"answer", 0));
    trace.receive("client reads", &client, 100, 0);
    drop(client);
    trace.receive("server at the end", &server, 100, 0);
    trace.poll("server after the end", &server)
}
