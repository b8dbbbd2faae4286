// SPDX-License-Identifier: GPL-2.0-only

//! Makes traffic that checks itself. A server executes the order in each connection's first bytes,
//! and clients send the orders.
//!
//! Every byte of every stream is compared with the expected one. The code here does not depend on
//! the wire's faults.

mod ledger;
mod pattern;

pub use ledger::Ledger;
pub use pattern::Pattern;

use std::sync::atomic::Ordering::Relaxed;

use fastrand::Rng;

use guest::prelude::*;

/// Number of bytes per call of bulk traffic.
const CHUNK: usize = 1 << 16;

/// Number of bytes of the longest message of a dialogue.
const LONGEST: usize = 400;

/// The length, in bytes, of the order that a client sends first on each connection.
const ORDER: usize = 17;

/// How long either end waits for the other: twice the longest silence of a live connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// Limits how long calls on a connection wait, in case the peer is gone without a reset.
///
/// # Errors
/// If the socket refuses the limit.
pub fn set_patience(connection: &Socket) -> Result<()> {
    for which in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        connection
            .set_timeout(which, allow(PATIENCE))
            .context("SO_RCVTIMEO, SO_SNDTIMEO")?;
    }
    Ok(())
}

/// An order that a client gives the server on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Send every byte back, inverted.
    Echo,
    /// Receive a pattern, and send back its length.
    Take { seed: u64 },
    /// Receive a pattern, and send a pattern of `length` bytes at the same time.
    Exchange { seed: u64, length: u64 },
}

impl Order {
    fn to_bytes(self) -> [u8; ORDER] {
        let (kind, seed, length) = match self {
            Self::Echo => (1, 0, 0),
            Self::Take { seed } => (2, seed, 0),
            Self::Exchange { seed, length } => (3, seed, length),
        };
        let mut bytes = [0; ORDER];
        bytes[0] = kind;
        bytes[1..9].copy_from_slice(&seed.to_le_bytes());
        bytes[9..].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; ORDER]) -> Result<Self> {
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let (seed, length) = (number(1), number(9));
        match bytes[0] {
            1 => Ok(Self::Echo),
            2 => Ok(Self::Take { seed }),
            3 => Ok(Self::Exchange { seed, length }),
            kind => anyhow::bail!("an order of kind {kind} came"),
        }
    }
}

/// Serves every connection of `listener` in its own thread until `stop` is set, and then until the
/// last connection has ended.
///
/// A connection that ends or fails before its first byte is ignored, because its client failed to
/// connect. For other connections that fail, `excused` decides whether the error counts as a
/// failure. All connections that fail are reset, so that a failure does not look like an end of
/// stream.
///
/// # Errors
/// If the listener fails.
pub fn serve(
    listener: &Socket,
    stop: &AtomicBool,
    ledger: &Ledger,
    excused: &(impl Fn(&anyhow::Error) -> bool + Sync),
) -> Result<()> {
    listener.set_nonblocking(true)?;
    thread::scope(|scope| loop {
        let ready = listener.poll(libc::POLLIN, Duration::from_millis(50))?;
        let connection = match listener.accept(0) {
            Ok((connection, _)) => connection,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                if ready == 0 && stop.load(Relaxed) {
                    return Ok(());
                }
                continue;
            }
            Err(error) => return Err(error).context("accept"),
        };
        set_patience(&connection)?;
        ledger.accepted.fetch_add(1, Relaxed);
        scope.spawn(move || {
            if let Err(error) = answer(&connection, ledger) {
                let reset = connection.set_linger(Some(0)).context("SO_LINGER");
                let error = reset.err().unwrap_or(error);
                if !excused(&error) {
                    ledger.fail(error.context("the server"));
                }
            }
            ledger.close(&connection);
        });
    })
}

/// Returns a connection's order, or `None` if the stream ends or fails before its first byte.
fn read_order(connection: &Socket) -> Result<Option<Order>> {
    let mut bytes = [0; ORDER];
    let mut filled = 0;
    while filled < ORDER {
        match connection.receive(&mut bytes[filled..], 0) {
            Ok(0) if filled == 0 => return Ok(None),
            Err(_) if filled == 0 => {
                connection.set_linger(Some(0)).context("SO_LINGER")?;
                return Ok(None);
            }
            Ok(0) => anyhow::bail!("the stream ended after {filled} bytes"),
            Ok(got) => filled += got,
            Err(error) => return Err(error).context("receiving the order"),
        }
    }
    Order::from_bytes(bytes).map(Some)
}

fn answer(connection: &Socket, ledger: &Ledger) -> Result<()> {
    match read_order(connection)? {
        None => Ok(()),
        Some(Order::Echo) => echo(connection),
        Some(Order::Take { seed }) => {
            let length = take(connection, seed, ledger)?;
            connection
                .send_all(&length.to_le_bytes())
                .context("sending the length")
        }
        Some(Order::Exchange { seed, length }) => {
            exchange_patterns(connection, length, (!seed, seed), ledger)
        }
    }
}

