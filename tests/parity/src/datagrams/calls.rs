// SPDX-License-Identifier: GPL-2.0-only

//! Compares calls of UDP and EDP that pass many messages at once, calls that pass control data, and
//! calls that a datagram socket refuses.

use super::super::moments::deliver;
use crate::prelude::*;
use guest::calls::{control, receive_many, send_control, send_many, with_sigpipe};

behaviours! {
    connected_datagrams datagram_sends_many;
    connected_datagrams datagram_receives_many = receives_many;
    connected_datagrams datagram_receives_many_with_a_time_limit;
    connected_datagrams datagram_receives_many_until_an_error;
    connected_datagrams datagram_control_data;
    connected_datagrams datagram_urgent_and_error_queue;
    connected_datagrams datagram_msg_more_is_one_datagram;
    datagram datagram_msg_more_never_completed;
    datagram datagram_msg_more_goes_to_the_first_address;
    connected_datagrams datagram_msg_more_ends_with_an_error;
    datagram datagram_send_without_a_destination;
    datagram datagram_send_to_another_address_when_connected;
    datagram datagram_sigpipe;
    datagram datagram_flags_of_a_received_message;
}

const NOW: i32 = libc::MSG_DONTWAIT;
const MORE: i32 = libc::MSG_MORE;

fn datagram_sends_many(trace: &Trace, (a, b): Pair) -> Outcome {
    let good = [Piece::Good(b"abc"), Piece::Good(b""), Piece::Good(b"defg")];
    trace.see("send", send_many(&a, &good, 0));
    for _ in 0..3 {
        trace.receive("receive", &b, 100, 0);
    }
    let bad = [Piece::Good(b"abc"), Piece::Bad(5), Piece::Good(b"def")];
    trace.see("until bad memory", send_many(&a, &bad, 0));
    trace.receive("the good one", &b, 100, 0);
    trace.see("bad memory at once", send_many(&a, &bad[1..], 0));
    let large = vec![0; 70_000];
    let pieces = [Piece::Good(b"small"), Piece::Good(&large)];
    trace.see("until one is too large", send_many(&a, &pieces, 0));
    trace.receive("the small one", &b, 100, 0);
    trace.pending_error("pending", &a);
    Ok(())
}

fn lengths(got: std::io::Result<Vec<(usize, i32)>>) -> std::io::Result<String> {
    got.map(|got| format!("{got:?}"))
}

fn receives_many(trace: &Trace, (a, b): Pair) -> Outcome {
    let (mut c, mut d, mut e) = ([0; 4], [0; 4], [0; 4]);
    let mut receive = |flags| {
        let pieces = &mut [
            PieceMut::Good(&mut c),
            PieceMut::Good(&mut d),
            PieceMut::Good(&mut e),
        ];
        lengths(receive_many(&b, pieces, flags, None))
    };
    trace.see("nothing there", receive(NOW));
    deliver(&a, &b, b"abc")?;
    deliver(&a, &b, b"defghi")?;
    trace.see("what is there", receive(NOW));
    deliver(&a, &b, b"")?;
    deliver(&a, &b, b"x")?;
    trace.see("wait for one", receive(libc::MSG_WAITFORONE));
    for _ in 0..4 {
        deliver(&a, &b, b"xyz")?;
    }
    trace.see("all asked for", receive(0));
    trace.receive("one is left", &b, 100, NOW);
    Ok(())
}

fn datagram_receives_many_with_a_time_limit(trace: &Trace, (a, b): Pair) -> Outcome {
    for text in [b"abc", b"def", b"ghi"] {
        deliver(&a, &b, text)?;
    }
    let (mut c, mut d) = ([0; 4], [0; 4]);
    let mut receive = |timeout| {
        let pieces = &mut [PieceMut::Good(&mut c), PieceMut::Good(&mut d)];
        lengths(receive_many(&b, pieces, 0, Some(timeout)))
    };
    trace.see("no time at all", receive(Duration::ZERO));
    trace.see("time enough", receive(Duration::from_secs(40)));
    b.set_timeout(libc::SO_RCVTIMEO, Duration::from_millis(50))?;
    let none = receive(Duration::from_secs(40));
    trace.see("the socket's own limit", none);
    deliver(&a, &b, b"jkl")?;
    trace.see("one before it", receive(Duration::from_secs(40)));
    Ok(())
}

