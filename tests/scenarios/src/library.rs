// SPDX-License-Identifier: GPL-2.0-only

//! Tests the Rust library's typed sockets, used as any program would use them.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use sockaddr_en::{
    Address, EdpSocket, EspListener, EspRecordListener, EspRecords, EspStream, MacAddr,
};

use guest::prelude::*;

scenarios! {
    direct library_datagrams = datagrams;
    direct library_streams = streams;
    direct library_records = records;
}

fn records(lab: &Lab) -> Outcome {
    let listener = (lab.b.namespace).within(|| EspRecordListener::bind("*:2813"))??;
    let there = Address::new(MacAddr(lab.b.mac), lab.a.ifindex, 2813);
    let client = (lab.a.namespace).within(|| EspRecords::connect_timeout(&there, patience()))??;
    let (server, peer) = listener.accept()?;
    ensure!(peer == server.peer_addr()?, "from {peer:?}");
    let long = random(65_536, 3);
    for record in [&b"one"[..], b"and two", &long, b"end"] {
        client.send(record)?;
    }
    let mut room = vec![0; 70_000];
    ensure!(server.peek(&mut room)? == 3, "a look");
    ensure!(
        server.recv(&mut room)? == 3 && room.starts_with(b"one"),
        "the first"
    );
    ensure!(server.recv(&mut room[..3])? == 7, "the length of a cut one");
    ensure!(
        server.recv(&mut room)? == long.len() && room.starts_with(&long),
        "the long one"
    );
    client.shutdown(Shutdown::Write)?;
    ensure!(server.recv(&mut room)? == 3, "the last");
    ensure!(server.recv(&mut room)? == 0, "the end");
    ensure!(client.send(b"").is_err(), "nothing is no record");
    let refused = lab.a.namespace.within(|| EspStream::connect(there))?;
    let kind = refused.map_err(|error| error.kind()).err();
    same(kind, Some(ErrorKind::ConnectionRefused), "a stream")
}

fn datagrams(lab: &Lab) -> Outcome {
    let name = format!("*%{DEVICE}:2810");
    let a = lab
        .a
        .namespace
        .within(|| EdpSocket::bind(name.as_str()))??;
    let b = lab.b.namespace.within(|| EdpSocket::bind("*:2811"))??;
    for socket in [&a, &b] {
        socket.set_read_timeout(Some(patience()))?;
    }
    a.send_to(
        b"question",
        Address::new(MacAddr(lab.b.mac), lab.a.ifindex, 2811),
    )?;
    let mut buffer = [0; 100];
    let (length, sender) = b.recv_from(&mut buffer)?;
    ensure!(&buffer[..length] == b"question", "{:?}", &buffer[..length]);
    let expected = Address::new(MacAddr(lab.a.mac), lab.b.ifindex, 2810);
    ensure!(sender == expected, "from {sender:?}");
    let printed = lab.b.namespace.within(|| sender.to_string())?;
    same(printed, "02:00:00:00:00:01%eth0:2810", "printed")?;

    b.connect(sender)?;
    ensure!(b.peer_addr()? == sender, "peer_addr {:?}", b.peer_addr()?);
    b.send(b"answer")?;
    ensure!(a.recv(&mut buffer)? == 6, "recv");
    same(a.max_datagram()?, 1494, "max_datagram")?;
    let stats = a.stats()?;
    ensure!((stats.pkt_tx, stats.pkt_rx) == (1, 1), "{stats:?}");
    b.send(b"longer than its buffer")?;
    let mut short = [0; 6];
    let received = a.receive(&mut short)?;
    ensure!(
        received.is_truncated() && (received.length, received.whole) == (6, 22),
        "a datagram that was cut off: {received:?}"
    );
    ensure!(&short == b"longer", "it begins with {short:?}");
    a.set_read_timeout(Some(Duration::from_millis(50)))?;
    match a.recv(&mut buffer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        other => bail!("recv with a time limit: {other:?}"),
    }
}

fn streams(lab: &Lab) -> Outcome {
    let name = format!("*%{DEVICE}:2812");
    let listener = lab
        .b
        .namespace
        .within(|| EspListener::bind(name.as_str()))??;
    let there = Address::new(MacAddr(lab.b.mac), lab.a.ifindex, 2812);
    let message = random(300_000, 2812);
    let send = || {
        let connected = lab
            .a
            .namespace
            .within(|| EspStream::connect("02:00:00:00:00:02%eth0:2812"))?;
        let mut stream = connected.context("connect by text")?;
        stream.write_all(&message)?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(stream.stats()?.pkt_tx > 0, "nothing was counted");
        Ok(answer)
    };
    let receive = || {
        let (mut stream, peer) = listener.accept()?;
        ensure!(peer.mac == MacAddr(lab.a.mac), "accepted {peer:?}");
        let mut got = Vec::new();
        stream.read_to_end(&mut got)?;
        stream.write_all(b"thanks")?;
        Ok(got)
    };
    let (answer, got) = beside(send, receive)?;
    ensure!(
        answer == "thanks" && got == message,
        "the bytes changed on the way"
    );

    let stream = lab
        .a
        .namespace
        .within(|| EspStream::connect_timeout(&there, patience()))?
        .context("connect with a time limit")?;
    drop(listener);
    drop(stream);
    let refused = lab.a.namespace.within(|| EspStream::connect(there))?;
    match refused {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        other => bail!("connect to a closed port: {other:?}"),
    }
}
