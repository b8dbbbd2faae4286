// SPDX-License-Identifier: GPL-2.0-only

//! Transfers random bytes through streams and compares them by SHA-256.

use fastrand::Rng;
use sha2::{Digest, Sha256};

use crate::prelude::*;

/// A SHA-256 checksum.
pub type Checksum = [u8; 32];

/// Returns `length` random bytes.
pub fn random(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Sends `load`, and then more bytes until `enough` is set. Returns the number of bytes sent and
/// their checksum.
fn send_until(socket: &Socket, load: Load, enough: &AtomicBool) -> Result<(usize, Checksum)> {
    let Load { total, chunk, seed } = load;
    let mut rng = Rng::with_seed(seed);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; chunk];
    let mut sent = 0;
    while sent < total || !enough.load(Ordering::Relaxed) {
        let length = match total.saturating_sub(sent) {
            0 => chunk,
            left => chunk.min(left),
        };
        let part = &mut buffer[..length];
        rng.fill(part);
        hash.update(&*part);
        socket
            .send_all(part)
            .with_context(|| format!("sending after {sent} of {total} bytes"))?;
        sent += length;
    }
    Ok((sent, hash.finalize().into()))
}

/// Receives to the end of the stream, at most `chunk` bytes per call; returns the number of bytes
/// and their checksum.
///
/// # Errors
/// The errno of the first call that fails.
pub fn receive_to_end(socket: &Socket, chunk: usize) -> Result<(usize, Checksum)> {
    receive_counting(socket, chunk, &AtomicUsize::new(0))
}

/// Works like [`receive_to_end`], and also keeps the number of bytes received so far in `received`.
///
/// # Errors
/// The errno of the first call that fails.
pub fn receive_counting(
    socket: &Socket,
    chunk: usize,
    received: &AtomicUsize,
) -> Result<(usize, Checksum)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; chunk];
    let mut total = 0;
    loop {
        let got = socket
            .receive(&mut buffer, 0)
            .with_context(|| format!("receiving after {total} bytes"))?;
        if got == 0 {
            return Ok((total, hash.finalize().into()));
        }
        hash.update(&buffer[..got]);
        total += got;
        received.store(total, Ordering::Relaxed);
    }
}

/// Sends until `enough` is set or a call fails, then ends the stream. The reason of a failure goes
/// to the scenario's remarks.
pub fn send_until_enough(socket: &Socket, enough: &AtomicBool) {
    let message = random(64 << 10, 5);
    while !enough.load(Ordering::Relaxed) {
        if let Err(error) = socket.send_all(&message) {
            note(&format!("a stream's sender: {error}"));
            break;
        }
    }
    // Tell the reader that the stream has ended. The error is ignored: it means that the connection
    // is gone.
    let _ = socket.shutdown(libc::SHUT_WR);
}

/// Makes counters of received bytes, one per stream.
pub fn counters(count: usize) -> Vec<AtomicUsize> {
    (0..count).map(|_| AtomicUsize::new(0)).collect()
}

/// Returns the values of `counters`.
pub fn counted(counters: &[AtomicUsize]) -> Vec<usize> {
    let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    counters.iter().map(read).collect()
}

/// A transfer's size, the bytes per call at both ends, and the seed of its contents.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of bytes that the whole transfer sends.
    pub total: usize,
    /// Number of bytes that one call sends or receives.
    pub chunk: usize,
    /// The seed of the random bytes.
    pub seed: u64,
}

impl Load {
    /// Makes a load of `total` bytes with `chunk` bytes per call and contents from `seed`.
    pub const fn of(total: usize, chunk: usize, seed: u64) -> Self {
        Self { total, chunk, seed }
    }

    /// A load of a megabyte; each call passes the bytes of several packets.
    pub const SMALL: Self = Self {
        total: 1 << 20,
        chunk: 40_000,
        seed: 870,
    };
}

/// Waits for a thread to end; returns its result.
///
/// # Errors
/// If the thread panicked.
pub fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked"))
}

/// Runs `other` in a thread while `here` runs in this one.
///
/// If one closure fails, the other one may block for ever. So a failure is noted at once. Otherwise
/// its reason would be lost when the scenario's deadline expires.
///
/// # Errors
/// If either fails; an error of `here` takes precedence.
pub fn beside<T: Send, U>(
    other: impl FnOnce() -> Result<T> + Send,
    here: impl FnOnce() -> Result<U>,
) -> Result<(T, U)> {
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let ended = other();
            if let Err(error) = &ended {
                note(&format!("the other side failed: {error:#}"));
            }
            ended
        });
        let here = here();
        if let Err(error) = &here {
            note(&format!("this side failed: {error:#}"));
        }
        let other = joined(other)?;
        let here = here?;
        Ok((other?, here))
    })
}

