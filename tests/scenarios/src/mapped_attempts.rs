// SPDX-License-Identifier: GPL-2.0-only

//! Tests how ESP's connection attempt for a mapped client ends, and which results the program gets.
//! A mapped client is an `IPPROTO_ENET` socket, which ESP or TCP serves.

use std::os::fd::AsRawFd;

use io_uring::{opcode, types::Fd};

use guest::address::internet;
use guest::bpf::{attach, if_larger, keep, KEEP_ALL, LOAD_LENGTH};
use guest::mapped::stream;
use guest::mapped::{begin, is_esp, known, listener, MAPPED, PLAIN};
use guest::prelude::*;
use guest::uring::Ring;

scenarios! {
    direct mapped_client_is_not_taken_by_who_connects_from_the_servers_port = another_users_socket;
    direct mapped_listener_waits_for_a_device_that_is_not_there = listener_of_no_device;
    direct mapped_client_sees_no_error_of_an_attempt_that_tcp_repeats = quiet_attempt;
    direct mapped_client_of_io_uring_connects_where_tcp_carries_it = by_ring;
    direct mapped_client_uses_tcp_where_another_connection_has_its_ports = ports_in_use;
    direct mapped_connection_that_was_reset_is_not_opened_again = reset_at_once;
    direct mapped_connect_reports_a_reset_once_as_tcp_does = connect_after_reset;
    direct mapped_client_with_options_of_ip_uses_tcp = options_of_ip;
    direct mapped_connection_tells_once_that_its_address_is_gone = address_gone;
}

/// Makes a socket drop packets without payload, which have only the 11 bytes of ESP's header. A SYN
/// still gets through, because its options count as payload.
fn ignore_empty(socket: &Socket) -> Outcome {
    let program = [LOAD_LENGTH, if_larger(11), KEEP_ALL, keep(0)];
    attach(socket, &program)?;
    Ok(())
}

/// Returns a mapped socket of host a that is bound to `port`.
fn client_from(lab: &Lab, port: u16) -> Result<Socket> {
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.bind_bytes(&internet([0; 4], port))?;
    Ok(client)
}

/// Returns a mapped socket of host a that has begun to connect to `port` of host b.
fn attempt(lab: &Lab, port: u16) -> Result<Socket> {
    begin(&lab.a, [10, 0, 0, 2], port)
}

/// On host b, one user has a mapped server. Another user's ESP socket connects from the server's
/// port to the client's port, so that its SYN and the client's SYN cross. The two SYNs must not
/// open a connection between the client and the ESP socket.
fn another_users_socket(lab: &Lab) -> Outcome {
    known(lab)?;
    let server = listener(&lab.b, MAPPED, 5970, 4)?;
    let thief = lab.b.esp()?;
    thief.bind(&lab.b.here(5970))?;
    ignore_empty(&thief)?;
    thief.set_nonblocking(true)?;
    let attempt = thief.connect(&lab.b.to(&lab.a, 5971));
    refused(attempt, libc::EINPROGRESS, "connect")?;
    let client = client_from(lab, 5971)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 5970))?;
    ensure!(
        !is_esp(&client),
        "the client is connected to another socket"
    );
    let (accepted, _) = server.accept(0)?;
    exchange(&client, &accepted)?;
    let events = thief.poll(libc::POLLOUT, Duration::ZERO)?;
    ensure!(events & libc::POLLOUT == 0, "the other socket is connected");
    Ok(())
}

fn listener_of_no_device(lab: &Lab) -> Outcome {
    known(lab)?;
    lab.b.namespace.ip("link add spare type dummy\n")?;
    for (port, kind) in [(5972, PLAIN), (5973, MAPPED)] {
        for device in ["lo\0", "spare\0"] {
            let socket = stream(&lab.b, kind.0, kind.1)?;
            socket.set_so(libc::SO_REUSEADDR, 1)?;
            socket.set_option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())?;
            socket.bind_bytes(&internet([0; 4], port))?;
            socket.listen(4)?;
            if device.starts_with("spare") {
                lab.b.namespace.ip("link del spare\n")?;
            }
            let events = socket.poll(libc::POLLIN | libc::POLLOUT, Duration::ZERO)?;
            ensure!(events == 0, "{kind:?} on {device}: {events:#x}");
            socket.set_nonblocking(true)?;
            refused(socket.accept(0).map(drop), libc::EAGAIN, "accept")?;
        }
        lab.b.namespace.ip("link add spare type dummy\n")?;
    }
    Ok(())
}

