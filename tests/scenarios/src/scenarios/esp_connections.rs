//! How ESP connections begin and end.

use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context};

use crate::harness::{refused, Outcome, Scenario};
use crate::lab::{await_events, eventually, Lab};
use crate::meminfo::kib;
use crate::patience::patience;
use crate::relay::Mode;
use crate::socket::Socket;
use crate::transfer::{beside, exchange, random, receive_to_end, transfer, Load};

/// The scenarios of this file.
pub const ALL: &[Scenario] = &[
    Scenario::direct("esp_both_ends_know_each_others_addresses", names),
    Scenario::direct("esp_connect_to_closed_port_is_refused", closed_port),
    Scenario::switched("esp_nonblocking_connect", nonblocking_connect),
    Scenario::direct("esp_nonblocking_connect_refused", nonblocking_refused),
    Scenario::switched(
        "esp_simultaneous_connect_opens_one_connection",
        simultaneous_connect,
    ),
    Scenario::direct("esp_connect_twice", connect_twice),
    Scenario::direct("esp_accept_waits_times_out_and_polls", accept),
    Scenario::direct("esp_backlog_limits_the_accept_queue", backlog),
    Scenario::direct(
        "esp_closing_a_listener_resets_waiting_connections",
        closed_listener,
    ),
    Scenario::direct("esp_shutdown_of_either_half", half_close),
    Scenario::switched("esp_simultaneous_shutdown", simultaneous_shutdown),
    Scenario::switched("esp_simultaneous_close", simultaneous_close),
    Scenario::direct("esp_close_delivers_queued_data", close_after_send),
    Scenario::direct("esp_close_with_unread_data_resets", close_unread),
    Scenario::direct("esp_linger_waits_or_resets", linger),
    Scenario::direct("esp_sending_to_a_closed_peer_fails", send_to_closed),
    Scenario::direct("esp_1000_connections_leave_no_memory_behind", thousand).within(120),
    Scenario::direct("esp_removed_device_ends_its_connections", device_gone),
];

/// Both sides connect to each other, and their SYNs cross on the wire.
fn simultaneous_connect(lab: &Lab) -> Outcome {
    let (here, there) = (lab.a.esp()?, lab.b.esp()?);
    here.bind(&lab.a.here(90))?;
    there.bind(&lab.b.here(91))?;
    lab.relay().set_mode(Mode::Hold);
    for (socket, peer) in [
        (&here, lab.a.to(&lab.b, 91)),
        (&there, lab.b.to(&lab.a, 90)),
    ] {
        socket.set_nonblocking(true)?;
        refused(socket.connect(&peer), libc::EINPROGRESS, "connect")?;
    }
    lab.relay().set_mode(Mode::Forward);
    for socket in [&here, &there] {
        await_events(socket, libc::POLLOUT)?;
        let error = socket.pending_error()?;
        ensure!(error == 0, "SO_ERROR {error} after both sides connected");
        socket.set_nonblocking(false)?;
    }
    exchange(&here, &there)?;
    exchange(&there, &here)?;
    let resent = [&here, &there].map(|socket| socket.counters(8).map(|all| all[3]));
    for received in resent {
        // A SYN and a SYN|ACK at least.
        let received = received?;
        ensure!(received >= 2, "{received} packets came");
    }
    Ok(())
}

