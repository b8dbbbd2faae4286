// SPDX-License-Identifier: GPL-2.0-only

//! Tests the first connection of a mapped socket to a host. `connect` waits, for a bounded time,
//! until the host's Ethernet address is known and the host has answered a query.
//!
//! The station `NOBODY` stands for 10.0.0.99 in host a's neighbour table. The station has no
//! module, so its answers to queries are sent by the scenario.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::{opcode, types::Fd};
use nix::sys::resource::{setrlimit, Resource};

use guest::address::internet;
use guest::asleep::asleep;
use guest::frame::{edp, EDP_HEADER};
use guest::lab::NOBODY;
use guest::mapped::{addresses, begin, dial, is_esp, known, listener, rule, stream, MAPPED, PLAIN};
use guest::patience::factor;
use guest::prelude::*;
use guest::uring::Ring;

scenarios! {
    direct mapped_first_connection_is_carried_by_esp = blocking;
    direct mapped_first_connection_resolves_the_neighbour = resolves;
    direct mapped_first_connection_waits_for_a_late_neighbour = late_neighbour;
    guest mapped_first_connection_does_not_block_poll_epoll_or_a_ring = nonblocking;
    direct mapped_connect_by_a_ring_outlasts_a_needless_wake = needless_wake;
    direct mapped_first_connections_of_many_threads_share_a_query = threads;
    direct mapped_first_connections_to_two_hundred_hosts_are_all_by_esp = crowd;
    direct mapped_first_connection_waits_once_for_a_silent_host = silent_host;
    direct mapped_first_connection_waits_again_for_a_host_that_was_away = away;
    direct mapped_first_connection_waits_again_for_a_host_that_a_rule_names = named_host;
    direct mapped_first_connection_ignores_a_late_answer_and_the_next_uses_it = late_answer;
    direct mapped_first_connection_ignores_forged_answers = forged;
    direct mapped_connect_that_waits_for_a_host_is_interrupted = interrupted;
    direct mapped_connect_that_waits_for_a_host_ends_as_tcp_does = ends_alike;
    direct mapped_connect_that_blocks_after_the_answer_reports_an_earlier_call = blocks_later;
    direct mapped_connect_whose_syn_is_in_flight_ends_as_tcp_does = syn_in_flight;
    direct mapped_socket_closed_while_it_waits_for_a_host_leaves_nothing = closed;
    direct mapped_wait_for_a_host_ends_without_a_further_call = abandoned;
    direct mapped_connect_ends_when_the_device_goes_while_it_waits = device_goes;
    direct mapped_connect_without_a_wait_is_tcps = no_wait;
    direct mapped_refusal_counts_only_where_tcp_connects = refusals;
}

/// The first byte of a query and of an answer.
const QUERY: u8 = 3;
const ANSWER: u8 = 4;

/// The option of a host that speaks ESP and takes mapped connections.
const TAKES_MAPPED: &[u8] = &[2, 2, 0, 7];

/// Number of bytes in front of EDP's payload: the Ethernet header and EDP's header.
const HEADERS: usize = 14 + EDP_HEADER;

/// The longest setting of `mapped_wait`, microseconds.
const LONGEST: u32 = 100_000;

/// A rule that names the silent station. While this rule exists, a connection to the station waits
/// ten times as long as `mapped_wait`: up to a second.
const NAMES_NOBODY: &str = "allow 10.0.0.99/32 0-65535 0\n";

/// Makes host a wait for the silent station as long as the settings allow. Returns a socket on host
/// b that receives the frames for the station, and that sends in the station's name.
fn patient(lab: &Lab) -> Result<PacketSocket> {
    addresses(lab)?;
    Knobs(&lab.a.namespace).set("mapped_wait", LONGEST)?;
    rule(&lab.a, NAMES_NOBODY)?;
    lab.b.packets(ETH_P_EDP)
}

/// Returns a socket of host a that has begun to connect to 10.0.0.`number`.
fn attempt(lab: &Lab, number: u8, port: u16) -> Result<Socket> {
    begin(&lab.a, [10, 0, 0, number], port)
}