fn quiet_attempt(lab: &Lab) -> Outcome {
    known(lab)?;
    let server = listener(&lab.b, PLAIN, 5974, 4)?;
    let before = lab.a.counter("EspInPkts")?;
    let client = attempt(lab, 5974)?;
    // By now the server has refused ESP's attempt, and the program has made no call in which it
    // could learn of this.
    lab.a.await_counter("EspInPkts", before + 1)?;
    same(client.pending_error()?, 0, "SO_ERROR")?;
    let events = client.poll(libc::POLLOUT, Duration::from_secs(60))?;
    ensure!(events == libc::POLLOUT, "{events:#x}");
    let (accepted, _) = server.accept(0)?;
    exchange(&client, &accepted)
}

/// In this test ESP is refused while `io_uring` waits for the socket to become ready.
fn by_ring(lab: &Lab) -> Outcome {
    known(lab)?;
    let server = listener(&lab.b, PLAIN, 5975, 4)?;
    lab.netem(&["delay", "20ms"])?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    let to = internet([10, 0, 0, 2], 5975);
    let mut ring = Ring::new()?;
    let connect = opcode::Connect::new(Fd(client.as_raw_fd()), to.as_ptr().cast(), to.len() as u32);
    // SAFETY: The address lives to the end of this function, which waits for the operation.
    unsafe { ring.start(1, connect.build()) }?;
    let completion = ring.wait(1)?;
    ensure!(completion.result == 0, "connect: {}", completion.result);
    ensure!(lab.a.counter("MappedTcpRefused")? == 1);
    let (accepted, _) = server.accept(0)?;
    exchange(&client, &accepted)
}

fn ports_in_use(lab: &Lab) -> Outcome {
    known(lab)?;
    let own = lab.b.esp_listener(5976, 4)?;
    let other = lab.a.esp()?;
    other.bind(&lab.a.here(5977))?;
    other.connect(&lab.a.to(&lab.b, 5976))?;
    let (_kept, _) = own.accept(0)?;
    let server = listener(&lab.b, MAPPED, 5976, 4)?;
    let client = client_from(lab, 5977)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 5976))?;
    ensure!(!is_esp(&client));
    let (accepted, _) = server.accept(0)?;
    exchange(&client, &accepted)?;
    // ESP carries a connection that the client makes from a different port.
    let client = client_from(lab, 5978)?;
    client.set_so(libc::SO_REUSEADDR, 1)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 5976))?;
    ensure!(is_esp(&client));
    Ok(())
}

fn reset_at_once(lab: &Lab) -> Outcome {
    known(lab)?;
    let server = listener(&lab.b, MAPPED, 5979, 4)?;
    let before = lab.a.counter("EspInPkts")?;
    let client = attempt(lab, 5979)?;
    let (accepted, _) = server.accept(0)?;
    accepted.set_linger(Some(0))?;
    drop(accepted);
    // Two packets arrive: the answer to the client's SYN, and the reset.
    lab.a.await_counter("EspInPkts", before + 2)?;
    let events = client.poll(libc::POLLOUT, Duration::ZERO)?;
    let wanted = libc::POLLERR | libc::POLLHUP;
    ensure!(events & wanted == wanted, "{events:#x}");
    same(client.pending_error()?, libc::ECONNRESET, "SO_ERROR")?;
    server.set_nonblocking(true)?;
    refused(server.accept(0).map(drop), libc::EAGAIN, "accept")
}

fn options_of_ip(lab: &Lab) -> Outcome {
    known(lab)?;
    let server = listener(&lab.b, MAPPED, 5980, 4)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    // The option "no operation", four times.
    client.set_option(libc::IPPROTO_IP, libc::IP_OPTIONS, &[1; 4])?;
    client.connect_bytes(&internet([10, 0, 0, 2], 5980))?;
    ensure!(!is_esp(&client), "IP_OPTIONS is not honoured");
    let (accepted, _) = server.accept(0)?;
    exchange(&client, &accepted)?;
    ensure!(lab.a.counter("MappedTcpOption")? == 1);
    Ok(())
}

