//! The socket calls on an ESP connection: flags, vectors, time limits, readiness, options, ioctls.

use std::time::Duration;

use anyhow::{ensure, Context};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

use crate::address::{SOL_EP, SOL_EP_2006, SO_MTU, SO_STATS};
use crate::harness::{in_process, refused, Outcome, Scenario};
use crate::lab::{await_events, eventually, Lab, DEVICE, ESP_MSS};
use crate::socket::{Piece, PieceMut, Socket};
use crate::transfer::{beside, exchange, fill, random};

/// The scenarios of this file.
pub const ALL: &[Scenario] = &[
    Scenario::direct("esp_msg_peek_dontwait_waitall", flags),
    Scenario::direct("esp_reads_and_writes_vectors", vectors),
    Scenario::direct("esp_time_limits_of_recv_and_send", time_limits),
    Scenario::direct("esp_nonblocking_sender_loses_nothing", nonblocking_sender),
    Scenario::direct(
        "esp_writing_after_shutdown_is_epipe_and_sigpipe",
        broken_pipe,
    ),
    Scenario::direct("esp_poll_and_epoll_report_readiness", readiness),
    Scenario::direct("esp_mtu_and_statistics", options),
    Scenario::direct("options_have_their_first_level_too", first_level),
    Scenario::direct("esp_queue_lengths_and_device_ioctls", ioctls),
    Scenario::direct("esp_buffer_sizes_limit_the_queues", buffers),
    Scenario::direct("esp_low_water_beyond_the_window_is_no_deadlock", low_water),
];

fn flags(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(600)?;
    let mut bytes = [0; 64];
    refused(
        server.receive(&mut bytes, libc::MSG_DONTWAIT),
        libc::EAGAIN,
        "recv of nothing",
    )?;
    client.send_all(b"0123456789")?;
    await_events(&server, libc::POLLIN)?;
    eventually("all ten bytes", || Ok(server.queued(libc::FIONREAD)? == 10))?;
    for _ in 0..2 {
        let got = server.receive(&mut bytes[..4], libc::MSG_PEEK)?;
        ensure!(&bytes[..got] == b"0123", "peeked {:?}", &bytes[..got]);
    }
    ensure!(server.receive(&mut bytes[..4], 0)? == 4, "a short read");
    let got = server.receive(&mut bytes, libc::MSG_PEEK)?;
    ensure!(&bytes[..got] == b"456789", "peeked {:?}", &bytes[..got]);
    let got = server.receive(&mut bytes, libc::MSG_DONTWAIT)?;
    ensure!(&bytes[..got] == b"456789", "read {:?}", &bytes[..got]);

    // MSG_WAITALL waits for all of it, across messages.
    let parts = [random(3000, 1), random(20_000, 2), random(77, 3)];
    let whole = parts.concat();
    let send = || {
        for part in &parts {
            client.send_all(part)?;
        }
        Ok(())
    };
    let mut all = vec![0; whole.len()];
    let receive = || Ok(server.receive(&mut all, libc::MSG_WAITALL)?);
    let ((), got) = beside(send, receive)?;
    ensure!(got == whole.len(), "MSG_WAITALL returned {got} bytes");
    ensure!(all == whole, "the bytes changed on the way");

    // At the end of the stream it returns what there is.
    client.send_all(b"rest")?;
    client.shutdown(libc::SHUT_WR)?;
    let got = server.receive(&mut bytes, libc::MSG_WAITALL)?;
    ensure!(&bytes[..got] == b"rest", "read {:?}", &bytes[..got]);
    let urgent = libc::MSG_OOB | libc::MSG_DONTWAIT;
    // There is no urgent data, which TCP answers so.
    refused(
        client.receive(&mut bytes, urgent),
        libc::EINVAL,
        "recv with MSG_OOB",
    )?;
    refused(
        server.send(b"x", urgent),
        libc::EOPNOTSUPP,
        "send with MSG_OOB",
    )
}

