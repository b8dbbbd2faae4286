// SPDX-License-Identifier: GPL-2.0-only

//! Compares how UDP and EDP handle datagrams that are too large, truncated, empty, in several
//! pieces, or in memory that is not mapped.

use std::io::{IoSlice, IoSliceMut};

use nix::sys::uio::{readv, writev};
use nix::unistd::{read, write};

use super::super::moments::deliver;
use crate::prelude::*;

behaviours! {
    connected_datagrams datagram_truncated = cut_off;
    connected_datagrams datagram_truncated_in_pieces;
    connected_datagrams datagram_too_large;
    connected_datagrams datagram_as_large_as_a_packet;
    connected_datagrams datagram_empty;
    connected_datagrams datagram_waitall_takes_one;
    connected_datagrams datagram_vectors;
    connected_datagrams datagram_longest_vectors;
    connected_datagrams datagram_bad_memory = bad_memory;
    connected_datagrams datagram_bad_memory_half_way;
    connected_datagrams datagram_queue_lengths;
}

const NOW: i32 = libc::MSG_DONTWAIT;

fn cut_off(trace: &Trace, (a, b): Pair) -> Outcome {
    for _ in 0..3 {
        deliver(&a, &b, b"hello world")?;
    }
    let mut room = [0; 5];
    let mut receive = |flags| b.receive_message(&mut [PieceMut::Good(&mut room)], flags);
    trace.see("peek", receive(libc::MSG_PEEK));
    trace.see("receive", receive(0));
    trace.see("receive with the length", receive(libc::MSG_TRUNC));
    trace.bytes("what came", &room);
    trace.see("read", read(&b, &mut [0; 4]));
    trace.receive("the rest is gone", &b, 100, NOW);
    Ok(())
}

fn datagram_truncated_in_pieces(trace: &Trace, (a, b): Pair) -> Outcome {
    deliver(&a, &b, b"hello world")?;
    let (mut first, mut second) = ([0; 2], [0; 4]);
    let pieces = &mut [PieceMut::Good(&mut first), PieceMut::Good(&mut second)];
    trace.see("receive", b.receive_message(pieces, 0));
    trace.bytes("first", &first);
    trace.bytes("second", &second);
    deliver(&a, &b, b"abcdef")?;
    let pieces = &mut [PieceMut::Good(&mut first), PieceMut::Good(&mut second)];
    trace.see("just enough room", b.receive_message(pieces, 0));
    Ok(())
}

fn datagram_too_large(trace: &Trace, (a, b): Pair) -> Outcome {
    for length in [65536, 70_000, 1_000_000] {
        trace.see(&format!("{length} bytes"), a.send(&vec![0; length], 0));
    }
    let bad = a.send_message(&[Piece::Bad(70_000)], 0, &[]);
    trace.see("too large and not there", bad);
    trace.pending_error("pending", &a);
    trace.receive("nothing came", &b, 100, NOW);
    deliver(&a, &b, b"small")?;
    trace.receive("a small one does", &b, 100, 0);
    Ok(())
}

fn datagram_as_large_as_a_packet(trace: &Trace, (a, b): Pair) -> Outcome {
    let bytes = random(1400, 7);
    trace.see("send", a.send(&bytes, 0));
    let mut got = vec![0; 2000];
    trace.see("receive", b.receive(&mut got, 0));
    trace.see("as it was", got.starts_with(&bytes));
    Ok(())
}

fn datagram_empty(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.see("send", a.send(b"", 0));
    trace.poll_until("something came", &b, libc::POLLIN)?;
    trace.see("its length", b.queued(libc::FIONREAD));
    trace.receive("peek", &b, 100, libc::MSG_PEEK);
    let mut room = [0; 10];
    let received = b.receive_message(&mut [PieceMut::Good(&mut room)], 0);
    trace.see("receive", received);
    trace.poll("then", &b)?;
    trace.receive("no more", &b, 10, NOW);
    trace.see("write", write(&a, b""));
    trace.see("writev", writev(&a, &[IoSlice::new(b"")]));
    trace.see("a message of no pieces", a.send_message(&[], 0, &[]));
    deliver(&a, &b, b"behind them")?;
    let mut empties = 0;
    let mut bytes = [0; 20];
    let length = loop {
        match b.receive(&mut bytes, 0)? {
            0 => empties += 1,
            length => break length,
        }
    };
    trace.see("empty ones before it", empties);
    trace.bytes("it", &bytes[..length]);
    deliver(&a, &b, b"hello")?;
    trace.receive("no room for it", &b, 0, 0);
    trace.receive("it is gone", &b, 100, NOW);
    trace.see("read of nothing", read(&b, &mut []));
    Ok(())
}

