// SPDX-License-Identifier: GPL-2.0-only

//! Tests mapped sockets (`IPPROTO_ENET`) whose connections ESP carries, and the fallbacks to TCP.
//! `tests/parity` compares their calls with TCP's.

use guest::address::{internet, internet6, IPPROTO_ENET};
use guest::mapped::{
    addresses, answer_to, dial, far6, is_esp, known, listener, option, stream, MAPPED, PLAIN,
};
use guest::prelude::*;

scenarios! {
    direct mapped_client_and_server_talk_esp = both_mapped;
    direct mapped_connections_have_the_names_of_tcp = names;
    direct mapped_client_of_a_plain_server_goes_to_tcp = plain_server;
    direct mapped_client_of_an_unwilling_host_goes_to_tcp = unwilling;
    direct mapped_client_that_is_not_answered_goes_to_tcp = silent;
    direct mapped_listener_accepts_from_both = accepts_from_both;
    direct mapped_accept_that_sleeps_takes_either = accept_sleeps;
    direct mapped_connect_without_waiting = without_waiting;
    direct mapped_syn_of_a_stranger_is_refused = stranger;
    direct mapped_and_own_ports_are_apart = ports_apart;
    direct mapped_socket_used_again_after_esp = used_again;
    direct mapped_listener_that_stops_takes_no_esp = stopped_listener;
    direct mapped_connections_fill_tcp_info = fill_tcp_info;
    direct mapped_connection_keeps_to_its_pacing_rate = pacing;
}

fn carried_by_esp(ends: [&Socket; 2]) -> Outcome {
    for end in ends {
        ensure!(is_esp(end), "an end is TCP's");
    }
    exchange(ends[0], ends[1])
}

fn carried_by_tcp(ends: [&Socket; 2]) -> Outcome {
    for end in ends {
        ensure!(!is_esp(end), "an end is ESP's");
    }
    exchange(ends[0], ends[1])
}

fn both_mapped(lab: &Lab) -> Outcome {
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 930, 4)?;
    for round in 1..=3 {
        let client = dial(&lab.a, MAPPED, 930)?;
        let (server, _) = listener.accept(0)?;
        carried_by_esp([&client, &server])?;
        ensure!(lab.a.counter("MappedActiveOpens")? == round);
        ensure!(lab.b.counter("MappedPassiveOpens")? == round);
        refused(module::try_unload(), libc::EWOULDBLOCK, "delete_module")?;
        let tcp = lab
            .a
            .namespace
            .run("ss", &["-tanH", "state", "established"])?;
        ensure!(tcp.is_empty(), "TCP has connections: {tcp}");
    }
    drop(listener);
    module::await_unused()
}

/// `TCP_INFO` has the fields that monitors read, as with TCP: state, packet size and round trip
/// time.
fn fill_tcp_info(lab: &Lab) -> Outcome {
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 929, 4)?;
    let client = dial(&lab.a, MAPPED, 929)?;
    let (server, _) = listener.accept(0)?;
    carried_by_esp([&client, &server])?;
    for end in [&client, &server] {
        let info = end.option(libc::IPPROTO_TCP, libc::TCP_INFO, 512, 512)?;
        let word = |at: usize| {
            info.get(at..)?
                .first_chunk()
                .copied()
                .map(u32::from_ne_bytes)
        };
        // The offsets in struct tcp_info (linux/tcp.h) of tcpi_snd_mss, tcpi_pmtu, tcpi_rtt,
        // tcpi_segs_out and tcpi_segs_in.
        let words = [16, 60, 68, 136, 140].map(word);
        ensure!(info.first() == Some(&1), "not TCP_ESTABLISHED: {info:?}");
        ensure!(words[..2] == [Some(1489), Some(1500)], "sizes of {words:?}");
        ensure!(words[2..].iter().all(|word| *word > Some(0)), "{words:?}");
    }
    // A buffer that is too short gets the start of the structure.
    let start = client.option(libc::IPPROTO_TCP, libc::TCP_INFO, 512, 1)?;
    ensure!(start == [1], "{start:?}");
    Ok(())
}