/// Waits for host a's query to the silent station, and returns its nonce.
pub fn asked(wire: &PacketSocket) -> Result<[u8; 4]> {
    let is_query = |frame: &[u8]| frame.starts_with(&NOBODY) && frame.get(HEADERS) == Some(&QUERY);
    let frame = wire.wait_for(patience(), is_query).context("a query")?;
    let nonce = frame.get(HEADERS + 1..HEADERS + 5);
    nonce
        .and_then(|nonce| nonce.try_into().ok())
        .context("a query without nonce")
}

/// Returns a frame with the answer of the station `from`, which takes mapped connections between
/// IPv4 addresses.
pub fn answer(lab: &Lab, from: [u8; 6], nonce: [u8; 4]) -> Vec<u8> {
    let payload = [&[ANSWER], &nonce[..], TAKES_MAPPED].concat();
    let packet = edp(0, 0, payload.len() as u16, &payload);
    ethernet(lab.a.mac, from, ETH_P_EDP, &packet)
}

/// Checks that the counters of host a have the values in `wanted`.
fn counted(lab: &Lab, wanted: &[(&str, u32)]) -> Outcome {
    for (name, value) in wanted {
        same(lab.a.counter(name)?, *value, name)?;
    }
    Ok(())
}

fn accepted_by_esp(listener: &Socket, client: &Socket) -> Outcome {
    let (server, _) = listener.accept(0)?;
    ensure!(is_esp(client) && is_esp(&server), "TCP carries it");
    exchange(client, &server)
}

fn blocking(lab: &Lab) -> Outcome {
    addresses(lab)?;
    let listener = listener(&lab.b, MAPPED, 800, 4)?;
    for round in 1..=3 {
        let client = dial(&lab.a, MAPPED, 800)?;
        accepted_by_esp(&listener, &client)?;
        let counters = [
            ("MappedWaits", 1),
            ("EdpOutQueries", 1),
            ("MappedActiveOpens", round),
            ("MappedTcpUnknown", 0),
        ];
        counted(lab, &counters)?;
    }
    Ok(())
}

/// Deletes each host's neighbour entry for the other host.
fn forget_neighbours(lab: &Lab) -> Outcome {
    for (host, other) in [(&lab.a, 2), (&lab.b, 1)] {
        (host.namespace).ip(&format!("neigh del 10.0.0.{other} dev {DEVICE}\n"))?;
    }
    Ok(())
}

fn resolves(lab: &Lab) -> Outcome {
    addresses(lab)?;
    forget_neighbours(lab)?;
    let listener = listener(&lab.b, MAPPED, 801, 4)?;
    let client = dial(&lab.a, MAPPED, 801)?;
    accepted_by_esp(&listener, &client)?;
    counted(lab, &[("MappedWaits", 1), ("MappedTcpNeighbour", 0)])?;
    // No host has this address. The mapped socket falls back to TCP after a while, and fails with
    // TCP's error when TCP gives up.
    lab.a.tcp_tries(6)?;
    (lab.a.namespace).ip(&format!("neigh del 10.0.0.99 dev {DEVICE}\n"))?;
    for kind in [PLAIN, MAPPED] {
        let client = stream(&lab.a, kind.0, kind.1)?;
        let connected = client.connect_bytes(&internet([10, 0, 0, 99], 801));
        refused(connected, libc::EHOSTUNREACH, &format!("{kind:?}"))?;
    }
    counted(lab, &[("MappedWaits", 2), ("MappedTcpNeighbour", 1)])
}