fn vectors(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(601)?;
    let text = random(10_000, 601);
    let (one, rest) = text.split_at(1);
    let (two, three) = rest.split_at(7000);
    let pieces = [one, &[], two, three].map(Piece::Good);
    let sent = client.send_message(&pieces, 0, &[])?;
    ensure!(sent == text.len(), "sendmsg took {sent} bytes");
    let mut got = vec![0; text.len()];
    let (first, rest) = got.split_at_mut(1500);
    let (second, third) = rest.split_at_mut(3);
    let mut pieces = [first, second, third].map(PieceMut::Good);
    let received = server.receive_message(&mut pieces, libc::MSG_WAITALL)?;
    ensure!(received.length == text.len(), "{} bytes", received.length);
    ensure!(
        received.name.is_empty(),
        "a connected stream named its peer"
    );
    ensure!(
        received.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0,
        "flags {:#x}",
        received.flags
    );
    ensure!(got == text, "the bytes changed on the way");
    // Nothing to send is nothing to read.
    ensure!(client.send(&[], 0)? == 0, "an empty send");
    ensure!(
        server.poll(libc::POLLIN, Duration::ZERO)? == 0,
        "an empty send arrived"
    );
    exchange(&client, &server)
}

fn time_limits(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(602)?;
    let limit = Duration::from_millis(100);
    server.set_timeout(libc::SO_RCVTIMEO, limit)?;
    refused(
        server.receive(&mut [0; 8], 0),
        libc::EAGAIN,
        "recv with a time limit",
    )?;
    client.send_all(b"half")?;
    let mut bytes = [0; 8];
    let got = server.receive(&mut bytes, libc::MSG_WAITALL)?;
    ensure!(
        &bytes[..got] == b"half",
        "MSG_WAITALL with a time limit: {got} bytes"
    );

    client.set_timeout(libc::SO_SNDTIMEO, limit)?;
    let message = random(64 << 20, 602);
    let took = client.send(&message, 0).context("send with a time limit")?;
    ensure!(
        took < message.len(),
        "nobody reads, yet everything was sent"
    );
    refused(
        client.send(&message, 0),
        libc::EAGAIN,
        "send with full buffers",
    )?;
    server.set_timeout(libc::SO_RCVTIMEO, Duration::ZERO)?;
    let mut got = vec![0; took];
    server.receive_exact(&mut got)?;
    ensure!(got == message[..took], "the bytes changed on the way");
    exchange(&client, &server)
}

/// Little memory and no waiting: what a send did not take is not sent, what it took arrives.
fn nonblocking_sender(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(603)?;
    client.set_int_option(libc::SOL_SOCKET, libc::SO_SNDBUF, 4608)?;
    client.set_nonblocking(true)?;
    let message = random(1 << 20, 603);
    let send = || {
        let (mut done, mut refusals) = (0, 0);
        while done < message.len() {
            match client.send(&message[done..], 0) {
                Ok(0) => anyhow::bail!("send returned 0"),
                Ok(took) => done += took,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    refusals += 1;
                    await_events(&client, libc::POLLOUT)?;
                }
                Err(error) => return Err(error).context("send"),
            }
        }
        client.shutdown(libc::SHUT_WR)?;
        Ok(refusals)
    };
    let mut got = vec![0; message.len()];
    let receive = || {
        server.receive_exact(&mut got)?;
        Ok(server.receive(&mut [0; 1], 0)?)
    };
    let (refusals, end) = beside(send, receive)?;
    ensure!(end == 0, "more bytes than were sent");
    ensure!(got == message, "the bytes changed on the way");
    ensure!(refusals > 0, "a tiny buffer never was full");
    Ok(())
}

fn broken_pipe(lab: &Lab) -> Outcome {
    let (client, _server) = lab.esp_pair(604)?;
    client.shutdown(libc::SHUT_WR)?;
    refused(
        client.send(b"x", libc::MSG_NOSIGNAL),
        libc::EPIPE,
        "send with MSG_NOSIGNAL",
    )?;
    // This process ignores SIGPIPE, as Rust's runtime arranges; one that does not dies of it.
    refused(
        client.send(b"x", 0),
        libc::EPIPE,
        "send while SIGPIPE is ignored",
    )?;
    let ended = in_process(|| {
        // SAFETY: SIG_DFL is a valid disposition, and no handler of ours is involved.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let quiet = client.send(b"x", libc::MSG_NOSIGNAL).is_err();
        let _ = client.send(b"x", 0);
        i32::from(quiet)
    })?;
    ensure!(
        matches!(ended, WaitStatus::Signaled(_, Signal::SIGPIPE, _)),
        "a writer after shutdown ended with {ended:?}, not by SIGPIPE"
    );
    Ok(())
}

