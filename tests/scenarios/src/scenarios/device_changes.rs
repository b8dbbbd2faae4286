//! Devices that go down and up, are renamed, get another address or type, or are removed, under sockets in every state.

use crate::alike::asleep;
use crate::device::{await_carrier, failed, gone};
use crate::prelude::*;
use crate::transfer::transfer_while;

scenarios! {
    direct device_down_and_up_loses_no_byte = down_and_up, within(120);
    direct device_down_makes_connections_wait = down_and_waiting;
    direct device_renamed_does_not_affect_sockets = renamed;
    direct device_with_a_new_address_ends_streams_at_both_ends = readdressed;
    direct device_removed_ends_every_call = removed;
    direct device_removed_does_not_affect_unbound_sockets = others_stay;
    direct device_removed_does_not_wait_for_a_blocked_sender = waiting_sender;
    guest device_that_is_no_longer_ethernet_refuses_sockets = retyped;
}

/// Events of a socket whose device is gone.
const BROKEN: i16 = libc::POLLERR | libc::POLLHUP;

/// The device goes down and comes up under a stream that moves, again and again, at either end.
fn down_and_up(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(800)?;
    let load = Load::of(6 << 20, 50_000, 800);
    // Calls on a device that is down wait as on any other stream that makes no progress.
    lab.a.namespace.ip("link set eth0 down\n")?;
    client.send_all(b"begun")?;
    let mut got = [0; 5];
    let disturb = |received: &AtomicUsize| {
        for host in [&lab.a, &lab.b, &lab.a, &lab.b] {
            host.namespace.ip("link set eth0 down\n")?;
            // Whatever is on its way is lost meanwhile.
            thread::sleep(Duration::from_millis(100));
            host.namespace.ip("link set eth0 up\n")?;
            let before = received.load(Ordering::Relaxed);
            eventually("progress on the device that is up again", || {
                Ok(received.load(Ordering::Relaxed) > before)
            })?;
        }
        Ok(())
    };
    lab.a.namespace.ip("link set eth0 up\n")?;
    server.receive_exact(&mut got)?;
    ensure!(&got == b"begun", "{got:?} arrived");
    transfer_while(&client, &server, load, disturb)
}

/// Down is no error for what is under way: an attempt to connect, a listener, an idle stream, a blocked reader.
fn down_and_waiting(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(801)?;
    let listener = lab.b.esp_listener(802, 4)?;
    let (a, b) = lab.edp_pair(803)?;
    lab.b.namespace.ip("link set eth0 down\n")?;
    let attempt = lab.a.esp_attempt(&lab.a.to(&lab.b, 802))?;
    lab.a.namespace.ip("link set eth0 down\n")?;
    for (socket, what) in [(&client, "stream"), (&listener, "listener"), (&a, "socket")] {
        let events = socket.poll(libc::POLLIN, Duration::ZERO)?;
        same(events, 0, &format!("a {what} on a device that is down"))?;
        ensure!(socket.pending_error()? == 0, "a pending error of a {what}");
    }
    refused(a.send(b"x", 0), libc::ENETDOWN, "a datagram by it")?;
    let read = || Ok(server.receive_all(4)?);
    let go_on = || {
        client
            .send_all(b"late")
            .context("send on a stream whose device is down")?;
        for host in [&lab.a, &lab.b] {
            host.namespace.ip("link set eth0 up\n")?;
        }
        Ok(())
    };
    let (got, ()) = beside(read, go_on)?;
    ensure!(&got == b"late", "{got:?} arrived");
    await_events(&attempt, libc::POLLOUT)?;
    ensure!(attempt.pending_error()? == 0, "the attempt failed");
    let (accepted, _) = listener.accept(0)?;
    attempt.set_nonblocking(false)?;
    exchange(&attempt, &accepted)?;
    a.send(b"x", 0)
        .context("a datagram on the device that is up again")?;
    receives(&b, b"x")
}

fn renamed(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(804)?;
    let listener = lab.a.esp_listener(805, 4)?;
    let (a, b) = lab.edp_pair(804)?;
    lab.a
        .namespace
        .ip("link set eth0 down\nlink set eth0 name other0\nlink set other0 up\n")?;
    await_carrier(&lab.a.namespace, "other0")?;
    exchange(&client, &server)?;
    a.send(b"hello", 0)?;
    receives(&b, b"hello")?;
    let caller = lab.b.esp_connected(&lab.b.to(&lab.a, 805))?;
    let (accepted, _) = listener.accept(0)?;
    exchange(&caller, &accepted)?;
    lab.a.namespace.ip("link set other0 name eth0\n")?;
    exchange(&client, &server)
}

