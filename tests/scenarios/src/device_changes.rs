// SPDX-License-Identifier: GPL-2.0-only

//! Tests devices that go down and up, are renamed, get another address or type, or are removed,
//! while sockets in every state use them.

use guest::asleep;
use guest::device::{await_carrier, gone};
use guest::prelude::*;
use guest::transfer::transfer_while;

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

/// In this test a device goes down and up repeatedly during a transfer, alternately at each end.
fn down_and_up(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(800)?;
    let load = Load::of(6 << 20, 50_000, 800);
    // While its device is down, a stream behaves like any stream that makes no progress.
    lab.a.link("down")?;
    client.send_all(b"begun")?;
    let disturb = |received: &AtomicUsize| {
        for host in [&lab.a, &lab.b, &lab.a, &lab.b] {
            host.link("down")?;
            // Frames that are in flight during this pause are lost.
            thread::sleep(Duration::from_millis(100));
            host.link("up")?;
            let before = received.load(Ordering::Relaxed);
            eventually("progress on the device that is up again", || {
                Ok(received.load(Ordering::Relaxed) > before)
            })?;
        }
        Ok(())
    };
    lab.a.link("up")?;
    comes_next(&server, b"begun")?;
    transfer_while(&client, &server, load, disturb)
}

/// Checks that the non-blocking `attempt` connects to `listener`; returns the accepted socket.
fn connects(attempt: &Socket, listener: &Socket) -> Result<Socket> {
    await_events(attempt, libc::POLLOUT)?;
    ensure!(attempt.pending_error()? == 0, "the attempt failed");
    attempt.set_nonblocking(false)?;
    serve(listener, attempt)
}

/// A device that is down causes no error for a connection attempt, a listener, an idle stream or a
/// blocked reader.
fn down_and_waiting(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(801)?;
    let listener = lab.b.esp_listener(802, 4)?;
    let (a, b) = lab.edp_pair(803)?;
    lab.b.link("down")?;
    let attempt = lab.a.esp_attempt(&lab.a.to(&lab.b, 802))?;
    lab.a.link("down")?;
    for (socket, what) in [(&client, "stream"), (&listener, "listener"), (&a, "socket")] {
        quiet(socket, &format!("a {what} on a device that is down"))?;
        ensure!(socket.pending_error()? == 0, "a pending error of a {what}");
    }
    refused(a.send(b"x", 0), libc::ENETDOWN, "a datagram by it")?;
    let go_on = || {
        client
            .send_all(b"late")
            .context("send on a stream whose device is down")?;
        lab.a.link("up")?;
        lab.b.link("up")
    };
    beside(|| comes_next(&server, b"late"), go_on)?;
    connects(&attempt, &listener)?;
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
    serve(&listener, &caller)?;
    lab.a.namespace.ip("link set other0 name eth0\n")?;
    exchange(&client, &server)
}

/// A connection is identified by the device's address, so the connection ends when the address
/// changes.
fn readdressed(lab: &Lab) -> Outcome {
    let listener = lab.a.esp_listener(808, 4)?;
    let bound = lab.a.edp_bound(806)?;
    let new = [2, 0, 0, 0, 0, 0x11];
    streams_end_with_their_address(lab, new)?;
    // Sockets bound to the device receive at its new address.
    let here = Device::named(&lab.a.namespace, DEVICE)?;
    ensure!(here.mac == new, "the device has {:?}", here.mac);
    ensure!(bound.local_address()?.mac == new, "getsockname");
    let there = Device::named(&lab.b.namespace, DEVICE)?;
    serve(&listener, &lab.b.esp_connected(&there.to(&here, 808))?)?;
    lab.b.edp()?.send_to(b"new", 0, &there.to(&here, 806))?;
    receives(&bound, b"new")?;
    attempt_goes_on_from_another_address(lab)
}