fn datagram_receives_many_until_an_error(trace: &Trace, (a, b): Pair) -> Outcome {
    for text in [b"abc", b"def", b"ghi"] {
        deliver(&a, &b, text)?;
    }
    let mut good = [0; 4];
    let pieces = &mut [PieceMut::Good(&mut good), PieceMut::Bad(4)];
    trace.see("one of two", lengths(receive_many(&b, pieces, 0, None)));
    trace.poll("the error waits", &b)?;
    let pieces = &mut [PieceMut::Good(&mut good)];
    trace.see("it comes first", lengths(receive_many(&b, pieces, 0, None)));
    trace.receive("the third", &b, 100, NOW);
    trace.receive("nothing", &b, 100, NOW);
    Ok(())
}

fn datagram_control_data(trace: &Trace, (a, b): Pair) -> Outcome {
    let socket = libc::SOL_SOCKET;
    let unknown = send_control(&a, b"a", &control(socket, 0x7777, &[0; 4], 0));
    trace.see("unknown at the socket level", unknown);
    let elsewhere = send_control(&a, b"b", &control(0x7777, 1, &[0; 4], 0));
    trace.see("at an unknown level", elsewhere);
    let long = send_control(&a, b"c", &control(0x7777, 1, &[0; 8], 64));
    trace.see("longer than there is", long);
    let short = send_control(&a, b"d", &control(0x7777, 1, &[0; 8], -20));
    trace.see("shorter than its header", short);
    let mark = |length| control(socket, libc::SO_MARK, &vec![0; length], 0);
    trace.see("a mark", send_control(&a, b"f", &mark(4)));
    trace.see("half a mark", send_control(&a, b"g", &mark(2)));
    deliver(&a, &b, b"the last")?;
    let mut got = Vec::new();
    while got != b"the last" {
        let mut bytes = [0; 20];
        let length = b.receive(&mut bytes, 0)?;
        got = bytes[..length].to_vec();
        trace.bytes("what came", &got);
    }
    Ok(())
}

fn datagram_urgent_and_error_queue(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.see("send urgently", a.send(b"!", libc::MSG_OOB));
    deliver(&a, &b, b"hello")?;
    trace.receive("error queue", &b, 10, libc::MSG_ERRQUEUE);
    trace.receive("receive urgently", &b, 10, libc::MSG_OOB | NOW);
    trace.receive("receive", &b, 10, NOW);
    for (what, flag) in [
        ("MSG_EOR", libc::MSG_EOR),
        ("MSG_CONFIRM", libc::MSG_CONFIRM),
        ("MSG_DONTROUTE", libc::MSG_DONTROUTE),
        ("MSG_ZEROCOPY", libc::MSG_ZEROCOPY),
    ] {
        trace.see(what, a.send(b"flagged", flag));
        trace.receive("it comes", &b, 100, 0);
    }
    Ok(())
}

fn datagram_msg_more_is_one_datagram(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.see("begin", a.send(b"one ", MORE));
    trace.see("go on", a.send(b"two ", MORE));
    trace.see("nothing more", a.send(b"", MORE));
    trace.receive("not yet", &b, 100, NOW);
    trace.see("end", a.send(b"three", 0));
    trace.receive("receive", &b, 100, 0);
    trace.see("begin", a.send(b"four", MORE));
    trace.see("end by nothing", a.send(b"", 0));
    trace.receive("receive", &b, 100, 0);
    deliver(&a, &b, b"alone")?;
    trace.receive("as before", &b, 100, 0);
    Ok(())
}

fn datagram_msg_more_never_completed(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    trace.see("begin", a.send(b"unfinished", MORE));
    drop(a);
    let a = side.bound(&side.lab.a, 7)?;
    a.connect_bytes(&side.far(7))?;
    deliver(&a, &b, b"whole")?;
    trace.receive("what comes", &b, 100, 0);
    trace.receive("and no more", &b, 100, NOW);
    Ok(())
}

