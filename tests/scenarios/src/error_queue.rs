// SPDX-License-Identifier: GPL-2.0-only

//! Tests the error queue, in which a queueing discipline reports each packet that it did not send
//! in time.

use guest::control::{receive_with_control, Control};
use guest::harness::remark;
use guest::meminfo::kib;
use guest::netns::finish;
use guest::patience::factor;
use guest::prelude::*;

scenarios! {
    direct error_queue_reports_packets_not_sent_in_time = reports;
    direct error_queue_of_a_stream = stream;
    direct error_queue_is_freed_with_its_socket = left_behind;
}

/// `EP_RECVERR`, the control message with a report.
const EP_RECVERR: i32 = 3;
/// The number of bytes of a buffer for control messages.
const ROOM: usize = 256;
/// The queueing discipline that makes the reports. It treats a packet as late if the packet's
/// socket uses a clock other than `CLOCK_TAI`.
pub const ETF: [&str; 5] = ["etf", "clockid", "CLOCK_TAI", "delta", "0"];

/// Returns whether the kernel has the discipline; only the debug kernel may lack it.
///
/// # Errors
/// When another kernel lacks it.
pub fn has_etf() -> Result<bool> {
    has("sch_etf")
}

/// Returns whether the kernel has `module`; only the debug kernel may lack it.
///
/// # Errors
/// When another kernel lacks it.
pub fn has(module: &str) -> Result<bool> {
    let loaded = finish(Command::new("modprobe").arg(module), "");
    if loaded.is_err() && factor() > 1 {
        remark(&format!("this kernel has no {module}"));
        return Ok(false);
    }
    loaded.with_context(|| module.to_owned())?;
    Ok(true)
}

/// Makes the kernel queue reports for `socket`.
///
/// # Errors
/// When the option is refused.
pub fn want_reports(socket: &Socket) -> Result<()> {
    const SO_TXTIME: i32 = 61;
    const REPORT_ERRORS: i32 = 2;
    let value = [libc::CLOCK_MONOTONIC, REPORT_ERRORS].map(i32::to_ne_bytes);
    socket
        .set_option(libc::SOL_SOCKET, SO_TXTIME, &value.concat())
        .context("SO_TXTIME")
}

/// Takes a report, and returns the length of the reported frame.
fn take(socket: &Socket) -> Result<usize> {
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let (length, flags, control) = receive_with_control(socket, flags, ROOM)?;
    ensure!(
        flags & libc::MSG_ERRQUEUE != 0,
        "the message's flags are {flags:#x}"
    );
    let [Control { level, kind, data }] = &control[..] else {
        anyhow::bail!("control messages {control:?}");
    };
    same((*level, *kind), (SOL_EP, EP_RECVERR), "level, kind")?;
    // struct sock_extended_err: ee_errno; ee_origin SO_EE_ORIGIN_TXTIME, ee_type 0, ee_code
    // SO_EE_CODE_TXTIME_INVALID_PARAM.
    ensure!(
        data.len() == 16 && data[..4] == libc::EINVAL.to_ne_bytes() && data[4..7] == [6, 0, 1],
        "the report reads {data:?}"
    );
    Ok(length)
}

/// Sends a packet that the discipline refuses. The call fails with `ENOBUFS`, unless another
/// processor is running the discipline and takes the packet over; then the call succeeds.
fn send_late(socket: &Socket) -> Outcome {
    match socket.send(b"late", 0) {
        Ok(4) => Ok(()),
        result => refused(result, libc::ENOBUFS, "send of a late packet"),
    }
}

fn no_report(socket: &Socket) -> Outcome {
    refused(
        socket.receive(&mut [0; 4], libc::MSG_ERRQUEUE),
        libc::EAGAIN,
        "a report",
    )
}

fn reports(lab: &Lab) -> Outcome {
    const SO_SELECT_ERR_QUEUE: i32 = 45;
    if !has_etf()? {
        return Ok(());
    }
    let (a, b) = lab.edp_pair(60)?;
    lab.a.queue("add", &ETF)?;
    want_reports(&a)?;
    no_report(&a)?;
    send_late(&a)?;
    let all = libc::POLLIN | libc::POLLPRI;
    let events = await_events(&a, all)?;
    ensure!(events == libc::POLLERR, "events {events:#x} with a report");
    a.set_so(SO_SELECT_ERR_QUEUE, 1)?;
    let events = await_events(&a, all)?;
    same(events, libc::POLLERR | libc::POLLPRI, "of a report")?;
    silent(&a, "a datagram")?;
    // Ethernet's header, EDP's header and the payload.
    ensure!(take(&a)? == 14 + 6 + 4, "another frame");
    no_report(&a)?;
    let events = a.poll(all, Duration::ZERO)?;
    ensure!(events == 0, "events {events:#x} without a report");

    // Unread reports occupy the receive buffer.
    for _ in 0..1000 {
        send_late(&a)?;
    }
    for _ in 0..5 {
        b.send(b"no room", 0)?;
    }
    eventually("a drop", || {
        let counted = a.edp_counters()?;
        Ok(counted.pkt_rx + counted.pkt_rx_drop == 5 && counted.pkt_rx_drop > 0)
    })?;
    while a.events()? & libc::POLLERR != 0 {
        take(&a)?;
    }
    while a.receive(&mut [0; 8], libc::MSG_DONTWAIT).is_ok() {}
    b.send(b"room", 0)?;
    receives(&a, b"room")
}

/// On a device with several queues, a stream's packets keep the reference to their socket. So
/// reports about them reach the socket.
fn stream(lab: &Lab) -> Outcome {
    if !has_etf()? {
        return Ok(());
    }
    let [a, b]: [&Netns; 2] = [&lab.a.namespace, &lab.b.namespace];
    a.ip(&format!(
        "link add multi0 numtxqueues 2 numrxqueues 2 type veth peer name multi0 \
         numtxqueues 2 numrxqueues 2 netns {}\nlink set multi0 up\n",
        b.path()
    ))?;
    b.ip("link set multi0 up\n")?;
    let near = Device::ready(a, "multi0")?;
    let far = Device::ready(b, "multi0")?;
    let (client, server) = near.stream_to(&far, 61)?;
    want_reports(&client)?;
    let discipline = [&["qdisc", "add", "dev", "multi0", "root"], &ETF[..]].concat();
    a.run("tc", &discipline)?;
    client.send_all(b"late at first")?;
    let events = await_events(&client, libc::POLLIN)?;
    ensure!(events & libc::POLLERR != 0, "events {events:#x}");
    take(&client)?;
    // Without the discipline packets leave, and the stream continues.
    a.run("tc", &["qdisc", "del", "dev", "multi0", "root"])?;
    comes_next(&server, b"late at first")?;
    drop((client, server));
    lab.await_no_sockets()?;
    a.ip("link del multi0\n")
}

/// Closing a socket frees its unread reports. Here the reports of all sockets take some 20 MB.
fn left_behind(lab: &Lab) -> Outcome {
    if !has_etf()? {
        return Ok(());
    }
    lab.a.queue("add", &ETF)?;
    let before = kib("SUnreclaim")?;
    for _ in 0..100 {
        let socket = lab.a.edp()?;
        socket.connect(&lab.a.to(&lab.b, 62))?;
        want_reports(&socket)?;
        for _ in 0..300 {
            send_late(&socket)?;
        }
    }
    let mut more = 0;
    eventually("the memory's return", || {
        more = kib("SUnreclaim")? - before;
        Ok(more < 5000)
    })
    .with_context(|| format!("{more} KiB are left behind"))
}