/// The own address is the name that the peer knows a connection by.
fn readdressed(lab: &Lab) -> Outcome {
    let new = [2, 0, 0, 0, 0, 0x11];
    let change = |mac: [u8; 6]| {
        lab.a
            .namespace
            .ip(&format!("link set eth0 address {}\n", print_mac(mac)))
    };
    let (client, server) = lab.esp_pair(806)?;
    let (inner, inners_peer) = {
        let listener = lab.a.esp_listener(807, 4)?;
        let client = lab.a.esp_connected(&lab.a.to(&lab.a, 807))?;
        let (server, _) = listener.accept(0)?;
        (client, server)
    };
    let listener = lab.a.esp_listener(808, 4)?;
    let bound = lab.a.edp_bound(806)?;
    // To set the address that a device has changes nothing.
    change(lab.a.mac)?;
    exchange(&client, &server)?;
    exchange(&inner, &inners_peer)?;
    // Data that has arrived is not lost.
    server.send_all(b"unread")?;
    arrived(&client, 6)?;

    let blocked = || Ok(server.receive(&mut [0; 4], 0));
    let (ended, ()) = beside(blocked, || change(new))?;
    failed(ended, &[libc::ECONNRESET], "the peer's blocked recv")?;
    let mut got = [0; 16];
    receives(&client, b"unread")?;
    for call in ["first", "second"] {
        failed(
            client.receive(&mut got, 0),
            &[libc::ECONNABORTED],
            &format!("{call} recv"),
        )?;
        failed(
            client.send(b"x", libc::MSG_NOSIGNAL),
            &[libc::ECONNABORTED],
            &format!("{call} send"),
        )?;
    }
    let events = client.poll(libc::POLLIN, Duration::ZERO)?;
    ensure!(events & libc::POLLHUP != 0, "events {events:#x}");
    for socket in [&inner, &inners_peer] {
        failed(
            socket.receive(&mut got, 0),
            &[libc::ECONNABORTED],
            "a stream to the own address",
        )?;
    }
    // What is bound to the device is reached by its new address.
    let here = Device::named(&lab.a.namespace, DEVICE)?;
    ensure!(here.mac == new, "the device has {:?}", here.mac);
    ensure!(bound.local_address()?.mac == new, "getsockname");
    let there = Device::named(&lab.b.namespace, DEVICE)?;
    let caller = lab.b.esp_connected(&there.to(&here, 808))?;
    let (accepted, _) = listener.accept(0)?;
    exchange(&caller, &accepted)?;
    lab.b.edp()?.send_to(b"new", 0, &there.to(&here, 806))?;
    receives(&bound, b"new")?;

    // An attempt to connect goes on from the new address.
    let far = lab.b.esp_listener(809, 4)?;
    lab.b.namespace.ip("link set eth0 down\n")?;
    let attempt = lab.a.esp_attempt(&lab.a.to(&lab.b, 809))?;
    change(lab.a.mac)?;
    lab.b.namespace.ip("link set eth0 up\n")?;
    await_events(&attempt, libc::POLLOUT)?;
    ensure!(attempt.pending_error()? == 0, "the attempt failed");
    let (accepted, _) = far.accept(0)?;
    ensure!(accepted.peer_address()?.mac == lab.a.mac, "another peer");
    attempt.set_nonblocking(false)?;
    exchange(&attempt, &accepted)
}

/// A call that blocks, in a thread of its own: started, and known to be asleep, when this returns.
fn blocked<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    number: libc::c_long,
    call: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>> {
    let (sleeper, thread) = asleep::begin(scope, number, call)?;
    ensure!(sleeper.sleeps()?, "a call that should block returned");
    Ok(thread)
}