/// The host gets its IP address after the first ARP request for the address, and answers the second
/// request.
fn late_neighbour(lab: &Lab) -> Outcome {
    addresses(lab)?;
    forget_neighbours(lab)?;
    let address =
        |verb| (lab.b.namespace).ip(&format!("address {verb} 10.0.0.2/24 dev {DEVICE}\n"));
    let listener = listener(&lab.b, MAPPED, 802, 4)?;
    address("del")?;
    let client = attempt(lab, 2, 802)?;
    counted(lab, &[("MappedWaits", 1), ("EdpOutQueries", 0)])?;
    let name = client.local_name()?;
    same(&name[4..8], [10, 0, 0, 1], "the local address")?;
    address("add")?;
    await_events(&client, libc::POLLOUT)?;
    client.set_nonblocking(false)?;
    if lab.a.counter("MappedTcpNeighbour")? == 1 && factor() > 1 {
        note("the machine is too slow for the second request to come in time");
        return Ok(());
    }
    accepted_by_esp(&listener, &client)
}

/// Waits for `client` to connect, by an edge-triggered `epoll`.
fn by_epoll(client: &Socket) -> Outcome {
    // SAFETY: The call takes an integer.
    let epoll = check(unsafe { libc::epoll_create1(0) })?;
    // SAFETY: The descriptor is new and this function's alone.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll as i32) };
    let mut event = libc::epoll_event {
        events: (libc::EPOLLOUT | libc::EPOLLET) as u32,
        u64: 0,
    };
    // SAFETY: The event lives for the call.
    check(unsafe {
        let add = libc::EPOLL_CTL_ADD;
        libc::epoll_ctl(epoll.as_raw_fd(), add, client.as_raw_fd(), &mut event)
    })?;
    let most = i32::try_from(patience().as_millis())?;
    // SAFETY: There is room for one event.
    let events = check(unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, most) })?;
    let ready = event.events;
    ensure!(events == 1 && ready == libc::EPOLLOUT as u32, "{ready:#x}");
    Ok(())
}

fn nonblocking() -> Outcome {
    for way in ["poll", "epoll", "ring"] {
        for far in [false, true] {
            let lab = Lab::new(Wiring::Direct)?;
            addresses(&lab)?;
            if far {
                Knobs(&lab.a.namespace).set("mapped_wait", LONGEST)?;
                lab.netem(&["delay", "10ms"])?;
            }
            let listener = listener(&lab.b, MAPPED, 803, 4)?;
            let client = match way {
                "ring" => stream(&lab.a, MAPPED.0, MAPPED.1)?,
                _ => attempt(&lab, 2, 803)?,
            };
            match way {
                "poll" => {
                    await_events(&client, libc::POLLOUT)?;
                }
                "epoll" => by_epoll(&client)?,
                _ => {
                    let to = internet([10, 0, 0, 2], 803);
                    let (fd, len) = (Fd(client.as_raw_fd()), to.len() as u32);
                    let connect = opcode::Connect::new(fd, to.as_ptr().cast(), len).build();
                    // SAFETY: The address lives until the operation has been waited for.
                    let completion = unsafe { Ring::new()?.once(connect) }?;
                    same(completion.result, 0, "connect")?;
                }
            }
            same(client.pending_error()?, 0, "SO_ERROR")?;
            client.set_nonblocking(false)?;
            accepted_by_esp(&listener, &client).with_context(|| format!("{way}, {far}"))?;
            counted(&lab, &[("MappedWaits", 1), ("EdpOutQueries", 1)])?;
        }
    }
    Ok(())
}

/// A spurious wake-up makes the ring call `connect` again, which must not end the operation.
fn needless_wake(lab: &Lab) -> Outcome {
    addresses(lab)?;
    Knobs(&lab.a.namespace).set("mapped_wait", LONGEST)?;
    lab.netem(&["delay", "20ms"])?;
    let listener = listener(&lab.b, MAPPED, 820, 4)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    let to = internet([10, 0, 0, 2], 820);
    let fd = Fd(client.as_raw_fd());
    let connect = opcode::Connect::new(fd, to.as_ptr().cast(), to.len() as u32).build();
    let mut ring = Ring::new()?;
    // SAFETY: The address lives until the operation has been waited for.
    unsafe { ring.start(1, connect) }?;
    // A new low-water mark wakes those that wait for the socket.
    for bytes in [2, 1] {
        client.set_so(libc::SO_RCVLOWAT, bytes)?;
    }
    same(ring.wait(1)?.result, 0, "connect")?;
    accepted_by_esp(&listener, &client)
}