fn readiness(lab: &Lab) -> Outcome {
    use std::os::fd::AsRawFd;
    let (client, server) = lab.esp_pair(605)?;
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP;
    let idle = server.poll(all, Duration::ZERO)?;
    ensure!(
        idle == libc::POLLOUT,
        "events {idle:#x} on an idle connection"
    );
    client.send_all(b"x")?;
    await_events(&server, libc::POLLIN)?;
    let ready = server.poll(all, Duration::ZERO)?;
    ensure!(
        ready == libc::POLLIN | libc::POLLOUT,
        "events {ready:#x} with data"
    );
    server.receive(&mut [0; 4], 0)?;
    ensure!(
        server.poll(libc::POLLIN, Duration::ZERO)? == 0,
        "POLLIN without data"
    );

    // epoll, edge-triggered: a new arrival is a new edge.
    // SAFETY: epoll_create1 takes an integer.
    let epoll = crate::socket::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })? as i32;
    let mut event = libc::epoll_event {
        events: (libc::EPOLLIN | libc::EPOLLET) as u32,
        u64: 1,
    };
    // SAFETY: `event` is readable, and both descriptors are open.
    crate::socket::check(unsafe {
        libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, server.as_raw_fd(), &mut event)
    })?;
    let mut wait = |milliseconds| {
        // SAFETY: there is room for the one event asked for.
        crate::socket::check(unsafe { libc::epoll_wait(epoll, &mut event, 1, milliseconds) })
    };
    for round in 0..3 {
        client.send_all(b"y")?;
        ensure!(wait(20_000)? == 1, "no edge in round {round}");
        ensure!(wait(0)? == 0, "an edge without an arrival in round {round}");
    }

    // A full send buffer is not writable until the reader makes room.
    let total = 3 + fill(&client)?;
    let mut sink = vec![0; total];
    server.receive_exact(&mut sink)?;
    await_events(&client, libc::POLLOUT).context("after the reader made room")?;
    Ok(())
}

/// Programs built with the header of 2006 ask for options at another level.
fn first_level(lab: &Lab) -> Outcome {
    let (client, _server) = lab.esp_pair(613)?;
    let (datagrams, _other) = lab.edp_pair(613)?;
    for (socket, numbers) in [(&client, 8), (&datagrams, 4)] {
        let now = socket.int_option(SOL_EP, SO_MTU)?;
        let then = socket.int_option(SOL_EP_2006, SO_MTU)?;
        ensure!(
            now == then,
            "*_SO_MTU is {now}, and {then} at the first level"
        );
        let room = 4 * numbers;
        let counters = socket.option(SOL_EP_2006, SO_STATS, room, room as i32)?;
        ensure!(
            counters.len() == room,
            "{} bytes of counters",
            counters.len()
        );
        for level in [SOL_EP_2006, SOL_EP] {
            refused(
                socket.int_option(level, 99),
                libc::ENOPROTOOPT,
                "an option that there is not",
            )?;
        }
        for level in [SOL_EP_2006 - 1, SOL_EP_2006 + 1, SOL_EP - 1, SOL_EP + 1] {
            refused(
                socket.int_option(level, SO_MTU),
                libc::EOPNOTSUPP,
                "another protocol's level",
            )?;
        }
    }
    Ok(())
}

