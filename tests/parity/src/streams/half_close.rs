// SPDX-License-Identifier: GPL-2.0-only

//! Compares `shutdown` over TCP and ESP: of one half, of both, and twice. Also compares the calls
//! that still work afterwards.

use super::super::moments::send_apart;
use crate::prelude::*;

behaviours! {
    connected_streams stream_half_closed_still_answers;
    connected_streams stream_half_closed_by_the_server;
    connected_streams stream_shutdown_of_reading = of_reading;
    connected_streams stream_shutdown_of_reading_with_data_queued;
    connected_streams stream_shutdown_of_both;
    stream stream_shutdown_twice;
    connected_streams stream_shutdown_after_the_peer;
    connected_streams stream_shutdown_after_a_clean_end;
    connected_streams stream_shutdown_stops_a_blocked_sender;
    connected_streams stream_end_behind_unread_data;
    connected_streams stream_ends_cross;
    connected_streams stream_data_and_ends_cross;
}

fn see(trace: &Trace, who: &str, socket: &Socket) {
    see_end(trace, who, socket, "rse");
}

fn stream_half_closed_still_answers(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"question")?;
    trace.see("client ends", client.shutdown(libc::SHUT_WR));
    trace.receive("server reads", &server, 8, libc::MSG_WAITALL);
    trace.receive("the end", &server, 100, 0);
    trace.poll("server", &server)?;
    trace.poll("client", &client)?;
    trace.see("client sends", client.send(b"x", libc::MSG_NOSIGNAL));
    send_apart(&server, &[b"an ", b"answer"])?;
    arrived(&client, 9)?;
    trace.receive("client reads", &client, 100, 0);
    trace.see("server ends", server.shutdown(libc::SHUT_WR));
    trace.receive("client reads the end", &client, 100, 0);
    trace.poll_until("client at last", &client, libc::POLLHUP)?;
    trace.poll_until("server at last", &server, libc::POLLHUP)?;
    see(trace, "client", &client);
    see(trace, "server", &server);
    Ok(())
}

fn stream_half_closed_by_the_server(trace: &Trace, (client, server): Pair) -> Outcome {
    server.send_all(b"greeting")?;
    trace.see("server ends", server.shutdown(libc::SHUT_WR));
    trace.receive("client reads", &client, 8, libc::MSG_WAITALL);
    trace.receive("the end", &client, 100, 0);
    client.send_all(b"thanks")?;
    drop(client);
    trace.receive("server reads", &server, 6, libc::MSG_WAITALL);
    trace.receive("the other end", &server, 100, 0);
    see(trace, "server", &server);
    Ok(())
}

fn of_reading(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("shutdown", server.shutdown(libc::SHUT_RD));
    trace.poll("server", &server)?;
    trace.receive("read", &server, 100, 0);
    trace.see("the peer may send", client.send(b"unheard", 0));
    acknowledged(&client)?;
    trace.see("queued", server.queued(libc::FIONREAD));
    trace.receive("what was sent can be read", &server, 100, 0);
    trace.receive("and then", &server, 100, 0);
    trace.see("writing goes on", server.send(b"hello", 0));
    trace.receive("the peer reads", &client, 100, 0);
    trace.poll("the peer knows nothing", &client)
}

fn stream_shutdown_of_reading_with_data_queued(trace: &Trace, (client, server): Pair) -> Outcome {
    client.send_all(b"queued")?;
    arrived(&server, 6)?;
    trace.see("shutdown", server.shutdown(libc::SHUT_RD));
    trace.receive("read some", &server, 3, 0);
    trace.receive("wait for all", &server, 100, libc::MSG_WAITALL);
    trace.receive("and then", &server, 100, 0);
    client.shutdown(libc::SHUT_WR)?;
    trace.receive("at the end", &server, 100, 0);
    Ok(())
}

fn stream_shutdown_of_both(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("shutdown", client.shutdown(libc::SHUT_RDWR));
    trace.poll("client", &client)?;
    see(trace, "client", &client);
    trace.receive("server reads the end", &server, 100, 0);
    trace.poll("server", &server)?;
    trace.see("server answers", server.send(b"late", 0));
    trace.poll_until("nobody wants to hear it", &server, libc::POLLHUP)?;
    see(trace, "server", &server);
    trace.poll_until("client", &client, libc::POLLERR)?;
    see(trace, "client", &client);
    Ok(())
}