fn threads(lab: &Lab) -> Outcome {
    const THREADS: usize = 40;
    addresses(lab)?;
    Knobs(&lab.a.namespace).set("mapped_wait", LONGEST)?;
    let listener = listener(&lab.b, MAPPED, 804, 64)?;
    let call = || dial(&lab.a, MAPPED, 804);
    let clients = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(call)).collect();
        let joined: Result<Vec<_>> = threads.into_iter().map(|one| joined(one)?).collect();
        joined
    })?;
    ensure!(clients.iter().all(is_esp), "TCP carries some");
    for _ in &clients {
        ensure!(is_esp(&listener.accept(0)?.0));
    }
    counted(lab, &[("EdpOutQueries", 1)])
}

/// Waits until host a has given `count` connections to TCP because their peer did not answer a
/// query.
fn await_unknown(lab: &Lab, clients: &[Socket], count: u32) -> Outcome {
    eventually("connections go to TCP", || {
        for client in clients {
            client.poll(libc::POLLOUT, Duration::ZERO)?;
        }
        Ok(lab.a.counter("MappedTcpUnknown")? == count)
    })
}

fn silent_host(lab: &Lab) -> Outcome {
    addresses(lab)?;
    let first = [attempt(lab, 99, 805)?];
    await_unknown(lab, &first, 1)?;
    counted(lab, &[("MappedWaits", 1), ("EdpOutQueries", 1)])?;
    // Later attempts do not wait, and send no query before the next query is due.
    let _later = [attempt(lab, 99, 805)?, attempt(lab, 99, 806)?];
    counted(lab, &[("MappedTcpUnknown", 3), ("MappedWaits", 1)])?;
    counted(lab, &[("EdpOutQueries", 1)])?;
    // `/proc/net/enet_mapped` shows why TCP carries each connection.
    let reasons = lab.a.namespace.proc_net("enet_mapped")?;
    same(reasons.matches("unknown-peer").count(), 3, "reasons")?;
    // Each connection has already sent TCP's SYN.
    let sent = (lab.a.namespace).run("ss", &["-tanH", "state", "syn-sent"])?;
    same(sent.lines().count(), 3, "connections of TCP")
}

/// A host that answers neither the query nor TCP is away. When it is back, the first connection
/// waits for its answer. A host that refuses TCP is there, and its silence counts.
fn away(lab: &Lab) -> Outcome {
    addresses(lab)?;
    lab.b.prepare_filters()?;
    lab.b.drop_frames("ingress", ETH_P_EDP)?;
    let fails = |client: &Socket, error| {
        await_events(client, libc::POLLOUT)?;
        same(client.pending_error()?, error, "SO_ERROR")
    };
    fails(&attempt(lab, 2, 804)?, libc::ECONNREFUSED)?;
    counted(lab, &[("MappedWaits", 1)])?;
    // The next query to a host, and with it the next wait, is allowed after a second.
    let waits_again = |count| {
        let mut client = None;
        eventually("another wait", || {
            let unknown = lab.a.counter("MappedTcpUnknown")?;
            let client = client.insert(attempt(lab, 99, 804)?);
            await_unknown(lab, std::slice::from_ref(client), unknown + 1)?;
            Ok(lab.a.counter("MappedWaits")? == count)
        })?;
        client.context("a connection")
    };
    let client = waits_again(2)?;
    // The program closes the socket while TCP repeats its SYN.
    eventually("a SYN again", || {
        let of_tcp = lab.a.namespace.run("ss", &["-tinH", "state", "syn-sent"])?;
        Ok(of_tcp.contains("retrans:"))
    })?;
    drop(client);
    lab.a.tcp_tries(1)?;
    let client = waits_again(3)?;
    // TCP's attempt ends first.
    fails(&client, libc::ETIMEDOUT)?;
    drop(client);
    fails(&attempt(lab, 2, 804)?, libc::ECONNREFUSED)?;
    counted(lab, &[("MappedWaits", 3)])?;
    // The program closes the socket at once, which tells nothing about the host.
    drop(waits_again(4)?);
    attempt(lab, 99, 804)?;
    counted(lab, &[("MappedWaits", 4)])
}

