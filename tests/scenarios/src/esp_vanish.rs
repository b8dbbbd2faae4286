// SPDX-License-Identifier: GPL-2.0-only

//! Tests connections whose peer vanishes, or only seems to vanish.

use guest::address::ESP_SO_USER_TIMEOUT;
use guest::patience::factor;
use guest::prelude::*;
use guest::relay::Mode;

scenarios! {
    switched esp_connect_to_silent_host_times_out = silent_host;
    switched esp_vanished_peer_times_out_every_blocked_call = vanished, within(180);
    guest esp_orphans_do_not_outlive_a_vanished_peer = orphans, within(90);
    switched esp_user_timeout_is_the_users = user_timeout, within(90);
    switched esp_idle_or_paused_peer_does_not_time_out = patient, within(120);
}

fn silent_host(lab: &Lab) -> Outcome {
    let limited = lab.a.esp()?;
    limited.set_timeout(libc::SO_SNDTIMEO, Duration::from_millis(100))?;
    // As with TCP, the call's wait ends, but the connection attempt continues.
    refused(
        limited.connect(&lab.a.to_nobody(1)),
        libc::EINPROGRESS,
        "connect with a time limit",
    )?;
    let background = lab.a.esp_attempt(&lab.a.to_nobody(1))?;

    let blocked = lab.a.esp()?;
    refused(
        blocked.connect(&lab.a.to_nobody(1)),
        libc::ETIMEDOUT,
        "connect to a silent host",
    )?;
    let events = await_events(&background, libc::POLLOUT)?;
    ensure!(events & libc::POLLHUP != 0, "events {events:#x}");
    failed_with(&background, libc::ETIMEDOUT)
}

/// `ESP_SO_USER_TIMEOUT` sets the timeout for a silent peer. Without the option, the namespace's
/// timeout applies.
fn user_timeout(lab: &Lab) -> Outcome {
    let get = |socket: &Socket| socket.int_option(SOL_EP, ESP_SO_USER_TIMEOUT);
    let set = |socket: &Socket, millis| socket.set_int_option(SOL_EP, ESP_SO_USER_TIMEOUT, millis);
    let listener = lab.b.esp_listener(702, 16)?;
    ensure!(get(&listener)? == 0, "set from the beginning");
    for millis in [1, 99, 86_400_001, -1] {
        refused(set(&listener, millis), libc::EINVAL, "a time out of range")?;
    }
    refused(
        listener.set_option(SOL_EP, ESP_SO_USER_TIMEOUT, &[1, 2, 3]),
        libc::EINVAL,
        "three bytes",
    )?;
    set(&listener, 60_000)?;
    let (by_option, patient) = lab.esp_pair_through(&listener, 702)?;
    let inherited = get(&patient)?;
    ensure!(inherited == 60_000, "a child has {inherited}");
    set(&by_option, 1_000)?;
    ensure!(get(&by_option)? == 1_000, "not what was set");
    set(&listener, 0)?;
    let (impatient, by_default) = lab.esp_pair_through(&listener, 702)?;
    // The namespace's value applies to open connections, too.
    Knobs(&lab.b.namespace).set("user_timeout", 1_000)?;
    set(&impatient, 500)?;
    for (a, b) in [(&by_option, &patient), (&impatient, &by_default)] {
        exchange(a, b)?;
    }
    lab.relay().set_mode(Mode::Cut);
    let start = Instant::now();
    let mut byte = [0];
    for socket in [&patient, &by_option, &impatient, &by_default] {
        socket.send(b"nobody hears this", 0)?;
    }
    for (name, socket) in [
        ("the option's second", &by_option),
        ("half a second", &impatient),
        ("the namespace's second", &by_default),
    ] {
        timed_out(name, socket.receive(&mut byte, 0))?;
    }
    let took = start.elapsed();
    // The default timeout, 15 s, would take longer.
    let most = Duration::from_secs(10) * factor();
    ensure!(took < most, "after {took:?}");
    patient.set_nonblocking(true)?;
    refused(patient.receive(&mut byte, 0), libc::EAGAIN, "the patient")?;
    // Close with a reset, so that the connection does not last until its timeout of a minute.
    patient.set_linger(Some(0))?;
    Ok(())
}

/// Checks that `result` is the error `ETIMEDOUT`.
fn timed_out<T: std::fmt::Debug>(name: &str, result: std::io::Result<T>) -> Result<()> {
    let outcome = refused(result, libc::ETIMEDOUT, name);
    note(&format!("{name}: {outcome:?}"));
    outcome
}

/// Sends `message` repeatedly, until a call times out.
fn send_in_vain(name: &str, socket: &Socket, message: &[u8]) -> Outcome {
    loop {
        let sent = socket.send(message, libc::MSG_NOSIGNAL);
        if sent.is_err() {
            return timed_out(name, sent);
        }
    }
}