fn names(lab: &Lab) -> Outcome {
    known(lab)?;
    let six = (libc::AF_INET6, IPPROTO_ENET);
    let mut v4 = [0; 16];
    v4[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 0]);
    let mapped = |number, port| {
        let mut address = v4;
        address[15] = number;
        internet6(address, port)
    };
    for (listens, connects, port) in [(MAPPED, MAPPED, 931), (six, MAPPED, 932), (six, six, 933)] {
        let listener = listener(&lab.b, listens, port, 1)?;
        let client = stream(&lab.a, connects.0, connects.1)?;
        client.connect_bytes(&match connects.0 {
            libc::AF_INET6 => mapped(2, port),
            _ => internet([10, 0, 0, 2], port),
        })?;
        let (server, from) = listener.accept(0)?;
        carried_by_esp([&client, &server])?;
        let own = client.local_name()?;
        let chosen = u16::from_be_bytes([own[2], own[3]]);
        ensure!(chosen != 0, "no port");
        let name = |family, number, port| match family {
            libc::AF_INET6 => mapped(number, port),
            _ => internet([10, 0, 0, number], port),
        };
        ensure!(own == name(connects.0, 1, chosen), "own name {own:?}");
        ensure!(client.peer_name()? == name(connects.0, 2, port));
        ensure!(server.local_name()? == name(listens.0, 2, port));
        ensure!(server.peer_name()? == name(listens.0, 1, chosen));
        ensure!(from == name(listens.0, 1, chosen), "accept: {from:?}");
        for (socket, family) in [(&client, connects.0), (&server, listens.0)] {
            let domain = socket.so(libc::SO_DOMAIN)?;
            let protocol = socket.so(libc::SO_PROTOCOL)?;
            ensure!((domain, protocol) == (family, libc::IPPROTO_TCP));
        }
    }
    // The server sees the port that the program has chosen.
    let listener = listener(&lab.b, MAPPED, 934, 1)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.bind_bytes(&internet([10, 0, 0, 1], 4711))?;
    client.connect_bytes(&internet([10, 0, 0, 2], 934))?;
    let (server, from) = listener.accept(0)?;
    ensure!(from == internet([10, 0, 0, 1], 4711), "accept: {from:?}");
    ensure!(client.local_name()? == from);
    carried_by_esp([&client, &server])
}

fn plain_server(lab: &Lab) -> Outcome {
    known(lab)?;
    let listener = listener(&lab.b, PLAIN, 935, 4)?;
    for round in 1..=3 {
        let client = dial(&lab.a, MAPPED, 935)?;
        let (server, _) = listener.accept(0)?;
        carried_by_tcp([&client, &server])?;
        ensure!(lab.a.counter("MappedTcpRefused")? == round);
    }
    // The client's host remembers the refusal, so ESP makes only one attempt.
    ensure!(lab.a.counter("EspActiveOpens")? == 1);
    Ok(())
}

fn unwilling(lab: &Lab) -> Outcome {
    addresses(lab)?;
    Knobs(&lab.b.namespace).set("mapped", 0)?;
    let listener = listener(&lab.b, MAPPED, 936, 4)?;
    let first = dial(&lab.a, MAPPED, 936)?;
    let (server, _) = listener.accept(0)?;
    carried_by_tcp([&first, &server])?;
    let second = dial(&lab.a, MAPPED, 936)?;
    let (server, _) = listener.accept(0)?;
    carried_by_tcp([&second, &server])?;
    ensure!(lab.a.counter("EdpInAnswers")? == 1);
    ensure!(lab.a.counter("MappedTcpPeer")? == 2);
    ensure!(lab.a.counter("EspActiveOpens")? == 0);
    Ok(())
}