fn names(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(500, 4)?;
    let client = lab.a.esp()?;
    client.bind(&lab.a.here(501))?;
    client.connect(&lab.a.to(&lab.b, 500))?;
    let (server, from) = listener.accept(0)?;
    let accepted = crate::address::Address::from_bytes(&from)?;
    for (what, address, port, mac, ifindex) in [
        (
            "client's own",
            client.local_address()?,
            501,
            lab.a.mac,
            lab.a.ifindex,
        ),
        (
            "client's peer",
            client.peer_address()?,
            500,
            lab.b.mac,
            lab.a.ifindex,
        ),
        (
            "server's own",
            server.local_address()?,
            500,
            lab.b.mac,
            lab.b.ifindex,
        ),
        (
            "server's peer",
            server.peer_address()?,
            501,
            lab.a.mac,
            lab.b.ifindex,
        ),
        ("accepted", accepted, 501, lab.a.mac, lab.b.ifindex),
    ] {
        ensure!(
            address.port == port && address.mac == mac && address.ifindex == ifindex,
            "{what} address is {address:?}"
        );
    }
    ensure!(listener.local_address()?.port == 500, "the listener's port");
    refused(
        listener.peer_name(),
        libc::ENOTCONN,
        "getpeername of a listener",
    )?;

    let free = lab.a.esp()?;
    ensure!(
        free.local_address()? == Default::default(),
        "an unbound name"
    );
    refused(free.peer_name(), libc::ENOTCONN, "getpeername unconnected")?;
    free.connect(&lab.a.to(&lab.b, 500)).context("unbound")?;
    ensure!(free.local_address()?.port != 0, "no port was chosen");
    exchange(&client, &server)
}

fn closed_port(lab: &Lab) -> Outcome {
    let client = lab.a.esp()?;
    refused(
        client.connect(&lab.a.to(&lab.b, 510)),
        libc::ECONNREFUSED,
        "connect",
    )?;
    // The socket may try again, as TCP's may.
    let listener = lab.b.esp_listener(510, 1)?;
    client
        .connect(&lab.a.to(&lab.b, 510))
        .context("second try")?;
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)
}

fn nonblocking_connect(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(520, 1)?;
    let client = lab.a.esp()?;
    client.set_nonblocking(true)?;
    lab.relay().set_mode(Mode::Hold);
    let there = lab.a.to(&lab.b, 520);
    refused(client.connect(&there), libc::EINPROGRESS, "connect")?;
    refused(client.connect(&there), libc::EALREADY, "connect meanwhile")?;
    refused(
        client.send(b"early", libc::MSG_NOSIGNAL),
        libc::EAGAIN,
        "send meanwhile",
    )?;
    let early = client.poll(libc::POLLOUT, Duration::ZERO)?;
    ensure!(early == 0, "events {early:#x} before the handshake");
    lab.relay().set_mode(Mode::Forward);
    let events = await_events(&client, libc::POLLOUT)?;
    ensure!(
        events == libc::POLLOUT,
        "events {events:#x} after the handshake"
    );
    ensure!(client.pending_error()? == 0, "SO_ERROR after success");
    let (server, _) = listener.accept(0)?;
    client.set_nonblocking(false)?;
    exchange(&client, &server)
}

fn nonblocking_refused(lab: &Lab) -> Outcome {
    let client = lab.a.esp()?;
    client.set_nonblocking(true)?;
    match client.connect(&lab.a.to(&lab.b, 521)) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        other => refused(other, libc::ECONNREFUSED, "connect")?,
    }
    let events = await_events(&client, libc::POLLOUT)?;
    ensure!(events & libc::POLLHUP != 0, "events {events:#x}");
    let error = client.pending_error()?;
    ensure!(error == libc::ECONNREFUSED, "SO_ERROR {error}");
    ensure!(
        client.pending_error()? == 0,
        "SO_ERROR is not cleared by reading it"
    );
    Ok(())
}

fn connect_twice(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(522, 4)?;
    let (client, server) = lab.esp_pair_through(&listener, 522)?;
    let there = lab.a.to(&lab.b, 522);
    refused(
        client.connect(&there),
        libc::EISCONN,
        "connect when connected",
    )?;
    refused(
        server.connect(&there),
        libc::EISCONN,
        "connect of an accepted socket",
    )?;
    refused(client.listen(1), libc::EINVAL, "listen when connected")?;
    refused(
        client.accept(0),
        libc::EINVAL,
        "accept of a connected socket",
    )?;
    refused(
        client.bind(&lab.a.here(523)),
        libc::EINVAL,
        "bind when connected",
    )?;
    refused(listener.bind(&lab.b.here(524)), libc::EINVAL, "bind twice")?;
    refused(
        lab.a.esp()?.accept(0),
        libc::EINVAL,
        "accept of a fresh socket",
    )?;
    refused(
        listener.receive(&mut [0; 4], 0),
        libc::ENOTCONN,
        "recv from a listener",
    )?;
    exchange(&client, &server)
}