/// All kinds of calls are blocked while the device is removed.
fn removed(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(810, 16)?;
    let pair = || lab.esp_pair_through(&listener, 810);
    let (reader, readers_peer) = pair()?;
    let (writer, _writers_peer) = pair()?;
    let (poller, _pollers_peer) = pair()?;
    let (idle, idles_peer) = pair()?;
    let own = lab.a.esp_listener(811, 4)?;
    let quiet = lab.a.esp_listener(812, 4)?;
    let waiting = lab.a.esp_listener(813, 4)?;
    let _unaccepted = lab.b.esp_connected(&lab.b.to(&lab.a, 813))?;
    await_events(&waiting, libc::POLLIN)?;
    let attempt = lab.a.esp()?;
    let bound = lab.a.edp_bound(811)?;
    let connected = lab.a.edp()?;
    connected.connect(&lab.a.to(&lab.b, 811))?;
    let polled = lab.a.edp_bound(812)?;
    let tied = lab.a.edp()?;
    tied.set_option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"eth0\0")?;
    tied.bind(&lab.a.anywhere(814))?;
    idles_peer.send_all(b"unread")?;
    arrived(&idle, 6)?;
    let message = random(32 << 20, 810);

    thread::scope(|scope| -> Outcome {
        let receives = [&reader, &bound, &connected, &tied]
            .map(|socket| blocked(scope, libc::SYS_recvfrom, || socket.receive(&mut [0; 8], 0)));
        let sends = blocked(scope, libc::SYS_sendto, || writer.send_all(&message))?;
        let connects = blocked(scope, libc::SYS_connect, || {
            attempt.connect(&lab.a.to_nobody(1))
        })?;
        let accepts = blocked(scope, libc::SYS_accept4, || own.accept(0).map(drop))?;
        let polls = [&poller, &quiet, &polled].map(|socket| {
            blocked(scope, asleep::POLL, || {
                socket.poll(libc::POLLIN, Duration::from_secs(50))
            })
        });
        lab.a.namespace.ip("link del eth0\n")?;
        let join = || anyhow!("a thread panicked");
        for (receive, what) in receives.into_iter().zip([
            "a stream",
            "a bound socket",
            "a connected socket",
            "a tied socket",
        ]) {
            let ended = receive?.join().map_err(|_| join())?;
            gone(ended, &format!("blocked recv of {what}"))?;
        }
        gone(sends.join().map_err(|_| join())?, "blocked send")?;
        gone(connects.join().map_err(|_| join())?, "blocked connect")?;
        gone(accepts.join().map_err(|_| join())?, "blocked accept")?;
        for (poll, what) in polls
            .into_iter()
            .zip(["a stream", "a listener", "a bound socket"])
        {
            let events = poll?.join().map_err(|_| join())??;
            ensure!(events & libc::POLLERR != 0, "poll of {what}: {events:#x}");
        }
        Ok(())
    })?;

    // Later calls too, as often as they are made.
    let mut got = [0; 16];
    ensure!(
        idle.receive(&mut got, 0)? == 6,
        "data that had arrived is lost"
    );
    for round in 0..3 {
        for (socket, what) in [
            (&reader, "the reader"),
            (&writer, "the writer"),
            (&poller, "the polled stream"),
            (&idle, "the idle stream"),
            (&bound, "the bound socket"),
            (&connected, "the connected socket"),
            (&polled, "the polled socket"),
            (&tied, "the tied socket"),
        ] {
            let say = |call: &str| format!("{call} {round} of {what}");
            gone(socket.receive(&mut got, 0), &say("recv"))?;
            let events = socket.poll(libc::POLLIN, Duration::ZERO)?;
            ensure!(events & BROKEN != 0, "{}: {events:#x}", say("poll"));
        }
        for (socket, what) in [
            (&reader, "the reader"),
            (&writer, "the writer"),
            (&connected, "a datagram socket"),
        ] {
            gone(
                socket.send(b"x", libc::MSG_NOSIGNAL),
                &format!("send {round} of {what}"),
            )?;
        }
        for socket in [&own, &quiet] {
            gone(socket.accept(0), "accept")?;
            let events = socket.poll(libc::POLLIN, Duration::ZERO)?;
            ensure!(
                events & libc::POLLERR != 0,
                "poll of a listener: {events:#x}"
            );
        }
        gone(attempt.connect(&lab.a.to_nobody(1)), "connect")?;
    }
    // The connection that nobody had accepted is handed out first, as TCP does it, and is as broken.
    let (late, _) = waiting.accept(0).context("a connection that waited")?;
    gone(
        late.receive(&mut got, 0),
        "recv of a connection accepted late",
    )?;
    gone(waiting.accept(0), "accept behind it")?;
    // The cable had two ends.
    gone(readers_peer.receive(&mut got, 0), "the other host's recv")
}

