// SPDX-License-Identifier: GPL-2.0-only

//! Compares the answers to queries that `io_uring` sends to a socket (`SOCKET_URING_OP_SIOCINQ`,
//! `SOCKET_URING_OP_SIOCOUTQ`).

use io_uring::{opcode, types::Fd};

use crate::moments::deliver;
use crate::prelude::*;

/// `SOCKET_URING_OP_SIOCINQ` and `SOCKET_URING_OP_SIOCOUTQ` of `linux/io_uring.h`.
const SIOCINQ: u32 = 0;
const SIOCOUTQ: u32 = 1;

behaviours! {
    stream stream_uring_asks_for_queued_bytes = queued_bytes;
    datagram datagram_uring_asks_for_queued_bytes = queued_datagrams;
    stream stream_uring_asks_a_listener = listener;
    stream stream_uring_asks_between_connections = between;
}

fn ask(ring: &mut Ring, socket: &Socket, operation: u32) -> Result<impl super::super::Shown> {
    let entry = opcode::UringCmd16::new(Fd(socket.as_raw_fd()), operation).build();
    // SAFETY: The operation has no pointers to memory.
    unsafe { ring.once(entry) }
}

fn see(trace: &Trace, what: &str, ring: &mut Ring, socket: &Socket) -> Outcome {
    trace.see(&format!("{what}: in"), ask(ring, socket, SIOCINQ)?);
    trace.see(&format!("{what}: out"), ask(ring, socket, SIOCOUTQ)?);
    trace.see(&format!("{what}: by ioctl"), socket.queued(libc::FIONREAD));
    Ok(())
}

fn queued_bytes(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (client, server) = side.stream(7)?;
    let mut ring = Ring::new()?;
    see(trace, "nothing", &mut ring, &server)?;
    client.send_all(&[1; 100])?;
    arrived(&server, 100)?;
    see(trace, "100 bytes", &mut ring, &server)?;
    client.send_all(&[1; 2000])?;
    arrived(&server, 2100)?;
    server.receive_all(50)?;
    see(trace, "2050 bytes", &mut ring, &server)?;
    acknowledged(&client)?;
    see(trace, "the sender", &mut ring, &client)?;
    client.shutdown(libc::SHUT_WR)?;
    server.receive_all(2050)?;
    ensure!(server.receive(&mut [0], 0)? == 0, "there is more");
    see(trace, "at the end", &mut ring, &server)
}

fn queued_datagrams(side: &Side<'_>, trace: &Trace) -> Outcome {
    let (a, b) = side.datagrams(7)?;
    let mut ring = Ring::new()?;
    see(trace, "nothing", &mut ring, &b)?;
    for length in [100, 7] {
        deliver(&a, &b, &vec![1; length])?;
        see(trace, "the first", &mut ring, &b)?;
    }
    b.receive(&mut [0; 200], 0)?;
    see(trace, "the second", &mut ring, &b)?;
    see(trace, "the sender", &mut ring, &a)
}

fn listener(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let mut ring = Ring::new()?;
    trace.see("in", ask(&mut ring, &listener, SIOCINQ)?);
    trace.see("out", ask(&mut ring, &listener, SIOCOUTQ)?);
    Ok(())
}

fn between(side: &Side<'_>, trace: &Trace) -> Outcome {
    let listener = side.listener(7, 4)?;
    let client = side.socket(&side.lab.a)?;
    let mut ring = Ring::new()?;
    see(trace, "before", &mut ring, &client)?;
    for _ in 0..2 {
        client.connect_bytes(&side.far(7))?;
        let (server, _) = listener.accept(0)?;
        server.send_all(b"abc")?;
        arrived(&client, 3)?;
        see(trace, "connected", &mut ring, &client)?;
        client.receive_all(3)?;
        client.connect_bytes(&super::super::side::NOTHING)?;
        // `SIOCOUTQ`, for the other direction, is left out. On a disconnected TCP socket it returns
        // a value that is not a number of bytes.
        trace.see("disconnected: in", ask(&mut ring, &client, SIOCINQ)?);
    }
    Ok(())
}
