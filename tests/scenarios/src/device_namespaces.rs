// SPDX-License-Identifier: GPL-2.0-only

//! Tests devices that move between namespaces, and namespaces that end, while sockets use them.

use nix::sys::signal::{kill, Signal};

use guest::device::{failed, gone};
use guest::prelude::*;

scenarios! {
    direct device_moved_to_another_namespace_leaves_its_sockets = moved;
    guest namespace_lives_as_long_as_its_sockets = sockets_live_on;
    guest namespace_ends_with_a_killed_process_under_traffic = killed;
}

fn moved(lab: &Lab) -> Outcome {
    let other = Netns::create()?;
    let (client, server) = lab.esp_pair(890)?;
    let bound = lab.a.edp_bound(890)?;
    let listener = lab.a.esp_listener(891, 4)?;
    let there = Device::named(&lab.b.namespace, "eth0")?;
    lab.a
        .namespace
        .ip(&format!("link set eth0 netns {}\n", other.path()))?;
    let mut got = [0; 8];
    for round in 0..2 {
        gone(client.receive(&mut got, 0), &format!("recv {round}"))?;
        gone(
            client.send(b"x", libc::MSG_NOSIGNAL),
            &format!("send {round}"),
        )?;
        gone(
            bound.receive(&mut got, 0),
            &format!("recv {round} of datagrams"),
        )?;
        gone(listener.accept(0), &format!("accept {round}"))?;
    }
    // In its new namespace the device works like any other, and the same ports are free.
    other.ip("link set eth0 up\n")?;
    let device = Device::ready(&other, "eth0")?;
    let (caller, accepted) = there.stream_to(&device, 890)?;
    exchange(&caller, &accepted)?;
    let new = device.edp(890)?;
    lab.b.edp()?.send_to(b"hello", 0, &there.to(&device, 890))?;
    await_events(&new, libc::POLLIN)?;
    has_events(&bound, libc::POLLERR, "the old socket")?;
    // No packet has told the peer that the stream ended. When the peer sends, it gets a reset.
    server.send_all(b"anyone?")?;
    let events = await_events(&server, libc::POLLIN)?;
    ensure!(events & libc::POLLERR != 0, "events {events:#x}");
    failed_with(&server, libc::ECONNRESET)?;
    // Move the device back.
    drop((caller, accepted, new));
    other.ip("link set eth0 down\n")?;
    let home = lab.a.namespace.path();
    other.ip(&format!("link set eth0 netns {home}\n"))?;
    lab.a.link("up")?;
    let device = Device::ready(&lab.a.namespace, "eth0")?;
    let (caller, accepted) = there.stream_to(&device, 892)?;
    exchange(&caller, &accepted)?;
    if device.ifindex == lab.a.ifindex {
        // The socket is bound to an index, and works with the device that has this index now.
        lab.b.edp()?.send_to(b"home", 0, &there.to(&device, 890))?;
        receives(&bound, b"home")?;
    }
    Ok(())
}

/// Open sockets keep a namespace alive that has no other references. When the namespace ends, its
/// devices are removed.
fn sockets_live_on() -> Outcome {
    let Lab { a, b, .. } = Lab::new(Wiring::Direct)?;
    let listener = b.esp_listener(895, 4)?;
    let (client, server) = a.esp_pair_through(&b, &listener, 895)?;
    let datagrams = a.edp_bound(895)?;
    drop(listener);
    drop(b);
    exchange(&client, &server)?;
    // A closed stream with unacknowledged data still keeps its namespace alive.
    client.send_all(&[7; 3000])?;
    let mut got = server.receive_all(3000)?;
    drop(server);
    // Freeing the last socket frees the namespace, and the cable with it.
    ensure!(client.receive(&mut got, 0)? == 0, "the end of the stream");
    await_events(&datagrams, libc::POLLERR)?;
    gone(
        datagrams.receive(&mut got, 0),
        "recv on the cable's other end",
    )?;
    gone(client.send(b"x", libc::MSG_NOSIGNAL), "send")?;
    Ok(())
}

/// Sends datagrams and a stream to port 896 of `there`, and reads a second stream from `there`,
/// until a call fails.
fn flood(here: &Host, there: &Host) -> Outcome {
    let to = here.to(there, 896);
    let (out, back) = (here.esp_connected(&to)?, here.esp_connected(&to)?);
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while back.receive(&mut bytes, 0).is_ok_and(|got| got > 0) {}
    });
    let shouts = here.edp()?;
    while out.send(&[1; 30_000], libc::MSG_NOSIGNAL).is_ok() {
        let _ = shouts.send_to(&[2; 1000], 0, &to);
    }
    let _ = reader.join();
    Ok(())
}

/// Waits for the end of a stream whose peer was killed. The stream ends with a reset, unless the
/// peer's namespace and the cable were removed before the reset was sent.
fn breaks(socket: &Socket) -> Outcome {
    let mut bytes = vec![0; 1 << 16];
    eventually("the end of a stream", || {
        let received = socket.receive(&mut bytes, 0);
        if let Ok(length) = received {
            return Ok(length == 0);
        }
        let wanted = [libc::ECONNRESET, libc::ENETDOWN, libc::ENODEV];
        failed(received, &wanted, "recv").map(|()| true)
    })
}

/// Kills a process that sends and receives in a namespace of its own.
fn killed() -> Outcome {
    let Lab { a, b, .. } = Lab::new(Wiring::Direct)?;
    let datagrams = a.edp_bound(896)?;
    let listener = a.esp_listener(896, 16)?;
    let process = start_process(|| i32::from(flood(&b, &a).is_err()))?;
    let (receiver, _) = listener.accept(0)?;
    let (sender, _) = listener.accept(0)?;
    drop(listener);
    let mut bytes = receiver.receive_all(1 << 16).context("the flood")?;
    await_events(&datagrams, libc::POLLIN)?;
    // Fill the send buffer, so that the stream has data queued although the other end reads.
    let full = (0..10_000).any(|_| {
        sender
            .send(&bytes, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
            .is_err()
    });
    ensure!(full, "the stream never had more to send than it could");
    drop(b);
    kill(process, Signal::SIGKILL)?;
    waitpid(process, None)?;
    breaks(&sender)?;
    breaks(&receiver)?;
    eventually("the end of the cable", || {
        Ok(datagrams.events()? & libc::POLLERR != 0)
    })?;
    loop {
        let received = datagrams.receive(&mut bytes, libc::MSG_DONTWAIT);
        if received.is_err() {
            return gone(received, "recv of datagrams");
        }
    }
}