/// Sockets that are tied to no device do not care for any.
fn others_stay(lab: &Lab) -> Outcome {
    lab.a.namespace.ip("link add eth1 address 02:00:00:00:00:21 type veth peer name far1\nlink set eth1 up\nlink set far1 up\n")?;
    let listener = lab.a.esp()?;
    listener.bind(&lab.a.anywhere(820))?;
    listener.listen(4)?;
    let any = lab.a.edp()?;
    any.bind(&lab.a.anywhere(820))?;
    let (client, server) = lab.esp_pair(821)?;
    lab.a.namespace.ip("link del eth1\n")?;
    for socket in [&listener, &any, &client, &server] {
        let events = socket.poll(libc::POLLIN, Duration::ZERO)?;
        ensure!(events == 0, "events {events:#x}");
    }
    exchange(&client, &server)?;
    // A new device of the same name is one of all.
    lab.a.namespace.ip(
        "link add eth1 address 02:00:00:00:00:21 type veth peer name far1 address 02:00:00:00:00:22\n\
         link set eth1 up\nlink set far1 up\n",
    )?;
    let far = Device::ready(&lab.a.namespace, "far1")?;
    let near = Device::ready(&lab.a.namespace, "eth1")?;
    let caller = lab.a.esp_connected(&far.to(&near, 820))?;
    let (accepted, _) = listener.accept(0)?;
    exchange(&caller, &accepted)?;
    lab.a.edp()?.send_to(b"new", 0, &far.to(&near, 820))?;
    receives(&any, b"new")?;
    let load = Load::of(1 << 20, 30_000, 820);
    transfer(&caller, &accepted, load)
}

/// A bond without ports takes its type, and how a frame for it is made, from its first one.
fn retyped() -> Outcome {
    let host = Host::alone([2, 0, 0, 0, 0, 5])?;
    host.namespace.ip(
        "link add bond0 type bond mode active-backup\nlink set bond0 up\n\
         link add tunnel0 type gre local 192.0.2.1 remote 192.0.2.2\n",
    )?;
    let bond = Device::named(&host.namespace, "bond0")?;
    let nobody = crate::address::Address {
        mac: [2, 0, 0, 0, 0, 0x77],
        ..bond.here(830)
    };
    let socket = host.edp()?;
    socket.connect(&nobody)?;
    socket.send(b"by ethernet", 0).or_else(|error| {
        // Without ports there is nowhere to send to.
        matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENETDOWN))
            .then_some(0)
            .ok_or(error)
    })?;
    let bound = bond.edp(831)?;
    let attempt = host.esp_attempt(&nobody)?;
    let listener = bond.listener(832)?;
    host.namespace.ip("link set tunnel0 master bond0\n")?;
    let text = host.namespace.run("ip", &["link", "show", "bond0"])?;
    ensure!(
        text.contains("link/gre"),
        "bond0 is still of Ethernet: {text}"
    );
    gone(socket.receive(&mut [0; 4], libc::MSG_DONTWAIT), "recv")?;
    gone(socket.send(b"x", 0), "send")?;
    gone(
        bound.receive(&mut [0; 4], libc::MSG_DONTWAIT),
        "recv of a bound socket",
    )?;
    let events = await_events(&attempt, libc::POLLOUT)?;
    ensure!(events & libc::POLLHUP != 0, "events {events:#x}");
    let error = attempt.pending_error()?;
    ensure!(error == libc::ENETDOWN, "SO_ERROR {error}");
    gone(listener.accept(0), "accept")?;
    gone(host.esp()?.connect(&nobody), "connect anew")?;
    gone(host.edp()?.bind(&bond.here(833)), "bind anew")
}

/// The send buffer is full of what another device keeps; who waits for room in it holds up nobody.
fn waiting_sender(lab: &Lab) -> Outcome {
    let host = &lab.a;
    host.namespace
        .ip("link add second0 type veth peer name far0\nlink set far0 up\nlink set second0 up\n")?;
    let second = Device::ready(&host.namespace, "second0")?;
    let socket = host.edp()?;
    socket.set_so(libc::SO_SNDBUF, 4608)?;
    // A packet in more than a minute.
    let slow = ["tbf", "rate", "100bit", "burst", "1600", "limit", "1mb"];
    host.queue("add", &slow)?;
    let there = host.to_nobody(808);
    let full = loop {
        if let Err(error) = socket.send_to(&[0; 1000], libc::MSG_DONTWAIT, &there) {
            break error;
        }
    };
    ensure!(full.raw_os_error() == Some(libc::EAGAIN), "{full}");
    let by_second = crate::address::Address {
        ifindex: second.ifindex,
        ..there
    };
    let (slept, sent, ()) = asleep::asleep(
        libc::SYS_sendto,
        || socket.send_to(b"by another", 0, &by_second),
        |_| {
            // Returns when nobody holds the device any more.
            host.namespace.ip("link del second0\n")?;
            host.queue("del", &[])
        },
    )?;
    ensure!(slept, "there was room: {sent:?}");
    refused(sent, libc::ENODEV, "sending by a device that has gone")
}