/// Sends `load` over a connection, ends the stream, and compares the bytes.
///
/// # Errors
/// If a call fails or the bytes differ.
pub fn transfer(from: &Socket, to: &Socket, load: Load) -> Result<()> {
    transfer_counting(from, to, load, &AtomicUsize::new(0))
}

/// Works like [`transfer`], and also keeps the number of bytes received so far in `received`.
///
/// # Errors
/// As [`transfer`].
pub fn transfer_counting(
    from: &Socket,
    to: &Socket,
    load: Load,
    received: &AtomicUsize,
) -> Result<()> {
    transfer_until(from, to, load, received, &AtomicBool::new(true))
}

/// Works like [`transfer_counting`], but sends more than `load` if needed, until `meanwhile`
/// returns. `meanwhile` gets the number of bytes received so far.
///
/// # Errors
/// As [`transfer`], or if `meanwhile` fails.
pub fn transfer_while<T: Send>(
    from: &Socket,
    to: &Socket,
    load: Load,
    meanwhile: impl FnOnce(&AtomicUsize) -> Result<T> + Send,
) -> Result<T> {
    let (received, enough) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let ended = meanwhile(&received);
        enough.store(true, Ordering::Relaxed);
        ended
    };
    let moving = || transfer_until(from, to, load, &received, &enough);
    let (value, ()) = beside(work, moving)?;
    Ok(value)
}

fn transfer_until(
    from: &Socket,
    to: &Socket,
    load: Load,
    received: &AtomicUsize,
    enough: &AtomicBool,
) -> Result<()> {
    let send = || {
        let sent = send_until(from, load, enough)?;
        from.shutdown(libc::SHUT_WR).context("shutdown")?;
        Ok(sent)
    };
    let receive = || receive_counting(to, load.chunk, received);
    let ((total, sent), (length, received)) = beside(send, receive)?;
    ensure!(length == total, "{length} of {total} bytes arrived");
    ensure!(received == sent, "the bytes changed on the way");
    Ok(())
}

/// Sends until the reader's receive buffer and the sender's send buffer are full; returns the
/// number of bytes sent.
///
/// # Errors
/// The errno of a call that failed.
pub fn fill(socket: &Socket) -> Result<usize> {
    let block = [b'x'; 4096];
    let mut total = 0;
    // The buffers count as full only after ten refusals, because an acknowledgement in flight may
    // still make room.
    let mut refusals = 0;
    while refusals < 10 {
        match socket.send(&block, libc::MSG_DONTWAIT) {
            Ok(took) => {
                total += took;
                refusals = 0;
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                refusals += 1;
                socket.poll(libc::POLLOUT, Duration::from_millis(50))?;
            }
            Err(error) => return Err(error).context("filling the buffers"),
        }
    }
    Ok(total)
}

/// Sends `load` in both directions at once, then compares the bytes.
///
/// # Errors
/// If a call fails or the bytes differ.
pub fn transfer_both_ways(a: &Socket, b: &Socket, load: Load) -> Result<()> {
    let back = Load {
        seed: !load.seed,
        ..load
    };
    beside(
        || transfer(b, a, back).context("from b to a"),
        || transfer(a, b, load).context("from a to b"),
    )?;
    Ok(())
}

/// Sends a few bytes each way over a connected stream.
///
/// # Errors
/// If a call fails or the bytes differ.
pub fn exchange(a: &Socket, b: &Socket) -> Result<()> {
    for (from, to, bytes) in [(a, b, b"hither"), (b, a, b"tither")] {
        from.send_all(bytes).context("sending")?;
        let mut got = [0; 6];
        to.receive_exact(&mut got).context("receiving")?;
        ensure!(&got == bytes, "{got:?} arrived");
    }
    Ok(())
}

/// Accepts the connection whose other end is `client`, and sends a few bytes each way over it.
///
/// # Errors
/// If a call fails or the bytes differ.
pub fn serve(listener: &Socket, client: &Socket) -> Result<Socket> {
    let (server, _) = listener.accept(0).context("accept")?;
    exchange(client, &server)?;
    Ok(server)
}
