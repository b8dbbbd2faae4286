// SPDX-License-Identifier: GPL-2.0-only

//! Tests mapped sockets that are disconnected while they connect.

use guest::address::internet;
use guest::asleep::asleep;
use guest::mapped::stream;
use guest::mapped::{dial, is_esp, known, listener, MAPPED, PLAIN};
use guest::patience::factor;
use guest::prelude::*;

scenarios! {
    direct mapped_connect_that_sleeps_ends_by_disconnecting = in_connect;
    direct mapped_attempt_is_told_as_tcps = attempt_is_told;
    direct mapped_socket_that_was_shut_down_before_is_tcps = shut_down_before;
    direct mapped_connection_of_which_a_half_was_shut_is_connected = shut_down_after;
    direct mapped_accepted_socket_that_connects_again_has_its_own_names = accepted_again;
    direct mapped_socket_disconnected_while_it_goes_to_tcp_stays_closed = while_it_goes_to_tcp, within(120), needs_smp;
}

/// The address `AF_UNSPEC`, which disconnects a socket.
const NOTHING: [u8; 16] = [0; 16];

/// The state of a TCP socket without a connection, in `TCP_INFO`.
pub const TCP_CLOSE: u8 = 7;

/// Returns the state that `TCP_INFO` reports.
///
/// # Errors
/// When the call fails.
pub fn state(socket: &Socket) -> Result<u8> {
    let info = socket.option(libc::IPPROTO_TCP, libc::TCP_INFO, 1, 1)?;
    info.first().copied().context("no state")
}

/// Disconnects a socket while its `connect` to `to` sleeps. Returns the error number of `connect`,
/// and the socket's state after that.
fn disconnected(lab: &Lab, kind: (i32, i32), to: &[u8]) -> Result<(Option<i32>, u8)> {
    let client = stream(&lab.a, kind.0, kind.1)?;
    let call = || client.connect_bytes(to);
    let (slept, connected, ()) = asleep(libc::SYS_connect, call, |_| {
        Ok(client.connect_bytes(&NOTHING)?)
    })?;
    ensure!(slept, "connect did not wait");
    let errno = connected.err().and_then(|error| error.raw_os_error());
    Ok((errno, state(&client)?))
}

fn in_connect(lab: &Lab) -> Outcome {
    known(lab)?;
    // ESP drops SYNs while its accept queue is full; TCP's own accept queue has room, and TCP would
    // connect.
    let _full = listener(&lab.b, MAPPED, 985, 0)?;
    let first = dial(&lab.a, MAPPED, 985)?;
    ensure!(is_esp(&first), "ESP does not listen");
    let plain = disconnected(lab, PLAIN, &internet([10, 0, 0, 99], 985))?;
    let mapped = disconnected(lab, MAPPED, &internet([10, 0, 0, 2], 985))?;
    same(plain.1, TCP_CLOSE, "the state of TCP")?;
    ensure!(
        plain == mapped,
        "errno and state of TCP {plain:?}, mapped {mapped:?}"
    );
    Ok(())
}

/// The state of a TCP socket that has sent a SYN, in `TCP_INFO`.
const TCP_SYN_SENT: u8 = 2;

/// `TCP_INFO` tells a program that the attempt is under way, whichever protocol makes it.
fn attempt_is_told(lab: &Lab) -> Outcome {
    known(lab)?;
    // ESP's SYN gets no answer while the accept queue is full.
    let _full = listener(&lab.b, MAPPED, 986, 0)?;
    let first = dial(&lab.a, MAPPED, 986)?;
    ensure!(is_esp(&first), "ESP does not listen");
    for (kind, to) in [(PLAIN, [10, 0, 0, 99]), (MAPPED, [10, 0, 0, 2])] {
        let client = stream(&lab.a, kind.0, kind.1)?;
        client.set_nonblocking(true)?;
        let connected = client.connect_bytes(&internet(to, 986));
        refused(connected, libc::EINPROGRESS, "connect")?;
        same(state(&client)?, TCP_SYN_SENT, "the state of the attempt")?;
    }
    // A connection refuses options that only a closed socket takes.
    let _listener = listener(&lab.b, PLAIN, 987, 1)?;
    for connection in [&first, &dial(&lab.a, PLAIN, 987)?] {
        let set = connection.set_int_option(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1);
        refused(set, libc::EINVAL, "TCP_FASTOPEN_CONNECT")?;
    }
    Ok(())
}