fn named_host(lab: &Lab) -> Outcome {
    addresses(lab)?;
    rule(&lab.a, NAMES_NOBODY)?;
    let mut clients = vec![attempt(lab, 99, 807)?];
    await_unknown(lab, &clients, 1)?;
    // The next query, and with it the next wait, is allowed after a second.
    eventually("a second wait", || {
        clients.push(attempt(lab, 99, 807)?);
        Ok(lab.a.counter("MappedWaits")? == 2)
    })?;
    await_unknown(lab, &clients, clients.len() as u32)?;
    counted(lab, &[("EdpOutQueries", 2)])
}

fn late_answer(lab: &Lab) -> Outcome {
    addresses(lab)?;
    let wire = lab.b.packets(ETH_P_EDP)?;
    let first = [attempt(lab, 99, 808)?];
    await_unknown(lab, &first, 1)?;
    wire.send(&answer(lab, NOBODY, asked(&wire)?))?;
    lab.a.await_counter("EdpInAnswers", 1)?;
    counted(lab, &[("EspActiveOpens", 0)])?;
    let _second = attempt(lab, 99, 808)?;
    counted(lab, &[("EspActiveOpens", 1), ("MappedWaits", 1)])
}

fn forged(lab: &Lab) -> Outcome {
    let wire = patient(lab)?;
    let client = attempt(lab, 99, 809)?;
    let nonce = asked(&wire)?;
    wire.send(&answer(lab, NOBODY, nonce.map(|byte| !byte)))?;
    wire.send(&answer(lab, lab.b.mac, nonce))?;
    lab.a.await_counter("EdpInNoSocket", 2)?;
    client.poll(libc::POLLOUT, Duration::ZERO)?;
    counted(lab, &[("EspActiveOpens", 0), ("EdpInAnswers", 0)])?;
    if lab.a.counter("MappedTcpUnknown")? > 0 {
        note("the machine is too slow for the right answer");
        return Ok(());
    }
    wire.send(&answer(lab, NOBODY, nonce))?;
    lab.a.await_counter("EdpInAnswers", 1)?;
    client.poll(libc::POLLOUT, Duration::ZERO)?;
    counted(lab, &[("EspActiveOpens", 1)])
}

extern "C" fn ignore(_signal: i32) {}

fn interrupted(lab: &Lab) -> Outcome {
    addresses(lab)?;
    Knobs(&lab.a.namespace).set("mapped_wait", LONGEST)?;
    rule(&lab.a, NAMES_NOBODY)?;
    // SAFETY: The handler does nothing. All-zero bytes are a valid sigaction with an empty mask and
    // no flags, so calls are not restarted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(i32) as usize;
        check(libc::sigaction(
            libc::SIGUSR1,
            &action,
            std::ptr::null_mut(),
        ))?;
    }
    let wire = lab.b.packets(ETH_P_EDP)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    let to = internet([10, 0, 0, 99], 810);
    let call = || client.connect_bytes(&to);
    let (_, connected, ()) = asleep(libc::SYS_connect, call, |sleeper| {
        sleeper.signal(libc::SIGUSR1)
    })?;
    refused(connected, libc::EINTR, "connect")?;
    if lab.a.counter("MappedTcpUnknown")? > 0 {
        note("the machine is too slow for the signal to come during the wait");
        return Ok(());
    }
    // The connection attempt of the interrupted call continues.
    client.set_nonblocking(true)?;
    refused(client.connect_bytes(&to), libc::EALREADY, "connect again")?;
    wire.send(&answer(lab, NOBODY, asked(&wire)?))?;
    lab.a.await_counter("EdpInAnswers", 1)?;
    client.poll(libc::POLLOUT, Duration::ZERO)?;
    counted(lab, &[("EspActiveOpens", 1), ("MappedWaits", 1)])
}

