// SPDX-License-Identifier: GPL-2.0-only

//! Tests trace events of the system `enet`, and drop reasons of freed buffers.

use sockaddr_en::EspStats;

use guest::netns::finish;
use guest::prelude::*;
use guest::relay::Faults;
use guest::tracer::{last, Event, Tracer};

scenarios! {
    switched tracing_shows_request_and_retransmission_of_a_lost_packet = requests, within(120);
    direct tracing_shows_the_states_of_a_connection_in_order = states;
    direct tracing_shows_drops_with_their_reason = drops;
    direct tracing_shows_resets = resets;
    direct tracing_reports_no_delivered_packet_as_dropped = no_drops;
    guest tracing_does_not_hold_the_module = unload;
    switched tracing_by_trace_cmd_shows_a_request = trace_cmd, within(120);
}

/// The listener's port.
const PORT: u16 = 2805;

/// A load of some 350 packets, so that a bad wire loses enough of them.
const LOAD: Load = Load::of(512 << 10, 1 << 16, 2805);

const LOSSY: Faults = Faults {
    loss: 0.05,
    ..Faults::NONE
};

/// Returns the fields by which events name the two ends of a connection. One end is port `local` of
/// `host`, and the other end is port `remote` of `other`.
fn between(
    host: &Host,
    local: u16,
    other: &Host,
    remote: u16,
) -> Result<[(&'static str, String); 5]> {
    Ok([
        ("netns", host.namespace.number()?.to_string()),
        ("ifindex", host.ifindex.to_string()),
        ("sport", local.to_string()),
        ("dport", remote.to_string()),
        ("peer", print_mac(other.mac)),
    ])
}

/// Returns whether `event` has the name `name`, and is about the connection with these `ends`.
fn is(event: &Event, name: &str, ends: &[(&'static str, String)]) -> bool {
    event.name == name && ends.iter().all(|(key, value)| event.get(key) == value)
}

/// Returns whether a connection's counters agree with its events.
fn agrees(events: &[Event], ends: &[(&'static str, String)], socket: &Socket) -> Result<bool> {
    let told = |name: &str, reasons: &[&str]| {
        events
            .iter()
            .filter(|event| is(event, name, ends))
            .filter(|event| reasons.is_empty() || reasons.contains(&event.get("reason")))
            .count()
    };
    let told = [
        told("esp_retransmit", &[]),
        told("esp_drop", &["duplicate", "out-of-sequence"]),
        told(
            "esp_drop",
            &[
                "receive-buffer",
                "beyond-window",
                "bad-flags",
                "bad-ack",
                "bad-state",
                "backlog",
            ],
        ),
        told("esp_send_request", &[]),
    ];
    let EspStats {
        pkt_rtx,
        pkt_rx_oos,
        pkt_rx_drop,
        arq_tx,
        ..
    } = socket.esp_counters()?;
    Ok(told == [pkt_rtx, pkt_rx_oos, pkt_rx_drop, arq_tx].map(|count| count as usize))
}

/// Returns both ends of a connection that has carried [`LOAD`] over a lossy wire.
fn over_losses(lab: &Lab) -> Result<(Socket, Socket)> {
    let (client, server) = lab.esp_pair(PORT)?;
    lab.relay().set_faults(LOSSY);
    let moved = transfer(&client, &server, LOAD);
    lab.relay().set_faults(Faults::default());
    moved?;
    Ok((client, server))
}

fn requests(lab: &Lab) -> Outcome {
    // Each event reports one buffer. With a single segment in each buffer, the number of events is
    // the number of packets.
    for host in [&lab.a, &lab.b] {
        host.namespace
            .run("ip", &["link", "set", DEVICE, "gso_max_segs", "1"])?;
    }
    let tracer = Tracer::start(&["enet"])?;
    let (client, server) = over_losses(lab)?;
    let port = client.local_address()?.port;
    let here = between(&lab.a, port, &lab.b, PORT)?;
    let there = between(&lab.b, PORT, &lab.a, port)?;
    eventually("events and counters that agree", || {
        let events = tracer.events()?;
        Ok(agrees(&events, &here, &client)? && agrees(&events, &there, &server)?)
    })?;
    ensure!(server.esp_counters()?.arq_tx > 0, "nothing was asked for");
    let events = tracer.events()?;
    let whole = events.iter().enumerate().any(|(at, asked)| {
        let behind = &events[at..];
        let number = asked.get("ack");
        is(asked, "esp_send_request", &there)
            && asked.has(&[("flags", "ACK|RRQ"), ("len", "0")])
            && behind.iter().any(|event| {
                is(event, "esp_receive_request", &here)
                    && event.has(&[("ack", number), ("flags", "ACK|RRQ")])
            })
            && behind.iter().any(|event| {
                is(event, "esp_retransmit", &here)
                    && event.get("seq") == number
                    && event.get("len") != "0"
            })
    });
    ensure!(
        whole,
        "no request was seen that left, came, and was answered: {:?}",
        last(&events)
    );
    Ok(())
}

/// Returns the state changes of the sockets with local port `sport`, each as "old>new".
fn steps(events: &[Event], host: &Host, sport: u16) -> Result<Vec<String>> {
    let mut steps = Vec::new();
    for event in events {
        let ours = event.name == "esp_set_state" && event.get("sport") == sport.to_string();
        if ours && event.is_of(host)? {
            steps.push(format!(
                "{}>{}",
                event.get("oldstate"),
                event.get("newstate")
            ));
        }
    }
    Ok(steps)
}

fn states(lab: &Lab) -> Outcome {
    let tracer = Tracer::start(&["enet/esp_set_state"])?;
    let listener = lab.b.esp_listener(PORT, 4)?;
    let (client, server) = lab.esp_pair_through(&listener, PORT)?;
    drop(listener);
    let port = client.local_address()?.port;
    client.shutdown(libc::SHUT_WR)?;
    ensure!(server.receive(&mut [0], 0)? == 0, "no end of the stream");
    lab.a
        .await_proc("esp", |text| text.contains("fin-wait-2"))?;
    drop(server);
    ensure!(client.receive(&mut [0], 0)? == 0, "no end of the stream");
    lab.b.await_no_sockets()?;
    drop(client);
    lab.a.await_no_sockets()?;
    let events = tracer.events()?;
    let (here, there) = (steps(&events, &lab.a, port)?, steps(&events, &lab.b, PORT)?);
    ensure!(
        here == [
            "closed>syn-sent",
            "syn-sent>established",
            "established>fin-wait-1",
            "fin-wait-1>fin-wait-2",
            "fin-wait-2>closed",
        ],
        "the active side: {here:?}"
    );
    ensure!(
        there
            == [
                "closed>listen",
                "listen>syn-recv",
                "syn-recv>established",
                "listen>closed",
                "established>close-wait",
                "close-wait>last-ack",
                "last-ack>closed",
            ],
        "the passive side: {there:?}"
    );
    // Events identify the socket by its address, and by its inode once it has a descriptor.
    let ends = between(&lab.a, port, &lab.b, PORT)?;
    let ours: Vec<_> = events
        .iter()
        .filter(|event| is(event, "esp_set_state", &ends))
        .collect();
    same(ours.len(), here.len(), "states told with their ends")?;
    ensure!(
        ours.iter()
            .all(|event| event.get("skaddr") == ours[0].get("skaddr")),
        "one socket has several addresses: {ours:?}"
    );
    ensure!(ours[0].get("ino") != "0", "no inode: {:?}", ours[0]);
    Ok(())
}

/// Waits until an event called `name` has these fields.
fn await_event(tracer: &Tracer, host: &Host, name: &str, fields: &[(&str, &str)]) -> Result<()> {
    let mut events = Vec::new();
    eventually(name, || {
        events = tracer.events()?;
        for event in &events {
            if event.name == name && event.has(fields) && event.is_of(host)? {
                return Ok(true);
            }
        }
        Ok(false)
    })
    .with_context(|| format!("{fields:?} is not in {:?}", last(&events)))
}

/// Waits until the core has freed a buffer of `protocol` for `reason`.
fn await_freed(tracer: &Tracer, protocol: u16, reason: &str) -> Result<()> {
    let mut events = Vec::new();
    eventually("a freed buffer", || {
        events = tracer.events()?;
        let protocol = protocol.to_string();
        Ok(events.iter().any(|event| {
            event.name == "kfree_skb" && event.has(&[("protocol", &protocol), ("reason", reason)])
        }))
    })
    .with_context(|| format!("{reason} for {protocol} is not in {:?}", last(&events)))
}

/// Waits until host `b` has reported a drop with these fields, and the core has freed a buffer for
/// `reason`.
fn await_drop(
    lab: &Lab,
    tracer: &Tracer,
    (event, protocol): (&str, u16),
    fields: &[(&str, &str)],
    reason: &str,
) -> Outcome {
    await_event(tracer, &lab.b, event, fields)?;
    await_freed(tracer, protocol, reason)
}

/// The events that report drops. Each is listed with the ethertype of the buffers that the core
/// frees at such a drop.
const EDP_DROP: (&str, u16) = ("edp_drop", ETH_P_EDP);
const ESP_DROP: (&str, u16) = ("esp_drop", ETH_P_ESP);

/// Sends a datagram to a port without a socket, and 20 to a socket that does not read. Returns the
/// socket that does not read.
fn dropped_datagrams(lab: &Lab, tracer: &Tracer) -> Result<Socket> {
    let sender = lab.a.edp_bound(95)?;
    sender.send_to(b"anybody?", 0, &lab.a.to(&lab.b, 96))?;
    let told = [
        ("sport", "96"),
        ("dport", "95"),
        ("peer", &print_mac(lab.a.mac)),
        ("len", "8"),
        ("reason", "no-socket"),
    ];
    await_drop(lab, tracer, EDP_DROP, &told, "NO_SOCKET")?;
    let receiver = lab.b.edp_bound(97)?;
    receiver.set_so(libc::SO_RCVBUF, 4096)?;
    for _ in 0..20 {
        sender.send_to(&[0; 1000], 0, &lab.a.to(&lab.b, 97))?;
    }
    let told = [
        ("sport", "97"),
        ("len", "1000"),
        ("reason", "receive-buffer"),
    ];
    await_drop(lab, tracer, EDP_DROP, &told, "SOCKET_RCVBUFF")?;
    Ok(receiver)
}

/// Sends three packets. One is shorter than a header, one is shorter than its length field says,
/// and one goes to a group address.
fn dropped_packets(lab: &Lab, tracer: &Tracer) -> Outcome {
    let wire = lab.a.packets(ETH_P_ESP)?;
    let lie = EspHeader {
        length: 1000,
        ..EspHeader::new(7, 98, flag::ACK)
    };
    for packet in [&[0u8; 3][..], &lie.packet(&[])] {
        wire.send(&ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, packet))?;
    }
    for (port, length) in [("0", "0"), ("98", "1000")] {
        let told = [("sport", port), ("len", length), ("reason", "malformed")];
        await_drop(lab, tracer, ESP_DROP, &told, "PKT_TOO_SMALL")?;
    }
    wire.send_esp([0xff; 6], lab.a.mac, lie)?;
    let told = [("sport", "98"), ("dport", "7"), ("reason", "not-ours")];
    await_drop(lab, tracer, ESP_DROP, &told, "OTHERHOST")
}

fn drops(lab: &Lab) -> Outcome {
    let tracer = Tracer::start(&["enet", "skb/kfree_skb"])?;
    let receiver = dropped_datagrams(lab, &tracer)?;
    dropped_packets(lab, &tracer)?;
    // The module's own counters must agree with the recorded events.
    lab.b.await_counter("EdpInNoSocket", 1)?;
    lab.b.await_counter("EspInMalformed", 2)?;
    lab.b.await_counter("EspInNotOurs", 1)?;
    eventually("as many drops told as counted", || {
        let events = tracer.events()?;
        let told = events
            .iter()
            .filter(|event| event.name == "edp_drop" && event.get("reason") == "receive-buffer");
        let stats = receiver.edp_counters()?;
        let dropped = stats.pkt_rx_drop;
        Ok(stats.pkt_rx + dropped == 20 && told.count() == dropped as usize)
    })
}

fn resets(lab: &Lab) -> Outcome {
    let tracer = Tracer::start(&["enet"])?;
    let client = lab.a.esp()?;
    // The events are found by the client's port. A refusal releases an autobound port, which would
    // then be unknown, so bind the port explicitly.
    let port = PORT + 1;
    client.bind(&lab.a.here(port))?;
    refused(
        client.connect(&lab.a.to(&lab.b, PORT)),
        libc::ECONNREFUSED,
        "connecting where nobody listens",
    )?;
    let here = between(&lab.a, port, &lab.b, PORT)?;
    let there = between(&lab.b, PORT, &lab.a, port)?;
    let events = tracer.events()?;
    let find = |name: &str, ends: &[(&'static str, String)]| {
        events
            .iter()
            .find(|event| is(event, name, ends))
            .with_context(|| format!("no {name} among {:?}", last(&events)))
    };
    ensure!(
        find("esp_drop", &there)?.has(&[("flags", "SYN"), ("reason", "no-socket")]),
        "the SYN was not dropped for want of a socket"
    );
    let sent = find("esp_send_reset", &there)?;
    ensure!(
        sent.get("flags").contains("RST") && sent.get("ino") == "0",
        "a reset of no socket: {sent:?}"
    );
    let came = find("esp_receive_reset", &here)?;
    ensure!(
        came.get("seq") == sent.get("seq") && came.get("ino") != "0",
        "a reset came as {came:?} that left as {sent:?}"
    );
    // Trace a connection that is closed with unread bytes.
    let (client, server) = lab.esp_pair(PORT)?;
    let port = client.local_address()?.port;
    server.send_all(b"nobody reads this")?;
    await_events(&client, libc::POLLIN)?;
    drop(client);
    let there = between(&lab.b, PORT, &lab.a, port)?;
    let told: Vec<_> = there
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    await_event(&tracer, &lab.b, "esp_receive_reset", &told)
}

/// On a good wire, the core frees one buffer as dropped for each drop that the module reports. On a
/// slow machine there may be some drops, because timers are too short there and processors reorder
/// packets.
fn no_drops(lab: &Lab) -> Outcome {
    let tracer = Tracer::start(&["enet/esp_drop", "enet/edp_drop", "skb/kfree_skb"])?;
    let (client, server) = lab.esp_pair(PORT)?;
    exchange(&client, &server)?;
    transfer(&client, &server, LOAD)?;
    drop(server);
    ensure!(client.receive(&mut [0], 0)? == 0, "no end of the stream");
    drop(client);
    let (a, b) = lab.edp_pair(PORT)?;
    for _ in 0..10 {
        a.send(b"datagram", 0)?;
        b.receive(&mut [0; 8], 0)?;
    }
    drop((a, b));
    lab.await_no_sockets()?;
    let protocols = [ETH_P_EDP.to_string(), ETH_P_ESP.to_string()];
    let (mut told, mut freed) = (Vec::new(), Vec::new());
    for event in tracer.events()? {
        if event.name != "kfree_skb" {
            told.push(event);
        } else if protocols.iter().any(|p| event.get("protocol") == p) {
            freed.push(event);
        }
    }
    ensure!(
        freed.len() == told.len(),
        "told as dropped: {:?}; freed as dropped: {:?}",
        last(&told),
        last(&freed)
    );
    Ok(())
}

/// The module can be unloaded while its events are recorded. The events exist again once the module
/// is loaded.
fn unload() -> Outcome {
    let tracer = Tracer::start(&["enet"])?;
    ensure!(tracer.records("enet/esp_drop"), "it does not record");
    module::reload()?;
    ensure!(
        !tracer.records("enet/esp_drop"),
        "a new module's events are recorded though nobody asked"
    );
    drop(tracer);
    let tracer = Tracer::start(&["enet"])?;
    ensure!(tracer.records("enet/esp_drop"), "it does not record again");
    drop(tracer);
    module::reload()
}

/// trace-cmd parses the events by their descriptions.
fn trace_cmd(lab: &Lab) -> Outcome {
    const INSTANCE: &str = "by-trace-cmd";
    const FILE: &str = "/tmp/requests.dat";
    let run = |arguments: &[&str]| finish(Command::new("trace-cmd").args(arguments), "");
    run(&["start", "-B", INSTANCE, "-e", "enet"])?;
    let (client, _server) = over_losses(lab)?;
    let port = client.local_address()?.port;
    run(&["stop", "-B", INSTANCE])?;
    run(&["extract", "-B", INSTANCE, "-o", FILE])?;
    let report = run(&["report", "-i", FILE])?;
    run(&["reset", "-B", INSTANCE, "-d"])?;
    fs::remove_file(FILE)?;
    let there = between(&lab.b, PORT, &lab.a, port)?;
    let request = report
        .lines()
        .filter_map(Event::parse)
        .find(|event| is(event, "esp_send_request", &there))
        .with_context(|| format!("no request in {} lines", report.lines().count()))?;
    ensure!(
        request.get("flags") == "ACK|RRQ",
        "trace-cmd prints {request:?}"
    );
    Ok(())
}
