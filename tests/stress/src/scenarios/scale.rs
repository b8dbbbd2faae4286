// SPDX-License-Identifier: GPL-2.0-only

//! Tests many connections at once, many one after the other, and exhausted ports. Where possible,
//! the results are compared with TCP's.

use std::collections::{BTreeMap, BTreeSet};

use guest::crowd::{churn, port_rests, Crowd, Protocol, BOTH};
use guest::patience::factor;
use guest::prelude::*;

scenarios! {
    direct scale_ports_run_out_as_tcps_and_udps_do = ports_run_out, within(290);
    direct scale_a_clients_port_serves_many_destinations = one_port_for_many, within(120);
    direct scale_clients_ports_cannot_be_foretold = unforeseen;
    direct scale_a_closed_connections_port_is_free_again = port_is_free, needs_icount;
    direct scale_1000_connections_per_second = churning, within(120), needs_icount;
    direct scale_a_round_trip_costs_the_same_among_2000 = cost, within(120), needs_icount;
    guest scale_10000_connections_at_once = crowd, within(290);
}

const PORT: u16 = 2850;

/// Returns the number of lines of `/proc/net/esp` with the state `established`.
fn established(host: &Host) -> Result<usize> {
    let text = host.namespace.proc_net("esp")?;
    Ok(text
        .lines()
        .filter(|line| line.contains(" established "))
        .count())
}

/// Opens 10,000 connections, or fewer in a slow kernel. The ends of an idle connection probe each
/// other every half minute, and a slow kernel cannot answer the 700 probes per second of 10,000
/// connections.
fn crowd() -> Outcome {
    let count = 10_000 / factor() as usize;
    note(&format!("{count} connections"));
    let lab = Lab::new(Wiring::Direct)?;
    let crowd =
        Crowd::open(&lab, Protocol::Esp, PORT, count).inspect_err(|_| lab.note_counters())?;
    for host in [&lab.a, &lab.b] {
        let found = established(host)?;
        ensure!(found == count, "{found} of {count} are listed");
    }
    // The oldest and the newest connections still carry bytes, and each connection carries its own
    // bytes.
    for number in [0, 1, count / 2, count - 1] {
        let (client, server) = &crowd.pairs[number];
        let bytes = (number as u32).to_ne_bytes();
        client.send_all(&bytes)?;
        comes_next(server, &bytes)?;
    }
    drop(crowd);
    lab.await_no_sockets()?;
    drop(lab);
    module::reload()
}

fn churning(lab: &Lab) -> Outcome {
    const RATE: u32 = 1000;
    let ended = churn(lab, Protocol::Esp, PORT, RATE, 5 * RATE)?;
    note(&format!("{ended:?}"));
    same(ended.made, 5 * RATE, &format!("{ended:?}"))?;
    ensure!(
        ended.took < Duration::from_millis(5100),
        "the rate was not kept: {ended:?}"
    );
    Ok(())
}

/// Compares the cost of a message on one connection with the cost among 2,000 connections. The
/// chains of a hash table must not grow with the connections: in 64 buckets, the 4,000 sockets
/// would make chains of 60.
fn cost(lab: &Lab) -> Outcome {
    let mut crowd = Crowd::open(lab, Protocol::Esp, PORT, 1)?;
    let one = crowd.half_round_trip(1, 500)?;
    crowd.grow(lab, Protocol::Esp, PORT, 2000)?;
    let among = crowd.half_round_trip(100, 20)?;
    note(&format!("{one} alone, {among} among 2000"));
    ensure!(
        among < one * 1.1,
        "half a round trip costs {one:.0} instructions on one connection and {among:.0} among 2000"
    );
    Ok(())
}

fn port_is_free(lab: &Lab) -> Outcome {
    // Both ends have closed, and ESP has no TIME_WAIT, so the port is free at once.
    let rested = port_rests(lab, Protocol::Esp, PORT, true, Duration::from_secs(1))?;
    let rested = rested.context("the port was still taken after a second")?;
    note(&format!("free after {rested:?}"));
    // If the peer never closes, the port stays taken for some seconds. With TCP the port would stay
    // taken for a minute.
    let rested = port_rests(lab, Protocol::Esp, PORT + 1, false, Duration::from_secs(60))?;
    let rested = rested.context("the port was still taken after a minute")?;
    note(&format!(
        "free after {rested:?} beside a peer that does not close"
    ));
    Ok(())
}

/// Binds sockets to port 0 until that fails. Returns the sockets, their ports, and the errno.
fn take_all(
    make: impl Fn() -> Result<Socket>,
    any: &[u8],
) -> Result<(Vec<Socket>, BTreeSet<u16>, i32)> {
    let (mut sockets, mut ports) = (Vec::new(), BTreeSet::new());
    loop {
        let socket = make()?;
        if let Err(error) = socket.bind_bytes(any) {
            let errno = error.raw_os_error().context("an error without an errno")?;
            return Ok((sockets, ports, errno));
        }
        let port = Protocol::Esp.port_of(&socket)?;
        ensure!(
            port != 0 && ports.insert(port),
            "port {port} was given twice"
        );
        sockets.push(socket);
    }
}

/// Checks the errors of calls when no port is free. The sockets are of either protocol; `there` is
/// a listener's address.
fn without_ports(make: &impl Fn() -> Result<Socket>, stream: bool, there: &[u8]) -> Outcome {
    if stream {
        refused(make()?.connect_bytes(there), libc::EADDRNOTAVAIL, "connect")?;
        let nonblocking = make()?;
        nonblocking.set_nonblocking(true)?;
        let connected = nonblocking.connect_bytes(there);
        refused(connected, libc::EADDRNOTAVAIL, "connect without waiting")?;
        refused(make()?.listen(1), libc::EADDRINUSE, "listen")
    } else {
        refused(make()?.send_to_bytes(b"x", 0, there), libc::EAGAIN, "send")?;
        refused(make()?.connect_bytes(there), libc::EAGAIN, "connect")
    }
}