fn address_gone(lab: &Lab) -> Outcome {
    known(lab)?;
    let server = listener(&lab.b, MAPPED, 5981, 4)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.connect_bytes(&internet([10, 0, 0, 2], 5981))?;
    let (_accepted, _) = server.accept(0)?;
    ensure!(is_esp(&client));
    lab.a.set_mac([2, 0, 0, 0, 0, 77])?;
    let mut byte = [0];
    let first = client.receive(&mut byte, 0);
    refused(first, libc::ECONNABORTED, "the first call")?;
    same(client.receive(&mut byte, 0)?, 0, "bytes of the next call")
}

/// When a program looks at a socket whose peer resets the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// The program has seen the connection open.
    Before,
    /// The program has made no call between `connect` and the reset.
    After,
}

/// Returns the results of the calls of a program whose connection is reset before its `connect` has
/// reported success: the events, `SO_ERROR` if it asks, and two times `connect`. If `shut` is set,
/// the peer ends its sending half before it resets the connection.
fn calls_after_reset(
    lab: &Lab,
    (kind, port): ((i32, i32), u16),
    look: Look,
    (asks, shut): (bool, bool),
) -> Result<Vec<i32>> {
    let server = listener(&lab.b, kind, port, 4)?;
    let before = lab.a.counter("EspInPkts")?;
    let client = stream(&lab.a, kind.0, kind.1)?;
    client.set_nonblocking(true)?;
    let to = internet([10, 0, 0, 2], port);
    refused(client.connect_bytes(&to), libc::EINPROGRESS, "connect")?;
    if look == Look::Before {
        await_events(&client, libc::POLLOUT)?;
    }
    let (accepted, _) = server.accept(0)?;
    if shut {
        accepted.shutdown(libc::SHUT_WR)?;
    }
    accepted.set_linger(Some(0))?;
    drop(accepted);
    if kind == MAPPED {
        // The answer to the client's SYN, the end of the stream, and the reset.
        lab.a
            .await_counter("EspInPkts", before + 2 + u32::from(shut))?;
    }
    await_events(&client, libc::POLLHUP)?;
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    let mut seen = vec![client.poll(all, Duration::ZERO)?.into()];
    if asks {
        seen.push(client.pending_error()?);
    }
    let code = |result: std::io::Result<()>| match result {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(-1),
    };
    seen.push(code(client.connect_bytes(&to)));
    let carried = lab.a.namespace.proc_net("enet_mapped")?;
    ensure!(!carried.contains(&format!(":{port}")), "listed: {carried}");
    seen.push(code(client.connect_bytes(&to)));
    // The last of these calls has opened a new connection.
    await_events(&client, libc::POLLOUT)?;
    let (accepted, _) = server.accept(0)?;
    exchange(&client, &accepted)?;
    ensure!(is_esp(&client) == (kind == MAPPED), "the wrong protocol");
    seen.push(code(client.connect_bytes(&to)));
    seen.push(code(client.connect_bytes(&to)));
    Ok(seen)
}

fn connect_after_reset(lab: &Lab) -> Outcome {
    known(lab)?;
    let mut port = 5990;
    for look in [Look::Before, Look::After] {
        for (asks, shut) in [(false, false), (true, false), (false, true), (true, true)] {
            let plain = calls_after_reset(lab, (PLAIN, port), look, (asks, shut))?;
            let mapped = calls_after_reset(lab, (MAPPED, port + 1), look, (asks, shut))?;
            let case = format!("{look:?}, SO_ERROR {asks}, shut {shut}");
            same(&mapped, &plain, &case)?;
            let reports = plain[plain.len() - 4];
            let first = match (asks, shut) {
                (true, _) => libc::ECONNABORTED,
                (false, true) => libc::EPIPE,
                (false, false) => libc::ECONNRESET,
            };
            same(reports, first, "the first connect of TCP")?;
            port += 2;
        }
    }
    Ok(())
}
