// SPDX-License-Identifier: GPL-2.0-only

//! Tests mapped sockets whose peers lack the module or lose it. The wire drops all of the module's
//! frames, like a kernel without the module.
//!
//! These scenarios run where the guest's clock counts instructions, so that they can check times,
//! too.

use guest::frame::ETH_P_ALL;
use guest::harness::remark;
use guest::mapped::addresses;
use guest::mapped::{dial, is_esp, known, listener, MAPPED, PLAIN};
use guest::prelude::*;
use guest::relay::Mode;

scenarios! {
    guest mapped_first_connection_to_a_host_without_the_module_is_late_once = first_connection, within(120), needs_icount;
    guest mapped_connections_to_a_host_that_loses_the_module = lost, within(120), needs_icount;
}

/// The Ethernet type of IPv4.
const ETH_P_IP: u16 = 0x0800;

/// `TCP_USER_TIMEOUT`, in milliseconds.
const PATIENCE: i32 = 3000;

/// The default of `mapped_wait`, microseconds.
const WAIT: f64 = 1000.0;

/// The test allows a mapped connection to a host without the module to take longer than a plain one
/// by this share.
const MOST: f64 = 0.1;

/// Returns two hosts on a switch. They compute TCP's checksums themselves, because the switch does
/// not complete them.
fn lab() -> Result<Lab> {
    let lab = Lab::new(Wiring::Switched)?;
    for host in [&lab.a, &lab.b] {
        (host.namespace).run("ethtool", &["-K", DEVICE, "tx", "off"])?;
    }
    Ok(lab)
}

/// Returns the time that `connect` takes, in microseconds.
fn connects(lab: &Lab, listener: &Socket, kind: (i32, i32), port: u16) -> Result<f64> {
    let start = Instant::now();
    let client = dial(&lab.a, kind, port)?;
    let took = start.elapsed();
    let (server, _) = listener.accept(0)?;
    ensure!(!is_esp(&client) && !is_esp(&server), "ESP carries it");
    Ok(took.as_secs_f64() * 1e6)
}

/// Returns the least of `times`, because other work of the host can only lengthen a time.
fn least(times: Vec<f64>) -> f64 {
    times.into_iter().fold(f64::INFINITY, f64::min)
}

fn first_connection() -> Outcome {
    let (mut plain, mut first, mut later) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        let lab = lab()?;
        addresses(&lab)?;
        lab.relay().set_mode(Mode::Foreign);
        let listener = listener(&lab.b, PLAIN, 950, 4)?;
        // This connection resolves the neighbour, which both kinds of connection need.
        connects(&lab, &listener, PLAIN, 950)?;
        plain.push(connects(&lab, &listener, PLAIN, 950)?);
        // The first mapped connection sends a query to the host before its handshake.
        let wire = PacketSocket::open_both_ways(&lab.a.namespace, DEVICE, ETH_P_ALL)?;
        first.push(connects(&lab, &listener, MAPPED, 950)?);
        let types = take_types(&wire);
        let [query, syn, syn_ack, ack, ..] = types[..] else {
            bail!("frames of {types:x?}");
        };
        ensure!([syn, syn_ack, ack] == [ETH_P_IP; 3] && query == ETH_P_EDP);
        later.push(connects(&lab, &listener, MAPPED, 950)?);
        ensure!(lab.a.counter("MappedTcpUnknown")? == 2);
        ensure!(lab.a.counter("MappedWaits")? == 1);
    }
    let [plain, first, later] = [plain, first, later].map(least);
    remark(&format!(
        "connecting takes {plain:.0} us, mapped {first:.0} once, and {later:.0}"
    ));
    ensure!(first >= WAIT, "the first one has not waited");
    // While the guest is idle, its clock follows the machine's clock, so the measured wait may be
    // longer than `WAIT`.
    ensure!(first <= 3.0 * WAIT, "the first one is too late");
    ensure!(later <= plain * (1.0 + MOST), "mapped ones are late");
    Ok(())
}

/// Returns the Ethernet types of the frames that have passed.
fn take_types(wire: &PacketSocket) -> Vec<u16> {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| {
        wire.take(&mut buffer)
            .ok()
            .map(|_| [buffer[12], buffer[13]])
    })
    .map(u16::from_be_bytes)
    .collect()
}

fn set_patience(socket: &Socket) -> Outcome {
    socket.set_int_option(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, PATIENCE)?;
    Ok(())
}

fn lost() -> Outcome {
    let lab = lab()?;
    known(&lab)?;
    let listener = listener(&lab.b, MAPPED, 951, 4)?;
    let by_esp = dial(&lab.a, MAPPED, 951)?;
    let (other, _) = listener.accept(0)?;
    ensure!(is_esp(&by_esp));
    set_patience(&by_esp)?;
    exchange(&by_esp, &other)?;
    for end in [&by_esp, &other] {
        // The timeout measured below must count from data that are sent below. So all earlier data
        // must have been acknowledged.
        eventually("all is acknowledged", || {
            Ok(end.queued(libc::TIOCOUTQ)? == 0)
        })?;
    }
    lab.relay().set_mode(Mode::Foreign);
    // A new connection falls back to TCP within a second.
    let start = Instant::now();
    let fallen_back = dial(&lab.a, MAPPED, 951)?;
    let took = start.elapsed();
    let (server, _) = listener.accept(0)?;
    ensure!(!is_esp(&fallen_back) && !is_esp(&server));
    note(&format!("the next connection takes {took:?}"));
    ensure!(took < Duration::from_secs(1), "after {took:?}");
    exchange(&fallen_back, &server).context("the next connection")?;
    // The next connection to the same host uses TCP at once.
    let start = Instant::now();
    drop(dial(&lab.a, MAPPED, 951)?);
    let took = start.elapsed();
    ensure!(took < Duration::from_millis(10), "again {took:?}");
    // The open connection of ESP ends like a TCP connection to a silent host.
    by_esp
        .send_all(b"nobody hears this")
        .context("the connection of ESP")?;
    let esp = ends(&by_esp)?;
    let by_tcp = fallen_back;
    set_patience(&by_tcp)?;
    lab.relay().set_mode(Mode::Cut);
    by_tcp.send_all(b"nobody hears this either")?;
    let tcp = ends(&by_tcp)?;
    note(&format!("connections end after {esp:?}, of TCP {tcp:?}"));
    ensure!(esp < 2 * tcp && tcp < 2 * esp, "not alike");
    Ok(())
}

/// Returns how long the socket waits for its silent peer before it times out.
fn ends(socket: &Socket) -> Result<Duration> {
    let start = Instant::now();
    refused(socket.receive(&mut [0], 0), libc::ETIMEDOUT, "silent peer")?;
    let took = start.elapsed();
    let rest = socket.receive(&mut [0], 0)?;
    ensure!(rest == 0, "{rest} bytes behind the end");
    let more = socket.send(b"x", libc::MSG_NOSIGNAL);
    refused(more, libc::EPIPE, "sending behind the end")?;
    Ok(took)
}