fn datagram_waitall_takes_one(trace: &Trace, (a, b): Pair) -> Outcome {
    deliver(&a, &b, b"abc")?;
    deliver(&a, &b, b"def")?;
    trace.receive("the first", &b, 100, libc::MSG_WAITALL);
    trace.receive("the second", &b, 100, libc::MSG_WAITALL);
    trace.receive("none", &b, 100, libc::MSG_WAITALL | NOW);
    Ok(())
}

fn datagram_vectors(trace: &Trace, (a, b): Pair) -> Outcome {
    let parts = [&b"one"[..], b"", b"twotwo", b"3"];
    trace.see("writev", writev(&a, &parts.map(IoSlice::new)));
    let (mut c, mut d) = ([0; 4], [0; 20]);
    let mut rooms = [
        IoSliceMut::new(&mut c),
        IoSliceMut::new(&mut []),
        IoSliceMut::new(&mut d),
    ];
    trace.see("readv", readv(&b, &mut rooms));
    trace.bytes("first", &c);
    trace.bytes("second", &d[..6]);
    Ok(())
}

fn datagram_longest_vectors(trace: &Trace, (a, b): Pair) -> Outcome {
    let bytes = random(1025, 7);
    let slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
    let pieces: Vec<_> = bytes.chunks(1).map(Piece::Good).collect();
    trace.see("writev, one too many", writev(&a, &slices));
    trace.see("sendmsg, one too many", a.send_message(&pieces, 0, &[]));
    trace.see("writev", writev(&a, &slices[..1024]));
    let mut got = [0; 1025];
    let mut rooms: Vec<_> = got.chunks_mut(1).map(IoSliceMut::new).collect();
    trace.see("readv, one too many", readv(&b, &mut rooms));
    trace.see("readv", readv(&b, &mut rooms[..1024]));
    drop(rooms);
    trace.see("as sent", got[..1024] == bytes[..1024]);
    Ok(())
}

fn bad_memory(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.see("send", a.send_message(&[Piece::Bad(5)], 0, &[]));
    let nothing = b.receive_message(&mut [PieceMut::Bad(5)], NOW);
    trace.see("receive nothing", nothing);
    deliver(&a, &b, b"hello")?;
    deliver(&a, &b, b"world")?;
    let peek = b.receive_message(&mut [PieceMut::Bad(5)], libc::MSG_PEEK);
    trace.see("peek", peek);
    trace.receive("a look does no harm", &b, 100, libc::MSG_PEEK);
    trace.see("receive", b.receive_message(&mut [PieceMut::Bad(5)], 0));
    trace.receive("that one is lost", &b, 100, 0);
    Ok(())
}

fn datagram_bad_memory_half_way(trace: &Trace, (a, b): Pair) -> Outcome {
    let pieces = [Piece::Good(b"good"), Piece::Bad(5)];
    trace.see("send", a.send_message(&pieces, 0, &[]));
    deliver(&a, &b, b"hello")?;
    let mut good = [0; 3];
    let pieces = &mut [PieceMut::Good(&mut good), PieceMut::Bad(7)];
    trace.see("receive", b.receive_message(pieces, 0));
    trace.receive("nothing is left", &b, 100, NOW);
    deliver(&a, &b, b"abc")?;
    let pieces = &mut [PieceMut::Good(&mut good), PieceMut::Bad(7)];
    trace.see("one that does not get there", b.receive_message(pieces, 0));
    trace.bytes("it", &good);
    Ok(())
}

fn datagram_queue_lengths(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.see("in, at first", b.queued(libc::FIONREAD));
    trace.see("out, at first", a.queued(libc::TIOCOUTQ));
    deliver(&a, &b, b"hello")?;
    deliver(&a, &b, b"hello world")?;
    arrived(&b, 5)?;
    trace.see("the first alone counts", b.queued(libc::FIONREAD));
    trace.receive("peek", &b, 3, libc::MSG_PEEK);
    trace.see("unread after a look", b.queued(libc::FIONREAD));
    b.receive(&mut [0; 2], 0)?;
    trace.see("then the second", b.queued(libc::FIONREAD));
    b.receive(&mut [0; 2], 0)?;
    trace.see("none", b.queued(libc::FIONREAD));
    super::super::moments::acknowledged(&a)?;
    trace.see("out, at last", a.queued(libc::TIOCOUTQ));
    trace.see("unsent", a.queued(0x894b));
    Ok(())
}
