//! Devices that move between namespaces, and namespaces that end, under sockets.

use nix::sys::signal::{kill, Signal};

use crate::device::gone;
use crate::prelude::*;

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
    // In its new namespace it is a device like any other, with the same ports free.
    other.ip("link set eth0 up\n")?;
    let device = Device::ready(&other, "eth0")?;
    let (caller, accepted) = there.stream_to(&device, 890)?;
    exchange(&caller, &accepted)?;
    let new = device.edp(890)?;
    lab.b.edp()?.send_to(b"hello", 0, &there.to(&device, 890))?;
    await_events(&new, libc::POLLIN)?;
    has_events(&bound, libc::POLLERR, "the old socket")?;
    // The peer was told nothing: the first packet of its stream finds that nobody knows it.
    server.send_all(b"anyone?")?;
    let events = await_events(&server, libc::POLLIN)?;
    ensure!(events & libc::POLLERR != 0, "events {events:#x}");
    failed_with(&server, libc::ECONNRESET)?;
    // It comes home.
    drop((caller, accepted, new));
    other.ip("link set eth0 down\n")?;
    let home = lab.a.namespace.path();
    other.ip(&format!("link set eth0 netns {home}\n"))?;
    lab.a.link("up")?;
    let device = Device::ready(&lab.a.namespace, "eth0")?;
    let (caller, accepted) = there.stream_to(&device, 892)?;
    exchange(&caller, &accepted)?;
    if device.ifindex == lab.a.ifindex {
        // Bound to an index: what has it now is its device.
        lab.b.edp()?.send_to(b"home", 0, &there.to(&device, 890))?;
        receives(&bound, b"home")?;
    }
    Ok(())
}

/// A namespace that nothing else refers to goes on while sockets are open in it, and takes its devices along afterwards.
fn sockets_live_on() -> Outcome {
    let (a, b) = (Netns::create()?, Netns::create()?);
    a.ip(&format!(
        "link add eth0 type veth peer name eth0 netns {}\nlink set eth0 up\n",
        b.path()
    ))?;
    b.ip("link set eth0 up\n")?;
    let (client, server, datagrams) = {
        let near = Device::ready(&a, "eth0")?;
        let far = Device::ready(&b, "eth0")?;
        let (client, server) = near.stream_to(&far, 895)?;
        (client, server, near.edp(895)?)
    };
    drop(b);
    exchange(&client, &server)?;
    // A stream that is closed and not yet acknowledged is a socket still.
    client.send_all(&[7; 3000])?;
    let mut got = server.receive_all(3000)?;
    drop(server);
    // The last socket goes, and the namespace after it; so does the cable.
    ensure!(client.receive(&mut got, 0)? == 0, "the end of the stream");
    await_events(&datagrams, libc::POLLERR)?;
    gone(
        datagrams.receive(&mut got, 0),
        "recv on the cable's other end",
    )?;
    gone(client.send(b"x", libc::MSG_NOSIGNAL), "send")?;
    Ok(())
}

/// A process that sends and receives in a namespace of its own is killed.
fn killed() -> Outcome {
    let (a, b) = (Netns::create()?, Netns::create()?);
    a.ip(&format!(
        "link add eth0 address 02:00:00:00:00:01 type veth peer name eth0 address 02:00:00:00:00:02 netns {}\nlink set eth0 up\n",
        b.path()
    ))?;
    b.ip("link set eth0 up\n")?;
    let (sender, receiver, datagrams, process) = {
        let near = Device::ready(&a, "eth0")?;
        let far = Device::ready(&b, "eth0")?;
        let datagrams = near.edp(896)?;
        let listener = near.listener(896)?;
        // Nothing of this process may be left open in the child but what it makes itself.
        let flood = || -> Outcome {
            let calls = || -> anyhow::Result<Socket> {
                let socket = b.within(Socket::esp)??;
                socket.connect(&far.to(&near, 896))?;
                Ok(socket)
            };
            let (out, back) = (calls()?, calls()?);
            let thread = std::thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while back.receive(&mut bytes, 0).is_ok_and(|got| got > 0) {}
            });
            let shouts = b.within(Socket::edp)??;
            while out.send(&[1; 30_000], libc::MSG_NOSIGNAL).is_ok() {
                let _ = shouts.send_to(&[2; 1000], 0, &far.to(&near, 896));
            }
            let _ = thread.join();
            Ok(())
        };
        let process = start_process(|| i32::from(flood().is_err()))?;
        let (receiver, _) = listener.accept(0)?;
        let (sender, _) = listener.accept(0)?;
        (sender, receiver, datagrams, process)
    };
    let mut bytes = receiver.receive_all(1 << 16).context("the flood")?;
    await_events(&datagrams, libc::POLLIN)?;
    // A stream under way: as much as the socket takes at a time, though the other end reads what comes.
    sender.set_nonblocking(true)?;
    let full = (0..10_000).any(|_| sender.send(&bytes, libc::MSG_NOSIGNAL).is_err());
    ensure!(full, "the stream never had more to send than it could");
    sender.set_nonblocking(false)?;
    drop(b);
    kill(process, Signal::SIGKILL)?;
    waitpid(process, None)?;
    // Reset by the kill, or without a device when the namespace has gone before that left it.
    for socket in [&sender, &receiver] {
        eventually("the end of a stream", || {
            match socket.receive(&mut bytes, 0) {
                Ok(0) => Ok(true),
                Ok(_) => Ok(false),
                Err(error) => {
                    let errno = error.raw_os_error();
                    ensure!(
                        matches!(
                            errno,
                            Some(libc::ECONNRESET | libc::ENETDOWN | libc::ENODEV)
                        ),
                        "recv: {error}"
                    );
                    Ok(true)
                }
            }
        })?;
    }
    eventually("the end of the cable", || {
        Ok(datagrams.events()? & libc::POLLERR != 0)
    })?;
    loop {
        match datagrams.receive(&mut bytes, libc::MSG_DONTWAIT) {
            Ok(_) => {}
            Err(error) => return gone(Err::<(), _>(error), "recv of datagrams"),
        }
    }
}
