// SPDX-License-Identifier: GPL-2.0-only

//! Orphans are connections whose descriptors are closed. The module limits their memory, because no
//! limit of the kernel does.

use guest::meminfo::kib;
use guest::prelude::*;

scenarios! {
    direct esp_closed_sockets_hold_limited_memory = bounded, within(120);
    direct esp_closed_sockets_of_all_namespaces_share_one_limit = shared, within(120);
}

/// The port of the servers that close their connections.
const PORT: u16 = 720;

/// The size of a server's send buffer, in bytes. It is large, so that a few connections hold much
/// memory. Each connection whose peer does not read sends probes, and hundreds of such connections
/// are too much for the debug kernel.
const SEND_BUFFER: i32 = 2 << 20;

/// Returns the number of bytes that closed sockets may hold.
fn limit() -> Result<usize> {
    Ok(usize::try_from(kib("MemTotal")? << 10)? / 32)
}

/// Sends until the buffer is full. Returns how many bytes the peer has not acknowledged.
fn fill(socket: &Socket, bytes: &[u8]) -> Result<usize> {
    socket.set_nonblocking(true)?;
    let mut sent = 0;
    loop {
        // Every stream has the same bytes at the same offsets.
        let from = sent % bytes.len();
        match socket.send(&bytes[from..], 0) {
            Ok(taken) => sent += taken,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => break,
            Err(error) => return Err(error).context("filling a send buffer"),
        }
    }
    Ok(socket.queued(libc::TIOCOUTQ)? as usize)
}

fn is_reset(socket: &Socket) -> Result<bool> {
    Ok(socket.events()? & libc::POLLHUP != 0)
}

/// Connects a client whose server sends until its buffer is full, and closes. Returns the client,
/// and the number of bytes that the server holds.
fn abandoned(lab: &Lab, listener: &Socket, bytes: &[u8]) -> Result<(Socket, usize)> {
    let (client, server) = lab.esp_pair_through(listener, PORT)?;
    server.set_so(libc::SO_SNDBUFFORCE, SEND_BUFFER)?;
    let held = fill(&server, bytes)?;
    ensure!(held > 0, "nothing waits for the reader");
    Ok((client, held))
}

/// Connects clients like [`abandoned`] until their servers would hold twice the limit. Returns the
/// clients, and the smallest number of bytes that one server would hold.
fn too_many(lab: &Lab, listener: &Socket, bytes: &[u8]) -> Result<(Vec<Socket>, usize)> {
    let most = limit()?;
    let (mut clients, mut least, mut all) = (Vec::new(), usize::MAX, 0);
    while all < 2 * most {
        let (client, held) = abandoned(lab, listener, bytes)?;
        least = least.min(held);
        all += held;
        clients.push(client);
    }
    Ok((clients, least))
}

/// Waits until the limit has room for one more closed socket. The memory of other closed sockets is
/// released a while after their connections end.
fn await_room(lab: &Lab, listener: &Socket, bytes: &[u8]) -> Outcome {
    eventually("room for what another closed socket holds", || {
        let (client, _) = abandoned(lab, listener, bytes)?;
        let mut got = vec![0; 1000];
        let came = client.receive_exact(&mut got).is_ok();
        Ok(came && got == bytes[..1000] && !is_reset(&client)?)
    })
}

/// The closed sockets of all namespaces share one limit.
fn shared(lab: &Lab) -> Outcome {
    let bytes = random(1 << 16, 721);
    let listener = lab.b.esp_listener(PORT, 16)?;
    let (clients, _) = too_many(lab, &listener, &bytes)?;
    let other = Lab::new(Wiring::Direct)?;
    let listener = other.b.esp_listener(PORT, 16)?;
    // If one of these connections holds fewer bytes than every earlier one, it may still fit the
    // limit.
    let more = (0..4)
        .map(|_| Ok(abandoned(&other, &listener, &bytes)?.0))
        .collect::<Result<Vec<_>>>()?;
    eventually("resets in the other namespace", || {
        let reset = more.iter().filter(|one| matches!(is_reset(one), Ok(true)));
        Ok(reset.count() >= 3)
    })?;
    drop(clients);
    lab.b.await_proc("esp", |text| text.lines().count() <= 2)?;
    drop(more);
    other
        .b
        .await_proc("esp", |text| text.lines().count() <= 2)?;
    await_room(&other, &listener, &bytes)?;
    drop(listener);
    other.await_no_sockets()
}

/// In this test servers answer and close their sockets, and clients never read the answers.
fn bounded(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(PORT, 16)?;
    let bytes = random(1 << 16, 720);
    let most = limit()?;
    let (clients, least) = too_many(lab, &listener, &bytes)?;
    let reset = || {
        clients
            .iter()
            .map(is_reset)
            .filter(|one| matches!(one, Ok(true)))
            .count()
    };
    // The module resets the connections that follow the one with which the limit is exceeded. So
    // one connection more than the limit has room for may remain.
    eventually("enough resets", || {
        Ok((clients.len() - reset()).saturating_sub(1) * least <= most)
    })
    .with_context(|| {
        format!(
            "{} of {} connections, {least} bytes each at least, were reset; {most} bytes may be held",
            reset(),
            clients.len()
        )
    })?;
    let lasting = clients.len() - reset();
    note(&format!("{lasting} of {} go on", clients.len()));
    ensure!(lasting > 0, "closed sockets hold nothing at all");

    // The remaining connections deliver all bytes. When they have ended there is room again.
    for client in clients
        .iter()
        .filter(|one| matches!(is_reset(one), Ok(false)))
    {
        let mut got = vec![0; bytes.len()];
        let mut at = 0;
        loop {
            let length = client
                .receive(&mut got, 0)
                .context("what was left to say")?;
            if length == 0 {
                break;
            }
            for byte in &got[..length] {
                ensure!(*byte == bytes[at % bytes.len()], "byte {at} is wrong");
                at += 1;
            }
        }
    }
    drop(clients);
    // Two lines remain: the heading and the listener.
    lab.b.await_proc("esp", |text| text.lines().count() <= 2)?;
    await_room(lab, &listener, &bytes)
}