fn accept(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(530, 4)?;
    listener.set_nonblocking(true)?;
    refused(listener.accept(0), libc::EAGAIN, "accept without waiting")?;
    listener.set_nonblocking(false)?;
    listener.set_timeout(libc::SO_RCVTIMEO, Duration::from_millis(50))?;
    refused(listener.accept(0), libc::EAGAIN, "accept with a time limit")?;
    listener.set_timeout(libc::SO_RCVTIMEO, Duration::ZERO)?;
    ensure!(
        listener.poll(libc::POLLIN, Duration::ZERO)? == 0,
        "POLLIN early"
    );

    let connect = || {
        let client = lab.a.esp()?;
        client.connect(&lab.a.to(&lab.b, 530))?;
        Ok(client)
    };
    let (client, server) = beside(connect, || {
        Ok(listener
            .accept(libc::SOCK_NONBLOCK)
            .context("blocked accept")?
            .0)
    })?;
    refused(
        server.receive(&mut [0; 1], 0),
        libc::EAGAIN,
        "SOCK_NONBLOCK of accept4",
    )?;
    server.set_nonblocking(false)?;
    exchange(&client, &server)?;

    let second = lab.a.esp()?;
    second.connect(&lab.a.to(&lab.b, 530))?;
    ensure!(
        await_events(&listener, libc::POLLIN)? == libc::POLLIN,
        "other events"
    );
    listener.accept(0)?;
    Ok(())
}