fn silent(lab: &Lab) -> Outcome {
    known(lab)?;
    // ESP drops SYNs while its accept queue is full; TCP's own accept queue has room.
    let listener = listener(&lab.b, MAPPED, 937, 0)?;
    let first = dial(&lab.a, MAPPED, 937)?;
    let second = dial(&lab.a, MAPPED, 937)?;
    ensure!(is_esp(&first) && !is_esp(&second));
    ensure!(lab.a.counter("MappedTcpSilent")? == 1);
    let servers = [listener.accept(0)?.0, listener.accept(0)?.0];
    let (by_esp, by_tcp) = match is_esp(&servers[0]) {
        true => (&servers[0], &servers[1]),
        false => (&servers[1], &servers[0]),
    };
    carried_by_esp([&first, by_esp])?;
    carried_by_tcp([&second, by_tcp])?;
    // Host b did not answer the second SYN. For all that host a knows, host b may have unloaded the
    // module. So host a sends it a second query before the next attempt.
    lab.a.await_counter("EdpInAnswers", 1)?;
    let third = dial(&lab.a, MAPPED, 938);
    ensure!(third.is_err(), "nobody listens there");
    lab.a.await_counter("EdpInAnswers", 2)
}

fn accepts_from_both(lab: &Lab) -> Outcome {
    known(lab)?;
    for kind in [MAPPED, (libc::AF_INET6, IPPROTO_ENET)] {
        let port = 940 + kind.0 as u16;
        let listener = listener(&lab.b, kind, port, 16)?;
        let clients: Vec<Socket> = [MAPPED, PLAIN, PLAIN, MAPPED, MAPPED, PLAIN]
            .iter()
            .map(|kind| dial(&lab.a, *kind, port))
            .collect::<Result<_>>()?;
        listener.poll(libc::POLLIN, patience())?;
        for _ in &clients {
            let (server, from) = listener.accept(0)?;
            let client = clients
                .iter()
                .find(|client| client.local_name().is_ok_and(|own| own[2..4] == from[2..4]));
            let client = client.context("a client that nobody is")?;
            ensure!(is_esp(client) == is_esp(&server));
            exchange(client, &server)?;
        }
        listener.set_nonblocking(true)?;
        refused(listener.accept(0).map(drop), libc::EAGAIN, "accept")?;
    }
    Ok(())
}

fn accept_sleeps(lab: &Lab) -> Outcome {
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 943, 4)?;
    for kind in [MAPPED, PLAIN, PLAIN, MAPPED] {
        thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.accept(0));
            // `accept` usually sleeps by the end of this pause; otherwise the round proves less.
            thread::sleep(Duration::from_millis(50));
            let client = dial(&lab.a, kind, 943)?;
            let accepted = accepting.join().map_err(|_| anyhow!("accept panicked"))?;
            let (server, _) = accepted?;
            ensure!(is_esp(&client) == (kind == MAPPED));
            exchange(&client, &server)
        })?;
    }
    Ok(())
}

/// Connects a non-blocking socket, waits by `poll` until it is connected, and returns it.
fn start_and_poll(lab: &Lab, port: u16) -> Result<Socket> {
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.set_nonblocking(true)?;
    let to = internet([10, 0, 0, 2], port);
    refused(client.connect_bytes(&to), libc::EINPROGRESS, "connect")?;
    let ready = client.poll(libc::POLLOUT, patience())?;
    ensure!(ready == libc::POLLOUT, "poll: {ready:#x}");
    ensure!(client.pending_error()? == 0);
    client.set_nonblocking(false)?;
    Ok(client)
}

