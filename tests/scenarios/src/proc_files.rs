// SPDX-License-Identifier: GPL-2.0-only

//! Tests the lists of sockets in `/proc/net/edp` and `/proc/net/esp`.

use std::io::{Read, Seek};

use nix::sched::{unshare, CloneFlags};

use guest::harness::well_in_process;
use guest::prelude::*;

scenarios! {
    direct proc_net_edp_lists_sockets = edp;
    direct proc_net_esp_lists_sockets = esp;
    direct proc_net_lists_many_sockets_once_each = many;
    direct proc_net_is_made_as_far_as_it_is_read = pieces;
    guest proc_net_shows_user_ids_of_the_readers_namespace = user_ids;
}

/// Returns the line of `file` for the local `port`, as a list of fields.
fn line(host: &Host, file: &str, port: u16) -> Result<Vec<String>> {
    let text = host.namespace.proc_net(file)?;
    let end = format!(":{port}");
    text.lines()
        .skip(1)
        .find(|line| {
            let local = line.split_whitespace().next();
            local.is_some_and(|local| local.ends_with(&end))
        })
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .with_context(|| format!("port {port} is not listed in {text:?}"))
}

/// Returns the position of the column `name` in the header of `file`, counted from 0.
fn column(host: &Host, file: &str, name: &str) -> Result<usize> {
    let text = host.namespace.proc_net(file)?;
    let header = text.lines().next().context("no header")?;
    header
        .split_whitespace()
        .position(|word| word == name)
        .with_context(|| format!("no column {name} in {header:?}"))
}

fn edp(lab: &Lab) -> Outcome {
    for host in [&lab.a, &lab.b] {
        ensure!(
            host.namespace.proc_net("edp")?.lines().count() == 1,
            "a header and nothing else"
        );
    }
    let (a, b) = lab.edp_pair(2805)?;
    let fields = line(&lab.a, "edp", 2805)?;
    let (local, remote) = (
        format!("02:00:00:00:00:01%{}:2805", lab.a.ifindex),
        format!("02:00:00:00:00:02%{}:2805", lab.a.ifindex),
    );
    ensure!(fields[..2] == [local, remote], "addresses: {fields:?}");
    b.set_so(libc::SO_RCVBUF, 4096)?;
    for _ in 0..50 {
        a.send(&[0; 1000], 0)?;
    }
    await_events(&b, libc::POLLIN)?;
    let (drops, queue) = (
        column(&lab.b, "edp", "drops")?,
        column(&lab.b, "edp", "recv-q")?,
    );
    eventually("all datagrams accounted for", || {
        let stats = b.edp_counters()?;
        Ok(stats.pkt_rx + stats.pkt_rx_drop == 50)
    })?;
    let fields = line(&lab.b, "edp", 2805)?;
    let counted = b.edp_counters()?.pkt_rx_drop;
    same(&fields[drops], &counted.to_string(), "drops")?;
    ensure!(fields[queue] != "0", "an empty queue: {fields:?}");
    drop(a);
    ensure!(
        lab.a.namespace.proc_net("edp")?.lines().count() == 1,
        "a closed socket is listed"
    );
    Ok(())
}

fn esp(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(2805, 4)?;
    let state = column(&lab.b, "esp", "state")?;
    let listening = line(&lab.b, "esp", 2805)?;
    same(&listening[state], "listen", "a listener's state")?;
    let (client, server) = lab.esp_pair_through(&listener, 2805)?;
    let port = client.local_address()?.port;
    let fields = line(&lab.a, "esp", port)?;
    same(&fields[state], "established", "a connection's state")?;
    let remote = format!("02:00:00:00:00:02%{}:2805", lab.a.ifindex);
    ensure!(fields[1] == remote, "the peer: {fields:?}");
    client.send_all(&[0; 5000])?;
    arrived(&server, 5000)?;
    let lines = lab.b.namespace.proc_net("esp")?.lines().count();
    same(lines, 3, "lines for a listener and a connection")?;
    client.shutdown(libc::SHUT_WR)?;
    eventually("fin-wait-2", || {
        Ok(line(&lab.a, "esp", port)?[state] == "fin-wait-2")
    })
}

/// The lines for the sockets of each kind (datagram sockets, listeners, connections, bound sockets)
/// do not fit into the first buffer that the kernel allocates.
fn many(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(2806, 300)?;
    let mut held = Vec::new();
    for port in 3000..3150 {
        held.push(lab.b.edp_bound(port)?);
        held.push(lab.b.esp_listener(port, 1)?);
        let bound = lab.b.esp()?;
        bound.bind(&lab.b.here(port + 1000))?;
        held.push(bound);
        let (client, server) = lab.esp_pair_through(&listener, 2806)?;
        held.extend([client, server]);
    }
    for (file, count) in [("edp", 150), ("esp", 1 + 3 * 150)] {
        let text = lab.b.namespace.proc_net(file)?;
        let mut lines: Vec<&str> = text.lines().skip(1).collect();
        same(lines.len(), count, &format!("lines of {file}"))?;
        lines.sort_unstable();
        lines.dedup();
        ensure!(lines.len() == count, "{file} has the same line twice");
    }
    Ok(())
}