fn echo(connection: &Socket) -> Result<()> {
    let mut bytes = [0; LONGEST];
    loop {
        let got = connection.receive(&mut bytes, 0).context("receiving")?;
        if got == 0 {
            return Ok(());
        }
        for byte in &mut bytes[..got] {
            *byte = !*byte;
        }
        connection.send_all(&bytes[..got]).context("echoing")?;
    }
}

/// Receives the pattern of `seed` to the end of the stream; returns its length.
fn take(connection: &Socket, seed: u64, ledger: &Ledger) -> Result<u64> {
    let mut pattern = Pattern::new(seed);
    let mut bytes = vec![0; CHUNK];
    loop {
        let got = connection
            .receive(&mut bytes, 0)
            .with_context(|| format!("receiving after {} bytes", pattern.passed()))?;
        if got == 0 {
            return Ok(pattern.passed());
        }
        pattern.check(&bytes[..got])?;
        ledger.bytes.fetch_add(got as u64, Relaxed);
    }
}

/// Sends the first `length` bytes of the pattern of `seed`, and ends the stream.
fn give(connection: &Socket, seed: u64, length: u64) -> Result<()> {
    let mut pattern = Pattern::new(seed);
    let mut bytes = vec![0; CHUNK];
    let mut left = length;
    while left > 0 {
        let chunk = left.min(CHUNK as u64);
        let part = &mut bytes[..chunk as usize];
        pattern.fill(part);
        connection
            .send_all(part)
            .with_context(|| format!("sending with {left} of {length} bytes to go"))?;
        left -= chunk;
    }
    connection.shutdown(libc::SHUT_WR).context("shutdown")
}

/// Sends and receives patterns of `length` bytes at the same time.
fn exchange_patterns(
    connection: &Socket,
    length: u64,
    (ours, theirs): (u64, u64),
    ledger: &Ledger,
) -> Result<()> {
    let (given, taken) = thread::scope(|scope| {
        let giving = scope.spawn(|| give(connection, ours, length));
        let taken = take(connection, theirs, ledger);
        (giving.join(), taken)
    });
    let came = taken?;
    given.map_err(|_| anyhow!("a thread panicked"))??;
    ensure!(came == length, "{came} of {length} bytes arrived");
    Ok(())
}

/// Checks that the peer's stream has ended.
fn ended(connection: &Socket) -> Result<()> {
    let more = connection
        .receive(&mut [0], 0)
        .context("awaiting the end")?;
    ensure!(more == 0, "the stream goes on after its end");
    Ok(())
}

/// Talks to the server: sends `rounds` random messages. Each message is answered before the next
/// one is sent.
///
/// # Errors
/// If a call fails or an answer is wrong.
pub fn dialogue(connection: &Socket, seed: u64, rounds: u32, ledger: &Ledger) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    connection
        .send_all(&Order::Echo.to_bytes())
        .context("sending the order")?;
    let (mut message, mut answer) = ([0; LONGEST], [0; LONGEST]);
    for round in 0..rounds {
        let length = rng.usize(1..=LONGEST);
        let (message, answer) = (&mut message[..length], &mut answer[..length]);
        rng.fill(message);
        connection
            .send_all(message)
            .with_context(|| format!("sending message {round}"))?;
        connection
            .receive_exact(answer)
            .with_context(|| format!("receiving answer {round}"))?;
        let right = message
            .iter()
            .zip(&*answer)
            .all(|(sent, got)| *got == !sent);
        ensure!(right, "answer {round} is wrong");
        ledger.messages.fetch_add(2, Relaxed);
        ledger.bytes.fetch_add(2 * length as u64, Relaxed);
    }
    connection.shutdown(libc::SHUT_WR).context("shutdown")?;
    ended(connection)
}

/// Sends `length` bytes to the server. The server answers with the number of bytes received.
///
/// # Errors
/// If a call fails or the returned length differs.
pub fn bulk(connection: &Socket, seed: u64, length: u64) -> Result<()> {
    connection
        .send_all(&Order::Take { seed }.to_bytes())
        .context("sending the order")?;
    give(connection, seed, length)?;
    let mut came = [0; 8];
    connection
        .receive_exact(&mut came)
        .context("receiving the length")?;
    let came = u64::from_le_bytes(came);
    ensure!(came == length, "{came} of {length} bytes arrived");
    ended(connection)
}

/// Sends `length` bytes to the server, and receives as many bytes from it at the same time.
///
/// # Errors
/// If a call fails or bytes are wrong.
pub fn both_ways(connection: &Socket, seed: u64, length: u64, ledger: &Ledger) -> Result<()> {
    connection
        .send_all(&Order::Exchange { seed, length }.to_bytes())
        .context("sending the order")?;
    exchange_patterns(connection, length, (seed, !seed), ledger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_wire() {
        for order in [
            Order::Echo,
            Order::Take { seed: u64::MAX },
            Order::Exchange { seed: 1, length: 2 },
        ] {
            assert_eq!(Order::from_bytes(order.to_bytes()).unwrap(), order);
        }
        assert!(Order::from_bytes([0; ORDER]).is_err());
    }
}