/// Gives the host `a` the address `new` while it has a stream to the other host and one to itself.
fn streams_end_with_their_address(lab: &Lab, new: [u8; 6]) -> Outcome {
    let (client, server) = lab.esp_pair(806)?;
    let listener = lab.a.esp_listener(807, 4)?;
    let (inner, inners_peer) = lab.a.esp_pair_through(&lab.a, &listener, 807)?;
    // Setting the address that the device already has changes nothing.
    lab.a.set_mac(lab.a.mac)?;
    exchange(&client, &server)?;
    exchange(&inner, &inners_peer)?;
    server.send_all(b"unread")?;
    arrived(&client, 6)?;

    let blocked = || Ok(server.receive(&mut [0; 4], 0));
    let (ended, ()) = beside(blocked, || lab.a.set_mac(new))?;
    refused(ended, libc::ECONNRESET, "the peer's blocked recv")?;
    // Data that have arrived are not lost.
    receives(&client, b"unread")?;
    let aborted = |socket: &Socket, what: &str| {
        refused(socket.receive(&mut [0; 16], 0), libc::ECONNABORTED, what)
    };
    for call in ["first", "second"] {
        aborted(&client, &format!("{call} recv"))?;
        let sent = client.send(b"x", libc::MSG_NOSIGNAL);
        refused(sent, libc::ECONNABORTED, &format!("{call} send"))?;
    }
    has_events(&client, libc::POLLHUP, "a stream that has ended")?;
    aborted(&inner, "a stream to the own address")?;
    aborted(&inners_peer, "a stream from the own address")
}

fn attempt_goes_on_from_another_address(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(809, 4)?;
    lab.b.link("down")?;
    let attempt = lab.a.esp_attempt(&lab.a.to(&lab.b, 809))?;
    lab.a.set_mac(lab.a.mac)?;
    lab.b.link("up")?;
    let accepted = connects(&attempt, &listener)?;
    ensure!(accepted.peer_address()?.mac == lab.a.mac, "another peer");
    Ok(())
}

/// The number of a system call, and a function that makes the call and checks its result.
type Blocking<'a> = (libc::c_long, &'a (dyn Fn() -> Outcome + Sync));

/// Makes all of `calls`, each in its own thread, and waits until they block. Then runs `meanwhile`,
/// which must end the calls.
fn all_blocked(calls: &[Blocking<'_>], meanwhile: impl FnOnce() -> Outcome) -> Outcome {
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, call) in calls {
            let (sleeper, thread) = asleep::begin(scope, *number, call)?;
            ensure!(sleeper.sleeps()?, "a call that should block returned");
            threads.push(thread);
        }
        meanwhile()?;
        threads.into_iter().try_for_each(|thread| joined(thread)?)
    })
}

/// Sockets of host `a`. The scenario removes the device that they use.
struct Doomed {
    /// Four streams: one that is read, one that is written to, one that is polled, and an idle one.
    streams: [(Socket, Socket); 4],
    /// Two listeners. One accepts, and the other is polled.
    listeners: [Socket; 2],
    /// A socket whose connection attempt is still waiting for an answer.
    attempt: Socket,
    /// Datagram sockets: bound, connected, polled, and tied to the device.
    datagrams: [Socket; 4],
    /// The other host's listener. It is only kept open.
    _others: Socket,
}