fn datagram_msg_more_goes_to_the_first_address(side: &Side<'_>, trace: &Trace) -> Outcome {
    let a = side.socket(&side.lab.a)?;
    let (first, second) = (side.bound(&side.lab.b, 7)?, side.bound(&side.lab.b, 8)?);
    trace.see("begin", a.send_to_bytes(b"one ", MORE, &side.far(7)));
    trace.see("elsewhere", a.send_to_bytes(b"two ", MORE, &side.far(8)));
    trace.see("end", a.send(b"three", 0));
    trace.receive("the first gets all", &first, 100, 0);
    trace.receive("the second nothing", &second, 100, NOW);
    trace.see("then nowhere", a.send(b"four", 0));
    Ok(())
}

fn datagram_msg_more_ends_with_an_error(trace: &Trace, (a, b): Pair) -> Outcome {
    trace.see("begin", a.send(b"one ", MORE));
    let bad = a.send_message(&[Piece::Bad(5)], MORE, &[]);
    trace.see("bad memory", bad);
    deliver(&a, &b, b"two")?;
    trace.receive("that was the end of it", &b, 100, 0);
    let large = vec![0; 60_000];
    trace.see("begin", a.send(b"one ", MORE));
    let _ = a.send(&large, MORE);
    trace.see("too large", a.send(&large, MORE));
    deliver(&a, &b, b"three")?;
    trace.receive("that too", &b, 100, 0);
    Ok(())
}

fn datagram_send_without_a_destination(side: &Side<'_>, trace: &Trace) -> Outcome {
    let fresh = side.socket(&side.lab.a)?;
    trace.see("send", fresh.send(b"x", 0));
    trace.see("send nothing", fresh.send(b"", 0));
    trace.see("write", nix::unistd::write(&fresh, b"x"));
    trace.see(
        "send bad memory",
        fresh.send_message(&[Piece::Bad(1)], 0, &[]),
    );
    trace.receive("receive", &fresh, 10, NOW);
    let bound = side.bound(&side.lab.a, 7)?;
    trace.see("bound, send", bound.send(b"x", 0));
    trace.see(
        "short address",
        bound.send_to_bytes(b"x", 0, &side.far(7)[..7]),
    );
    let mut strange = side.far(7);
    strange[0] = 99;
    trace.see("strange family", bound.send_to_bytes(b"x", 0, &strange));
    Ok(())
}

fn datagram_send_to_another_address_when_connected(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    let other = side.bound(&side.lab.b, 8)?;
    trace.see("send elsewhere", a.send_to_bytes(b"hello", 0, &side.far(8)));
    trace.receive("it comes there", &other, 100, 0);
    trace.see(
        "it answers",
        other.send_to_bytes(b"hi", 0, &side.address(&side.lab.b, &side.lab.a, 7)),
    );
    deliver(&b, &a, b"from the peer")?;
    trace.receive("only the peer is heard", &a, 100, 0);
    trace.receive("not the other", &a, 100, NOW);
    Ok(())
}

fn datagram_sigpipe(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, _b) = side.datagrams(7)?;
    trace.see("shutdown", a.shutdown(libc::SHUT_WR));
    let (sent, signal) = with_sigpipe(|| a.send(b"x", 0));
    trace.see("send", sent);
    trace.see("SIGPIPE", signal);
    let (sent, signal) = with_sigpipe(|| nix::unistd::write(&a, b"x"));
    trace.see("write", sent);
    trace.see("SIGPIPE by write", signal);
    let to = a.send_to_bytes(b"x", 0, &side.far(7));
    trace.see("to an address", to);
    Ok(())
}

fn datagram_flags_of_a_received_message(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    for _ in 0..3 {
        deliver(&a, &b, b"hello")?;
    }
    let mut room = [0; 10];
    let mut receive = |flags| b.receive_message(&mut [PieceMut::Good(&mut room)], flags);
    trace.see("peek", receive(libc::MSG_PEEK));
    trace.see("receive", receive(0));
    trace.see("close-on-exec", receive(libc::MSG_CMSG_CLOEXEC));
    trace.see("waitall", receive(libc::MSG_WAITALL));
    let (length, name) = {
        deliver(&a, &b, b"hello")?;
        b.receive_from(&mut [0; 10], 0)?
    };
    trace.see("length", length);
    trace.see("from port", side.port(&name));
    Ok(())
}