fn without_waiting(lab: &Lab) -> Outcome {
    known(lab)?;
    for (kind, port) in [(MAPPED, 945), (PLAIN, 946)] {
        let listener = listener(&lab.b, kind, port, 4)?;
        let client = start_and_poll(lab, port)?;
        let (server, _) = listener.accept(0)?;
        match kind {
            MAPPED => carried_by_esp([&client, &server])?,
            _ => carried_by_tcp([&client, &server])?,
        }
    }
    // Without a listener, TCP's attempt fails, and the program gets TCP's error.
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    client.set_nonblocking(true)?;
    let to = internet([10, 0, 0, 2], 947);
    refused(client.connect_bytes(&to), libc::EINPROGRESS, "connect")?;
    let ready = client.poll(libc::POLLOUT, patience())?;
    ensure!(ready & libc::POLLERR != 0, "poll: {ready:#x}");
    ensure!(client.pending_error()? == libc::ECONNREFUSED);
    Ok(())
}

fn stranger(lab: &Lab) -> Outcome {
    known(lab)?;
    let _listener = listener(&lab.b, MAPPED, 950, 4)?;
    let (own, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let right = option(own, far, 950);
    ensure!(answer_to(lab, &right, 3000, 950)? & flag::SYN != 0);
    let wrong = [
        // Wrong clients: another host's address, the server's own, an unreachable one, and none.
        // Then wrong servers: another host's address, and another port. Then an option that is cut
        // off, and no option.
        option([10, 0, 0, 99], far, 950),
        option(far, far, 950),
        option([10, 9, 9, 9], far, 950),
        option([0; 4], far, 950),
        option(own, [10, 0, 0, 99], 950),
        option(own, far, 951),
        right[..37].to_vec(),
        Vec::new(),
    ];
    for (index, options) in wrong.iter().enumerate() {
        let flags = answer_to(lab, options, 3001 + index as u16, 950)?;
        ensure!(
            flags & flag::RST != 0,
            "SYN {index} was answered: {flags:#x}"
        );
    }
    ensure!(lab.b.counter("MappedInForeign")? == 5);
    // A listener on the loopback address cannot be reached from outside.
    let inside = stream(&lab.b, MAPPED.0, MAPPED.1)?;
    inside.bind_bytes(&internet([127, 0, 0, 1], 952))?;
    inside.listen(4)?;
    let options = option(own, [127, 0, 0, 1], 952);
    ensure!(answer_to(lab, &options, 3100, 952)? & flag::RST != 0);
    // A listener that is bound to another device cannot be reached either.
    let elsewhere = stream(&lab.b, MAPPED.0, MAPPED.1)?;
    elsewhere.set_option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo\0")?;
    elsewhere.bind_bytes(&internet([0; 4], 953))?;
    elsewhere.listen(4)?;
    ensure!(answer_to(lab, &option(own, far, 953), 3101, 953)? & flag::RST != 0);
    Ok(())
}

fn ports_apart(lab: &Lab) -> Outcome {
    known(lab)?;
    // An ESP listener on the same port number gets no connection that is meant for TCP's port.
    let own = lab.b.esp_listener(960, 4)?;
    let client = dial(&lab.a, MAPPED, 960);
    ensure!(client.is_err(), "a mapped client reached an ESP listener");
    let listener = listener(&lab.b, MAPPED, 960, 4)?;
    let by_esp = lab.a.esp()?;
    by_esp.connect(&Address {
        port: 960,
        ..lab.a.to(&lab.b, 960)
    })?;
    let (server, _) = own.accept(0)?;
    exchange(&by_esp, &server)?;
    listener.set_nonblocking(true)?;
    refused(listener.accept(0).map(drop), libc::EAGAIN, "accept")
}

fn used_again(lab: &Lab) -> Outcome {
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 965, 4)?;
    let plain = self::listener(&lab.b, PLAIN, 966, 4)?;
    let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
    for round in 0..3 {
        client.connect_bytes(&internet([10, 0, 0, 2], 965))?;
        let (server, _) = listener.accept(0)?;
        carried_by_esp([&client, &server]).with_context(|| format!("round {round}"))?;
        client.connect_bytes(&[0; 16])?;
        client.connect_bytes(&internet([10, 0, 0, 2], 966))?;
        let (server, _) = plain.accept(0)?;
        carried_by_tcp([&client, &server]).with_context(|| format!("round {round}"))?;
        client.connect_bytes(&[0; 16])?;
    }
    Ok(())
}

