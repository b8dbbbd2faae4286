// SPDX-License-Identifier: GPL-2.0-only

//! Compares calls over TCP and ESP that pass many pieces, many messages, or memory that is not
//! mapped.

use std::io::{IoSlice, IoSliceMut};

use nix::sys::uio::{readv, writev};

use super::super::moments::send_apart;
use crate::prelude::*;
use guest::calls::{receive_many, send_many};

behaviours! {
    connected_streams stream_vectors;
    connected_streams stream_longest_vectors;
    connected_streams stream_bad_memory = bad_memory;
    connected_streams stream_bad_memory_half_way;
    connected_streams stream_bad_memory_far_into_a_send;
    connected_streams stream_bad_memory_far_into_a_receive;
    connected_streams stream_sends_many_messages;
    connected_streams stream_receives_many_messages;
    connected_streams stream_receives_many_until_an_error;
}

fn stream_vectors(trace: &Trace, (client, server): Pair) -> Outcome {
    let parts = [&b"one"[..], b"", b"twotwo", b"3"];
    trace.see("writev", writev(&client, &parts.map(IoSlice::new)));
    arrived(&server, 10)?;
    let (mut a, mut b, mut c) = ([0; 2], [0; 5], [0; 9]);
    let mut rooms = [
        IoSliceMut::new(&mut a),
        IoSliceMut::new(&mut []),
        IoSliceMut::new(&mut b),
        IoSliceMut::new(&mut c),
    ];
    trace.see("readv", readv(&server, &mut rooms));
    trace.bytes("first", &a);
    trace.bytes("second", &b);
    trace.bytes("third", &c);
    // Some pieces of the message end within a packet, and some packets end within a piece.
    let bytes = random(10_000, 7);
    let parts = [&bytes[..1], &bytes[1..7000], &bytes[7000..]].map(Piece::Good);
    trace.see("sendmsg of much", client.send_message(&parts, 0, &[]));
    let mut got = vec![0; bytes.len()];
    let (a, rest) = got.split_at_mut(1500);
    let (b, c) = rest.split_at_mut(3);
    let rooms = &mut [a, b, c].map(PieceMut::Good);
    trace.see("recvmsg", server.receive_message(rooms, libc::MSG_WAITALL));
    trace.see("as sent", got == bytes);
    trace.see("writev of nothing", writev(&client, &[IoSlice::new(b"")]));
    trace.see("writev of no pieces", writev(&client, &[]));
    Ok(())
}

fn stream_longest_vectors(trace: &Trace, (client, server): Pair) -> Outcome {
    let bytes = random(1025, 7);
    let slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
    let pieces: Vec<_> = bytes.chunks(1).map(Piece::Good).collect();
    trace.see("writev, one too many", writev(&client, &slices));
    trace.see("sendmsg, one more", client.send_message(&pieces, 0, &[]));
    trace.see("writev", writev(&client, &slices[..1024]));
    arrived(&server, 1024)?;
    let mut got = [0; 1025];
    let mut rooms: Vec<_> = got.chunks_mut(1).map(IoSliceMut::new).collect();
    trace.see("readv, one too many", readv(&server, &mut rooms));
    trace.see("readv", readv(&server, &mut rooms[..1024]));
    drop(rooms);
    let mut rooms: Vec<_> = got[..].chunks_mut(1).map(PieceMut::Good).collect();
    let many = server.receive_message(&mut rooms, libc::MSG_DONTWAIT);
    trace.see("recvmsg, one too many", many);
    drop(rooms);
    trace.see("as sent", got[..1024] == bytes[..1024]);
    Ok(())
}

fn bad_memory(trace: &Trace, (client, server): Pair) -> Outcome {
    trace.see("send", client.send_message(&[Piece::Bad(5)], 0, &[]));
    trace.see(
        "send none of it",
        client.send_message(&[Piece::Bad(0)], 0, &[]),
    );
    let nothing = server.receive_message(&mut [PieceMut::Bad(5)], libc::MSG_DONTWAIT);
    trace.see("receive nothing", nothing);
    client.send_all(b"hello")?;
    arrived(&server, 5)?;
    trace.see(
        "receive",
        server.receive_message(&mut [PieceMut::Bad(5)], 0),
    );
    let peek = server.receive_message(&mut [PieceMut::Bad(5)], libc::MSG_PEEK);
    trace.see("peek", peek);
    trace.receive("nothing is lost", &server, 10, 0);
    client.shutdown(libc::SHUT_WR)?;
    trace.poll_until("the end", &server, libc::POLLRDHUP)?;
    let end = server.receive_message(&mut [PieceMut::Bad(5)], 0);
    trace.see("receive the end", end);
    Ok(())
}

fn stream_bad_memory_half_way(trace: &Trace, (client, server): Pair) -> Outcome {
    let pieces = [Piece::Good(b"good"), Piece::Bad(5)];
    trace.see("send", client.send_message(&pieces, 0, &[]));
    client.send_all(b"hello")?;
    arrived(&server, 5)?;
    let mut good = [0; 3];
    let mut pieces = [PieceMut::Good(&mut good), PieceMut::Bad(7)];
    trace.see("receive", server.receive_message(&mut pieces, 0));
    trace.see("still queued", server.queued(libc::FIONREAD));
    let pieces = &mut [PieceMut::Good(&mut good), PieceMut::Bad(0)];
    trace.see("up to there", server.receive_message(pieces, 0));
    trace.bytes("these", &good);
    trace.receive("the rest", &server, 10, 0);
    Ok(())
}