fn options(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(606)?;
    for end in [&client, &server] {
        let mtu = end.int_option(SOL_EP, SO_MTU)?;
        ensure!(mtu == ESP_MSS as i32, "ESP_SO_MTU is {mtu}");
    }
    let bytes = random(10 * ESP_MSS, 606);
    let mut got = vec![0; bytes.len()];
    beside(
        || Ok(client.send_all(&bytes)?),
        || Ok(server.receive_exact(&mut got)?),
    )?;
    let (sent, received) = (client.counters(8)?, server.counters(8)?);
    // pkt_tx, pkt_rtx, tx_err, pkt_rx, pkt_rx_oos, pkt_rx_drop, seq_lost, arq_tx
    ensure!(
        sent[0] >= 10,
        "pkt_tx is {} after ten packets of data",
        sent[0]
    );
    ensure!(
        received[3] >= 10,
        "pkt_rx is {} after ten packets of data",
        received[3]
    );
    ensure!(sent[2] == 0, "tx_err is {}", sent[2]);
    // A host that is not scheduled for longer than the request timer makes its peer ask again, so a
    // packet may come twice; but none is missing and none is dropped.
    ensure!(
        received[5] == 0 && received[6] == 0,
        "loss on a cable: {received:?}"
    );
    let fresh = lab.a.esp()?.counters(8)?;
    ensure!(
        fresh.iter().all(|&count| count == 0),
        "a fresh socket counted {fresh:?}"
    );
    Ok(())
}

fn ioctls(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(607)?;
    ensure!(server.queued(libc::FIONREAD)? == 0, "SIOCINQ of nothing");
    ensure!(client.queued(libc::TIOCOUTQ)? == 0, "SIOCOUTQ of nothing");
    client.send_all(&[7; 3000])?;
    eventually("SIOCINQ of 3000 bytes", || {
        Ok(server.queued(libc::FIONREAD)? == 3000)
    })?;
    eventually("SIOCOUTQ falling to 0 once acknowledged", || {
        Ok(client.queued(libc::TIOCOUTQ)? == 0)
    })?;
    server.receive(&mut [0; 1000], 0)?;
    let left = server.queued(libc::FIONREAD)?;
    ensure!(left == 2000, "SIOCINQ is {left} after reading 1000 of 3000");

    let unbound: [Socket; 2] = [lab.a.esp()?, lab.a.edp()?];
    for socket in &unbound {
        ensure!(
            socket.hardware_address(DEVICE)? == lab.a.mac,
            "SIOCGIFHWADDR"
        );
        // The socket knows its namespace, whoever asks.
        ensure!(
            socket.interface_index(DEVICE)? == lab.a.ifindex,
            "SIOCGIFINDEX"
        );
        refused(
            socket.hardware_address("none0"),
            libc::ENODEV,
            "SIOCGIFHWADDR of no device",
        )?;
    }
    refused(client.queued(0x1234), libc::ENOTTY, "an unknown ioctl")
}

fn buffers(lab: &Lab) -> Outcome {
    let filled = |sndbuf: i32| {
        let (client, server) = lab.esp_pair(608)?;
        client.set_int_option(libc::SOL_SOCKET, libc::SO_SNDBUF, sndbuf)?;
        server.set_int_option(libc::SOL_SOCKET, libc::SO_RCVBUF, 4096)?;
        fill(&client)
    };
    let (small, large) = (filled(8192)?, filled(100_000)?);
    ensure!(
        small < large,
        "{small} bytes fit a small buffer, {large} a large one"
    );
    ensure!(
        small < 64 << 10,
        "{small} bytes fit into 8 KiB and 4 KiB of buffers"
    );
    Ok(())
}

/// The reader sleeps until 8 KiB have come. Its buffer is smaller than a burst, so that the sender gets no window until it
/// reads.
fn low_water(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(660)?;
    server.set_int_option(libc::SOL_SOCKET, libc::SO_RCVBUF, 16 << 10)?;
    server.set_int_option(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 8 << 10)?;
    let message = random(64 << 10, 660);
    let mut got = Vec::new();
    let receive = || {
        let mut bytes = [0; 4 << 10];
        while got.len() < message.len() {
            await_events(&server, libc::POLLIN)
                .with_context(|| format!("after {} bytes", got.len()))?;
            let length = server.receive(&mut bytes, libc::MSG_DONTWAIT)?;
            got.extend_from_slice(&bytes[..length]);
            if message.len() - got.len() < 8 << 10 {
                // The rest does not reach the mark.
                server.set_int_option(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1)?;
            }
        }
        Ok(())
    };
    beside(
        || {
            client.send_all(&message)?;
            Ok(())
        },
        receive,
    )?;
    ensure!(got == message, "the bytes changed on the way");
    Ok(())
}