/// Makes a program's calls, one after the other, on a socket whose connection attempt fails.
/// Returns their results.
fn trace(lab: &Lab, kind: (i32, i32)) -> Result<Vec<String>> {
    let to = internet([10, 0, 0, 99], 811);
    let mut seen = Vec::new();
    let mut see = |what: &str, result: std::io::Result<()>| {
        let errno = result.err().and_then(|error| error.raw_os_error());
        seen.push(format!("{what}: {errno:?}"));
    };
    let port = |socket: &Socket| -> Result<u16> {
        let name = socket.local_name()?;
        Ok(u16::from_be_bytes([name[2], name[3]]))
    };
    let other_on = |port: u16| -> Result<std::io::Result<()>> {
        let other = stream(&lab.a, kind.0, kind.1)?;
        Ok(other.bind_bytes(&internet([0; 4], port)))
    };
    let client = stream(&lab.a, kind.0, kind.1)?;
    client.set_nonblocking(true)?;
    see("connect", client.connect_bytes(&to));
    let first = port(&client)?;
    see(&format!("has a port: {}", first != 0), Ok(()));
    see("again", client.connect_bytes(&to));
    see(&format!("keeps it: {}", port(&client)? == first), Ok(()));
    see("bind", client.bind_bytes(&internet([0; 4], 0)));
    see("listen", client.listen(1));
    see("getpeername", client.peer_name().map(drop));
    see("send", client.send(b"x", libc::MSG_NOSIGNAL).map(drop));
    see("receive", client.receive(&mut [0], 0).map(drop));
    let urgent = client.receive(&mut [0], libc::MSG_OOB);
    see("receive urgent data", urgent.map(drop));
    let events = client.poll(libc::POLLIN | libc::POLLOUT, Duration::ZERO)?;
    let error = client.pending_error()?;
    see(&format!("events {events:#x}, SO_ERROR {error}"), Ok(()));
    see("shutdown", client.shutdown(libc::SHUT_RDWR));
    see("bind another to its port", other_on(first)?);
    let events = client.poll(libc::POLLIN | libc::POLLOUT, Duration::ZERO)?;
    see(&format!("events behind it {events:#x}"), Ok(()));
    see("after shutdown", client.connect_bytes(&to));
    see(&format!("has a port: {}", port(&client)? != 0), Ok(()));
    let second = port(&client)?;
    see("disconnect", client.connect_bytes(&[0; 16]));
    see("bind another to its port", other_on(second)?);
    see("after disconnecting", client.connect_bytes(&to));
    let client = stream(&lab.a, kind.0, kind.1)?;
    client.set_timeout(libc::SO_SNDTIMEO, Duration::from_millis(50))?;
    see("SO_SNDTIMEO", client.connect_bytes(&to));
    let client = stream(&lab.a, kind.0, kind.1)?;
    for way in ["shutdown", "disconnect"] {
        let call = || client.connect_bytes(&to);
        let (_, connected, ()) = asleep(libc::SYS_connect, call, |_| {
            match way {
                "shutdown" => client.shutdown(libc::SHUT_RDWR)?,
                _ => client.connect_bytes(&[0; 16])?,
            }
            Ok(())
        })?;
        see(&format!("connect that meets {way}"), connected);
    }
    Ok(seen)
}

fn ends_alike(lab: &Lab) -> Outcome {
    addresses(lab)?;
    Knobs(&lab.a.namespace).set("mapped_wait", LONGEST)?;
    // No host has this address. A mapped socket waits for 1.5 seconds for the Ethernet address
    // before TCP connects, and TCP's own attempt stays unconnected for 3 seconds.
    (lab.a.namespace).ip(&format!("neigh del 10.0.0.99 dev {DEVICE}\n"))?;
    let plain = trace(lab, PLAIN)?;
    let mapped = trace(lab, MAPPED)?;
    ensure!(plain == mapped, "TCP: {plain:?}, mapped: {mapped:?}");
    ensure!(lab.a.counter("MappedWaits")? >= 5, "nothing has waited");
    Ok(())
}

