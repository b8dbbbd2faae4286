// SPDX-License-Identifier: GPL-2.0-only

//! Measures the victims of an attack: the streams that the attack must not slow down, and the
//! memory of a host.

use guest::prelude::*;
use guest::socket::meminfo::{BACKLOG, RCVBUF, RMEM_ALLOC, SNDBUF, WMEM_QUEUED};

/// The number of bytes that a stream carries in one measurement.
const TOTAL: usize = 6_000_000;

/// Returns the goodput of an existing connection from host b to host a, in bytes per second.
///
/// # Errors
/// If a call fails, or bytes are lost.
pub fn goodput(from: &Socket, to: &Socket) -> Result<f64> {
    let started = Instant::now();
    let send = || {
        let bytes = [0x5a; 30_000];
        for _ in 0..TOTAL / bytes.len() {
            from.send_all(&bytes)?;
        }
        Ok(())
    };
    let receive = || {
        let mut room = vec![0; 60_000];
        let mut left = TOTAL;
        while left > 0 {
            let got = to.receive(&mut room, 0).context("receiving")?;
            ensure!(got > 0, "the stream ended with {left} bytes to come");
            ensure!(
                room[..got].iter().all(|byte| *byte == 0x5a),
                "other bytes came"
            );
            left -= got;
        }
        Ok(())
    };
    beside(send, receive)?;
    Ok(TOTAL as f64 / started.elapsed().as_secs_f64())
}

/// Connects from b to `port` of a; returns the sender, the receiver and the listener.
///
/// # Errors
/// If a call fails.
pub fn stream(lab: &Lab, port: u16, backlog: i32) -> Result<(Socket, Socket, Socket)> {
    let listener = lab.a.esp_listener(port, backlog)?;
    let from = lab
        .b
        .esp_connected(&lab.b.to(&lab.a, port))
        .context("connect")?;
    let (to, _) = listener.accept(0).context("accept")?;
    Ok((from, to, listener))
}

/// Returns the median goodput of several transfers. A single transfer may be disturbed, because now
/// and then the guest has other work.
///
/// # Errors
/// If a call fails, or bytes are lost.
pub fn usual_goodput(from: &Socket, to: &Socket) -> Result<f64> {
    const TRANSFERS: usize = 5;
    let mut rates = (0..TRANSFERS)
        .map(|_| goodput(from, to))
        .collect::<Result<Vec<_>>>()?;
    rates.sort_unstable_by(f64::total_cmp);
    Ok(rates[TRANSFERS / 2])
}

/// Returns how many bytes of memory, overhead included, a socket uses for data that the peer has
/// not yet acknowledged.
///
/// # Errors
/// The errno of `getsockopt(2)`.
pub fn unsent(socket: &Socket) -> Result<u32> {
    Ok(socket.meminfo()?[WMEM_QUEUED])
}

/// Returns three numbers of bytes: the memory in a socket's receive queue and backlog, overhead
/// included; the limit of the receive buffer; and the limit of the send buffer.
///
/// # Errors
/// The errno of `getsockopt(2)`.
pub fn held(socket: &Socket) -> Result<(u32, u32, u32)> {
    let numbers = socket.meminfo()?;
    let held = numbers[RMEM_ALLOC].saturating_add(numbers[BACKLOG]);
    Ok((held, numbers[RCVBUF], numbers[SNDBUF]))
}