/// Receives until a call times out.
fn receive_in_vain(name: &str, socket: &Socket) -> Outcome {
    let mut bytes = vec![0; 1 << 16];
    loop {
        match socket.receive(&mut bytes, 0) {
            Ok(0) => bail!("{name}: the end of a stream that was cut"),
            Ok(_) => {}
            error => return timed_out(name, error),
        }
    }
}

/// Cuts the wire while there are connections in every state. All of them then wait at the same
/// time.
fn vanished(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(700, 16)?;
    let pair = || lab.esp_pair_through(&listener, 700);
    let (writer, _writers_peer) = pair()?;
    let (reader, readers_peer) = pair()?;
    let (idle, _idles_peer) = pair()?;
    let (asker, _askers_peer) = pair()?;
    let (congested, congesting) = pair()?;
    let (closed, closeds_peer) = pair()?;
    exchange(&reader, &readers_peer)?;
    exchange(&closed, &closeds_peer)?;
    let message = &random(32 << 20, 700);
    thread::scope(|scope| {
        let started = [
            scope.spawn(|| send_in_vain("send to a reader", &readers_peer, message)),
            scope.spawn(|| receive_in_vain("recv amid a message", &reader)),
            // The receiving program does not read, so its host withholds acknowledgements even
            // before the cut. After the cut the sender must time out all the same.
            scope.spawn(|| send_in_vain("send to a full buffer", &congesting, message)),
        ];
        eventually("full buffers", || {
            Ok(congested.queued(libc::FIONREAD)? > 10_000)
        })?;
        lab.relay().set_mode(Mode::Cut);
        drop((closed, closeds_peer));
        let rest = [
            scope.spawn(|| send_in_vain("blocked send", &writer, message)),
            scope.spawn(|| {
                // The request is never answered, and only the timers can detect that.
                asker.send_all(b"request")?;
                timed_out("recv of an answer", asker.receive(&mut [0; 8], 0))
            }),
            scope.spawn(|| timed_out("idle recv", idle.receive(&mut [0; 8], 0))),
            scope.spawn(|| {
                let late = lab.a.esp()?;
                timed_out("connect", late.connect(&lab.a.to(&lab.b, 700)))
            }),
        ];
        let mut threads = started.into_iter().chain(rest);
        threads.try_for_each(|thread| joined(thread)?)
    })
}

/// Closes connections with unacknowledged bytes, and drops their namespaces. The connections must
/// time out even there.
fn orphans() -> Outcome {
    let lab = Lab::new(Wiring::Switched)?;
    let listener = lab.b.esp_listener(702, 16)?;
    let pairs = (0..10)
        .map(|_| lab.esp_pair_through(&listener, 702))
        .collect::<Result<Vec<_>>>()?;
    lab.relay().set_mode(Mode::Cut);
    for (client, server) in &pairs {
        client.send_all(&[1; 5000])?;
        server.send_all(&[2; 5000])?;
    }
    drop((pairs, listener));
    drop(lab);
    // The loop tries for as long as a sender may take to time out.
    for _ in 0..600 {
        if module::references()? == 0 {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    Err(anyhow!(
        "{} references to the module are left",
        module::references()?
    ))
}

/// A connection without traffic, and one whose reader pauses, outlive every timeout.
fn patient(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(701, 16)?;
    let (idle, idles_peer) = lab.esp_pair_through(&listener, 701)?;
    let (sender, reader) = lab.esp_pair_through(&listener, 701)?;
    let (waiter, waiters_peer) = lab.esp_pair_through(&listener, 701)?;
    exchange(&idle, &idles_peer)?;
    let message = random(4 << 20, 701);
    let mut got = vec![0; message.len()];
    let wait = |socket: &Socket| -> Result<()> {
        let mut byte = [0];
        let length = socket.receive(&mut byte, 0).context("a patient reader")?;
        ensure!(length == 1, "the end of an idle stream");
        Ok(())
    };
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&waiter));
        let receive = || {
            reader.receive_exact(&mut got[..1000])?;
            // This is longer than it takes to detect a vanished peer, on an idle or a busy
            // connection.
            thread::sleep(Duration::from_secs(60));
            reader
                .receive_exact(&mut got[1000..])
                .context("after the pause")
        };
        let moved = beside(
            || {
                sender
                    .send_all(&message)
                    .context("a paused reader's sender")
            },
            receive,
        );
        waiters_peer.send_all(b"!").context("after a minute")?;
        joined(waiting)??;
        moved.map(drop)
    })?;
    ensure!(got == message, "the bytes changed on the way");
    exchange(&idle, &idles_peer).context("an idle connection after a minute")
}