/// TCP notes the halves that are shut down even if it has no connection, and none of its calls but
/// the disconnecting one reopens them.
fn shut_down_before(lab: &Lab) -> Outcome {
    known(lab)?;
    let _listener = listener(&lab.b, MAPPED, 988, 4)?;
    for kind in [PLAIN, MAPPED] {
        let client = stream(&lab.a, kind.0, kind.1)?;
        let shut = client.shutdown(libc::SHUT_WR);
        refused(shut, libc::ENOTCONN, "shutdown")?;
        client.connect_bytes(&internet([10, 0, 0, 2], 988))?;
        ensure!(!is_esp(&client), "ESP has it");
        let sent = client.send(b"x", libc::MSG_NOSIGNAL);
        refused(sent, libc::EPIPE, "send")?;
        client.connect_bytes(&NOTHING)?;
        client.connect_bytes(&internet([10, 0, 0, 2], 988))?;
        same(client.send(b"x", 0)?, 1, "sent after disconnecting")?;
        same(is_esp(&client), kind == MAPPED, "by ESP")?;
    }
    Ok(())
}

/// A program that shuts a half of its new connection knows the connection, and needs no `connect`
/// to report it.
fn shut_down_after(lab: &Lab) -> Outcome {
    known(lab)?;
    for (kind, port) in [(PLAIN, 995), (MAPPED, 996)] {
        let _listener = listener(&lab.b, kind, port, 4)?;
        let client = stream(&lab.a, kind.0, kind.1)?;
        client.set_nonblocking(true)?;
        let to = internet([10, 0, 0, 2], port);
        refused(client.connect_bytes(&to), libc::EINPROGRESS, "connect")?;
        await_events(&client, libc::POLLOUT)?;
        same(is_esp(&client), kind == MAPPED, "by ESP")?;
        client.shutdown(libc::SHUT_WR)?;
        refused(
            client.connect_bytes(&to),
            libc::EISCONN,
            "a further connect",
        )?;
    }
    Ok(())
}

fn accepted_again(lab: &Lab) -> Outcome {
    known(lab)?;
    let far = listener(&lab.b, MAPPED, 989, 1)?;
    let near = listener(&lab.a, MAPPED, 990, 1)?;
    let client = dial(&lab.a, MAPPED, 989)?;
    let (accepted, _) = far.accept(0)?;
    ensure!(
        is_esp(&accepted),
        "ESP has not carried the first connection"
    );
    drop(client);
    accepted.connect_bytes(&NOTHING)?;
    let to = internet([10, 0, 0, 1], 990);
    accepted.connect_bytes(&to)?;
    ensure!(
        is_esp(&accepted),
        "ESP does not carry the second connection"
    );
    same(accepted.peer_name()?, to.to_vec(), "the peer's name")?;
    let (_, name) = near.accept(0)?;
    same(accepted.local_name()?, name, "the own name")
}

/// One call hands the connection over to TCP, and at about the same time a second call disconnects
/// the socket.
fn while_it_goes_to_tcp(lab: &Lab) -> Outcome {
    let rounds = 600 / factor() as u16;
    /// The longest delay of the second call, about 20 microseconds, in iterations of a loop.
    const LATE: u32 = 20_000;
    known(lab)?;
    let mut rng = 1_u32;
    for round in 0..rounds {
        let port = 2000 + round;
        let _listener = listener(&lab.b, PLAIN, port, 1)?;
        let client = stream(&lab.a, MAPPED.0, MAPPED.1)?;
        client.set_nonblocking(true)?;
        let to = internet([10, 0, 0, 2], port);
        refused(client.connect_bytes(&to), libc::EINPROGRESS, "connect")?;
        rng = rng.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let late = (rng >> 8) % LATE;
        let go = AtomicBool::new(false);
        thread::scope(|scope| {
            let looking = scope.spawn(|| {
                go.store(true, Ordering::Release);
                client.poll(libc::POLLOUT, patience())
            });
            while !go.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            for _ in 0..late {
                std::hint::spin_loop();
            }
            client.connect_bytes(&NOTHING)?;
            joined(looking)??;
            anyhow::Ok(())
        })?;
        let state = state(&client)?;
        ensure!(
            state == TCP_CLOSE,
            "round {round}: disconnected, and in state {state}"
        );
    }
    Ok(())
}
