// SPDX-License-Identifier: GPL-2.0-only

//! Tests the kernel's notifications about devices: repeated notifications, and the cost of a
//! notification.

use std::mem::zeroed;

use guest::crowd::{Crowd, Protocol};
use guest::held_page::{HeldPage, PAGE};
use guest::prelude::*;
use guest::tun::{Carries, Tun};

scenarios! {
    direct device_that_is_held_beyond_its_end_spares_the_next_owner_of_its_index = repeated;
    direct device_events_cost_the_same_with_2000_connections_by_another_device = unrelated, within(120), needs_icount;
}

/// The kernel repeats the unregister notification every second while there is a reference to the
/// device. Here a `write` to the tap device holds a reference, and cannot end before the test
/// supplies the page with its data.
fn repeated(lab: &Lab) -> Outcome {
    let host = &lab.a;
    let tap = Tun::create(&host.namespace, "tap0", Carries::Frames)?;
    host.namespace.ip("link set tap0 up\n")?;
    let index = Device::named(&host.namespace, "tap0")?.ifindex;
    let stalled = HeldPage::new(PAGE, 0)?;
    thread::scope(|scope| {
        // Both calls return once the page is supplied.
        let writer = scope.spawn(|| stalled.write_to(&tap, 64));
        let remover = stalled
            .await_sleeper()
            .map(|()| scope.spawn(|| host.namespace.ip("link del tap0\n")));
        let judged = match remover {
            Ok(_) => next_owner_is_spared(host, index),
            Err(_) => Ok(()),
        };
        stalled.release()?;
        // The result is ignored, because the write fails if the device is gone by now.
        let _ = joined(writer)?;
        joined(remover?)??;
        judged
    })
}

/// Checks that the end of the old device does not affect the sockets of a new device with the same
/// index, `index`.
fn next_owner_is_spared(host: &Host, index: u32) -> Outcome {
    eventually("the end of the device", || {
        Ok(Device::named(&host.namespace, "tap0").is_err())
    })?;
    host.namespace.ip(&format!(
        "link add next0 index {index} type veth peer name far0\nlink set next0 up\nlink set far0 up\n"
    ))?;
    let next = Device::ready(&host.namespace, "next0")?;
    same(next.ifindex, index, "the index of the new device")?;
    let far = Device::ready(&host.namespace, "far0")?;
    let listener = next.listener(840)?;
    let bound = next.edp(840)?;
    let (client, server) = far.stream_to(&next, 841)?;
    // A repeated notification has no effect to wait for, so the test waits longer than the time
    // between two notifications.
    let events = listener.poll(libc::POLLIN, Duration::from_millis(2500))?;
    ensure!(events == 0, "the listener has events {events:#x}");
    quiet(&bound, "a socket of the new device")?;
    quiet(&server, "a stream by the new device")?;
    exchange(&client, &server)
}

/// Sets the MTU of `name` in the calling thread's namespace.
fn set_mtu(socket: &Socket, name: &str, mtu: i32) -> Outcome {
    // SAFETY: All-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_mtu = mtu;
    // SAFETY: The request reads one ifreq, which lives across the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU, &request) })
        .map(drop)
        .with_context(|| format!("the MTU {mtu} of {name}"))
}

/// Changes the MTU of `name` several times, and returns the shortest time of a change. If the
/// guest's clock counts instructions, the result is a number of instructions.
fn change(host: &Host, name: &str) -> Result<Duration> {
    let socket = host.edp()?;
    let one = |mtu| {
        let started = Instant::now();
        set_mtu(&socket, name, mtu)?;
        Ok(started.elapsed())
    };
    let changes =
        || -> Result<Vec<Duration>> { [1400, 1500].repeat(10).into_iter().map(one).collect() };
    let times = host.namespace.within(changes)??;
    times.into_iter().min().context("no changes")
}

/// A change of one device must not cost more if other devices have many connections. Such changes
/// are frequent, because each container that starts or stops adds or removes devices.
fn unrelated(lab: &Lab) -> Outcome {
    /// The largest accepted difference between two costs. It is longer than the variation between
    /// runs, and shorter than a walk over all connections takes.
    const MARGIN: Duration = Duration::from_micros(20);
    let host = &lab.a;
    host.namespace
        .ip("link add other0 type veth peer name far1\nlink set other0 up\nlink set far1 up\n")?;
    let alone = change(host, "other0")?;
    let crowd = Crowd::open(lab, Protocol::Esp, 842, 2000)?;
    let beside = change(host, "other0")?;
    let own = change(host, DEVICE)?;
    note(&format!(
        "{alone:?} without connections, {beside:?} with {}, {own:?} of their device",
        crowd.pairs.len()
    ));
    ensure!(
        beside < alone + MARGIN,
        "{beside:?} beside {} connections by another device, {alone:?} without",
        crowd.pairs.len()
    );
    Ok(())
}