impl Doomed {
    fn new(lab: &Lab) -> Result<Self> {
        let listener = lab.b.esp_listener(810, 16)?;
        let pair = || lab.esp_pair_through(&listener, 810);
        let (connected, tied) = (lab.a.edp()?, lab.a.edp()?);
        connected.connect(&lab.a.to(&lab.b, 811))?;
        tied.set_option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"eth0\0")?;
        tied.bind(&lab.a.anywhere(814))?;
        Ok(Self {
            streams: [pair()?, pair()?, pair()?, pair()?],
            listeners: [lab.a.esp_listener(811, 4)?, lab.a.esp_listener(812, 4)?],
            attempt: lab.a.esp()?,
            datagrams: [
                lab.a.edp_bound(811)?,
                connected,
                lab.a.edp_bound(812)?,
                tied,
            ],
            _others: listener,
        })
    }

    /// Removes the device while a call of each kind is blocked.
    fn blocked_calls_end(&self, lab: &Lab) -> Outcome {
        let [(reader, _), (writer, _), (poller, _), _] = &self.streams;
        let [accepter, listener] = &self.listeners;
        let [bound, connected, polled, tied] = &self.datagrams;
        let message = random(32 << 20, 810);
        let send = || gone(writer.send_all(&message), "blocked send");
        let connect = || gone(self.attempt.connect(&lab.a.to_nobody(1)), "blocked connect");
        let accept = || gone(accepter.accept(0), "blocked accept");
        let recv = |socket: &Socket, what: &str| {
            let received = socket.receive(&mut [0; 8], 0);
            gone(received, &format!("blocked recv of a {what}"))
        };
        let poll = |socket: &Socket, what: &str| {
            let events = socket.poll(libc::POLLIN, allow(Duration::from_secs(50)))?;
            ensure!(events & libc::POLLERR != 0, "poll of a {what}: {events:#x}");
            Ok(())
        };
        let calls: [Blocking<'_>; 10] = [
            (libc::SYS_sendto, &send),
            (libc::SYS_connect, &connect),
            (libc::SYS_accept4, &accept),
            (libc::SYS_recvfrom, &|| recv(reader, "stream")),
            (libc::SYS_recvfrom, &|| recv(bound, "bound socket")),
            (libc::SYS_recvfrom, &|| recv(connected, "connected socket")),
            (libc::SYS_recvfrom, &|| recv(tied, "tied socket")),
            (asleep::POLL, &|| poll(poller, "stream")),
            (asleep::POLL, &|| poll(listener, "listener")),
            (asleep::POLL, &|| poll(polled, "bound socket")),
        ];
        all_blocked(&calls, || lab.a.namespace.ip("link del eth0\n"))
    }

    fn later_calls_fail(&self, lab: &Lab, round: u32) -> Outcome {
        let [(reader, _), (writer, _), (poller, _), (idle, _)] = &self.streams;
        let [bound, connected, polled, tied] = &self.datagrams;
        let of = |call: &str, what: &str| format!("{call} {round} of {what}");
        for (socket, what) in [
            (reader, "the reader"),
            (writer, "the writer"),
            (poller, "the polled stream"),
            (idle, "the idle stream"),
            (bound, "the bound socket"),
            (connected, "the connected socket"),
            (polled, "the polled socket"),
            (tied, "the tied socket"),
        ] {
            gone(socket.receive(&mut [0; 16], 0), &of("recv", what))?;
            has_events(socket, libc::POLLERR | libc::POLLHUP, &of("poll", what))?;
        }
        for (socket, what) in [
            (reader, "the reader"),
            (writer, "the writer"),
            (connected, "the connected socket"),
        ] {
            gone(socket.send(b"x", libc::MSG_NOSIGNAL), &of("send", what))?;
        }
        for listener in &self.listeners {
            gone(listener.accept(0), "accept")?;
            has_events(listener, libc::POLLERR, "poll of a listener")?;
        }
        gone(self.attempt.connect(&lab.a.to_nobody(1)), "connect")
    }
}

fn removed(lab: &Lab) -> Outcome {
    let sockets = Doomed::new(lab)?;
    let [(_, readers_peer), .., (idle, idles_peer)] = &sockets.streams;
    idles_peer.send_all(b"unread")?;
    arrived(idle, 6)?;
    let waiting = lab.a.esp_listener(813, 4)?;
    let _unaccepted = lab.b.esp_connected(&lab.b.to(&lab.a, 813))?;
    await_events(&waiting, libc::POLLIN)?;

    sockets.blocked_calls_end(lab)?;
    comes_next(idle, b"unread").context("data that had arrived")?;
    for round in 0..3 {
        sockets.later_calls_fail(lab, round)?;
    }
    // accept still returns a connection that was in the queue, as with TCP, but the connection is
    // broken.
    let (late, _) = waiting.accept(0).context("a connection that waited")?;
    let mut got = [0; 16];
    gone(late.receive(&mut got, 0), "recv by what waited")?;
    gone(waiting.accept(0), "accept behind it")?;
    // Removing one end of a veth pair removes the other host's end too.
    gone(readers_peer.receive(&mut got, 0), "the other host's recv")
}