fn stream_bad_memory_far_into_a_send(trace: &Trace, (client, server): Pair) -> Outcome {
    let bytes = random(200_000, 7);
    let send = || {
        let sent = client.send_message(&[Piece::Good(&bytes), Piece::Bad(100_000)], 0, &[]);
        client.shutdown(libc::SHUT_WR)?;
        Ok(sent)
    };
    let receive = || {
        let mut all = Vec::new();
        let mut some = vec![0; 65536];
        loop {
            match server.receive(&mut some, 0)? {
                0 => return Ok(all),
                got => all.extend_from_slice(&some[..got]),
            }
        }
    };
    let (sent, got) = beside(send, receive)?;
    trace.see("some were sent", sent.as_ref().is_ok_and(|sent| *sent > 0));
    trace.see("none that cannot be read", got.len() <= bytes.len());
    trace.see("as many came", sent.is_ok_and(|sent| sent == got.len()));
    trace.see("as they were", bytes.starts_with(&got));
    Ok(())
}

/// The number of bytes per call depends on packet boundaries, but no byte may be lost.
fn stream_bad_memory_far_into_a_receive(trace: &Trace, (client, server): Pair) -> Outcome {
    let bytes = random(20_000, 89);
    client.send_all(&bytes)?;
    arrived(&server, bytes.len())?;
    let mut got = Vec::new();
    for good in [1, 100, 1489, 4000] {
        let (mut first, mut last) = (vec![0; good], [0; 100]);
        let rooms = &mut [
            PieceMut::Good(&mut first),
            PieceMut::Bad(2000),
            PieceMut::Good(&mut last),
        ];
        let length = server.receive_message(rooms, 0).map_or(0, |got| got.length);
        trace.see("no more than before the hole", length <= good);
        got.extend_from_slice(&first[..length.min(good)]);
    }
    let rest = server.receive_all(bytes.len() - got.len())?;
    got.extend_from_slice(&rest);
    trace.see("nothing is lost or comes twice", got == bytes);
    Ok(())
}

fn stream_sends_many_messages(trace: &Trace, (client, server): Pair) -> Outcome {
    let good = [Piece::Good(b"abc"), Piece::Good(b""), Piece::Good(b"defg")];
    trace.see("send", send_many(&client, &good, 0));
    arrived(&server, 7)?;
    trace.receive("receive", &server, 100, 0);
    let bad = [Piece::Good(b"abc"), Piece::Bad(5), Piece::Good(b"def")];
    trace.see("send until bad memory", send_many(&client, &bad, 0));
    arrived(&server, 3)?;
    trace.receive("what came", &server, 100, 0);
    trace.see("bad memory at once", send_many(&client, &bad[1..], 0));
    trace.see("no message", send_many(&client, &[], 0));
    client.shutdown(libc::SHUT_WR)?;
    let late = send_many(&client, &good, libc::MSG_NOSIGNAL);
    trace.see("after the end", late);
    Ok(())
}

fn stream_receives_many_messages(trace: &Trace, (client, server): Pair) -> Outcome {
    send_apart(&client, &[b"abc", b"def", b"gh"])?;
    arrived(&server, 8)?;
    let (mut a, mut b, mut c, mut d) = ([0; 3], [0; 3], [0; 3], [0; 3]);
    let mut receive = |flags, timeout| {
        let pieces = &mut [
            PieceMut::Good(&mut a),
            PieceMut::Good(&mut b),
            PieceMut::Good(&mut c),
            PieceMut::Good(&mut d),
        ];
        let got = receive_many(&server, pieces, flags, timeout)?;
        Ok::<_, std::io::Error>(format!("{got:?}"))
    };
    let all = libc::MSG_WAITALL;
    let one = receive(all, Some(Duration::ZERO));
    trace.see("one, then the time is up", one);
    let some = receive(all | libc::MSG_WAITFORONE, None);
    trace.see("what is there", some);
    let none = receive(libc::MSG_DONTWAIT, None);
    trace.see("nothing there", none);
    client.send_all(b"xyz")?;
    arrived(&server, 3)?;
    client.shutdown(libc::SHUT_WR)?;
    trace.see("to the end", receive(all, None));
    trace.bytes("the last", &a);
    Ok(())
}

fn stream_receives_many_until_an_error(trace: &Trace, (client, server): Pair) -> Outcome {
    send_apart(&client, &[b"abc", b"def"])?;
    arrived(&server, 6)?;
    let mut good = [0; 3];
    let pieces = &mut [PieceMut::Good(&mut good), PieceMut::Bad(3)];
    let got = receive_many(&server, pieces, 0, None).map(|got| format!("{got:?}"));
    trace.see("one of two", got);
    trace.poll("the error waits", &server)?;
    trace.receive("what is left comes first", &server, 100, 0);
    trace.receive("the error", &server, 100, libc::MSG_DONTWAIT);
    trace.receive("and then", &server, 100, libc::MSG_DONTWAIT);
    Ok(())
}