/// `io_uring` repeats `connect` without blocking, even on a blocking socket, and must then get
/// `EINPROGRESS`. A program's own repeated `connect` on a blocking socket must get `EALREADY`.
fn blocks_later(lab: &Lab) -> Outcome {
    let wire = patient(lab)?;
    let client = attempt(lab, 99, 818)?;
    wire.send(&answer(lab, NOBODY, asked(&wire)?))?;
    lab.a.await_counter("EdpInAnswers", 1)?;
    client.set_nonblocking(false)?;
    client.set_timeout(libc::SO_SNDTIMEO, Duration::from_millis(20))?;
    let to = internet([10, 0, 0, 99], 818);
    refused(client.connect_bytes(&to), libc::EALREADY, "connect again")?;
    counted(lab, &[("EspActiveOpens", 1), ("MappedWaits", 1)])
}

/// The station answers the query, so ESP sends its SYN, which the station does not answer.
fn syn_in_flight(lab: &Lab) -> Outcome {
    let wire = patient(lab)?;
    let client = attempt(lab, 99, 811)?;
    wire.send(&answer(lab, NOBODY, asked(&wire)?))?;
    lab.a.await_counter("EdpInAnswers", 1)?;
    drop(client);
    let plain = trace(lab, PLAIN)?;
    let mapped = trace(lab, MAPPED)?;
    ensure!(plain == mapped, "TCP: {plain:?}, mapped: {mapped:?}");
    ensure!(lab.a.counter("EspActiveOpens")? >= 5, "no SYN was sent");
    Ok(())
}

fn closed(lab: &Lab) -> Outcome {
    let wire = patient(lab)?;
    let clients = (0..20).map(|_| attempt(lab, 99, 812));
    let clients = clients.collect::<Result<Vec<_>>>()?;
    drop(clients);
    module::await_unused()?;
    lab.a.await_no_sockets()?;
    wire.send(&answer(lab, NOBODY, asked(&wire)?))?;
    lab.a.await_counter("EdpInAnswers", 1)?;
    counted(lab, &[("EspActiveOpens", 0)])
}

/// The number of attempts that wait in a namespace is limited. A program that begins to connect and
/// makes no further call must not hold its place for ever.
fn abandoned(lab: &Lab) -> Outcome {
    /// More sockets than may wait at once in a namespace.
    const ATTEMPTS: usize = 1100;
    setrlimit(Resource::RLIMIT_NOFILE, 4096, 4096)?;
    addresses(lab)?;
    // No host has this address, so each connection attempt waits for the Ethernet address, for 1.5
    // seconds.
    let attempts = (0..ATTEMPTS).map(|_| attempt(lab, 77, 816));
    let _left_alone = attempts.collect::<Result<Vec<_>>>()?;
    let before = lab.a.counter("MappedWaits")?;
    eventually("another attempt waits", || {
        let _begun = attempt(lab, 77, 816)?;
        Ok(lab.a.counter("MappedWaits")? > before)
    })
}

fn device_goes(lab: &Lab) -> Outcome {
    addresses(lab)?;
    (lab.a.namespace).ip(&format!("neigh del 10.0.0.99 dev {DEVICE}\n"))?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    let call = || client.connect_bytes(&internet([10, 0, 0, 99], 813));
    let (_, connected, ()) = asleep(libc::SYS_connect, call, |_| {
        (lab.a.namespace).ip(&format!("link del {DEVICE}\n"))
    })?;
    refused(connected, libc::ENETUNREACH, "connect")?;
    drop(client);
    lab.a.await_no_sockets()?;
    module::await_unused()
}

fn no_wait(lab: &Lab) -> Outcome {
    addresses(lab)?;
    Knobs(&lab.a.namespace).set("mapped_wait", 0)?;
    let listener = listener(&lab.b, MAPPED, 814, 4)?;
    let first = dial(&lab.a, MAPPED, 814)?;
    let (server, _) = listener.accept(0)?;
    ensure!(!is_esp(&first) && !is_esp(&server), "ESP carries it");
    lab.a.await_counter("EdpInAnswers", 1)?;
    let second = dial(&lab.a, MAPPED, 814)?;
    accepted_by_esp(&listener, &second)?;
    counted(lab, &[("MappedWaits", 0), ("MappedTcpUnknown", 1)])
}