fn backlog(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(540, 2)?;
    let clients = (0..10)
        .map(|_| {
            let client = lab.a.esp()?;
            client.set_nonblocking(true)?;
            refused(
                client.connect(&lab.a.to(&lab.b, 540)),
                libc::EINPROGRESS,
                "connect",
            )?;
            Ok(client)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let established = || {
        let mut count = 0;
        for client in &clients {
            count += usize::from(client.poll(libc::POLLOUT, Duration::ZERO)? == libc::POLLOUT);
        }
        Ok::<_, anyhow::Error>(count)
    };
    eventually("as many connections as the backlog holds", || {
        Ok(established()? >= 2)
    })?;
    // Time for one too many to show itself.
    thread::sleep(Duration::from_millis(300));
    let waiting = established()?;
    // TCP's backlog of n holds n + 1.
    ensure!(waiting <= 3, "{waiting} connections wait in a backlog of 2");
    let mut servers = Vec::new();
    for number in 0..clients.len() {
        await_events(&listener, libc::POLLIN)
            .with_context(|| format!("connection {number}, once there is room"))?;
        servers.push(listener.accept(0)?.0);
    }
    eventually("every connection", || Ok(established()? == clients.len()))
}

fn closed_listener(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(541, 4)?;
    let client = lab.a.esp()?;
    client.connect(&lab.a.to(&lab.b, 541))?;
    await_events(&listener, libc::POLLIN)?;
    drop(listener);
    refused(client.receive(&mut [0; 1], 0), libc::ECONNRESET, "recv")
}

fn half_close(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(550, 4)?;
    let (client, server) = lab.esp_pair_through(&listener, 550)?;
    client.send_all(b"last words")?;
    client.shutdown(libc::SHUT_WR)?;
    let (length, _) = receive_to_end(&server, 100)?;
    ensure!(length == 10, "{length} bytes before the end");
    let events = server.poll(libc::POLLIN | libc::POLLRDHUP | libc::POLLOUT, patience())?;
    ensure!(
        events == libc::POLLIN | libc::POLLRDHUP | libc::POLLOUT,
        "events {events:#x} when the peer has shut down"
    );
    refused(
        client.send(b"x", libc::MSG_NOSIGNAL),
        libc::EPIPE,
        "send after shutdown",
    )?;
    // The other half goes on, as long as it likes.
    let load = Load {
        total: 1 << 20,
        chunk: 10_000,
        seed: 550,
    };
    transfer(&server, &client, load)?;
    let events = client.poll(libc::POLLIN, patience())?;
    ensure!(
        events & libc::POLLHUP != 0,
        "events {events:#x} when both are shut"
    );

    let (client, server) = lab.esp_pair_through(&listener, 550)?;
    client.shutdown(libc::SHUT_RD)?;
    ensure!(
        client.receive(&mut [0; 4], 0)? == 0,
        "reading after SHUT_RD"
    );
    client.send_all(b"still")?;
    let mut bytes = [0; 5];
    server.receive_exact(&mut bytes)?;
    refused(
        client.shutdown(7),
        libc::EINVAL,
        "shutdown of something else",
    )?;
    client.shutdown(libc::SHUT_RDWR)?;
    ensure!(server.receive(&mut bytes, 0)? == 0, "the end did not come");
    Ok(())
}

fn simultaneous_shutdown(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(560)?;
    exchange(&client, &server)?;
    // Neither end knows of the other's FIN when it sends its own.
    lab.relay().set_mode(Mode::Hold);
    client.shutdown(libc::SHUT_WR)?;
    server.shutdown(libc::SHUT_WR)?;
    lab.relay().set_mode(Mode::Forward);
    for (name, end) in [("client", &client), ("server", &server)] {
        ensure!(end.receive(&mut [0; 4], 0)? == 0, "{name}: more data");
        eventually("both halves shut", || {
            Ok(end.poll(libc::POLLIN, Duration::ZERO)? & libc::POLLHUP != 0)
        })
        .context(name)?;
        ensure!(end.pending_error()? == 0, "{name}: an error is pending");
    }
    Ok(())
}

fn simultaneous_close(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(561)?;
    exchange(&client, &server)?;
    lab.relay().set_mode(Mode::Hold);
    drop(client);
    drop(server);
    lab.relay().set_mode(Mode::Forward);
    lab.await_no_sockets()
}

fn close_after_send(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(570)?;
    let message = random(100_000, 570);
    client.send_all(&message)?;
    // What is queued still leaves, and the port stays taken until it has.
    drop(client);
    let mut got = vec![0; message.len()];
    server.receive_exact(&mut got)?;
    ensure!(got == message, "the bytes changed on the way");
    ensure!(server.receive(&mut got, 0)? == 0, "the end did not come");
    Ok(())
}

fn close_unread(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(571)?;
    client.send_all(b"never read")?;
    eventually("the data's arrival", || {
        Ok(server.queued(libc::FIONREAD)? == 10)
    })?;
    drop(server);
    let events = await_events(&client, libc::POLLIN)?;
    ensure!(events & libc::POLLERR != 0, "events {events:#x}");
    refused(
        client.receive(&mut [0; 4], 0),
        libc::ECONNRESET,
        "recv after reset",
    )?;
    refused(
        client.send(b"x", libc::MSG_NOSIGNAL),
        libc::EPIPE,
        "send after reset",
    )?;
    ensure!(
        client.receive(&mut [0; 4], 0)? == 0,
        "recv after the error was told"
    );
    Ok(())
}

fn linger(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(573, 4)?;
    let (client, server) = lab.esp_pair_through(&listener, 573)?;
    // Longer than the scenario may last: close must come back because everything has arrived, not for the time.
    client.set_linger(Some(3600))?;
    client.send_all(&[9; 5000])?;
    drop(client);
    let queued = server.queued(libc::FIONREAD)?;
    ensure!(
        queued == 5000,
        "close came back with {queued} of 5000 bytes delivered"
    );

    let (client, server) = lab.esp_pair_through(&listener, 573)?;
    client.set_linger(Some(0))?;
    drop(client);
    refused(
        server.receive(&mut [0; 4], 0),
        libc::ECONNRESET,
        "recv after a hard close",
    )
}

fn send_to_closed(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(572)?;
    drop(server);
    ensure!(client.receive(&mut [0; 4], 0)? == 0, "the end did not come");
    eventually("an error of send", || {
        match client.send(b"anyone?", libc::MSG_NOSIGNAL) {
            Ok(_) => Ok(false),
            Err(error) => match error.raw_os_error() {
                Some(libc::EPIPE | libc::ECONNRESET) => Ok(true),
                _ => Err(anyhow!("send to a closed peer: {error}")),
            },
        }
    })
}

/// How many sockets and how much memory `/proc/net/protocols` reports for ESP.
fn esp_usage(host: &crate::lab::Host) -> anyhow::Result<(i64, i64)> {
    let text = host.namespace.proc_net("protocols")?;
    let line = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some("ESP"))
        .context("no ESP in /proc/net/protocols")?;
    let fields: Vec<_> = line.split_whitespace().collect();
    Ok((fields[2].parse()?, fields[3].parse()?))
}

fn thousand(lab: &Lab) -> Outcome {
    use nix::sys::resource::{setrlimit, Resource};
    setrlimit(Resource::RLIMIT_NOFILE, 4096, 4096)?;
    // The first round fills caches that stay.
    thousand_at_once(lab)?;
    lab.await_no_sockets()?;
    let before = kib("SUnreclaim")? << 10;
    for _ in 0..3 {
        thousand_at_once(lab)?;
        lab.await_no_sockets()?;
    }
    let mut grown = 0;
    eventually("the return of all memory", || {
        grown = (kib("SUnreclaim")? << 10) - before;
        // 3,000 connections that left as little as 400 bytes each would exceed this.
        Ok(grown < 1 << 20)
    })
    .with_context(|| format!("slabs grew by {grown} bytes"))?;
    for host in [&lab.a, &lab.b] {
        let (sockets, memory) = esp_usage(host)?;
        ensure!(sockets == 0, "{sockets} sockets in /proc/net/protocols");
        ensure!(memory <= 0, "{memory} pages in /proc/net/protocols");
    }
    Ok(())
}

fn thousand_at_once(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(580, 128)?;
    let mut pairs: Vec<(Socket, Socket)> = Vec::with_capacity(1000);
    for number in 0..1000 {
        let pair = lab
            .esp_pair_through(&listener, 580)
            .with_context(|| format!("connection {number}"))?;
        pairs.push(pair);
    }
    for (number, (client, server)) in pairs.iter().enumerate() {
        exchange(client, server).with_context(|| format!("connection {number} of 1,000"))?;
    }
    let listed = lab.a.namespace.proc_net("esp")?.lines().count();
    ensure!(listed > 1000, "/proc/net/esp has {listed} lines");
    Ok(())
}

fn device_gone(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(590)?;
    exchange(&client, &server)?;
    let remove = || lab.a.namespace.ip("link del eth0\n");
    let wait = || Ok(client.receive(&mut [0; 4], 0));
    let ((), ended) = beside(remove, wait)?;
    let error = ended.err().and_then(|error| error.raw_os_error());
    ensure!(
        matches!(error, Some(libc::ENETDOWN | libc::ENODEV)),
        "a blocked recv on a device that goes ends with {error:?}"
    );
    // The cable had two ends: the other host's device went as well.
    let other = server.receive(&mut [0; 4], 0);
    ensure!(other.is_err(), "the other host reads {other:?}");
    Ok(())
}