fn stream_shutdown_twice(side: &Side<'_>, trace: &Trace) -> Outcome {
    for (what, how) in [
        ("reading", libc::SHUT_RD),
        ("writing", libc::SHUT_WR),
        ("both", libc::SHUT_RDWR),
    ] {
        let (client, server) = side.stream(7 + how as u16)?;
        trace.see(&format!("{what}, first"), client.shutdown(how));
        trace.see(&format!("{what}, again"), client.shutdown(how));
        trace.see(
            &format!("then both, after {what}"),
            client.shutdown(libc::SHUT_RDWR),
        );
        trace.receive(&format!("the peer, after {what}"), &server, 10, 0);
    }
    let (client, server) = side.stream(20)?;
    for how in [-1, 3, i32::MAX] {
        trace.see("an unknown half", client.shutdown(how));
    }
    client.send_all(b"still there")?;
    trace.receive("nothing was shut down", &server, 100, 0);
    Ok(())
}

fn stream_shutdown_after_the_peer(trace: &Trace, (client, server): Pair) -> Outcome {
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.see("reading", server.shutdown(libc::SHUT_RD));
    trace.see("writing still goes", server.send(b"x", 0));
    trace.see("writing", server.shutdown(libc::SHUT_WR));
    trace.receive("client", &client, 1, libc::MSG_WAITALL);
    trace.receive("client at the end", &client, 1, 0);
    Ok(())
}

fn stream_shutdown_after_a_clean_end(trace: &Trace, (client, server): Pair) -> Outcome {
    client.shutdown(libc::SHUT_WR)?;
    trace.receive("the end", &server, 1, 0);
    server.shutdown(libc::SHUT_WR)?;
    trace.poll_until("client is done", &client, libc::POLLHUP)?;
    trace.poll_until("server is done", &server, libc::POLLHUP)?;
    acknowledged(&server)?;
    for how in [libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR] {
        trace.see("server", server.shutdown(how));
        trace.see("client", client.shutdown(how));
    }
    Ok(())
}

fn stream_shutdown_stops_a_blocked_sender(trace: &Trace, (client, server): Pair) -> Outcome {
    let bytes = vec![7; 16_000_000];
    let send = || client.send(&bytes, libc::MSG_NOSIGNAL);
    let (_, sent, ()) = asleep(libc::SYS_sendto, send, |sleeper| {
        trace.see("it waits", sleeper.sleeps()?);
        trace.see("shutdown", client.shutdown(libc::SHUT_WR));
        Ok(())
    })?;
    let sent = sent?;
    trace.see("some was sent", sent > 0 && sent < bytes.len());
    trace.see("send again", client.send(&bytes, libc::MSG_NOSIGNAL));
    let (got, _) = guest::transfer::receive_to_end(&server, 65536)?;
    trace.see("just that comes", got == sent);
    Ok(())
}

fn stream_end_behind_unread_data(trace: &Trace, (client, server): Pair) -> Outcome {
    send_apart(&client, &[b"abc", b"def"])?;
    drop(client);
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    trace.see("queued", server.queued(libc::FIONREAD));
    trace.receive("some", &server, 4, 0);
    trace.receive("the rest", &server, 100, 0);
    trace.receive("the end", &server, 100, 0);
    trace.receive("the end again", &server, 100, 0);
    trace.poll("still so", &server)
}

fn stream_ends_cross(trace: &Trace, (client, server): Pair) -> Outcome {
    let (there, here) = beside(
        || Ok(server.shutdown(libc::SHUT_WR)),
        || Ok(client.shutdown(libc::SHUT_WR)),
    )?;
    trace.see("client", here);
    trace.see("server", there);
    trace.receive("client reads", &client, 10, 0);
    trace.receive("server reads", &server, 10, 0);
    trace.poll_until("client at last", &client, libc::POLLHUP)?;
    trace.poll_until("server at last", &server, libc::POLLHUP)?;
    see(trace, "client", &client);
    see(trace, "server", &server);
    Ok(())
}

fn stream_data_and_ends_cross(trace: &Trace, (client, server): Pair) -> Outcome {
    let bytes = guest::transfer::random(50_000, 7);
    let play = |socket: &Socket| {
        socket.send_all(&bytes)?;
        socket.shutdown(libc::SHUT_WR)?;
        let got = socket.receive_all(bytes.len())?;
        Ok((got == bytes, socket.receive(&mut [0; 10], 0)?))
    };
    let (there, here) = beside(|| play(&server), || play(&client))?;
    trace.see("client got all", here.0);
    trace.see("client at the end", here.1);
    trace.see("server got all", there.0);
    trace.see("server at the end", there.1);
    Ok(())
}