fn stopped_listener(lab: &Lab) -> Outcome {
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 970, 4)?;
    let waiting = dial(&lab.a, MAPPED, 970)?;
    ensure!(is_esp(&waiting));
    listener.shutdown(libc::SHUT_RD)?;
    let mut byte = [0];
    refused(waiting.receive(&mut byte, 0), libc::ECONNRESET, "receive")?;
    ensure!(dial(&lab.a, MAPPED, 970).is_err(), "it still listens");
    listener.listen(4)?;
    let client = dial(&lab.a, PLAIN, 970)?;
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)?;
    // The listener has no IPv6 address, so an IPv6 client cannot connect.
    let six = stream(&lab.a, libc::AF_INET6, IPPROTO_ENET)?;
    ensure!(six.connect_bytes(&internet6(far6(2), 970)).is_err());
    Ok(())
}

/// The queueing discipline `fq` reads `SO_MAX_PACING_RATE` from a frame's socket. That socket is
/// the companion (ESP's socket behind the mapped one), but the program sets the option on the
/// mapped socket.
fn pacing(lab: &Lab) -> Outcome {
    const RATE: i32 = 500_000;
    const BYTES: usize = 400_000;
    const NONE: i32 = -1;
    // At this rate the bytes would take 800 ms. But `fq` lets a new flow send some of the bytes at
    // once, so the transfer takes less time.
    const PACED: Duration = Duration::from_millis(600);
    known(lab)?;
    let listener = listener(&lab.b, MAPPED, 928, 4)?;
    lab.a.queue("add", &["fq"])?;
    // Returns the time of a transfer. The limits `before` and `after` are set before and after the
    // client connects.
    let took = |before: Option<i32>, after: Option<i32>| -> Result<Duration> {
        let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
        let limit = |rate: Option<i32>| {
            rate.map_or(Ok(()), |rate| client.set_so(libc::SO_MAX_PACING_RATE, rate))
        };
        limit(before)?;
        client.connect_bytes(&internet([10, 0, 0, 2], 928))?;
        let (server, _) = listener.accept(0)?;
        ensure!(is_esp(&client) && is_esp(&server));
        limit(after)?;
        let start = Instant::now();
        transfer(&client, &server, Load::of(BYTES, 40_000, 928))?;
        let took = start.elapsed();
        note(&format!("limits {before:?}, {after:?}: {took:?}"));
        Ok(took)
    };
    for (before, after) in [(Some(RATE), None), (None, Some(RATE))] {
        let took = took(before, after)?;
        ensure!(took >= PACED, "limits {before:?}, {after:?}: {took:?}");
    }
    let held = held_back(&lab.a)?;
    ensure!(held > 0, "the queueing discipline counts nothing");
    // On a busy machine, a transfer without a limit may take as long as one with a limit. So check
    // that `fq` has held nothing back. The old `fq` may still hold retransmitted packets of the
    // connections above, so a new one replaces it.
    lab.a.queue("del", &[])?;
    lab.a.queue("add", &["fq"])?;
    took(Some(RATE), Some(NONE))?;
    let held = held_back(&lab.a)?;
    ensure!(held == 0, "held back {held} times without a limit, too");
    Ok(())
}

/// Returns the number of times that `fq` has throttled a flow.
fn held_back(host: &Host) -> Result<u64> {
    let show = ["-statistics", "qdisc", "show", "dev", DEVICE];
    let text = host.namespace.run("tc", &show)?;
    // The text has two numbers named "throttled". The one before "highprio" is the number of flows
    // that are throttled at present, and the one after it is the counter.
    let (_, counters) = text.split_once("highprio").context(text.clone())?;
    let mut words = counters
        .split_whitespace()
        .skip_while(|word| *word != "throttled");
    Ok(words.nth(1).context("a number")?.parse()?)
}