/// Takes every port that the kernel chooses, and releases one. The kernel must choose the released
/// port next.
fn run_out(
    make: &impl Fn() -> Result<Socket>,
    stream: bool,
    any: &[u8],
    there: &[u8],
) -> Result<BTreeSet<u16>> {
    let (mut sockets, ports, errno) = take_all(make, any)?;
    ensure!(errno == libc::EADDRINUSE, "bind: errno {errno}");
    without_ports(make, stream, there)?;
    let given_back = sockets.swap_remove(sockets.len() / 2);
    let port = Protocol::Esp.port_of(&given_back)?;
    drop(given_back);
    let again = make()?;
    again.bind_bytes(any).context("bind with one port free")?;
    let got = Protocol::Esp.port_of(&again)?;
    ensure!(got == port, "{port} was free, {got} was given");
    refused(make()?.bind_bytes(any), libc::EADDRINUSE, "bind again")?;
    drop(again);
    let client = make()?;
    client
        .connect_bytes(there)
        .context("connect with one port free")?;
    let got = Protocol::Esp.port_of(&client)?;
    ensure!(got == port, "{port} was free, {got} was taken to connect");
    Ok(ports)
}

fn ports_run_out(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    // IP's range of autobound ports can be narrowed; the range of EDP and ESP is fixed.
    lab.a
        .namespace
        .within(|| std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40199"))??;
    for protocol in BOTH {
        let _listener = protocol.listener(lab, PORT)?;
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            let family = match protocol {
                Protocol::Esp => AF_ENET,
                Protocol::Tcp => libc::AF_INET,
            };
            let make = || Socket::new(family, kind, 0).context("socket");
            let any = protocol.here(0);
            let there = protocol.there(lab, PORT);
            let run_out = || run_out(&make, kind == libc::SOCK_STREAM, &any, &there);
            let ports = lab
                .a
                .namespace
                .within(run_out)?
                .with_context(|| format!("family {family}, type {kind}"))?;
            let expected: BTreeSet<u16> = match protocol {
                Protocol::Esp => (1024..=65535).collect(),
                Protocol::Tcp => (40000..=40199).collect(),
            };
            ensure!(
                ports == expected,
                "family {family}, type {kind}: {} ports, {:?} to {:?}",
                ports.len(),
                ports.first(),
                ports.last()
            );
        }
    }
    // A port below the range can still be bound explicitly.
    let low = lab.a.esp()?;
    low.bind(&Address {
        port: 1023,
        ..Address::default()
    })
    .context("port 1023")
}

/// Connects to 700 destinations, some of which must share a port of the client. In one of ten
/// million runs all ports differ by chance.
fn one_port_for_many(lab: &Lab) -> Outcome {
    const DESTINATIONS: u16 = 700;
    let mut pairs = BTreeMap::<u16, Vec<(Socket, Socket)>>::new();
    for number in 0..DESTINATIONS {
        let port = 10_000 + number;
        let listener = lab.b.esp_listener(port, 1)?;
        let pair = lab.esp_pair_through(&listener, port)?;
        let port = pair.0.local_address()?.port;
        pairs.entry(port).or_default().push(pair);
    }
    pairs.retain(|_, pairs| pairs.len() > 1);
    note(&format!(
        "{} ports serve more than one destination",
        pairs.len()
    ));
    let (port, mut pairs) = pairs
        .pop_first()
        .context("no port serves two destinations")?;
    // Each connection carries its own bytes.
    for (number, (client, server)) in (0u8..).zip(&pairs) {
        client.send_all(&[number])?;
        let mut got = [0];
        server.receive_exact(&mut got)?;
        ensure!(got == [number], "connection {number} got {got:?}");
    }
    let bind = || lab.a.esp()?.bind(&lab.a.anywhere(port)).map_err(Into::into);
    let taken = |what: &str| {
        let socket = lab.a.esp()?;
        refused(socket.bind(&lab.a.anywhere(port)), libc::EADDRINUSE, what)
    };
    taken("a port that two connections have")?;
    pairs.truncate(1);
    // The wait is long enough for the closed connection to end.
    thread::sleep(Duration::from_millis(200));
    taken("a port that one connection has")?;
    pairs.clear();
    eventually("a port that no connection has", || {
        let bound: Result<()> = bind();
        Ok(bound.is_ok())
    })
}

/// The ports that a client uses to one destination must not reveal its ports to other destinations.
fn unforeseen(lab: &Lab) -> Outcome {
    const COUNT: u16 = 64;
    let mut ports = Vec::new();
    for number in 0..COUNT {
        let listener = lab.b.esp_listener(PORT + number, 4)?;
        let (client, _server) = lab.esp_pair_through(&listener, PORT + number)?;
        ports.push(client.local_address()?.port);
    }
    note(&format!("{ports:?}"));
    let near = ports
        .windows(2)
        .filter(|pair| pair[0].abs_diff(pair[1]) < 100)
        .count();
    // If the ports are independent, two successive ports differ by less than 100 once in about
    // eighty cases.
    ensure!(
        near < 8,
        "{near} of {COUNT} ports follow the one before: {ports:?}"
    );
    // After a connection to a destination has ended, its port is not soon used again for that
    // destination.
    let listener = lab.b.esp_listener(PORT, 4)?;
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let (client, _server) = lab.esp_pair_through(&listener, PORT)?;
        let port = client.local_address()?.port;
        ensure!(seen.insert(port), "port {port} came again");
    }
    Ok(())
}