/// Reads the whole file, `size` bytes per call.
fn read_in_pieces(file: &mut File, size: usize) -> Result<String> {
    let mut text = Vec::new();
    let mut piece = vec![0; size];
    loop {
        let length = file.read(&mut piece)?;
        if length == 0 {
            return String::from_utf8(text).context("text");
        }
        text.extend_from_slice(&piece[..length]);
    }
}

/// Readers that take a little at a time get every socket once, and the first piece costs less than
/// the whole file.
fn pieces(lab: &Lab) -> Outcome {
    let ports = 3000..5000u16;
    let mut held = Vec::new();
    for port in ports.clone() {
        held.push(lab.b.edp_bound(port)?);
        let stream = lab.b.esp()?;
        stream.bind(&lab.b.here(port))?;
        held.push(stream);
    }
    lab.b.namespace.within(|| {
        for name in ["edp", "esp"] {
            let mut file = File::open(format!("/proc/thread-self/net/{name}"))?;
            let whole = fs::read_to_string(format!("/proc/thread-self/net/{name}"))?;
            for size in [50, 4096, 1 << 20] {
                file.rewind()?;
                let text = read_in_pieces(&mut file, size)?;
                ensure!(text == whole, "{name} in pieces of {size} differs");
            }
            let mut listed: Vec<u16> = whole
                .lines()
                .skip(1)
                .filter_map(|line| {
                    line.split_whitespace()
                        .next()?
                        .rsplit(':')
                        .next()?
                        .parse()
                        .ok()
                })
                .collect();
            listed.sort_unstable();
            ensure!(
                listed.iter().copied().eq(ports.clone()),
                "{name}: {listed:?}"
            );
            let mut least = [f64::MAX; 2];
            for _ in 0..5 {
                for (size, least) in [100, whole.len()].into_iter().zip(&mut least) {
                    let started = Instant::now();
                    File::open(format!("/proc/thread-self/net/{name}"))?
                        .read_exact(&mut vec![0; size])?;
                    *least = least.min(started.elapsed().as_secs_f64());
                }
            }
            let [piece, all] = least;
            note(&format!("{name}: 100 bytes in {piece} s, all in {all} s"));
            ensure!(
                piece < all / 4.0,
                "{name}: the first 100 bytes take {piece} s, all of it {all} s"
            );
        }
        Ok(())
    })?
}

/// Returns the users of the sockets that `text` lists.
fn users(text: &str) -> Result<Vec<&str>> {
    let lines = text.lines().skip(1);
    lines
        .map(|line| line.split_whitespace().rev().nth(2).context("no user"))
        .collect()
}

/// In this test the root user of a container creates sockets. This user has the number 1000 on the
/// host and 0 in the container. A reader on either side gets the number that is valid there.
fn user_ids() -> Outcome {
    well_in_process("the container", contained)
}

fn contained() -> Outcome {
    // The files are opened with the host's credentials. As long as a file is open, these
    // credentials decide which user numbers the file shows.
    unshare(CloneFlags::CLONE_NEWNET).context("a namespace")?;
    let mut hosts = [
        File::open("/proc/self/net/edp")?,
        File::open("/proc/self/net/esp")?,
    ];
    // SAFETY: The calls take integers.
    unsafe {
        check(libc::setresgid(1000, 1000, 1000))
            .and_then(|_| check(libc::setresuid(1000, 1000, 1000)))
    }
    .context("becoming a user")?;
    // A process that has changed its user may not write to its own files of /proc, unless it is
    // dumpable. SAFETY: The call takes integers.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) }).context("prctl")?;
    unshare(CloneFlags::CLONE_NEWUSER).context("a user namespace")?;
    fs::write("/proc/self/uid_map", "0 1000 1").context("uid_map")?;
    let held = [Socket::edp()?, Socket::esp()?];
    for (socket, host) in held.iter().zip(&mut hosts) {
        socket.bind_bytes(
            &Address {
                port: 2811,
                ..Default::default()
            }
            .to_bytes(),
        )?;
        let mut text = String::new();
        host.read_to_string(&mut text)?;
        ensure!(users(&text)? == ["1000"], "the host reads {text:?}");
    }
    for file in ["edp", "esp"] {
        let text = fs::read_to_string(format!("/proc/self/net/{file}"))?;
        ensure!(users(&text)? == ["0"], "the container reads {text:?}");
    }
    Ok(())
}