/// Removing a device must not affect a socket that is tied to a different device, or to no device.
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
        quiet(socket, "a socket of another device, or of none")?;
    }
    exchange(&client, &server)?;
    // Unbound sockets also receive on a new device of the same name.
    lab.a.namespace.ip(
        "link add eth1 address 02:00:00:00:00:21 type veth peer name far1 address 02:00:00:00:00:22\n\
         link set eth1 up\nlink set far1 up\n",
    )?;
    let far = Device::ready(&lab.a.namespace, "far1")?;
    let near = Device::ready(&lab.a.namespace, "eth1")?;
    let caller = lab.a.esp_connected(&far.to(&near, 820))?;
    let accepted = serve(&listener, &caller)?;
    lab.a.edp()?.send_to(b"new", 0, &far.to(&near, 820))?;
    receives(&any, b"new")?;
    transfer(&caller, &accepted, Load::of(1 << 20, 30_000, 820))
}

/// A bond's first port determines the bond's type and its header operations.
fn retyped() -> Outcome {
    let host = Host::alone([2, 0, 0, 0, 0, 5])?;
    host.namespace.ip(
        "link add bond0 type bond mode active-backup\nlink set bond0 up\n\
         link add tunnel0 type gre local 192.0.2.1 remote 192.0.2.2\n",
    )?;
    let bond = Device::named(&host.namespace, "bond0")?;
    let nobody = Address {
        mac: [2, 0, 0, 0, 0, 0x77],
        ..bond.here(830)
    };
    let socket = host.edp()?;
    socket.connect(&nobody)?;
    socket.send(b"by ethernet", 0).or_else(|error| {
        // A bond without ports cannot send.
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
    failed_with(&attempt, libc::ENETDOWN)?;
    gone(listener.accept(0), "accept")?;
    gone(host.esp()?.connect(&nobody), "connect anew")?;
    gone(host.edp()?.bind(&bond.here(833)), "bind anew")
}

/// Packets in the queue of one device fill the socket's send buffer. A call that sends through a
/// second device then waits for room in the buffer. During this wait, the second device can be
/// removed.
fn waiting_sender(lab: &Lab) -> Outcome {
    let host = &lab.a;
    host.namespace
        .ip("link add second0 type veth peer name far0\nlink set far0 up\nlink set second0 up\n")?;
    let second = Device::ready(&host.namespace, "second0")?;
    let socket = host.edp()?;
    socket.set_so(libc::SO_SNDBUF, 4608)?;
    // The queue sends less than one packet per minute.
    let slow = ["tbf", "rate", "100bit", "burst", "1600", "limit", "1mb"];
    host.queue("add", &slow)?;
    let there = host.to_nobody(808);
    let full = loop {
        if let Err(error) = socket.send_to(&[0; 1000], libc::MSG_DONTWAIT, &there) {
            break error;
        }
    };
    ensure!(full.raw_os_error() == Some(libc::EAGAIN), "{full}");
    let by_second = Address {
        ifindex: second.ifindex,
        ..there
    };
    let (slept, sent, ()) = asleep::asleep(
        libc::SYS_sendto,
        || socket.send_to(b"by another", 0, &by_second),
        |_| {
            // The command returns once there are no more references to the device.
            host.namespace.ip("link del second0\n")?;
            host.queue("del", &[])
        },
    )?;
    ensure!(slept, "there was room: {sent:?}");
    refused(sent, libc::ENODEV, "sending by a device that has gone")
}
