// SPDX-License-Identifier: GPL-2.0-only

//! Tests channels: how a socket becomes one, and which messages it sends and takes.

use guest::address::EP_SO_DOMAIN;
use guest::channel::{channel, header, Memory, PUT, SEND, TELLS};
use guest::prelude::*;

use crate::esp_records::{fill_backlog, socket, Peer};
use crate::puts::{listener, put, told, Channel, PAGE};

scenarios! {
    direct channel_is_made_once_before_it_connects = option;
    direct channel_and_plain_records_refuse_each_other = other_kind;
    direct channel_sends_only_messages = bad_sends;
    direct channel_resets_a_peer_that_breaks_its_rules = hostile;
    direct channel_behind_cookies = cookies;
}

fn option(lab: &Lab) -> Outcome {
    let plain = socket(&lab.b)?;
    same(plain.int_option(SOL_EP, EP_SO_DOMAIN)?, 0, "no channel")?;
    for (descriptor, error) in [(-1, libc::EBADF), (0, libc::ENOTSOCK), (9_999, libc::EBADF)] {
        let set = plain.set_int_option(SOL_EP, EP_SO_DOMAIN, descriptor);
        refused(set, error, "another descriptor")?;
    }
    for other in [
        lab.b.edp()?,
        Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0)?,
    ] {
        let set = plain.set_int_option(SOL_EP, EP_SO_DOMAIN, other.as_raw_fd());
        refused(set, libc::EINVAL, "another protocol")?;
    }
    let own = channel(plain)?;
    same(own.int_option(SOL_EP, EP_SO_DOMAIN)?, 1, "a channel")?;
    let set = |socket: &Socket| socket.set_int_option(SOL_EP, EP_SO_DOMAIN, socket.as_raw_fd());
    refused(set(&own), libc::EBUSY, "twice")?;
    refused(set(&lab.b.esp()?), libc::EOPNOTSUPP, "a stream")?;
    let listening = socket(&lab.b)?;
    listening.bind(&lab.b.here(761))?;
    listening.listen(1)?;
    refused(set(&listening), libc::EISCONN, "a listener")?;
    let client = socket(&lab.a)?;
    client.connect(&lab.a.to(&lab.b, 761))?;
    refused(set(&client), libc::EISCONN, "a connection")
}

fn other_kind(lab: &Lab) -> Outcome {
    let plain = socket(&lab.b)?;
    plain.bind(&lab.b.here(762))?;
    plain.listen(4)?;
    let channels = listener(&lab.b, 763)?;
    let to = |port| lab.a.to(&lab.b, port);
    for (client, port) in [
        (channel(socket(&lab.a)?)?, 762),
        (socket(&lab.a)?, 763),
        (lab.a.esp()?, 763),
    ] {
        refused(
            client.connect(&to(port)),
            libc::ECONNREFUSED,
            "another kind",
        )?;
    }
    for listener in [&plain, &channels] {
        listener.set_nonblocking(true)?;
        refused(listener.accept(0), libc::EAGAIN, "accept")?;
    }
    channel(socket(&lab.a)?)?.connect(&to(763))?;
    socket(&lab.a)?.connect(&to(762)).context("plain records")
}

fn bad_sends(lab: &Lab) -> Outcome {
    let channel = Channel::new(lab, 764)?;
    let good = header(SEND, 0, 1, 2, 3);
    for message in [
        &[][..],
        &good[..23],
        &header(0, 0, 0, 0, 0),
        &header(3, 0, 0, 0, 0),
        &header(SEND, 1, 0, 0, 0),
        &header(PUT, 2, 0, 0, 0),
        &[SEND, 0, 0, 1].repeat(6),
    ] {
        refused(channel.client.send(message, 0), libc::EINVAL, "no message")?;
    }
    let torn = [Piece::Good(&good), Piece::Bad(10)];
    refused(
        channel.client.send_message(&torn, 0, &[]),
        libc::EFAULT,
        "bad memory",
    )?;
    channel.client.send(&good, 0)?;
    told(&channel.server, &good)
}

/// The option of records, with the bit of channels.
const OPTION: &[u8] = &[9, 4, 0x80, 1, 0, 0];

fn hostile(lab: &Lab) -> Outcome {
    const STARTS: u8 = flag::ACK | flag::TXS;
    const WHOLE: u8 = STARTS | flag::TXF;
    let memory = Memory::private(PAGE)?;
    for (turn, message) in [
        vec![SEND; 23],
        header(0, 0, 0, 0, 0),
        header(SEND, 2, 0, 0, 0),
        header(PUT, 4, 0, 0, 0),
        header(PUT, 0, 0, 0, 0),
        [&[PUT, 0, 1, 0][..], &[0; 20]].concat(),
    ]
    .into_iter()
    .enumerate()
    {
        let port = 765 + turn as u16;
        let client = channel(socket(&lab.a)?)?;
        memory.region(&client)?;
        let (mut peer, client) = Peer::answer_to(lab, client, port, OPTION)?;
        ensure!(client.poll(libc::POLLOUT, patience())? & libc::POLLOUT != 0);
        let flags = if turn == 1 { STARTS } else { WHOLE };
        peer.send(flags, &message)?;
        peer.wait_for(|header| header.flags & flag::RST != 0)?;
        await_events(&client, libc::POLLHUP)?;
        failed_with(&client, libc::ECONNRESET)?;
    }
    ensure!(memory.read(0..PAGE) == [0; PAGE]);
    // Half a put is in its place, and the connection's end frees the rest.
    let client = channel(socket(&lab.a)?)?;
    let key = memory.region(&client)?;
    let (mut peer, client) = Peer::answer_to(lab, client, 771, OPTION)?;
    ensure!(client.poll(libc::POLLOUT, patience())? & libc::POLLOUT != 0);
    let half = [&header(PUT, TELLS, 0, key, 10)[..], b"half"].concat();
    peer.send(STARTS, &half)?;
    eventually("the half", || Ok(memory.read(10..14) == b"half"))?;
    refused(client.receive(&mut [0; 9], 0), libc::EAGAIN, "nothing yet")?;
    client.set_linger(Some(0))?;
    drop(client);
    peer.wait_for(|header| header.flags & flag::RST != 0)?;
    Ok(())
}

fn cookies(lab: &Lab) -> Outcome {
    let memory = Memory::private(100_000)?;
    let listener = listener(&lab.b, 772)?;
    listener.listen(0)?;
    let key = memory.region(&listener)?;
    fill_backlog(lab, 772, OPTION)?;
    let client = channel(socket(&lab.a)?)?;
    client.connect(&lab.a.to(&lab.b, 772)).context("connect")?;
    let bytes = random(100_000, 772);
    put(&client, (TELLS, 1), key, 0, &bytes)?;
    let (server, _) = listener.accept(0).context("accept")?;
    told(&server, &header(PUT, TELLS, 1, key, 0))?;
    ensure!(memory.read(0..100_000) == bytes, "other bytes");
    ensure!(lab.b.counter("EspOutCookies")? > 0, "no cookie left");
    Ok(())
}