/// A server that restarts refuses both protocols for a while.
fn refusals(lab: &Lab) -> Outcome {
    known(lab)?;
    for nonblocking in [false, true] {
        let port = 815 + u16::from(nonblocking);
        let connect = || -> Result<Socket> {
            if nonblocking {
                let client = attempt(lab, 2, port)?;
                client.poll(libc::POLLOUT, patience())?;
                client.set_nonblocking(false)?;
                return Ok(client);
            }
            dial(&lab.a, MAPPED, port)
        };
        for _ in 0..3 {
            match connect() {
                Ok(client) => same(client.pending_error()?, libc::ECONNREFUSED, "SO_ERROR")?,
                Err(error) => {
                    let cause = error.downcast::<std::io::Error>()?;
                    same(cause.raw_os_error(), Some(libc::ECONNREFUSED), "connect")?;
                }
            }
        }
        let server = listener(&lab.b, MAPPED, port, 4)?;
        accepted_by_esp(&server, &connect()?)?;
        drop(server);
        // A plain server refuses only ESP, and the client's host remembers the refusal.
        let server = listener(&lab.b, PLAIN, port, 4)?;
        let before = lab.a.counter("EspActiveOpens")?;
        let clients = [connect()?, connect()?];
        ensure!(!clients.iter().any(is_esp));
        for client in &clients {
            exchange(client, &server.accept(0)?.0)?;
        }
        let attempts = lab.a.counter("EspActiveOpens")? - before;
        same(attempts, 1, "attempts of ESP at a plain server")?;
    }
    Ok(())
}

/// A program connects to 200 hosts at once, as a parallel job does when it starts. Packet sockets
/// stand for the hosts.
fn crowd(lab: &Lab) -> Outcome {
    const HOSTS: std::ops::Range<u8> = 20..220;
    let hosts = HOSTS.len() as u32;
    let station = |number: u8| [2, 0, 0, 0, 1, number];
    addresses(lab)?;
    let lines = HOSTS.map(|number| {
        let mac = print_mac(station(number));
        format!("neigh replace 10.0.0.{number} lladdr {mac} dev {DEVICE} nud permanent\n")
    });
    (lab.a.namespace).ip(&lines.collect::<String>())?;
    // A connection to a host that a rule names waits for a second.
    Knobs(&lab.a.namespace).set("mapped_wait", LONGEST)?;
    rule(&lab.a, "allow 10.0.0.0/24 0-65535 0\n")?;
    let wire = lab.b.packets(ETH_P_EDP)?;
    let start = Instant::now();
    let clients = HOSTS.map(|number| attempt(lab, number, 830));
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let asked_all = [
        ("MappedWaits", hosts),
        ("EdpOutQueries", hosts),
        ("MappedTcpUnknown", 0),
    ];
    if start.elapsed() > Duration::from_secs(1) {
        note("the machine is too slow to connect to all of them in a second");
        return Ok(());
    }
    counted(lab, &asked_all)?;
    let mut frame = [0; 256];
    for _ in HOSTS {
        let length = wire.take(&mut frame)?;
        let query = &frame[..length];
        let to = query.first_chunk().context("a short frame")?;
        let nonce = query.get(HEADERS + 1..HEADERS + 5).context("no query")?;
        wire.send(&answer(lab, *to, nonce.try_into()?))?;
    }
    lab.a.await_counter("EdpInAnswers", hosts)?;
    for client in &clients {
        client.poll(libc::POLLOUT, Duration::ZERO)?;
    }
    if start.elapsed() > Duration::from_secs(1) {
        note("the machine is too slow to answer in time");
        return Ok(());
    }
    counted(lab, &[("EspActiveOpens", hosts), ("MappedTcpUnknown", 0)])
}
